//! Compression: which neighbour is served for a file, which answers are compressed, and what their heads say.

use std::sync::Arc;

use sekisho_config::{Compression, Neighbour, NoGzipFor, Proxied};
use sekisho_http::{Coding, Head, Version};
use sekisho_route::compression::{
    Answer, Choice, choose, mark_compressed, mark_varying, weaken_tag,
};

use crate::support::{self, Asked, pattern, prefix, server, status};

const FILES: &[&str] = &[
    "/srv/all.css",
    "/srv/all.css.zst",
    "/srv/all.css.br",
    "/srv/all.css.gz",
    "/srv/gz.css",
    "/srv/gz.css.gz",
    "/srv/none.css",
    "/srv/alone.css.gz",
    "/srv/odd.css",
    "!/srv/odd.css.zst",
    "?/srv/odd.css.br",
    "/srv/odd.css.gz/",
    "/srv/dir/index.html",
    "/srv/dir/index.html.gz",
    "/srv/folder/x",
    "/srv/folder.gz",
];

fn neighbours(compression: &mut Compression, kinds: [Neighbour; 3]) {
    for (coding, kind) in Coding::ALL.into_iter().zip(kinds) {
        compression.of_mut(coding).neighbour = kind;
    }
}

/// What is served, its coding, and whether that depends on the client.
fn asked(kinds: [Neighbour; 3], path: &str, accept: &str) -> String {
    let table = server(vec![prefix("/", |_| {})])
        .set(move |own| neighbours(Arc::make_mut(&mut own.compression), kinds))
        .table();
    let fields = [("Host", "example.org"), ("Accept-Encoding", accept)];
    let mut asked = Asked::with_fields(&format!("GET {path}"), &fields, FILES);
    let outcome = asked.decide(&table);
    let coding = asked.route_state.coding.map_or("-", Coding::name);
    let varies = if asked.route_state.has_neighbours { " varies" } else { "" };
    // The name of the file that was asked for stays.
    assert!(!asked.route_state.file.ends_with(b".gz"), "{outcome}");
    format!("{outcome} {coding}{varies}")
}

/// F1: precompressed neighbours.
#[test]
fn the_neighbour_that_the_client_takes_is_served() {
    use Neighbour::{Always, Off, On};
    let rows: &[([Neighbour; 3], &str, &str, &str)] = &[
        ([Off, Off, Off], "/all.css", "gzip, br, zstd", "file /srv/all.css -"),
        ([On, On, On], "/all.css", "gzip, br, zstd", "file /srv/all.css.zst zstd varies"),
        ([On, On, On], "/all.css", "gzip, br", "file /srv/all.css.br br varies"),
        ([On, On, On], "/all.css", "gzip, br;q=0.5", "file /srv/all.css.gz gzip varies"),
        ([On, On, On], "/all.css", "gzip", "file /srv/all.css.gz gzip varies"),
        ([On, On, On], "/all.css", "gzip;q=0", "file /srv/all.css - varies"),
        ([On, On, On], "/all.css", "", "file /srv/all.css - varies"),
        ([On, On, On], "/all.css", "*", "file /srv/all.css.gz gzip varies"),
        ([Off, Off, On], "/all.css", "br, zstd", "file /srv/all.css - varies"),
        ([On, On, On], "/gz.css", "gzip, br, zstd", "file /srv/gz.css.gz gzip varies"),
        ([On, On, On], "/gz.css", "br", "file /srv/gz.css - varies"),
        ([On, On, On], "/none.css", "gzip, br, zstd", "file /srv/none.css -"),
        // Whatever is wrong with a neighbour, the file is there.
        ([On, On, On], "/odd.css", "gzip, br, zstd", "file /srv/odd.css -"),
        // It need not be there.
        ([Off, Off, On], "/alone.css", "gzip", "file /srv/alone.css.gz gzip varies"),
        ([Off, Off, On], "/alone.css", "", "error 404 - varies"),
        ([Off, Off, Off], "/alone.css", "gzip", "error 404 -"),
        // An index has its neighbour too; a folder has none.
        ([Off, Off, On], "/dir/", "gzip", "file /srv/dir/index.html.gz gzip varies"),
        ([Off, Off, On], "/folder", "gzip", "redirect 301 http://example.org:8080/folder/ -"),
        // `Accept-Encoding` is not read.
        ([Off, Off, Always], "/gz.css", "", "file /srv/gz.css.gz gzip"),
        ([Off, Off, Always], "/alone.css", "", "file /srv/alone.css.gz gzip"),
        ([Off, Off, Always], "/none.css", "", "file /srv/none.css -"),
        ([Off, On, Always], "/all.css", "br", "file /srv/all.css.br br varies"),
    ];
    for (kinds, path, accept, expected) in rows {
        assert_eq!(asked(*kinds, path, accept), *expected, "{kinds:?} {path} {accept:?}");
    }
}

#[test]
fn a_neighbour_costs_at_most_one_look_for_each_coding() {
    let kinds = [Neighbour::On; 3];
    let table = server(vec![prefix("/", |_| {})])
        .set(move |own| neighbours(Arc::make_mut(&mut own.compression), kinds))
        .table();
    let accept = "gzip, br, zstd, gzip, br, zstd, *".repeat(100);
    let fields = [("Host", "a"), ("Accept-Encoding", accept.as_str())];
    let mut asked = Asked::with_fields("GET /none.css", &fields, FILES);
    asked.decide(&table);
    assert_eq!(asked.files.looks, 4);
}

fn on(codings: &[Coding]) -> Compression {
    let mut compression = Compression::default();
    for (coding, level) in Coding::ALL.into_iter().zip([3, 4, 1]) {
        let one = compression.of_mut(coding);
        one.is_on = codings.contains(&coding);
        one.types = ["text/css".to_owned()].into();
        one.length_min = 20;
        one.level = level;
    }
    compression
}

fn head(version: Version, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::default();
    head.begin(b"GET", b"/", version);
    for (name, value) in fields {
        head.push(name.as_bytes(), value.as_bytes());
    }
    head
}

fn shown(choice: Choice) -> String {
    let coding = choice
        .coding
        .map_or("-".to_owned(), |(coding, level)| format!("{} {level}", coding.name()));
    if choice.depends { coding + " varies" } else { coding }
}

#[test]
fn what_is_compressed_follows_from_the_answer() {
    let all = on(&Coding::ALL);
    let head = head(Version::Http11, &[("Accept-Encoding", "gzip, br, zstd")]);
    let css = "Content-Type: text/css\r\n";
    let rows: &[(u16, Option<u64>, &str, &str)] = &[
        (200, Some(100), css, "zstd 3 varies"),
        (200, None, css, "zstd 3 varies"),
        (200, Some(20), css, "zstd 3 varies"),
        (200, Some(19), css, "-"),
        (200, Some(0), css, "-"),
        (403, Some(100), css, "zstd 3 varies"),
        (404, Some(100), css, "zstd 3 varies"),
        (304, Some(100), css, "zstd 3 varies"),
        (201, Some(100), css, "-"),
        (204, Some(100), css, "-"),
        (206, Some(100), css, "-"),
        (301, Some(100), css, "-"),
        (416, Some(100), css, "-"),
        (500, Some(100), css, "-"),
        (200, Some(100), "content-type:Text/CSS; charset=utf-8\r\n", "zstd 3 varies"),
        (200, Some(100), "Content-Type: text/html\r\n", "zstd 3 varies"),
        (200, Some(100), "Content-Type: text/plain\r\n", "-"),
        (200, Some(100), "Content-Type: image/png\r\n", "-"),
        (200, Some(100), "", "-"),
        (200, Some(100), "Content-Type: text/css\r\nContent-Encoding: br\r\n", "-"),
        (200, Some(100), "Content-Type: text/css\r\ncontent-encoding:identity\r\n", "-"),
        (
            200,
            Some(100),
            "Cache-Control: max-age=1, No-Transform\r\nContent-Type: text/css\r\n",
            "-",
        ),
        (200, Some(100), "Cache-Control: no-store\r\nContent-Type: text/css\r\n", "zstd 3 varies"),
    ];
    for (code, length, fields, expected) in rows {
        let answer = Answer {
            status: status(*code),
            length: *length,
            fields: &support::fields(fields),
            media_type: b"",
        };
        let choice = choose(&all, &head, &answer, 0);
        assert_eq!(shown(choice), *expected, "{code} {length:?} {fields:?}");
    }
}

type Fields = &'static [(&'static str, &'static str)];

#[test]
fn what_is_compressed_follows_from_the_request() {
    use Coding::{Brotli, Gzip};
    let new = Version::Http11;
    let old = Version::Http10;
    let mut none_for_old = on(&[Gzip]);
    none_for_old.disable = [NoGzipFor::Msie6, NoGzipFor::UserAgent(pattern("(?i)^bad/"))].into();
    let mut even_old = on(&Coding::ALL);
    even_old.http_version = old;
    let rows: &[(&Compression, Version, Fields, &str)] = &[
        (&on(&[Gzip]), new, &[("Accept-Encoding", "br, gzip")], "gzip 1 varies"),
        (&on(&[Gzip, Brotli]), new, &[("Accept-Encoding", "zstd, br, gzip")], "br 4 varies"),
        (&on(&[Gzip]), new, &[("Accept-Encoding", "br")], "- varies"),
        (&on(&[Gzip]), new, &[("Accept-Encoding", "gzip;q=0")], "- varies"),
        (&on(&[Gzip]), new, &[], "- varies"),
        (&on(&[]), new, &[("Accept-Encoding", "gzip")], "-"),
        (&on(&[Gzip]), old, &[("Accept-Encoding", "gzip")], "- varies"),
        (&even_old, old, &[("Accept-Encoding", "gzip, br, zstd")], "gzip 1 varies"),
        (&on(&[Gzip]), new, &[("Accept-Encoding", "gzip"), ("Via", "1.1 x")], "- varies"),
        (&on(&[Brotli]), new, &[("Accept-Encoding", "br"), ("Via", "1.1 x")], "br 4 varies"),
        (&none_for_old, new, &[("Accept-Encoding", "gzip"), ("User-Agent", "Bad/1")], "- varies"),
        (
            &none_for_old,
            new,
            &[("Accept-Encoding", "gzip"), ("User-Agent", "Mozilla/4.0 (MSIE 6.0)")],
            "- varies",
        ),
        (
            &none_for_old,
            new,
            &[("Accept-Encoding", "gzip"), ("User-Agent", "Mozilla/4.0 (MSIE 6.0; SV1)")],
            "gzip 1 varies",
        ),
        (
            &none_for_old,
            new,
            &[("Accept-Encoding", "gzip"), ("User-Agent", "Mozilla/4.0 (MSIE 7.0)")],
            "gzip 1 varies",
        ),
    ];
    for (compression, version, fields, expected) in rows {
        let answer = Answer {
            status: status(200),
            length: Some(100),
            fields: &support::fields("Content-Type: text/css\r\n"),
            media_type: b"",
        };
        let choice = choose(compression, &head(*version, fields), &answer, 0);
        assert_eq!(shown(choice), *expected, "{version:?} {fields:?}");
    }
}

#[test]
fn proxies_get_gzip_as_gzip_proxied_says() {
    const EPOCH: &str = "Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
    const END: &str = "Expires: Thu, 31 Dec 2037 23:55:55 GMT\r\n";
    let off = Proxied::default();
    let rows: &[(Proxied, &str, &str, bool)] = &[
        (off, "", "", false),
        (Proxied { any: true, ..off }, "", END, true),
        (Proxied { auth: true, ..off }, "Basic x", END, true),
        (Proxied { auth: true, ..off }, "", END, false),
        (Proxied { expired: true, ..off }, "", EPOCH, true),
        (Proxied { expired: true, ..off }, "", END, false),
        (Proxied { expired: true, ..off }, "", "Expires: never\r\n", false),
        (Proxied { no_cache: true, ..off }, "", EPOCH, false),
        (Proxied { no_cache: true, ..off }, "", "Cache-Control: a, no-cache\r\n", true),
        (Proxied { no_store: true, ..off }, "", "Cache-Control: no-cache\r\n", false),
        (Proxied { no_store: true, ..off }, "", "Cache-Control: no-store\r\n", true),
        (Proxied { private: true, ..off }, "", "Cache-Control: private=\"x\"\r\n", true),
        (Proxied { no_last_modified: true, ..off }, "", "Last-Modified: x\r\n", false),
        (Proxied { no_last_modified: true, ..off }, "", "ETag: x\r\n", true),
        (Proxied { no_etag: true, ..off }, "", "ETag: x\r\n", false),
        (Proxied { private: true, ..off }, "", "", true),
    ];
    for (proxied, authorization, fields, expected) in rows {
        let mut compression = on(&[Coding::Gzip]);
        compression.proxied = *proxied;
        let mut request = vec![("Accept-Encoding", "gzip"), ("Via", "1.1 proxy")];
        if !authorization.is_empty() {
            request.push(("Authorization", authorization));
        }
        let lines = format!("Content-Type: text/css\r\n{fields}");
        let answer = Answer {
            status: status(200),
            length: Some(100),
            fields: &support::fields(&lines),
            media_type: b"",
        };
        let choice = choose(&compression, &head(Version::Http11, &request), &answer, 1000);
        assert_eq!(choice.coding.is_some(), *expected, "{proxied:?} {fields:?}");
    }
}

#[test]
fn the_head_of_a_compressed_answer_says_what_it_is() {
    let rows = [
        (
            "Server: x\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nX: y\r\n",
            "Server: x\r\nETag: W/\"a\"\r\nX: y\r\nContent-Encoding: br\r\n",
        ),
        ("etag:\"a\"\r\n", "etag: W/\"a\"\r\nContent-Encoding: br\r\n"),
        ("ETag: W/\"a\"\r\n", "ETag: W/\"a\"\r\nContent-Encoding: br\r\n"),
        ("accept-ranges: none\r\nAccept-Ranges: bytes\r\n", "Content-Encoding: br\r\n"),
        ("", "Content-Encoding: br\r\n"),
    ];
    for (before, after) in rows {
        let mut fields = support::fields(before);
        mark_compressed(&mut fields, Coding::Brotli);
        assert_eq!(String::from_utf8_lossy(fields.as_lines()), after);
    }
    let mut fields = support::fields("X: \"a\"");
    weaken_tag(&mut fields);
    assert_eq!(fields.as_lines(), b"X: \"a\"\r\n");
}

#[test]
fn vary_is_said_once() {
    let rows = [
        ("", "Vary: Accept-Encoding\r\n"),
        ("Vary: Origin\r\n", "Vary: Origin\r\nVary: Accept-Encoding\r\n"),
        ("vary: Origin, accept-encoding\r\n", "vary: Origin, accept-encoding\r\n"),
        ("Vary: *\r\n", "Vary: *\r\n"),
    ];
    for (before, after) in rows {
        let mut fields = support::fields(before);
        mark_varying(&mut fields);
        assert_eq!(String::from_utf8_lossy(fields.as_lines()), after);
    }
}
