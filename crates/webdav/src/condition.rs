//! The `If` field (RFC 4918 §10.4): lists of conditions on states of resources, of which one list must hold. It is
//! also how a client says that it knows a lock.

use crate::Invalid;

/// How many conditions there may be in all.
const CONDITIONS_MAX: usize = 256;

/// An `If` field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IfField {
    lists: Vec<List>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct List {
    /// The resource that the list is about; `None` for the one that is asked for.
    resource: Option<Vec<u8>>,
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Condition {
    is_negated: bool,
    state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// It is locked with this token.
    Token(Vec<u8>),
    /// It has this entity tag.
    Etag(Vec<u8>),
}

/// How a resource is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceState {
    /// The tokens of the locks that it is in.
    pub tokens: Vec<String>,
    /// Its entity tag, if it has one.
    pub etag: Option<String>,
}

impl IfField {
    /// Reads the value of the field.
    pub fn parse(value: &[u8]) -> Result<Self, Invalid> {
        let mut rest = value.trim_ascii();
        let mut lists = Vec::new();
        let (mut resource, mut count) = (None, 0);
        let is_tagged = rest.first() == Some(&b'<');
        while let Some(&first) = rest.first() {
            match first {
                b'<' if is_tagged => {
                    let (tag, after) = enclosed(rest, b'>')?;
                    resource = Some(tag.to_vec());
                    rest = after.trim_ascii_start();
                    if rest.first() != Some(&b'(') {
                        return Err(Invalid::Malformed);
                    }
                }
                b'(' => {
                    let (conditions, after) = list(&rest[1..])?;
                    count += conditions.len();
                    if count > CONDITIONS_MAX {
                        return Err(Invalid::TooLarge);
                    }
                    lists.push(List { resource: resource.clone(), conditions });
                    rest = after.trim_ascii_start();
                }
                _ => return Err(Invalid::Malformed),
            }
        }
        if lists.is_empty() { Err(Invalid::Malformed) } else { Ok(Self { lists }) }
    }

    /// Every token that is named, wherever: the client knows of it.
    pub fn tokens(&self) -> impl Iterator<Item = &[u8]> {
        let conditions = self.lists.iter().flat_map(|list| &list.conditions);
        conditions.filter_map(|condition| match &condition.state {
            State::Token(token) => Some(token.as_slice()),
            State::Etag(_) => None,
        })
    }

    /// Whether one of the lists holds. `state` looks at a resource, by its address, or at the one that is asked for.
    pub fn holds(&self, mut state: impl FnMut(Option<&[u8]>) -> ResourceState) -> bool {
        self.lists.iter().any(|list| {
            let there = state(list.resource.as_deref());
            list.conditions.iter().all(|condition| {
                let is_so = match &condition.state {
                    State::Token(token) => there.tokens.iter().any(|it| it.as_bytes() == token),
                    State::Etag(etag) => {
                        there.etag.as_ref().is_some_and(|it| it.as_bytes() == etag.as_slice())
                    }
                };
                is_so != condition.is_negated
            })
        })
    }
}

/// The conditions up to the closing bracket, and what follows.
fn list(mut rest: &[u8]) -> Result<(Vec<Condition>, &[u8]), Invalid> {
    let mut conditions = Vec::new();
    let mut is_negated = false;
    loop {
        rest = rest.trim_ascii_start();
        let state = match rest.first() {
            Some(b')') if !conditions.is_empty() && !is_negated => {
                return Ok((conditions, &rest[1..]));
            }
            Some(b'<') => {
                let (token, after) = enclosed(rest, b'>')?;
                rest = after;
                State::Token(token.to_vec())
            }
            Some(b'[') => {
                let (etag, after) = enclosed(rest, b']')?;
                rest = after;
                State::Etag(etag.to_vec())
            }
            _ if !is_negated && rest.get(..3).is_some_and(|it| it.eq_ignore_ascii_case(b"not")) => {
                is_negated = true;
                rest = &rest[3..];
                continue;
            }
            _ => return Err(Invalid::Malformed),
        };
        if conditions.len() == CONDITIONS_MAX {
            return Err(Invalid::TooLarge);
        }
        conditions.push(Condition { is_negated: std::mem::take(&mut is_negated), state });
    }
}

/// What stands between the first byte and `end`, and what follows.
fn enclosed(text: &[u8], end: u8) -> Result<(&[u8], &[u8]), Invalid> {
    let at = text.iter().position(|byte| *byte == end).filter(|at| *at > 1);
    at.map(|at| (&text[1..at], &text[at + 1..])).ok_or(Invalid::Malformed)
}

/// The token of a `Lock-Token` field: `<urn:uuid:…>`.
pub fn coded_url(value: &[u8]) -> Option<&[u8]> {
    value.trim_ascii().strip_prefix(b"<")?.strip_suffix(b">").filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(field: &str, tokens: &[&str], etag: &str) -> bool {
        let state = ResourceState {
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            etag: Some(etag.to_owned()),
        };
        IfField::parse(field.as_bytes()).expect(field).holds(|resource| match resource {
            None | Some(b"/here") => state.clone(),
            Some(_) => ResourceState::default(),
        })
    }

    #[test]
    fn one_list_must_hold_and_all_of_it() {
        for (field, expected) in [
            ("(<a>)", true),
            ("(<b>)", false),
            ("(<a> [\"e\"])", true),
            ("(<a> [\"f\"])", false),
            ("(<a> [\"f\"]) ([\"e\"])", true),
            ("(Not <b>)", true),
            ("(not <a>)", false),
            ("(<a> Not <DAV:no-lock>)", true),
            ("</here> (<a>)", true),
            ("</there> (<a>)", false),
            ("</there> (<a>) (Not <a>)", true),
            ("</there> (<a>) </here> ([\"e\"])", true),
        ] {
            assert_eq!(holds(field, &["a"], "\"e\""), expected, "{field}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for field in [
            "",
            "x",
            "()",
            "(<>)",
            "(<a>",
            "<x>",
            "<x> <y> (<a>)",
            "(Not)",
            "(Not Not <a>)",
            "(<a>) <x>",
        ] {
            assert_eq!(IfField::parse(field.as_bytes()), Err(Invalid::Malformed), "{field}");
        }
        let many = "(<a>)".repeat(CONDITIONS_MAX + 1);
        assert_eq!(IfField::parse(many.as_bytes()), Err(Invalid::TooLarge));
        let many = format!("({})", "<a>".repeat(CONDITIONS_MAX + 1));
        assert_eq!(IfField::parse(many.as_bytes()), Err(Invalid::TooLarge));
        let field = IfField::parse(b"(<a> [\"e\"]) (Not <b>)").expect("good");
        assert_eq!(field.tokens().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(coded_url(b" <urn:x> "), Some(b"urn:x".as_slice()));
        assert_eq!(coded_url(b"urn:x"), None);
    }
}
