//! iceoryx2, requests and responses of 64 bytes: what `cargo bench -p sekisho-endpoint` compares shared memory with. One
//! thread serves, one calls, as in that benchmark.
//!
//! `sekisho-bench-iceoryx2 COUNT MODE SERVER_CPU CLIENT_CPU` prints one line: calls a second, p50 and p99 in nanoseconds,
//! nanoseconds of CPU for each call. MODE 0: each side sleeps at an event until the other has notified it. MODE 1: each side
//! looks again and again.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Instant;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::*;

type Message = [u64; 8];
type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|argument| argument.parse().expect("a number")).collect();
    let [count, mode, server_cpu, client_cpu] = arguments[..] else {
        return Err("COUNT MODE SERVER_CPU CLIENT_CPU".into());
    };
    set_log_level(LogLevel::Error);
    let warmup = count / 10 + 1;
    let name = format!("sekisho-bench-{}", std::process::id());
    let server_name = name.clone();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        pin(server_cpu);
        serve(&server_name, mode, count + warmup, &ready).expect("served");
    });
    is_ready.recv()?;
    pin(client_cpu);
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let calls = calls_of(&node, &name)?;
    let client = calls.client_builder().create()?;
    let wakeups = Wakeups::new(&node, &format!("{name}/server"), &format!("{name}/client"))?;
    let mut call = |number: u64| -> Result<(), Failure> {
        let pending = client.send_copy([number; 8])?;
        if mode == 0 {
            wakeups.wake()?;
        }
        loop {
            if let Some(response) = pending.receive()? {
                assert_eq!(*response, [number; 8]);
                return Ok(());
            }
            if mode == 0 { wakeups.sleep()? } else { std::hint::spin_loop() }
        }
    };
    for number in 0..warmup {
        call(number as u64)?;
    }
    let mut times = Vec::with_capacity(count);
    let (cpu, start) = (cpu_nanos(), Instant::now());
    let mut last = start;
    for number in 0..count {
        call(number as u64)?;
        let now = Instant::now();
        times.push((now - last).as_nanos() as u64);
        last = now;
    }
    let (wall, cpu) = (start.elapsed(), cpu_nanos() - cpu);
    server.join().map_err(|_| "the server failed")?;
    times.sort_unstable();
    println!(
        "{:.0} {} {} {}",
        count as f64 / wall.as_secs_f64(),
        times[count / 2],
        times[count * 99 / 100],
        cpu / count as u64
    );
    Ok(())
}

type Calls = iceoryx2::service::port_factory::request_response::PortFactory<
    ipc::Service,
    Message,
    (),
    Message,
    (),
>;

fn calls_of(node: &Node<ipc::Service>, name: &str) -> Result<Calls, Failure> {
    let name: ServiceName = name.try_into()?;
    Ok(node.service_builder(&name).request_response::<Message, Message>().open_or_create()?)
}

fn serve(
    name: &str,
    mode: usize,
    count: usize,
    ready: &std::sync::mpsc::Sender<()>,
) -> Result<(), Failure> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let calls = calls_of(&node, name)?;
    let server = calls.server_builder().create()?;
    let wakeups = Wakeups::new(&node, &format!("{name}/client"), &format!("{name}/server"))?;
    ready.send(())?;
    let mut served = 0;
    while served < count {
        let Some(request) = server.receive()? else {
            if mode == 0 {
                wakeups.sleep()?
            } else {
                std::hint::spin_loop()
            }
            continue;
        };
        request.send_copy(*request.payload())?;
        drop(request);
        served += 1;
        if mode == 0 {
            wakeups.wake()?;
        }
    }
    Ok(())
}

/// An event each way.
struct Wakeups {
    other: Notifier<ipc::Service>,
    own: Listener<ipc::Service>,
}

impl Wakeups {
    fn new(node: &Node<ipc::Service>, other: &str, own: &str) -> Result<Self, Failure> {
        let (other, own): (ServiceName, ServiceName) = (other.try_into()?, own.try_into()?);
        let other = node.service_builder(&other).event().open_or_create()?;
        let own = node.service_builder(&own).event().open_or_create()?;
        Ok(Self {
            other: other.notifier_builder().create()?,
            own: own.listener_builder().create()?,
        })
    }

    fn wake(&self) -> Result<(), Failure> {
        self.other.notify()?;
        Ok(())
    }

    fn sleep(&self) -> Result<(), Failure> {
        self.own.blocking_wait_one()?;
        Ok(())
    }
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Where it is not allowed, the numbers are noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
