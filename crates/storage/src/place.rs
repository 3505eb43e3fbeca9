//! Where objects are, and the target of a request for one: the only place where keys become targets.

use sekisho_http::Fields;
use sekisho_http::target::push_escape;

use crate::Credentials;

/// The protocol that a store speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// S3, and what speaks like it.
    S3,
    /// Azure Blob Storage: buckets are containers, and objects are block blobs.
    Azure,
}

/// A bucket, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// How its server is spoken to.
    pub service: Service,
    /// The name and port of the server, as `Host` has it.
    pub host: Box<str>,
    /// Whether that server is asked by `https://`.
    pub is_tls: bool,
    /// What goes before every key in a target: `/bucket`, or nothing if the host names the bucket.
    pub base: Box<str>,
    /// The bucket.
    pub bucket: Box<str>,
    /// What every key begins with; empty, or with a closing slash.
    pub prefix: Box<str>,
    /// Where the bucket is.
    pub region: Box<str>,
}

/// A request before it is signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The method.
    pub method: &'static str,
    /// The path, encoded.
    pub path: Vec<u8>,
    /// Names and values of the query, not encoded.
    pub query: Vec<(&'static str, Vec<u8>)>,
    /// Its own fields.
    pub fields: Fields,
}

impl Draft {
    /// What goes into the request line.
    pub fn target(&self) -> Vec<u8> {
        let mut target = self.path.clone();
        if !self.query.is_empty() {
            target.push(b'?');
            target.extend_from_slice(&self.encoded_query());
        }
        target
    }

    /// The query, encoded and in the order that signatures need; without its question mark.
    pub(crate) fn encoded_query(&self) -> Vec<u8> {
        let one = |(name, value): &(&str, Vec<u8>)| {
            let mut out = Vec::new();
            encode(name.as_bytes(), false, &mut out);
            out.push(b'=');
            encode(value, false, &mut out);
            out
        };
        let mut pairs: Vec<Vec<u8>> = self.query.iter().map(one).collect();
        pairs.sort();
        pairs.join(&b'&')
    }

    /// The same with what proves that the request is ours, where that stands in the target. It is not to be shown.
    pub fn signed_target(&self, credentials: Option<&Credentials>) -> Vec<u8> {
        let mut target = self.target();
        if let Some(Credentials::SharedAccess(token)) = credentials {
            target.push(if self.query.is_empty() { b'?' } else { b'&' });
            target.extend_from_slice(token.as_bytes());
        }
        target
    }

    /// With a further value in its query.
    pub(crate) fn with(mut self, name: &'static str, value: &[u8]) -> Self {
        self.query.push((name, value.to_vec()));
        self
    }

    /// With a further field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push(name, value);
        self
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

    /// What an object is called in a cache: the same for all servers, and another one in another bucket.
    pub fn cache_key(&self, key: &[u8]) -> Vec<u8> {
        let Self { service, host, base, bucket, .. } = self;
        let before = match service {
            Service::S3 => format!("s3://{host}/{bucket}/"),
            Service::Azure => format!("az://{host}{base}/"),
        };
        [before.as_bytes(), key].concat()
    }

    /// A request about the object of this key: GET, HEAD or DELETE.
    pub fn object(&self, method: &'static str, key: &[u8]) -> Draft {
        let mut path = self.base.as_bytes().to_vec();
        path.push(b'/');
        encode(key, true, &mut path);
        Draft { method, path, query: Vec::new(), fields: Fields::default() }
    }

    /// A request about the bucket.
    pub(crate) fn bucket(&self, method: &'static str) -> Draft {
        let path = if self.base.is_empty() { "/" } else { &self.base };
        let path = path.as_bytes().to_vec();
        Draft { method, path, query: Vec::new(), fields: Fields::default() }
    }

    /// What a copy is made of, as the request for it says.
    pub(crate) fn copy_source(&self, key: &[u8]) -> Vec<u8> {
        let Self { service, host, is_tls, base, bucket, .. } = self;
        let mut out = match service {
            Service::S3 => format!("/{bucket}/"),
            Service::Azure if *is_tls => format!("https://{host}{base}/"),
            Service::Azure => format!("http://{host}{base}/"),
        }
        .into_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(base: &str, prefix: &str) -> Place {
        Place {
            service: Service::S3,
            host: "h".into(),
            is_tls: true,
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
        let draft = place.object("GET", &key);
        assert_eq!(draft.target(), b"/b/a/x%20y/%C3%BC%2B%3F.txt");
        assert_eq!(place.path("a/x"), Some("x"));
        assert_eq!(place.path("x"), None);
        assert_eq!(place.copy_source(b"a/x y"), b"/b/a/x%20y");
        assert_eq!(place.cache_key(b"a/x"), b"s3://h/b/a/x");
        let azure = Place { service: Service::Azure, base: "/account/b".into(), ..place };
        assert_eq!(azure.copy_source(b"a/x y"), b"https://h/account/b/a/x%20y");
        assert_eq!(azure.cache_key(b"a/x"), b"az://h/account/b/a/x");
    }

    #[test]
    fn queries_are_sorted_and_encoded() {
        let with_base =
            place("/b", "").bucket("GET").with("prefix", b"a/b").with("list-type", b"2");
        assert_eq!(with_base.target(), b"/b?list-type=2&prefix=a%2Fb");
        assert_eq!(place("", "").bucket("POST").with("uploads", b"").target(), b"/?uploads=");
    }
}
