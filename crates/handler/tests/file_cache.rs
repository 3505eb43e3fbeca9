//! The file cache over real files, in virtual time.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sekisho_config::{Memory, Options, Settings};
use sekisho_handler::{FileCache, OpenFile, View};
use sekisho_http::Coding;
use sekisho_lifecycle::Moment;
use sekisho_route::{Files, Look};

const HOT_USES: usize = 16;

struct Fixture {
    dir: tempfile::TempDir,
    settings: Settings,
    cache: FileCache,
    now: u64,
    wall_secs: i64,
}

impl Fixture {
    /// A temporary directory, and a cache that is asked with these directives. No file is new.
    fn with(directives: &str) -> Self {
        let text = format!("events {{}} http {{ {directives} server {{ listen 80; }} }}");
        let source = Memory::of("/x/conf", text);
        let loaded = sekisho_config::load(Path::new("conf"), &Options::new("/x"), &source);
        let config = loaded.config.expect("a good configuration");
        let root = config.http.servers[0].root;
        let settings = config.http.locations[root.0 as usize].settings.clone();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let made = std::fs::metadata(dir.path()).expect("it is there").ctime();
        let cache = FileCache::default();
        Self { dir, settings, cache, now: 1000, wall_secs: made + 60 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), text).expect("it is written");
    }

    /// Looks at a file below a root, both within the directory.
    fn look_below(&mut self, root: &str, name: &str) -> Look<Rc<OpenFile>> {
        let root = self.at(root);
        let path = root.join(name);
        let (now, wall_secs) = (Moment::from_millis(self.now), self.wall_secs);
        let mut view = View { cache: &mut self.cache, now, wall_secs };
        let root_bytes = root.as_os_str().as_bytes().len();
        view.look(path.as_os_str().as_bytes(), root_bytes, &self.settings)
    }

    fn look(&mut self, name: &str) -> String {
        told(&self.look_below("", name))
    }
}

fn told(look: &Look<Rc<OpenFile>>) -> String {
    match look {
        Look::File(file) => {
            String::from_utf8_lossy(file.content().expect("it is small")).into_owned()
        }
        Look::Directory => "directory".to_owned(),
        Look::Missing => "missing".to_owned(),
        Look::Denied => "denied".to_owned(),
        Look::Failed => "failed".to_owned(),
    }
}

/// F2, V49: what may be opened below one root is not what may be opened below another.
#[test]
fn a_file_that_one_root_allows_is_not_served_below_another() {
    for policy in ["on", "if_not_owner"] {
        let mut fixture = Fixture::with(&format!(
            "disable_symlinks {policy}; open_file_cache max=10; open_file_cache_valid 60s;"
        ));
        std::fs::create_dir(fixture.at("folder")).expect("a folder");
        fixture.write("folder/file", "text");
        symlink("folder", fixture.at("link")).expect("a link");
        if lchown(fixture.at("link"), Some(12345), None).is_err() && policy == "if_not_owner" {
            // Only root can make a link that is another's.
            continue;
        }
        assert_eq!(told(&fixture.look_below("link", "file")), "text", "{policy}");
        assert_eq!(told(&fixture.look_below("", "link/file")), "denied", "{policy}");
        assert_eq!(told(&fixture.look_below("link", "file")), "text", "{policy}");
    }
}

/// F2, V19: links are followed, or not, or only to what has the same owner.
#[test]
fn links_are_followed_as_far_as_the_policy_goes() {
    for (policy, expected) in [
        ("off", ["text", "text", "text", "text"]),
        ("on", ["text", "denied", "denied", "denied"]),
        ("if_not_owner", ["text", "text", "text", "denied"]),
    ] {
        let mut fixture = Fixture::with(&format!("disable_symlinks {policy};"));
        std::fs::create_dir(fixture.at("folder")).expect("a folder");
        fixture.write("folder/file", "text");
        symlink("folder/file", fixture.at("link")).expect("a link");
        symlink("folder", fixture.at("way")).expect("a link");
        symlink("folder/file", fixture.at("others")).expect("a link");
        let is_root = lchown(fixture.at("others"), Some(12345), None).is_ok();
        let names = ["folder/file", "link", "way/file", "others"];
        for (name, expected) in names.into_iter().zip(expected) {
            if name != "others" || is_root {
                assert_eq!(fixture.look(name), expected, "{policy} {name}");
                assert_eq!(fixture.look(name), expected, "{policy} {name}, again");
            }
        }
    }
}

/// F1: without `open_file_cache` what is not hot is looked at every time, and what is hot for a moment
/// only.
#[test]
fn a_hot_entry_is_trusted_within_its_window_and_no_longer() {
    let mut fixture = Fixture::with("");
    fixture.write("file", "one");
    assert_eq!(fixture.look("file"), "one");
    fixture.write("file", "second");
    assert_eq!(fixture.look("file"), "second", "not hot");
    for _ in 0..HOT_USES {
        assert_eq!(fixture.look("file"), "second");
    }
    fixture.write("file", "the third");
    fixture.now += 99;
    assert_eq!(fixture.look("file"), "second", "hot");
    fixture.now += 1;
    assert_eq!(fixture.look("file"), "the third", "the window is over");
}

/// F1: a hot miss does not outlive its window either.
#[test]
fn a_file_that_has_come_is_found_when_the_window_is_over() {
    let mut fixture = Fixture::with("");
    for _ in 0..=HOT_USES {
        assert_eq!(fixture.look("file"), "missing");
    }
    fixture.write("file", "text");
    fixture.now += 100;
    assert_eq!(fixture.look("file"), "text");
}

/// F1: a file that was changed just now may change again within the same time stamp.
#[test]
fn a_file_that_has_just_changed_is_read_again_however_hot_it_is() {
    let mut fixture = Fixture::with("");
    fixture.write("file", "one");
    fixture.wall_secs = std::fs::metadata(fixture.at("file")).expect("it is there").ctime();
    for _ in 0..2 * HOT_USES {
        assert_eq!(fixture.look("file"), "one");
    }
    fixture.write("file", "two");
    assert_eq!(fixture.look("file"), "two");
}

/// F1: with `open_file_cache` an entry holds for as long as was configured.
#[test]
fn a_configured_cache_is_trusted_for_its_time() {
    let mut fixture = Fixture::with("open_file_cache max=10; open_file_cache_valid 5s;");
    fixture.write("file", "one");
    assert_eq!(fixture.look("file"), "one");
    fixture.write("file", "second");
    fixture.now += 4999;
    assert_eq!(fixture.look("file"), "one");
    fixture.now += 1;
    assert_eq!(fixture.look("file"), "second");
}

/// F2: only regular files are served, and a request for another kind does not block.
#[test]
fn a_fifo_is_denied() {
    let mut fixture = Fixture::with("");
    let fifo = fixture.at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("a fifo");
    assert_eq!(fixture.look("fifo"), "denied");
    assert_eq!(fixture.look(""), "directory");
}

fn opened(fixture: &mut Fixture, name: &str) -> Rc<OpenFile> {
    match fixture.look_below("", name) {
        Look::File(file) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_content_is_compressed_once_for_each_state_of_its_file() {
    let mut fixture = Fixture::with("open_file_cache max=100;");
    fixture.write("a", &"text ".repeat(1000));
    let file = opened(&mut fixture, "a");
    let first = file.compressed(Coding::Gzip, 1).expect("shorter");
    for _ in 0..3 {
        let again = opened(&mut fixture, "a").compressed(Coding::Gzip, 1).expect("shorter");
        assert!(Rc::ptr_eq(&first, &again), "it was kept");
    }
    let other = file.compressed(Coding::Gzip, 9).expect("shorter");
    assert!(!Rc::ptr_eq(&first, &other), "another level is another form");
    fixture.write("a", &"other ".repeat(1000));
    fixture.now += 61_000;
    let changed = opened(&mut fixture, "a").compressed(Coding::Gzip, 1).expect("shorter");
    assert_ne!(changed, first);
    // What would not be shorter is known, too.
    fixture.write("b", "x");
    assert!(opened(&mut fixture, "b").compressed(Coding::Gzip, 1).is_none());
}

#[test]
fn compressed_forms_are_bounded_and_counted() {
    let mut fixture = Fixture::with("open_file_cache max=10000;");
    // Hardly compressible: each form is nearly as long as the content.
    let mut seed = 1_u64;
    let mut letters = |count: usize| -> String {
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + ((seed >> 33) % 90) as u8)
        };
        (0..count).map(|_| next()).collect()
    };
    fixture.write("a", &letters(30_000));
    let file = opened(&mut fixture, "a");
    let mut forms = Vec::new();
    for coding in Coding::ALL {
        for level in 1..=4 {
            forms.extend(file.compressed(coding, level));
        }
    }
    let held: usize =
        forms.iter().filter(|form| Rc::strong_count(form) > 1).map(|form| form.len()).sum();
    assert!(held <= 30_000, "{held} bytes beside a content of 30000");
    // Looking at it again weighs it anew, and everything still adds up when all of it goes.
    for round in 0..3 {
        for number in 0..40 {
            let name = format!("f{number}");
            if round == 0 {
                fixture.write(&name, &letters(20_000));
            }
            opened(&mut fixture, &name).compressed(Coding::ALL[round], 1);
            opened(&mut fixture, &name);
        }
    }
    fixture.cache.clear();
    assert!(fixture.cache.is_empty());
}

/// `open_file_cache max=` bounds the number of entries, however small they are.
#[test]
fn there_are_no_more_entries_than_max() {
    let mut fixture = Fixture::with("open_file_cache max=50; open_file_cache_valid 60s;");
    fixture.cache = FileCache::new(Some((50, std::time::Duration::from_mins(1))));
    for at in 0..500 {
        let name = format!("f{at}");
        fixture.write(&name, "x");
        assert_eq!(fixture.look(&name), "x");
        assert_eq!(fixture.look(&format!("missing{at}")), "missing");
    }
    let (count, _) = fixture.cache.memory_usage();
    assert!((40..=50).contains(&count), "{count}");
}
