//! One property for all input: however it is cut, the events and the answers are the same; nothing panics.

use proptest::prelude::*;
use sekisho_http::Status;
use sekisho_http2::frame::{Kind, PREFACE, flag};
use sekisho_http2::{BodyLength, Event, Policy};
use sekisho_lifecycle::{Engine, Stage};

use crate::harness::{
    GET, POST, Peer, block, data, frame, headers, policy, reset, settings, window,
};

/// A shell whose answer depends on the request alone.
struct Shell {
    peer: Peer,
    seen: Vec<String>,
    /// All that was put out.
    wire: Vec<u8>,
}

fn limits(policy: &mut Policy) {
    policy.head_bytes_max = 600;
    policy.fields_max = 8;
    policy.streams_max = 6;
    policy.block_bytes_max = 900;
    policy.block_frames_max = 5;
    (policy.stream_window_bytes, policy.upload_window_bytes) = (2000, 4000);
    policy.connection_window_bytes = 70_000;
    policy.keepalive_requests = 20;
    for rate in &mut policy.rates {
        (rate.burst, rate.per_second) = (12, 1);
    }
}

impl Shell {
    fn new() -> Self {
        Self { peer: Peer::fresh(policy(limits)), seen: Vec::new(), wire: Vec::new() }
    }

    fn offer(&mut self, bytes: &[u8]) {
        self.peer.inbox.extend_from_slice(bytes);
        loop {
            let peer = &mut self.peer;
            let step = peer.engine.receive(&peer.inbox, &mut peer.scratch, peer.now);
            let is_rest = step.is_rest();
            if let Some(event) = &step.event {
                self.act(event);
            }
            let peer = &mut self.peer;
            peer.inbox.drain(..step.taken);
            self.wire.append(&mut peer.scratch.out);
            if is_rest {
                break;
            }
        }
        let written = self.peer.engine.moved();
        assert!(written.0 >= written.1);
        self.peer.engine.transmitted(written.0 - written.1, false, self.peer.now);
    }

    fn act(&mut self, event: &Event) {
        let peer = &mut self.peer;
        match event {
            Event::Request(id) => {
                let head = &peer.scratch.head;
                let fields: Vec<_> = head
                    .fields()
                    .map(|(name, value)| {
                        format!("{}={}", name.escape_ascii(), value.escape_ascii())
                    })
                    .collect();
                let target = head.target().escape_ascii();
                self.seen.push(format!("request {} {target} {fields:?}", id.number()));
                match head.target() {
                    b"/up" => {
                        if let Err(status) = peer.takes_body(*id, Some(3000)) {
                            peer.answers(*id, Status::new(status).expect("a status"));
                        }
                    }
                    b"/slow" => {}
                    _ => peer.answers(*id, Status::NOT_FOUND),
                }
            }
            Event::Body(id, range) => {
                let text = peer.inbox[range.clone()].escape_ascii().to_string();
                peer.engine.consumed(*id, range.len() as u32, &mut peer.scratch, peer.now);
                self.body(id.number(), &text);
            }
            Event::Stored(id) => {
                let text = peer.scratch.body.escape_ascii().to_string();
                peer.engine.consumed(*id, text.len() as u32, &mut peer.scratch, peer.now);
                self.body(id.number(), &text);
            }
            Event::BodyEnd(id) => {
                self.seen.push(format!("end {}", id.number()));
                peer.heads(*id, Status::OK, BodyLength::Unknown);
                peer.bodies(*id, b"done");
                peer.finishes(*id);
            }
            Event::Refused(id, refusal) => {
                self.seen.push(format!("refused {} {:?}", id.number(), refusal.cause));
                peer.answers(*id, refusal.status);
            }
            Event::ClientLost(id, loss) => {
                self.seen.push(format!("lost {} {loss:?}", id.number()));
                peer.finishes(*id);
            }
            other => self.seen.push(format!("{other:?}")),
        }
    }

    fn body(&mut self, stream: u32, text: &str) {
        let front = format!("body {stream} ");
        match self.seen.last_mut() {
            Some(last) if last.starts_with(&front) => last.push_str(text),
            _ => self.seen.push(front + text),
        }
    }

    fn report(mut self) -> (Vec<String>, usize, Stage) {
        self.offer(b"");
        let mut event = self.peer.engine.input_ended(self.peer.now);
        while let Some(current) = event {
            self.act(&current);
            event = self.peer.engine.next_event(&mut self.peer.scratch);
        }
        (self.seen, self.wire.len(), self.peer.stage())
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0_u32..9).prop_map(|at| 2 * at + 1);
    let slow: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":path", "/slow"), (":authority", "a")];
    let long = "x".repeat(700);
    let mut large = GET.to_vec();
    large.push(("a", long.leak()));
    let bad = [(":method", "GET"), ("a", "b")];
    prop_oneof![
        8 => stream.clone().prop_map(|stream| headers(stream, &GET, true)),
        8 => stream.clone().prop_map(|stream| headers(stream, &POST, false)),
        3 => stream.clone().prop_map(move |stream| headers(stream, &slow, true)),
        1 => stream.clone().prop_map(move |stream| headers(stream, &large, true)),
        1 => stream.clone().prop_map(move |stream| headers(stream, &bad, true)),
        2 => stream.clone().prop_map(|stream| headers(stream, &[("t", "r")], true)),
        6 => (stream.clone(), 0_usize..1500, any::<bool>())
            .prop_map(|(stream, len, ends)| data(stream, &vec![b'd'; len], ends)),
        3 => (stream.clone(), 0_u8..40, any::<bool>()).prop_map(|(stream, padding, ends)| {
            let mut payload = vec![padding];
            payload.extend_from_slice(b"padded");
            payload.extend_from_slice(&vec![0; usize::from(padding)]);
            frame(Kind::Data, flag::PADDED | u8::from(ends), stream, &payload)
        }),
        3 => (stream.clone(), 1_usize..30).prop_map(|(stream, at)| {
            let fields = block(&GET);
            let (front, back) = fields.split_at(at);
            let first = frame(Kind::Headers, flag::END_STREAM, stream, front);
            [first, frame(Kind::Continuation, flag::END_HEADERS, stream, back)].concat()
        }),
        2 => stream.clone().prop_map(reset),
        2 => (stream, any::<u32>()).prop_map(|(stream, by)| window(stream, by >> 12)),
        1 => Just(settings(&[(4, 500), (1, 100)])),
        1 => Just(frame(Kind::Ping, 0, 0, &[7; 8])),
        1 => Just(frame(Kind::Unknown, 9, 3, &[0; 40])),
        1 => (any::<u8>(), any::<u8>(), 0_u32..8, proptest::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, flags, stream, payload)| {
                let mut bytes = frame(Kind::Data, flags, stream, &payload);
                bytes[3] = kind % 12;
                bytes
            }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// M1, V13: cutting changes nothing.
    #[test]
    fn however_the_input_is_cut_the_events_are_the_same(
        pieces in proptest::collection::vec(piece(), 1..25),
        flip in proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut input = [&PREFACE[..], &settings(&[]), &pieces.concat()].concat();
        if let Some((at, byte)) = flip {
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
}
