//! Rings in memory that another process writes to: whatever is in it, nothing beyond the ring is touched, no
//! side gets more bytes than there can be, a side that found corrupt positions reports it from then on, and
//! otherwise the bytes come out as they went in.
//!
//! The input is a script: an operation, its place and its argument, three bytes each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sekisho_ring::{Consumer, Producer, Read, RingLayout};

const RING: usize = 64;
const PLACE: RingLayout = RingLayout { control: 0, data: 512, bytes: RING };
/// The control block, the ring, and a word behind it that must stay as it is.
const WORDS: usize = 64 + RING / 8 + 1;
const BEHIND: u64 = 0x5e71_5b0f_5e71_5b0f;
/// Words that a ring has a use for.
const CONTROL: [usize; 5] = [0, 1, 16, 32, 48];

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let memory: Arc<Vec<AtomicU64>> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect());
    memory[WORDS - 1].store(BEHIND, Ordering::Relaxed);
    let mut producer = Producer::new(Arc::clone(&memory), PLACE).expect("it fits");
    let mut consumer = Consumer::new(Arc::clone(&memory), PLACE).expect("it fits");
    let mut model: VecDeque<u8> = VecDeque::new();
    let (mut is_honest, mut is_ended) = (true, false);
    let (mut producer_told, mut consumer_told) = (false, false);
    for (step, action) in data.chunks_exact(3).enumerate() {
        let [action, place, argument] = [action[0], action[1], action[2]];
        match action % 8 {
            0 | 1 if !is_ended => {
                let bytes: Vec<u8> = (0..place % 100).map(|at| at ^ step as u8).collect();
                match producer.write(&bytes) {
                    Ok(moved) => {
                        assert!(!producer_told && moved.bytes <= bytes.len().min(RING));
                        if is_honest {
                            assert_eq!(moved.bytes, bytes.len().min(RING - model.len()));
                        }
                        model.extend(&bytes[..moved.bytes]);
                    }
                    Err(_) => producer_told = true,
                }
            }
            2 | 3 => {
                let mut into = vec![0; usize::from(place % 100) + 1];
                match consumer.read(&mut into) {
                    Ok(Read::Some(moved)) => {
                        assert!(
                            !consumer_told
                                && moved.bytes > 0
                                && moved.bytes <= into.len().min(RING)
                        );
                        if is_honest {
                            let wanted: Vec<u8> = model.drain(..moved.bytes).collect();
                            assert_eq!(&into[..moved.bytes], &wanted[..]);
                        }
                    }
                    Ok(end) => {
                        assert!(!consumer_told);
                        if is_honest {
                            assert!(model.is_empty() && (end == Read::Ended) == is_ended);
                        }
                    }
                    Err(_) => consumer_told = true,
                }
            }
            4 => match producer.wait() {
                Ok(may_sleep) => {
                    assert!(!producer_told && (!is_honest || may_sleep == (model.len() == RING)));
                }
                Err(_) => producer_told = true,
            },
            5 => match consumer.wait() {
                Ok(may_sleep) => {
                    assert!(!consumer_told);
                    if is_honest {
                        assert_eq!(may_sleep, model.is_empty() && !is_ended);
                    }
                }
                Err(_) => consumer_told = true,
            },
            6 if argument < 16 => {
                producer.end();
                is_ended = true;
            }
            7 => {
                is_honest = false;
                let at = match place {
                    0..128 => CONTROL[usize::from(place) % CONTROL.len()],
                    _ => usize::from(place) % (WORDS - 1),
                };
                let value = match argument % 4 {
                    0 => u64::from(argument),
                    1 => u64::from(argument) << 56,
                    2 => u64::MAX - u64::from(argument),
                    _ => memory[at].load(Ordering::Relaxed).wrapping_add(u64::from(argument)),
                };
                memory[at].store(value, Ordering::Relaxed);
            }
            _ => {}
        }
        if is_honest {
            assert!(!producer_told && !consumer_told, "the memory was not corrupted");
        }
        assert_eq!(memory[WORDS - 1].load(Ordering::Relaxed), BEHIND, "beyond the ring");
    }
}
