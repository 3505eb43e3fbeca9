//! The same groups, keys and failures put to a real nginx: the same servers in the same order. Skipped where
//! there is no nginx.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sekisho_upstream::balance::Outcome;
use sekisho_upstream::{Balancer, Method, PeerSettings, Selection};
use tempfile::TempDir;

use crate::{choose, seconds};

/// One server of a group, and whether something answers there.
struct Backend {
    settings: PeerSettings,
    is_live: bool,
}

struct Nginx {
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
    /// Starts one with this group behind it; `None` where there is none.
    fn start(method: &str, backends: &[Backend]) -> Option<Self> {
        let found = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let text = configuration(folder.path(), method, backends);
        fs::write(folder.path().join("nginx.conf"), text).expect("written");
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf"])
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let nginx = Self { child, folder };
        let end = now() + Duration::from_secs(20);
        while nginx.connect().is_none() {
            assert!(now() < end, "nginx does not come up");
            std::thread::yield_now();
        }
        Some(nginx)
    }

    fn connect(&self) -> Option<UnixStream> {
        UnixStream::connect(self.folder.path().join("front")).ok()
    }

    /// The servers that one request tried, in order, as the configuration names them.
    fn ask(&self, key: &str, address: Option<IpAddr>) -> Vec<String> {
        let mut stream = self.connect().expect("connected");
        let address = address.map(|it| format!("X-Real-IP: {it}\r\n")).unwrap_or_default();
        let request = format!("GET /?k={key} HTTP/1.0\r\n{address}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let tried = answer.lines().find_map(|line| line.strip_prefix("X-Tried: ")).expect("tried");
        tried.split(", ").map(str::to_owned).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another program")]
fn now() -> Instant {
    Instant::now()
}

fn configuration(folder: &Path, method: &str, backends: &[Backend]) -> String {
    let mut servers = String::new();
    let mut behind = String::new();
    for Backend { settings, is_live } in backends {
        let down = if settings.is_down { "down" } else { "" };
        let PeerSettings { server, weight, .. } = settings;
        writeln!(servers, "server {server} weight={weight} max_fails=0 {down};").expect("text");
        if *is_live {
            writeln!(behind, "server {{ listen {server}; return 200; }}").expect("text");
        }
    }
    let folder = folder.display();
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log /dev/null;
         events {{ worker_connections 500; }}
         http {{
             access_log off;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
             set_real_ip_from unix:; real_ip_header X-Real-IP;
             upstream group {{ {method} {servers} }}
             server {{
                 listen unix:{folder}/front;
                 location / {{ proxy_pass http://group; add_header X-Tried $upstream_addr; }}
             }}
             {behind}
         }}"
    )
}

/// Backends with these weights: `+` answers, `!` refuses connections, `-` is `down`.
fn backends(folder: &Path, shape: &[(u32, char)], ports: bool) -> Vec<Backend> {
    let listeners: Vec<_> = shape.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let mut all = Vec::new();
    for (at, ((weight, kind), listener)) in shape.iter().zip(&listeners).enumerate() {
        let server = match listener {
            Ok(listener) if ports => listener.local_addr().expect("an address").to_string(),
            _ => format!("unix:{}/back{at}", folder.display()),
        };
        let settings = PeerSettings {
            weight: *weight,
            max_fails: 0,
            is_down: *kind == '-',
            ..PeerSettings::new(&server)
        };
        all.push(Backend { settings, is_live: *kind == '+' });
    }
    all
}

/// What our own group tries for one request.
fn tried(group: &Balancer, backends: &[Backend], mut selection: Selection) -> Vec<String> {
    let mut tried = Vec::new();
    while let Ok(peer) = choose(group, &mut selection, seconds(5)) {
        let Backend { settings, is_live } = &backends[peer];
        tried.push(settings.server.to_string());
        let outcome = if *is_live { Outcome::Answered } else { Outcome::Failed };
        group.release(peer, outcome, seconds(5));
        if *is_live {
            break;
        }
    }
    tried
}

fn compare(method: Method, directive: &str, shape: &[(u32, char)], ports: bool, requests: u32) {
    let sockets = tempfile::tempdir().expect("a folder");
    let backends = backends(sockets.path(), shape, ports);
    let Some(nginx) = Nginx::start(directive, &backends) else { return };
    let peers = backends.iter().map(|backend| backend.settings.clone()).collect();
    let group = Balancer::new(method, peers);
    for request in 0..requests {
        let address: IpAddr = match request % 3 {
            0 => Ipv6Addr::from(u128::from(request) << 60 | u128::from(request * 77)).into(),
            _ => Ipv4Addr::from(request.wrapping_mul(2_654_435_761)).into(),
        };
        let key = format!("key{}", request * 7);
        let selection = match method {
            Method::IpHash => group.begin_for(Some(address)),
            _ => group.begin(key.as_bytes()),
        };
        let address = (method == Method::IpHash).then_some(address);
        let expected = nginx.ask(&key, address);
        assert_eq!(tried(&group, &backends, selection), expected, "{directive}, request {request}");
    }
}

const SHAPES: [&[(u32, char)]; 3] = [
    &[(1, '+'), (1, '+'), (1, '+')],
    &[(5, '+'), (1, '+'), (3, '+'), (2, '-')],
    &[(2, '!'), (4, '+'), (1, '!'), (3, '+'), (1, '-')],
];

#[test]
fn round_robin_is_nginx_s() {
    for shape in SHAPES {
        compare(Method::RoundRobin, "", shape, false, 60);
    }
}

#[test]
fn least_connections_are_nginx_s() {
    for shape in SHAPES {
        compare(Method::LeastConnections, "least_conn;", shape, false, 60);
    }
}

#[test]
fn ip_hash_is_nginx_s() {
    for shape in SHAPES {
        compare(Method::IpHash, "ip_hash;", shape, false, 300);
    }
}

#[test]
fn hash_is_nginx_s() {
    for shape in SHAPES {
        compare(Method::Hash, "hash $arg_k;", shape, false, 300);
    }
}

#[test]
fn consistent_hash_is_nginx_s() {
    for shape in SHAPES {
        compare(Method::ConsistentHash, "hash $arg_k consistent;", shape, false, 300);
        compare(Method::ConsistentHash, "hash $arg_k consistent;", shape, true, 300);
    }
}
