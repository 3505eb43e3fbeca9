//! A real nginx with a front and a back, both at Unix sockets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) struct Nginx {
    child: Child,
    folder: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Nginx {
    /// Starts one; `None` where there is none. `front` and `back` are the contents of their `server` blocks,
    /// where `BACK` is replaced by the address of the back.
    pub(crate) fn start(http: &str, front: &str, back: &str) -> Option<Self> {
        let found = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        let text = format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log /dev/null;
             events {{ worker_connections 100; }}
             http {{
                 access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
                 fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
                 {http}
                 server {{ listen unix:{at}/front; {front} }}
                 server {{ listen unix:{at}/back; {back} }}
             }}"
        );
        let text = text.replace("BACK", &format!("http://unix:{at}/back:"));
        let text = text.replace("FOLDER", &at.to_string());
        fs::write(folder.path().join("nginx.conf"), text).expect("written");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]).stderr(Stdio::null());
        let nginx = Self { child: command.spawn().expect("started"), folder };
        let end = now() + Duration::from_secs(20);
        while nginx.connect().is_none() {
            assert!(now() < end, "nginx does not come up");
            std::thread::yield_now();
        }
        Some(nginx)
    }

    /// The whole answer to a GET with these field lines.
    pub(crate) fn ask(&self, target: &str, fields: &str) -> String {
        let mut stream = self.connect().expect("connected");
        let request = format!("GET {target} HTTP/1.0\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    fn connect(&self) -> Option<UnixStream> {
        UnixStream::connect(self.folder.path().join("front")).ok()
    }
}

/// The value of a field of an answer.
pub(crate) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}: ");
    answer.lines().find_map(|line| line.strip_prefix(start.as_str()))
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another program")]
fn now() -> Instant {
    Instant::now()
}
