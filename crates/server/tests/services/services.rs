//! The services of the suite. What they share is their own choice: here one store for all workers.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekisho::{Code, Request, Response, Service, Services, Work, service_fn};

/// The numbers by which native sessions call them; HTTP has their names.
pub(crate) const KV: u32 = 1000;
pub(crate) const COUNT: u32 = 1001;
pub(crate) const FORGET: u32 = 1002;
pub(crate) const PANIC: u32 = 1003;
pub(crate) const BLOCK: u32 = 1004;
pub(crate) const PATIENT: u32 = 1005;
pub(crate) const SUM: u32 = 1006;
pub(crate) const WHOAMI: u32 = 1007;
pub(crate) const GUARDED: u32 = 1008;
pub(crate) const SLOW: u32 = 1009;

type Store = Arc<Mutex<BTreeMap<String, String>>>;

/// What every worker calls, on its thread.
pub(crate) fn factory() -> impl Fn() -> Services + Send + Sync + 'static {
    let store = Store::default();
    move || services(&store)
}

fn services(store: &Store) -> Services {
    let mut services = sekisho::built_in_services();
    let mut add = |number, name, service| services.add(number, name, service).expect("free");
    let own = Arc::clone(store);
    add(KV, "kv", service_fn(move |request, response| kv(Arc::clone(&own), request, response)));
    add(COUNT, "count", service_fn(count));
    add(FORGET, "forget", service_fn(|_, _| async {}));
    add(PANIC, "panic", service_fn(|_, _response: Response| async { panic!("as was asked") }));
    add(BLOCK, "block", Rc::new(Block));
    let own = Arc::clone(store);
    let patient = service_fn(move |request, response| patient(Arc::clone(&own), request, response));
    add(PATIENT, "patient", patient);
    add(SUM, "sum", Rc::new(Sum));
    add(SLOW, "slow", service_fn(slow));
    for (number, name) in [(WHOAMI, "whoami"), (GUARDED, "guarded")] {
        add(number, name, service_fn(whoami));
    }
    services
}

fn lock(store: &Store) -> MutexGuard<'_, BTreeMap<String, String>> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `get KEY`, `put KEY VALUE`, `scan PREFIX`: the last one gives each entry as a record, and their number.
async fn kv(store: Store, request: Request, response: Response) {
    let text = String::from_utf8_lossy(request.body()).into_owned();
    let words: Vec<&str> = text.splitn(3, ' ').collect();
    let _ = match words[..] {
        ["get", key] => {
            let found = lock(&store).get(key).cloned();
            match found {
                Some(value) => response.body(value.as_bytes()),
                None => response.error(Code::IllegalState, "there is no such key"),
            }
        }
        ["put", key, value] => {
            lock(&store).insert(key.to_owned(), value.to_owned());
            response.body(b"")
        }
        ["scan", prefix] => {
            let all = lock(&store).clone();
            let channel = response.acquire_channel().expect("the first");
            let mut number = 0;
            for (key, value) in all.iter().filter(|(key, _)| key.starts_with(prefix)) {
                if channel.write(format!("{key}={value}").as_bytes()).await.is_err() {
                    break;
                }
                number += 1;
            }
            response.release_channel(channel);
            response.body(number.to_string().as_bytes())
        }
        _ => response.error(Code::InvalidRequest, "get, put or scan is wanted"),
    };
}

/// How often `slow` was called in this process.
static SLOW_CALLS: AtomicU32 = AtomicU32::new(0);

/// Keeps its thread busy for so many milliseconds, or one, as no service should; says how often it was called before.
async fn slow(request: Request, response: Response) {
    let millis = String::from_utf8_lossy(request.body()).parse().unwrap_or(1);
    let length = rustix::time::Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
    let _ = rustix::thread::nanosleep(&length);
    let before = SLOW_CALLS.fetch_add(1, Ordering::Relaxed);
    let _ = response.body(before.to_string().as_bytes());
}

/// Who calls.
async fn whoami(request: Request, response: Response) {
    let _ = response.body(request.caller().identity.to_string().as_bytes());
}

/// `N SIZE`: so many records of that size, each of one byte's value. With `then fail` the answer is an error.
async fn count(request: Request, response: Response) {
    let text = String::from_utf8_lossy(request.body()).into_owned();
    let mut words = text.split(' ');
    let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0_usize);
    let (count, size) = (number(), number());
    let channel = response.acquire_channel().expect("the first");
    for at in 0..count {
        if channel.write(&vec![at as u8; size]).await.is_err() {
            break;
        }
    }
    response.release_channel(channel);
    let _ = if text.ends_with("then fail") {
        response.error(Code::IoError, "as was asked")
    } else {
        response.body(b"done")
    };
}

/// Works on a thread of the pool.
struct Block;

impl Service for Block {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        let body = request.into_body();
        Work::blocking(response, move |_| {
            if body == b"fail" {
                return Err((Code::OperationDenied, "as was asked".to_owned()));
            }
            let mut hash = 0_u32;
            for round in 0..1_000_000_u32 {
                hash = hash.wrapping_mul(31).wrapping_add(round);
            }
            std::hint::black_box(hash);
            Ok(body.iter().rev().copied().collect())
        })
    }
}

/// Waits until it is cancelled, and notes that under the key that it was sent. With `deaf` it does not heed that.
async fn patient(store: Store, request: Request, response: Response) {
    let key = String::from_utf8_lossy(request.body()).into_owned();
    lock(&store).insert(key.clone(), "waits".to_owned());
    if key == "deaf" {
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    tokio::select! {
        () = response.cancelled() => {}
        () = tokio::time::sleep(Duration::from_mins(1)) => {}
    }
    lock(&store).insert(key, "cancelled".to_owned());
    let _ = response.error(Code::OperationCancelled, "as you wish");
}

/// Takes its body while that comes, and says how long it was.
struct Sum;

impl Service for Sum {
    fn call(self: Rc<Self>, mut request: Request, response: Response) -> Work {
        Work::later(async move {
            let (mut body, mut bytes) = (request.take_stream(), 0);
            while let Some(piece) = body.next().await {
                match piece {
                    Ok(piece) => bytes += piece.len(),
                    Err(lost) => {
                        let _ = response.error(Code::IoError, &lost.to_string());
                        return;
                    }
                }
            }
            let _ = response.body(bytes.to_string().as_bytes());
        })
    }

    fn takes_stream(&self) -> bool {
        true
    }
}
