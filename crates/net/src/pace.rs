//! How fast an answer may leave (`limit_rate`): so many bytes a second, from so many bytes on. Time comes in
//! as an argument; a moment to go on at comes out.

use std::time::Duration;

use sekisho_lifecycle::Moment;

/// Bytes leave in portions of this part of a second, not one by one.
const PORTIONS: u64 = 10;

/// The pace of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    rate: u64,
    after: u64,
    since: Moment,
    sent: u64,
    /// Nothing leaves before.
    resumes: Option<Moment>,
}

impl Pace {
    /// An answer that begins now; `None` where there is no limit.
    pub(crate) fn new(rate: u64, after: impl FnOnce() -> u64, now: Moment) -> Option<Self> {
        (rate > 0).then(|| Self { rate, after: after(), since: now, sent: 0, resumes: None })
    }

    /// How many of `wanted` bytes may leave now. With none, [`Pace::resumes`] says when to ask again.
    pub(crate) fn allow(&mut self, wanted: u64, now: Moment) -> u64 {
        let left = self.entitled(now).saturating_sub(self.sent);
        // The last bytes of an answer need not fill a portion.
        let portion = (self.rate / PORTIONS).max(1).min(wanted);
        if left >= portion {
            self.resumes = None;
            return left.min(wanted);
        }
        let missing = self.sent.saturating_add(portion).saturating_sub(self.after);
        let nanos = u128::from(missing) * 1_000_000_000 / u128::from(self.rate);
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // One nanosecond more, because the division rounds down: then one wait is enough.
        self.resumes = Some(self.since + wait + Duration::from_nanos(1));
        0
    }

    /// So many bytes have left.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// When more may leave, if nothing may now.
    pub(crate) fn resumes(&self) -> Option<Moment> {
        self.resumes
    }

    /// The moment to go on has come.
    pub(crate) fn resume(&mut self) {
        self.resumes = None;
    }

    fn entitled(&self, now: Moment) -> u64 {
        let nanos = now.since(self.since).as_nanos();
        let earned = nanos * u128::from(self.rate) / 1_000_000_000;
        self.after.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_millis(5_000);

    /// Sends all there is on a virtual clock, and says how long that took and in how many turns.
    fn send_all(rate: u64, after: u64, size: u64) -> (Duration, usize) {
        let mut pace = Pace::new(rate, || after, START).expect("a limit");
        let (mut now, mut left, mut scheduler) = (START, size, 0);
        while left > 0 {
            scheduler += 1;
            let allowed = pace.allow(left, now);
            pace.sent(allowed);
            left -= allowed;
            let sent = u128::from(size - left);
            let most =
                u128::from(after) + u128::from(rate) * (now - START).as_nanos() / 1_000_000_000;
            assert!(sent <= most, "{sent} of {most} bytes after {:?}", now - START);
            if allowed == 0 {
                let next = pace.resumes().expect("it says when");
                assert!(next > now, "it moves on");
                now = next;
            }
        }
        (now - START, scheduler)
    }

    #[test]
    fn an_answer_takes_as_long_as_its_rate_says_and_never_less() {
        // T1: times and bytes are exact, whatever the rate.
        for (rate, after, size, seconds) in [
            (1000, 0, 5000, 5.0),
            (1000, 4000, 5000, 1.0),
            (1000, 5000, 5000, 0.0),
            (1, 0, 3, 3.0),
            (7, 0, 100, 100.0 / 7.0),
            (1 << 40, 0, 1 << 41, 2.0),
        ] {
            let (took, scheduler) = send_all(rate, after, size);
            assert!(
                (took.as_secs_f64() - seconds).abs() < 0.001,
                "{rate} {after} {size}: {took:?}"
            );
            assert!(scheduler <= 30 + 20 * seconds as usize, "{scheduler} turns");
        }
    }

    #[test]
    fn nothing_overflows() {
        // V46
        assert_eq!(Pace::new(0, || 0, START), None);
        let mut pace = Pace::new(u64::MAX, || u64::MAX, START).expect("a limit");
        assert_eq!(pace.allow(u64::MAX, START), u64::MAX);
        pace.sent(u64::MAX);
        assert_eq!(pace.allow(1, START + Duration::from_secs(1 << 40)), 0);
        assert!(pace.resumes().is_some());
    }
}
