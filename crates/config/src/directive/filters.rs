//! Requests within a request, and filters of response bodies.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::rewrite::assignee;
use super::{LEVELS, LEVELS_IF, Row, active, set, silent};
use crate::level::{Directive, Fault};
use crate::model::{MediaTypes, UserIdExpires, UserIdMode};
use crate::template;

/// Requests within a request.
pub(super) const SUBREQUESTS: &[Row] = &[
    active(
        "auth_request",
        LEVELS,
        "path|off",
        "off",
        "Asks another location whether the client is let in: 2xx lets it in, 401 and 403 are answered, all else is 500",
        |l, d, _| {
            l.filters.auth = path(d, true)?;
            Ok(())
        },
    ),
    active(
        "auth_request_set",
        LEVELS,
        "$variable value",
        "",
        "Gives a variable a value when `auth_request` has its answer; the value sees that request",
        |l, d, s| {
            let pair = (assignee(d, s)?, d.template(d.arg(1), s)?);
            l.filters.own.auth_sets.push(pair);
            Ok(())
        },
    )
    .repeated(),
    active(
        "mirror",
        LEVELS,
        "path|off",
        "off",
        "Gives a copy of each request to another location, whose answer is ignored",
        |l, d, _| {
            let path = path(d, true)?;
            if !d.is_default {
                l.filters.own.mirrors.get_or_insert_default().extend(path);
            }
            Ok(())
        },
    )
    .repeated(),
    active(
        "mirror_request_body",
        LEVELS,
        "on|off",
        "on",
        "Whether copies have the request's body",
        |l, d, _| set(&mut l.filters.mirrors_body, d.flag()),
    ),
    active(
        "log_subrequest",
        LEVELS,
        "on|off",
        "off",
        "Whether requests within a request have their own lines in the access log",
        |l, d, _| set(&mut l.settings.log_subrequest, d.flag()),
    ),
    active(
        "subrequest_output_buffer_size",
        LEVELS,
        "size",
        "8k",
        "How long the body of a request may be that `set` of an SSI `include` keeps",
        |l, d, _| set(&mut l.settings.subrequest_bytes_max, d.small_size(0)),
    ),
    active(
        "random_index",
        LEVELS,
        "on|off",
        "off",
        "A path that ends with a slash gets a file of that folder, chosen by chance",
        |l, d, _| set(&mut l.settings.random_index, d.flag()),
    ),
    active(
        "slice",
        LEVELS,
        "size",
        "0",
        "Another server is asked for ranges of this length (`$slice_range`), one after another; 0 for the whole",
        |l, d, _| {
            l.filters.slice = NonZeroU64::new(d.size(0)?);
            Ok(())
        },
    ),
];

/// Filters of bodies.
pub(super) const BODIES: &[Row] = &[
    active(
        "gunzip",
        LEVELS,
        "on|off",
        "off",
        "Whether responses in gzip are decompressed for clients that do not take it",
        |l, d, _| set(&mut l.filters.gunzip, d.flag()),
    ),
    silent("gunzip_buffers", LEVELS, "number size", "Buffers grow and shrink by themselves"),
    active(
        "add_before_body",
        LEVELS,
        "path",
        "",
        "Puts the response of another location before the body",
        |l, d, _| {
            l.filters.addition.before = path(d, false)?;
            Ok(())
        },
    ),
    active(
        "add_after_body",
        LEVELS,
        "path",
        "",
        "Puts the response of another location behind the body",
        |l, d, _| {
            l.filters.addition.after = path(d, false)?;
            Ok(())
        },
    ),
    active(
        "addition_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types to which `add_before_body` and `add_after_body` apply beside `text/html`; `*` for all",
        |l, d, _| set(&mut l.filters.addition.types, types(d)),
    ),
    active(
        "sub_filter",
        LEVELS,
        "text replacement",
        "",
        "Replaces text in bodies, in any case of its letters; several may stand together",
        |l, d, s| {
            let word = d.arg(0);
            if word.text.is_empty() {
                return Err(d.invalid(word, "is empty"));
            }
            let pair = (d.template(word, s)?, d.template(d.arg(1), s)?);
            l.filters.own.pairs.push(pair);
            Ok(())
        },
    )
    .repeated(),
    active(
        "sub_filter_once",
        LEVELS,
        "on|off",
        "on",
        "Whether each text is replaced once or wherever it stands",
        |l, d, _| set(&mut l.filters.substitutions.is_once, d.flag()),
    ),
    active(
        "sub_filter_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types in which text is replaced beside `text/html`; `*` for all",
        |l, d, _| set(&mut l.filters.substitutions.types, types(d)),
    ),
    active(
        "sub_filter_last_modified",
        LEVELS,
        "on|off",
        "off",
        "Whether responses keep `Last-Modified`, and a weak `ETag`, when text was replaced",
        |l, d, _| set(&mut l.filters.substitutions.keeps_modified, d.flag()),
    ),
    active(
        "ssi",
        LEVELS_IF,
        "on|off",
        "off",
        "Whether server-side includes in bodies are carried out",
        |l, d, _| set(&mut l.filters.has_ssi, d.flag()),
    ),
    active(
        "ssi_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types in which they are looked for beside `text/html`; `*` for all",
        |l, d, _| set(&mut l.filters.ssi.types, types(d)),
    ),
    active(
        "ssi_silent_errors",
        LEVELS,
        "on|off",
        "off",
        "Whether a command that fails leaves no text behind",
        |l, d, _| set(&mut l.filters.ssi.is_silent, d.flag()),
    ),
    active(
        "ssi_value_length",
        LEVELS,
        "length",
        "256",
        "How long a value in a command may be",
        |l, d, _| set(&mut l.filters.ssi.value_bytes_max, d.count(0)),
    ),
    active(
        "ssi_last_modified",
        LEVELS,
        "on|off",
        "off",
        "Whether responses keep `Last-Modified`, and a weak `ETag`, with server-side includes",
        |l, d, _| set(&mut l.filters.ssi.keeps_modified, d.flag()),
    ),
    silent("ssi_min_file_chunk", LEVELS, "size", "Pages are read in pieces in any case"),
];

/// Cookies that tell clients apart.
pub(super) const USERID: &[Row] = &[
    active(
        "userid",
        LEVELS,
        "on|v1|log|off",
        "off",
        "Cookies that tell clients apart: set and read, only read, or neither",
        |l, d, s| {
            l.filters.user_id.mode = match &*d.arg(0).text {
                b"on" => UserIdMode::On,
                b"v1" => UserIdMode::V1,
                b"log" => UserIdMode::Log,
                b"off" => UserIdMode::Off,
                _ => return Err(d.invalid(d.arg(0), "must be \"on\", \"v1\", \"log\" or \"off\"")),
            };
            // Where the configuration has a variable of this name, it says whether the cookie is set anew.
            l.filters.user_id.reset = template::template(b"$uid_reset", &s.names).ok();
            Ok(())
        },
    ),
    active("userid_name", LEVELS, "name", "uid", "The name of the cookie", |l, d, _| {
        l.filters.user_id.name = attribute(d)?;
        Ok(())
    }),
    active("userid_domain", LEVELS, "name|none", "none", "Its domain", |l, d, _| {
        let domain = attribute(d)?;
        l.filters.user_id_domain = (&*domain != "none").then_some(domain);
        Ok(())
    }),
    active("userid_path", LEVELS, "path", "/", "Its path", |l, d, _| {
        l.filters.user_id_path = attribute(d)?;
        Ok(())
    }),
    active(
        "userid_expires",
        LEVELS,
        "time|max|off",
        "off",
        "How long a browser keeps it",
        |l, d, _| {
            l.filters.user_id.expires = match &*d.arg(0).text {
                b"max" => UserIdExpires::Max,
                b"off" => UserIdExpires::Off,
                _ => UserIdExpires::After(d.time(0)?.as_secs()),
            };
            Ok(())
        },
    ),
    active(
        "userid_flags",
        LEVELS,
        "off|secure|httponly|samesite=strict|samesite=lax|samesite=none ...",
        "off",
        "Further attributes of it",
        |l, d, _| {
            // In nginx's order, in whatever order they stand.
            const FLAGS: [&str; 5] =
                ["secure", "httponly", "samesite=strict", "samesite=lax", "samesite=none"];
            let mut is_set = [false; FLAGS.len()];
            for word in d.args() {
                match FLAGS.iter().position(|flag| flag.as_bytes() == &*word.text) {
                    Some(at) => is_set[at] = true,
                    None if &*word.text == b"off" && d.args().len() == 1 => {}
                    None => return Err(d.invalid(word, "is no flag of a cookie")),
                }
            }
            let set = FLAGS.iter().zip(is_set).filter(|(_, is_set)| *is_set);
            let flags: Vec<&str> = set.flat_map(|(flag, _)| ["; ", flag]).collect();
            l.filters.user_id_flags = flags.concat().into();
            Ok(())
        },
    ),
    active(
        "userid_mark",
        LEVELS,
        "letter|digit|=|off",
        "off",
        "A sign in it; cookies with another one are set anew",
        |l, d, _| {
            l.filters.user_id.mark = match *d.arg(0).text {
                [mark] if mark.is_ascii_alphanumeric() || mark == b'=' => Some(mark),
                [b'o', b'f', b'f'] => None,
                _ => return Err(d.invalid(d.arg(0), "must be a letter, a digit, \"=\" or \"off\"")),
            };
            Ok(())
        },
    ),
    active("userid_p3p", LEVELS, "value|none", "none", "The field `P3P` beside it", |l, d, _| {
        let text = &d.arg(0).text;
        if text.iter().any(u8::is_ascii_control) {
            return Err(d.invalid(d.arg(0), "cannot stand in a header field"));
        }
        l.filters.user_id.p3p = (&**text != b"none").then(|| Arc::from(&**text));
        Ok(())
    }),
    active(
        "userid_service",
        LEVELS,
        "number|address",
        "address",
        "What the first four bytes say: a number, or the address that the request came to",
        |l, d, _| {
            if d.is_default {
                return Ok(());
            }
            let number = u32::try_from(d.number(0)?);
            let number = number.map_err(|_| d.invalid(d.arg(0), "must be below 4294967296"))?;
            l.filters.user_id.service = Some(number);
            Ok(())
        },
    ),
];

/// A path that is asked for within a request; `None` for `off`, where there is one, and for an empty one.
fn path(d: &Directive<'_>, may_be_off: bool) -> Result<Option<Arc<[u8]>>, Fault> {
    let word = d.arg(0);
    match &*word.text {
        b"off" if may_be_off => Ok(None),
        b"" => Ok(None),
        text if text.starts_with(b"/") => Ok(Some(Arc::from(text))),
        _ => Err(d.invalid(word, "must begin with \"/\"")),
    }
}

fn types(d: &Directive<'_>) -> Result<MediaTypes, Fault> {
    let types: Result<Vec<String>, Fault> =
        d.args().iter().map(|word| Ok(d.text(word)?.to_ascii_lowercase())).collect();
    Ok(MediaTypes(types?.into()))
}

/// A part of a cookie's field.
fn attribute(d: &Directive<'_>) -> Result<Arc<str>, Fault> {
    let word = d.arg(0);
    let text = d.text(word)?;
    if text.is_empty() || text.bytes().any(|byte| byte == b';' || byte.is_ascii_control()) {
        return Err(d.invalid(word, "cannot stand in a cookie"));
    }
    Ok(Arc::from(text))
}
