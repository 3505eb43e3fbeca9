//! One property for all input: however it is cut, the events and the answers are the same; nothing
//! panics, and the work is linear.

use proptest::prelude::*;
use sekisho_http::Status;
use sekisho_http1::frame::Framer;
use sekisho_http1::{BodyLength, Event, Policy};
use sekisho_lifecycle::Stage;

use crate::harness::{Peer, Seen, policy};

/// A shell whose answer depends on the target alone.
struct Shell {
    peer: Peer,
}

impl Shell {
    fn new() -> Self {
        let policy = policy(|policy| {
            policy.line_bytes_max = 64;
            policy.field_bytes_max = 64;
            policy.head_bytes_max = 256;
            policy.fields_max = 6;
            policy.body_discard_max = 40;
            policy.keepalive_requests = 12;
        });
        Self { peer: Peer::new(policy) }
    }

    fn offer(&mut self, bytes: &[u8]) {
        let mut event = self.peer.sends(bytes);
        while let Some(current) = event {
            self.act(&current);
            event = self.peer.next();
        }
    }

    fn act(&mut self, event: &Event) {
        let peer = &mut self.peer;
        match event {
            Event::Request => {
                let max = match peer.scratch.head.target() {
                    target if target.starts_with(b"/take") => None,
                    target if target.starts_with(b"/limit") => Some(10),
                    _ => return peer.answers(Status::NOT_FOUND),
                };
                if let Err(refusal) = peer.takes_body(max) {
                    peer.answers(refusal.status);
                }
            }
            Event::BodyEnd => {
                peer.heads(Status::OK, BodyLength::Unknown);
                peer.engine.body(b"done", &mut peer.scratch);
                peer.finishes();
            }
            Event::Refused(refusal) => peer.answers(refusal.status),
            Event::Body(_) | Event::ClientLost => {}
        }
    }

    /// What was seen, with neighbouring body bytes put together; what was answered, without 100, which
    /// may depend on what had arrived; and how it ended.
    fn report(mut self) -> (Vec<Seen>, String, Stage) {
        if self.peer.ends_input().is_some() {
            self.peer.seen.push(Seen::ClientLost);
        }
        let out = self.peer.flushes().replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        let mut seen: Vec<Seen> = Vec::new();
        for event in self.peer.seen.drain(..) {
            match (seen.last_mut(), event) {
                (Some(Seen::Body(before)), Seen::Body(more)) => before.extend(more),
                (_, event) => seen.push(event),
            }
        }
        (seen, out, self.peer.stage())
    }
}

/// Whole requests, so that most streams get somewhere.
const SOUND: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\nGET /x HTTP/1.1\nHost: a\n\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /take HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /limit HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nhello, world",
    b"POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n",
    b"POST /limit HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n4\r\n89ab\r\n0\r\nA: b\r\n\r\n",
    b"POST /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /take HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n",
];

/// What closes, breaks or goes beyond a limit, and parts that make sense behind the right other part.
const UNSOUND: &[&[u8]] = &[
    b"POST /limit HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\n",
    b"POST /limit HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"HEAD /take HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"1e\r\n012345678901234567890123456789\r\n",
    b"0\r\n\r\n",
    b"\r\n",
    b"A : b\r\n",
    b"GET /",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let stray = b"\r\n\0 :;0aG\t\x7f\xff".to_vec();
    prop_oneof![
        24 => proptest::sample::select(SOUND).prop_map(<[u8]>::to_vec),
        4 => proptest::sample::select(UNSOUND).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
        1 => proptest::sample::select(stray).prop_map(|byte| vec![byte]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// H4, H8, V2: cutting changes nothing.
    #[test]
    fn however_the_input_is_cut_the_events_are_the_same(
        pieces in proptest::collection::vec(piece(), 1..14),
        flip in proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut input = pieces.concat();
        if let (Some((at, byte)), false) = (flip, input.is_empty()) {
            let at = at.index(input.len());
            input[at] = byte;
        }
        let mut whole = Shell::new();
        whole.offer(&input);
        let whole = whole.report();

        let mut single = Shell::new();
        for byte in &input {
            single.offer(&[*byte]);
        }
        prop_assert_eq!(&whole, &single.report());

        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        places.extend([0, input.len()]);
        places.sort_unstable();
        let mut cut = Shell::new();
        for pair in places.windows(2) {
            cut.offer(&input[pair[0]..pair[1]]);
        }
        prop_assert_eq!(&whole, &cut.report());
    }

    /// V1, V46: no bytes panic, and the parsers can be asked directly.
    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), max in any::<u64>()) {
        use sekisho_http1::{body::Decoder, parse};
        let mut shell = Shell::new();
        shell.offer(&bytes);
        shell.report();
        let _ = parse::request_line(&bytes);
        let mut head = sekisho_http::Head::default();
        let _ = parse::head(&mut Framer::default(), &bytes, &Policy::default(), &mut head);
        let _ = parse::message(&head);
        let _ = parse::is_host(&bytes);
        for framing in [parse::Framing::Chunked, parse::Framing::Length(max)] {
            if let Some(mut decoder) = Decoder::new(framing) {
                let _ = decoder.advance(&bytes, max);
                let _ = decoder.advance(&bytes, max);
            }
        }
        let mut framer = Framer::default();
        let _ = framer.advance(&bytes, &Policy::default());
        // Against the contract, and harmless all the same.
        let _ = framer.advance(&bytes[..bytes.len() / 2], &Policy::default());
    }
}

/// H4, V31: a head that comes byte by byte is looked at once.
#[test]
fn a_head_that_comes_byte_by_byte_is_scanned_once() {
    const BYTES: usize = 4 << 20;
    let limits = Policy {
        line_bytes_max: usize::MAX,
        field_bytes_max: usize::MAX,
        head_bytes_max: usize::MAX,
        fields_max: usize::MAX,
        ..Policy::default()
    };
    let mut input = b"GET / HTTP/1.1\r\nHost: a\r\nLong: ".to_vec();
    input.resize(BYTES, b'x');
    let mut framer = Framer::default();
    for len in 1..=input.len() {
        // Everything offered so far has been looked at, so the next call begins behind it: with a
        // second look at each byte this loop would take 2^43 of them.
        assert_eq!(framer.advance(&input[..len], &limits), Ok(None));
        assert_eq!(framer.scanned(), len);
    }
    input.extend_from_slice(b"\r\n\r\n");
    let frame = framer.advance(&input, &limits).expect("valid").expect("complete");
    assert_eq!((frame.len, frame.fields), (input.len(), 2));
}
