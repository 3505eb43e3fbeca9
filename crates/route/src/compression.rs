//! Whether an answer is compressed, with what, and what that makes of its head. A decision on settings, the
//! request's head and the answer's field lines; it compresses nothing itself.

use sekisho_config::{Compression, NoGzipFor, Proxied};
use sekisho_http::{Accepted, Coding, Head, Known, Status, Version, date};

/// What is known of an answer before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its status.
    pub status: Status,
    /// How long its body is, where that is known.
    pub length: Option<u64>,
    /// Its field lines, each ended by CRLF.
    pub fields: &'a [u8],
    /// Its media type, where no line says it (304).
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

/// Chooses. For a 304, what would have been chosen for the answer that it stands for.
pub fn choose(compression: &Compression, head: &Head, answer: &Answer<'_>, now: i64) -> Choice {
    if !compression.is_on() || !matches!(answer.status.code(), 200 | 304 | 403 | 404) {
        return Choice::default();
    }
    if answer.length == Some(0) || field(answer.fields, "content-encoding").is_some() {
        return Choice::default();
    }
    // RFC 9111 §5.2.2.6: whoever says so does not want it changed on the way.
    let mut controls = fields(answer.fields, "cache-control");
    if controls.any(|value| has_word(value, b"no-transform")) {
        return Choice::default();
    }
    let media_type = field(answer.fields, "content-type").unwrap_or(answer.media_type);
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

fn is_disabled(word: &NoGzipFor, head: &Head) -> bool {
    let agent = head.known(Known::UserAgent).unwrap_or_default();
    match word {
        NoGzipFor::UserAgent(pattern) => pattern.regex.is_match(agent),
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
    if let Some(expires) = field(answer.fields, "expires") {
        return proxied.expired && date::parse(expires).is_some_and(|at| at < now);
    }
    let words = [
        (proxied.no_cache, &b"no-cache"[..]),
        (proxied.no_store, b"no-store"),
        (proxied.private, b"private"),
    ];
    if field(answer.fields, "cache-control").is_some() {
        return fields(answer.fields, "cache-control")
            .any(|value| words.iter().any(|(is_on, word)| *is_on && has_word(value, word)));
    }
    let has = |name| field(answer.fields, name).is_some();
    let is_known = proxied.no_last_modified && has("last-modified");
    let is_tagged = proxied.no_etag && has("etag");
    !is_known && !is_tagged
}

/// Changes the field lines to those of the compressed answer: it has a coding, no ranges, and a tag that is
/// weak, for its bytes may differ from time to time (RFC 9110 §8.8.1).
pub fn mark_compressed(lines: &mut Vec<u8>, coding: Coding) {
    remove(lines, "accept-ranges");
    weaken_tag(lines);
    lines.extend_from_slice(b"Content-Encoding: ");
    lines.extend_from_slice(coding.name().as_bytes());
    lines.extend_from_slice(b"\r\n");
}

/// Makes the `ETag` weak, if there is one.
pub fn weaken_tag(lines: &mut Vec<u8>) {
    let Some((name, value)) = find(lines, "etag") else { return };
    if !lines[value.clone()].starts_with(b"W/") {
        lines.splice(name.end..value.start, *b": W/");
    }
}

/// Adds `Vary: Accept-Encoding`, unless a line says that already.
pub fn mark_varying(lines: &mut Vec<u8>) {
    let says = |value: &[u8]| has_word(value, b"accept-encoding") || has_word(value, b"*");
    if !fields(lines, "vary").any(says) {
        lines.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
}

/// Whether a list has this word (or `word=…`), in any case.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|member| {
        let name = member.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(word)
    })
}

fn remove(lines: &mut Vec<u8>, name: &str) {
    while let Some((start, value)) = find(lines, name) {
        lines.drain(start.start..value.end + 2);
    }
}

/// The first value of a field.
fn field<'a>(lines: &'a [u8], name: &str) -> Option<&'a [u8]> {
    find(lines, name).map(|(_, value)| &lines[value])
}

/// Every value of a field.
fn fields<'a>(lines: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    split(lines).filter(move |(key, _)| is_name(&lines[key.clone()], name)).map(|(_, v)| &lines[v])
}

type Stretch = std::ops::Range<usize>;

fn find(lines: &[u8], name: &str) -> Option<(Stretch, Stretch)> {
    split(lines).find(|(key, _)| is_name(&lines[key.clone()], name))
}

fn is_name(key: &[u8], name: &str) -> bool {
    key.eq_ignore_ascii_case(name.as_bytes())
}

/// Where the names and values of whole lines stand.
fn split(lines: &[u8]) -> impl Iterator<Item = (Stretch, Stretch)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = lines.get(at..).filter(|rest| !rest.is_empty())?;
            let length = rest.windows(2).position(|end| end == b"\r\n")?;
            let (start, line) = (at, &rest[..length]);
            at += length + 2;
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let value = &line[colon + 1..];
            let lead = value.len() - value.trim_ascii_start().len();
            return Some((start..start + colon, start + colon + 1 + lead..start + length));
        }
    })
}
