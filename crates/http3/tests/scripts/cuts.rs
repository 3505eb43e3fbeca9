//! However the bytes of streams are cut and the streams interleaved, what happens on each of them is the same.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sekisho_http3::frame::kind;
use sekisho_http3::{BodyLength, Event, Policy, Sends, StreamId};

use crate::harness::{
    CONTROL, ENCODER, World, control, data, frame_of, get, headers, number, post,
};

/// What a client sends on each stream.
fn script(turn: u8) -> Vec<(u64, Vec<u8>, bool)> {
    let from_table = frame_of(kind::HEADERS, &[2, 0, 0xd1, 0xd7, 0x50, 1, b'h', 0x80]);
    let trailers = headers(&[("digest", "x")]);
    let malformed = headers(&[(":method", "GET"), ("a", "b")]);
    let grease = frame_of(0x21, b"grease");
    vec![
        (CONTROL, [control(&[(1, 200), (7, 3), (0x21, 9)]), grease.clone()].concat(), false),
        (
            ENCODER,
            [&[2, 0x3f, 0xe1, 0x1f, 0xc1, 2][..], b"/a", &[0xc7, 3], b"tag", &[0]].concat(),
            false,
        ),
        (0, get(), true),
        (
            4,
            [from_table.clone(), data(&vec![b'x'; usize::from(turn)]), data(b"end")].concat(),
            true,
        ),
        (
            8,
            [post(&[("content-length", "5")]), data(b"he"), grease, data(b"llo"), trailers]
                .concat(),
            true,
        ),
        (12, malformed, true),
        (16, [post(&[("content-length", "3")]), data(b"four")].concat(), true),
        (20, [from_table, data(b"abc")].concat(), turn.is_multiple_of(2)),
        (24, headers(&[&crate::harness::GET[..], &[("x", &"y".repeat(9000))]].concat()), true),
        (14, number(0x5f), false),
    ]
}

/// What happened on one stream.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Seen {
    head: String,
    body: Vec<u8>,
    has_ended: bool,
    rest: Vec<String>,
    sent: Vec<u8>,
    is_fin: bool,
    reset: Option<u64>,
}

struct Run {
    world: World,
    seen: BTreeMap<u64, Seen>,
    responses: BTreeMap<StreamId, usize>,
    write: usize,
}

const BODY: &[u8] = b"the body of a response";

impl Run {
    fn act(&mut self, event: Event) {
        match event {
            Event::Request(id) => {
                let head = &self.world.scratch.head;
                let line = (head.method_name().escape_ascii(), head.target().escape_ascii());
                self.seen.entry(id.number()).or_default().head = format!("{} {}", line.0, line.1);
                let taken = self.world.engine.take_body(
                    id,
                    Some(400),
                    &mut self.world.quic,
                    self.world.now,
                );
                taken.expect("small");
            }
            Event::Body(id, bytes) => {
                self.seen.entry(id.number()).or_default().body.extend_from_slice(&bytes);
            }
            Event::BodyEnd(id) => {
                self.seen.entry(id.number()).or_default().has_ended = true;
                self.respond(id);
            }
            Event::Refused(id, refusal) => {
                let seen = self.seen.entry(id.number()).or_default();
                seen.rest.push(format!("{:?}", refusal.cause));
                self.respond(id);
            }
            Event::ClientLost(id, loss) => {
                self.seen.entry(id.number()).or_default().rest.push(format!("{loss:?}"));
                self.responses.remove(&id);
                self.world.finish(id);
            }
            Event::Malformed(number, malformed) => {
                self.seen.entry(number).or_default().rest.push(format!("{malformed:?}"));
            }
            other => panic!("{other:?}"),
        }
    }

    fn respond(&mut self, id: StreamId) {
        let is_known = id.number().is_multiple_of(8);
        let length =
            if is_known { BodyLength::Known(BODY.len() as u64) } else { BodyLength::Unknown };
        if self.world.respond(id, length) != Sends::Nothing {
            self.responses.insert(id, 0);
            self.world.engine.set_ready(id, true, self.world.now);
        }
    }

    /// Everything that can be done now.
    fn rest(&mut self) {
        loop {
            while let Some(event) = self.world.engine.poll(
                &mut self.world.quic,
                &mut self.world.scratch,
                self.world.now,
            ) {
                self.act(event);
            }
            let Some(id) = self.world.engine.next_sendable() else { break };
            let at = self.responses[&id];
            let allowed = self.world.engine.allowance(id).min(self.write as u64) as usize;
            let end = BODY.len().min(at + allowed.max(1));
            let at = at + self.world.body(id, &BODY[at..end]);
            self.responses.insert(id, at);
            if at == BODY.len() {
                self.responses.remove(&id);
                self.world.finish(id);
            }
        }
        while let Some(id) = self.world.engine.next_sent() {
            self.world.engine.delivered(id.number());
        }
        for stream in 0..7 {
            self.world.open_window(4 * stream, 7);
        }
    }

    fn finish(mut self) -> BTreeMap<u64, Seen> {
        for _ in 0..2000 {
            self.rest();
        }
        assert!(!self.world.engine.has_work());
        for (number, out) in &self.world.quic.outgoing {
            if number.is_multiple_of(4) {
                let seen = self.seen.entry(*number).or_default();
                // How bytes are cut into DATA frames is not the point.
                seen.sent = payload(&out.bytes);
                (seen.is_fin, seen.reset) = (out.has_ended, out.reset);
            }
        }
        self.seen
    }
}

/// The bodies of a response, whatever its frames.
fn payload(bytes: &[u8]) -> Vec<u8> {
    let mut bodies = Vec::new();
    for frame in crate::harness::frames(bytes) {
        if let Some(data) = frame.strip_prefix("DATA ") {
            bodies.extend_from_slice(data.split_once(' ').expect("a length").1.as_bytes());
        }
    }
    bodies
}

fn run(
    turn: u8,
    cuts: &[(u8, u8)],
    read_max: usize,
    window: usize,
    write: usize,
) -> BTreeMap<u64, Seen> {
    let mut world = World::new(Policy::default());
    (world.quic.read_max, world.quic.window) = (read_max, window);
    for own in [3, 7, 11] {
        world.quic.out(own).window = usize::MAX;
    }
    let mut run = Run { world, seen: BTreeMap::new(), responses: BTreeMap::new(), write };
    let mut left = script(turn);
    let mut cuts = cuts.iter().cycle();
    while !left.is_empty() {
        let &(which, len) = cuts.next().expect("a cycle");
        let at = usize::from(which) % left.len();
        let (stream, bytes, ends) = &mut left[at];
        let len = usize::from(len).min(bytes.len());
        let is_last = len == bytes.len();
        let piece: Vec<u8> = bytes.drain(..len).collect();
        run.world.send(*stream, &piece, is_last && *ends);
        if is_last {
            left.swap_remove(at);
        }
        if which & 64 != 0 {
            run.rest();
        }
    }
    run.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn cuts_and_interleaving_make_no_difference(
        turn in any::<u8>(),
        cuts in prop::collection::vec((any::<u8>(), 1_u8..255), 1..40),
        read_max in 1_usize..300,
        window in 0_usize..40,
        write in 1_usize..30,
    ) {
        let whole = run(turn, &[(0, 255)], usize::MAX, usize::MAX, 1000);
        let cut = run(turn, &cuts, read_max, window, write);
        for (number, seen) in &whole {
            prop_assert_eq!(Some(seen), cut.get(number), "stream {}", number);
        }
    }
}

#[test]
fn the_script_is_played_as_it_is_meant() {
    let seen = run(10, &[(0, 255)], usize::MAX, usize::MAX, 1000);
    assert_eq!(seen[&0].head, "GET /x");
    assert_eq!((seen[&0].sent.as_slice(), seen[&0].is_fin), (BODY, true));
    assert_eq!((seen[&4].head.as_str(), seen[&4].body.len()), ("GET /a", 13));
    assert_eq!((seen[&8].body.as_slice(), seen[&8].has_ended), (&b"hello"[..], true));
    assert_eq!(seen[&12].rest, ["SchemeMissing"]);
    assert_eq!(seen[&16].rest, ["LengthDiffers", "Violation"]);
    assert_eq!((seen[&20].body.as_slice(), seen[&20].is_fin), (&b"abc"[..], true));
    assert_eq!(seen[&24].rest, ["FieldTooLong"]);
}
