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
    /// Requests by location.
    pub locations: LocationCounts,
}

/// Requests of each location of one configuration, since it was loaded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocationCounts {
    /// Which configuration: the serial number of its site.
    site: u64,
    /// By the number of the location.
    requests: Vec<u64>,
}

impl LocationCounts {
    /// A request was answered there. Those that an earlier configuration still answers are not counted.
    pub fn add(&mut self, site: u64, location: u32) {
        if site > self.site {
            self.site = site;
            self.requests.clear();
        }
        if site == self.site {
            let at = location as usize;
            if at >= self.requests.len() {
                self.requests.resize(at + 1, 0);
            }
            self.requests[at] += 1;
        }
    }

    /// The counts of a configuration, by the number of the location.
    pub fn of(&self, site: u64) -> &[u64] {
        if site == self.site { &self.requests } else { &[] }
    }

    fn merge(&mut self, other: &Self) {
        if other.site > self.site {
            self.clone_from(other);
        } else if other.site == self.site {
            let length = self.requests.len().max(other.requests.len());
            self.requests.resize(length, 0);
            self.requests.iter_mut().zip(&other.requests).for_each(|(to, from)| *to += from);
        }
    }
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
        self.locations.merge(&other.locations);
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

    #[test]
    fn locations_are_counted_for_the_newest_configuration() {
        // O7
        let mut one = LocationCounts::default();
        for (site, location) in [(1, 2), (1, 0), (2, 1), (1, 0), (2, 1)] {
            one.add(site, location);
        }
        assert_eq!((one.of(2), one.of(1)), ([0, 2].as_slice(), [].as_slice()));
        let mut other = LocationCounts::default();
        other.add(2, 3);
        other.merge(&one);
        assert_eq!(other.of(2), [0, 2, 0, 1]);
        let mut older = LocationCounts::default();
        older.add(1, 0);
        other.merge(&older);
        older.merge(&other);
        assert_eq!((older.of(2), other.of(2)), (other.of(2), [0, 2, 0, 1].as_slice()));
    }
}
