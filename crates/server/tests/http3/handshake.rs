//! Handshakes over QUIC (Q3): early data, certificates of both sides, keys, tokens, and clients that are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quinn_proto::ConnectionError;
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertDecompressor, DecompressionFailed};
use sekisho_testkit::{Signal, Stopwatch, Tree};

use crate::client::{Client, client_config, tls_config};
use crate::common::{BINARY, LONG};
use crate::support::{Speech, can_make_certificates, certificate, signed};
use crate::{serve, site};

#[test]
fn early_data_is_for_safe_methods() {
    // RFC 8470, as over TCP.
    if !can_make_certificates() {
        return;
    }
    for (setting, is_on) in [("ssl_early_data on;", true), ("", false)] {
        let body = format!("{setting} location /early {{ return 200 \"early=$ssl_early_data\"; }}");
        let server = serve(Tree::new(), &site(&body));
        let mut tls = tls_config();
        tls.enable_early_data = true;
        let config = client_config(tls);
        let mut first = Client::connect_with(config.clone(), server.address(), "a.test");
        assert_eq!(first.get("/early").body, b"early=");
        // The session ticket has come before the response.
        for (method, expected) in [("GET", 200), ("POST", 425)] {
            let mut client = Client::begin_with(config.clone(), server.address(), "a.test");
            assert_eq!(client.connection.has_0rtt(), is_on, "{method}");
            if !is_on {
                continue;
            }
            client.open_control(&[]);
            let id = client.request(method, "/early", &[], &[]);
            let response = client.response(id);
            assert!(client.connection.accepted_0rtt(), "{method}");
            assert_eq!(response.status, expected, "{method}");
            if expected == 200 {
                assert_eq!(response.body, b"early=1");
            }
            // The handshake is over by now.
            assert_eq!(client.get("/early").body, b"early=", "{method}");
            let id = client.request("POST", "/early", &[], &[]);
            assert_eq!(client.response(id).status, 200, "{method}");
        }
    }
}

#[test]
fn clients_show_certificates() {
    // S1: `ssl_verify_client`, as over TCP.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "ca", "30");
    certificate(&tree, "other", "30");
    signed(&tree, "friend", "ca");
    signed(&tree, "stranger", "other");
    let body = "ssl_verify_client on; ssl_client_certificate {dir}/ca.pem;\n\
         location / { return 200 \"$ssl_client_verify $ssl_client_s_dn\"; }";
    let server = serve(tree, &site(body));
    let shows = |name: &str| {
        let mut tls = Speech::shows(server.tree(), name).config;
        tls.alpn_protocols = vec![b"h3".to_vec()];
        client_config(tls)
    };
    let mut friend = Client::connect_with(shows("friend"), server.address(), "a.test");
    assert_eq!(friend.get("/").body, b"SUCCESS O=Test,CN=friend");
    let mut stranger = Client::connect_with(shows("stranger"), server.address(), "a.test");
    assert_eq!(stranger.get("/").status, 400);
    let mut nobody = Client::connect(server.address(), "a.test");
    assert_eq!(nobody.get("/").status, 400);
}

#[test]
fn keys_are_updated() {
    // Q3, RFC 9001 §6
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), &site("return 200 x;"));
    let mut client = Client::connect(server.address(), "a.test");
    for _ in 0..3 {
        assert_eq!(client.get("/").body, b"x");
        client.connection.force_key_update();
        assert_eq!(client.get("/").body, b"x");
    }
    assert!(client.lost.is_none(), "{:?}", client.lost);
}

/// Counts the certificates that it reads.
#[derive(Debug)]
struct Brotli(AtomicUsize);

impl CertDecompressor for Brotli {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut plain = Vec::new();
        brotli::BrotliDecompress(&mut &*input, &mut plain).map_err(|_| DecompressionFailed)?;
        output.copy_from_slice(&plain);
        Ok(())
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[test]
fn certificates_are_compressed() {
    // RFC 8879
    if !can_make_certificates() {
        return;
    }
    for (setting, expected) in [("", 1), ("ssl_certificate_compression off;", 0)] {
        let server = serve(Tree::new(), &site(&format!("{setting} return 200 x;")));
        let read: &'static Brotli = Box::leak(Box::new(Brotli(AtomicUsize::new(0))));
        let mut tls = tls_config();
        tls.cert_decompressors = vec![read];
        let mut client = Client::connect_with(client_config(tls), server.address(), "a.test");
        assert_eq!(client.get("/").body, b"x");
        assert_eq!(read.0.load(Ordering::Relaxed), expected, "{setting}");
    }
}

#[test]
fn addresses_that_are_not_proved_cost_little() {
    // Q3: from many addresses come first packets, and nothing after them. Beyond a number of unfinished handshakes
    // clients must prove their address (Retry); each address gets at most three times the bytes that came from it;
    // memory is bounded, and other clients are served meanwhile.
    const FLOOD: Duration = Duration::from_secs(3);
    const ADDRESSES_MAX: usize = 1000;
    const UNPROVED_MAX: usize = 256;
    const MEMORY_BYTES_MAX: u64 = 64 << 20;
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), &site("return 200 x;"));
    let mut before = Client::connect(server.address(), "a.test");
    assert_eq!((before.get("/").status, before.retries), (200, 0));
    let rss_before = sekisho_testkit::process::rss_bytes(server.worker());
    let config = Arc::new(client_config(tls_config()));
    let (clock, mut flood) = (Stopwatch::start(), Vec::new());
    while clock.elapsed() < FLOOD {
        let at = flood.len() + 1;
        let from = [127, 1, (at >> 8) as u8, at as u8];
        let mut client = Client::begin_at(from, (*config).clone(), server.address(), "a.test");
        let sent = client.send_only();
        flood.push((client, sent));
        if at.is_multiple_of(100) {
            // One that was there before, and one that is new and proves its address.
            assert_eq!(before.get("/").body, b"x");
            let mut honest = Client::connect(server.address(), "a.test");
            assert_eq!(honest.get("/").body, b"x");
            assert!(at < 2 * UNPROVED_MAX || honest.retries == 1, "{at}: {}", honest.retries);
            honest.close();
        }
        if flood.len() >= ADDRESSES_MAX {
            break;
        }
    }
    let count = flood.len();
    let mut retries = 0;
    for (client, sent) in &flood {
        let received = client.received_sizes();
        let bytes: usize = received.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= 3 * sent, "{bytes} bytes for {sent}");
        retries += usize::from(received.iter().any(|(first, _)| first & 0xf0 == 0xf0));
    }
    let grown = sekisho_testkit::process::rss_bytes(server.worker()).saturating_sub(rss_before);
    println!("{count} addresses, {retries} got Retry, memory grew by {grown} bytes");
    assert!(count > 2 * UNPROVED_MAX, "too slow to say anything: {count}");
    // Some datagrams find the socket full.
    assert!(retries * 2 > count, "{retries} of {count}");
    assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes");
}

#[test]
fn a_token_saves_a_retry_and_holds_over_a_restart() {
    // Q3, RFC 9000 §8.1.3 and §10.3: with `quic_host_key` tokens and stateless resets hold over a restart.
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("host.key", [7; 32]);
    let body = "quic_retry on; quic_host_key {dir}/host.key; location / { return 200 x; }";
    let mut server = serve(tree, &site(body));
    let config = client_config(tls_config());
    let mut first = Client::connect_with(config.clone(), server.address(), "a.test");
    assert_eq!((first.get("/").status, first.retries), (200, 1));
    first.until("tokens", |client| client.connection.stats().frame_rx.new_token >= 2);
    let mut second = Client::connect_with(config.clone(), server.address(), "a.test");
    assert_eq!((second.get("/").status, second.retries), (200, 0));
    second.until("tokens", |client| client.connection.stats().frame_rx.new_token >= 2);
    let mut stranger = Client::connect(server.address(), "a.test");
    assert_eq!((stranger.get("/").status, stranger.retries), (200, 1));

    server.signal(Signal::KILL);
    server.wait_exit(LONG);
    server.start_again(BINARY);
    first.connection.ping();
    first.until("a stateless reset", |client| client.lost.is_some());
    assert!(matches!(first.lost, Some(ConnectionError::Reset)), "{:?}", first.lost);
    let mut third = Client::connect_with(config, server.address(), "a.test");
    assert_eq!((third.get("/").status, third.retries), (200, 0));
}
