//! The environment of a program (V22): each variable once, none of another's making; what a client sends becomes
//! `HTTP_*` or nothing, with its value whole; nothing that changes what a program does of itself.
//!
//! The first line is the target, every other a field line.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use sekisho_config::{Memory, Options, Settings, load};
use sekisho_gateway::cgi::{Authenticated, Environment, Facts, environment, invocation};
use sekisho_http::token::{is_token_byte, is_value_byte};
use sekisho_http::{Head, Version};
use sekisho_route::{
    AccessChecks, Action, ConnectionFacts, Files, Look, Request, RequestIdSeed, RouteState, Table,
    WallTime,
};

const TEXT: &str = "events {} http { server {
    listen 8080;
    root /srv;
    cgi_set_var HTTP_OWN \"$http_own!\";
    location / { cgi on; }
    location ~ \\.py { cgi_extension .py /usr/bin/python3 -u; }
} }";
/// All names that the server gives; `HTTPS` only where it is.
const SERVERS: [&str; 26] = [
    "GATEWAY_INTERFACE",
    "SERVER_SOFTWARE",
    "SERVER_PROTOCOL",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "REQUEST_SCHEME",
    "PATH",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_PORT",
    "REQUEST_METHOD",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "QUERY_STRING",
    "AUTH_TYPE",
    "REMOTE_USER",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "DOCUMENT_ROOT",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "REDIRECT_STATUS",
    "HTTP_OWN",
];
const NEVER: [&str; 8] = [
    "HTTP_PROXY",
    "HTTP_CONTENT_LENGTH",
    "HTTP_CONTENT_TYPE",
    "HTTP_CONNECTION",
    "HTTP_TRANSFER_ENCODING",
    "HTTP_TE",
    "HTTP_AUTHORIZATION",
    "HTTP_PROXY_AUTHORIZATION",
];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let outcome = load(Path::new("/s.conf"), &Options::new("/p"), &Memory::of("/s.conf", TEXT));
    Table::new(Arc::new(outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports))))
});

/// Holds the writer to it.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let mut head = Head::default();
    head.begin(if data.len() % 2 == 0 { b"GET" } else { b"POST" }, target, Version::Http11);
    head.push(b"Host", b"a.example");
    let mut sent: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for line in lines.take(12) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.trim_ascii();
        // What the parser of heads lets through, which is all that there can be.
        let is_field = !name.is_empty()
            && name.iter().copied().all(is_token_byte)
            && value.iter().copied().all(is_value_byte)
            && !name.eq_ignore_ascii_case(b"host");
        if is_field {
            head.push(name, value);
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            sent.entry(name).or_default().push(value.to_vec());
        }
    }
    let connection = ConnectionFacts {
        remote: Some(([192, 0, 2, 1], 4711).into()),
        local: Some(([192, 0, 2, 2], 8080).into()),
        ..ConnectionFacts::default()
    };
    let (wall, request_id) = (WallTime::default(), RequestIdSeed(1));
    let request = Request::new(&head, 0, &connection, wall, request_id);
    let mut route_state = RouteState::default();
    if TABLE.decide(&request, &mut route_state, &mut Everything) != Action::Cgi {
        return;
    }
    let user = (data.len() % 3 == 0).then_some(Authenticated { scheme: "Basic", user: b"kim" });
    let facts = Facts {
        table: &TABLE,
        request: &request,
        route_state: &route_state,
        has_body: data.len() % 5 > 0,
        body_bytes: (data.len() % 5 == 1).then_some(7),
        software: "sekisho/1",
        user,
    };
    let mut out = Environment::default();
    environment(&facts, &mut out);
    told(&out, &sent, target);
    called(&request, &route_state);
}

fn told(out: &Environment, sent: &BTreeMap<String, Vec<Vec<u8>>>, target: &[u8]) {
    let mut seen = BTreeMap::new();
    assert_eq!(out.starts().len(), out.iter().count(), "a NUL within");
    for variable in out.iter() {
        let bytes = variable.to_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=').expect("a name");
        let name = std::str::from_utf8(&bytes[..equals]).expect("a plain name").to_owned();
        let is_plain =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(is_plain), "{name}");
        assert!(seen.insert(name, bytes[equals + 1..].to_vec()).is_none(), "twice");
    }
    for name in NEVER {
        assert!(!seen.contains_key(name), "{name}");
    }
    for (name, value) in &seen {
        if SERVERS.contains(&name.as_str()) || name == "HTTP_HOST" {
            continue;
        }
        let field = name.strip_prefix("HTTP_").unwrap_or_else(|| panic!("{name} has no origin"));
        let values =
            sent.get(&field.replace('_', "-")).unwrap_or_else(|| panic!("{name} was not sent"));
        let separator: &[u8] = if field == "COOKIE" { b"; " } else { b", " };
        assert_eq!(*value, values.join(separator), "{name}");
    }
    // What can be passed on is.
    for name in sent.keys() {
        let variable = format!("HTTP_{}", name.replace('-', "_"));
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            continue;
        }
        let others = ["EXPECT", "KEEP-ALIVE", "PROXY-CONNECTION", "TRAILER", "UPGRADE"];
        let is_kept = NEVER.contains(&variable.as_str()) || others.contains(&name.as_str());
        assert_eq!(seen.contains_key(&variable), !is_kept || variable == "HTTP_OWN", "{name}");
    }
    let of = |name: &str| seen.get(name).map_or(&b""[..], Vec::as_slice);
    assert_eq!(of("REDIRECT_STATUS"), b"200");
    // A target that names a server itself counts before the field (RFC 9112, 3.2.2).
    let server = of("SERVER_NAME");
    let target = target.to_ascii_lowercase();
    if target.starts_with(b"/") {
        assert_eq!(server, b"a.example");
    } else {
        let is_named = target.windows(server.len().max(1)).any(|part| part == server);
        assert!(is_named, "{}", server.escape_ascii());
    }
    let own = sent.get("OWN").map(|values| values.join(&b", "[..])).unwrap_or_default();
    assert_eq!(of("HTTP_OWN"), [own.as_slice(), b"!"].concat());
}

/// V23: nothing of the query or the path's rest becomes an argument.
fn called(request: &Request<'_>, route_state: &RouteState) {
    let call = invocation(&TABLE, request, route_state).expect("a program");
    let shown = format!("{call:?}");
    assert!(route_state.file.starts_with(b"/srv/"), "{shown}");
}

/// Where every path is a program.
struct Everything;

impl AccessChecks for Everything {}

impl Files for Everything {
    type File = ();

    fn look(&mut self, path: &[u8], root_bytes: usize, _: &Settings) -> Look<()> {
        if path.len() <= root_bytes + 1 || path.ends_with(b"/") {
            return Look::Directory;
        }
        Look::File(())
    }
}
