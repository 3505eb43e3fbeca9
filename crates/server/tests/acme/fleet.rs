//! Several servers with one store (`acme_store`): one of them orders for all, and all show the answers to challenges.

use std::time::Duration;

use sekisho_testkit::{Server, Signal, Stopwatch, Tree, eventually, free_port, wait_for};

use crate::common::store::Store;
use crate::common::{BINARY, LONG};
use crate::pebble::{self, Pebble};
use crate::shown;

const NAME: &str = "a.example.org";
/// After this time at the latest another server has the lock of one that is gone (15 s), and a certificate.
const TAKEN_OVER: Duration = Duration::from_secs(40);

/// An authority, a store, and what is before the servers.
struct Fleet {
    authority: Pebble,
    tree: Tree,
    store: Store,
    /// Where the authority looks: HTTP and TLS.
    front: (u16, u16),
    challenge: &'static str,
}

impl Fleet {
    fn new(challenge: &'static str) -> Option<Self> {
        if !pebble::is_there() {
            return None;
        }
        let store = Store::start()?;
        let (tree, front) = (Tree::new(), (free_port(), free_port()));
        tree.file("key", "0123456789abcdef0123456789abcdef\n");
        let authority = Pebble::new(&tree, front.0, front.1, "");
        Some(Self { authority, tree, store, front, challenge })
    }

    fn start_authority(&mut self) {
        self.authority.start(&self.tree);
    }

    /// A server with its ports.
    fn node(&self) -> Node {
        let ports = (free_port(), free_port());
        let issuer = self.authority.issuer(&format!("challenge {};", self.challenge));
        let dir = self.tree.dir().display().to_string();
        let issuer = issuer.replace("{dir}/ca.pem", &format!("{dir}/ca.pem"));
        let config = format!(
            "worker_processes 1; error_log {{dir}}/error.log info; pid {{dir}}/server.pid; events {{}}
             http {{
                 access_log {{dir}}/access.log combined;
                 {issuer}
                 acme_store redis+unix://{} key={dir}/key;
                 server {{ listen 127.0.0.1:{}; server_name {NAME}; return 404; }}
                 server {{
                     listen 127.0.0.1:{} ssl; server_name {NAME};
                     acme_certificate test;
                     ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                     return 200 'served';
                 }}
             }}",
            self.store.socket(),
            ports.0,
            ports.1,
        );
        (Server::start_in(Tree::new(), BINARY, &config), ports)
    }

    /// What the authority speaks to: each connection goes to the next server.
    fn balancer(&self, nodes: &[(u16, u16)]) -> Server {
        let group = |name: &str, port: fn(&(u16, u16)) -> u16| {
            let servers = nodes.iter().map(|node| format!("server 127.0.0.1:{};", port(node)));
            format!("upstream {name} {{ {} }}", servers.collect::<String>())
        };
        let config = format!(
            "worker_processes 1; error_log {{dir}}/error.log info; pid {{dir}}/server.pid; events {{}}
             stream {{
                 {} {}
                 server {{ listen 127.0.0.1:{}; proxy_pass http; }}
                 server {{ listen 127.0.0.1:{}; proxy_pass tls; }}
             }}",
            group("http", |node| node.0),
            group("tls", |node| node.1),
            self.front.0,
            self.front.1,
        );
        Server::start_in(Tree::new(), BINARY, &config)
    }

    /// How many orders the authority has got.
    fn orders(&self) -> usize {
        self.tree.text("pebble.log").matches("Added order ").count()
    }
}

fn orders_made(server: &Server) -> usize {
    server.log("error.log").matches("issued: valid for").count()
}

fn has_taken(server: &Server) -> bool {
    server.log("error.log").contains("taken from the store")
}

/// A server, and its ports.
type Node = (Server, (u16, u16));

/// One order for three servers, whose challenges are answered by all of them.
fn one_order_for_all(challenge: &'static str) -> Option<(Fleet, Vec<Node>)> {
    let mut fleet = Fleet::new(challenge)?;
    let nodes: Vec<_> = (0..3).map(|_| fleet.node()).collect();
    let ports: Vec<_> = nodes.iter().map(|(_, ports)| *ports).collect();
    let _balancer = fleet.balancer(&ports);
    fleet.start_authority();
    eventually("all have a certificate", LONG, || {
        nodes.iter().all(|(_, ports)| shown(ports.1, NAME).is_some())
    });
    let certificates: Vec<_> = ports.iter().map(|ports| shown(ports.1, NAME)).collect();
    assert!(certificates.iter().all(|one| *one == certificates[0]), "{certificates:?}");
    assert_eq!(fleet.orders(), 1, "{}", fleet.tree.text("pebble.log"));
    assert_eq!(nodes.iter().map(|(server, _)| orders_made(server)).sum::<usize>(), 1);
    assert_eq!(nodes.iter().filter(|(server, _)| has_taken(server)).count(), 2);
    Some((fleet, nodes))
}

#[test]
fn a_fleet_orders_once_and_every_server_answers() {
    let Some((mut fleet, mut nodes)) = one_order_for_all("http-01") else { return };
    // The authority looks three times at once: by the balancer at each of them.
    let answered = |(server, _): &(Server, _)| {
        let log = server.log("access.log");
        let line = log.lines().find(|line| line.contains("/.well-known/acme-challenge/"));
        line.is_some_and(|line| line.contains("\" 200 "))
    };
    assert_eq!(nodes.iter().filter(|node| answered(node)).count(), 3);
    // Nothing in the store can be read without the key.
    let keys = fleet.store.ask(&["keys", "sekisho:{acme}:*"]);
    assert_eq!(keys.matches("certificate:").count(), 1, "{keys}");
    for name in
        keys.lines().filter(|name| name.contains("certificate:") || name.contains("account:"))
    {
        let value = fleet.store.ask(&["get", name]);
        assert!(!value.contains("PRIVATE KEY") && !value.contains("key_pkcs8"), "{name}: {value}");
    }
    // One that comes later needs no authority.
    let serial = shown(nodes[0].1.1, NAME);
    fleet.authority.stop();
    let late = fleet.node();
    eventually("it takes what there is", LONG, || shown(late.1.1, NAME) == serial);
    assert!(!late.0.log("error.log").contains("ordering a certificate"));
    // Without the store all go on, also after a restart; one that has nothing does not order.
    fleet.store.end();
    fleet.start_authority();
    let (first, ports) = &mut nodes[0];
    eventually("it is told", LONG, || first.log("error.log").contains("of certificates is away"));
    first.quit();
    first.wait_exit(LONG);
    first.start_again(BINARY);
    eventually("its own", LONG, || shown(ports.1, NAME) == serial);
    let empty = fleet.node();
    eventually("it is told", LONG, || empty.0.log("error.log").contains("of certificates is away"));
    assert_eq!(shown(empty.1.1, NAME), None);
    assert_eq!(fleet.orders(), 0, "the new authority");
    // A store that has forgotten everything is told by the others.
    fleet.store.run();
    eventually("it takes what there is", LONG, || shown(empty.1.1, NAME) == serial);
    assert_eq!(fleet.orders(), 0);
}

#[test]
fn a_fleet_orders_once_by_handshakes() {
    drop(one_order_for_all("tls-alpn-01"));
}

/// A server that orders is killed, or stands still: another one orders, and what the first one has is not written.
#[test]
fn another_server_takes_an_order_over() {
    let Some(mut fleet) = Fleet::new("http-01") else { return };
    fleet.start_authority();
    fleet.authority.signal(Signal::STOP);
    let mut first = fleet.node();
    let is_ordering =
        |server: &Server| server.log("error.log").contains("ordering a certificate for");
    eventually("it orders", LONG, || is_ordering(&first.0));
    let second = fleet.node();
    let third = fleet.node();
    first.0.signal(Signal::KILL);
    first.0.wait_exit(LONG);
    let since = Stopwatch::start();
    assert!(!is_ordering(&second.0) && !is_ordering(&third.0), "the lock is that of the first");
    eventually("another one orders", TAKEN_OVER, || {
        is_ordering(&second.0) || is_ordering(&third.0)
    });
    println!("taken over after {:?}", since.elapsed());
    // That one stands still for so long that it loses the lock.
    let (still, other) = if is_ordering(&second.0) { (second, third) } else { (third, second) };
    still.0.signal(Signal::STOP);
    let _balancer = fleet.balancer(&[other.1]);
    fleet.authority.signal(Signal::CONT);
    eventually("the last one orders", TAKEN_OVER, || shown(other.1.1, NAME).is_some());
    assert_eq!(orders_made(&other.0), 1);
    let serial = shown(other.1.1, NAME);
    still.0.signal(Signal::CONT);
    eventually("all have the same", LONG, || shown(still.1.1, NAME) == serial);
    assert_eq!((orders_made(&still.0), shown(other.1.1, NAME)), (0, serial));
}

/// An authority counts failures: they are those of all servers together, and so is the pause after one.
#[test]
fn a_failed_order_is_not_repeated_by_the_others() {
    let Some(mut fleet) = Fleet::new("http-01") else { return };
    fleet.start_authority();
    let nodes = [fleet.node(), fleet.node(), fleet.node()];
    let failures = || {
        let of = |node: &Node| node.0.log("error.log").matches("no certificate for").count();
        nodes.iter().map(of).sum::<usize>()
    };
    // There is nothing where the authority looks.
    eventually("the refusal", LONG, || failures() > 0);
    let failed = nodes.iter().position(|node| node.0.log("error.log").contains("no certificate"));
    // Each of them would have ordered within a second.
    assert!(!wait_for(Duration::from_secs(4), || failures() > 1));
    assert_eq!(fleet.orders(), 1);
    let ports: Vec<_> = nodes.iter().map(|(_, ports)| *ports).collect();
    let _balancer = fleet.balancer(&ports);
    // A reload of any of them ends the pause.
    let other = (failed.expect("one of them") + 1) % nodes.len();
    nodes[other].0.signal(Signal::HUP);
    eventually("all have a certificate", LONG, || {
        nodes.iter().all(|(_, ports)| shown(ports.1, NAME).is_some())
    });
    assert_eq!(fleet.orders(), 2);
}
