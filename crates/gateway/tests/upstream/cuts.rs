//! However the answer is cut, the events are the same.

use proptest::prelude::*;
use sekisho_http::upstream::{RequestBody, UpstreamProtocol};

use crate::fastcgi::{end, record};
use crate::harness::{Seen, Task, pairs};
use crate::single::scgi;

const TEXTS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTX: y\r\n",
    b"Status: 204\r\n",
    b"Content-Length: 5\r\n",
    b"Location: /x\r\n",
    b"A: b\n",
    b"\r\n",
    b"\n",
    b"hello",
    b"a rather long stretch of text that goes beyond what may be in a head of this length, or is it",
    b"",
];

fn play<P: UpstreamProtocol>(
    mut task: Task<P>,
    method: &str,
    pieces: &[&[u8]],
) -> (Vec<Seen>, String) {
    task.starts(method, &pairs(&[("A", "b")]), RequestBody::None);
    for piece in pieces {
        task.gets(piece);
    }
    task.closes();
    (task.seen, format!("{:?}", task.engine.reuse()))
}

fn same<P: UpstreamProtocol>(new: impl Fn() -> Task<P>, method: &str, input: &[u8], cut: usize) {
    let whole = play(new(), method, &[input]);
    let single: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(whole, play(new(), method, &single));
    let pieces: Vec<&[u8]> = input.chunks(cut).collect();
    assert_eq!(whole, play(new(), method, &pieces));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn however_the_answer_is_cut_the_events_are_the_same(
        texts in proptest::collection::vec((proptest::sample::select(TEXTS), 0_u8..8, 0_u8..9), 0..8),
        flip in proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        is_head in any::<bool>(),
        ends in any::<bool>(),
        cut in 2_usize..40,
    ) {
        let method = if is_head { "HEAD" } else { "GET" };
        let mut plain: Vec<u8> = texts.iter().flat_map(|(text, ..)| text.to_vec()).collect();
        let mut framed: Vec<u8> = texts
            .iter()
            .flat_map(|(text, padding, kind)| record(if *kind == 0 { 7 } else { 6 }, text, *padding))
            .collect();
        if ends {
            framed.extend(end(0));
        }
        for input in [&mut plain, &mut framed] {
            if let (Some((at, byte)), false) = (flip, input.is_empty()) {
                let at = at.index(input.len());
                input[at] = byte;
            }
        }
        same(scgi, method, &plain, cut);
        same(crate::fastcgi::task, method, &framed, cut);
    }
}
