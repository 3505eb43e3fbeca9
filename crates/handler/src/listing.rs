//! Directories as pages (`autoindex`).

use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use sekisho_config::{Settings, Symlinks};
use sekisho_http::{Status, date, target};

use crate::reply::{Piece, Reply};
use crate::{answer, file_cache};

/// How many entries one page lists; the rest is counted and said so.
const ENTRIES_MAX: usize = 100_000;

struct Entry {
    name: Vec<u8>,
    is_dir: bool,
    size: u64,
    modified: i64,
}

/// Lists the directory `file` under the address `path`. The first `root_bytes` of `file` are the root.
pub fn reply(
    file: &[u8],
    root_bytes: usize,
    path: &[u8],
    settings: &Settings,
    utc_offset_secs: i32,
    product: &str,
    fields: &mut Vec<u8>,
) -> Reply {
    let Ok((entries, left_out)) = read(file, root_bytes, settings.disable_symlinks) else {
        return answer::page(Status::FORBIDDEN, product, fields);
    };
    let offset = if settings.autoindex_localtime { utc_offset_secs } else { 0 };
    fields.extend_from_slice(answer::HTML);
    Reply::of(Status::OK, Piece::Bytes(page(path, &entries, left_out, settings, offset)))
}

/// Reads what was opened as a file there would be, and looks at its entries from there (F2).
fn read(
    directory: &[u8],
    root_bytes: usize,
    symlinks: Symlinks,
) -> Result<(Vec<Entry>, usize), Errno> {
    let (descriptor, _) = file_cache::open(directory, root_bytes, symlinks)?;
    // A link that would not be followed to be read is not followed to be shown.
    let flags = match symlinks {
        Symlinks::Follow => AtFlags::empty(),
        Symlinks::Deny | Symlinks::IfSameOwner => AtFlags::SYMLINK_NOFOLLOW,
    };
    let mut entries = Vec::new();
    let mut left_out = 0;
    for entry in Dir::read_from(&descriptor)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            left_out += 1;
            continue;
        }
        // A link that leads nowhere, or a file that is gone by now, is not listed.
        let Ok(mut about) = rustix::fs::statat(&descriptor, name, flags) else { continue };
        if FileType::from_raw_mode(about.st_mode) == FileType::Symlink {
            let target = rustix::fs::statat(&descriptor, name, AtFlags::empty());
            match target {
                Ok(target)
                    if symlinks == Symlinks::IfSameOwner && target.st_uid == about.st_uid =>
                {
                    about = target;
                }
                _ => continue,
            }
        }
        entries.push(Entry {
            name: name.to_bytes().to_vec(),
            is_dir: FileType::from_raw_mode(about.st_mode) == FileType::Directory,
            size: about.st_size as u64,
            modified: about.st_mtime.max(0),
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
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{lchown, symlink};

    /// F2: what may not be read because of a link is not listed either.
    #[test]
    fn links_are_judged_as_they_are_for_files() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).expect("a folder");
        std::fs::write(at("folder/file"), "text").expect("a file");
        symlink("file", at("folder/link")).expect("a link");
        symlink("file", at("folder/others")).expect("a link");
        symlink("nowhere", at("folder/nowhere")).expect("a link");
        symlink("folder", at("way")).expect("a link");
        // Only root can make a link that is another's.
        let is_root = lchown(at("folder/others"), Some(12345), None).is_ok();
        let root = dir.path().as_os_str().as_bytes();
        let list = |name: &str, symlinks| {
            let path = at(name);
            let read = read(path.as_os_str().as_bytes(), root.len(), symlinks)?;
            let names = read.0.into_iter().map(|entry| String::from_utf8(entry.name));
            Ok::<_, Errno>(names.collect::<Result<Vec<_>, _>>().expect("names"))
        };
        let follow = list("way", Symlinks::Follow).expect("listed");
        assert_eq!(follow, ["file", "link", "others"]);
        assert!(list("way", Symlinks::Deny).is_err());
        assert_eq!(list("folder", Symlinks::Deny).expect("listed"), ["file"]);
        if is_root {
            let owned = list("way", Symlinks::IfSameOwner).expect("listed");
            assert_eq!(owned, ["file", "link"]);
        }
    }

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
