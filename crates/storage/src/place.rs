//! Where objects are, and the target of a request for one: the only place where keys become targets.

use sekisho_http::target::push_escape;

/// A bucket, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The name and port of the server, as `Host` has it.
    pub host: Box<str>,
    /// What goes before every key in a target: `/bucket`, or nothing if the host names the bucket.
    pub base: Box<str>,
    /// The bucket.
    pub bucket: Box<str>,
    /// What every key begins with; empty, or with a closing slash.
    pub prefix: Box<str>,
    /// Where the bucket is.
    pub region: Box<str>,
}

/// Names and values of a query, not encoded.
pub type Query<'a> = &'a [(&'a str, &'a [u8])];

/// A request before it is signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The method.
    pub method: &'static str,
    /// The path, encoded.
    pub path: Vec<u8>,
    /// The query, encoded and in the order that signatures need; without its question mark.
    pub query: Vec<u8>,
}

impl Draft {
    /// What goes into the request line.
    pub fn target(&self) -> Vec<u8> {
        let mut target = self.path.clone();
        if !self.query.is_empty() {
            target.push(b'?');
            target.extend_from_slice(&self.query);
        }
        target
    }
}

impl Place {
    /// The key of a path below the root, which begins with a slash.
    pub fn key(&self, path: &[u8]) -> Vec<u8> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        [self.prefix.as_bytes(), path].concat()
    }

    /// The path of a key; `None` for one that is not below the prefix.
    pub fn path<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(&*self.prefix)
    }

    /// A request about the object of this key.
    pub fn object(&self, method: &'static str, key: &[u8], query: Query<'_>) -> Draft {
        let mut path = self.base.as_bytes().to_vec();
        path.push(b'/');
        encode(key, true, &mut path);
        Draft { method, path, query: encoded_query(query) }
    }

    /// A request about the bucket.
    pub fn bucket(&self, method: &'static str, query: Query<'_>) -> Draft {
        let path = if self.base.is_empty() { "/" } else { &self.base };
        Draft { method, path: path.as_bytes().to_vec(), query: encoded_query(query) }
    }

    /// What `x-amz-copy-source` says for this key.
    pub fn copy_source(&self, key: &[u8]) -> Vec<u8> {
        let mut out = format!("/{}/", self.bucket).into_bytes();
        encode(key, true, &mut out);
        out
    }
}

/// Encodes as signatures need it: everything but RFC 3986's unreserved characters.
fn encode(bytes: &[u8], keeps_slashes: bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        let is_plain = byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || (keeps_slashes && byte == b'/');
        if is_plain {
            out.push(byte);
        } else {
            push_escape(byte, out);
        }
    }
}

fn encoded_query(query: Query<'_>) -> Vec<u8> {
    let one = |(name, value): &(&str, &[u8])| {
        let mut out = Vec::new();
        encode(name.as_bytes(), false, &mut out);
        out.push(b'=');
        encode(value, false, &mut out);
        out
    };
    let mut pairs: Vec<Vec<u8>> = query.iter().map(one).collect();
    pairs.sort();
    pairs.join(&b'&')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(base: &str, prefix: &str) -> Place {
        Place {
            host: "h".into(),
            base: base.into(),
            bucket: "b".into(),
            prefix: prefix.into(),
            region: "r".into(),
        }
    }

    #[test]
    fn keys_are_below_the_prefix_and_encoded() {
        let place = place("/b", "a/");
        let key = place.key("/x y/ü+?.txt".as_bytes());
        assert_eq!(key, "a/x y/ü+?.txt".as_bytes());
        let draft = place.object("GET", &key, &[]);
        assert_eq!(draft.target(), b"/b/a/x%20y/%C3%BC%2B%3F.txt");
        assert_eq!(place.path("a/x"), Some("x"));
        assert_eq!(place.path("x"), None);
        assert_eq!(place.copy_source(b"a/x y"), b"/b/a/x%20y");
    }

    #[test]
    fn queries_are_sorted_and_encoded() {
        let with_base = place("/b", "").bucket("GET", &[("prefix", b"a/b"), ("list-type", b"2")]);
        assert_eq!(with_base.target(), b"/b?list-type=2&prefix=a%2Fb");
        assert_eq!(place("", "").bucket("POST", &[("uploads", b"")]).target(), b"/?uploads=");
    }
}
