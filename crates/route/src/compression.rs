//! Whether an answer is compressed, with what, and what that makes of its head. A decision on settings, the
//! request's head and the answer's fields; it compresses nothing itself.

use sekisho_config::{Compression, Matched, NoGzipFor, Proxied};
use sekisho_http::{Accepted, Coding, Fields, Head, Known, Status, Version, date};

/// What is known of an answer before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its status.
    pub status: Status,
    /// How long its body is, where that is known.
    pub length: Option<u64>,
    /// Its fields.
    pub fields: &'a Fields,
    /// Its media type, where no field says it (304).
    pub media_type: &'a [u8],
}

/// What becomes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The coding that its body gets, and how hard it tries.
    pub coding: Option<(Coding, u8)>,
    /// Whether another `Accept-Encoding` might have led to another answer.
    pub depends: bool,
}

/// Chooses. For a 304, what would have been chosen for the full answer.
pub fn choose(compression: &Compression, head: &Head, answer: &Answer<'_>, now: i64) -> Choice {
    if !compression.is_on() || !matches!(answer.status.code(), 200 | 304 | 403 | 404) {
        return Choice::default();
    }
    if answer.length == Some(0) || answer.fields.has("content-encoding") {
        return Choice::default();
    }
    // RFC 9111 §5.2.2.6: such an answer must not be transformed.
    let mut controls = answer.fields.all(b"cache-control");
    if controls.any(|value| has_word(value, b"no-transform")) {
        return Choice::default();
    }
    let media_type = answer.fields.get("content-type").unwrap_or(answer.media_type);
    let fits = |coding: &Coding| {
        let one = compression.of(*coding);
        one.is_on
            && one.takes_type(media_type)
            && answer.length.is_none_or(|length| length >= one.length_min)
    };
    if !Coding::ALL.iter().any(fits) {
        return Choice::default();
    }
    let coding = Accepted::of(head).iter().find(|coding| {
        fits(coding)
            && takes_coding(compression, *coding, head)
            && (*coding != Coding::Gzip || is_for_proxies(compression.proxied, head, answer, now))
    });
    let coding = coding.map(|coding| (coding, compression.of(coding).level));
    Choice { coding, depends: true }
}

/// Whether this client may get this coding, beside having asked for it: its version, whether it comes by a
/// proxy, what it is.
pub(crate) fn takes_coding(compression: &Compression, coding: Coding, head: &Head) -> bool {
    if coding != Coding::Gzip {
        return head.version() >= Version::Http11;
    }
    let is_new = head.version() >= compression.http_version;
    let is_proxied = head.known(Known::Via).is_some();
    is_new
        && !(is_proxied && compression.proxied.is_off())
        && !compression.disable.iter().any(|word| is_disabled(word, head))
}

/// Whether this client takes gzip.
pub fn takes_gzip(compression: &Compression, head: &Head) -> bool {
    Accepted::of(head).iter().any(|coding| coding == Coding::Gzip)
        && takes_coding(compression, Coding::Gzip, head)
}

fn is_disabled(word: &NoGzipFor, head: &Head) -> bool {
    let agent = head.known(Known::UserAgent).unwrap_or_default();
    match word {
        // One that runs out of steps may match.
        NoGzipFor::UserAgent(pattern) => pattern.regex.matches(agent) != Matched::No,
        NoGzipFor::Msie6 => {
            let mut at = agent.windows(6).filter(|window| window.starts_with(b"MSIE "));
            at.any(|window| match window[5] {
                b'4' | b'5' => true,
                b'6' => !agent.windows(3).any(|word| word == b"SV1"),
                _ => false,
            })
        }
    }
}

/// `gzip_proxied`, for requests with `Via`: the order of the questions is nginx's.
fn is_for_proxies(proxied: Proxied, head: &Head, answer: &Answer<'_>, now: i64) -> bool {
    if head.known(Known::Via).is_none() || proxied.any {
        return true;
    }
    if proxied.is_off() {
        return false;
    }
    if proxied.auth && head.known(Known::Authorization).is_some() {
        return true;
    }
    if let Some(expires) = answer.fields.get("expires") {
        return proxied.expired && date::parse(expires).is_some_and(|at| at < now);
    }
    let words = [
        (proxied.no_cache, &b"no-cache"[..]),
        (proxied.no_store, b"no-store"),
        (proxied.private, b"private"),
    ];
    if answer.fields.has("cache-control") {
        return answer
            .fields
            .all(b"cache-control")
            .any(|value| words.iter().any(|(is_on, word)| *is_on && has_word(value, word)));
    }
    let is_known = proxied.no_last_modified && answer.fields.has("last-modified");
    let is_tagged = proxied.no_etag && answer.fields.has("etag");
    !is_known && !is_tagged
}

/// Changes the fields to those of the compressed answer: it has a coding, no ranges, and a tag that is
/// weak, for its bytes may differ from time to time (RFC 9110 §8.8.1).
pub fn mark_compressed(fields: &mut Fields, coding: Coding) {
    fields.remove("accept-ranges");
    weaken_tag(fields);
    fields.push("Content-Encoding", coding.name());
}

/// Makes the `ETag` weak, if there is one.
pub fn weaken_tag(fields: &mut Fields) {
    fields.change("etag", |value| (!value.starts_with(b"W/")).then(|| [b"W/", value].concat()));
}

/// Adds `Vary: Accept-Encoding`, unless a field says that already.
pub fn mark_varying(fields: &mut Fields) {
    let says = |value: &[u8]| has_word(value, b"accept-encoding") || has_word(value, b"*");
    if !fields.all(b"vary").any(says) {
        fields.push("Vary", "Accept-Encoding");
    }
}

/// Whether a list has this word (or `word=…`), in upper or lower case.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|member| {
        let name = member.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(word)
    })
}
