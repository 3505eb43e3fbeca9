//! UDP: datagrams of one client go to one server, and its answers come back.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use sekisho_testkit::{eventually, free_port};

use crate::common::LONG;
use crate::serve;

/// A server that answers each datagram with so many of its own.
fn answering(count: usize) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            for at in 0..count {
                let text = [from.port().to_string().as_bytes(), b" ", &buffer[..length]].concat();
                let text = [&text[..], format!(" {at}").as_bytes()].concat();
                let _ = socket.send_to(&text, from);
            }
        }
    });
    address
}

fn client() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(LONG)).expect("it can be set");
    socket
}

fn receive(socket: &UdpSocket) -> String {
    let mut buffer = vec![0; 1 << 16];
    let (count, _) = socket.recv_from(&mut buffer).expect("an answer comes");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
fn datagrams_of_one_client_stay_together() {
    let (backend, port) = (answering(1), free_port());
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen 127.0.0.1:{port} udp reuseport; proxy_pass {backend}; proxy_timeout 1h; }}"
    ));
    let (ours, other) = (client(), client());
    let to = ("127.0.0.1", port);
    let mut from = Vec::new();
    for at in 0..5 {
        ours.send_to(format!("d{at}").as_bytes(), to).expect("it leaves");
        let said = receive(&ours);
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!(words[1], format!("d{at}"), "{}", server.log("error.log"));
        from.push(words[0].to_owned());
    }
    from.dedup();
    assert_eq!(from.len(), 1, "one socket for one client: {from:?}");
    other.send_to(b"x", to).expect("it leaves");
    assert!(!receive(&other).starts_with(&from[0]), "another one for another client");
    let large = vec![b'z'; 60_000];
    ours.send_to(&large, to).expect("it leaves");
    assert_eq!(receive(&ours).len(), from[0].len() + 1 + large.len() + 2);
    server.quit();
    let mut server = server;
    assert!(server.wait_exit(LONG).success(), "datagrams have no end, and a server has");
}

/// At a wildcard address, an answer leaves from where its question came to.
#[test]
fn answers_come_from_the_address_that_was_asked() {
    let (backend, port) = (answering(1), free_port());
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen {port} udp; proxy_pass {backend}; }}"
    ));
    for to in ["127.0.0.1", "127.0.0.9"] {
        let ours = client();
        // One that is connected hears nobody else.
        ours.connect((to, port)).expect("it can be named");
        ours.send(b"q").expect("it leaves");
        assert!(receive(&ours).ends_with("q 0"), "{}", server.log("error.log"));
    }
}

/// `proxy_responses` ends a session with the last answer, `proxy_requests` begins a new one.
#[test]
fn the_number_of_datagrams_says_when_a_session_ends() {
    let (backend, first, second) = (answering(2), free_port(), free_port());
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen 127.0.0.1:{first} udp; proxy_pass {backend}; proxy_responses 2; proxy_timeout 1h; }}
         server {{ listen 127.0.0.1:{second} udp; proxy_pass {backend}; proxy_requests 2; proxy_timeout 1h; }}"
    ));
    let ours = client();
    ours.send_to(b"q", ("127.0.0.1", first)).expect("it leaves");
    assert!(receive(&ours).ends_with("q 0") && receive(&ours).ends_with("q 1"));
    eventually("it has ended", LONG, || {
        let log = server.log("access.log");
        log.starts_with("UDP 200 1 ") && log.lines().count() == 1
    });
    // A burst: none is lost, two belong together.
    for at in 0..5 {
        ours.send_to(format!("r{at}").as_bytes(), ("127.0.0.1", second)).expect("it leaves");
    }
    let mut answers: Vec<String> = (0..10).map(|_| receive(&ours)).collect();
    answers.sort_by_key(|answer| answer.split(' ').nth(1).map(str::to_owned));
    let ports: Vec<&str> =
        answers.iter().step_by(2).filter_map(|answer| answer.split(' ').next()).collect();
    assert_eq!(ports.len(), 5);
    assert!(ports[0] == ports[1] && ports[2] == ports[3], "{ports:?}");
    assert!(ports[1] != ports[2] && ports[3] != ports[4], "{ports:?}");
}

/// A server that is not there is told by the network at once, and counts as failed.
#[test]
fn a_server_without_a_socket_is_left() {
    let (backend, port) = (answering(1), free_port());
    // At this address nobody listens, whatever ports other tests are given.
    let gone = "127.213.7.9:9";
    let server = serve(&format!(
        "upstream two {{ server {gone} fail_timeout=1h; server {backend}; }}
         server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen 127.0.0.1:{port} udp; proxy_pass two; proxy_responses 1; proxy_timeout 1h; }}"
    ));
    let to = ("127.0.0.1", port);
    let lost = client();
    lost.send_to(b"x", to).expect("it leaves");
    eventually("it is told", LONG, || server.log("error.log").contains("temporarily disabled"));
    lost.set_read_timeout(Some(Duration::from_millis(200))).expect("it can be set");
    let none = lost.recv_from(&mut [0; 8]).expect_err("nobody answers").kind();
    assert!(matches!(none, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{none:?}");
    for _ in 0..3 {
        let ours = client();
        ours.send_to(b"y", to).expect("it leaves");
        assert!(receive(&ours).ends_with("y 0"));
    }
    assert!(server.log("access.log").starts_with("UDP 502 1 0"), "{}", server.log("access.log"));
}

/// O5: datagrams from many addresses take a half of the descriptors at most. Sessions whose server has answered are kept,
/// new ones are begun at the cost of those whose server never has, and connections are accepted all the time.
#[test]
fn datagrams_leave_descriptors_for_connections() {
    let (backend, port) = (answering(1), free_port());
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let silent_at = silent.local_addr().expect("it has an address");
    let silent_port = free_port();
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen 127.0.0.1:{port} udp; proxy_pass {backend}; }}
         server {{ listen 127.0.0.1:{silent_port} udp; proxy_pass {silent_at}; }}"
    ));
    let before = server.fds();
    server.limit_descriptors(200);
    // A client that has no answer asks again, as clients of UDP do.
    let ask = |socket: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("it can be set");
        let mut buffer = [0; 64];
        let answer = (0..100).find_map(|_| {
            socket.send_to(b"q", ("127.0.0.1", port)).expect("it leaves");
            socket.recv_from(&mut buffer).ok()
        });
        let (count, _) = answer.expect("an answer comes");
        let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
        said.split(' ').next().map(str::to_owned)
    };
    let ours = client();
    let first = ask(&ours);
    for _ in 0..5 {
        for _ in 0..200 {
            let one = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
            one.send_to(b"x", ("127.0.0.1", silent_port)).expect("it leaves");
        }
        assert!(server.fds() <= before + 110, "{} of 200 descriptors", server.fds());
        assert_eq!(server.connect().read_to_close(), b"x", "{}", server.log("error.log"));
        assert_eq!(ask(&ours), first, "the session whose server answers is kept");
    }
    let many: Vec<UdpSocket> = (0..150).map(|_| client()).collect();
    for one in &many {
        assert!(ask(one).is_some(), "a new session has its turn");
    }
    assert!(server.fds() <= before + 110, "{} of 200 descriptors", server.fds());
    assert_eq!(server.connect().read_to_close(), b"x");
    assert!(server.log("access.log").contains("UDP 503 1 "), "sessions that ended for others");
}

/// O5: a session whose server has never answered ends ten seconds after its last datagram.
#[test]
fn a_session_without_an_answer_is_short() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let (to, port) = (silent.local_addr().expect("it has an address"), free_port());
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; return x; }}
         server {{ listen 127.0.0.1:{port} udp; proxy_pass {to}; }}"
    ));
    let begun = sekisho_testkit::now();
    client().send_to(b"x", ("127.0.0.1", port)).expect("it leaves");
    eventually("it has ended", LONG, || server.log("access.log").starts_with("UDP 200 1 0 "));
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(13), "{took:?}");
}
