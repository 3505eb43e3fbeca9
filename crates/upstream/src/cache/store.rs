//! Whether an answer is kept, and for how long: `X-Accel-Expires`, `Cache-Control`, `Expires`,
//! `proxy_cache_valid`, in nginx's order, and what RFC 9111 §3 forbids.

use sekisho_http::{Fields, Method, Status, date};

use super::control::CacheControl;
use super::freshness::Lifetime;
use super::key;

/// Bytes of `Vary` beyond which an answer is not kept, as in nginx.
const VARY_BYTES_MAX: usize = 128;

/// `proxy_ignore_headers`, as far as it is about the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "these are the fields that may be ignored")]
pub struct Ignored {
    /// `X-Accel-Expires`
    pub accel_expires: bool,
    /// `Cache-Control`
    pub cache_control: bool,
    /// `Expires`
    pub expires: bool,
    /// `Set-Cookie`
    pub set_cookie: bool,
    /// `Vary`
    pub vary: bool,
}

/// Which statuses a `proxy_cache_valid` is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValidFor {
    /// `any`
    Any,
    /// One of them.
    Status(u16),
}

/// What the configuration says about keeping answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreRules {
    /// `proxy_cache_valid`: the first that is about a status counts.
    pub valid: Vec<(ValidFor, u32)>,
    /// `proxy_ignore_headers`
    pub ignored: Ignored,
    /// `proxy_cache_methods`; GET and HEAD are always among them.
    pub methods: Vec<Method>,
    /// `proxy_cache_min_uses`
    pub min_uses: u32,
}

impl Default for StoreRules {
    fn default() -> Self {
        Self { valid: Vec::new(), ignored: Ignored::default(), methods: Vec::new(), min_uses: 1 }
    }
}

impl StoreRules {
    /// Whether requests with this method are looked up at all.
    pub fn has_method(&self, method: Method) -> bool {
        matches!(method, Method::Get | Method::Head) || self.methods.contains(&method)
    }

    fn valid_for(&self, status: Status) -> Option<u32> {
        let is_about = |rule: &&(ValidFor, u32)| match rule.0 {
            ValidFor::Any => true,
            ValidFor::Status(code) => code == status.code(),
        };
        self.valid.iter().find(is_about).map(|(_, seconds)| *seconds)
    }
}

/// An answer that might be kept.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The method of the request.
    pub method: Method,
    /// Whether the request had `Authorization`.
    pub is_authorized: bool,
    /// Whether `proxy_no_cache` says no.
    pub is_refused: bool,
    /// How often it has been asked for, this time included.
    pub uses: u32,
    /// The status.
    pub status: Status,
    /// The fields.
    pub fields: &'a Fields,
}

/// Why an answer is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotStored {
    /// Its method is not among `proxy_cache_methods`.
    Method,
    /// `proxy_no_cache`
    ByConfiguration,
    /// It was not asked for often enough: `proxy_cache_min_uses`.
    MinUses,
    /// It is not an answer that could be given again: 1xx, 304, 206 that is not configured.
    Status,
    /// The request had `Authorization`, and the answer does not allow sharing (RFC 9111 §3.5).
    Authorization,
    /// `X-Accel-Expires: 0`
    AccelExpires,
    /// `no-store`, `no-cache`, `private`, `max-age=0`, or a number that is none.
    CacheControl,
    /// `Expires` lies in the past or is no date.
    Expired,
    /// It sets a cookie.
    SetCookie,
    /// It varies by everything, or by more than is looked at.
    Vary,
    /// Neither the answer nor the configuration says how long it is valid.
    NoLifetime,
}

/// Whether an answer is kept, and for how long.
pub fn may_store(
    rules: &StoreRules,
    candidate: &Candidate<'_>,
    now: i64,
) -> Result<Lifetime, NotStored> {
    let Candidate { method, status, fields, .. } = *candidate;
    if !rules.has_method(method) {
        return Err(NotStored::Method);
    }
    if candidate.is_refused {
        return Err(NotStored::ByConfiguration);
    }
    if candidate.uses < rules.min_uses {
        return Err(NotStored::MinUses);
    }
    let is_named = || rules.valid.iter().any(|(of, _)| *of == ValidFor::Status(status.code()));
    if status.code() < 200 || status == Status::NOT_MODIFIED {
        return Err(NotStored::Status);
    }
    // A part is kept only where the key is known to have the range in it.
    if status == Status::PARTIAL_CONTENT && !is_named() {
        return Err(NotStored::Status);
    }
    if candidate.is_authorized && !is_for_others(rules, fields) {
        return Err(NotStored::Authorization);
    }
    if !rules.ignored.set_cookie && fields.get("set-cookie").is_some() {
        return Err(NotStored::SetCookie);
    }
    if !rules.ignored.vary {
        let vary = key::vary(fields);
        let names_all = vary.split(|byte| *byte == b',').any(|name| name.trim_ascii() == b"*");
        if names_all || vary.len() > VARY_BYTES_MAX {
            return Err(NotStored::Vary);
        }
    }
    lifetime_of(rules, status, fields, now)
}

/// RFC 9111 §3.5
fn is_for_others(rules: &StoreRules, fields: &Fields) -> bool {
    if rules.ignored.cache_control {
        return true;
    }
    let control = CacheControl::parse(fields.all(b"cache-control"));
    control.public || control.must_revalidate || control.s_maxage.is_some()
}

/// For how long an answer is valid, by the first source that says so.
pub(super) fn lifetime_of(
    rules: &StoreRules,
    status: Status,
    fields: &Fields,
    now: i64,
) -> Result<Lifetime, NotStored> {
    let control = if rules.ignored.cache_control {
        CacheControl::default()
    } else {
        CacheControl::parse(fields.all(b"cache-control"))
    };
    let while_revalidate = control.stale_while_revalidate.unwrap_or(0);
    let mut lifetime = Lifetime {
        stored: now,
        age: 0,
        valid_until: now,
        stale_while_revalidate: while_revalidate,
        // As in nginx: an entry that may be served stale while it is fetched may also be served when that
        // fails.
        stale_if_error: control.stale_if_error.unwrap_or(while_revalidate),
        must_revalidate: control.must_revalidate,
    };
    let accel = fields.get("x-accel-expires").filter(|_| !rules.ignored.accel_expires);
    match accel.and_then(accel_expires) {
        Some(Accel::Never) => return Err(NotStored::AccelExpires),
        Some(Accel::For(seconds)) => {
            lifetime.valid_until = now.saturating_add(seconds);
            return Ok(lifetime);
        }
        Some(Accel::Until(second)) => {
            lifetime.valid_until = second;
            return Ok(lifetime);
        }
        None => {}
    }
    if control.no_store || control.no_cache || control.private || control.is_malformed {
        return Err(NotStored::CacheControl);
    }
    let age = age_of(fields);
    if let Some(seconds) = control.lifetime() {
        let left = seconds.checked_sub(age).filter(|left| *left > 0);
        lifetime.valid_until = now + i64::from(left.ok_or(NotStored::CacheControl)?);
        lifetime.age = age;
        return Ok(lifetime);
    }
    if let Some(expires) = fields.get("expires").filter(|_| !rules.ignored.expires) {
        let until = date::parse(expires).filter(|until| *until > now);
        lifetime.valid_until = until.ok_or(NotStored::Expired)?;
        lifetime.age = age;
        return Ok(lifetime);
    }
    match rules.valid_for(status) {
        None | Some(0) => Err(NotStored::NoLifetime),
        Some(seconds) => {
            lifetime.valid_until = now + i64::from(seconds);
            Ok(lifetime)
        }
    }
}

enum Accel {
    Never,
    For(i64),
    Until(i64),
}

/// `X-Accel-Expires`: seconds from now, or `@` and a Unix second; what is neither is ignored.
fn accel_expires(value: &[u8]) -> Option<Accel> {
    let text = str::from_utf8(value).ok()?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i64>().ok()).flatten()
    };
    match text.strip_prefix('@') {
        Some(second) => number(second).map(Accel::Until),
        None => match number(text)? {
            0 => Some(Accel::Never),
            seconds => Some(Accel::For(seconds)),
        },
    }
}

/// How old the answer was when it came, by its `Age`.
fn age_of(fields: &Fields) -> u32 {
    let text = fields.get("age").and_then(|age| str::from_utf8(age).ok()).unwrap_or_default();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().unwrap_or(u32::MAX) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

    fn store_with(
        rules: &StoreRules,
        status: u16,
        list: &[(&str, &str)],
        change: impl FnOnce(&mut Candidate<'_>),
    ) -> Result<i64, NotStored> {
        let fields: Fields = list.iter().copied().collect();
        let mut candidate = Candidate {
            method: Method::Get,
            is_authorized: false,
            is_refused: false,
            uses: 1,
            status: Status::new(status).expect("a status"),
            fields: &fields,
        };
        change(&mut candidate);
        may_store(rules, &candidate, NOW).map(|lifetime| lifetime.valid_until - NOW)
    }

    fn store(rules: &StoreRules, status: u16, list: &[(&str, &str)]) -> Result<i64, NotStored> {
        store_with(rules, status, list, |_| {})
    }

    /// U5: what says how long, in nginx's order.
    #[test]
    fn the_first_who_says_so_counts() {
        use NotStored as N;
        type Row<'a> = (u16, &'a [(&'a str, &'a str)], Result<i64, NotStored>);
        const CC: &str = "Cache-Control";
        const XA: &str = "X-Accel-Expires";
        let rules = StoreRules {
            valid: vec![
                (ValidFor::Status(200), 600),
                (ValidFor::Status(404), 60),
                (ValidFor::Status(500), 0),
                (ValidFor::Any, 1),
            ],
            ..StoreRules::default()
        };
        let later = "Sun, 06 Nov 1994 08:50:37 GMT";
        let earlier = "Sun, 06 Nov 1994 08:49:37 GMT";
        let rows: &[Row<'_>] = &[
            (200, &[], Ok(600)),
            (404, &[], Ok(60)),
            (302, &[], Ok(1)),
            (500, &[], Err(N::NoLifetime)),
            (200, &[(CC, "max-age=5")], Ok(5)),
            (200, &[(CC, "max-age=5, s-maxage=7")], Ok(7)),
            (200, &[(CC, "max-age=0")], Err(N::CacheControl)),
            (200, &[(CC, "private")], Err(N::CacheControl)),
            (200, &[(CC, "no-cache")], Err(N::CacheControl)),
            (200, &[(CC, "no-store")], Err(N::CacheControl)),
            (200, &[(CC, "max-age=soon")], Err(N::CacheControl)),
            (200, &[(CC, "max-age=5"), ("Expires", earlier)], Ok(5)),
            (200, &[("Expires", later)], Ok(60)),
            (200, &[("Expires", earlier)], Err(N::Expired)),
            (200, &[("Expires", "0")], Err(N::Expired)),
            (200, &[(XA, "9"), (CC, "no-store")], Ok(9)),
            (200, &[(CC, "no-store"), (XA, "9")], Ok(9)),
            (200, &[(XA, "0"), (CC, "max-age=5")], Err(N::AccelExpires)),
            (200, &[(XA, "@784111787")], Ok(10)),
            (200, &[(XA, "soon"), (CC, "max-age=5")], Ok(5)),
            (200, &[(CC, "max-age=50"), ("Age", "20")], Ok(30)),
            (200, &[(CC, "max-age=50"), ("Age", "50")], Err(N::CacheControl)),
            (304, &[(CC, "max-age=50")], Err(N::Status)),
            (206, &[(CC, "max-age=50")], Err(N::Status)),
        ];
        for (status, list, expected) in rows {
            assert_eq!(store(&rules, *status, list), *expected, "{status} {list:?}");
        }
        let none = StoreRules::default();
        assert_eq!(store(&none, 200, &[]), Err(N::NoLifetime));
        assert_eq!(store(&none, 500, &[(CC, "max-age=5")]), Ok(5), "the answer may say so itself");
    }

    #[test]
    fn what_must_not_be_kept_is_not() {
        use NotStored as N;
        let rules = StoreRules { valid: vec![(ValidFor::Any, 60)], ..StoreRules::default() };
        assert_eq!(store(&rules, 200, &[("Set-Cookie", "a=b")]), Err(N::SetCookie));
        assert_eq!(store(&rules, 200, &[("Vary", "Accept, *")]), Err(N::Vary));
        assert_eq!(store(&rules, 200, &[("Vary", &"a".repeat(129))]), Err(N::Vary));
        assert_eq!(store(&rules, 200, &[("Vary", "Accept-Encoding")]), Ok(60));
        let with = |change: fn(&mut Candidate<'_>)| store_with(&rules, 200, &[], change);
        assert_eq!(with(|c| c.method = Method::Post), Err(N::Method));
        assert_eq!(with(|c| c.is_refused = true), Err(N::ByConfiguration));
        assert_eq!(with(|c| c.uses = 0), Err(N::MinUses));
        assert_eq!(with(|c| c.is_authorized = true), Err(N::Authorization));
        for control in ["public", "s-maxage=60", "must-revalidate, max-age=60"] {
            let list = [("Cache-Control", control)];
            let found = store_with(&rules, 200, &list, |c| c.is_authorized = true);
            assert_eq!(found, Ok(60), "{control}");
        }
    }

    #[test]
    fn fields_may_be_ignored() {
        let all = Ignored {
            accel_expires: true,
            cache_control: true,
            expires: true,
            set_cookie: true,
            vary: true,
        };
        let rules = StoreRules {
            valid: vec![(ValidFor::Any, 60)],
            ignored: all,
            methods: vec![Method::Post],
            min_uses: 1,
        };
        let list = [
            ("X-Accel-Expires", "0"),
            ("Cache-Control", "no-store"),
            ("Expires", "0"),
            ("Set-Cookie", "a"),
            ("Vary", "*"),
        ];
        assert_eq!(store(&rules, 200, &list), Ok(60));
        assert_eq!(store_with(&rules, 200, &list, |c| c.method = Method::Post), Ok(60));
    }

    /// RFC 5861
    #[test]
    fn an_answer_may_allow_its_use_when_it_is_stale() {
        let lifetime = |control: &str| {
            let fields: Fields = [("Cache-Control", control)].into_iter().collect();
            let kept = lifetime_of(&StoreRules::default(), Status::OK, &fields, NOW).expect("kept");
            (kept.stale_while_revalidate, kept.stale_if_error, kept.must_revalidate)
        };
        assert_eq!(lifetime("max-age=1"), (0, 0, false));
        assert_eq!(lifetime("max-age=1, stale-while-revalidate=5"), (5, 5, false));
        assert_eq!(
            lifetime("max-age=1, stale-while-revalidate=5, stale-if-error=9"),
            (5, 9, false)
        );
        assert_eq!(lifetime("max-age=1, stale-if-error=9, must-revalidate"), (0, 9, true));
    }
}
