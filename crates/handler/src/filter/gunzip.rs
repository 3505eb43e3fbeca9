//! Responses in gzip for clients that do not take it (`gunzip`). What comes out of a piece is bounded, however well it
//! was compressed.

use std::fmt;

use flate2::{Crc, Decompress, FlushDecompress, Status};
use sekisho_filter::gzip::{Header, Trailer};

use super::{BodyFilter, Broken};

/// How much comes out at once.
const OUT_BYTES: usize = 64 * 1024;

/// Decompresses gzip, one member after another.
pub struct Gunzip {
    stage: Stage,
    /// Whether a member has ended: zeros may follow, and nothing has to.
    has_member: bool,
}

enum Stage {
    Header(Header),
    Body(Box<(Decompress, Crc)>),
    Trailer(Trailer, Crc),
    /// What follows the last member is no further one: it is passed over, as gzip does.
    Behind,
}

impl fmt::Debug for Gunzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gunzip").finish_non_exhaustive()
    }
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { stage: Stage::Header(Header::default()), has_member: false }
    }
}

impl BodyFilter for Gunzip {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        match &mut self.stage {
            Stage::Header(header) => {
                let is_new = header.is_new();
                match header.take(bytes) {
                    Ok((taken, is_over)) => {
                        if is_over {
                            let state = (Decompress::new(false), Crc::new());
                            self.stage = Stage::Body(Box::new(state));
                        }
                        Ok(taken)
                    }
                    Err(_) if is_new && self.has_member => {
                        self.stage = Stage::Behind;
                        Ok(bytes.len())
                    }
                    Err(_) => Err(Broken),
                }
            }
            Stage::Body(state) => {
                let (inflate, crc) = &mut **state;
                let before = inflate.total_in();
                let start = out.len();
                out.reserve(OUT_BYTES);
                let status = inflate.decompress_vec(bytes, out, FlushDecompress::None);
                let taken = (inflate.total_in() - before) as usize;
                crc.update(&out[start..]);
                match status {
                    Ok(Status::StreamEnd) => {
                        let crc = std::mem::take(crc);
                        self.stage = Stage::Trailer(Trailer::default(), crc);
                        Ok(taken)
                    }
                    // Neither takes nor gives anything: it cannot go on.
                    Ok(_) if taken == 0 && out.len() == start => Err(Broken),
                    Ok(_) => Ok(taken),
                    Err(_) => Err(Broken),
                }
            }
            Stage::Trailer(trailer, crc) => {
                let taken = trailer.take(bytes);
                if let Some((check, length)) = trailer.values() {
                    if (check, length) != (crc.sum(), crc.amount()) {
                        return Err(Broken);
                    }
                    self.has_member = true;
                    self.stage = Stage::Header(Header::default());
                }
                Ok(taken)
            }
            Stage::Behind => Ok(bytes.len()),
        }
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Broken> {
        match &self.stage {
            Stage::Header(header) if header.is_new() && self.has_member => Ok(()),
            Stage::Behind => Ok(()),
            Stage::Header(_) | Stage::Body(_) | Stage::Trailer(..) => Err(Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn gunzip(bytes: &[u8], cut: usize) -> Result<Vec<u8>, Broken> {
        let mut filter = Gunzip::default();
        let mut all = Vec::new();
        for piece in bytes.chunks(cut) {
            let mut at = 0;
            while at < piece.len() {
                let mut out = Vec::new();
                at += filter.push(&piece[at..], &mut out)?;
                assert!(out.len() <= 2 * OUT_BYTES, "{}", out.len());
                all.append(&mut out);
            }
        }
        filter.finish(&mut all)?;
        Ok(all)
    }

    #[test]
    fn members_come_out_whole_however_they_are_cut() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|at| at.to_string().into_bytes()).collect();
        let one = gzip(&text);
        let two = [one.clone(), gzip(b""), gzip(b"end")].concat();
        let doubled = [&text[..], b"end"].concat();
        for cut in [1, 7, 1000, 1 << 20] {
            assert!(gunzip(&one, cut) == Ok(text.clone()), "by {cut}");
            assert!(gunzip(&two, cut) == Ok(doubled.clone()), "by {cut}");
            assert!(gunzip(&[&one[..], b"\0\0\0"].concat(), cut) == Ok(text.clone()), "by {cut}");
            assert!(gunzip(&one[..one.len() - 1], cut) == Err(Broken));
            assert!(gunzip(b"plain text", cut) == Err(Broken));
            assert!(gunzip(b"", cut) == Err(Broken));
            let mut wrong = one.clone();
            let last = wrong.len() - 5;
            wrong[last] ^= 1;
            assert!(gunzip(&wrong, cut) == Err(Broken), "the check value");
        }
    }

    #[test]
    fn what_was_compressed_well_comes_out_in_pieces() {
        let zeros = vec![0; 50 << 20];
        let small = gzip(&zeros);
        assert!(small.len() < 100_000);
        assert!(gunzip(&small, 1 << 20) == Ok(zeros));
    }
}
