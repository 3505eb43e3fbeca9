//! Object storage (S3 and what speaks like it, Azure Blob Storage) without its connections: which request does what, how it is signed,
//! and what an answer says. Keys, bytes and the time come in; requests and results come out. Nothing is sent here.
#![forbid(unsafe_code)]

mod answer;
mod azure;
mod credentials;
mod place;
mod request;
mod sign;
mod tree;

pub use answer::{Entry, Page, Part, Refusal, Upload, list_page, parts, upload_id, uploads};
pub use credentials::Credentials;
pub use place::{Draft, Place, Service};
pub use request::Scope;
pub use sign::sign;

/// The smallest part of a multipart upload that is not the last (S3).
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// How many parts an upload may have (S3).
pub const PARTS_MAX: u64 = 10_000;
/// The largest object that is copied in one request (S3).
const COPY_BYTES_MAX: u64 = 5 << 30;

/// How large the parts of an upload are: the configured size, or more where an upload of this length would have
/// too many. An upload of unknown length may become as large as its parts allow.
pub fn part_bytes(configured: u64, total: Option<u64>) -> u64 {
    let configured = configured.max(PART_BYTES_MIN);
    total.map_or(configured, |total| configured.max(total.div_ceil(PARTS_MAX)))
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
}
