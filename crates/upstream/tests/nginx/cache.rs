//! What a real nginx keeps, we keep, and the other way round; where we follow RFC 9111 instead, the row says so.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use sekisho_http::{Fields, Method, Status};
use sekisho_upstream::cache::store::ValidFor;
use sekisho_upstream::cache::{Candidate, StoreRules, may_store};

use crate::server::{Nginx, field};

const NAMES: [&str; 6] =
    ["X-Accel-Expires", "Cache-Control", "Expires", "Set-Cookie", "Vary", "Age"];
const STATUSES: [u16; 4] = [200, 302, 404, 500];

const FRONT: &str = "
    proxy_cache a; proxy_cache_key $request_uri;
    proxy_cache_valid 200 600s; proxy_cache_valid 404 60s; proxy_cache_valid 500 0;
    add_header X-Cache $upstream_cache_status always;
    location / { proxy_pass BACK; }";

fn back() -> String {
    let mut text = String::new();
    for name in NAMES {
        let variable = name.to_lowercase().replace('-', "_");
        writeln!(text, "add_header {name} $http_x_{variable} always;").expect("text");
    }
    for status in STATUSES {
        writeln!(text, "location /{status}/ {{ return {status} /; }}").expect("text");
    }
    text
}

fn ask(nginx: &Nginx, target: &str, fields: &[(&str, &str)]) -> String {
    let mut lines = String::new();
    for (name, value) in fields {
        let prefix = if *name == "Authorization" { "" } else { "X-" };
        write!(lines, "{prefix}{name}: {value}\r\n").expect("text");
    }
    field(&nginx.ask(target, &lines), "X-Cache").unwrap_or("none").to_owned()
}

#[expect(clippy::disallowed_methods, reason = "nginx has the time of day as well")]
fn now() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    unix.as_secs() as i64
}

/// Whether our rules keep it, under the same configuration.
fn keeps(status: u16, list: &[(&str, &str)]) -> bool {
    let rules = StoreRules {
        valid: vec![
            (ValidFor::Status(200), 600),
            (ValidFor::Status(404), 60),
            (ValidFor::Status(500), 0),
        ],
        ..StoreRules::default()
    };
    let is_authorized = list.iter().any(|(name, _)| *name == "Authorization");
    let fields: Fields =
        list.iter().copied().filter(|(name, _)| *name != "Authorization").collect();
    let candidate = Candidate {
        method: Method::Get,
        is_authorized,
        is_refused: false,
        uses: 1,
        status: Status::new(status).expect("a status"),
        fields: &fields,
    };
    may_store(&rules, &candidate, now()).is_ok()
}

/// Fields of an answer, and whether it is treated differently from nginx on purpose.
type Row = (&'static [(&'static str, &'static str)], bool);

const ROWS: &[Row] = &[
    (&[], false),
    (&[("Cache-Control", "max-age=60")], false),
    (&[("Cache-Control", "public, MAX-AGE=60")], false),
    (&[("Cache-Control", "s-maxage=60, max-age=0")], false),
    (&[("Cache-Control", "max-age=0")], false),
    (&[("Cache-Control", "s-maxage=0, max-age=60")], false),
    (&[("Cache-Control", "no-cache")], false),
    (&[("Cache-Control", "no-store")], false),
    (&[("Cache-Control", "private, max-age=60")], false),
    (&[("Cache-Control", "private=\"x\", max-age=60")], false),
    (&[("Cache-Control", "max-age=soon")], false),
    (&[("Cache-Control", "must-revalidate")], false),
    (&[("Expires", "Thu, 01 Jan 1970 00:00:00 GMT")], false),
    (&[("Expires", "Thu, 31 Dec 2037 23:55:55 GMT")], false),
    (&[("Expires", "never")], false),
    (&[("Cache-Control", "max-age=60"), ("Expires", "never")], false),
    (&[("X-Accel-Expires", "60")], false),
    (&[("X-Accel-Expires", "0")], false),
    (&[("X-Accel-Expires", "@4000000000")], false),
    (&[("X-Accel-Expires", "soon")], false),
    (&[("X-Accel-Expires", "60"), ("Cache-Control", "no-store")], false),
    (&[("X-Accel-Expires", "0"), ("Cache-Control", "max-age=60")], false),
    (&[("Set-Cookie", "a=b")], false),
    (&[("Vary", "*")], false),
    (&[("Vary", "Accept")], false),
    // RFC 9111 §4.2.3: it was too old when it came.
    (&[("Cache-Control", "max-age=60"), ("Age", "90")], true),
    (&[("Cache-Control", "max-age=60"), ("Age", "10")], false),
    // RFC 9111 §3.5: it was for one user.
    (&[("Authorization", "Basic eDp5")], true),
    (&[("Authorization", "Basic eDp5"), ("Cache-Control", "s-maxage=60")], false),
];

#[test]
fn what_nginx_keeps_we_keep() {
    let zone = "proxy_cache_path FOLDER/cache keys_zone=a:1m;";
    let Some(nginx) = Nginx::start(zone, FRONT, &back()) else { return };
    for status in STATUSES {
        for (at, (list, is_ours)) in ROWS.iter().enumerate() {
            let target = format!("/{status}/{at}");
            assert_eq!(ask(&nginx, &target, list), "MISS");
            let is_kept = ask(&nginx, &target, list) == "HIT";
            let ours = keeps(status, list);
            if *is_ours {
                assert!(!ours, "{status} {list:?}: we do not");
            } else {
                assert_eq!(ours, is_kept, "{status} {list:?}");
            }
        }
    }
}
