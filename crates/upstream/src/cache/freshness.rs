//! Whether a kept answer may be given: while it is fresh, and when it may be given though it is not.

use sekisho_http::upstream::{Failure, ResponseHead};
use sekisho_http::{Fields, Status};

use super::store::{NotStored, StoreRules, lifetime_of};
use crate::retry::Condition;

/// How long an answer may be given. Times are Unix seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// When it came, or was last found to be still true.
    pub stored: i64,
    /// How old it was then (`Age`).
    pub age: u32,
    /// Until when it is fresh.
    pub valid_until: i64,
    /// For how long after that it may be given while it is fetched anew.
    pub stale_while_revalidate: u32,
    /// For how long after that it may be given when that fails.
    pub stale_if_error: u32,
    /// `must-revalidate`: never when it is stale (RFC 9111 §5.2.2.2).
    pub must_revalidate: bool,
}

impl Lifetime {
    /// Whether it is fresh.
    pub const fn is_fresh(&self, now: i64) -> bool {
        now < self.valid_until
    }

    /// Its `Age` (RFC 9111 §4.2.3).
    pub fn age(&self, now: i64) -> u32 {
        let since = u32::try_from(now.saturating_sub(self.stored).max(0)).unwrap_or(u32::MAX);
        self.age.saturating_add(since)
    }

    fn is_within(&self, seconds: u32, now: i64) -> bool {
        seconds > 0 && now < self.valid_until.saturating_add(i64::from(seconds))
    }
}

/// `$upstream_cache_status`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheStatus {
    /// It was not there.
    Miss,
    /// The configuration said not to look.
    Bypass,
    /// It was there and not fresh, and was fetched anew.
    Expired,
    /// It was given though it was not fresh, as it could not be fetched.
    Stale,
    /// It was given though it was not fresh, while it is fetched.
    Updating,
    /// It was not fresh, and found to be still true.
    Revalidated,
    /// It was there.
    Hit,
}

impl CacheStatus {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Miss => "MISS",
            Self::Bypass => "BYPASS",
            Self::Expired => "EXPIRED",
            Self::Stale => "STALE",
            Self::Updating => "UPDATING",
            Self::Revalidated => "REVALIDATED",
            Self::Hit => "HIT",
        }
    }
}

/// Why an answer that is not fresh would be given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StaleCause {
    /// It is being fetched.
    Updating,
    /// The upstream failed, or answered so.
    Condition(Condition),
    /// There is no live upstream.
    NoLive,
}

impl StaleCause {
    /// The cause that a failure is.
    pub const fn of_failure(failure: Failure) -> Self {
        match Condition::of_failure(failure) {
            Some(condition) => Self::Condition(condition),
            None => Self::NoLive,
        }
    }

    /// The cause that a status is, if it is one.
    pub fn of_status(status: Status) -> Option<Self> {
        Condition::of_status(status).map(Self::Condition)
    }
}

/// `proxy_cache_use_stale`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UseStale {
    conditions: u16,
    /// `updating`
    pub while_updating: bool,
}

impl UseStale {
    /// For these conditions; none is `off`.
    pub fn new(conditions: impl IntoIterator<Item = Condition>, while_updating: bool) -> Self {
        let bits = conditions.into_iter().fold(0, |bits, one| bits | 1 << one as u8);
        Self { conditions: bits, while_updating }
    }

    const fn has(self, condition: Condition) -> bool {
        self.conditions & 1 << condition as u8 != 0
    }
}

/// Why an answer may be served that is not fresh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StaleReason {
    /// The configuration.
    UseStale,
    /// The answer itself: `stale-while-revalidate`, `stale-if-error`.
    Answer,
}

/// Whether an answer that is not fresh may be served, and by which rule.
pub fn may_serve_stale(
    lifetime: &Lifetime,
    use_stale: UseStale,
    cause: StaleCause,
    now: i64,
) -> Option<StaleReason> {
    // Explicit in the answer, and stronger than what the configuration would like (RFC 9111 §4.2.4).
    if lifetime.must_revalidate {
        return None;
    }
    let (is_configured, is_error) = match cause {
        StaleCause::Updating => (use_stale.while_updating, false),
        StaleCause::Condition(condition) => {
            // A 403, 404 or 429 is an answer; RFC 5861 §4 means errors of the server.
            let is_error = !matches!(
                condition,
                Condition::Http403 | Condition::Http404 | Condition::Http429 | Condition::Denied
            );
            (use_stale.has(condition), is_error)
        }
        StaleCause::NoLive => (use_stale.has(Condition::Error), true),
    };
    let is_allowed = match cause {
        StaleCause::Updating => lifetime.is_within(lifetime.stale_while_revalidate, now),
        _ => is_error && lifetime.is_within(lifetime.stale_if_error, now),
    };
    if is_configured {
        Some(StaleReason::UseStale)
    } else {
        is_allowed.then_some(StaleReason::Answer)
    }
}

/// Adds the fields that revalidate an answer (`proxy_cache_revalidate`); `false` when it has no validator.
pub fn push_validators(fields: &Fields, out: &mut Fields) -> bool {
    let before = out.len();
    if let Some(modified) = fields.get("last-modified") {
        out.push(b"If-Modified-Since", modified);
    }
    if let Some(tag) = fields.get("etag") {
        out.push(b"If-None-Match", tag);
    }
    out.len() > before
}

/// The lifetime of an answer that a 304 has confirmed: that of the 304, else that of the answer when it was
/// stored, counted from now (RFC 9111 §4.3.4).
pub fn revalidated(
    rules: &StoreRules,
    kept: &ResponseHead,
    not_modified: &ResponseHead,
    now: i64,
) -> Result<Lifetime, NotStored> {
    let says = |head: &ResponseHead| {
        ["x-accel-expires", "cache-control", "expires"]
            .iter()
            .any(|name| head.fields.get(name).is_some())
    };
    let source = if says(not_modified) { not_modified } else { kept };
    lifetime_of(rules, kept.status, &source.fields, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Lifetime = Lifetime {
        stored: 1000,
        age: 5,
        valid_until: 1060,
        stale_while_revalidate: 0,
        stale_if_error: 0,
        must_revalidate: false,
    };

    #[test]
    fn an_answer_is_fresh_until_its_second() {
        assert!(KEPT.is_fresh(1059) && !KEPT.is_fresh(1060));
        assert_eq!((KEPT.age(1000), KEPT.age(1030), KEPT.age(900)), (5, 35, 5));
    }

    /// RFC 5861, RFC 9111 §4.2.4 and `proxy_cache_use_stale`.
    #[test]
    fn a_stale_answer_is_given_by_somebody_s_leave_only() {
        use StaleReason as R;
        let off = UseStale::default();
        let errors = UseStale::new([Condition::Error, Condition::Http404], true);
        let error = StaleCause::Condition(Condition::Error);
        let lenient = Lifetime { stale_while_revalidate: 10, stale_if_error: 20, ..KEPT };
        let strict = Lifetime { must_revalidate: true, ..lenient };
        let missing = StaleCause::Condition(Condition::Http404);
        let rows = [
            (KEPT, off, error, 1070, None),
            (KEPT, errors, error, 1_000_000, Some(R::UseStale)),
            (KEPT, errors, StaleCause::NoLive, 1070, Some(R::UseStale)),
            (KEPT, errors, StaleCause::Updating, 1070, Some(R::UseStale)),
            (KEPT, errors, StaleCause::Condition(Condition::Timeout), 1070, None),
            (KEPT, errors, missing, 1070, Some(R::UseStale)),
            (lenient, off, StaleCause::Updating, 1069, Some(R::Answer)),
            (lenient, off, StaleCause::Updating, 1070, None),
            (lenient, off, error, 1079, Some(R::Answer)),
            (lenient, off, error, 1080, None),
            (lenient, off, StaleCause::NoLive, 1079, Some(R::Answer)),
            (lenient, off, missing, 1070, None),
            (strict, errors, error, 1061, None),
            (strict, errors, StaleCause::Updating, 1061, None),
        ];
        for (lifetime, use_stale, cause, now, expected) in rows {
            let found = may_serve_stale(&lifetime, use_stale, cause, now);
            assert_eq!(found, expected, "{cause:?} {now}");
        }
    }

    #[test]
    fn validators_are_what_the_answer_had() {
        let fields: Fields =
            [("ETag", "W/\"a\""), ("Last-Modified", "date"), ("A", "b")].into_iter().collect();
        let mut out = Fields::default();
        assert!(push_validators(&fields, &mut out));
        let expected = [("If-Modified-Since", "date"), ("If-None-Match", "W/\"a\"")];
        assert_eq!(out, expected.into_iter().collect());
        assert!(!push_validators(&Fields::default(), &mut out));
    }

    /// RFC 9111 §4.3.4
    #[test]
    fn a_304_renews_a_lifetime() {
        let head = |fields: &[(&str, &str)]| ResponseHead {
            fields: fields.iter().copied().collect(),
            ..ResponseHead::default()
        };
        let rules = StoreRules::default();
        let kept = head(&[("Cache-Control", "max-age=60")]);
        let until = |not_modified: &ResponseHead| {
            revalidated(&rules, &kept, not_modified, 5000).map(|lifetime| lifetime.valid_until)
        };
        assert_eq!(until(&head(&[])), Ok(5060));
        assert_eq!(until(&head(&[("Cache-Control", "max-age=7")])), Ok(5007));
        assert_eq!(until(&head(&[("Cache-Control", "no-store")])), Err(NotStored::CacheControl));
    }

    #[test]
    fn statuses_have_nginx_s_words() {
        let words = [
            (CacheStatus::Miss, "MISS"),
            (CacheStatus::Bypass, "BYPASS"),
            (CacheStatus::Expired, "EXPIRED"),
            (CacheStatus::Stale, "STALE"),
            (CacheStatus::Updating, "UPDATING"),
            (CacheStatus::Revalidated, "REVALIDATED"),
            (CacheStatus::Hit, "HIT"),
        ];
        for (status, word) in words {
            assert_eq!(status.as_str(), word);
        }
    }
}
