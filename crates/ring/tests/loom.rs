//! The ring under loom: every order in which two sides can meet, with every value that memory may show them.
//! With `SEKISHO_LONG=1` a side is interrupted up to three times instead of two, which takes a minute.
//! No wake-up is lost (a lost one is a deadlock, which loom reports), and what goes in comes out (E7).

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Notify};
use loom::thread;
use sekisho_ring::{Consumer, Memory, Producer, Read, RingLayout, Word};

struct Atom(AtomicU64);

impl Word for Atom {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

/// Only the words that a ring uses: a control block has 49 of them, most of which are not used.
#[derive(Clone)]
struct Shared(Arc<Vec<Atom>>);

impl Memory for Shared {
    type Word = Atom;

    fn words(&self) -> &[Atom] {
        &self.0
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The smallest ring there can be.
const PLACE: RingLayout = RingLayout { control: 0, data: 49 * 8, bytes: 8 };

/// The two sides, and a wakeup for each of them.
struct World {
    producer: Producer<Shared>,
    consumer: Consumer<Shared>,
    wakeups: Arc<(Notify, Notify)>,
}

fn world() -> World {
    let memory = Shared(Arc::new((0..50).map(|_| Atom(AtomicU64::new(0))).collect()));
    World {
        producer: Producer::new(memory.clone(), PLACE).expect("it fits"),
        consumer: Consumer::new(memory, PLACE).expect("it fits"),
        wakeups: Arc::new((Notify::new(), Notify::new())),
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let is_long = std::env::var_os("SEKISHO_LONG").is_some();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if is_long { 3 } else { 2 });
    builder.check(model);
}

/// Writes all of it, sleeping when there is no room.
fn write(producer: &mut Producer<Shared>, wakeups: &(Notify, Notify), mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let moved = producer.write(bytes).expect("an honest peer");
        if moved.must_wake {
            wakeups.1.notify();
        }
        bytes = &bytes[moved.bytes..];
        if moved.bytes == 0 && producer.wait().expect("an honest peer") {
            wakeups.0.wait();
        }
    }
}

/// Reads until the end, sleeping when there is nothing.
fn read(consumer: &mut Consumer<Shared>, wakeups: &(Notify, Notify), at_once: usize) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut some = vec![0; at_once];
        match consumer.read(&mut some).expect("an honest peer") {
            Read::Some(moved) => {
                if moved.must_wake {
                    wakeups.0.notify();
                }
                all.extend_from_slice(&some[..moved.bytes]);
            }
            Read::Ended => return all,
            Read::Empty => {
                if consumer.wait().expect("an honest peer") {
                    wakeups.1.wait();
                }
            }
        }
    }
}

/// V42
#[test]
fn a_sleeping_reader_is_woken_for_every_byte_and_for_the_end() {
    check(|| {
        let World { mut producer, mut consumer, wakeups } = world();
        let far = Arc::clone(&wakeups);
        let reader = thread::spawn(move || read(&mut consumer, &far, 8));
        write(&mut producer, &wakeups, b"ab");
        write(&mut producer, &wakeups, b"c");
        if producer.end() {
            wakeups.1.notify();
        }
        assert_eq!(reader.join().expect("it ends"), b"abc");
    });
}

#[test]
fn a_sleeping_writer_is_woken_when_there_is_room() {
    check(|| {
        let World { mut producer, mut consumer, wakeups } = world();
        let far = Arc::clone(&wakeups);
        let reader = thread::spawn(move || read(&mut consumer, &far, 8));
        write(&mut producer, &wakeups, b"0123456789abcdefgh");
        if producer.end() {
            wakeups.1.notify();
        }
        assert_eq!(reader.join().expect("it ends"), b"0123456789abcdefgh");
    });
}

#[test]
fn a_reader_in_small_steps_wakes_its_writer_in_time() {
    // Below a quarter of room the writer is left asleep; it must not be left so for ever.
    check(|| {
        let World { mut producer, mut consumer, wakeups } = world();
        let far = Arc::clone(&wakeups);
        let reader = thread::spawn(move || read(&mut consumer, &far, 3));
        write(&mut producer, &wakeups, b"0123456789");
        if producer.end() {
            wakeups.1.notify();
        }
        assert_eq!(reader.join().expect("it ends"), b"0123456789");
    });
}
