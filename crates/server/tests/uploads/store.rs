//! POST: raw bodies and forms.

use std::process::Command;

use sekisho_testkit::{Server, Tree, eventually};

use crate::common::{LONG, pattern, serve};

fn files(body: &str) -> Server {
    let tree = Tree::new();
    tree.folder("root/up");
    tree.folder("in");
    serve(tree, body)
}

/// A form with these parts: field, file name, content.
fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, file, content) in parts {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        let head =
            format!("--XX\r\nContent-Disposition: form-data; name=\"{field}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    body
}

const FORM: &str = "Content-Type: multipart/form-data; boundary=XX\r\n";

/// F5
#[test]
fn a_raw_body_becomes_a_file_with_the_name_it_is_given() {
    let server = files(
        "location /in/ { upload_store {dir}/in; }
         location /up/ { upload_store $request_filename; }
         location = /form { upload_store {dir}/in; }",
    );
    let mut client = server.connect();
    for (target, fields, name) in [
        ("/in/", "Content-Disposition: attachment; filename=\"../a.txt\"\r\n", "a.txt"),
        ("/in/", "Content-Disposition: attachment; filename*=UTF-8''%C3%A9\r\n", "é"),
        ("/in/?x=1&name=b%20c+d", "", "b c d"),
        ("/in/last", "", "last"),
        ("/in/last?name=.hidden", "", "hidden"),
        ("/form?name=q", "Content-Type: application/x-www-form-urlencoded\r\n", "q"),
    ] {
        let answer = client.request_with_body("POST", target, fields, "body");
        assert_eq!(answer.status, 201, "{target} {fields}");
        let expected = format!("{{\"files\":[{{\"name\":\"{name}\",\"size\":4}}]}}\n");
        assert_eq!(String::from_utf8_lossy(&answer.body), expected);
        assert_eq!(server.tree().read(&format!("in/{name}")), b"body");
    }
    let made_up = client.request_with_body("POST", "/form", "", "body");
    assert_eq!(made_up.status, 201);
    assert!(String::from_utf8_lossy(&made_up.body).contains("\"name\":\"upload-"));
    let urlencoded = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(client.request_with_body("POST", "/form", urlencoded, "a=b").status, 415);
    let here = client.request_with_body("POST", "/up/?name=here", "", "body");
    assert_eq!((here.status, here.field("location")), (201, Some("/up/here")));
    assert_eq!(client.get("/up/here").body, b"body");
    assert_eq!(client.request_with_body("POST", "/up/missing/", "", "x").status, 404);
    assert_eq!(client.request("GET", "/in/", "").status, 404);
}

/// F5, V29
#[test]
fn every_file_of_a_form_is_stored() {
    let server = files("location /up/ { upload_store $request_filename; upload_parts_max 5; }");
    let mut client = server.connect();
    let large = pattern(200_000);
    let body = form(&[
        ("note", None, b"not a file"),
        ("f", Some("a.bin"), &large),
        ("f", Some("C:\\x\\b.txt"), b"b"),
        ("f", Some("a.bin"), b"second"),
        ("none", Some(""), b""),
    ]);
    let answer = client.request_with_body("POST", "/up/", FORM, &body);
    assert_eq!(answer.status, 201);
    let json = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        json.contains("{\"name\":\"a.bin\",\"size\":200000,\"location\":\"/up/a.bin\"}"),
        "{json}"
    );
    assert_eq!(server.tree().names("root/up"), ["a (1).bin", "a.bin", "b.txt"]);
    assert_eq!(server.tree().read("root/up/a.bin"), large);
    for (body, expected) in [
        (form(&[]), 400),
        (form(&[("note", None, b"x")]), 400),
        (form(&[("f", Some("c"), &b"c"[..]); 6]), 413),
        (body[..body.len() - 4].to_vec(), 400),
        (b"nothing".to_vec(), 400),
    ] {
        assert_eq!(client.request_with_body("POST", "/up/", FORM, &body).status, expected);
    }
    let bad = "Content-Type: multipart/form-data\r\n";
    assert_eq!(client.request_with_body("POST", "/up/", bad, "x").status, 400);
    assert_eq!(server.tree().names("root/up").len(), 3, "and nothing of those");
}

/// F5: all or nothing.
#[test]
fn a_form_of_which_one_file_cannot_be_stored_stores_none() {
    let server = files(
        "location /up/ { upload_store $request_filename; upload_conflict refuse; }
         location /in/ { upload_store {dir}/in; upload_conflict rename; }",
    );
    server.tree().file("root/up/there", "old");
    server.tree().folder("in/folder");
    let mut client = server.connect();
    let body = form(&[("f", Some("new"), b"1"), ("f", Some("there"), b"2")]);
    assert_eq!(client.request_with_body("POST", "/up/", FORM, &body).status, 409);
    assert_eq!(server.tree().names("root/up"), ["there"]);
    assert_eq!(server.tree().read("root/up/there"), b"old");
    let body = form(&[("f", Some("new"), b"1"), ("f", Some("folder"), b"2")]);
    assert_eq!(client.request_with_body("POST", "/in/", FORM, &body).status, 409);
    for _ in 0..2 {
        let body = form(&[("f", Some("x.tar.gz"), b"1")]);
        assert_eq!(client.request_with_body("POST", "/in/", FORM, &body).status, 201);
    }
    assert_eq!(server.tree().names("in"), ["folder", "x (1).tar.gz", "x.tar.gz"]);
}

/// A browser without script goes back to where it came from.
#[test]
fn a_browser_is_sent_back() {
    let server = files("location /up/ { upload_store $request_filename; }");
    let mut client = server.connect();
    let body = form(&[("f", Some("a"), b"1")]);
    let accept = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (referer, expected) in [
        ("", "/up/"),
        ("Referer: http://localhost/page?x=1\r\n", "/page?x=1"),
        ("Referer: http://elsewhere/page\r\n", "/up/"),
        ("Referer: http://localhost//elsewhere/\r\n", "/up/"),
    ] {
        let fields = format!("{FORM}{accept}{referer}");
        let answer = client.request_with_body("POST", "/up/", &fields, &body);
        assert_eq!((answer.status, answer.field("location")), (303, Some(expected)));
    }
}

/// F5: what a program of the location would be is not stored.
#[test]
fn what_would_be_run_is_not_stored() {
    let server =
        files("location /up/ { upload_store $request_filename; cgi_extension .sh /bin/sh; }");
    let mut client = server.connect();
    let body = form(&[("f", Some("ok.txt"), b"1"), ("f", Some("x.sh"), b"echo")]);
    assert_eq!(client.request_with_body("POST", "/up/", FORM, &body).status, 403);
    assert_eq!(client.request_with_body("POST", "/up/?name=x.sh", "", "echo").status, 403);
    assert_eq!(server.tree().names("root/up"), [""; 0]);
    // The log has the reason, once for each.
    eventually("both are in the log", LONG, || {
        let log = server.log("error.log");
        log.matches("\"x.sh\" is not stored: it would run as a program").count() == 2
    });
}

/// F5, O6: the same for the other ways to create a file.
#[test]
fn what_would_be_run_is_neither_put_nor_moved_there_and_the_log_says_so() {
    let server = files("location /up/ { dav_methods PUT COPY MOVE; cgi_extension .sh /bin/sh; }");
    let mut client = server.connect();
    assert_eq!(client.request_with_body("PUT", "/up/a.txt", "", "echo").status, 201);
    assert_eq!(client.request_with_body("PUT", "/up/x.sh", "", "echo").status, 403);
    for method in ["COPY", "MOVE"] {
        let answer = client.request(method, "/up/a.txt", "Destination: /up/x.sh\r\n");
        assert_eq!(answer.status, 403, "{method}");
    }
    assert_eq!(server.tree().names("root/up"), ["a.txt"]);
    let log = server.log("error.log");
    let said = log.lines().filter(|line| {
        line.contains("[error]") && line.contains("/up/x.sh\" is not stored: it would run")
    });
    assert_eq!(said.count(), 3, "{log}");
    assert_eq!(log.matches("failed").count(), 0, "and nothing else: {log}");
}

/// F5: what people use.
#[test]
fn curl_uploads_in_its_three_ways() {
    let server = files(
        "client_max_body_size 0; dav_methods PUT; location /up/ { upload_store $request_filename; }",
    );
    let file = server.tree().file("local.bin", pattern(2_000_000));
    let run = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30"])
            .args(arguments)
            .output();
        let Ok(output) = output else { return None };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let file = file.to_str().expect("UTF-8");
    let Some(put) = run(&["-T", file, &server.url("/put.bin")]) else {
        println!("skipped: curl is not installed");
        return;
    };
    assert_eq!(put, "201");
    let (first, second) = (format!("f=@{file}"), format!("g=@{file};filename=\"we \\\"ird.bin\""));
    let sent = run(&["-F", &first, "-F", "text=hello", "-F", &second, &server.url("/up/")]);
    assert_eq!(sent.as_deref(), Some("201"));
    let data = format!("@{file}");
    let raw = run(&["--data-binary", &data, &server.url("/up/?name=raw.bin")]);
    assert_eq!(raw.as_deref(), Some("201"));
    for name in ["root/put.bin", "root/up/local.bin", "root/up/raw.bin", "root/up/we \"ird.bin"] {
        assert_eq!(server.tree().read(name), pattern(2_000_000), "{name}");
    }
    assert_eq!(run(&["-T", file, &server.url("/put.bin")]).as_deref(), Some("204"));
}

/// F5, V26: a client that may store files may not have them run, whichever location would.
#[test]
fn what_another_location_would_run_is_not_stored() {
    let server = files(
        "location /in { upload_store {root}/up; upload_resumable on; }
         location /up/tool/ { }
         location ~ \\.sh$ { cgi_extension .sh /bin/sh; }
         location = /up/passed { cgi_pass {root}/a.cgi; }",
    );
    let mut client = server.connect();
    let body = form(&[("f", Some("a.txt"), b"text"), ("g", Some("x.sh"), b"echo")]);
    assert_eq!(client.request_with_body("POST", "/in", FORM, body).status, 403);
    let mut client = server.connect();
    let tus = "Tus-Resumable: 1.0.0\r\nUpload-Length: 4\r\nUpload-Metadata: filename eC5zaA==\r\n";
    assert_eq!(client.request("POST", "/in", tus).status, 403);
    for (name, status) in [("x.sh", 403), ("passed", 403), ("x.sh.txt", 201), ("tool", 201)] {
        let mut client = server.connect();
        let target = format!("/in?name={name}");
        assert_eq!(client.request_with_body("POST", &target, "", "echo").status, status, "{name}");
    }
    assert_eq!(server.tree().names("root/up"), ["tool", "x.sh.txt"]);
}

/// V51: what a page of another site makes a browser send changes nothing, unless the configuration names the site.
#[test]
fn another_site_changes_nothing_unless_it_is_named() {
    let body = "dav_methods PUT DELETE MKCOL COPY MOVE; upload_store {dir}/in;
         upload_resumable on; error_log {dir}/why.log;
         location /open/ { upload_origins any; }
         location /listed/ { upload_origins https://app.example http://other.example:81; }";
    let server = files(body);
    let mut client = server.connect();
    let site = "Sec-Fetch-Site: cross-site\r\n";
    let tus = "Tus-Resumable: 1.0.0\r\n";
    for fields in [site, "Origin: https://evil.example\r\n", "Origin: null\r\n"] {
        for (method, target, more) in [
            ("POST", "/?name=a", ""),
            ("POST", "/listed/?name=a", ""),
            ("POST", "/", "Tus-Resumable: 1.0.0\r\nUpload-Length: 5\r\n"),
            ("PATCH", "/0123456789abcdef0123456789abcdef", tus),
            ("DELETE", "/0123456789abcdef0123456789abcdef", tus),
            ("PUT", "/a", ""),
            ("DELETE", "/a", ""),
            ("MKCOL", "/new/", ""),
            ("COPY", "/a", "Destination: /b\r\n"),
            ("MOVE", "/a", "Destination: /b\r\n"),
        ] {
            let seen = client.request(method, target, &format!("{fields}{more}")).status;
            assert_eq!(seen, 403, "{method} {target} {fields}");
        }
        assert_eq!(client.request_with_body("POST", "/open/?name=a", fields, b"x").status, 201);
    }
    let listed = format!("Origin: https://app.example\r\n{site}");
    assert_eq!(client.request_with_body("POST", "/listed/?name=b", &listed, b"x").status, 201);
    let own = "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n";
    assert_eq!(client.request_with_body("POST", "/?name=c", own, b"x").status, 201);
    assert!(server.log("why.log").contains("it comes from another site"));
}

/// V39: a form costs the descriptors of one upload, however many parts it has.
#[test]
fn a_form_of_many_parts_holds_few_descriptors() {
    let server = files("client_max_body_size 0; location /in/ { upload_store {dir}/in; }");
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 403);
    let before = server.fds();
    let parts: Vec<(String, Vec<u8>)> =
        (0..99).map(|n| (format!("{n}.txt"), vec![b'a' + (n % 26) as u8; 1 + n * 300])).collect();
    let parts: Vec<(&str, Option<&str>, &[u8])> = parts
        .iter()
        .map(|(name, content)| ("f", Some(name.as_str()), content.as_slice()))
        .collect();
    let body = form(&parts);
    let head =
        format!("POST /in/ HTTP/1.1\r\nHost: x\r\n{FORM}Content-Length: {}\r\n\r\n", body.len());
    let (most, rest) = body.split_at(body.len() - 10);
    client.send([head.as_bytes(), most].concat());
    let shelf = || server.tree().names("in").into_iter().find(|name| name.starts_with(".sekisho-"));
    eventually("most parts are there", LONG, || {
        shelf().is_some_and(|name| server.tree().names(&format!("in/{name}")).len() >= 90)
    });
    let more = server.fds().saturating_sub(before);
    assert!(more <= 6, "{more} descriptors for one form");
    assert_eq!(client.send(rest).read_response().status, 201);
    let names = server.tree().names("in");
    assert_eq!(names.len(), 99, "{names:?}");
    for (_, name, content) in &parts {
        let name = name.expect("a name");
        assert_eq!(server.tree().read(&format!("in/{name}")), *content, "{name}");
    }
    // And nothing is left of one that is broken off.
    let mut client = server.connect();
    client.send([head.as_bytes(), most].concat());
    eventually("parts are there", LONG, || shelf().is_some());
    drop(client);
    eventually("they are gone", LONG, || shelf().is_none());
}

/// V39: uploads have a share of the descriptors, and leave the rest to other requests.
#[test]
fn uploads_that_do_not_end_leave_descriptors_for_others() {
    let server =
        files("location /in/ { upload_store {dir}/in; } location = /ok { return 200 ok; }");
    let mut first = server.connect();
    assert_eq!(first.get("/ok").status, 200);
    server.limit_descriptors(400);
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..80 {
        let mut client = server.connect();
        client.send("POST /in/?name=x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
        let answer = String::from_utf8_lossy(&client.read_bytes(12)).into_owned();
        match answer.as_str() {
            "HTTP/1.1 100" => waiting.push(client),
            "HTTP/1.1 503" => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((waiting.len(), refused), (50, 30), "a half of 400, at four each");
    assert_eq!(server.connect().get("/ok").status, 200);
    drop(waiting);
    eventually("there is room again", LONG, || {
        server.connect().request_with_body("POST", "/in/?name=y", "", b"x").status == 201
    });
}
