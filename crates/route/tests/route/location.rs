//! Which location: nginx's search, told by its own examples.

use crate::support::{Spec, check, exact, final_prefix, named, prefix, regex, returns, server};

/// A location's change that answers with a label.
fn says(label: &'static str) -> impl FnOnce(&mut sekisho_config::Settings) {
    move |own| own.rewriting.script = Some(returns(200, Some(label)))
}

fn found(locations: Vec<Spec>, rows: &[(&str, &str)]) {
    let table = server(locations).set(|own| own.autoindex = true).table();
    for (path, label) in rows {
        let expected = match *label {
            "none" => "error 404".to_owned(),
            label => format!("text 200 {label}"),
        };
        check(&table, &[], &[(&format!("GET {path}"), &expected)]);
    }
}

/// F7: the configurations A to E of nginx's documentation.
#[test]
fn the_example_of_the_documentation_is_found() {
    found(
        vec![
            exact("/", says("A")),
            prefix("/", says("B")),
            prefix("/documents/", says("C")),
            final_prefix("/images/", says("D")),
            regex(r"(?i)\.(gif|jpg|jpeg)$", says("E")),
        ],
        &[
            ("/", "A"),
            ("/index.html", "B"),
            ("/documents/document.html", "C"),
            ("/images/1.gif", "D"),
            ("/documents/1.jpg", "E"),
            ("/documents/1.JPG", "E"),
            ("/documents", "B"),
            ("/?x=.gif", "A"),
        ],
    );
}

#[test]
fn the_longest_prefix_is_found_among_many() {
    found(
        vec![
            prefix("/a", says("/a")),
            prefix("/a/b", says("/a/b")),
            prefix("/a/b/c/d", says("/a/b/c/d")),
            prefix("/a/c", says("/a/c")),
            prefix("/ab", says("/ab")),
            prefix("/b/", says("/b/")),
        ],
        &[
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a/b/c", "/a/b"),
            ("/a/b/c/dd", "/a/b/c/d"),
            ("/a/b/c/e", "/a/b"),
            ("/a/bz", "/a/b"),
            ("/a/z", "/a"),
            ("/abz", "/ab"),
            ("/aa", "/a"),
            ("/b/x", "/b/"),
            ("/b", "none"),
            ("/", "none"),
            ("/z", "none"),
        ],
    );
}

#[test]
fn regexes_are_tried_in_the_order_of_the_file() {
    found(
        vec![regex("x", says("first")), regex("^/x", says("second")), regex("y", says("third"))],
        &[("/x", "first"), ("/xy", "first"), ("/y", "third"), ("/z", "none")],
    );
}

#[test]
fn nested_locations_are_searched_as_nginx_does() {
    found(
        vec![
            prefix("/a/", says("a")).with(vec![
                exact("/a/exact", says("a exact")),
                prefix("/a/deep/", says("a deep")).with(vec![regex("php$", says("a deep php"))]),
                final_prefix("/a/still/", says("a still")),
                regex("jpg$", says("a jpg")),
            ]),
            final_prefix("/f/", says("f")).with(vec![regex("jpg$", says("f jpg"))]),
            regex("(jpg|png)$", says("outer")).with(vec![
                regex("special", says("outer special")),
                prefix("/a/deep", says("outer deep")),
            ]),
        ],
        &[
            ("/a/x", "a"),
            ("/a/exact", "a exact"),
            ("/a/x.jpg", "a jpg"),
            // A regex further out is tried after the nested ones, and wins over a nested prefix.
            ("/a/x.png", "outer"),
            ("/a/special.png", "outer special"),
            ("/a/deep/x", "a deep"),
            ("/a/deep/x.php", "a deep php"),
            ("/a/deep/x.jpg", "a jpg"),
            ("/a/deep/x.png", "outer deep"),
            // `^~` of a nested location spares only its neighbours.
            ("/a/still/x.jpg", "outer"),
            // `^~` further out spares the regexes out there, not those within.
            ("/f/x.jpg", "f jpg"),
            ("/f/x.png", "f"),
            ("/x.png", "outer"),
        ],
    );
}

#[test]
fn the_path_that_is_matched_is_decoded_and_resolved() {
    found(
        vec![
            prefix("/a b/", says("space")),
            exact("/x/y", says("exact")),
            regex("^/ä$", says("utf")),
        ],
        &[
            ("/a%20b/c", "space"),
            ("/%61%20b/c", "space"),
            ("/x//y", "exact"),
            ("/x/./y", "exact"),
            ("/z/../x/y", "exact"),
            ("/x/%79", "exact"),
            ("/x/y?z", "exact"),
            ("/%c3%a4", "utf"),
        ],
    );
}

/// V21
#[test]
fn slashes_are_told_apart_where_they_are_not_merged() {
    let locations = || vec![prefix("/", says("root")), exact("/x/y", says("exact"))];
    check(&server(locations()).table(), &[], &[("GET /x//y", "text 200 exact")]);
    check(&server(locations()).keeps_slashes().table(), &[], &[("GET /x//y", "text 200 root")]);
}

#[test]
fn a_named_location_cannot_be_asked_for() {
    found(vec![named("@x", says("named"))], &[("/@x", "none"), ("/x", "none")]);
}

#[test]
fn captures_of_the_location_are_variables() {
    found(
        vec![regex(r"^/u/(?P<user>\w+)/(.*)$", says("$1 $2 $user $3."))],
        &[("/u/kim/a/b", "kim a/b kim .")],
    );
}
