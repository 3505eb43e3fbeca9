//! What variables and warnings want to know of a certificate (RFC 5280). What is trusted is judged by rustls; a
//! certificate that cannot be read here shows empty fields.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sekisho_http::hex;

use super::der::{BIT_STRING, BOOLEAN, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE, time};

/// The fields of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Certificate {
    /// In hexadecimal digits.
    pub serial: String,
    /// As RFC 2253 writes it.
    pub issuer: String,
    /// The same.
    pub subject: String,
    /// Issuer and subject as OpenSSL's `X509_NAME_oneline` writes them.
    pub issuer_legacy: String,
    /// The same.
    pub subject_legacy: String,
    /// When it is valid, in seconds since 1970.
    pub from: i64,
    /// Until when.
    pub to: i64,
    /// The names that it is for.
    pub names: Vec<String>,
    /// What the serial number is made of.
    pub serial_bytes: Vec<u8>,
    /// Which of its issuer's keys has signed it.
    pub authority_key: Option<Vec<u8>>,
    /// Where its issuer is asked whether it has been revoked (OCSP).
    pub responder: Option<String>,
    /// Its issuer's name as it is encoded.
    pub issuer_der: Vec<u8>,
    /// The same of its own.
    pub subject_der: Vec<u8>,
    /// The bits of its key.
    pub key_bits: Vec<u8>,
    /// What kind of key it is: the contents of its `AlgorithmIdentifier`.
    pub key_kind: Vec<u8>,
    /// Whether its issuer has authorized it to sign OCSP responses (RFC 6960 §4.2.2.2).
    pub may_sign_ocsp: bool,
    /// Whether it may issue others.
    pub is_authority: bool,
    /// Whether it says its version; those of version 1 do not.
    pub has_version: bool,
}

const BMP_STRING: u8 = 0x1e;
const EXTENSIONS: u8 = 0xa3;
const SUBJECT_NAMES: &[u8] = &[0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
const KEY_PURPOSES: &[u8] = &[0x55, 0x1d, 37];
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
const AUTHORITY_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
const OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

impl Certificate {
    /// Reads one.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let mut certificate = Reader(der).expect(SEQUENCE)?;
        let mut fields = certificate.expect(SEQUENCE)?;
        let (mut tag, mut value) = fields.next()?;
        let has_version = tag == VERSION;
        if has_version {
            (tag, value) = fields.next()?;
        }
        if tag != INTEGER {
            return None;
        }
        let digits = value.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(value);
        let serial = hex::text(digits).to_uppercase();
        fields.expect(SEQUENCE)?;
        let issuer_der = fields.whole()?;
        let issuer = name(fields.expect(SEQUENCE)?)?;
        let mut validity = fields.expect(SEQUENCE)?;
        let (from, to) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject_der = fields.whole()?;
        let subject = name(fields.expect(SEQUENCE)?)?;
        let mut shown = Self {
            serial,
            issuer,
            subject,
            issuer_legacy: legacy_name(issuer_der).unwrap_or_default(),
            subject_legacy: legacy_name(subject_der).unwrap_or_default(),
            from,
            to,
            serial_bytes: value.to_vec(),
            issuer_der: issuer_der.to_vec(),
            subject_der: subject_der.to_vec(),
            has_version,
            ..Self::default()
        };
        let mut key = fields.expect(SEQUENCE)?;
        shown.key_kind = key.expect(SEQUENCE)?.0.to_vec();
        let bits = key.expect(BIT_STRING)?.0;
        shown.key_bits = bits.get(1..)?.to_vec();
        while let Some((tag, value)) = fields.next() {
            if tag == EXTENSIONS {
                // What cannot be read counts as absent.
                let _ = shown.extensions(Reader(value));
            }
        }
        // Roots of version 1 cannot say it.
        shown.is_authority |= !has_version && shown.issuer_der == shown.subject_der;
        Some(shown)
    }

    /// Takes what is of use from the extensions (RFC 5280 §4.2).
    fn extensions(&mut self, mut all: Reader<'_>) -> Option<()> {
        let mut list = all.expect(SEQUENCE)?;
        while let Some((SEQUENCE, one)) = list.next() {
            let mut one = Reader(one);
            let kind = one.expect(OID)?.0;
            let (mut tag, mut value) = one.next()?;
            if tag == BOOLEAN {
                (tag, value) = one.next()?;
            }
            if tag != OCTET_STRING {
                continue;
            }
            match kind {
                SUBJECT_NAMES => self.names = names(Reader(value)).unwrap_or_default(),
                BASIC_CONSTRAINTS => {
                    let first = Reader(value).expect(SEQUENCE).and_then(|mut it| it.next());
                    self.is_authority = matches!(first, Some((BOOLEAN, [it])) if *it != 0);
                }
                AUTHORITY_KEY => {
                    let key = Reader(value).expect(SEQUENCE).and_then(|mut it| it.next());
                    self.authority_key =
                        key.filter(|(tag, _)| *tag == 0x80).map(|(_, key)| key.to_vec());
                }
                KEY_PURPOSES => {
                    let mut purposes = Reader(value).expect(SEQUENCE)?;
                    while let Some((OID, purpose)) = purposes.next() {
                        self.may_sign_ocsp |= purpose == OCSP_SIGNING;
                    }
                }
                AUTHORITY_ACCESS => self.responder = responder(Reader(value)),
                _ => {}
            }
        }
        Some(())
    }
}

/// `$ssl_client_fingerprint`: SHA-1 in hexadecimal digits, as nginx has it.
pub(super) fn fingerprint(der: &[u8]) -> String {
    hex::text(digest(&SHA1_FOR_LEGACY_USE_ONLY, der).as_ref())
}

/// As OpenSSL prints it: `Nov 16 05:00:00 2026 GMT`.
pub(super) fn date(unix_secs: i64) -> String {
    let time = Timestamp::from_second(unix_secs).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(TimeZone::UTC).strftime("%b %e %H:%M:%S %Y GMT").to_string()
}

/// The names and addresses that a certificate is for.
fn names(mut value: Reader<'_>) -> Option<Vec<String>> {
    let mut list = value.expect(SEQUENCE)?;
    let mut found = Vec::new();
    while let Some((tag, value)) = list.next() {
        match (tag, value.len()) {
            (0x82, _) => found.push(String::from_utf8_lossy(value).into_owned()),
            (0x87, 4) => found.push(std::net::IpAddr::from(*value.first_chunk::<4>()?).to_string()),
            (0x87, 16) => {
                found.push(std::net::IpAddr::from(*value.first_chunk::<16>()?).to_string());
            }
            _ => {}
        }
    }
    Some(found)
}

/// Where an issuer answers OCSP, over HTTP.
fn responder(mut value: Reader<'_>) -> Option<String> {
    let mut list = value.expect(SEQUENCE)?;
    while let Some((SEQUENCE, one)) = list.next() {
        let mut one = Reader(one);
        if one.expect(OID)?.0 == OCSP
            && let Some((0x86, url)) = one.next()
        {
            return String::from_utf8(url.to_vec()).ok();
        }
    }
    None
}

/// `CN=…,O=…`: the last part of the name first.
fn name(mut parts: Reader<'_>) -> Option<String> {
    let mut shown: Vec<String> = Vec::new();
    while !parts.0.is_empty() {
        let mut set = parts.expect(SET)?;
        let mut one = String::new();
        while !set.0.is_empty() {
            let mut pair = set.expect(SEQUENCE)?;
            let kind = pair.expect(OID)?.0;
            let (tag, value) = pair.next()?;
            if !one.is_empty() {
                one.push('+');
            }
            one.push_str(&attribute(kind));
            one.push('=');
            escape(&text(tag, value), &mut one);
        }
        shown.push(one);
    }
    shown.reverse();
    Some(shown.join(","))
}

/// `/C=…/O=…/CN=…`: the first part first; what is not ASCII as `\\xHH`.
fn legacy_name(der: &[u8]) -> Option<String> {
    let mut parts = Reader(der).expect(SEQUENCE)?;
    let mut shown = String::new();
    while !parts.0.is_empty() {
        let mut set = parts.expect(SET)?;
        while !set.0.is_empty() {
            let mut pair = set.expect(SEQUENCE)?;
            let kind = attribute(pair.expect(OID)?.0);
            let (_, value) = pair.next()?;
            shown.push('/');
            shown.push_str(&kind);
            shown.push('=');
            for byte in value {
                match byte {
                    0x20..0x7f => shown.push(char::from(*byte)),
                    _ => _ = write!(shown, "\\x{byte:02X}"),
                }
            }
        }
    }
    Some(shown)
}

/// The short name of an attribute, or its number.
fn attribute(oid: &[u8]) -> String {
    let known = match oid {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "street",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 42] => "GN",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let mut numbers: Vec<u64> = Vec::new();
    let mut number = 0_u64;
    for byte in oid {
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.extend([first, number - first * 40]);
            } else {
                numbers.push(number);
            }
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

fn text(tag: u8, value: &[u8]) -> String {
    if tag == BMP_STRING {
        let units: Vec<u16> =
            value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value).into_owned()
}

/// RFC 2253 §2.4; control characters and what is not ASCII as `\XX`, which is also safe in a field.
fn escape(text: &str, into: &mut String) {
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        let is_edge = byte == b' ' && (at == 0 || at == last) || byte == b'#' && at == 0;
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                into.push('\\');
                into.push(char::from(byte));
            }
            _ if is_edge => {
                into.push('\\');
                into.push(char::from(byte));
            }
            0x20..0x7f => into.push(char::from(byte)),
            _ => _ = write!(into, "\\{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// Made by OpenSSL, with `-set_serial 0x0F00A1 -subj '/C=DE/O=Acme, Inc./OU=R'`.
    const SAMPLE: &str = "MIIBoDCCAUagAwIBAgIDDwChMAoGCCqGSM49BAMCMC4xCzAJBgNVBAYTAkRFMRMwEQYDVQQKDApB\
        Y21lLCBJbmMuMQowCAYDVQQLDAFSMB4XDTI2MTExNjA2MzUyOVoXDTM2MTExMzA2MzUyOVowLjELMAkGA1UEBhMCREUxEzARBgNV\
        BAoMCkFjbWUsIEluYy4xCjAIBgNVBAsMAVIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATlsN3CkTDTQz4Nvq+gSbl9vQDgVImj\
        V5AWAXHd+tvwKACs8Lc3u93h5/Zrq9KnALkT4w+UiYFhkiQoLPKpv0s9o1MwUTAdBgNVHQ4EFgQUzBnP09duuooMm7DkmvzbY0nE\
        mVIwHwYDVR0jBBgwFoAUzBnP09duuooMm7DkmvzbY0nEmVIwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAjVpB\
        DOHFg27/g5IbZCCqEkl8rLZKebN0y1gWmkFRW3sCIFy9PIqMVA1s4nAUXX7YU27wMde+Ozr7NnogDGngE2H2";

    #[test]
    fn a_certificate_shows_what_openssl_shows_of_it() {
        let der = STANDARD.decode(SAMPLE).expect("base64");
        let shown = Certificate::parse(&der).expect("a certificate");
        assert_eq!(shown.serial, "0F00A1");
        assert_eq!(shown.subject, "OU=R,O=Acme\\, Inc.,C=DE");
        assert_eq!(shown.issuer, shown.subject);
        assert_eq!(shown.subject_legacy, "/C=DE/O=Acme, Inc./OU=R");
        assert_eq!(shown.issuer_legacy, shown.subject_legacy);
        assert_eq!(date(shown.from), "Nov 16 06:35:29 2026 GMT");
        assert_eq!(date(shown.to), "Nov 13 06:35:29 2036 GMT");
        assert_eq!(fingerprint(&der), "7d7098fdb5bfdc7d606eee6f3791fb4cb31a1b18");
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        // What a client shows has been read by rustls before; all the same nothing here may panic.
        let der = STANDARD.decode(SAMPLE).expect("base64");
        for end in 0..der.len() {
            assert_eq!(Certificate::parse(&der[..end]), None, "{end}");
        }
        for at in 0..200 {
            for byte in [0x00, 0x01, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = byte;
                let _ = Certificate::parse(&changed);
            }
        }
    }

    #[test]
    fn names_are_escaped() {
        for (text, expected) in [
            ("plain", "plain"),
            (" edge ", "\\ edge\\ "),
            ("#1 a#2", "\\#1 a#2"),
            ("a,b+c\"d\\e<f>g;h", "a\\,b\\+c\\\"d\\\\e\\<f\\>g\\;h"),
            ("line\r\nend", "line\\0D\\0Aend"),
            ("ä", "\\C3\\A4"),
        ] {
            let mut shown = String::new();
            escape(text, &mut shown);
            assert_eq!(shown, expected);
        }
        assert_eq!(attribute(&[0x2a, 0x03, 0x81, 0x00]), "1.2.3.128");
        assert_eq!(attribute(&[0x55, 4, 3]), "CN");
    }
}
