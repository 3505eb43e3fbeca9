//! Limits how often a line of one kind is written into the error log when clients decide how often it is
//! caused.

use std::time::Duration;

use sekisho_lifecycle::Moment;

/// From one line of a kind to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pace of one kind of lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogPace {
    next: Option<Moment>,
    unlogged: u64,
}

impl LogPace {
    /// There is cause for a line: whether it is written, and how many were not since the last one.
    pub fn may_log(&mut self, now: Moment) -> Option<u64> {
        if self.next.is_some_and(|next| !next.is_due(now)) {
            self.unlogged += 1;
            return None;
        }
        self.next = Some(now + INTERVAL);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_an_interval_and_the_others_are_counted() {
        // O6
        let mut pace = LogPace::default();
        let at = Moment::from_millis;
        assert_eq!(pace.may_log(at(0)), Some(0));
        assert_eq!((pace.may_log(at(1)), pace.may_log(at(999))), (None, None));
        assert_eq!(pace.may_log(at(1000)), Some(2));
        assert_eq!(pace.may_log(at(1500)), None);
        assert_eq!(pace.may_log(at(9000)), Some(1));
        assert_eq!(pace.may_log(at(10_000)), Some(0));
    }
}
