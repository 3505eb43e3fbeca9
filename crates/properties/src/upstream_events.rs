//! One exchange with an upstream, whatever its protocol: what comes of an answer, as something that can be
//! compared between cuts.

use sekisho_http::upstream::{
    Event, Failure, NotReusable, Request, RequestBody, ResponseHead, Scratch, UpstreamProtocol,
};
use sekisho_http::{Fields, Version};
use sekisho_lifecycle::{Moment, Stage};

/// An event with its bytes; neighbouring stretches are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// An informational head.
    Informational(ResponseHead),
    /// The final head.
    Head(ResponseHead),
    /// Body bytes.
    Body(Vec<u8>),
    /// Bytes for the log.
    Stderr(Vec<u8>),
    /// The end, with trailers.
    End(Fields),
    /// A tunnel.
    Upgraded(ResponseHead),
    /// A failure.
    Failed(Failure),
}

/// What an exchange came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Events in order.
    pub seen: Vec<Seen>,
    /// What is left of the connection once all of the answer was offered, before the peer closed it.
    pub reuse: Result<(), NotReusable>,
    /// How many bytes had been taken at the last event, where the connection can be kept: otherwise it does
    /// not matter.
    pub taken: usize,
}

/// Sends one request, offers the answer in pieces and closes.
pub fn play(mut engine: impl UpstreamProtocol, request: &Request<'_>, pieces: &[&[u8]]) -> Report {
    let now = Moment::ZERO;
    let mut scratch = Scratch::default();
    engine.start(request, &mut scratch, now).expect("a sound request");
    engine.end_body(&mut scratch, now).expect("no body");
    engine.transmitted(scratch.out.len() as u64, false, now);
    let mut seen = Vec::new();
    let mut inbox: Vec<u8> = Vec::new();
    let (mut total, mut taken) = (0, 0);
    for piece in pieces {
        inbox.extend_from_slice(piece);
        let looks_max = 2 * inbox.len() + 8;
        let mut looks = 0;
        loop {
            looks += 1;
            assert!(looks <= looks_max, "it does not come to rest");
            let step = engine.receive(&inbox, &mut scratch, now);
            assert!(step.taken <= inbox.len(), "more was taken than offered");
            total += step.taken;
            let is_rest = step.is_rest();
            if let Some(event) = step.event {
                taken = total;
                see(event, &inbox, &scratch, &mut seen);
            }
            inbox.drain(..step.taken);
            if is_rest {
                break;
            }
        }
    }
    let reuse = engine.reuse();
    if let Some(event) = engine.input_ended(now) {
        see(event, &inbox, &scratch, &mut seen);
    }
    assert!(matches!(engine.stage(), Stage::Closed(_)), "it is over");
    assert!(engine.reuse().is_err() && engine.next_deadline().is_none());
    assert!(engine.input_ended(now).is_none() && engine.lost(None, now).is_none());
    let endings = |one: &&Seen| matches!(one, Seen::End(_) | Seen::Failed(_));
    assert_eq!(seen.iter().filter(endings).count(), 1, "one ending: {seen:?}");
    assert!(seen.last().as_ref().is_some_and(endings), "nothing behind it: {seen:?}");
    Report { taken: if reuse.is_ok() { taken } else { 0 }, seen, reuse }
}

/// A GET (or HEAD) with these pairs.
pub fn request(pairs: &Fields, is_head: bool) -> Request<'_> {
    Request {
        method: if is_head { b"HEAD" } else { b"GET" },
        target: b"/",
        version: Version::Http11,
        pairs,
        body: RequestBody::None,
        keeps_alive: true,
    }
}

fn see(event: Event, inbox: &[u8], scratch: &Scratch, seen: &mut Vec<Seen>) {
    let head = || scratch.head.clone();
    let one = match event {
        Event::Informational => Seen::Informational(head()),
        Event::Head => Seen::Head(head()),
        Event::Upgraded => Seen::Upgraded(head()),
        Event::End => Seen::End(scratch.trailers.clone()),
        Event::Failed(failure) => Seen::Failed(failure),
        Event::Body(span) => match seen.last_mut() {
            Some(Seen::Body(before)) => return before.extend_from_slice(&inbox[span.range()]),
            _ => Seen::Body(inbox[span.range()].to_vec()),
        },
        Event::Stderr(span) => match seen.last_mut() {
            Some(Seen::Stderr(before)) => return before.extend_from_slice(&inbox[span.range()]),
            _ => Seen::Stderr(inbox[span.range()].to_vec()),
        },
    };
    seen.push(one);
}
