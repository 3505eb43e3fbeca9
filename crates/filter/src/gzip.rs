//! The frame of a gzip member (RFC 1952): what stands before and after the compressed bytes. However it is cut, the
//! members found are the same.

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CHECK: u8 = 2;
/// Flags that must not be set (RFC 1952 §2.3.1.2).
const RESERVED: u8 = 0xe0;
/// Check value and length, four bytes each.
const TRAILER_BYTES: u8 = 8;

/// Where in a member the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// One of the ten fixed bytes.
    Fixed(u8),
    /// The length of what follows, its low byte first.
    ExtraLow,
    ExtraHigh(u8),
    Extra(u16),
    /// Text that ends with a zero.
    Name,
    Comment,
    HeaderCheck(u8),
    Body,
}

/// What stands before the compressed bytes of a member.
#[derive(Debug)]
pub struct Header {
    place: Place,
    flags: u8,
}

/// It is no gzip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoGzip;

impl Default for Header {
    fn default() -> Self {
        Self { place: Place::Fixed(0), flags: 0 }
    }
}

impl Header {
    /// Takes bytes; says how many, and whether the compressed bytes begin behind them.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), NoGzip> {
        self.skip_absent();
        for (at, byte) in bytes.iter().enumerate() {
            if self.place == Place::Body {
                return Ok((at, true));
            }
            self.one(*byte)?;
            self.skip_absent();
        }
        Ok((bytes.len(), self.place == Place::Body))
    }

    /// Whether not one byte of it has come.
    pub fn is_new(&self) -> bool {
        self.place == Place::Fixed(0)
    }

    fn one(&mut self, byte: u8) -> Result<(), NoGzip> {
        self.place = match self.place {
            Place::Fixed(at) => {
                let is_right = match at {
                    0 => byte == 0x1f,
                    1 => byte == 0x8b,
                    // Deflate is the only method there is.
                    2 => byte == 8,
                    3 => {
                        self.flags = byte;
                        byte & RESERVED == 0
                    }
                    _ => true,
                };
                if !is_right {
                    return Err(NoGzip);
                }
                if at == 9 { Place::ExtraLow } else { Place::Fixed(at + 1) }
            }
            Place::ExtraLow => Place::ExtraHigh(byte),
            Place::ExtraHigh(low) => Place::Extra(u16::from_le_bytes([low, byte])),
            Place::Extra(left) => Place::Extra(left.saturating_sub(1)),
            Place::Name if byte == 0 => Place::Comment,
            Place::Comment if byte == 0 => Place::HeaderCheck(2),
            Place::HeaderCheck(left) => Place::HeaderCheck(left.saturating_sub(1)),
            other @ (Place::Name | Place::Comment | Place::Body) => other,
        };
        Ok(())
    }

    /// Goes over what is not there.
    fn skip_absent(&mut self) {
        let has = |flag| self.flags & flag != 0;
        loop {
            self.place = match self.place {
                Place::ExtraLow if !has(EXTRA) => Place::Name,
                Place::Extra(0) => Place::Name,
                Place::Name if !has(NAME) => Place::Comment,
                Place::Comment if !has(COMMENT) => Place::HeaderCheck(2),
                Place::HeaderCheck(left) if left == 0 || !has(HEADER_CHECK) => Place::Body,
                _ => return,
            };
        }
    }
}

/// What stands behind the compressed bytes: the check value and the length.
#[derive(Debug, Default)]
pub struct Trailer {
    bytes: [u8; TRAILER_BYTES as usize],
    taken: u8,
}

impl Trailer {
    /// Takes bytes; says how many.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let wanted = usize::from(TRAILER_BYTES - self.taken).min(bytes.len());
        let start = usize::from(self.taken);
        self.bytes[start..start + wanted].copy_from_slice(&bytes[..wanted]);
        self.taken += wanted as u8;
        wanted
    }

    /// The check value (CRC-32) and the length modulo 2³², once all of it is there.
    pub fn values(&self) -> Option<(u32, u32)> {
        let both = u64::from_le_bytes(self.bytes);
        (self.taken == TRAILER_BYTES).then_some((both as u32, (both >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: &[u8], cut: usize) -> Result<(usize, bool), NoGzip> {
        let mut header = Header::default();
        assert!(header.is_new());
        let (mut total, mut is_over) = (0, false);
        for piece in bytes.chunks(cut) {
            let (count, over) = header.take(piece)?;
            total += count;
            is_over |= over;
            if over {
                break;
            }
        }
        Ok((total, is_over))
    }

    #[test]
    fn a_header_ends_where_its_flags_say() {
        let fixed = |flags: u8| [0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
        let table: &[(u8, &[u8])] = &[
            (0, b""),
            (1, b""),
            (4, b"\x03\0abc"),
            (4, b"\0\0"),
            (8, b"name\0"),
            (16, b"comment\0"),
            (24, b"\0\0"),
            (2, b"xy"),
            (30, b"\x01\0an\0c\0xy"),
        ];
        for (flags, rest) in table {
            let head = [&fixed(*flags)[..], rest].concat();
            let whole = [&head[..], b"body"].concat();
            for cut in 1..whole.len() {
                assert_eq!(taken(&whole, cut), Ok((head.len(), true)), "{flags} by {cut}");
                assert_eq!(taken(&head[..head.len() - 1], cut), Ok((head.len() - 1, false)));
            }
        }
        for wrong in [&b"\x1f\x8c"[..], b"x", b"\x1f\x8b\x07", b"\x1f\x8b\x08\x20"] {
            assert_eq!(taken(wrong, 1), Err(NoGzip));
        }
    }

    #[test]
    fn a_trailer_is_eight_bytes() {
        let mut trailer = Trailer::default();
        assert_eq!(trailer.take(&[1, 0, 0, 0, 2]), 5);
        assert_eq!(trailer.values(), None);
        assert_eq!(trailer.take(&[0, 0, 0, 9, 9]), 3);
        assert_eq!(trailer.values(), Some((1, 2)));
        assert_eq!(trailer.take(&[1]), 0);
    }
}
