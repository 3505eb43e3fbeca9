//! Answers: `207 Multi-Status`, `lockdiscovery` and preconditions that failed (RFC 4918 §13–§16).

use std::fmt::Write as _;

use quick_xml::escape::escape;
use sekisho_http::target;

use crate::{DAV, Lock, Name, Scope};

/// A `multistatus` being written.
#[derive(Debug)]
pub struct MultiStatus {
    out: String,
}

/// What was found of the properties of one resource.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that there are, each as one element.
    good: String,
    /// Those that there are not.
    missing: String,
}

impl Found {
    /// A property and its value: self-contained XML.
    pub fn push(&mut self, name: &Name, value: &str) {
        push_property(name, value, &mut self.good);
    }

    /// A property that the resource does not have.
    pub fn push_missing(&mut self, name: &Name) {
        push_property(name, "", &mut self.missing);
    }
}

fn push_property(name: &Name, value: &str, out: &mut String) {
    let (tag, declaration) = if name.namespace == DAV {
        (format!("D:{}", name.local), String::new())
    } else {
        // Also for no namespace: the names around it have a prefix.
        (name.local.clone(), format!(" xmlns=\"{}\"", escape(name.namespace.as_str())))
    };
    if value.is_empty() {
        _ = write!(out, "<{tag}{declaration}/>");
    } else {
        // A value that is not of this namespace says so itself.
        _ = write!(out, "<{tag}{declaration}>{value}</{tag}>");
    }
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

impl Default for MultiStatus {
    fn default() -> Self {
        Self { out: format!("{HEAD}<D:multistatus xmlns:D=\"DAV:\">\n") }
    }
}

impl MultiStatus {
    /// What one resource has. `path` is its decoded path.
    pub fn push(&mut self, path: &[u8], found: &Found) {
        self.begin(path);
        for (properties, status) in [(&found.good, "200 OK"), (&found.missing, "404 Not Found")] {
            if !properties.is_empty() || (status.starts_with('2') && found.missing.is_empty()) {
                self.push_propstat(properties, status);
            }
        }
        self.out.push_str("</D:response>\n");
    }

    /// What came of changes to properties: each name with its status line.
    pub fn push_changes<'a>(
        &mut self,
        path: &[u8],
        changes: impl IntoIterator<Item = (&'a Name, &'a str)>,
    ) {
        self.begin(path);
        for (name, status) in changes {
            let mut property = String::new();
            push_property(name, "", &mut property);
            self.push_propstat(&property, status);
        }
        self.out.push_str("</D:response>\n");
    }

    fn begin(&mut self, path: &[u8]) {
        self.out.push_str("<D:response><D:href>");
        self.out.push_str(&href(path));
        self.out.push_str("</D:href>");
    }

    fn push_propstat(&mut self, properties: &str, status: &str) {
        for part in [
            "<D:propstat><D:prop>",
            properties,
            "</D:prop><D:status>HTTP/1.1 ",
            status,
            "</D:status></D:propstat>",
        ] {
            self.out.push_str(part);
        }
    }

    /// How many bytes it has so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether it has none; it never has.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The whole of it.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push_str("</D:multistatus>\n");
        self.out.into_bytes()
    }
}

/// The answer to LOCK.
pub fn lock_answer(lock: &Lock, root: &[u8]) -> Vec<u8> {
    let active = active_locks([(lock, root)]);
    format!("{HEAD}<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>{active}</D:lockdiscovery></D:prop>\n")
        .into_bytes()
}

/// The value of `lockdiscovery`: the locks, each with the decoded path of what it is on.
pub fn active_locks<'a>(locks: impl IntoIterator<Item = (&'a Lock, &'a [u8])>) -> String {
    let mut out = String::new();
    for (lock, root) in locks {
        let scope = match lock.scope {
            Scope::Exclusive => "exclusive",
            Scope::Shared => "shared",
        };
        let depth = if lock.is_deep { "infinity" } else { "0" };
        let owner = match lock.owner.as_str() {
            "" => String::new(),
            owner => format!("<D:owner>{owner}</D:owner>"),
        };
        _ = write!(
            out,
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
             <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{}</D:timeout>\
             <D:locktoken><D:href>{}</D:href></D:locktoken>\
             <D:lockroot><D:href>{}</D:href></D:lockroot></D:activelock>",
            lock.timeout.as_secs(),
            escape(lock.token.as_str()),
            href(root),
        );
    }
    out
}

/// The value of `supportedlock`.
pub const SUPPORTED_LOCKS: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
<D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// A body that names the precondition that failed (§16), with the paths that it is about.
pub fn error(precondition: &str, paths: &[&[u8]]) -> Vec<u8> {
    let mut hrefs = String::new();
    for path in paths {
        _ = write!(hrefs, "<D:href>{}</D:href>", href(path));
    }
    format!(
        "{HEAD}<D:error xmlns:D=\"DAV:\"><D:{precondition}>{hrefs}</D:{precondition}></D:error>\n"
    )
    .into_bytes()
}

/// Text as the value of a property.
pub fn text(value: &str) -> String {
    // Characters that XML cannot represent become one replacement character.
    let clean: String = value
        .chars()
        .map(
            |c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c },
        )
        .collect();
    escape(clean).into_owned()
}

fn href(path: &[u8]) -> String {
    let mut encoded = Vec::new();
    target::encode_path(path, &mut encoded);
    escape(String::from_utf8_lossy(&encoded)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn an_answer_is_well_formed_whatever_is_in_it() {
        let mut found = Found::default();
        found.push(&Name::dav("displayname"), &text("a<b>&\u{1}"));
        found.push(&Name { namespace: "u&v".into(), local: "x".into() }, "<y xmlns=\"\"/>");
        found.push_missing(&Name { namespace: String::new(), local: "none".into() });
        let mut all = MultiStatus::default();
        all.push("/a b/ü&\u{ff}".as_bytes(), &found);
        all.push(b"/empty", &Found::default());
        let name = Name::dav("getetag");
        all.push_changes(b"/c", [(&name, "403 Forbidden")]);
        assert!(all.len() > 100 && !all.is_empty());
        let bytes = all.finish();
        let root = tree::parse(&bytes).expect("well-formed");
        let responses: Vec<_> = root.children().collect();
        assert_eq!(responses.len(), 3);
        let stats = responses[0].children().filter(|child| child.is("propstat")).count();
        assert_eq!(stats, 2);
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.contains("<D:href>/a%20b/"), "{text}");
        assert!(text.contains("<x xmlns=\"u&amp;v\"><y xmlns=\"\"/></x>"), "{text}");
        assert!(text.contains("HTTP/1.1 403 Forbidden"), "{text}");
    }

    #[test]
    fn locks_and_errors_are_well_formed() {
        let lock = Lock::new("urn:x".into(), b"/f".to_vec(), true, Scope::Shared, "<o/>".into());
        let answer = lock_answer(&lock, b"/f/");
        tree::parse(&answer).expect("well-formed");
        let text = String::from_utf8(answer).expect("text");
        for part in [
            "<D:shared/>",
            "<D:depth>infinity</D:depth>",
            "<D:owner><o/></D:owner>",
            "Second-600",
            "<D:href>/f/</D:href>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        tree::parse(&error("lock-token-submitted", &[b"/a b"])).expect("well-formed");
        tree::parse(format!("<a xmlns:D='DAV:'>{SUPPORTED_LOCKS}</a>").as_bytes())
            .expect("well-formed");
    }
}
