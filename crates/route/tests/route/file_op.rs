//! File operations: what is to be done and to which file. Outcomes are `what root|rest`.

use sekisho_config::ServerId;
use sekisho_route::Table;

use crate::configured::configured;
use crate::support::{Asked, check};

const FILES: &[&str] =
    &["/srv/a.txt", "/srv/d/x", "/srv/run.cgi", "/data/x", "/srv/p/a.php", "/srv/t/there"];

fn server(directives: &str) -> Table {
    configured(&format!("server {{ listen 8080; root /srv; {directives} }}"))
}

/// The outcome of a request with these fields beside `Host`.
fn ask(table: &Table, line: &str, fields: &[(&str, &str)]) -> String {
    let fields = [&[("Host", "example.org")], fields].concat();
    Asked::with_fields(line, &fields, FILES).decide(table)
}

/// F5, F6, H12
#[test]
fn methods_are_file_operations_where_they_are_allowed() {
    let table = server(
        "dav_methods PUT DELETE MKCOL;
         location /r/ { dav_methods off; }
         location /alias/ { alias /data/; }
         location /one { alias /data/; }
         location ~ ^/users/([a-z]+)/ { alias /home/$1/file; }
         location /t/ { try_files $uri =404; }
         location /only/ { allow_methods GET PUT OPTIONS; }",
    );
    let allow = "GET, HEAD, OPTIONS, PUT, DELETE, MKCOL";
    check(
        &table,
        FILES,
        &[
            ("PUT /a.txt", "put /srv|/a.txt"),
            ("PUT /new", "put /srv|/new"),
            ("PUT /d/", "put /srv|/d/"),
            ("DELETE /a.txt", "delete /srv|/a.txt"),
            ("DELETE /", "delete /srv|/"),
            ("MKCOL /n/", "mkcol /srv|/n/"),
            ("COPY /a.txt", &format!("error 405 {allow}")),
            ("POST /a.txt", &format!("error 405 {allow}")),
            ("PATCH /a.txt", &format!("error 405 {allow}")),
            ("OPTIONS /missing", &format!("options {allow}")),
            ("GET /a.txt", "file /srv/a.txt"),
            ("PUT /r/x", "error 405 GET, HEAD, OPTIONS"),
            ("MKCOL /r/x/", "error 405 GET, HEAD, OPTIONS"),
            ("PUT /alias/x", "put /data|/x"),
            // V18: a prefix that ends within a segment leads nowhere.
            ("PUT /one../x", "error 403"),
            ("PUT /users/kim/", "put /home|/kim/file"),
            ("PUT /t/there", "put /srv|/t/there"),
            ("PUT /t/new", "error 404"),
            ("OPTIONS /only/x", "options GET, OPTIONS, PUT"),
            ("DELETE /only/x", "error 405 GET, PUT, OPTIONS"),
            ("PUT /../x", "error 400"),
        ],
    );
}

/// F5: unfinished uploads are not served.
#[test]
fn names_of_our_own_are_not_there() {
    let table = server("dav_methods PUT DELETE COPY; upload_store $request_filename;");
    for line in [
        "GET /.sekisho-upload-1",
        "PUT /.sekisho-upload-1",
        "PUT /%2Esekisho-x/y",
        "DELETE /d/.sekisho-partial-1",
        "POST /.sekisho-x/",
    ] {
        check(&table, &["/srv/.sekisho-upload-1"], &[(line, "error 404")]);
    }
}

/// F5: in no location, whatever it is for.
#[test]
fn names_of_our_own_are_not_served_by_anybody() {
    let table = server(
        "location /view/ { alias /data/; gzip_static always; }
         location /run/ { alias /data/; cgi on; }
         location /try/ { try_files /view/.sekisho-partial-1 =404; root /; }
         location /index/ { alias /data/; index .sekisho-partial-1 x; }",
    );
    let files = &["/data/.sekisho-partial-1", "/data/.sekisho-partial-1.gz", "/data/.sekisho-d/x"];
    check(
        &table,
        files,
        &[
            ("GET /view/.sekisho-partial-1", "error 404"),
            ("GET /view/.sekisho-partial-1.gz", "error 404"),
            ("GET /view/.sekisho-d/x", "error 404"),
            ("GET /run/.sekisho-partial-1", "error 404"),
            ("GET /run/.sekisho-partial-1/info", "error 404"),
            ("GET /try/x", "error 404"),
            ("GET /index/", "error 403"),
        ],
    );
}

/// What limits methods sees the one that is meant: tus 1.0 lets a POST stand for a PATCH.
#[test]
fn a_method_that_stands_for_another_is_limited_as_that_one() {
    let fields = [("X-HTTP-Method-Override", "PATCH"), ("Tus-Resumable", "1.0.0")];
    for (limit, expected) in [
        ("", "resume"),
        ("limit_except GET POST { deny all; }", "error 403"),
        ("allow_methods GET POST;", "error 405"),
        ("limit_except GET PATCH { deny all; }", "resume"),
        ("allow_methods PATCH;", "resume"),
    ] {
        let body = format!("location / {{ upload_store /in; upload_resumable on; {limit} }}");
        let seen = ask(&server(&body), "POST /0123", &fields);
        assert!(seen.starts_with(expected), "{limit}: {seen}");
    }
    // Where nothing is resumed, it means nothing.
    let table = server("location / { upload_store /in; limit_except GET POST { deny all; } }");
    assert!(ask(&table, "POST /", &fields).starts_with("store"));
}

/// What a client stores must not be run: V26.
#[test]
fn what_is_stored_does_not_become_a_program() {
    let table = server(
        "location /p/ { dav_methods PUT MOVE DELETE; cgi_extension .php /bin/php; }
         location /one/ { dav_methods PUT; cgi_pass /srv/run.cgi; }",
    );
    check(
        &table,
        FILES,
        &[
            ("PUT /p/a.txt", "put /srv|/p/a.txt"),
            ("PUT /p/new.php", "error 403"),
            ("PUT /p/a.php", "cgi /srv/p/a.php /p/a.php|"),
            ("PUT /one/x", "cgi /srv/run.cgi /one|/x"),
        ],
    );
    assert_eq!(ask(&table, "MOVE /p/a.txt", &[("Destination", "/p/b.php")]), "error 403");
    let moved = ask(&table, "MOVE /p/a.txt", &[("Destination", "/p/b.txt")]);
    assert_eq!(moved, "move to /srv/p/b.txt from /srv|/p/a.txt");
}

/// V18, V26: an operation on a folder takes along only what the location of the request answers for. The shell
/// asks for each entry, under its old and its new path.
#[test]
fn an_entry_with_rules_of_its_own_is_not_taken_along() {
    let table = server(
        "location / { dav_methods COPY MOVE DELETE; }
         location /d/guarded/ { deny all; }
         location = /e/one { cgi_pass /srv/run.cgi; }
         location ~ ^/team/secret/ { deny all; }
         location ~ ^/apps/.*\\.py$ { cgi_extension .py /bin/python; }
         location ~ ^/late/.*\\.py/ { cgi on; }
         location /own/ { dav_methods MOVE; cgi_extension .php /bin/php; location /own/in/ { } }",
    );
    let root = table.location_of(ServerId(0), b"/");
    let own = table.location_of(ServerId(0), b"/own/");
    for (location, path, expected) in [
        (root, "/d/x", true),
        (root, "/d/guarded/", false),
        (root, "/d/guarded/x", false),
        (root, "/d/guarded", true),
        (root, "/e/one", false),
        (root, "/team/secret/", false),
        (root, "/team/secret/deep/x", false),
        (root, "/team/x", true),
        (root, "/apps/up/", true),
        (root, "/apps/up/evil.py", false),
        (root, "/apps/up/evil.txt", true),
        // It is run when a path follows.
        (root, "/late/evil.py", false),
        (own, "/own/a.txt", true),
        (own, "/own/a.php", false),
        (own, "/own/in/", false),
        (own, "/elsewhere", false),
    ] {
        assert_eq!(table.is_entry_of(location, path.as_bytes()), expected, "{path}");
    }
}

/// If nothing below a folder can have other rules, its entries are not looked at.
#[test]
fn entries_are_looked_at_where_they_may_have_rules_of_their_own() {
    for (body, path, expected) in [
        ("dav_methods MOVE;", "/d/", false),
        ("dav_methods MOVE; location /d/in/ { }", "/d/", true),
        ("dav_methods MOVE; location /d/in/ { }", "/e/", false),
        ("dav_methods MOVE; location = /d/x { }", "/d/", true),
        ("dav_methods MOVE; location ~ x { }", "/e/", true),
        ("dav_methods MOVE; cgi_extension .py /bin/python;", "/e/", true),
        ("dav_methods MOVE; if ($uri ~ secret) { return 403; }", "/e/", true),
        ("dav_methods MOVE; rewrite ^/x /y;", "/e/", true),
    ] {
        let table = server(body);
        let location = table.location_of(ServerId(0), path.as_bytes());
        assert_eq!(table.has_entries_to_check(location, path.as_bytes()), expected, "{body}");
    }
}

/// V18, and as nginx.
#[test]
fn a_destination_lies_in_the_same_location() {
    let table = server(
        "dav_methods COPY MOVE;
         location /other/ { dav_methods COPY MOVE; }
         location /alias/ { alias /data/; dav_methods MOVE; }
         location ~ ^/u/(?<user>[a-z]+)/ { root /home/$user; dav_methods COPY; }",
    );
    for (line, destination, expected) in [
        ("COPY /a.txt", "/b.txt", "copy to /srv/b.txt from /srv|/a.txt"),
        ("COPY /a.txt", "http://example.org/b%20c", "copy to /srv/b c from /srv|/a.txt"),
        ("COPY /a.txt", "HTTPS://EXAMPLE.org/b", "copy to /srv/b from /srv|/a.txt"),
        ("MOVE /a.txt", "/d/../b?x", "move to /srv/b from /srv|/a.txt"),
        ("MOVE /d/", "/e/", "move to /srv/e/ from /srv|/d/"),
        ("MOVE /d/", "/e", "error 409"),
        ("MOVE /d", "/e/", "error 409"),
        ("COPY /a.txt", "http://other.org/b", "error 400"),
        ("COPY /a.txt", "http://example.org:81/b", "copy to /srv/b from /srv|/a.txt"),
        ("COPY /a.txt", "b", "error 400"),
        ("COPY /a.txt", "", "error 400"),
        ("COPY /a.txt", "*", "error 400"),
        ("COPY /a.txt", "/../b", "error 400"),
        ("COPY /a.txt", "/b%00", "error 400"),
        ("COPY /a.txt", "/other/b", "error 403"),
        ("COPY /a.txt", "/.sekisho-upload-1", "error 403"),
        ("MOVE /alias/x", "/alias/y", "move to /data/y from /data|/x"),
        ("MOVE /alias/x", "/a", "error 403"),
        ("COPY /u/kim/a", "/u/kim/b", "copy to /home/kim/u/kim/b from /home|/kim/u/kim/a"),
        // Both roots are made of what the client sent: all of it lies below `/home`.
        ("COPY /u/kim/a", "/u/lee/b", "copy to /home/lee/u/lee/b from /home|/kim/u/kim/a"),
    ] {
        let outcome = ask(&table, line, &[("Destination", destination)]);
        assert_eq!(outcome, expected, "{line} {destination}");
    }
    check(&table, FILES, &[("COPY /a.txt", "error 400")]);
}

/// F5: where POST stores what it brings, and what that is called from outside.
#[test]
fn a_store_is_a_folder_of_the_configuration() {
    let table = server(
        "location /fixed { upload_store /var/in/; }
         location /below/ { upload_store $document_root/up; }
         location /here/ { upload_store $request_filename; }
         location /uri/ { upload_store $document_root$uri; }
         location /host/ { upload_store /var/in/$host; }
         location /alias/ { alias /data/; upload_store $request_filename; }
         location /arg/ { upload_store /var/in/$arg_to; }",
    );
    check(
        &table,
        FILES,
        &[
            ("POST /fixed", "store  at  in /var/in|"),
            ("POST /fixed/", "store  at  in /var/in|"),
            ("POST /fixed/name.txt", "store name.txt at  in /var/in|"),
            ("POST /below/", "store  at /up/ in /srv|/up"),
            ("POST /below/n", "store n at /up/ in /srv|/up"),
            ("POST /here/d/", "store  at /here/d/ in /srv|/here/d/"),
            ("POST /uri/d/", "store  at /uri/d/ in /srv|/uri/d"),
            ("POST /uri/d", "store  at /uri/d/ in /srv|/uri/d"),
            ("POST /host/", "store  at  in /var/in|/example.org"),
            ("POST /alias/d/", "store  at /alias/d/ in /data|/d/"),
            ("POST /arg/?to=x", "store  at  in /var/in|/x"),
            ("POST /arg/?to=..", "error 404"),
            ("POST /arg/?to=../../etc", "error 404"),
            ("OPTIONS /arg/", "options GET, HEAD, OPTIONS, POST"),
            ("PATCH /fixed/x", "error 405 GET, HEAD, OPTIONS, POST"),
        ],
    );
}

/// tus 1.0: the last part of the path is the upload's name.
#[test]
fn an_unfinished_upload_is_found_by_its_name() {
    let table = server(
        "location /fixed/ { upload_store /var/in; upload_resumable on; }
         location /here/ { upload_store $request_filename; upload_resumable on; dav_methods DELETE; }
         location /plain/ { upload_store /var/in; dav_methods DELETE; }",
    );
    let tus = ("Tus-Resumable", "1.0.0");
    for (line, expected) in [
        ("HEAD /fixed/1a", "resume 1a at  in /var/in|"),
        ("PATCH /fixed/1a", "resume 1a at  in /var/in|"),
        ("DELETE /fixed/1a", "resume 1a at  in /var/in|"),
        ("PATCH /here/d/1a", "resume 1a at /here/d/ in /srv|/here/d/"),
        ("POST /fixed/", "store  at  in /var/in|"),
        ("DELETE /plain/1a", "delete /srv|/plain/1a"),
    ] {
        assert_eq!(ask(&table, line, &[tus]), expected, "{line}");
    }
    let overridden = [tus, ("X-HTTP-Method-Override", "PATCH")];
    assert_eq!(ask(&table, "POST /fixed/1a", &overridden), "resume 1a at  in /var/in|");
    check(&table, FILES, &[("DELETE /here/x", "delete /srv|/here/x")]);
}

/// RFC 4918: each method where it is named; what LOCK makes is an upload; a destination is this location's with its slash
/// and without.
#[test]
fn webdav_methods_are_answered_where_they_are_named() {
    let table = server(
        "location /dav/ { dav_methods PUT MOVE; dav_ext_methods PROPFIND PROPPATCH LOCK UNLOCK OPTIONS; }
         location /dav/own/ { }
         location /look/ { dav_ext_methods propfind; }
         location /run/ { dav_ext_methods LOCK; dav_methods PUT; location ~ \\.php$ { cgi_pass /bin/x; } }",
    );
    check(
        &table,
        FILES,
        &[
            ("PROPFIND /dav/x", "propfind /srv|/dav/x"),
            ("PROPPATCH /dav/x", "proppatch /srv|/dav/x"),
            ("LOCK /dav/x", "lock true /srv|/dav/x"),
            ("UNLOCK /dav/x", "unlock /srv|/dav/x"),
            ("PROPFIND /look/x", "propfind /srv|/look/x"),
            ("LOCK /look/x", "error 405 GET, HEAD, OPTIONS, PROPFIND"),
            ("PROPFIND /dav/own/x", "error 405 GET, HEAD, OPTIONS"),
            ("PROPFIND /dav/.sekisho-x", "error 404"),
        ],
    );
    for (to, expected) in [
        ("/dav/y", "move to /srv/dav/y from /srv|/dav/x"),
        ("/dav/y/", "move to /srv/dav/y/ from /srv|/dav/x"),
        ("/dav/own/", "error 403"),
        ("/dav/own", "error 403"),
        ("/dav/.sekisho-x/", "error 403"),
    ] {
        assert_eq!(ask(&table, "MOVE /dav/x", &[("Destination", to)]), expected, "{to}");
    }
    let foreign = [("Sec-Fetch-Site", "cross-site")];
    assert_eq!(ask(&table, "LOCK /dav/x", &foreign), "error 403");
    assert_eq!(ask(&table, "PROPFIND /dav/x", &foreign), "propfind /srv|/dav/x");
}
