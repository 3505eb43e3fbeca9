//! However the input is cut, the events are the same.

use proptest::prelude::*;
use sekisho_http::Fields;
use sekisho_http::upstream::{RequestBody, Timeouts, UpstreamProtocol};
use sekisho_http1::Client;
use sekisho_http1::client::Limits;

use crate::harness::{Seen, Task, pairs};

const PIECES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close, a\r\n",
    b"A: b\r\n",
    b"\r\n",
    b"\n",
    b"hello",
    b"5\r\nhello\r\n",
    b"a;x=y\r\n0123456789\r\n",
    b"0\r\n\r\n",
    b"0\r\nT: u\r\n\r\n",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

type Report = (Vec<Seen>, Fields, Fields, String);

fn play(upgrades: bool, pieces: &[&[u8]]) -> Report {
    let limits = Limits { head_bytes_max: 200, fields_max: 4 };
    let mut task = Task::new(Client::new(limits, Timeouts::default()));
    let fields = if upgrades {
        pairs(&[("Host", "a"), ("Connection", "upgrade"), ("Upgrade", "x")])
    } else {
        pairs(&[("Host", "a")])
    };
    task.starts("GET", &fields, RequestBody::None);
    for piece in pieces {
        task.gets(piece);
    }
    task.closes();
    // A head that failed half-way is not compared.
    let head = match task.seen.first() {
        Some(Seen::Failed(_)) | None => Fields::default(),
        Some(_) => task.scratch.head.fields.clone(),
    };
    let is_whole = task.seen.last() == Some(&Seen::End);
    let trailers = if is_whole { task.scratch.trailers.clone() } else { Fields::default() };
    let head = if is_whole { head } else { Fields::default() };
    (task.seen, head, trailers, format!("{:?}", task.engine.reuse()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// U3, V2: cutting changes nothing.
    #[test]
    fn however_the_answer_is_cut_the_events_are_the_same(
        first in proptest::sample::select(&PIECES[..5]),
        rest in proptest::collection::vec(proptest::sample::select(PIECES), 0..10),
        flip in proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        upgrades in any::<bool>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut input = [first, rest.concat().as_slice()].concat();
        if let Some((at, byte)) = flip {
            let at = at.index(input.len());
            input[at] = byte;
        }
        let whole = play(upgrades, &[&input]);
        let single: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&whole, &play(upgrades, &single));
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        places.extend([0, input.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&whole, &play(upgrades, &pieces));
    }

    #[test]
    fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        play(false, &[&bytes]);
        play(true, &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes]);
    }
}
