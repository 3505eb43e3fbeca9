//! Devices that hang, and what happens to operations on them and on others.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Devices of their own for each test: lanes are shared by all of them.
fn device(number: u32) -> Arc<Device> {
    let lane = || Arc::new(Lane::new(PathBuf::from("/somewhere")));
    Arc::new(Device { number: (number, number), reads: lane(), writes: lane() })
}

/// Operations that end when the test allows it.
fn hang(device: &Device, count: usize) -> (Vec<Operation<()>>, Sender<()>) {
    let (go, wait) = channel::<()>();
    let wait: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(wait));
    let begin = |_| {
        let wait = Arc::clone(&wait);
        device.write(move || {
            let _ = wait.lock().expect("no panic").recv();
        })
    };
    ((0..count).map(begin).collect(), go)
}

/// O10: a device that hangs has its own threads and no others; its reads go on beside its writes.
#[tokio::test]
async fn a_stuck_device_holds_up_no_other() {
    let (stuck, healthy) = (device(1), device(2));
    let (hanging, go) = hang(&stuck, LANE_THREADS + 10);
    let view = stuck.writes.view();
    assert_eq!((view.running, view.waiting), (LANE_THREADS, 10));
    assert_eq!(healthy.write(|| 7).await, Ok(7));
    assert_eq!(stuck.read(|| 8).await, Ok(8));
    drop(go);
    for one in hanging {
        assert_eq!(one.await, Ok(()));
    }
    assert_eq!(stuck.write(|| 9).await, Ok(9), "it goes on when the device does");
}

/// O10: an operation without a thread fails after a second, one that runs after [`STUCK_AFTER`]; a change that has
/// begun is waited for.
#[tokio::test]
async fn an_operation_is_given_up_in_time() {
    let device = device(3);
    let begun = Instant::now();
    let (mut hanging, go) = hang(&device, LANE_THREADS);
    let (was_done, done) = channel::<()>();
    let waiting = device.change(move || drop(was_done));
    assert_eq!(waiting.await, Err(DiskError::Busy));
    assert!(begun.elapsed() >= WAIT_MAX && begun.elapsed() < STUCK_AFTER);
    assert!(done.recv().is_err(), "it was withdrawn");
    assert!(!device.is_stuck());
    let first = hanging.remove(0);
    assert_eq!(first.await, Err(DiskError::Busy));
    assert!(begun.elapsed() >= STUCK_AFTER);
    assert!(device.is_stuck());
    assert_eq!(device.writes.view().running, LANE_THREADS, "its thread is still occupied");
    assert_eq!(device.read(|| ()).await, Ok(()), "reads have threads of their own");
    drop((go, hanging));
}

/// An operation that panics frees its thread.
#[tokio::test]
async fn a_panic_is_an_error_and_frees_the_thread() {
    let device = device(4);
    for _ in 0..2 * LANE_THREADS {
        let lost = device.write(|| std::panic::resume_unwind(Box::new(())));
        assert_eq!(lost.await, Err(DiskError::Lost));
    }
    assert_eq!(device.writes.view().running, 0);
}

/// A request that is gone leaves nothing in the queue; detached work stays there.
#[tokio::test]
async fn a_dropped_operation_is_withdrawn_and_detached_work_is_not() {
    let device = device(5);
    let (hanging, go) = hang(&device, LANE_THREADS);
    let (sender, done) = oneshot::channel();
    drop(device.write(|| unreachable!("it was withdrawn")));
    device.detach(move || {
        let _ = sender.send(());
    });
    assert_eq!(device.writes.view().waiting, 1);
    drop((go, hanging));
    done.await.expect("it was done");
}

/// Long work that makes progress is not stuck.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it is the disk that takes its time")]
async fn progress_resets_the_limit() {
    let device = device(6);
    let step = STUCK_AFTER / 4;
    let long = device.write(move || {
        for _ in 0..6 {
            std::thread::sleep(step);
            note_progress();
        }
    });
    assert_eq!(long.await, Ok(()));
}

/// Folders of one file system are one device, however they are found.
#[test]
fn a_device_is_found_by_path_and_by_descriptor() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("not").join("there");
    let file = std::fs::File::open(folder.path()).expect("a folder");
    let found = Device::of(&file);
    assert!(Arc::ptr_eq(&Device::at(folder.path()), &found));
    assert!(Arc::ptr_eq(&Device::at(&missing), &found));
    let proc = Device::at("/proc".as_ref());
    assert!(!Arc::ptr_eq(&proc, &found));
    assert!(views().iter().any(|view| view.number == found.number));
}
