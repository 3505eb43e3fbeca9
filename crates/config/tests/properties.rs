//! Nothing that is written into a configuration can panic the reader or keep it busy, and what is read can be
//! written and read again.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sekisho_config::lex::Lexer;
use sekisho_config::parse::{Node, Tree, Word, parse_bytes};

use sekisho_config::report::{ERRORS_MAX, Span};
use sekisho_config::{Memory, Options, Pattern, directive, load};

fn loaded(text: impl Into<Vec<u8>>) -> sekisho_config::Outcome {
    load(Path::new("/c"), &Options::new("/p"), &Memory::of("/c", text))
}

fn render_all(outcome: &sekisho_config::Outcome) {
    for report in &outcome.reports {
        _ = (report.render(false), report.line());
    }
}

/// Words that make a configuration, so that random text gets beyond the lexer.
fn word() -> impl Strategy<Value = String> {
    let names: Vec<String> = directive::rows().map(|row| row.name.to_owned()).collect();
    prop_oneof![
        4 => proptest::sample::select(names),
        2 => proptest::sample::select(vec![
            "/", "/a/", "@a", "=", "~", "^~", "~*", "on", "off", "80", "[::1]:80", "unix:/x", "10s", "1m", "=404",
            "$uri", "${host}", "$1", "$", "all", "GET", "404", "301", "default", "hostnames", "*.a", "~(?<x>.)", "-1",
            "@1h", "modified", "max=1", "buffer=1k", "if=$x", "''", "99999999999999999999", "text/html", "\u{e9}",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ]
}

fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => word(),
        3 => Just(";\n".to_owned()),
        1 => Just(" {\n".to_owned()),
        1 => Just("}\n".to_owned()),
        1 => Just("http { server { ".to_owned()),
        1 => Just("location / { ".to_owned()),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.join(" "))
}

const NOWHERE: Span = Span { file: 0, start: 0, end: 0 };

fn tree() -> impl Strategy<Value = Vec<Node>> {
    let text = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..8),
        "[a-z$_{}\"'\\\\;# \n]{0,8}".prop_map(String::into_bytes),
    ];
    let word = text.prop_map(|text| Word { text: text.into(), quoted: false, span: NOWHERE });
    // A directive called `include` would be taken away.
    let name = word.clone().prop_filter("include", |word| &*word.text != b"include");
    let head = (name, proptest::collection::vec(word, 0..4));
    let leaf = head.clone().prop_map(|(name, args)| Node { name, args, body: None });
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let body = proptest::option::of(proptest::collection::vec(inner, 0..5));
        (head.clone(), body).prop_map(|((name, args), body)| Node { name, args, body })
    })
    .prop_map(|node| vec![node.clone(), node])
}

/// The same tree without places and marks of quoting.
fn bare(nodes: Vec<Node>) -> Vec<Node> {
    let bare_word = |word: Word| Word { span: NOWHERE, quoted: false, ..word };
    nodes
        .into_iter()
        .map(|node| Node {
            name: bare_word(node.name),
            args: node.args.into_iter().map(bare_word).collect(),
            body: node.body.map(bare),
        })
        .collect()
}

/// Parts of expressions, so that random ones get beyond the first character.
fn expression() -> impl Strategy<Value = String> {
    let parts = [
        "[",
        "]",
        "[^",
        "[:alpha:]",
        "&&",
        "--",
        "~~",
        "-",
        "^",
        "$",
        "(",
        ")",
        "(?:",
        "(?=",
        "(?<n>",
        "(?P=n)",
        "(?x)",
        "(?>",
        "|",
        "*",
        "+",
        "++",
        "?",
        "{",
        "{2}",
        "{1,3}",
        "}",
        ".",
        "\\",
        "\\Q",
        "\\E",
        "\\d",
        "\\b",
        "\\g1",
        "\\g{n}",
        "\\cA",
        "\\o{101}",
        "\\x{e9}",
        "\\1",
        "#",
        " ",
        "a",
        "z",
        "é",
        "/",
    ];
    proptest::collection::vec(proptest::sample::select(parts.to_vec()), 0..14)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// O2
    #[test]
    fn no_bytes_panic_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let count = Lexer::new(&bytes).count();
        prop_assert!(count <= bytes.len() + 1);
        render_all(&loaded(bytes));
    }

    /// O2
    #[test]
    fn no_arrangement_of_words_panics_the_reader(text in soup()) {
        let outcome = loaded(text);
        render_all(&outcome);
        prop_assert_eq!(outcome.has_errors(), outcome.reports.iter().any(sekisho_config::Report::is_error));
    }

    /// N1: what PCRE may read is compiled, or refused with a reason.
    #[test]
    fn no_expression_panics_the_reader(text in expression(), ignores_case in any::<bool>()) {
        if let Err(refused) = Pattern::new(&text, ignores_case) {
            prop_assert!(!refused.reason.is_empty(), "{}", text);
        }
    }

    #[test]
    fn a_rendered_tree_is_read_back_as_the_same_tree(nodes in tree()) {
        let text = Tree { nodes: nodes.clone(), ..Tree::default() }.render();
        let (read, reports) = parse_bytes(&text);
        prop_assert!(!reports.iter().any(sekisho_config::Report::is_error), "{:?}", reports);
        prop_assert_eq!(bare(read.nodes), nodes);
    }
}

/// Not a measurement: a bound that only quadratic work would break.
fn is_quick(name: &str, text: Vec<u8>) {
    #[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
    let begin = std::time::Instant::now();
    let outcome = loaded(text);
    render_all(&outcome);
    assert!(outcome.has_errors(), "{name}");
    assert!(outcome.reports.len() <= 2 * ERRORS_MAX + 1, "{name}: {}", outcome.reports.len());
    assert!(begin.elapsed() < Duration::from_secs(20), "{name}: {:?}", begin.elapsed());
}

#[test]
fn ten_megabytes_of_garbage_are_an_error_soon() {
    const SIZE: usize = 10 << 20;
    let repeated = |text: &str| text.repeat(SIZE / text.len()).into_bytes();
    for text in [
        "a",
        "a ",
        "a;
",
        "{",
        "}",
        "a{}",
        "\"",
        "'a'b",
        "${",
        "http{server{}}",
        "include x;",
        "index a
root b
",
        "gzip on;",
        "location / {}",
    ] {
        let mut bytes = repeated(text);
        bytes.extend_from_slice(b"\n }");
        is_quick(text, bytes);
    }
    let mut random = Vec::with_capacity(SIZE);
    let mut seed = 1_u64;
    while random.len() < SIZE {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random.push((seed >> 56) as u8);
    }
    is_quick("random", random);
}

#[test]
fn many_of_one_kind_within_http_are_read_in_linear_time() {
    let within = |text: &str| {
        format!("http {{ server {{ listen 80; {} }} }} x", text.repeat(20_000)).into_bytes()
    };
    for text in [
        "add_header a b;",
        "index a;",
        "error_page 404 /x;",
        "server_name a;",
        "location / { }",
        "listen 80;",
        "access_log off;",
        "types { a b; }",
        "return 200;",
    ] {
        is_quick(text, within(text));
    }
}

#[test]
fn ten_thousand_nested_blocks_are_an_error_and_no_more() {
    for text in ["a {", "http { server { location / {", "location / {"] {
        let outcome = loaded(text.repeat(10_000));
        let errors: Vec<_> = outcome.reports.iter().filter(|report| report.is_error()).collect();
        assert!(errors.len() <= 3, "{errors:?}");
        assert!(
            errors.iter().any(|error| error.message.contains("nested more than 100 deep")),
            "{errors:?}"
        );
    }
}

#[test]
fn files_that_include_each_other_many_times_are_bounded() {
    let mut memory = Memory::of("/c", "include /d*; include /d*;");
    for n in 0..20 {
        let next = format!("include /d{}; ", (b'a' + n + 1) as char).repeat(4);
        memory.files.insert(format!("/d{}", (b'a' + n) as char).into(), next.into_bytes());
    }
    memory.files.insert("/du".into(), Vec::new());
    let outcome = load(Path::new("/c"), &Options::new("/p"), &memory);
    assert!(outcome.reports.iter().any(|report| report.message.contains("more than 10000 files")));
    assert!(outcome.files.len() <= 22);
}
