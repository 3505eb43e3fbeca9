//! How long a session may have its thread: services that compute, that block, and that hang.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sekisho_endpoint::{
    Client, Code, Config, Endpoint, Request, Response, Service, Services, StuckTurn, Watchdog,
    Work, service_fn,
};

use crate::world::{Loopback, Transport, run};

const ECHO: u32 = sekisho_endpoint::Echo::NUMBER;
const BURN: u32 = 30;
const BURN_LATER: u32 = 31;
const BESIDE: u32 = 32;

/// So many requests of a millisecond each are sent at once.
const FLOOD: usize = 200;
/// So many of them may be worked on before another session has its answer: without a bound it is all of them.
const BETWEEN_MAX: u32 = 20;

/// Computes for a millisecond.
#[expect(clippy::disallowed_methods, reason = "real time is what it is to take")]
fn burn() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
}

/// Computes when it is called.
struct Burn(Rc<Cell<u32>>);

impl Service for Burn {
    fn call(self: Rc<Self>, _: Request, response: Response) -> Work {
        burn();
        self.0.set(self.0.get() + 1);
        response.body(b"").expect("the one answer");
        Work::Done
    }
}

/// Waits on a thread for what the test sends.
struct Beside(std::sync::Arc<std::sync::Mutex<mpsc::Receiver<&'static str>>>);

impl Service for Beside {
    fn call(self: Rc<Self>, _: Request, response: Response) -> Work {
        let inbox = std::sync::Arc::clone(&self.0);
        Work::blocking(response, move |cancel| {
            let inbox = inbox.lock().expect("one at a time");
            let word = loop {
                if let Ok(word) = inbox.recv_timeout(Duration::from_millis(1)) {
                    break word;
                }
                if cancel.is_raised() {
                    break "cancelled";
                }
            };
            match word {
                "panic" => panic!("as was asked"),
                "fail" => Err((Code::IoError, "as was asked".to_owned())),
                "cancelled" => Err((Code::OperationCancelled, "as you wish".to_owned())),
                word => Ok(word.as_bytes().to_vec()),
            }
        })
    }
}

struct Burning {
    endpoint: Rc<Endpoint>,
    burnt: Rc<Cell<u32>>,
    to_thread: mpsc::Sender<&'static str>,
}

impl Burning {
    fn new() -> Self {
        let burnt = Rc::new(Cell::new(0));
        let (to_thread, inbox) = mpsc::channel();
        let mut services = Services::default();
        services.add(ECHO, "echo", Rc::new(sekisho_endpoint::Echo)).expect("free");
        services.add(BURN, "burn", Rc::new(Burn(Rc::clone(&burnt)))).expect("free");
        let count = Rc::clone(&burnt);
        let later = service_fn(move |_, response: Response| {
            let count = Rc::clone(&count);
            async move {
                burn();
                count.set(count.get() + 1);
                // The others of this session are polled meanwhile.
                tokio::task::yield_now().await;
                response.body(b"").expect("the one answer");
            }
        });
        services.add(BURN_LATER, "burn later", later).expect("free");
        let beside = Beside(std::sync::Arc::new(std::sync::Mutex::new(inbox)));
        services.add(BESIDE, "beside", Rc::new(beside)).expect("free");
        Self { endpoint: Endpoint::new(Config::default(), services), burnt, to_thread }
    }

    async fn connect<T: Transport>(&self) -> Client<T::Stream> {
        let (near, far) = T::pair().await;
        tokio::task::spawn_local(self.endpoint.serve(far));
        Client::connect(near, "here").await.expect("admitted")
    }
}

/// One session floods this service; how many of its requests were worked on between a call of another session and
/// its answer, at the most.
async fn most_between<T: Transport>(service: u32) -> u32 {
    let world = Burning::new();
    let (flooder, other) = (world.connect::<T>().await, world.connect::<T>().await);
    let calls: Vec<_> = (0..FLOOD).map(|_| flooder.request(service, b"").expect("made")).collect();
    flooder.flush().await.expect("sent");
    let mut most = 0;
    loop {
        let before = world.burnt.get();
        assert_eq!(other.call(ECHO, b"x").await.expect("served"), b"x");
        most = most.max(world.burnt.get() - before);
        if world.burnt.get() == FLOOD as u32 {
            break;
        }
    }
    drop(calls);
    most
}

contract! {
    /// E4: a turn ends when its time is over, whatever the services of a session compute.
    #[test]
    async fn services_that_compute_hold_other_sessions_up_for_a_turn_only() {
        for service in [BURN, BURN_LATER] {
            let most = most_between::<T>(service).await;
            assert!(most <= BETWEEN_MAX, "{most} of service {service}");
        }
    }

    /// E1, L31, L32: work that blocks is done beside the sessions, and its result is the answer.
    #[test]
    async fn work_that_blocks_is_done_beside_the_sessions() {
        let world = Burning::new();
        let (blocked, other) = (world.connect::<T>().await, world.connect::<T>().await);
        let mut call = blocked.request(BESIDE, b"").expect("made");
        blocked.flush().await.expect("sent");
        assert_eq!(other.call(ECHO, b"x").await.expect("served"), b"x");
        assert_eq!(blocked.call(ECHO, b"y").await.expect("served"), b"y");
        world.to_thread.send("done").expect("it waits");
        assert_eq!(call.answer().await.expect("a result"), b"done");
        for (word, code) in [("fail", Code::IoError), ("panic", Code::Unknown)] {
            world.to_thread.send(word).expect("there");
            let failed = blocked.call(BESIDE, b"").await.expect_err("an error");
            assert_eq!(failed.code(), Some(code), "{word}");
            if word == "panic" {
                break;
            }
        }
        assert_eq!(world.endpoint.counters().panicked, 1);
    }

    /// L31: cancel reaches the thread.
    #[test]
    async fn cancel_reaches_work_that_blocks() {
        let world = Burning::new();
        let client = world.connect::<T>().await;
        let mut call = client.request(BESIDE, b"").expect("made");
        call.cancel();
        client.flush().await.expect("sent");
        assert_eq!(crate::world::failure(&mut call).await, Code::OperationCancelled);
    }
}

#[test]
fn a_service_that_hangs_is_reported_while_it_does() {
    // X19: it goes on only when it has been reported.
    struct Hang(std::cell::RefCell<mpsc::Receiver<StuckTurn>>);
    impl Service for Hang {
        fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
            let stuck = self.0.borrow_mut().recv_timeout(Duration::from_secs(30));
            let stuck = stuck.expect("the watchdog has seen it");
            assert_eq!((stuck.session, stuck.service), (request.session(), 33));
            assert!(!stuck.is_over && stuck.lasted >= Duration::from_millis(20));
            response.body(b"went on").expect("the one answer");
            Work::Done
        }
    }
    run(async {
        let (reports, inbox) = mpsc::channel();
        let mut services = Services::default();
        services.add(33, "hang", Rc::new(Hang(std::cell::RefCell::new(inbox)))).expect("free");
        let endpoint = Endpoint::new(Config::default(), services);
        let watchdog = Watchdog::start(Duration::from_millis(20), move |stuck| {
            // The last report has nobody to hear it.
            let _ = reports.send(stuck);
        });
        let watchdog = watchdog.expect("a thread");
        watchdog.watch(endpoint.heartbeat());
        let (near, far) = Loopback::pair().await;
        tokio::task::spawn_local(endpoint.serve(far));
        let client = Client::connect(near, "here").await.expect("admitted");
        assert_eq!(client.call(33, b"").await.expect("a result"), b"went on");
    });
}
