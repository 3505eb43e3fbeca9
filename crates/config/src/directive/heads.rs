//! What goes into response heads.

use std::sync::Arc;

use super::{Body, HTTP, LEVELS, LEVELS_IF, Row, active, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{AddHeader, CharsetTypes, Expires, IfModifiedSince, ServerTokens};
use crate::types;

pub(super) const ROWS: &[Row] = &[
    active("types", LEVELS, "", types::BUILT_IN, "Media types by file extension", types)
        .with_body(Body::Entries)
        .repeated(),
    active(
        "default_type",
        LEVELS,
        "type",
        "text/plain",
        "The media type if `types` has none",
        |l, d, _| {
            let text = d.text(d.arg(0))?;
            if !is_field_value(text.as_bytes()) {
                return Err(d.invalid(d.arg(0), "contains a byte that a header field cannot have"));
            }
            l.settings.default_type = Arc::from(text);
            Ok(())
        },
    ),
    active(
        "charset",
        LEVELS_IF,
        "name|$variable|off",
        "off",
        "Added to the `Content-Type` of text. A variable may give its name",
        |l, d, s| {
            let text = d.text(d.arg(0))?;
            l.settings.charset_by = None;
            if text.starts_with('$') {
                l.settings.charset = None;
                l.settings.charset_by = Some(Arc::new(d.template(d.arg(0), s)?));
                return Ok(());
            }
            if text.is_empty()
                || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:+".contains(&b))
            {
                return Err(d.invalid(d.arg(0), "is not the name of a charset"));
            }
            l.settings.charset = (text != "off").then(|| Arc::from(text));
            Ok(())
        },
    ),
    active(
        "charset_types",
        LEVELS,
        "type ...",
        "",
        "The types that `charset` applies to; `*` for all (by default all text, scripts and feeds)",
        |l, d, _| {
            let types = d.args().iter().map(|word| d.text(word).map(str::to_owned));
            let types = types.collect::<Result<Vec<_>, _>>()?;
            l.settings.charset_types = if types.iter().any(|one| one == "*") {
                CharsetTypes::All
            } else {
                CharsetTypes::Listed(types.into())
            };
            Ok(())
        },
    ),
    active(
        "source_charset",
        LEVELS_IF,
        "name|off",
        "off",
        "The charset of texts that do not name theirs: with a `charset_map` they are converted to `charset`",
        |l, d, _| {
            let text = d.text(d.arg(0))?;
            if text.starts_with('$') {
                return Err(d.not_built(d.arg(0)));
            }
            l.settings.source_charset = (text != "off").then(|| Arc::from(text));
            Ok(())
        },
    ),
    active(
        "override_charset",
        LEVELS_IF,
        "on|off",
        "off",
        "Whether texts of programs and other servers that name their charset are converted to `charset`, by a `charset_map`",
        |l, d, _| set(&mut l.settings.override_charset, d.flag()),
    ),
    active(
        "charset_map",
        HTTP,
        "from to",
        "",
        "How bytes of one charset are converted to another, as hexadecimal digits; the other one may be utf-8",
        nothing,
    )
    .with_body(Body::Entries)
    .repeated(),
    active(
        "add_header",
        LEVELS_IF,
        "name value [always]",
        "",
        "A field for every answer (without `always` only for successful ones and redirects)",
        add_header,
    )
    .repeated(),
    active(
        "add_trailer",
        LEVELS_IF,
        "name value [always]",
        "",
        "A field after the body of every answer (without `always` only for successful ones and redirects): with HTTP/2, and with HTTP/1.1 in chunks",
        add_header,
    )
    .repeated(),
    active(
        "expires",
        LEVELS_IF,
        "[modified] time|epoch|max|off",
        "off",
        "Sets `Expires` and `Cache-Control`; a variable with any other value sets nothing",
        expires,
    ),
    active("etag", LEVELS, "on|off", "on", "Whether files have an `ETag`", |l, d, _| {
        set(&mut l.settings.etag, d.flag())
    }),
    active(
        "if_modified_since",
        LEVELS,
        "off|exact|before",
        "exact",
        "How the time of `If-Modified-Since` is compared",
        |l, d, _| {
            l.settings.if_modified_since = match &*d.arg(0).text {
                b"off" => IfModifiedSince::Off,
                b"exact" => IfModifiedSince::Exact,
                b"before" => IfModifiedSince::Before,
                _ => return Err(d.invalid(d.arg(0), "must be \"off\", \"exact\" or \"before\"")),
            };
            Ok(())
        },
    ),
    active(
        "max_ranges",
        LEVELS,
        "number",
        "",
        "How many ranges one request may ask for; 0 switches ranges off",
        |l, d, _| {
            set(
                &mut l.settings.max_ranges,
                d.number(0).map(|n| Some(usize::try_from(n).unwrap_or(usize::MAX))),
            )
        },
    ),
    active(
        "server_tokens",
        LEVELS,
        "on|off|build",
        "on",
        "Whether `Server` names the version",
        |l, d, _| {
            l.settings.server_tokens = match &*d.arg(0).text {
                b"on" | b"build" => ServerTokens::On,
                b"off" => ServerTokens::Off,
                _ => return Err(d.invalid(d.arg(0), "must be \"on\", \"off\" or \"build\"")),
            };
            Ok(())
        },
    ),
];

/// Whether bytes are allowed in a header field.
fn is_field_value(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

fn types(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let entries = d.node.body.as_deref().unwrap_or_default();
    for entry in entries {
        if entry.body.is_some() {
            return Err(Fault::at(&entry.name, "a media type is followed by extensions and \";\""));
        }
        let media: Arc<str> = Arc::from(d.text(&entry.name)?);
        if media.is_empty() || !is_field_value(media.as_bytes()) {
            return Err(d.invalid(&entry.name, "is not a media type"));
        }
        for word in &entry.args {
            let extension = word.text.to_ascii_lowercase();
            let before = l.own.types.by_extension.insert(extension, Arc::clone(&media));
            if let Some(before) = before.filter(|before| *before != media) {
                let message = format!(
                    "duplicate extension \"{}\": \"{media}\" replaces \"{before}\"",
                    word.shown()
                );
                s.warn(word.span, message);
            }
        }
    }
    Ok(())
}

/// Line breaks, with the blanks around them, as one space; none at the ends.
fn on_one_line(text: &[u8]) -> Vec<u8> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !text.iter().any(is_break) {
        return text.to_vec();
    }
    let lines = text.split(is_break).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(&b' ')
}

fn add_header(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let written = d.text(d.arg(0))?;
    let name = written.trim_end_matches(':');
    if name.len() < written.len() {
        s.warn(
            d.arg(0).span,
            format!("the colon of \"{written}\" is not part of the field's name"),
        );
    }
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(d.invalid(d.arg(0), "is not the name of a header field"));
    }
    let joined = on_one_line(&d.arg(1).text);
    if joined.len() < d.arg(1).text.len() {
        s.warn(d.arg(1).span, "a header field is one line: line breaks become spaces");
    }
    if !is_field_value(&joined) {
        return Err(d.invalid(d.arg(1), "contains a byte that a header field cannot have"));
    }
    let always = match d.args().get(2) {
        Some(word) if &*word.text != b"always" => {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
        word => word.is_some(),
    };
    // These frame the message; a second one would break it.
    let framing =
        ["connection", "content-length", "transfer-encoding", "date", "trailer", "upgrade"];
    if name.eq_ignore_ascii_case("content-length") && *d.arg(1).text == *b"0" {
        // Many recipes for CORS have it beside `return 204`, where no length is allowed.
        s.warn(d.arg(0).span, "\"Content-Length\" is left out: it is written by the server itself");
        return Ok(());
    }
    if framing.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Err(d.invalid(d.arg(0), "is written by the server itself"));
    }
    let value = d.template_of(d.arg(1), &joined, s)?;
    let field = AddHeader { name: name.to_owned(), value, always };
    let is_trailer = d.row.name == "add_trailer";
    if is_trailer {
        l.own.add_trailers.push(field);
    } else {
        l.own.add_headers.push(field);
    }
    Ok(())
}

fn expires(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let first = d.text(d.arg(0))?;
    let is_modified = first == "modified" && d.args().len() == 2;
    let word = d.arg(d.args().len() - 1);
    let text = d.text(word)?;
    if d.args().len() == 2 && !is_modified {
        return Err(d.invalid(d.arg(0), "must be \"modified\" before a time"));
    }
    l.settings.expires = if text.contains('$') {
        let value = d.template(word, s)?;
        if is_modified { Expires::ModifiedBy(value) } else { Expires::By(value) }
    } else {
        Expires::read(text, is_modified).map_err(|wrong| d.invalid(word, wrong))?
    };
    Ok(())
}
