//! What is compressed on the fly, and which files have neighbours that are compressed already.

use std::sync::Arc;

use sekisho_http::{Coding, Version};

use super::{LEVELS, LEVELS_IF, Row, active, set, silent};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Compression, Neighbour, NoGzipFor, Proxied, is_compressed_already};
use crate::names::regex_of;

pub(super) const ROWS: &[Row] = &[
    active(
        "gzip",
        LEVELS_IF,
        "on|off",
        "off",
        "Whether answers are compressed with gzip",
        |l, d, _| set(&mut of(l, Coding::Gzip).is_on, d.flag()),
    ),
    active(
        "gzip_comp_level",
        LEVELS,
        "level",
        "1",
        "The level of gzip, from 1 (fast) to 9 (small)",
        |l, d, _| level(l, d, Coding::Gzip, 1, 9),
    ),
    active(
        "gzip_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types that gzip compresses in addition to `text/html`; `*` for all that are not compressed already",
        |l, d, s| types(l, d, s, Coding::Gzip),
    )
    .repeated(),
    active(
        "gzip_min_length",
        LEVELS,
        "length",
        "20",
        "Shorter answers are not compressed, if the length is known",
        |l, d, _| set(&mut of(l, Coding::Gzip).length_min, d.size(0)),
    ),
    active(
        "gzip_http_version",
        LEVELS,
        "1.0|1.1",
        "1.1",
        "The lowest HTTP version of requests whose answers are compressed",
        |l, d, _| {
            compression(l).http_version = match &*d.arg(0).text {
                b"1.0" => Version::Http10,
                b"1.1" => Version::Http11,
                _ => return Err(d.invalid(d.arg(0), "must be \"1.0\" or \"1.1\"")),
            };
            Ok(())
        },
    ),
    active(
        "gzip_proxied",
        LEVELS,
        "off|expired|no-cache|no-store|private|no_last_modified|no_etag|auth|any ...",
        "off",
        "Which answers to requests with `Via` are compressed",
        proxied,
    )
    .repeated(),
    active(
        "gzip_disable",
        LEVELS,
        "regex ...",
        "",
        "No gzip for these `User-Agent`s; `msie6` stands for Internet Explorer 4 to 6",
        disable,
    )
    .repeated(),
    active(
        "gzip_vary",
        LEVELS,
        "on|off",
        "on",
        "Whether answers that depend on `Accept-Encoding` say so in `Vary` (nginx: off; without it a shared cache may send the wrong one)",
        |l, d, _| set(&mut compression(l).vary, d.flag()),
    ),
    active(
        "gzip_static",
        LEVELS,
        "on|off|always",
        "off",
        "Whether `file.gz` is served for `file`; `always` to every client",
        |l, d, _| neighbour(l, d, Coding::Gzip),
    ),
    active(
        "brotli",
        LEVELS_IF,
        "on|off",
        "off",
        "Whether answers are compressed with brotli",
        |l, d, _| set(&mut of(l, Coding::Brotli).is_on, d.flag()),
    ),
    active(
        "brotli_comp_level",
        LEVELS,
        "level",
        "4",
        "The level of brotli, from 0 (fast) to 11 (small); 10 and 11 are too slow for requests (`ngx_brotli`: 6)",
        |l, d, _| level(l, d, Coding::Brotli, 0, 11),
    ),
    active(
        "brotli_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types that brotli compresses in addition to `text/html`; `*` as for `gzip_types`",
        |l, d, s| types(l, d, s, Coding::Brotli),
    )
    .repeated(),
    active(
        "brotli_min_length",
        LEVELS,
        "length",
        "20",
        "Shorter answers are not compressed, if the length is known",
        |l, d, _| set(&mut of(l, Coding::Brotli).length_min, d.size(0)),
    ),
    active(
        "brotli_static",
        LEVELS,
        "on|off|always",
        "off",
        "Whether `file.br` is served for `file`; `always` to every client",
        |l, d, _| neighbour(l, d, Coding::Brotli),
    ),
    active(
        "zstd",
        LEVELS_IF,
        "on|off",
        "off",
        "Whether answers are compressed with zstd",
        |l, d, _| set(&mut of(l, Coding::Zstd).is_on, d.flag()),
    ),
    active(
        "zstd_comp_level",
        LEVELS,
        "level",
        "3",
        "The level of zstd, from 1 (fast) to 22 (small; nginx's module: 1)",
        |l, d, _| level(l, d, Coding::Zstd, 1, 22),
    ),
    active(
        "zstd_types",
        LEVELS,
        "type ...",
        "text/html",
        "Media types that zstd compresses in addition to `text/html`; `*` as for `gzip_types`",
        |l, d, s| types(l, d, s, Coding::Zstd),
    )
    .repeated(),
    active(
        "zstd_min_length",
        LEVELS,
        "length",
        "20",
        "Shorter answers are not compressed, if the length is known",
        |l, d, _| set(&mut of(l, Coding::Zstd).length_min, d.size(0)),
    ),
    active(
        "zstd_static",
        LEVELS,
        "on|off|always",
        "off",
        "Whether `file.zst` is served for `file`; `always` to every client",
        |l, d, _| neighbour(l, d, Coding::Zstd),
    ),
    silent("gzip_buffers", LEVELS, "number size", "The server manages its buffers"),
    silent("brotli_buffers", LEVELS, "number size", "The server manages its buffers"),
    silent("zstd_buffers", LEVELS, "number size", "The server manages its buffers"),
    silent("brotli_window", LEVELS, "size", "The window is 256k, and less for shorter answers"),
];

fn compression(l: &mut Level) -> &mut Compression {
    Arc::make_mut(&mut l.settings.compression)
}

fn of(l: &mut Level, coding: Coding) -> &mut crate::model::OneCoding {
    compression(l).of_mut(coding)
}

fn level(
    l: &mut Level,
    d: &Directive<'_>,
    coding: Coding,
    least: u8,
    most: u8,
) -> Result<(), Fault> {
    let number = u8::try_from(d.number(0)?).ok().filter(|level| (least..=most).contains(level));
    let wrong = || d.invalid(d.arg(0), &format!("must be from {least} to {most}"));
    of(l, coding).level = number.ok_or_else(wrong)?;
    Ok(())
}

fn neighbour(l: &mut Level, d: &Directive<'_>, coding: Coding) -> Result<(), Fault> {
    of(l, coding).neighbour = match &*d.arg(0).text {
        b"off" => Neighbour::Off,
        b"on" => Neighbour::On,
        b"always" => Neighbour::Always,
        _ => return Err(d.invalid(d.arg(0), "must be \"on\", \"off\" or \"always\"")),
    };
    Ok(())
}

fn types(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>, coding: Coding) -> Result<(), Fault> {
    let mut types = Vec::with_capacity(d.args().len());
    if !d.is_first_of(l) {
        types.extend_from_slice(&of(l, coding).types);
    }
    for word in d.args() {
        let text = d.text(word)?.to_ascii_lowercase();
        if text != "*" && !text.contains('/') {
            s.warn(word.span, format!("\"{text}\" is not a media type and is ignored"));
            continue;
        }
        if is_compressed_already(text.as_bytes()) {
            s.warn(word.span, format!("\"{text}\" is compressed already and is sent as it is"));
        } else if text == "text/html" && !d.is_default {
            s.warn(word.span, "\"text/html\" is always compressed, where anything is");
        } else if types.contains(&text) {
            s.warn(word.span, format!("duplicate media type \"{text}\""));
        } else {
            types.push(text);
        }
    }
    of(l, coding).types = types.into();
    Ok(())
}

fn proxied(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut proxied = if d.is_first_of(l) { Proxied::default() } else { compression(l).proxied };
    for word in d.args() {
        match &*word.text {
            b"off" if d.args().len() == 1 => {}
            b"any" => proxied.any = true,
            b"expired" => proxied.expired = true,
            b"no-cache" => proxied.no_cache = true,
            b"no-store" => proxied.no_store = true,
            b"private" => proxied.private = true,
            b"no_last_modified" => proxied.no_last_modified = true,
            b"no_etag" => proxied.no_etag = true,
            b"auth" => proxied.auth = true,
            b"off" => return Err(d.invalid(word, "stands alone")),
            _ => return Err(d.invalid(word, "is not a valid value")),
        }
    }
    compression(l).proxied = proxied;
    Ok(())
}

fn disable(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut disable = Vec::with_capacity(d.args().len());
    if !d.is_first_of(l) {
        disable.extend(compression(l).disable.iter().cloned());
    }
    for word in d.args() {
        disable.push(match &*word.text {
            b"msie6" => NoGzipFor::Msie6,
            source => NoGzipFor::UserAgent(regex_of(word, source, true)?),
        });
    }
    compression(l).disable = disable.into();
    Ok(())
}
