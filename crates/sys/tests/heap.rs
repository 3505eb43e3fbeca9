//! The allocator, in a process that does nothing else: both tests look at what the whole process has.
#![forbid(unsafe_code)]

use std::sync::Mutex;

use sekisho_sys::{give_back_memory, heap, set_up_heap};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn what_is_allocated_is_seen() {
    let _turn = ONE_AT_A_TIME.lock();
    let Some((before, _)) = heap() else { return };
    let large = vec![1_u8; 8 << 20];
    let (after, _) = heap().expect("it was told before");
    // The test harness has something of its own, some KiB.
    assert!(after >= before + (7 << 20), "{before} {after}");
    drop(large);
    give_back_memory();
    let (now, _) = heap().expect("it was told before");
    assert!(now + (7 << 20) <= after, "{after} {now}");
}

/// X8: what was taken in small pieces by another thread goes back as well.
#[test]
fn freed_memory_goes_back_to_the_system() {
    const PIECES: usize = 40_000;
    let _turn = ONE_AT_A_TIME.lock();
    if heap().is_none() {
        return;
    }
    set_up_heap();
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("a number") * 4096
    };
    let take = || (0..PIECES).map(|_| vec![1_u8; 1000]).collect::<Vec<_>>();
    let taken = std::thread::spawn(take).join().expect("it ends well");
    let full = resident();
    // Every hundredth piece stays: the free ones lie between those that are in use.
    let kept: Vec<_> = taken.into_iter().step_by(100).collect();
    give_back_memory();
    let after = resident();
    assert!(after + (PIECES * 1000) / 2 < full, "{full} to {after}");
    drop(kept);
}
