//! Directories as pages (`autoindex`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use sekisho_config::Settings;
use sekisho_http::{Status, date, target};

use crate::answer;
use crate::reply::{Piece, Reply};

/// How many entries one page lists; the rest is counted and said so.
const ENTRIES_MAX: usize = 100_000;

struct Entry {
    name: Vec<u8>,
    is_dir: bool,
    size: u64,
    modified: i64,
}

/// Lists the directory `file` under the address `path`.
pub fn reply(
    file: &[u8],
    path: &[u8],
    settings: &Settings,
    utc_offset_secs: i32,
    product: &str,
    fields: &mut Vec<u8>,
) -> Reply {
    let Ok((entries, left_out)) = read(Path::new(OsStr::from_bytes(file))) else {
        return answer::page(Status::FORBIDDEN, product, fields);
    };
    let offset = if settings.autoindex_localtime { utc_offset_secs } else { 0 };
    fields.extend_from_slice(answer::HTML);
    Reply::of(Status::OK, Piece::Bytes(page(path, &entries, left_out, settings, offset)))
}

fn read(directory: &Path) -> io::Result<(Vec<Entry>, usize)> {
    let mut entries = Vec::new();
    let mut left_out = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_encoded_bytes();
        if name.starts_with(b".") {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            left_out += 1;
            continue;
        }
        // A link that leads nowhere, or a file that is gone by now, is not listed.
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        let modified = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        entries.push(Entry {
            name,
            is_dir: about.is_dir(),
            size: about.len(),
            modified: modified.map_or(0, |since| since.as_secs() as i64),
        });
    }
    entries.sort_unstable_by(|a, b| b.is_dir.cmp(&a.is_dir).then_with(|| a.name.cmp(&b.name)));
    Ok((entries, left_out))
}

fn page(
    path: &[u8],
    entries: &[Entry],
    left_out: usize,
    settings: &Settings,
    utc_offset_secs: i32,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024 + entries.len() * 160);
    out.extend_from_slice(
        b"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>Index of ",
    );
    escape(path, &mut out);
    out.extend_from_slice(
        b"</title><style>:root{color-scheme:light dark}\
body{font:1rem/1.6 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem}table{border-collapse:collapse;width:100%}td{padding:.1rem .6rem .1rem 0}\
td+td{text-align:right;white-space:nowrap;opacity:.7;font-variant-numeric:tabular-nums}</style></head>\n\
<body><h1>Index of ",
    );
    escape(path, &mut out);
    out.extend_from_slice(b"</h1>\n<table>\n");
    if path != b"/" {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        row(entry, settings, utc_offset_secs, &mut out);
    }
    out.extend_from_slice(b"</table>\n");
    if left_out > 0 {
        out.extend_from_slice(format!("<p>and {left_out} more</p>\n").as_bytes());
    }
    out.extend_from_slice(b"</body></html>\n");
    out
}

fn row(entry: &Entry, settings: &Settings, utc_offset_secs: i32, out: &mut Vec<u8>) {
    let slash: &[u8] = if entry.is_dir { b"/" } else { b"" };
    out.extend_from_slice(b"<tr><td><a href=\"");
    // `./` keeps a name with a colon from being read as a scheme.
    out.extend_from_slice(b"./");
    target::encode_path(&entry.name, out);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"\">");
    escape(&entry.name, out);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"</a></td><td>");
    let at = date::civil(entry.modified + i64::from(utc_offset_secs));
    let text =
        format!("{:04}-{:02}-{:02} {:02}:{:02}", at.year, at.month, at.day, at.hour, at.minute);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"</td><td>");
    if entry.is_dir {
        out.push(b'-');
    } else if settings.autoindex_exact_size {
        out.extend_from_slice(entry.size.to_string().as_bytes());
    } else {
        out.extend_from_slice(short_size(entry.size).as_bytes());
    }
    out.extend_from_slice(b"</td></tr>\n");
}

fn short_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 10_000 && unit + 1 < UNITS.len() {
        value = value.div_ceil(1024);
        unit += 1;
    }
    format!("{value}{}", UNITS[unit])
}

/// Text into HTML; bytes that are no UTF-8 are shown as replacement marks.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'&' => out.extend_from_slice(b"&amp;"),
                b'<' => out.extend_from_slice(b"&lt;"),
                b'>' => out.extend_from_slice(b"&gt;"),
                b'"' => out.extend_from_slice(b"&quot;"),
                b'\'' => out.extend_from_slice(b"&#39;"),
                byte => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_escaped() {
        let mut out = Vec::new();
        escape(b"<b>&\"'\xff", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(0, "0"), (9999, "9999"), (10_240, "10K"), (20 << 20, "20M")] {
            assert_eq!(short_size(bytes), text);
        }
    }
}
