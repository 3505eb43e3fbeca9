//! The ring against a model, and against a peer that writes what it likes where it likes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use sekisho_ring::{Consumer, Corrupt, Moved, Producer, Read, RingLayout, Rings};

const PLACE: RingLayout = RingLayout { control: 0, data: 512, bytes: 64 };
type Shared = Arc<Vec<AtomicU64>>;

fn memory() -> Shared {
    Arc::new((0..72).map(|_| AtomicU64::new(0)).collect())
}

fn sides(memory: &Shared) -> (Producer<Shared>, Consumer<Shared>) {
    let producer = Producer::new(Arc::clone(memory), PLACE).expect("it fits");
    (producer, Consumer::new(Arc::clone(memory), PLACE).expect("it fits"))
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    WriterWaits,
    ReaderWaits,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..100_usize).prop_map(Step::Write),
        4 => (1..100_usize).prop_map(Step::Read),
        1 => Just(Step::WriterWaits),
        1 => Just(Step::ReaderWaits),
    ]
}

proptest! {
    /// E7: bytes come out as they went in, no more than there is room for, and sleepers are woken.
    #[test]
    fn a_ring_is_a_queue_of_bytes_with_a_bound(steps in proptest::collection::vec(step(), 1..200)) {
        let (mut producer, mut consumer) = sides(&memory());
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut next = 0_u8;
        let (mut writer_sleeps, mut reader_sleeps) = (false, false);
        for step in steps {
            match step {
                Step::Write(count) => {
                    let bytes: Vec<u8> = (0..count).map(|at| next.wrapping_add(at as u8)).collect();
                    let Moved { bytes: moved, must_wake } = producer.write(&bytes).expect("honest");
                    prop_assert_eq!(moved, count.min(64 - model.len()));
                    prop_assert_eq!(must_wake, moved > 0 && reader_sleeps);
                    model.extend(&bytes[..moved]);
                    next = next.wrapping_add(moved as u8);
                    if moved > 0 {
                        (writer_sleeps, reader_sleeps) = (false, false);
                    }
                }
                Step::Read(count) => {
                    let mut into = vec![0; count];
                    match consumer.read(&mut into).expect("honest") {
                        Read::Some(Moved { bytes, must_wake }) => {
                            prop_assert_eq!(bytes, count.min(model.len()));
                            let wanted: Vec<u8> = model.drain(..bytes).collect();
                            prop_assert_eq!(&into[..bytes], &wanted[..]);
                            // It may be woken earlier: the reader does not always look how full it is.
                            prop_assert!(writer_sleeps || !must_wake);
                            prop_assert!(must_wake || !writer_sleeps || model.len() > 48);
                            if must_wake {
                                writer_sleeps = false;
                            }
                            reader_sleeps = false;
                        }
                        Read::Empty => prop_assert!(model.is_empty()),
                        Read::Ended => prop_assert!(false, "it was not ended"),
                    }
                }
                Step::WriterWaits => {
                    writer_sleeps = true;
                    prop_assert_eq!(producer.wait().expect("honest"), model.len() == 64);
                }
                Step::ReaderWaits => {
                    reader_sleeps = true;
                    prop_assert_eq!(consumer.wait().expect("honest"), model.is_empty());
                }
            }
        }
        producer.end();
        let mut rest = vec![0; 64];
        if !model.is_empty() {
            prop_assert!(matches!(consumer.read(&mut rest).expect("honest"), Read::Some(_)));
        }
        prop_assert_eq!(consumer.read(&mut rest).expect("honest"), Read::Ended);
    }

    /// E7, V42: whatever is in the memory, no side reads or writes beyond the ring, and a side that found
    /// corrupt positions reports it from then on.
    #[test]
    fn a_peer_that_writes_anywhere_is_found_out_or_harmless(
        steps in proptest::collection::vec((step(), 0..72_usize, any::<u64>(), any::<bool>()), 1..100),
    ) {
        let memory = memory();
        let (mut producer, mut consumer) = sides(&memory);
        let (mut is_writer_told, mut is_reader_told) = (false, false);
        for (step, at, value, is_near) in steps {
            let value = if is_near { value % 200 } else { value };
            memory[at].store(value, Ordering::Relaxed);
            match step {
                Step::Write(count) => match producer.write(&vec![1; count]) {
                    Ok(moved) => {
                        prop_assert!(!is_writer_told && moved.bytes <= 64.min(count));
                    }
                    Err(Corrupt) => is_writer_told = true,
                },
                Step::Read(count) => match consumer.read(&mut vec![0; count]) {
                    Ok(Read::Some(moved)) => {
                        prop_assert!(!is_reader_told && moved.bytes <= 64.min(count));
                    }
                    Ok(_) => prop_assert!(!is_reader_told),
                    Err(Corrupt) => is_reader_told = true,
                },
                Step::WriterWaits => is_writer_told |= producer.wait().is_err(),
                Step::ReaderWaits => is_reader_told |= consumer.wait().is_err(),
            }
        }
    }
}

#[test]
fn a_place_that_the_memory_does_not_have_is_refused() {
    // E7
    let memory = memory();
    for place in [
        RingLayout { bytes: 128, ..PLACE },
        RingLayout { bytes: 0, ..PLACE },
        RingLayout { bytes: 63, ..PLACE },
        RingLayout { bytes: 4, ..PLACE },
        RingLayout { control: 4, ..PLACE },
        RingLayout { data: 513, ..PLACE },
        RingLayout { data: usize::MAX - 7, ..PLACE },
        RingLayout { control: 512, ..PLACE },
    ] {
        assert!(Producer::new(Arc::clone(&memory), place).is_none(), "{place:?}");
        assert!(Consumer::new(Arc::clone(&memory), place).is_none(), "{place:?}");
    }
    let rings = Rings::new(4096, 4096).expect("good sizes");
    assert!(Producer::new(Arc::clone(&memory), rings.answer).is_none());
}

#[test]
fn an_end_that_was_seen_stays_seen() {
    // E7: a peer that takes its end back would keep a reader looking for ever.
    let memory = memory();
    let (mut producer, mut consumer) = sides(&memory);
    producer.end();
    assert_eq!(consumer.wait(), Ok(false));
    memory[1].store(0, Ordering::Relaxed);
    assert_eq!(consumer.read(&mut [0; 8]), Ok(Read::Ended));
    assert_eq!(consumer.wait(), Ok(false));
}

#[test]
fn positions_that_cannot_be_are_corrupt_for_good() {
    // E7, V42
    for (word, value) in [(0, 65), (0, u64::MAX), (16, 3), (16, u64::MAX)] {
        let memory = memory();
        let (mut producer, mut consumer) = sides(&memory);
        let honest = memory[word].load(Ordering::Relaxed);
        memory[word].store(value, Ordering::Relaxed);
        let told = if word == 0 {
            (consumer.read(&mut [0; 8]).err(), consumer.wait().err())
        } else {
            (producer.wait().err(), producer.write(&[0; 65]).err())
        };
        assert_eq!(told, (Some(Corrupt), Some(Corrupt)), "{word} {value}");
        memory[word].store(honest, Ordering::Relaxed);
        let still = if word == 0 { consumer.wait() } else { producer.wait() };
        assert_eq!(still, Err(Corrupt));
    }
}
