//! The head of an entry on disk: everything but the body, which follows it in the same file. Checksums over
//! both, and lengths that must fit the file: an incomplete entry is no entry (U5).
//!
//! The length of a head is known before its body has come. The shell leaves that much room in a temporary
//! file, writes the body behind it, then the head, and gives the file its name.

use std::fmt;

use sekisho_http::upstream::ResponseHead;
use sekisho_http::{Fields, Status, Version};

use super::freshness::Lifetime;

/// The name and version of the format.
const MAGIC: [u8; 8] = *b"SKCACHE1";
/// Magic, length and checksum.
pub const PREFIX_BYTES: usize = 16;
/// A head is never longer.
pub const HEAD_BYTES_MAX: usize = 256 * 1024;

/// What is kept beside a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The value of `proxy_cache_key`.
    pub key: Vec<u8>,
    /// What the answer varies by; empty where it does not.
    pub vary: Vec<u8>,
    /// The hash of the variant; that of the key where it does not vary.
    pub variant: [u8; 16],
    /// How long it may be given.
    pub lifetime: Lifetime,
    /// The status.
    pub status: Status,
    /// The fields.
    pub fields: Fields,
    /// How long the body is.
    pub body_bytes: u64,
    /// The CRC-32 of the body.
    pub body_checksum: u32,
}

/// Why a file is no entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Damaged {
    /// It ends before its head does.
    Short,
    /// It is something else, or of another version.
    Foreign,
    /// Its head is longer than any may be.
    TooLong,
    /// The checksum of the head does not fit.
    Checksum,
    /// The parts of the head do not fit into it.
    Malformed,
    /// The file is shorter or longer than head and body are.
    Length,
    /// It belongs to another key with the same hash.
    OtherKey,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "cache file is too short",
            Self::Foreign => "cache file has another format",
            Self::TooLong => "cache file has too long a header",
            Self::Checksum => "cache file has a wrong checksum",
            Self::Malformed => "cache file has a malformed header",
            Self::Length => "cache file is truncated or too long",
            Self::OtherKey => "cache file belongs to another key",
        })
    }
}

impl std::error::Error for Damaged {}

/// How many bytes the head of a file has, by its first 16; more must be read to [`decode`] it.
pub fn head_bytes(prefix: &[u8]) -> Result<usize, Damaged> {
    let (magic, rest) = prefix.split_first_chunk::<8>().ok_or(Damaged::Short)?;
    if *magic != MAGIC {
        return Err(Damaged::Foreign);
    }
    let len = rest.first_chunk::<4>().ok_or(Damaged::Short)?;
    let len = u32::from_le_bytes(*len) as usize;
    match len {
        0..PREFIX_BYTES => Err(Damaged::Malformed),
        PREFIX_BYTES..=HEAD_BYTES_MAX => Ok(len),
        _ => Err(Damaged::TooLong),
    }
}

/// Reads the key of an entry from its head.
pub fn key(bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
    head(bytes).map(|(_, entry)| entry.key)
}

fn head(bytes: &[u8]) -> Result<(usize, Entry), Damaged> {
    let len = head_bytes(bytes)?;
    let head = bytes.get(..len).ok_or(Damaged::Short)?;
    let (_, rest) = head.split_at_checked(12).ok_or(Damaged::Short)?;
    let (checksum, content) = rest.split_first_chunk::<4>().ok_or(Damaged::Short)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return Err(Damaged::Checksum);
    }
    Ok((len, Reader(content).entry().ok_or(Damaged::Malformed)?))
}

/// Reads the head of an entry from the beginning of a file of this length.
pub fn decode(bytes: &[u8], file_bytes: u64, key: &[u8]) -> Result<Entry, Damaged> {
    let (len, entry) = head(bytes)?;
    if (len as u64).checked_add(entry.body_bytes) != Some(file_bytes) {
        return Err(Damaged::Length);
    }
    if entry.key != key {
        return Err(Damaged::OtherKey);
    }
    Ok(entry)
}

impl Entry {
    /// Writes the head of a file. Its length does not depend on the body.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; PREFIX_BYTES - MAGIC.len()]);
        let Lifetime { stored, valid_until, .. } = self.lifetime;
        for number in [stored, valid_until] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let Lifetime { age, stale_while_revalidate, stale_if_error, .. } = self.lifetime;
        for number in [age, stale_while_revalidate, stale_if_error, self.body_checksum] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(self.lifetime.must_revalidate));
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        out.extend_from_slice(&self.status.code().to_le_bytes());
        out.extend_from_slice(&self.variant);
        push_text(out, &self.key);
        push_text(out, &self.vary);
        out.extend_from_slice(&(self.fields.len() as u32).to_le_bytes());
        for (name, value) in self.fields.iter() {
            push_text(out, name);
            push_text(out, value);
        }
        let len = out.len() - start;
        if len > HEAD_BYTES_MAX {
            out.truncate(start);
            return Err(Damaged::TooLong);
        }
        let checksum = crc32fast::hash(&out[start + PREFIX_BYTES..]);
        out[start + 8..start + 12].copy_from_slice(&(len as u32).to_le_bytes());
        out[start + 12..start + 16].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    /// The head of the answer, as if it had just come.
    pub fn response_head(&self) -> ResponseHead {
        ResponseHead {
            status: self.status,
            version: Version::Http11,
            reason: Vec::new(),
            fields: self.fields.clone(),
            content_length: Some(self.body_bytes),
            has_body: self.body_bytes > 0,
        }
    }
}

/// Counts and sums a body as it comes.
#[derive(Clone, Debug, Default)]
pub struct BodySum {
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl BodySum {
    /// Takes bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    /// How many there were, and their checksum.
    pub fn finish(self) -> (u64, u32) {
        (self.bytes, self.hasher.finalize())
    }

    /// Whether they are the body of this entry.
    pub fn fits(self, entry: &Entry) -> bool {
        self.finish() == (entry.body_bytes, entry.body_checksum)
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn entry(&mut self) -> Option<Entry> {
        let stored = i64::from_le_bytes(self.array()?);
        let valid_until = i64::from_le_bytes(self.array()?);
        let [age, stale_while_revalidate, stale_if_error, body_checksum] =
            [self.number()?, self.number()?, self.number()?, self.number()?];
        let must_revalidate = match self.array::<1>()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let body_bytes = u64::from_le_bytes(self.array()?);
        let status = Status::new(u16::from_le_bytes(self.array()?))?;
        let variant = self.array()?;
        let key = self.text()?.to_vec();
        let vary = self.text()?.to_vec();
        let mut fields = Fields::default();
        for _ in 0..self.number()? {
            let (name, value) = (self.text()?, self.text()?);
            fields.push(name, value);
        }
        let lifetime = Lifetime {
            stored,
            age,
            valid_until,
            stale_while_revalidate,
            stale_if_error,
            must_revalidate,
        };
        self.0.is_empty().then_some(Entry {
            key,
            vary,
            variant,
            lifetime,
            status,
            fields,
            body_bytes,
            body_checksum,
        })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Key;

    fn entry() -> Entry {
        let mut sum = BodySum::default();
        sum.update(b"hel");
        sum.update(b"lo");
        let (body_bytes, body_checksum) = sum.finish();
        Entry {
            key: b"http://a/".to_vec(),
            vary: b"Accept".to_vec(),
            variant: Key::new(b"v").0,
            lifetime: Lifetime {
                stored: 7,
                age: 1,
                valid_until: -5,
                stale_while_revalidate: 2,
                stale_if_error: 3,
                must_revalidate: true,
            },
            status: Status::NOT_FOUND,
            fields: [("A", "b"), ("A", ""), ("Content-Type", "x")].into_iter().collect(),
            body_bytes,
            body_checksum,
        }
    }

    fn encoded(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::new();
        entry.encode(&mut out).expect("short enough");
        out
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = entry();
        let bytes = encoded(&entry);
        assert_eq!(head_bytes(&bytes[..16]), Ok(bytes.len()));
        assert_eq!(decode(&bytes, bytes.len() as u64 + 5, &entry.key), Ok(entry.clone()));
        let empty = Entry { body_bytes: 0, body_checksum: 0, ..entry.clone() };
        assert_eq!(encoded(&empty).len(), bytes.len(), "room can be left for it");
        let mut sum = BodySum::default();
        sum.update(b"hello");
        assert!(sum.clone().fits(&entry));
        sum.update(b"!");
        assert!(!sum.fits(&entry));
        assert!(entry.response_head().has_body);
    }

    /// U5: whole, or none.
    #[test]
    fn whatever_is_missing_or_changed_makes_it_no_entry() {
        let entry = entry();
        let bytes = encoded(&entry);
        let file = bytes.len() as u64 + entry.body_bytes;
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], file, &entry.key), Err(Damaged::Short), "{len}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(decode(&changed, file, &entry.key).is_err(), "{at} {bit}");
            }
        }
        assert_eq!(decode(&bytes, file - 1, &entry.key), Err(Damaged::Length));
        assert_eq!(decode(&bytes, file + 1, &entry.key), Err(Damaged::Length));
        assert_eq!(decode(&bytes, file, b"other"), Err(Damaged::OtherKey));
        assert_eq!(decode(&vec![0; bytes.len()], file, &entry.key), Err(Damaged::Foreign));
        let long = Entry { key: vec![b'k'; HEAD_BYTES_MAX], ..entry };
        let mut out = vec![1];
        assert_eq!((long.encode(&mut out), out), (Err(Damaged::TooLong), vec![1]));
    }
}
