//! However an answer is cut, the events are the same.

use sekisho_http::upstream::RequestBody;

use crate::frames::{data, frame, go_away, headers, host, ok, reset, settings, task, window};
use crate::harness::Seen;
use sekisho_http2::frame::{Kind, flag};

fn play(pieces: &[&[u8]]) -> (Vec<Seen>, String) {
    let mut task = task();
    task.starts("GET", &host(), RequestBody::None);
    for piece in pieces {
        task.gets(piece);
    }
    let reuse = format!("{:?}", task.reuse());
    task.closes();
    (task.seen, reuse)
}

#[test]
fn however_the_answer_is_cut_the_events_are_the_same() {
    let answers: Vec<Vec<Vec<u8>>> = vec![
        vec![settings(&[(4, 70_000)]), ok(1), data(1, b"hello", false), data(1, b" world", true)],
        vec![
            ok(1),
            frame(Kind::Data, flag::PADDED, 1, b"\x02ab\0\0"),
            headers(1, &[("x", "y")], true),
        ],
        vec![headers(1, &[(":status", "103")], false), ok(1), data(1, b"", true), reset(1, 0)],
        vec![window(0, 5), window(1, 5), frame(Kind::Ping, 0, 0, &[1; 8]), ok(1), reset(1, 2)],
        vec![ok(1), go_away(1, 0), frame(Kind::Unknown, 0, 9, b"abc"), data(1, b"z", true)],
        vec![ok(1), data(1, b"abc", false)],
        vec![ok(1), data(3, b"abc", false)],
    ];
    for answer in answers {
        let bytes = answer.concat();
        let whole = play(&[&bytes]);
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(play(&each), whole, "byte by byte");
        for at in 1..bytes.len() {
            assert_eq!(play(&[&bytes[..at], &bytes[at..]]), whole, "cut at {at}");
        }
    }
}
