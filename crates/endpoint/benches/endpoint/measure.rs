//! Time, CPU and order: what all measurements share.

use std::time::{Duration, Instant};

/// The result of one run of one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Of calls, or of bytes.
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Of the whole process, for each call.
    pub(crate) cpu: Duration,
}

/// Where the two threads run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cores {
    One,
    Two,
}

impl Cores {
    /// Where the server runs.
    pub(crate) const SERVER: usize = 0;

    /// Where the client runs.
    pub(crate) const fn client(self) -> usize {
        match self {
            Self::One => Self::SERVER,
            Self::Two => 1,
        }
    }
}

/// The calling thread runs on this core from now on.
pub(crate) fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Where it is not allowed, the numbers are noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Runs `call` so often, each time measured.
pub(crate) fn each(count: usize, mut call: impl FnMut()) -> Sample {
    for _ in 0..count / 10 {
        call();
    }
    let mut times = Vec::with_capacity(count);
    let (cpu, start) = (cpu_nanos(), now());
    let mut last = start;
    for _ in 0..count {
        call();
        let after = now();
        times.push(after - last);
        last = after;
    }
    finish(times, last - start, cpu)
}

/// What single times come to.
pub(crate) fn finish(mut times: Vec<Duration>, wall: Duration, cpu_before: u64) -> Sample {
    let count = times.len();
    let cpu = Duration::from_nanos((cpu_nanos() - cpu_before) / count as u64);
    times.sort_unstable();
    Sample {
        rate: count as f64 / wall.as_secs_f64(),
        p50: times[count / 2],
        p99: times[count * 99 / 100],
        cpu,
    }
}

/// The same for a stream of bytes.
pub(crate) fn throughput(bytes: u64, records: u64, run: impl FnOnce()) -> Sample {
    let (cpu, start) = (cpu_nanos(), now());
    run();
    let wall = now() - start;
    let cpu = Duration::from_nanos((cpu_nanos() - cpu) / records);
    Sample { rate: bytes as f64 / wall.as_secs_f64(), p50: wall, p99: wall, cpu }
}

/// The middle of several runs, number by number.
pub(crate) fn median(samples: &[Sample]) -> Sample {
    fn middle<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
        values.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
        values[values.len() / 2]
    }
    Sample {
        rate: middle(samples.iter().map(|sample| sample.rate).collect()),
        p50: middle(samples.iter().map(|sample| sample.p50).collect()),
        p99: middle(samples.iter().map(|sample| sample.p99).collect()),
        cpu: middle(samples.iter().map(|sample| sample.cpu).collect()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark asks for the time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
