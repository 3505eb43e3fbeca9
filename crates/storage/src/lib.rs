//! Object storage (S3, and what speaks like it) without its connections: which request does what, how it is signed,
//! and what an answer says. Keys, bytes and the time come in; requests and results come out. Nothing is sent here.
#![forbid(unsafe_code)]

mod answer;
mod credentials;
mod place;
mod sign;
mod tree;

pub use answer::{
    Entry, Page, Part, Refusal, Upload, copied, list_page, parts, upload_id, uploads,
};
pub use credentials::Credentials;
pub use place::{Draft, Place, Query};
pub use sign::sign;

/// The smallest part of a multipart upload that is not the last (S3).
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// How many parts an upload may have (S3).
pub const PARTS_MAX: u64 = 10_000;
/// The largest object that is copied in one request (S3).
pub const COPY_BYTES_MAX: u64 = 5 << 30;

/// How large the parts of an upload are: the configured size, or more where an upload of this length would have
/// too many. An upload of unknown length may become as large as its parts allow.
pub fn part_bytes(configured: u64, total: Option<u64>) -> u64 {
    let configured = configured.max(PART_BYTES_MIN);
    total.map_or(configured, |total| configured.max(total.div_ceil(PARTS_MAX)))
}

/// The body that completes an upload of these parts: their numbers and entity tags.
pub fn completion<'a>(parts: impl IntoIterator<Item = (u32, &'a str)>) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut out =
        String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (number, tag) in parts {
        let tag = quick_xml::escape::escape(tag);
        // Writing to a string cannot fail.
        let _ = write!(out, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    out.push_str("</CompleteMultipartUpload>");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_configured_unless_there_would_be_too_many() {
        const MIB: u64 = 1 << 20;
        for (configured, total, expected) in [
            (8 * MIB, None, 8 * MIB),
            (8 * MIB, Some(1), 8 * MIB),
            (MIB, Some(1), 5 * MIB),
            (8 * MIB, Some(80_000 * MIB), 8 * MIB),
            (8 * MIB, Some(80_000 * MIB + 1), 8 * MIB + 1),
        ] {
            assert_eq!(part_bytes(configured, total), expected, "{configured} {total:?}");
        }
    }

    #[test]
    fn a_completion_names_every_part() {
        let body = completion([(1, "\"a\""), (2, "\"b\"")]);
        let text = String::from_utf8(body).expect("text");
        assert!(text.contains("<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"));
        assert!(text.ends_with("</Part></CompleteMultipartUpload>"), "{text}");
    }
}
