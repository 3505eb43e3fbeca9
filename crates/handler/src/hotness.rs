//! How often something is asked for. What is *hot* may be trusted for a moment without looking at the
//! file system again (`docs/adr/0005-file-cache.md`).

use std::cell::Cell;
use std::time::Duration;

use rustix::fs::Stat;
use sekisho_lifecycle::Moment;

/// An entry is hot if it was asked for more than [`HOT_USES`] times within this window, and only for so long
/// after the file was checked.
pub(crate) const HOT_WINDOW: Duration = Duration::from_millis(100);
const HOT_USES: u32 = 16;
/// On a file system that counts whole seconds, a file changed this recently may change again without its
/// time stamp telling.
pub(crate) const RACY_SECS: i64 = 2;
/// Elsewhere stamps are taken from a clock that ticks every few milliseconds: what was changed so late in its
/// second counts as changed in the next.
const LATE_NANOS: i64 = 900_000_000;

/// Whether something changed so recently that it may change again without its time stamp telling.
pub(crate) fn is_racy(stat: &Stat, wall_secs: i64) -> bool {
    let (secs, nanos) = (stat.st_mtime.max(stat.st_ctime), stat.st_ctime_nsec as i64);
    if nanos == 0 {
        return wall_secs - secs < RACY_SECS;
    }
    wall_secs <= secs + i64::from(nanos > LATE_NANOS)
}

/// When something was looked at and asked for.
#[derive(Clone, Debug)]
pub(crate) struct Hotness {
    checked: Cell<Moment>,
    used: Cell<Moment>,
    window_start: Cell<Moment>,
    window_uses: Cell<u32>,
}

impl Hotness {
    /// Something that was looked at now, for the first time.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            checked: Cell::new(now),
            used: Cell::new(now),
            window_start: Cell::new(now),
            window_uses: Cell::new(1),
        }
    }

    /// The same thing, looked at anew: its uses go on counting.
    pub(crate) fn checked_anew(&self, now: Moment) -> Self {
        let anew = self.clone();
        anew.checked.set(now);
        anew.used.set(now);
        anew
    }

    /// Counts a use; whether this is asked for so often that it may be trusted for a moment.
    pub(crate) fn is_hot(&self, now: Moment) -> bool {
        self.used.set(now);
        if now.since(self.window_start.get()) >= HOT_WINDOW {
            self.window_start.set(now);
            self.window_uses.set(0);
        }
        self.window_uses.set(self.window_uses.get().saturating_add(1));
        self.window_uses.get() > HOT_USES && self.is_fresh(now, HOT_WINDOW)
    }

    /// Whether it was looked at no longer ago than this.
    pub(crate) fn is_fresh(&self, now: Moment, within: Duration) -> bool {
        now.since(self.checked.get()) < within
    }

    /// It has been looked at, and is what it was.
    pub(crate) fn check(&self, now: Moment) {
        self.checked.set(now);
    }

    /// Whether it was not asked for in this time.
    pub(crate) fn is_forgotten(&self, now: Moment, inactive: Duration) -> bool {
        now.since(self.used.get()) >= inactive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_may_repeat_unseen_only_within_a_tick_of_its_clock() {
        // F1
        let mut stat = rustix::fs::stat("/").expect("a root");
        for (mtime, ctime, nanos, wall, racy) in [
            (50, 100, 0, 101, true),
            (50, 100, 0, 102, false),
            (50, 100, 1, 100, true),
            (50, 100, 1, 101, false),
            (50, 100, 950_000_000, 101, true),
            (50, 100, 950_000_000, 102, false),
            // A stamp of the future says nothing.
            (500, 100, 1, 300, true),
            (50, 100, 1, 90, true),
        ] {
            (stat.st_mtime, stat.st_ctime, stat.st_ctime_nsec) = (mtime, ctime, nanos);
            assert_eq!(is_racy(&stat, wall), racy, "{mtime} {ctime}.{nanos} at {wall}");
        }
    }
}
