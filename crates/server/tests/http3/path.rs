//! Paths that lose, repeat and reorder datagrams, in both directions, and clients whose port changes on the way (Q1):
//! every response and every upload is whole. A seed chooses what happens to which datagram, and is printed.

use std::collections::VecDeque;

use sekisho_testkit::Tree;

use crate::client::{Client, client_config, tls_config};
use crate::common::pattern;
use crate::support::can_make_certificates;
use crate::{serve, site};

/// What a path does to datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Of a thousand datagrams, how many are lost, come twice, or come behind later ones.
    lost: u64,
    repeated: u64,
    late: u64,
    /// The client goes to another port before each request.
    rebinds: bool,
}

/// One direction of a path.
pub(crate) struct Path {
    faults: Faults,
    random: u64,
    held: VecDeque<Vec<u8>>,
}

impl Path {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, held: VecDeque::new() }
    }

    /// Whether this happens, which it does so many times in a thousand.
    fn chance(&mut self, of_thousand: u64) -> bool {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % 1000 < of_thousand
    }

    /// What arrives when this datagram is sent.
    pub(crate) fn carry(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        if self.chance(self.faults.late) {
            self.held.push_back(datagram.to_vec());
            return arrived;
        }
        if !self.chance(self.faults.lost) {
            arrived.push(datagram.to_vec());
        }
        if self.chance(self.faults.repeated) {
            arrived.push(datagram.to_vec());
        }
        // Up to three datagrams overtake one that is late.
        if self.held.len() > 3 || self.chance(500) {
            arrived.extend(self.held.pop_front());
        }
        arrived
    }
}

#[test]
fn a_bad_path_changes_no_byte() {
    if !can_make_certificates() {
        return;
    }
    let none = Faults::default();
    let kinds = [
        Faults { lost: 50, ..none },
        Faults { repeated: 200, ..none },
        Faults { late: 200, ..none },
        Faults { rebinds: true, ..none },
        Faults { lost: 30, repeated: 100, late: 100, rebinds: true },
    ];
    let tree = Tree::new();
    let large = pattern(300_000);
    tree.file("root/large.bin", &large);
    tree.file("root/small.txt", "hello\n");
    tree.folder("root/up");
    let server = serve(tree, &site("location /up { dav_methods PUT; client_max_body_size 10m; }"));
    for seed in 0..10 {
        let faults = kinds[seed as usize % kinds.len()];
        println!("seed {seed}: {faults:?}");
        let mut client =
            Client::begin_with(client_config(tls_config()), server.address(), "a.test");
        client.path = Some((Path::new(faults, seed * 2), Path::new(faults, seed * 2 + 1)));
        client.until("the handshake", |client| client.is_connected);
        client.open_control(&[]);
        for round in 0..3 {
            // A path is changed when the handshake is confirmed (RFC 9000 §9.1): after the first response.
            if faults.rebinds && round > 0 {
                client.rebind();
            }
            let name = format!("/up/{seed}-{round}");
            let upload = client.request("PUT", &name, &[("content-length", "300000")], &large);
            let download = client.request("GET", "/large.bin", &[], &[]);
            let small: Vec<_> =
                (0..10).map(|_| client.request("GET", "/small.txt", &[], &[])).collect();
            assert_eq!(client.response(upload).status, 201, "{name}");
            let whole = client.response(download);
            assert!(whole.is_complete && whole.body == large, "{} bytes came", whole.body.len());
            for id in small {
                let response = client.response(id);
                assert_eq!((response.status, &response.body[..]), (200, &b"hello\n"[..]));
            }
            let stored = std::fs::read(server.tree().path(&format!("root{name}")));
            assert!(stored.expect("the upload") == large, "{name} differs");
        }
        assert_eq!(client.lost, None);
        client.close();
    }
}
