//! When a certificate is renewed, and when an order that failed is tried again. Pure: time and chance come in as
//! arguments.

use std::time::Duration;

/// An authority that could not be reached is tried again so soon at first; one that has refused is left alone for
/// longer, as it counts refusals.
const RETRY_UNREACHABLE: Duration = Duration::from_secs(5);
const RETRY_REFUSED: Duration = Duration::from_mins(1);
const RETRY_MAX: Duration = Duration::from_hours(6);
/// No longer is waited in one go: clocks are set, and authorities change their minds.
pub(super) const LOOK_AGAIN: Duration = Duration::from_hours(6);

/// How soon after a renewal an authority's suggestion counts again.
const SUGGESTION_PAUSE_SECS: i64 = 3600;

/// How often a responder is asked anew, at most and at least.
const REFRESH_MIN: Duration = Duration::from_secs(5);
const REFRESH_MAX: Duration = Duration::from_hours(1);

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The authority could not be asked.
    Unreachable,
    /// It has said no.
    Refused,
}

/// When a certificate is renewed by its dates alone: after two thirds of its life.
pub(super) fn renew_at(from: i64, to: i64) -> i64 {
    from.saturating_add(to.saturating_sub(from).max(0) / 3 * 2)
}

/// When a certificate is renewed at the latest, whatever its authority suggests: after nine tenths of its life.
pub(super) fn latest(from: i64, to: i64) -> i64 {
    from.saturating_add(to.saturating_sub(from).max(0) / 10 * 9)
}

/// A moment within a window that the authority suggests (RFC 9773 §4.2); `chance` is random.
pub(super) fn within(start: i64, end: i64, chance: u64) -> i64 {
    let length = end.saturating_sub(start).max(0) as u64;
    start.saturating_add((chance % (length + 1)) as i64)
}

/// When to renew where an authority suggests a moment: then, but after a renewal not again within an hour for its
/// suggestion alone. One that always wants another certificate at once would never be left alone.
pub(super) fn suggested(moment: i64, by_dates: i64, renewed: Option<i64>) -> i64 {
    match renewed {
        Some(at) => moment.max(at.saturating_add(SUGGESTION_PAUSE_SECS).min(by_dates)),
        None => moment,
    }
}

/// How long until the next attempt after so many failures: twice as long each time, a fifth of it by chance, so
/// that many servers do not come at once.
pub(super) fn retry_after(failures: u32, failure: Failure, chance: u64) -> Duration {
    let first = match failure {
        Failure::Unreachable => RETRY_UNREACHABLE,
        Failure::Refused => RETRY_REFUSED,
    };
    let doubled = first.saturating_mul(1_u32.checked_shl(failures.min(20)).unwrap_or(u32::MAX));
    let length = doubled.min(RETRY_MAX);
    length + length / 5 * (chance % 1000) as u32 / 1000
}

/// When an OCSP response that ends then is fetched again: after half of what is left of its time, and once an hour.
pub(super) fn refresh_after(now: i64, until: Option<i64>) -> Duration {
    let left = until.map_or(i64::MAX, |until| until.saturating_sub(now)).max(0);
    Duration::from_secs(left as u64 / 2).clamp(REFRESH_MIN, REFRESH_MAX)
}

/// How long to wait for a moment, both in seconds since 1970; zero where it has passed.
pub(super) fn wait(now: i64, until: i64) -> Duration {
    Duration::from_secs(until.saturating_sub(now).max(0) as u64).min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        for (from, to, expected) in [(0, 90, 60), (100, 400, 300), (5, 5, 5), (9, 3, 9)] {
            assert_eq!(renew_at(from, to), expected);
        }
    }

    /// An authority that suggests the year 9999 lets no certificate run out.
    #[test]
    fn a_suggestion_is_not_followed_past_the_end() {
        for (from, to, expected) in [(0, 90, 81), (100, 400, 370), (9, 3, 9)] {
            assert_eq!(latest(from, to), expected);
            assert_eq!(
                suggested(i64::MAX, renew_at(from, to), None).min(latest(from, to)),
                expected
            );
        }
    }

    #[test]
    fn a_suggested_window_is_kept_to() {
        for chance in [0, 1, 10, 11, u64::MAX] {
            assert!((100..=110).contains(&within(100, 110, chance)), "{chance}");
        }
        assert_eq!(within(100, 90, 7), 100);
    }

    #[test]
    fn a_suggestion_counts_once_in_an_hour() {
        for (moment, by_dates, renewed, expected) in [
            (5, 90_000, None, 5),
            (5, 90_000, Some(100), 3700),
            // Its dates count all the same.
            (5, 2000, Some(100), 2000),
            (50_000, 90_000, Some(100), 50_000),
            (95_000, 90_000, Some(100), 95_000),
        ] {
            assert_eq!(suggested(moment, by_dates, renewed), expected, "{moment} {renewed:?}");
        }
    }

    #[test]
    fn attempts_become_rarer_and_never_end() {
        let secs = |failures, failure| retry_after(failures, failure, 0).as_secs();
        assert_eq!([0, 1, 2, 3].map(|n| secs(n, Failure::Unreachable)), [5, 10, 20, 40]);
        assert_eq!([0, 1, 2].map(|n| secs(n, Failure::Refused)), [60, 120, 240]);
        assert_eq!(secs(u32::MAX, Failure::Refused), RETRY_MAX.as_secs());
        let most = retry_after(0, Failure::Refused, 999);
        assert!(most > RETRY_REFUSED && most < RETRY_REFUSED * 6 / 5);
    }

    #[test]
    fn a_response_is_fetched_again_before_it_ends() {
        for (until, expected) in [
            (Some(100 + 7 * 86_400), 3600),
            (None, 3600),
            (Some(100 + 7200), 3600),
            (Some(100 + 600), 300),
            (Some(100 + 12), 6),
            (Some(100 + 3), 5),
            (Some(50), 5),
            (Some(i64::MIN), 5),
        ] {
            assert_eq!(refresh_after(100, until).as_secs(), expected, "{until:?}");
        }
    }

    #[test]
    fn a_moment_that_has_passed_is_not_waited_for() {
        assert_eq!(wait(10, 4), Duration::ZERO);
        assert_eq!(wait(10, 14), Duration::from_secs(4));
        assert_eq!(wait(0, i64::MAX), LOOK_AGAIN);
    }
}
