//! Every seed of every fuzz target, and some thousand changes of the seeds, on a stable compiler: a short run of
//! each in every test run. The changes are drawn from a fixed seed, so that a run is like any other; `FUZZ_ROUNDS`
//! makes it longer, and every round draws others. Long runs are libFuzzer's (`fuzz/run`).

mod changes;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use changes::{Mutator, fuzz_folder, rounds, rows, seeds, words};
use sekisho_properties::{ALL, Property};

/// What so many inputs may take of the processor.
const INPUTS: usize = 16;
const LONGEST: Duration = Duration::from_secs(2);

#[test]
fn every_property_has_a_target_seeds_and_a_dictionary() {
    let rows = rows();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ALL.map(|property| property.name));
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let readme = fs::read_to_string(fuzz_folder().join("README.md")).expect("fuzz/README.md");
    for row in &rows {
        let name = &row.name;
        assert!(!seeds(name).is_empty(), "{name} has no seeds");
        assert!(!words(&row.dictionary).is_empty(), "{name} has no dictionary");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not built");
        assert!(readme.contains(&format!("| `{name}` |")), "{name} is not in the README");
        let target = fuzz_folder().join(format!("fuzz_targets/{name}.rs"));
        let target = fs::read_to_string(target).unwrap_or_else(|_| panic!("{name} has no target"));
        assert!(target.contains("sekisho_properties::"), "{name} checks something else");
        for (file, seed) in seeds(name) {
            assert!(seed.len() <= row.longest, "{name}/{file} is longer than what is tried");
        }
    }
}

fn replay(name: &str) {
    let property = ALL.into_iter().find(|property| property.name == name).expect("a promise");
    let row = rows().into_iter().find(|row| row.name == name).expect("a row");
    let seeds: Vec<(String, Vec<u8>)> = seeds(name).into_iter().collect();
    let mut watch = Pace::start();
    for (file, seed) in &seeds {
        hold(property, seed, &format!("seed {file}"));
        watch.holds(name, file);
    }
    for round in 0..rounds() {
        let words = words(&row.dictionary);
        let mut mutator = Mutator::new(round << 32, words, row.longest);
        // What was changed is changed again, so that some inputs come to lie far from every seed.
        let mut pool: Vec<Vec<u8>> = seeds.iter().map(|(_, seed)| seed.clone()).collect();
        let pool_max = pool.len() + 64;
        for turn in 0..row.changes {
            let (one, other) = (mutator.draw(pool.len()), mutator.draw(pool.len()));
            let input = mutator.change(&pool[one], &pool[other]);
            let which = format!("round {round}, change {turn}");
            hold(property, &input, &which);
            watch.holds(name, &which);
            if pool.len() < pool_max {
                pool.push(input);
            } else if mutator.draw(4) == 0 {
                let place = seeds.len() + mutator.draw(64);
                pool[place] = input;
            }
        }
    }
}

fn hold(property: Property, input: &[u8], which: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (property.check)(input)));
    assert!(outcome.is_ok(), "{}, {which}: {}", property.name, input.escape_ascii());
}

/// How long inputs take, a few at a time: to ask the kernel is dearer than most of them.
struct Pace {
    inputs: usize,
    before: Duration,
}

impl Pace {
    fn start() -> Self {
        Self { inputs: 0, before: ran() }
    }

    /// V14: an input that causes an endless loop takes longer than all others together.
    fn holds(&mut self, name: &str, which: &str) {
        self.inputs += 1;
        if self.inputs.is_multiple_of(INPUTS) {
            let now = ran();
            let took = now.saturating_sub(self.before);
            assert!(
                took < LONGEST,
                "{name}: {took:?} for {INPUTS} inputs, the last of them {which}"
            );
            self.before = now;
        }
    }
}

/// How long this thread has run: what others do with the machine does not count. Nothing where the kernel does not
/// tell.
fn ran() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

macro_rules! replays {
    ($($test:ident $name:literal,)*) => {
        $(#[test]
        fn $test() {
            replay($name);
        })*

        #[test]
        fn every_property_is_replayed() {
            assert_eq!([$($name),*], ALL.map(|property| property.name));
        }
    };
}

replays! {
    request_heads_have_one_meaning "request_head", // V1
    chunks_have_one_meaning "chunked", // V2
    hyper_understands_what_we_understand "differential", // V1, V2
    the_engine_answers_each_request_once "engine", // V3
    escapes_are_read_once "percent", // V17, V20, V21
    no_path_leaves_its_root "path", // V17, V18
    ranges_are_what_was_asked_for "range", // V16, V46
    conditions_come_to_what_the_rfc_says "conditional",
    values_are_read_as_they_are_written "values",
    credentials_are_who_they_say "credentials",
    forms_are_the_same_however_cut "multipart", // V29
    webdav_answers_are_well_formed "webdav", // V29
    changes_stay_below_their_folder "files", // V18
    a_readme_is_only_text "readme", // V48
    a_program_is_told_nothing_false "cgi_environment", // V22, V23
    a_program_splits_no_response "cgi_head", // V24
    a_program_has_one_ending "cgi_program",
    one_event_is_one_line "log", // V27
    a_configuration_is_read_as_it_is_written "config_syntax",
    a_configuration_holds_or_has_an_error "config",
    native_frames_are_the_same_however_cut "native_frames", // V42
    native_engines_lose_nothing "native_engine",
    http2_frames_are_the_same_however_cut "http2_frames", // V5, V13
    header_blocks_have_one_meaning "http2_hpack", // V12
    http2_answers_each_stream_once "http2_engine", // V7, V8
    http3_streams_are_the_same_however_cut "http3_frames", // V5, V13
    header_blocks_of_http3_have_one_meaning "http3_qpack", // V12
    http3_responds_once_on_each_stream "http3_engine", // V7, V8
    a_ring_believes_no_one "ring", // V42
    an_upstream_and_we_mean_the_same "upstream_http1", // V1, V2
    a_server_of_http2_and_we_mean_the_same "upstream_http2", // V7, V8, V9, V10, V12
    an_application_splits_no_response "upstream_cgi", // V24
    a_cache_entry_is_whole_or_none "cache_entry",
    a_name_server_answers_what_was_asked "resolver",
    a_balancer_names_one_client "proxy_header",
    text_is_replaced_however_it_is_cut "substitute",
    a_page_comes_to_the_same_however_it_is_cut "ssi",
    slices_come_to_what_was_asked_for "slices",
    a_hello_is_the_same_however_cut "tls_hello", // V32
    a_server_of_nats_is_understood_however_cut "nats",
}
