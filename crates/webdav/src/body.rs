//! What the bodies of PROPFIND, PROPPATCH and LOCK ask for (RFC 4918 §14).

use crate::lock::Scope;
use crate::tree::{self, Element};
use crate::{Invalid, Name};

pub use crate::tree::BYTES_MAX;

/// PROPFIND: which properties are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Propfind {
    /// All that a server likes to tell, and these.
    All(Vec<Name>),
    /// The names of those that there are.
    Names,
    /// These.
    These(Vec<Name>),
}

impl Propfind {
    /// No body asks for all (§9.1).
    pub fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.is_empty() {
            return Ok(Self::All(Vec::new()));
        }
        let root = tree::parse(bytes)?;
        if !root.is("propfind") {
            return Err(Invalid::Malformed);
        }
        let names = |element: &Element| element.children().map(|it| it.name.clone()).collect();
        let mut found = root.children().filter_map(|child| match child.name.local.as_str() {
            _ if !child.name.is_dav() => None,
            "prop" => Some(Self::These(names(child))),
            "propname" => Some(Self::Names),
            "allprop" => Some(Self::All(root.child("include").map(names).unwrap_or_default())),
            _ => None,
        });
        match (found.next(), found.next()) {
            (Some(asked), None) => Ok(asked),
            _ => Err(Invalid::Malformed),
        }
    }
}

/// PROPPATCH: one change, in the order in which they are to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyUpdate {
    /// The property has this value from now on: self-contained XML.
    Set(Name, String),
    /// The property goes.
    Remove(Name),
}

impl PropertyUpdate {
    /// The changes that a body asks for.
    pub fn parse(bytes: &[u8]) -> Result<Vec<Self>, Invalid> {
        let root = tree::parse(bytes)?;
        if !root.is("propertyupdate") {
            return Err(Invalid::Malformed);
        }
        let mut all = Vec::new();
        for change in root.children() {
            let is_set = change.is("set");
            if !is_set && !change.is("remove") {
                continue;
            }
            let prop = change.child("prop").ok_or(Invalid::Malformed)?;
            all.extend(prop.children().map(|property| {
                let name = property.name.clone();
                if is_set { Self::Set(name, property.inner_xml()) } else { Self::Remove(name) }
            }));
        }
        if all.is_empty() { Err(Invalid::Malformed) } else { Ok(all) }
    }

    /// The property that is changed.
    pub fn name(&self) -> &Name {
        match self {
            Self::Set(name, _) | Self::Remove(name) => name,
        }
    }
}

/// LOCK: a new lock. A body that is empty refreshes one that there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// Whether others may have one, too.
    pub scope: Scope,
    /// The owner as the client gave it: self-contained XML.
    pub owner: String,
}

impl LockRequest {
    /// What a body asks for; `None` for an empty one.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Invalid> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let root = tree::parse(bytes)?;
        let is_write = root.child("locktype").is_some_and(|kind| kind.child("write").is_some());
        let scope = root.child("lockscope").and_then(|scope| {
            match (scope.child("exclusive"), scope.child("shared")) {
                (Some(_), None) => Some(Scope::Exclusive),
                (None, Some(_)) => Some(Scope::Shared),
                _ => None,
            }
        });
        match scope.filter(|_| is_write && root.is("lockinfo")) {
            Some(scope) => {
                let owner = root.child("owner").map(Element::inner_xml).unwrap_or_default();
                Ok(Some(Self { scope, owner }))
            }
            None => Err(Invalid::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, local: &str) -> Name {
        Name { namespace: namespace.into(), local: local.into() }
    }

    #[test]
    fn propfind_asks_for_all_for_names_or_for_some() {
        let parse = |inner: &str| {
            Propfind::parse(format!("<D:propfind xmlns:D='DAV:'>{inner}</D:propfind>").as_bytes())
        };
        assert_eq!(Propfind::parse(b""), Ok(Propfind::All(Vec::new())));
        assert_eq!(parse("<D:allprop/>"), Ok(Propfind::All(Vec::new())));
        assert_eq!(
            parse("<D:allprop/><D:include><x xmlns='y'/></D:include>"),
            Ok(Propfind::All(vec![name("y", "x")]))
        );
        assert_eq!(parse("<D:propname/>"), Ok(Propfind::Names));
        assert_eq!(
            parse("<D:prop><D:getetag/><n xmlns=''/></D:prop>"),
            Ok(Propfind::These(vec![Name::dav("getetag"), name("", "n")]))
        );
        assert_eq!(parse("<D:expired-props/><D:propname/>"), Ok(Propfind::Names), "§17");
        for wrong in ["", "<D:other/>", "<D:propname/><D:allprop/>"] {
            assert_eq!(parse(wrong), Err(Invalid::Malformed), "{wrong}");
        }
        assert_eq!(Propfind::parse(b"<propfind><prop/></propfind>"), Err(Invalid::Malformed));
    }

    #[test]
    fn proppatch_keeps_the_order_of_its_changes() {
        let body = "<D:propertyupdate xmlns:D='DAV:' xmlns:z='Z'>\
            <D:set><D:prop><z:a>1<z:b/></z:a></D:prop></D:set>\
            <D:remove><D:prop><z:a/><z:c/></D:prop></D:remove></D:propertyupdate>";
        assert_eq!(
            PropertyUpdate::parse(body.as_bytes()).expect("good"),
            [
                PropertyUpdate::Set(name("Z", "a"), "1<b xmlns=\"Z\"/>".into()),
                PropertyUpdate::Remove(name("Z", "a")),
                PropertyUpdate::Remove(name("Z", "c")),
            ]
        );
        for wrong in ["", "<D:set/>", "<D:set><D:prop/></D:set>"] {
            let body = format!("<D:propertyupdate xmlns:D='DAV:'>{wrong}</D:propertyupdate>");
            assert_eq!(PropertyUpdate::parse(body.as_bytes()), Err(Invalid::Malformed), "{wrong}");
        }
    }

    #[test]
    fn a_lock_has_a_scope_and_may_have_an_owner() {
        let parse = |inner: &str| {
            LockRequest::parse(format!("<lockinfo xmlns='DAV:'>{inner}</lockinfo>").as_bytes())
        };
        let write = "<locktype><write/></locktype>";
        assert_eq!(LockRequest::parse(b""), Ok(None));
        let owner = "<owner><href>kim</href></owner>";
        let asked = parse(&format!("<lockscope><shared/></lockscope>{write}{owner}"));
        let asked = asked.expect("good").expect("a lock");
        assert_eq!(asked.scope, Scope::Shared);
        assert_eq!(asked.owner, "<href xmlns=\"DAV:\">kim</href>");
        for wrong in ["", write, "<lockscope><shared/></lockscope>", "<lockscope/>"] {
            assert_eq!(parse(wrong), Err(Invalid::Malformed), "{wrong}");
        }
    }
}
