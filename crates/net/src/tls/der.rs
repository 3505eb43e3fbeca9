//! DER, as far as certificates and OCSP need it (X.690).

use jiff::tz::TimeZone;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;

/// A reader of DER values.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next value with its head; it stays the next one.
    pub(super) fn whole(&self) -> Option<&'a [u8]> {
        let mut after = *self;
        after.next()?;
        self.0.get(..self.0.len() - after.0.len())
    }

    pub(super) fn expect(&mut self, wanted: u8) -> Option<Self> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, value)| Self(value))
    }
}

/// A value with its head.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut all = vec![tag];
    match length {
        0..=0x7f => all.push(length as u8),
        0x80..=0xff => all.extend([0x81, length as u8]),
        _ => all.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    all.extend_from_slice(content);
    all
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
pub(super) fn time((tag, value): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let date =
        jiff::civil::DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0);
    Some(date.ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}
