//! Names that are looked up while the server runs (`resolver`), with a DNS server of the test's own.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sekisho_testkit::{Server, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http};

/// A DNS server that knows the given addresses, and says that others do not exist.
struct Dns {
    address: SocketAddr,
    names: Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>,
    asked: Arc<AtomicUsize>,
    /// Answers by UDP are cut, so that TCP is needed.
    is_cut: Arc<AtomicBool>,
}

impl Dns {
    fn start() -> Self {
        // One port for both, which some other program may have for one of them.
        let both = (0..100).find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
        });
        let (udp, tcp) = both.expect("a port is free");
        let address = udp.local_addr().expect("it has an address");
        let dns =
            Self { address, names: Arc::default(), asked: Arc::default(), is_cut: Arc::default() };
        let (names, asked, is_cut) =
            (Arc::clone(&dns.names), Arc::clone(&dns.asked), Arc::clone(&dns.is_cut));
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((count, from)) = udp.recv_from(&mut query) {
                asked.fetch_add(1, Ordering::SeqCst);
                let is_cut = is_cut.load(Ordering::SeqCst);
                let _ = udp.send_to(&answer(&query[..count], &names, is_cut), from);
            }
        });
        let names = Arc::clone(&dns.names);
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut length = [0; 2];
                if stream.read_exact(&mut length).is_err() {
                    continue;
                }
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                if stream.read_exact(&mut query).is_ok() {
                    let answer = answer(&query, &names, false);
                    let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&answer);
                }
            }
        });
        dns
    }

    fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned(), addresses.to_vec());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// RFC 1035: the question again, and its addresses with a time of an hour.
fn answer(query: &[u8], names: &Mutex<HashMap<String, Vec<Ipv4Addr>>>, is_cut: bool) -> Vec<u8> {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    let kind = query[at + 2];
    let question = &query[12..at + 5];
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.get(&labels.join("."));
    let found = known.filter(|_| kind == 1 && !is_cut).cloned().unwrap_or_default();
    let flags = match known {
        None => [0x81, 0x83],
        Some(_) if is_cut => [0x83, 0x80],
        Some(_) => [0x81, 0x80],
    };
    let mut out =
        [&query[..2], &flags, &[0, 1, 0, found.len() as u8, 0, 0, 0, 0], question].concat();
    for address in found {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    out
}

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A host in a variable is looked up; what is not found is 502 in nginx's words, and an answer is believed for its time.
#[test]
fn a_host_in_a_variable_is_looked_up() {
    let dns = Dns::start();
    let backend = Backend::saying("found");
    dns.set("app.example", &[HERE]);
    let port = backend.address().port();
    let body = format!(
        "resolver {};
         server {{ listen 127.0.0.1:{{port}};
                  location / {{ proxy_pass http://$arg_to:{port}; }} }}",
        dns.address
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/?to=app.example").text(), "found", "{}", server.log("error.log"));
    assert!(backend.heads()[0].contains(&format!("Host: app.example:{port}\r\n")));
    let asked = dns.asked();
    assert_eq!(asked, 2, "one for each kind of address");
    assert_eq!(client.get("/?to=APP.example").text(), "found");
    assert_eq!(dns.asked(), asked, "what is known is not asked for");
    assert_eq!(client.get("/?to=gone.example").status, 502);
    let log = server.log("error.log");
    assert!(log.contains("gone.example could not be resolved (3: Host not found)"), "{log}");
    // An answer that is too long for a datagram comes by TCP.
    dns.is_cut.store(true, Ordering::SeqCst);
    dns.set("long.example", &[HERE]);
    assert_eq!(client.get("/?to=long.example").text(), "found", "{}", server.log("error.log"));
}

/// A server that says nothing is waited for no longer than `resolver_timeout`, and delays no request
/// afterwards.
#[test]
fn a_silent_dns_server_is_left_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let body = format!(
        "resolver {} ipv6=off; resolver_timeout 300ms;
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://$arg_to:1; }} }}",
        silent.local_addr().expect("it has an address")
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/?to=app.example").status, 502);
    let log = server.log("error.log");
    assert!(log.contains("could not be resolved (110: Operation timed out)"), "{log}");
}

/// `server name resolve`: the group follows the name, also where it was not known at the start.
#[test]
fn a_server_of_a_group_follows_its_name() {
    let dns = Dns::start();
    // One port at two addresses, which some other program may have at one of them.
    let both = (0..100).find_map(|_| {
        let here = TcpListener::bind((HERE, 0)).ok()?;
        let port = here.local_addr().ok()?.port();
        Some((here, TcpListener::bind((ELSEWHERE, port)).ok()?, port))
    });
    let (here, elsewhere, port) = both.expect("a port is free");
    let _backends = [Backend::saying_on(here, "here"), Backend::saying_on(elsewhere, "elsewhere")];
    let body = format!(
        "resolver {} valid=1s ipv6=off;
         upstream app {{ server app.example:{port} resolve; keepalive 4; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app; }} }}",
        dns.address
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let get = || server.connect().get("/");
    assert_eq!(get().status, 502, "not found yet");
    dns.set("app.example", &[HERE]);
    eventually("the name is found", LONG, || get().text() == "here");
    dns.set("app.example", &[ELSEWHERE]);
    eventually("the group follows", LONG, || get().text() == "elsewhere");
    dns.set("app.example", &[HERE, ELSEWHERE]);
    eventually("both take turns", LONG, || {
        let mut both = [get().text(), get().text()];
        both.sort();
        both == ["elsewhere", "here"]
    });
}
