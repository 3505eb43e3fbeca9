//! The cookies that tell clients apart (`userid`): sixteen bytes, written in Base64 as a cookie and as hexadecimal
//! numbers in logs. The same bytes as in nginx, so that clients keep theirs.

use std::net::IpAddr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// How long a cookie's value is.
const COOKIE_BYTES: usize = 24;
/// Where the mark stands (`userid_mark`): in place of the first sign that fills up.
const MARK_AT: usize = 22;

/// Sixteen bytes that tell a client apart, as four numbers in the byte order of nginx's machine: little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uid(pub [u32; 4]);

/// What a new one is made of.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// `userid_service`
    pub service: Option<u32>,
    /// The address that the request came to.
    pub local: Option<IpAddr>,
    /// The time, in seconds.
    pub unix_secs: i64,
    /// What differs from process to process.
    pub process: u32,
    /// What differs from request to request.
    pub sequence: u32,
}

impl Uid {
    /// A new one for `userid on`.
    pub fn new(seed: &Seed) -> Self {
        let service = match (seed.service, seed.local) {
            (Some(number), _) => number.swap_bytes(),
            (None, Some(IpAddr::V4(address))) => u32::from_le_bytes(address.octets()),
            (None, Some(IpAddr::V6(address))) => {
                let [.., a, b, c, d] = address.octets();
                u32::from_le_bytes([a, b, c, d])
            }
            (None, None) => 0,
        };
        let sequence = (seed.sequence << 8) | 2;
        Self([
            service,
            (seed.unix_secs as u32).swap_bytes(),
            seed.process.swap_bytes(),
            sequence.swap_bytes(),
        ])
    }

    /// A new one for `userid v1`.
    pub fn new_v1(seed: &Seed) -> Self {
        let sequence = (seed.sequence << 8) | 1;
        Self([seed.service.unwrap_or(0), seed.unix_secs as u32, seed.process, sequence])
    }

    /// The value of a cookie; with `mark` where one is set.
    pub fn cookie(self, mark: Option<u8>) -> Vec<u8> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut out = Vec::with_capacity(COOKIE_BYTES);
        for group in bytes.chunks(3) {
            let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
            let number = at(0) << 16 | at(1) << 8 | at(2);
            for place in 0..4 {
                let digit = ALPHABET[(number >> (18 - 6 * place) & 63) as usize];
                out.push(if place <= group.len() { digit } else { b'=' });
            }
        }
        if let Some(mark) = mark {
            out[MARK_AT] = mark;
        }
        out
    }

    /// Reads the value of a cookie, and whether it has the mark; `None` for what is none.
    pub fn from_cookie(value: &[u8], mark: Option<u8>) -> Option<(Self, bool)> {
        // Only the first 22 digits are read; what follows them is a mark or fills up.
        let value = value.get(..MARK_AT + 1)?;
        let mut bytes = [0; 16];
        for (at, digit) in value[..MARK_AT].iter().enumerate() {
            let number = ALPHABET.iter().position(|own| own == digit)? as u16;
            // Six bits from this place on, in at most two bytes; the last four say nothing.
            let (byte, shift) = (at * 6 / 8, at * 6 % 8);
            let [high, low] = (number << 10 >> shift).to_be_bytes();
            bytes[byte] |= high;
            if let Some(next) = bytes.get_mut(byte + 1) {
                *next |= low;
            }
        }
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let is_marked = mark.is_none_or(|mark| value[MARK_AT] == mark);
        Some((Self([number(0), number(4), number(8), number(12)]), is_marked))
    }

    /// As logs and fields have it: `name=` and 32 hexadecimal digits.
    pub fn text(self, name: &[u8]) -> Vec<u8> {
        let [a, b, c, d] = self.0;
        [name, format!("={a:08X}{b:08X}{c:08X}{d:08X}").as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed =
        Seed { service: None, local: None, unix_secs: 1_700_000_000, process: 77, sequence: 5 };

    #[test]
    fn a_cookie_is_read_as_it_was_written() {
        for numbers in
            [[0; 4], [u32::MAX; 4], [1, 2, 3, 4], [0x0403_0201, 0x8000_0000, 7, 0xfe00_0000]]
        {
            let uid = Uid(numbers);
            let cookie = uid.cookie(None);
            assert_eq!(cookie.len(), COOKIE_BYTES);
            assert!(cookie.ends_with(b"=="));
            assert_eq!(Uid::from_cookie(&cookie, None), Some((uid, true)), "{numbers:x?}");
            let marked = uid.cookie(Some(b't'));
            assert!(marked.ends_with(b"t="));
            assert_eq!(Uid::from_cookie(&marked, Some(b't')), Some((uid, true)));
            assert_eq!(Uid::from_cookie(&marked, Some(b'u')), Some((uid, false)));
        }
        assert_eq!(Uid([0x0403_0201, 0, 0, 0]).cookie(None), b"AQIDBAAAAAAAAAAAAAAAAA==");
        for wrong in [&b""[..], b"AQIDBA", b"!!!!!!!!!!!!!!!!!!!!!!!!", b"AQIDBAAAAAAAAAAAAAAAA"] {
            assert_eq!(Uid::from_cookie(wrong, None), None);
        }
    }

    #[test]
    fn a_new_one_says_where_it_was_made() {
        let first = |seed: &Seed| {
            String::from_utf8(Uid::new(seed).text(b"uid")).expect("text")[..12].to_owned()
        };
        assert_eq!(first(&SEED), "uid=00000000");
        let local = Some("127.0.0.1".parse().expect("an address"));
        assert_eq!(first(&Seed { local, ..SEED }), "uid=0100007F");
        let local = Some("::1".parse().expect("an address"));
        assert_eq!(first(&Seed { local, ..SEED }), "uid=01000000");
        assert_eq!(first(&Seed { service: Some(65534), ..SEED }), "uid=FEFF0000");
        assert_eq!(Uid::new_v1(&SEED).0[0], 0);
        assert_ne!(Uid::new(&SEED), Uid::new(&Seed { sequence: 6, ..SEED }));
    }
}
