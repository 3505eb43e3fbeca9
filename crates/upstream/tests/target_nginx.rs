//! The target that an upstream gets, as a real nginx makes it. Skipped where there is no nginx.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sekisho_http::target;
use sekisho_upstream::rewrite::{TargetParts, upstream_target};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    let back = format!("proxy_pass http://unix:{folder}/back:");
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log /dev/null;
         events {{ worker_connections 100; }}
         http {{
             access_log off;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
             server {{
                 listen unix:{folder}/front;
                 location /name/ {{ {back}/remote/; }}
                 location /cut {{ {back}/r; }}
                 location /plain/ {{ {back}; }}
                 location /rw/ {{ rewrite ^/rw(/.*)$ /new$1 break; {back}; }}
             }}
             server {{ listen unix:{folder}/back; return 200 $request_uri; }}
         }}"
    )
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
    let end = now() + Duration::from_secs(20);
    while UnixStream::connect(folder.join("front")).is_err() {
        assert!(now() < end, "nginx does not come up");
        std::thread::yield_now();
    }
    Some(running)
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another program")]
fn now() -> Instant {
    Instant::now()
}

fn ask(folder: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(folder.join("front")).expect("connected");
    stream.write_all(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// The same by our rules.
fn ours(asked: &str) -> String {
    let split = target::split(asked.as_bytes()).expect("a path");
    let mut path = Vec::new();
    target::resolve(split.path, true, &mut path).expect("resolved");
    let (pass, location): (Option<&[u8]>, &[u8]) = match () {
        () if path.starts_with(b"/name/") => (Some(b"/remote/"), b"/name/"),
        () if path.starts_with(b"/cut") => (Some(b"/r"), b"/cut"),
        () => (None, b""),
    };
    let is_rewritten = path.starts_with(b"/rw/");
    if is_rewritten {
        path.splice(..3, *b"/new");
    }
    let parts = TargetParts {
        pass,
        location,
        original: asked.as_bytes(),
        path: &path,
        query: split.query,
        is_rewritten,
        is_computed: false,
    };
    let mut out = Vec::new();
    upstream_target(&parts, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn targets_are_nginx_s() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_nginx) = start(folder.path()) else { return };
    let tails = [
        "",
        "a",
        "a/b?c=d",
        "a?",
        "a%20b",
        "a%25b",
        "a%3Fb?c%20d",
        "a%23b",
        "%C3%A4",
        "a//b",
        "a/./b/../c",
        "a+b;c=d,e!'()*:@&$",
        "~a%7Eb",
        "a%22%3C%3E%5C%5E%60%7B%7C%7D",
        "a\"<>\\^`{|}",
    ];
    for location in ["/name/", "/cut", "/cut/", "/plain/", "/rw/"] {
        for tail in tails {
            let target = format!("{location}{tail}");
            assert_eq!(ours(&target), ask(folder.path(), &target), "{target}");
        }
    }
}
