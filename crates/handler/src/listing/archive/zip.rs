//! ZIP as a stream (APPNOTE 6.3): sizes and checksums follow the content of each file, and the directory
//! of all files comes last. Content is not compressed but is in stored blocks of a deflate stream, so that a
//! reader that cannot seek finds its end as well.

use std::borrow::Cow;

use sekisho_http::date;

/// The most that one stored block holds.
pub(super) const BLOCK_BYTES_MAX: usize = 65_535;
/// From this size on, numbers of 64 bits are needed: blocks have a little head each.
const LARGE_BYTES: u64 = 0xfff0_0000;
const MAX_32: u64 = 0xffff_ffff;
const MAX_16: u64 = 0xffff;

const DEFLATED: u16 = 8;
const STORED: u16 = 0;
/// The checksum and the sizes follow the content.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
const MADE_ON_UNIX: u16 = 0x032d;

/// So many records of the directory are written at a time.
const DIRECTORY_SLICE: usize = 1000;

/// What the directory will say of an entry.
#[derive(Clone, Copy, Debug)]
struct Record {
    name_at: usize,
    name_bytes: u16,
    is_folder: bool,
    is_large: bool,
    modified: i64,
    crc: u32,
    size: u64,
    packed: u64,
    offset: u64,
}

/// An archive that is being written.
#[derive(Debug, Default)]
pub(super) struct Zip {
    names: Vec<u8>,
    records: Vec<Record>,
    crc: crc32fast::Hasher,
    /// How many bytes have been written.
    written: u64,
    /// Where the directory began, and how many of its records have been written.
    directory: Option<(u64, usize)>,
}

impl Zip {
    /// How much memory it holds.
    pub(super) fn weight(&self) -> usize {
        self.names.capacity() + self.records.capacity() * size_of::<Record>()
    }

    /// A folder; its name ends with a slash.
    pub(super) fn folder(&mut self, name: &[u8], modified: i64, out: &mut Vec<u8>) {
        self.begin(name, true, 0, modified, out);
    }

    /// A file of about this size; its content follows.
    pub(super) fn begin_file(&mut self, name: &[u8], size: u64, modified: i64, out: &mut Vec<u8>) {
        self.begin(name, false, size, modified, out);
        self.crc = crc32fast::Hasher::new();
    }

    fn begin(&mut self, name: &[u8], is_folder: bool, size: u64, at: i64, out: &mut Vec<u8>) {
        // Some unpackers take a backslash for a slash: `a\\..\\..\\x` would climb (V18).
        let name = &*portable(name);
        let start = out.len();
        let record = Record {
            name_at: self.names.len(),
            name_bytes: name.len().min(usize::from(u16::MAX)) as u16,
            is_folder,
            is_large: size >= LARGE_BYTES,
            modified: at,
            crc: 0,
            size: 0,
            packed: 0,
            offset: self.written,
        };
        self.names.extend_from_slice(name);
        self.records.push(record);
        put_32(out, 0x0403_4b50);
        record.put_common(name, out);
        put_32(out, 0);
        let sizes = if record.is_large { MAX_32 as u32 } else { 0 };
        put_32(out, sizes);
        put_32(out, sizes);
        put_16(out, record.name_bytes);
        put_16(out, 9 + if record.is_large { 20 } else { 0 });
        out.extend_from_slice(name);
        record.put_time(out);
        if record.is_large {
            put_16(out, 1);
            put_16(out, 16);
            put_64(out, 0);
            put_64(out, 0);
        }
        self.written += (out.len() - start) as u64;
    }

    /// Content of the file; at most [`BLOCK_BYTES_MAX`].
    pub(super) fn data(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.crc.update(bytes);
        self.block(bytes, false, out);
        if let Some(record) = self.records.last_mut() {
            record.size += bytes.len() as u64;
        }
    }

    fn block(&mut self, bytes: &[u8], is_last: bool, out: &mut Vec<u8>) {
        let length = bytes.len() as u16;
        out.push(u8::from(is_last));
        put_16(out, length);
        put_16(out, !length);
        out.extend_from_slice(bytes);
        let packed = 5 + bytes.len() as u64;
        self.written += packed;
        if let Some(record) = self.records.last_mut() {
            record.packed += packed;
        }
    }

    /// The content is complete: what was read is what the archive says.
    pub(super) fn end_file(&mut self, out: &mut Vec<u8>) {
        self.block(b"", true, out);
        let start = out.len();
        let crc = std::mem::take(&mut self.crc).finalize();
        let Some(record) = self.records.last_mut() else { return };
        record.crc = crc;
        put_32(out, 0x0807_4b50);
        put_32(out, crc);
        if record.is_large {
            put_64(out, record.packed);
            put_64(out, record.size);
        } else {
            put_32(out, record.packed as u32);
            put_32(out, record.size as u32);
        }
        self.written += (out.len() - start) as u64;
    }

    /// Writes some of the directory; whether that was the end of the archive.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> bool {
        let (start, done) = self.directory.unwrap_or((self.written, 0));
        let before = out.len();
        let end = (done + DIRECTORY_SLICE).min(self.records.len());
        for record in &self.records[done..end] {
            let name_end = record.name_at + usize::from(record.name_bytes);
            record.put_central(&self.names[record.name_at..name_end], out);
        }
        self.written += (out.len() - before) as u64;
        self.directory = Some((start, end));
        if end < self.records.len() {
            return false;
        }
        self.put_end(start, out);
        true
    }

    fn put_end(&self, start: u64, out: &mut Vec<u8>) {
        let (count, size) = (self.records.len() as u64, self.written - start);
        if count >= MAX_16 || size >= MAX_32 || start >= MAX_32 {
            put_32(out, 0x0606_4b50);
            put_64(out, 44);
            put_16(out, MADE_ON_UNIX);
            put_16(out, 45);
            put_32(out, 0);
            put_32(out, 0);
            put_64(out, count);
            put_64(out, count);
            put_64(out, size);
            put_64(out, start);
            put_32(out, 0x0706_4b50);
            put_32(out, 0);
            put_64(out, self.written);
            put_32(out, 1);
        }
        put_32(out, 0x0605_4b50);
        put_16(out, 0);
        put_16(out, 0);
        put_16(out, count.min(MAX_16) as u16);
        put_16(out, count.min(MAX_16) as u16);
        put_32(out, size.min(MAX_32) as u32);
        put_32(out, start.min(MAX_32) as u32);
        put_16(out, 0);
    }
}

impl Record {
    /// From the version that is needed to the time: the same before the content and in the directory.
    fn put_common(&self, name: &[u8], out: &mut Vec<u8>) {
        let is_utf8 = std::str::from_utf8(name).is_ok();
        let flags = if is_utf8 { FLAG_UTF8 } else { 0 };
        put_16(out, if self.is_large || self.offset >= MAX_32 { 45 } else { 20 });
        put_16(out, if self.is_folder { flags } else { flags | FLAG_DESCRIPTOR });
        put_16(out, if self.is_folder { STORED } else { DEFLATED });
        let civil = date::civil(self.modified);
        let (year, month, day) = match civil.year {
            ..1980 => (0, 1, 1),
            year @ 1980..=2107 => (year - 1980, civil.month, civil.day),
            2108.. => (127, 12, 31),
        };
        let (hour, minute) = (u16::from(civil.hour), u16::from(civil.minute));
        put_16(out, hour << 11 | minute << 5 | u16::from(civil.second / 2));
        put_16(out, year << 9 | u16::from(month) << 5 | u16::from(day));
    }

    /// The time to the second, in UTC: the other one is local and even.
    fn put_time(&self, out: &mut Vec<u8>) {
        put_16(out, 0x5455);
        put_16(out, 5);
        out.push(1);
        put_32(out, self.modified.clamp(0, i64::from(i32::MAX)) as u32);
    }

    fn put_central(&self, name: &[u8], out: &mut Vec<u8>) {
        put_32(out, 0x0201_4b50);
        put_16(out, MADE_ON_UNIX);
        self.put_common(name, out);
        put_32(out, self.crc);
        let large = [
            (self.is_large, self.size),
            (self.is_large, self.packed),
            (self.offset >= MAX_32, self.offset),
        ];
        let small = |(is_large, value): (bool, u64)| if is_large { MAX_32 } else { value } as u32;
        put_32(out, small(large[1]));
        put_32(out, small(large[0]));
        put_16(out, self.name_bytes);
        let wide = large.iter().filter(|(is_large, _)| *is_large).count() as u16;
        put_16(out, 9 + if wide > 0 { 4 + 8 * wide } else { 0 });
        put_16(out, 0);
        put_16(out, 0);
        put_16(out, 0);
        let mode: u32 = if self.is_folder { 0o040_755 } else { 0o100_644 };
        put_32(out, mode << 16 | if self.is_folder { 0x10 } else { 0 });
        put_32(out, small(large[2]));
        out.extend_from_slice(name);
        self.put_time(out);
        if wide > 0 {
            put_16(out, 1);
            put_16(out, 8 * wide);
            for (_, value) in large.iter().filter(|(is_large, _)| *is_large) {
                put_64(out, *value);
            }
        }
    }
}

fn put_16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// The name without bytes that mean something else on other systems.
fn portable(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.contains(&b'\\') {
        return Cow::Borrowed(name);
    }
    name.iter().map(|byte| if *byte == b'\\' { b'_' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a file of more than 4 GiB, later offsets and the end record have 64 bits.
    #[test]
    fn what_does_not_fit_32_bits_is_written_in_64() {
        let mut zip = Zip::default();
        let mut out = Vec::new();
        zip.begin_file(b"large", 5 << 30, 0, &mut out);
        assert_eq!(out[18..26], [0xff; 8], "sizes in the extra field");
        zip.end_file(&mut out);
        assert_eq!(out.len() as u64, zip.written);
        zip.written = 6 << 30;
        out.clear();
        zip.folder(b"after/", 0, &mut out);
        out.clear();
        assert!(zip.finish(&mut out));
        let has = |signature: u32| {
            let signature = signature.to_le_bytes();
            out.windows(4).any(|window| window == signature)
        };
        assert!(has(0x0606_4b50) && has(0x0706_4b50), "the end in 64 bits");
        let offset = (6_u64 << 30).to_le_bytes();
        assert!(out.windows(8).any(|window| window == offset), "the offset of the folder");
    }

    #[test]
    fn many_entries_are_counted_in_64_bits() {
        let mut zip = Zip::default();
        let mut out = Vec::new();
        for number in 0..70_000 {
            zip.folder(format!("{number}/").as_bytes(), 0, &mut out);
        }
        while !zip.finish(&mut out) {}
        let count = 70_000_u64.to_le_bytes();
        assert!(out.windows(8).any(|window| window == count));
        assert!(zip.weight() < 70_000 * 200);
    }
}
