//! `Cache-Control` (RFC 9111 §5.2): its directives for a shared cache, each with the most cautious of the
//! meanings it could have.

/// The largest number of seconds (RFC 9111 §1.2.2).
const SECONDS_MAX: u32 = 1 << 31;

/// The directives of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "these are the directives")]
pub struct CacheControl {
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`, also one that names fields.
    pub no_cache: bool,
    /// `private`, also one that names fields.
    pub private: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate` or `proxy-revalidate`
    pub must_revalidate: bool,
    /// `max-age`
    pub max_age: Option<u32>,
    /// `s-maxage`
    pub s_maxage: Option<u32>,
    /// `stale-while-revalidate` (RFC 5861)
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error` (RFC 5861)
    pub stale_if_error: Option<u32>,
    /// A number is malformed: the directive cannot be obeyed.
    pub is_malformed: bool,
}

impl CacheControl {
    /// Reads all fields of that name.
    pub fn parse<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Self::default();
        for field in fields {
            for directive in directives(field) {
                all.take(directive);
            }
        }
        all
    }

    /// How long an answer is fresh for a shared cache, if it says so.
    pub const fn lifetime(&self) -> Option<u32> {
        match self.s_maxage {
            Some(seconds) => Some(seconds),
            None => self.max_age,
        }
    }

    fn take(&mut self, directive: &[u8]) {
        let equals = memchr::memchr(b'=', directive);
        let (name, value) = directive.split_at(equals.unwrap_or(directive.len()));
        let value = value.get(1..).map(<[u8]>::trim_ascii);
        let name = name.trim_ascii();
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let slot = if is("max-age") {
            &mut self.max_age
        } else if is("s-maxage") {
            &mut self.s_maxage
        } else if is("stale-while-revalidate") {
            &mut self.stale_while_revalidate
        } else if is("stale-if-error") {
            &mut self.stale_if_error
        } else {
            self.no_store |= is("no-store");
            self.no_cache |= is("no-cache");
            self.private |= is("private");
            self.public |= is("public");
            self.must_revalidate |= is("must-revalidate") || is("proxy-revalidate");
            return;
        };
        match value.and_then(seconds) {
            // Said twice, the shorter time counts.
            Some(seconds) => *slot = Some(slot.map_or(seconds, |before| before.min(seconds))),
            None => self.is_malformed = true,
        }
    }
}

/// Splits at commas that are not within quotes.
fn directives(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    field
        .split(move |byte| {
            is_quoted ^= *byte == b'"';
            *byte == b',' && !is_quoted
        })
        .map(<[u8]>::trim_ascii)
        .filter(|directive| !directive.is_empty())
}

/// Digits, perhaps in quotes; more than can be counted is a very long time.
fn seconds(value: &[u8]) -> Option<u32> {
    let value =
        value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sum = value
        .iter()
        .fold(0_u64, |sum, digit| (sum * 10 + u64::from(digit - b'0')).min(u64::from(SECONDS_MAX)));
    u32::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CacheControl {
        CacheControl::parse(text.split('|').map(str::as_bytes))
    }

    #[test]
    fn directives_are_read_in_their_forms() {
        let none = CacheControl::default();
        let rows = [
            ("", none),
            ("public, MAX-AGE=60", CacheControl { public: true, max_age: Some(60), ..none }),
            ("max-age=\"7\"", CacheControl { max_age: Some(7), ..none }),
            ("max-age = 7", CacheControl { max_age: Some(7), ..none }),
            ("max-age=60|max-age=5", CacheControl { max_age: Some(5), ..none }),
            ("max-age=99999999999999999999", CacheControl { max_age: Some(1 << 31), ..none }),
            ("max-age", CacheControl { is_malformed: true, ..none }),
            ("max-age=-1", CacheControl { is_malformed: true, ..none }),
            ("s-maxage=x", CacheControl { is_malformed: true, ..none }),
            ("private=\"a, no-store\"", CacheControl { private: true, ..none }),
            ("no-cache=\"Set-Cookie\"", CacheControl { no_cache: true, ..none }),
            ("no-store,,x=y", CacheControl { no_store: true, ..none }),
            ("proxy-revalidate", CacheControl { must_revalidate: true, ..none }),
            (
                "stale-while-revalidate=3, stale-if-error=4",
                CacheControl { stale_while_revalidate: Some(3), stale_if_error: Some(4), ..none },
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse("max-age=1, s-maxage=2").lifetime(), Some(2));
    }
}
