//! What a real nginx keeps, we keep, and the other way round; where we follow RFC 9111 instead, the row says so.
//! Skipped where there is no nginx.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sekisho_http::upstream::Pairs;
use sekisho_http::{Method, Status};
use sekisho_upstream::cache::store::ValidFor;
use sekisho_upstream::cache::{Candidate, StoreRules, may_store};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

const NAMES: [&str; 6] =
    ["X-Accel-Expires", "Cache-Control", "Expires", "Set-Cookie", "Vary", "Age"];
const STATUSES: [u16; 4] = [200, 302, 404, 500];

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    let mut fields = String::new();
    for name in NAMES {
        let variable = name.to_lowercase().replace('-', "_");
        writeln!(fields, "add_header {name} $http_x_{variable} always;").expect("text");
    }
    let mut locations = String::new();
    for status in STATUSES {
        writeln!(locations, "location /{status}/ {{ return {status} /; }}").expect("text");
    }
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log /dev/null;
         events {{ worker_connections 100; }}
         http {{
             access_log off;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
             proxy_cache_path {folder}/cache keys_zone=a:1m;
             server {{
                 listen unix:{folder}/front;
                 proxy_cache a; proxy_cache_key $request_uri;
                 proxy_cache_valid 200 600s; proxy_cache_valid 404 60s; proxy_cache_valid 500 0;
                 add_header X-Cache $upstream_cache_status always;
                 location / {{ proxy_pass http://unix:{folder}/back:; }}
             }}
             server {{ listen unix:{folder}/back; {fields} {locations} }}
         }}"
    )
}

fn ask(folder: &Path, target: &str, fields: &[(&str, &str)]) -> String {
    let mut stream = UnixStream::connect(folder.join("front")).expect("connected");
    let mut request = format!("GET {target} HTTP/1.0\r\n");
    for (name, value) in fields {
        let name = if *name == "Authorization" { (*name).to_owned() } else { format!("X-{name}") };
        write!(request, "{name}: {value}\r\n").expect("text");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let status = answer.lines().find_map(|line| line.strip_prefix("X-Cache: "));
    status.unwrap_or("none").to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another program")]
fn now() -> (Instant, i64) {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    (Instant::now(), unix.as_secs() as i64)
}

fn start(folder: &Path) -> Option<Running> {
    let found = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return None;
    }
    fs::write(folder.join("nginx.conf"), configuration(folder)).expect("written");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).args(["-c", "nginx.conf"]).stderr(Stdio::null());
    let running = Running(command.spawn().expect("started"));
    let end = now().0 + Duration::from_secs(20);
    while UnixStream::connect(folder.join("front")).is_err() {
        assert!(now().0 < end, "nginx does not come up");
        std::thread::yield_now();
    }
    Some(running)
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
    let fields: Pairs = list.iter().copied().filter(|(name, _)| *name != "Authorization").collect();
    let candidate = Candidate {
        method: Method::Get,
        is_authorized,
        is_refused: false,
        uses: 1,
        status: Status::new(status).expect("a status"),
        fields: &fields,
    };
    may_store(&rules, &candidate, now().1).is_ok()
}

/// Fields of an answer, and whether it is told apart from nginx on purpose.
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
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_nginx) = start(folder.path()) else { return };
    for status in STATUSES {
        for (at, (list, is_ours)) in ROWS.iter().enumerate() {
            let target = format!("/{status}/{at}");
            assert_eq!(ask(folder.path(), &target, list), "MISS");
            let is_kept = ask(folder.path(), &target, list) == "HIT";
            let ours = keeps(status, list);
            if *is_ours {
                assert!(!ours, "{status} {list:?}: we do not");
            } else {
                assert_eq!(ours, is_kept, "{status} {list:?}");
            }
        }
    }
}
