//! In which charset a text of a program or of another server is given (`charset`, `override_charset`, `source_charset`).

use std::sync::Arc;

use sekisho_config::{Charsets, Level, Recode, Settings};
use sekisho_http::{Fields, Status};

use crate::{Request, RouteState, Table, expand};

/// Names the charset of an answer in its `Content-Type`, as nginx does; how its text is recoded, where it is.
///
/// `asked` is that of `X-Accel-Charset`, `computed` what the variable of `charset` says.
pub fn name_charset(
    charsets: &Charsets,
    settings: &Settings,
    status: Status,
    asked: Option<&[u8]>,
    computed: Option<&[u8]>,
    fields: &mut Fields,
    route: &RouteState,
) -> Option<Arc<Recode>> {
    if asked.is_none() && computed.is_none() && settings.charset.is_none() {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // It is given as it is.
    let report = |message: String| {
        route.log_entries.borrow_mut().add(Level::Error, message);
        None
    };
    let value = fields.get("content-type").filter(|value| !value.is_empty())?;
    let (media_type, own) = split(value);
    let charset = settings.charset.as_deref().map(str::as_bytes);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(byte);
    let is_charset = |name: &&[u8]| !name.is_empty() && name.iter().all(is_name);
    let charset = computed.filter(is_charset).or(charset);
    let to = match (asked, charset) {
        (Some(asked), _) if charsets.knows(asked) => asked,
        (Some(asked), _) => {
            return report(format!("unknown charset \"{}\" to override", text(asked)));
        }
        (None, None) => return None,
        (None, Some(charset)) => {
            let is_meant = match own {
                Some(_) => settings.override_charset,
                None => settings.charset_types.contain(media_type),
            };
            if !is_meant {
                return None;
            }
            charset
        }
    };
    let source = settings.source_charset.as_ref().map(|name| name.as_bytes());
    let recode = match own.or(source) {
        // One that only a variable names is not recoded to.
        Some(from) if !from.eq_ignore_ascii_case(to) && charsets.knows(to) => {
            if fields.has("content-encoding") {
                return None;
            }
            let recode = charsets.between(from, to);
            let Some(recode) = recode else {
                let (from, to) = (text(from), text(to));
                return report(format!(
                    "no \"charset_map\" between the charsets \"{from}\" and \"{to}\""
                ));
            };
            // A part of a text is one of the text that was asked for.
            if status == Status::PARTIAL_CONTENT && !recode.keeps_length {
                return None;
            }
            Some(Arc::clone(recode))
        }
        _ => None,
    };
    let value = match status.code() {
        301 | 302 => media_type.to_vec(),
        _ => [media_type, b"; charset=", to].concat(),
    };
    fields.remove("content-type");
    fields.push("Content-Type", &value);
    recode
}

/// What the variable of `charset` says; `None` where it has none.
pub fn computed_charset(
    table: &Table,
    request: &Request<'_>,
    route: &RouteState,
) -> Option<Vec<u8>> {
    let template = table.location(route.location).settings.charset_by.as_ref()?;
    let mut name = Vec::new();
    expand(template, table, request, route, None, &mut name);
    Some(name)
}

/// A media type without its charset, and the charset, which nginx takes to be all that follows.
fn split(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    const NAME: &[u8] = b"charset=";
    for (at, _) in value.iter().enumerate().filter(|(_, byte)| **byte == b';') {
        let rest = value[at + 1..].trim_ascii_start();
        if rest.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME)) {
            let name = &rest[NAME.len()..];
            let name = name.strip_prefix(b"\"").unwrap_or(name);
            return (&value[..at], Some(name.strip_suffix(b"\"").unwrap_or(name)));
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_told_from_its_charset() {
        for (value, media_type, charset) in [
            ("text/html", "text/html", None),
            ("text/html; charset=x", "text/html", Some("x")),
            ("text/html;CharSet=\"x\"", "text/html", Some("x")),
            ("text/html; a=b; charset=x", "text/html; a=b", Some("x")),
            ("text/html; a=b", "text/html; a=b", None),
            ("text/html;", "text/html;", None),
        ] {
            let (media_type, charset) = (media_type.as_bytes(), charset.map(str::as_bytes));
            assert_eq!(split(value.as_bytes()), (media_type, charset), "{value}");
        }
    }
}
