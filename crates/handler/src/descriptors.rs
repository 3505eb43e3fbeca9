//! Shares of the descriptors that the process may have. What clients can begin without a connection of their own, or
//! many times on one connection, has a share: the rest is for connections (O5, V39, ADR 0095).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Semaphore;

/// A share, counted over all workers.
#[derive(Debug)]
pub struct DescriptorShare {
    held: AtomicU64,
    /// Number of descriptors of one holder.
    each: u64,
    /// One of how many descriptors belongs to the share.
    part: u64,
}

/// File operations. One has a folder, a folder of its own, a file, and that file once more past the page cache.
pub static FILE_OPERATIONS: DescriptorShare = DescriptorShare::new(4, 2);
/// Sessions of `stream` that pass on datagrams. One has a socket to its server.
pub static DATAGRAM_SESSIONS: DescriptorShare = DescriptorShare::new(1, 2);
/// Descriptors of all shares.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The descriptors of one holder, until it is dropped.
#[derive(Debug)]
pub struct DescriptorPermit(&'static DescriptorShare);

impl DescriptorShare {
    const fn new(each: u64, part: u64) -> Self {
        Self { held: AtomicU64::new(0), each, part }
    }

    /// Maximum number of holders.
    pub fn max(&self) -> u64 {
        limit() / self.part / self.each
    }

    /// Descriptors for one more holder; `None` where the share is used up, or all shares have three quarters together.
    pub fn take(&'static self) -> Option<DescriptorPermit> {
        let held = self.held.fetch_add(self.each, Ordering::Relaxed) + self.each;
        let all = HELD.fetch_add(self.each, Ordering::Relaxed) + self.each;
        let permit = DescriptorPermit(self);
        let limit = limit();
        (held <= limit / self.part && all <= limit - limit / 4).then_some(permit)
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.0.held.fetch_sub(self.0.each, Ordering::Relaxed);
        HELD.fetch_sub(self.0.each, Ordering::Relaxed);
    }
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Questions to DNS servers: at most one of eight descriptors. Each has a socket of its own, whose random port a forged
/// answer would have to guess. Further questions wait.
pub(crate) fn dns_questions() -> &'static Semaphore {
    static QUESTIONS: OnceLock<Semaphore> = OnceLock::new();
    QUESTIONS.get_or_init(|| Semaphore::new((limit() / 8).clamp(1, 65_536) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V39: each share has its part, and all together leave a quarter to connections.
    #[test]
    fn a_share_is_bounded_and_given_back() {
        static A: DescriptorShare = DescriptorShare::new(1, 2);
        static B: DescriptorShare = DescriptorShare::new(4, 2);
        let limit = limit().min(1 << 20);
        if limit == 1 << 20 {
            println!("skipped: there is no limit");
            return;
        }
        let all = |share: &'static DescriptorShare| {
            std::iter::from_fn(|| share.take()).collect::<Vec<_>>()
        };
        let held = all(&A);
        assert_eq!(held.len() as u64, A.max());
        assert!(A.take().is_none());
        let others = all(&B);
        let together = held.len() as u64 + 4 * others.len() as u64;
        assert!(together <= limit - limit / 4, "{together} of {limit}");
        assert!(!others.is_empty());
        drop((held, others));
        assert!(A.take().is_some());
        assert_eq!(A.held.load(Ordering::Relaxed), 0);
    }
}
