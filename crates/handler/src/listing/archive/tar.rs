//! tar as a stream: POSIX's pax form, which old readers understand too.

/// What everything is a multiple of.
const BLOCK: usize = 512;
/// The largest size that eleven octal digits hold.
const SIZE_MAX: u64 = 0o77_777_777_777;

/// An archive that is being written.
#[derive(Debug, Default)]
pub(super) struct Tar {
    /// How much of the present file is still to come, and how far it goes beyond a whole block.
    left: u64,
    beyond: usize,
}

impl Tar {
    /// A folder; its name ends with a slash.
    pub(super) fn folder(name: &[u8], modified: i64, out: &mut Vec<u8>) {
        entry(name, b'5', 0, modified, out);
    }

    /// A file of exactly this size; its content follows.
    pub(super) fn begin_file(&mut self, name: &[u8], size: u64, modified: i64, out: &mut Vec<u8>) {
        entry(name, b'0', size, modified, out);
        self.left = size;
        self.beyond = 0;
    }

    /// Content of the file; what goes beyond its size must not come.
    pub(super) fn data(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        self.left = self.left.saturating_sub(bytes.len() as u64);
        self.beyond = (self.beyond + bytes.len()) % BLOCK;
    }

    /// The content is over; returns whether it had the announced length.
    pub(super) fn end_file(&mut self, out: &mut Vec<u8>) -> bool {
        let fill = (BLOCK - self.beyond) % BLOCK;
        out.extend_from_slice(&[0; BLOCK][..fill]);
        self.left == 0
    }

    /// The end of the archive.
    pub(super) fn finish(out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 2 * BLOCK]);
    }
}

fn entry(name: &[u8], kind: u8, size: u64, modified: i64, out: &mut Vec<u8>) {
    let mut more = Vec::new();
    if name.len() > 100 || !name.is_ascii() {
        record(b"path", name, &mut more);
    }
    if size > SIZE_MAX {
        record(b"size", size.to_string().as_bytes(), &mut more);
    }
    if !more.is_empty() {
        header(b"pax", b'x', more.len() as u64, modified, out);
        out.extend_from_slice(&more);
        let fill = (BLOCK - more.len() % BLOCK) % BLOCK;
        out.extend_from_slice(&[0; BLOCK][..fill]);
    }
    header(name, kind, size, modified, out);
}

/// `length key=value`, the length counting itself.
fn record(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn header(name: &[u8], kind: u8, size: u64, modified: i64, out: &mut Vec<u8>) {
    let mut block = [0_u8; BLOCK];
    let short = name.len().min(100);
    block[..short].copy_from_slice(&name[..short]);
    octal(&mut block[100..108], if kind == b'5' { 0o755 } else { 0o644 });
    octal(&mut block[108..116], 0);
    octal(&mut block[116..124], 0);
    octal(&mut block[124..136], size.min(SIZE_MAX));
    octal(&mut block[136..148], (modified.max(0) as u64).min(SIZE_MAX));
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut block[148..155], sum);
    out.extend_from_slice(&block);
}

/// Digits that fill the field but for a NUL at its end.
fn octal(field: &mut [u8], mut value: u64) {
    let digits = field.len() - 1;
    for place in field[..digits].iter_mut().rev() {
        *place = b'0' + (value % 8) as u8;
        value /= 8;
    }
    field[digits] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for bytes in [1, 90, 91, 92, 93, 94, 990, 991, 992] {
            let mut out = Vec::new();
            record(b"path", &vec![b'x'; bytes], &mut out);
            let text = String::from_utf8(out.clone()).expect("text");
            let (length, _) = text.split_once(' ').expect("a length");
            assert_eq!(length.parse(), Ok(out.len()), "{bytes}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_noticed() {
        let mut tar = Tar::default();
        let mut out = Vec::new();
        tar.begin_file(b"a", 1000, 0, &mut out);
        tar.data(&[1; 999], &mut out);
        assert!(!tar.end_file(&mut out));
        tar.begin_file(b"b", 3, 0, &mut out);
        tar.data(&[1; 3], &mut out);
        assert!(tar.end_file(&mut out));
        assert_eq!(out.len() % BLOCK, 0);
    }
}
