//! The benchmark `endpoint`: `cargo bench -p sekisho-endpoint`, or `bench/endpoint`, which builds tonic as well.
//!
//! Echoes of 64 bytes and channels of records over every transport, beside what the bare machine can do and
//! beside gRPC. The scenarios take turns within a round, and of several rounds the middle counts: the machine
//! may be noisy, but then it is so for all. Arguments: `--rounds N`, `--count N`, `--only NAME`, `--one-core`.
//! `SEKISHO_BENCH_TONIC` names the program of `bench/tonic`, `SEKISHO_BENCH_ICEORYX2` that of `bench/iceoryx2`.
#![forbid(unsafe_code)]

mod measure;
mod native;
mod raw;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use measure::{Cores, Sample, median};
use native::Server;

/// What one channel carries in a run.
const CHANNEL_BYTES: u64 = 256 << 20;

struct Bench {
    rounds: usize,
    count: usize,
    only: Option<String>,
    cores: Cores,
    tonic: Option<String>,
    iceoryx2: Option<String>,
}

type Results = BTreeMap<String, Vec<Sample>>;

fn main() {
    let bench = Bench::from_arguments();
    let mut results = Results::new();
    for round in 0..bench.rounds {
        eprintln!("round {} of {}", round + 1, bench.rounds);
        bench.round(&mut results);
    }
    let results: BTreeMap<String, Sample> =
        results.into_iter().map(|(name, samples)| (name, median(&samples))).collect();
    table(&results);
    bars(&results);
}

impl Bench {
    fn from_arguments() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1).cloned()
        };
        let number =
            |name: &str, or: usize| value(name).map_or(or, |text| text.parse().expect("a number"));
        let has_one = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let is_one = has_one || arguments.iter().any(|argument| argument == "--one-core");
        Self {
            rounds: number("--rounds", 5),
            count: number("--count", 20_000),
            only: value("--only"),
            cores: if is_one { Cores::One } else { Cores::Two },
            tonic: std::env::var("SEKISHO_BENCH_TONIC").ok(),
            iceoryx2: std::env::var("SEKISHO_BENCH_ICEORYX2").ok(),
        }
    }

    /// Whether a scenario is asked for; a star at the end matches anything.
    fn is_wanted(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| match only.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == only,
        })
    }

    fn round(&self, results: &mut Results) {
        let (count, cores) = (self.count, self.cores);
        let mut run = |name: &str, scenario: &mut dyn FnMut() -> Sample| {
            if self.is_wanted(name) {
                results.entry(name.to_owned()).or_default().push(scenario());
            }
        };
        run("raw eventfd, 1", &mut || raw::eventfds(count, cores));
        run("raw ring, 1", &mut || raw::ring(count, cores));
        run("raw unix, 1", &mut || {
            let pair = std::os::unix::net::UnixStream::pair().expect("a pair");
            raw::sockets(pair, count, cores)
        });
        run("raw tcp, 1", &mut || raw::sockets(raw::tcp(), count, cores));
        if let Some(program) = &self.iceoryx2 {
            run("iceoryx2 with events, 1", &mut || ask(program, [count, 0], cores));
            // On one core each side would look for as long as the scheduler lets it.
            if cores == Cores::Two {
                run("iceoryx2 polling, 1", &mut || ask(program, [count, 1], cores));
            }
        }
        let server = Server::start();
        for in_flight in [1, 8, 64] {
            run(&format!("ipc, {in_flight}"), &mut || {
                native::echo(&mut server.ipc(), count, in_flight, cores)
            });
            run(&format!("ipc (async), {in_flight}"), &mut || {
                native::echo_ipc_async(&server, count, in_flight, cores)
            });
            run(&format!("ipc spin, {in_flight}"), &mut || {
                native::echo(&mut server.ipc_spinning(), count, in_flight, cores)
            });
            run(&format!("unix, {in_flight}"), &mut || {
                native::echo(&mut server.unix(), count, in_flight, cores)
            });
            run(&format!("tcp, {in_flight}"), &mut || {
                native::echo(&mut server.tcp(), count, in_flight, cores)
            });
            run(&format!("loopback, {in_flight}"), &mut || {
                native::echo_loopback(count, in_flight, cores)
            });
            if let Some(tonic) = &self.tonic {
                run(&format!("tonic, {in_flight}"), &mut || ask(tonic, [count, in_flight], cores));
            }
        }
        for (name, record) in [("1 KiB", 1024), ("64 KiB", 65536)] {
            run(&format!("memcpy, {name} records"), &mut || {
                raw::memcpy(record, CHANNEL_BYTES, cores)
            });
            run(&format!("ipc, {name} records"), &mut || {
                native::channel(&mut server.ipc(), record, CHANNEL_BYTES, cores)
            });
            run(&format!("unix, {name} records"), &mut || {
                native::channel(&mut server.unix(), record, CHANNEL_BYTES, cores)
            });
            run(&format!("tcp, {name} records"), &mut || {
                native::channel(&mut server.tcp(), record, CHANNEL_BYTES, cores)
            });
        }
    }
}

/// Lets a program of `bench` measure itself: so many calls, and its other number.
fn ask(program: &str, [count, other]: [usize; 2], cores: Cores) -> Sample {
    let numbers = [count, other, Cores::SERVER, cores.client()];
    let output = Command::new(program).args(numbers.map(|number| number.to_string())).output();
    let output = output.expect("a program of bench");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> =
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let nanos = |at: usize| Duration::from_nanos(numbers[at] as u64);
    Sample { rate: numbers[0], p50: nanos(1), p99: nanos(2), cpu: nanos(3) }
}

fn table(results: &BTreeMap<String, Sample>) {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    println!(
        "| 64-byte echo, in flight | calls/s | p50 µs | p99 µs | CPU µs a call |\n|---|---|---|---|---|"
    );
    for (name, of) in results.iter().filter(|(name, _)| !name.ends_with("records")) {
        let (p50, p99, cpu) = (micros(of.p50), micros(of.p99), micros(of.cpu));
        println!("| {name} | {:.0} | {p50:.2} | {p99:.2} | {cpu:.2} |", of.rate);
    }
    println!("\n| channel | MB/s | CPU µs a record |\n|---|---|---|");
    for (name, of) in results.iter().filter(|(name, _)| name.ends_with("records")) {
        println!("| {name} | {:.0} | {:.2} |", of.rate / 1e6, micros(of.cpu));
    }
}

/// What was promised, as far as it was measured.
fn bars(results: &BTreeMap<String, Sample>) {
    println!("\n| bar | wanted | measured |\n|---|---|---|");
    let ratio = |one: &str, other: &str, of: fn(&Sample) -> f64| {
        Some(of(results.get(one)?) / of(results.get(other)?))
    };
    let p50 = |sample: &Sample| sample.p50.as_secs_f64();
    let cpu = |sample: &Sample| sample.cpu.as_secs_f64();
    let rate = |sample: &Sample| sample.rate;
    let row = |name: &str, wanted: &str, measured: Option<f64>| {
        if let Some(measured) = measured {
            println!("| {name} | {wanted} | {measured:.2}x |");
        }
    };
    row(
        "IPC p50, of a bare ring with eventfd",
        "at most 1.3x",
        ratio("ipc, 1", "raw ring, 1", p50),
    );
    row(
        "IPC p50, of iceoryx2 with events",
        "at most 1x",
        ratio("ipc, 1", "iceoryx2 with events, 1", p50),
    );
    row(
        "IPC p50 with spin, of iceoryx2 polling",
        "at most 2x",
        ratio("ipc spin, 1", "iceoryx2 polling, 1", p50),
    );
    row("TCP p50, of a bare socket", "at most 1.2x", ratio("tcp, 1", "raw tcp, 1", p50));
    for in_flight in [1, 8, 64] {
        let (ipc, tonic) = (format!("ipc, {in_flight}"), format!("tonic, {in_flight}"));
        let name = format!("calls per CPU second, of tonic's, {in_flight} in flight");
        let wanted = if in_flight == 64 { "at least 15x" } else { "at least 5x" };
        row(&name, wanted, ratio(&tonic, &ipc, cpu));
    }
    for size in ["1 KiB", "64 KiB"] {
        let (ipc, memcpy) = (format!("ipc, {size} records"), format!("memcpy, {size} records"));
        let wanted = if size == "1 KiB" { "–" } else { "at least 0.8x, or 3 GB/s" };
        row(
            &format!("channel, {size}, of memcpy through a ring"),
            wanted,
            ratio(&ipc, &memcpy, rate),
        );
    }
}
