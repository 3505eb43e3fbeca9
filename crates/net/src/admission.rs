//! How many connections there may be, in all and from one address (H10). Counted over the whole server;
//! without a limit nothing is counted. No connection is admitted when memory is short.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sekisho_config::Main;
use sekisho_handler::memory;

/// The connections that are counted.
#[derive(Debug, Default)]
pub struct Admission {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection that has been counted; dropping it counts it out.
#[derive(Debug)]
pub struct Admitted {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
}

/// There are as many as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl Admission {
    /// Counts a connection in, where that is configured.
    pub fn admit(
        self: &Arc<Self>,
        main: &Main,
        address: Option<IpAddr>,
    ) -> Result<Option<Admitted>, TooMany> {
        if memory::is_short() {
            return Err(TooMany);
        }
        let (total_max, address_max) = (main.connections_max, main.connections_per_address);
        if total_max.is_none() && address_max.is_none() {
            return Ok(None);
        }
        let mut counts = self.lock();
        let address = address.filter(|_| address_max.is_some());
        let of_address = address.map_or(0, |from| counts.by_address.get(&from).map_or(0, |n| *n));
        let is_over = |count: usize, max: Option<usize>| max.is_some_and(|max| count >= max);
        if is_over(counts.total, total_max) || is_over(of_address, address_max) {
            return Err(TooMany);
        }
        counts.total += 1;
        if let Some(address) = address {
            counts.by_address.insert(address, of_address + 1);
        }
        Ok(Some(Admitted { admission: Arc::clone(self), address }))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Nothing that holds the lock can panic half-way.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// A connection that was counted without an address turns out to be from this one. Where that has as many as
    /// it may have, the connection stays counted and is to be refused.
    pub fn name(&mut self, main: &Main, address: IpAddr) -> Result<(), TooMany> {
        let Some(max) = main.connections_per_address.filter(|_| self.address.is_none()) else {
            return Ok(());
        };
        let mut counts = self.admission.lock();
        let count = counts.by_address.entry(address).or_insert(0);
        if *count >= max {
            return Err(TooMany);
        }
        *count += 1;
        drop(counts);
        self.address = Some(address);
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.admission.lock();
        counts.total -= 1;
        if let Some(address) = self.address
            && let Some(count) = counts.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{Memory as Files, Options, load};

    fn main_of(events: &str) -> Main {
        let text = format!("events {{ {events} }}");
        let outcome = load("/c".as_ref(), &Options::new("/"), &Files::of("/c", text));
        outcome.config.expect("a configuration").main
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn the_limit_is_reached_exactly_and_freed_again() {
        // H10
        let main = main_of("connections_max 2; connections_per_address 1;");
        let admission = Arc::new(Admission::default());
        let first = admission.admit(&main, Some(ip(1))).expect("room");
        assert_eq!(admission.admit(&main, Some(ip(1))).err(), Some(TooMany), "one from an address");
        let second = admission.admit(&main, Some(ip(2))).expect("room");
        assert_eq!(admission.admit(&main, Some(ip(3))).err(), Some(TooMany), "two in all");
        drop(first);
        assert!(admission.admit(&main, Some(ip(1))).is_ok());
        drop(second);
        assert_eq!(admission.lock().total, 0);
        assert!(admission.lock().by_address.is_empty());
    }

    #[test]
    fn who_is_named_later_counts_for_its_address() {
        // H10
        let main = main_of("connections_per_address 1;");
        let admission = Arc::new(Admission::default());
        let admit = || admission.admit(&main, None).expect("room").expect("counted");
        let (mut first, mut second) = (admit(), admit());
        assert_eq!(first.name(&main, ip(1)), Ok(()));
        assert_eq!(second.name(&main, ip(1)), Err(TooMany));
        drop(first);
        assert_eq!(second.name(&main, ip(1)), Ok(()));
        drop(second);
        assert_eq!(admission.lock().total, 0);
        assert!(admission.lock().by_address.is_empty());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let admission = Arc::new(Admission::default());
        assert!(matches!(admission.admit(&main_of(""), Some(ip(1))), Ok(None)));
    }
}
