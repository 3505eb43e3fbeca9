//! However a stream is cut, the events, the answers and the end are the same; nothing panics; and the work
//! is linear.

use proptest::prelude::*;
use sekisho_lifecycle::Stage;
use sekisho_native::frame::{Head, Kind};
use sekisho_native::message::{self, Extension, Hello, RequestOptions, Shutdown};

use crate::shell::{client_takes, run};

/// A stream of frames, most of them good.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let frame = (0..18_u8, 0..4_u16, 0..60_usize, 0..7_u32, any::<u8>());
    let noise = proptest::collection::vec(any::<u8>(), 0..40);
    (any::<u8>(), proptest::collection::vec(frame, 0..30), noise).prop_map(
        |(first, frames, noise)| {
            let mut wire = Vec::new();
            if !first.is_multiple_of(16) {
                let minor = u32::from(!first.is_multiple_of(5));
                let hello = Hello { major: 1, minor, label: "cut".into(), ..Hello::default() };
                message::write(&mut wire, Kind::Hello, 0, &hello);
            }
            for (which, slot, len, word, byte) in frames {
                put(&mut wire, which, slot, len, word, byte);
            }
            if first.is_multiple_of(4) {
                wire.extend(noise);
            }
            wire
        },
    )
}

fn put(wire: &mut Vec<u8>, which: u8, slot: u16, len: usize, word: u32, byte: u8) {
    let bare = |wire: &mut Vec<u8>, kind, word| {
        Head { word, ..Head::of_slot(kind, slot) }.write(wire);
    };
    match which {
        0..=7 => {
            let head = Head { word, ..Head::of_slot(Kind::Request, slot) };
            sekisho_native::frame::write(wire, head, &vec![byte; len]);
        }
        8 => bare(wire, Kind::Cancel, 0),
        9 => bare(wire, Kind::Credit, word),
        10 => bare(wire, Kind::Drained, 0),
        11 if byte.is_multiple_of(4) => {
            message::write(wire, Kind::Shutdown, 0, &Shutdown { forceful: byte & 4 == 0 });
        }
        12 => message::write(wire, Kind::Extend, 0, &Extension { millis: u64::from(byte) }),
        13 if byte.is_multiple_of(8) => bare(wire, Kind::Acquired, 0),
        14 => {
            let options = RequestOptions {
                timeout_micros: u64::from(byte & 1) * 1_000_000,
                service: "x".repeat(usize::from(byte >> 6)),
                body_follows: byte & 2 == 0,
            };
            message::write(wire, Kind::Options, slot, &options);
            let head = Head { word: 5, ..Head::of_slot(Kind::Request, slot) };
            sekisho_native::frame::write(wire, head, &vec![byte; len.min(50)]);
        }
        15 => {
            let head = Head::of_slot(Kind::Data, slot);
            sekisho_native::frame::write(wire, head, &vec![byte; len.min(50)]);
        }
        16 => bare(wire, Kind::DataEnd, 0),
        17 => Head { word, ..Head::of_slot(Kind::Ping, 0) }.write(wire),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// E2, E3
    #[test]
    fn however_the_bytes_are_cut_the_events_are_the_same(
        stream in streams(),
        cuts in proptest::collection::vec(1..70_usize, 1..20)
    ) {
        let whole = run(&stream, &[]);
        for cuts in [&[1][..], &cuts] {
            let (seen, wire, stage, calls) = run(&stream, cuts);
            prop_assert_eq!(&seen, &whole.0);
            prop_assert_eq!(&wire, &whole.1);
            prop_assert_eq!(stage, whole.2);
            // Two looks at each offer, two at each frame.
            prop_assert!(calls <= 4 * stream.len() + 8);
        }
    }

    /// E2: nothing that comes from outside can make either side panic, or hold more than it was sent.
    #[test]
    fn no_input_panics(stream in proptest::collection::vec(any::<u8>(), 0..300), cut in 1..50_usize) {
        run(&stream, &[cut]);
        client_takes(&stream, cut);
    }
}

#[test]
fn a_foreign_protocol_is_told_and_the_end() {
    // E2
    let (seen, wire, stage, _) = run(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &[3]);
    assert!(seen.is_empty());
    assert_eq!(wire[4], Kind::Bye as u8);
    assert_eq!(stage, Stage::Lingering);
}
