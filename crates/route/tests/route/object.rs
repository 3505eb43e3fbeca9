//! A `storage` as root: what is asked of the store, in which order, and what follows from its answers.

use sekisho_route::ObjectLook;

use crate::configured::configured;
use crate::support::Asked;

const ROOT: &str = "/dev/null/storage:s";

/// What a request comes to where the store has these keys; and what the store was asked for.
fn asked(servers: &str, line: &str, keys: &[&str]) -> (String, Vec<String>) {
    let storage = "storage s { url s3://bucket/pre; endpoint http://127.0.0.1:9; }";
    let table = configured(&format!("{storage} {servers}"));
    let mut request = Asked::new(line, &[]);
    let mut outcome = request.decide(&table);
    let mut all = Vec::new();
    while outcome == "wait for an object" {
        let objects = request.route_state.objects.as_deref_mut().expect("what is asked");
        let path = String::from_utf8(objects.asked().to_vec()).expect("text");
        let path = path.strip_prefix(ROOT).expect("below the root").to_owned();
        objects.note(match path.strip_suffix('/') {
            _ if path.contains("broken") => {
                ObjectLook::Failed(sekisho_http::Status::GATEWAY_TIMEOUT)
            }
            Some(_) if keys.iter().any(|key| key.starts_with(&path)) => ObjectLook::Folder,
            None if keys.contains(&path.as_str()) => ObjectLook::Object,
            _ => ObjectLook::Missing,
        });
        all.push(path);
        outcome = request.resume(&table);
    }
    if outcome == "pass" {
        outcome = format!("object {}", request.route_state.file.escape_ascii());
        outcome = outcome.replace(ROOT, "");
    }
    (outcome, all)
}

#[test]
fn objects_are_looked_for_only_where_the_decision_needs_it() {
    let server = "server { listen 80; root storage:s; index a.html b.html;
        location /list/ { autoindex on; }
        location /try/ { try_files $uri $uri/ /fallback; }
        location /named/ { try_files $uri @named; }
        location @named { return 200 named; }
        location /dav/ { dav_methods PUT DELETE; }
        location /limited/ { deny all; } }";
    let keys = ["/a.txt", "/d/b.html", "/list/x", "/try/a", "/try/d/a.html", "/broken/a.html"];
    for (line, outcome, looks) in [
        // A plain GET is no question to the store but itself.
        ("GET /a.txt", "object /a.txt", &[][..]),
        ("GET /nothing", "object /nothing", &[]),
        ("GET /d/", "object /d/b.html", &["/d/a.html", "/d/b.html"]),
        (
            "GET /list/",
            "listing /dev/null/storage:s/list/",
            &["/list/a.html", "/list/b.html", "/list/"],
        ),
        ("GET /try/a", "object /try/a", &["/try/a"]),
        // As in nginx.
        ("GET /try/d", "redirect 301 http://example.org:8080/try/d/", &["/try/d", "/try/d/"]),
        ("GET /try/no", "object /fallback", &["/try/no", "/try/no/"]),
        ("GET /named/no", "text 200 named", &["/named/no"]),
        ("GET /no/", "error 404", &["/no/a.html", "/no/b.html", "/no/"]),
        ("GET /broken/", "error 504", &["/broken/a.html"]),
        ("GET /limited/x", "error 403", &[]),
        ("GET /.sekisho-partial-1", "error 404", &[]),
        ("POST /a.txt", "error 405 GET, HEAD, OPTIONS", &[]),
        ("PUT /a.txt", "error 405 GET, HEAD, OPTIONS", &[]),
        ("PUT /dav/x", "put /dev/null/storage:s|/dav/x", &[]),
        ("DELETE /dav/x", "delete /dev/null/storage:s|/dav/x", &[]),
    ] {
        let expected = (outcome.to_owned(), looks.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(asked(server, line, &keys), expected, "{line}");
    }
}

#[test]
fn a_missing_object_may_be_a_folder() {
    let table = configured(
        "storage s { url s3://bucket; endpoint http://127.0.0.1:9; } server { listen 80; root storage:s; }",
    );
    for (look, outcome) in [
        (ObjectLook::Folder, "redirect 301 http://example.org:8080/d/"),
        (ObjectLook::Missing, "error 404"),
    ] {
        let mut request = Asked::new("GET /d", &[]);
        assert_eq!(request.decide(&table), "pass");
        let file = request.route_state.file.clone();
        request.route_state.objects.get_or_insert_default().note_missing(&file);
        assert_eq!(request.resume(&table), "wait for an object");
        request.route_state.objects.as_deref_mut().expect("asked").note(look);
        assert_eq!(request.resume(&table), outcome);
    }
}
