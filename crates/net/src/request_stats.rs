//! Statistics of a worker's requests: statuses and latencies. Plain numbers of one thread, added up on
//! demand.

use std::time::Duration;

use sekisho_http::Status;

/// The upper ends of the latency buckets, in microseconds.
pub const BUCKETS_MICROS: [u64; 12] = [
    100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000,
    60_000_000,
];

/// Requests, counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestStats {
    /// Answers by the first digit of their status; others at 0.
    pub statuses: [u64; 6],
    /// How many took at most so long and longer than the bucket before; the last has the rest.
    pub latencies: [u64; BUCKETS_MICROS.len() + 1],
    /// How long all of them took together.
    pub latency_sum: Duration,
}

impl RequestStats {
    /// A request is over.
    pub fn add(&mut self, status: Status, took: Duration) {
        self.statuses[class(status)] += 1;
        let micros = took.as_micros() as u64;
        let at = BUCKETS_MICROS.iter().position(|end| micros <= *end);
        self.latencies[at.unwrap_or(BUCKETS_MICROS.len())] += 1;
        self.latency_sum += took;
    }

    /// The same, for one that took no time.
    pub fn add_at_once(&mut self, status: Status) {
        self.statuses[class(status)] += 1;
        self.latencies[0] += 1;
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        let both = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        both(&mut self.statuses, &other.statuses);
        both(&mut self.latencies, &other.latencies);
        self.latency_sum += other.latency_sum;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.latencies.iter().sum()
    }
}

fn class(status: Status) -> usize {
    let digit = usize::from(status.code() / 100);
    if digit < 6 { digit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_in_one_bucket_and_one_class() {
        // O7
        let mut stats = RequestStats::default();
        stats.add_at_once(Status::OK);
        stats.add(Status::NOT_FOUND, Duration::from_micros(100));
        stats.add(Status::BAD_GATEWAY, Duration::from_micros(101));
        stats.add(Status::OK, Duration::from_secs(61));
        assert_eq!(stats.statuses, [0, 0, 2, 0, 1, 1]);
        assert_eq!((stats.latencies[0], stats.latencies[1], stats.latencies[12]), (2, 1, 1));
        let mut both = stats.clone();
        both.merge(&stats);
        assert_eq!((both.count(), both.statuses[2]), (8, 4));
        assert_eq!(both.latency_sum, stats.latency_sum * 2);
    }
}
