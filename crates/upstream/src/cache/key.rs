//! The name of an entry: the MD5 of its key, in folders by `levels`, as nginx has them; and the name of one
//! variant among several (`Vary`).

use md5::{Digest, Md5};
use sekisho_http::{Fields, hex};

/// Bytes of its name that a variant has in common with its key.
const SHARED_BYTES: usize = 8;

/// The hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// The hash of the value of `proxy_cache_key`.
    pub fn new(key: &[u8]) -> Self {
        Self(Md5::digest(key).into())
    }

    /// The name of one variant: the key together with the fields of the request that `Vary` names. Names
    /// count in any case and order, values without the white space around them (RFC 9111 §4.1). Variants of one key
    /// have the first half of their names in common with it.
    #[must_use]
    pub fn variant<'a>(self, vary: &[u8], field: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Self {
        let mut names: Vec<Vec<u8>> = vary
            .split(|byte| *byte == b',')
            .map(|name| name.trim_ascii().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut hasher = Md5::new();
        hasher.update(self.0);
        for name in names {
            hasher.update(&name);
            // A field that is absent is another one than one that is empty.
            match field(&name) {
                None => hasher.update(b"\n-"),
                Some(value) => {
                    hasher.update(b"\n+");
                    hasher.update(value.trim_ascii());
                }
            }
            hasher.update(b"\n");
        }
        let mut name: [u8; 16] = hasher.finalize().into();
        name[..SHARED_BYTES].copy_from_slice(&self.0[..SHARED_BYTES]);
        Self(name)
    }

    /// The lowest and the highest name that a variant of this key can have.
    pub(crate) fn variants(self) -> (Self, Self) {
        let (mut first, mut last) = (self, self);
        first.0[SHARED_BYTES..].fill(0);
        last.0[SHARED_BYTES..].fill(u8::MAX);
        (first, last)
    }

    /// 32 digits.
    pub fn hexadecimal(self) -> [u8; 32] {
        hexadecimal(self.0)
    }
}

/// Bytes as digits.
pub(crate) fn hexadecimal(bytes: [u8; 16]) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = hex::digits(byte);
    }
    digits
}

/// The path of an entry below the folder of its cache: `levels` says how many digits, from the end, name each
/// folder (at most three, of one or two digits).
pub fn entry_path(levels: &[u8], key: Key) -> String {
    let digits = key.hexadecimal();
    let text = str::from_utf8(&digits).unwrap_or_default();
    let mut path = String::with_capacity(48);
    let mut end = text.len();
    for level in levels {
        let start = end.saturating_sub(usize::from(*level));
        path.push_str(&text[start..end]);
        path.push('/');
        end = start;
    }
    path.push_str(text);
    path
}

/// What an answer varies by: its `Vary` fields as one list, empty where there is none.
pub fn vary(fields: &Fields) -> Vec<u8> {
    let mut all = Vec::new();
    for value in fields.all(b"vary") {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of nginx's documentation of `proxy_cache_path`.
    #[test]
    fn entries_lie_where_nginx_has_them() {
        let bytes = 0xb7f5_4b2d_f777_3722_d382_f480_9d65_029c_u128.to_be_bytes();
        let name = "b7f54b2df7773722d382f4809d65029c";
        for (levels, folder) in
            [(&[1, 2][..], "c/29/"), (&[], ""), (&[2, 2, 2], "9c/02/65/"), (&[1], "c/")]
        {
            assert_eq!(entry_path(levels, Key(bytes)), format!("{folder}{name}"));
        }
    }

    #[test]
    fn a_key_is_hashed_by_md5() {
        let digits = Key::new(b"http://example.com/").hexadecimal();
        assert_eq!(&digits, b"a6bf1757fff057f266b697df9cf176fd");
    }

    /// RFC 9111 §4.1
    #[test]
    fn variants_differ_by_the_named_fields_only() {
        let key = Key::new(b"k");
        let with = |vary: &str, list: &[(&str, &str)]| {
            let fields: Fields = list.iter().copied().collect();
            key.variant(vary.as_bytes(), |name| {
                fields.get(str::from_utf8(name).expect("text")).map(|value| {
                    // Long enough to outlive the closure in a test.
                    &*Vec::leak(value.to_vec())
                })
            })
        };
        let gzip = with("Accept-Encoding", &[("accept-encoding", "gzip"), ("x", "1")]);
        assert_eq!(gzip, with("accept-encoding,", &[("Accept-Encoding", " gzip"), ("x", "2")]));
        assert_ne!(gzip, with("Accept-Encoding", &[("accept-encoding", "br")]));
        assert_ne!(with("A", &[]), with("A", &[("A", "")]));
        assert_eq!(with("A, B", &[("A", "1")]), with("b,a,A", &[("A", "1")]));
        assert_ne!(with("A, B", &[("A", "1")]), with("A, B", &[("B", "1")]));
        assert_ne!(gzip, key);
        let (first, last) = key.variants();
        assert!([gzip, key].iter().all(|name| (first..=last).contains(name)));
        assert!(!(first..=last).contains(&Key::new(b"l")));
    }
}
