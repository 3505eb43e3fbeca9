//! Sockets that are opened, kept over a reload, shared by workers and closed.

use std::io::{Read, Write};

use super::*;
use sekisho_config::ServerId;

fn listen(address: &str, reuseport: bool) -> Listen {
    let address = match address.strip_prefix("unix:") {
        Some(path) => ListenAddress::Unix(path.into()),
        None => ListenAddress::Tcp(address.parse().expect("an address")),
    };
    let options = ListenOptions { reuseport, ..ListenOptions::default() };
    Listen { address, default_server: ServerId(0), servers: vec![ServerId(0)], options }
}

/// The sockets of each worker, by their cookies.
fn shares(sockets: &Sockets, workers: usize) -> Vec<Vec<u64>> {
    let share = |index| sockets.for_worker(index, workers).expect("descriptors");
    (0..workers)
        .map(|index| share(index).iter().map(|listener| listener.cookie).collect())
        .collect()
}

#[test]
fn every_socket_is_somebodys_however_many_workers_there_are() {
    // O3: with fewer workers no socket is closed, and with more each has one.
    let one = [listen("127.0.0.1:0", false)];
    let shared = Sockets::default().reopen(&one, 3).expect("bound");
    let cookie = shares(&shared, 1)[0][0];
    assert_eq!(shares(&shared, 3), vec![vec![cookie]; 3]);

    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let own = [listen(&address, true)];
    let three = Sockets::default().reopen(&own, 3).expect("bound");
    let all = shares(&three, 3).concat();
    assert_eq!(all.len(), 3);
    for workers in [1, 2, 3, 5, 7] {
        let fewer = three.reopen(&own, workers.min(3)).expect("kept");
        let mut found = shares(&fewer, workers);
        assert!(found.iter().all(|share| !share.is_empty()), "{found:?}");
        let mut found: Vec<u64> = found.drain(..).flatten().collect();
        found.sort_unstable();
        found.dedup();
        let mut expected = all.clone();
        expected.sort_unstable();
        assert_eq!(found, expected, "{workers} workers");
    }
    let more = three.reopen(&own, 5).expect("two more are bound");
    assert_eq!(shares(&more, 5).concat().len(), 5);
}

#[test]
fn sockets_that_are_open_serve_when_there_can_be_no_more() {
    // O3
    let open = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    // No machine has this address (RFC 5737).
    let listens = [listen("192.0.2.1:80", true)];
    assert!(Sockets::default().reopen(&listens, 2).is_err());
    let (address, socket) = (listens[0].address.clone(), open.into());
    let inherited = Inherited { address, socket, holder: Holder::We };
    let before = Sockets::inherit(vec![inherited]).expect("it is taken");
    let after = before.reopen(&listens, 2).expect("one goes on");
    let shares = shares(&after, 2);
    assert_eq!(shares[0].len(), 1);
    assert_eq!(shares[0], shares[1]);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    // O3
    let dir = std::env::temp_dir().join(format!("sekisho-listen-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = dir.join("socket");
    let new = listen(&format!("unix:{}", file.display()), false);
    let bad = listen("192.0.2.1:1", false);
    let failed = Sockets::default().reopen(&[new.clone(), bad], 1).expect_err("no such address");
    assert_eq!(
        failed.to_string(),
        "cannot listen on 192.0.2.1:1: this machine has no such address"
    );
    assert!(!file.exists());
    let open = Sockets::default().reopen(&[new], 1).expect("bound");
    assert!(file.exists() && address_of(&open.hand_over().expect("one")[0].socket).is_some());
    open.refuse_newcomers_but(&Sockets::default());
    assert!(!file.exists());
    std::fs::remove_dir(&dir).expect("it is empty");
}

/// O4: where no filter is allowed, new connections are kept out all the same, and pending ones are served.
#[test]
fn a_narrow_socket_lets_in_whoever_is_on_the_way_and_nobody_else() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = std::net::TcpListener::bind(address) else {
            println!("skipped: no {address}");
            continue;
        };
        sekisho_sys::defer_accept(&listener, 5).expect("deferred");
        let at = listener.local_addr().expect("an address");
        let mut early = std::net::TcpStream::connect(at).expect("connected");
        let socket = Socket::from(listener.try_clone().expect("a second one"));
        let opened = Opened::new(ListenAddress::Tcp(at), vec![socket], Holder::We);
        opened.narrow(&opened.sockets[0]);
        assert!(opened.is_narrow.load(Ordering::SeqCst));
        let late = std::net::TcpStream::connect_timeout(&at, Duration::from_millis(100));
        assert!(late.is_err(), "{address}: a new connection came in");
        early.write_all(b"first").expect("sent");
        let (mut accepted, _) = listener.accept().expect("accepted");
        sekisho_sys::set_least_hops(&accepted, 0).expect("told");
        early.write_all(b" second").expect("sent");
        let mut heard = [0; 12];
        accepted.read_exact(&mut heard).expect("heard");
        assert_eq!(&heard, b"first second");
    }
}
