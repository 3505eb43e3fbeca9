//! What is compressed, and how: `gzip`, `brotli`, `zstd`, and neighbours that are compressed already.

use std::sync::Arc;

use sekisho_http::{Coding, Version};

use crate::model::Pattern;

/// Everything about compression that holds in a location.
#[derive(Clone, Debug)]
pub struct Compression {
    /// For each coding, in the order of [`Coding::ALL`].
    by_coding: [OneCoding; Coding::COUNT],
    /// `gzip_http_version`: the least version of a request.
    pub http_version: Version,
    /// `gzip_proxied`
    pub proxied: Proxied,
    /// `gzip_disable`
    pub disable: Arc<[NoGzipFor]>,
    /// `gzip_vary`
    pub vary: bool,
}

/// What holds for one coding.
#[derive(Clone, Debug, Default)]
pub struct OneCoding {
    /// `gzip`, `brotli`, `zstd`
    pub is_on: bool,
    /// `gzip_static`, `brotli_static`, `zstd_static`
    pub neighbour: Neighbour,
    /// `gzip_comp_level`, …
    pub level: u8,
    /// `gzip_types`, …: lower case; `*` is every type. `text/html` is always one.
    pub types: Arc<[String]>,
    /// `gzip_min_length`, …
    pub length_min: u64,
}

/// `gzip_static`, …
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Neighbour {
    /// Not looked for.
    #[default]
    Off,
    /// For clients that take the coding.
    On,
    /// For all clients.
    Always,
}

/// A word of `gzip_disable`.
#[derive(Clone, Debug)]
pub enum NoGzipFor {
    /// `msie6`: Internet Explorer 4 to 6, but for the second service pack of Windows XP.
    Msie6,
    /// An expression for `User-Agent`, in any case.
    UserAgent(Arc<Pattern>),
}

/// `gzip_proxied`: which answers to requests with `Via` are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each word of the directive")]
pub struct Proxied {
    /// `any`: all of them.
    pub any: bool,
    /// `expired`: those whose `Expires` is over.
    pub expired: bool,
    /// `no-cache`: those with this word in `Cache-Control`.
    pub no_cache: bool,
    /// `no-store`: the same.
    pub no_store: bool,
    /// `private`: the same.
    pub private: bool,
    /// `no_last_modified`: those without `Last-Modified`.
    pub no_last_modified: bool,
    /// `no_etag`: those without `ETag`.
    pub no_etag: bool,
    /// `auth`: where the request has `Authorization`.
    pub auth: bool,
}

impl Proxied {
    /// `off`: none of them.
    pub fn is_off(self) -> bool {
        self == Self::default()
    }
}

impl Compression {
    /// What holds for a coding.
    pub fn of(&self, coding: Coding) -> &OneCoding {
        &self.by_coding[coding as usize]
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, coding: Coding) -> &mut OneCoding {
        &mut self.by_coding[coding as usize]
    }

    /// Whether anything is compressed on the fly.
    pub fn is_on(&self) -> bool {
        self.by_coding.iter().any(|coding| coding.is_on)
    }

    /// Whether neighbours are looked for.
    pub fn has_neighbours(&self) -> bool {
        self.by_coding.iter().any(|coding| coding.neighbour != Neighbour::Off)
    }
}

/// Nothing is compressed.
impl Default for Compression {
    fn default() -> Self {
        Self {
            by_coding: Default::default(),
            http_version: Version::Http11,
            proxied: Proxied::default(),
            disable: Arc::default(),
            vary: true,
        }
    }
}

impl OneCoding {
    /// Whether an answer of this type is compressed, as far as that goes. `media_type` may have parameters.
    pub fn takes_type(&self, media_type: &[u8]) -> bool {
        let essence = essence(media_type);
        if is_compressed_already(essence) {
            return false;
        }
        essence.eq_ignore_ascii_case(b"text/html")
            || self.types.iter().any(|known| {
                known == "*"
                    || (!essence.is_empty() && essence.eq_ignore_ascii_case(known.as_bytes()))
            })
    }
}

/// A media type without its parameters.
fn essence(media_type: &[u8]) -> &[u8] {
    media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Whether content of this type is compressed by its nature: to do it again would only cost.
pub fn is_compressed_already(essence: &[u8]) -> bool {
    const PACKED: [&str; 22] = [
        "application/epub+zip",
        "application/gzip",
        "application/java-archive",
        "application/ogg",
        "application/vnd.rar",
        "application/x-7z-compressed",
        "application/x-bzip2",
        "application/x-compress",
        "application/x-gzip",
        "application/x-rar-compressed",
        "application/x-tgz",
        "application/x-xz",
        "application/x-zip-compressed",
        "application/zip",
        "application/zstd",
        "font/woff",
        "font/woff2",
        "application/font-woff",
        "application/font-woff2",
        "application/vnd.android.package-archive",
        "application/x-bzip",
        "application/x-lzma",
    ];
    /// Pictures and sounds that are not.
    const PLAIN: [&str; 10] = [
        "image/svg+xml",
        "image/bmp",
        "image/x-ms-bmp",
        "image/x-icon",
        "image/vnd.microsoft.icon",
        "image/tiff",
        "audio/wav",
        "audio/x-wav",
        "audio/midi",
        "image/x-portable-pixmap",
    ];
    let is = |known: &&str| essence.eq_ignore_ascii_case(known.as_bytes());
    let begins = |kind: &str| {
        essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind.as_bytes()))
    };
    let is_media = begins("image/") || begins("video/") || begins("audio/");
    PACKED.iter().any(is) || (is_media && !PLAIN.iter().any(is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_taken_by_name_and_never_when_it_is_compressed_already() {
        let one = |types: &[&str]| OneCoding {
            types: types.iter().map(|word| (*word).to_owned()).collect(),
            ..OneCoding::default()
        };
        let (none, some, all) = (one(&[]), one(&["text/css", "image/png"]), one(&["*"]));
        for (media_type, expected) in [
            ("text/html", [true, true, true]),
            ("Text/HTML; charset=utf-8", [true, true, true]),
            ("text/css", [false, true, true]),
            ("TEXT/CSS ; x=y", [false, true, true]),
            ("text/csss", [false, false, true]),
            ("", [false, false, true]),
            ("image/png", [false, false, false]),
            ("IMAGE/JPEG", [false, false, false]),
            ("image/svg+xml", [false, false, true]),
            ("video/mp4", [false, false, false]),
            ("application/zip", [false, false, false]),
            ("font/woff2", [false, false, false]),
            ("font/ttf", [false, false, true]),
            ("application/wasm", [false, false, true]),
        ] {
            let taken = [&none, &some, &all].map(|one| one.takes_type(media_type.as_bytes()));
            assert_eq!(taken, expected, "{media_type}");
        }
    }
}
