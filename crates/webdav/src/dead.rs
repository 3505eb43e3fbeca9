//! Properties that clients set and the server only keeps ("dead" ones, RFC 4918 §4), as bytes that are kept with a
//! file.

use std::collections::BTreeMap;

use crate::{Name, PropertyUpdate};

/// The first byte of what is kept.
const VERSION: u8 = 1;
/// All properties of a file together: more would not fit everywhere.
pub const BYTES_MAX: usize = 60 << 10;

/// The dead properties of a resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadProperties(BTreeMap<Name, String>);

impl DeadProperties {
    /// The value of a property: self-contained XML.
    pub fn value(&self, name: &Name) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.0.iter().map(|(name, value)| (name, value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes a change. Removing what is not there is no mistake (§14.23).
    pub fn update(&mut self, update: PropertyUpdate) {
        match update {
            PropertyUpdate::Set(name, value) => {
                self.0.insert(name, value);
            }
            PropertyUpdate::Remove(name) => {
                self.0.remove(&name);
            }
        }
    }

    /// The bytes to keep; `None` where they are too many.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut out = vec![VERSION];
        for (name, value) in &self.0 {
            for part in [&name.namespace, &name.local, value] {
                out.extend_from_slice(&u32::try_from(part.len()).ok()?.to_be_bytes());
                out.extend_from_slice(part.as_bytes());
            }
        }
        (out.len() <= BYTES_MAX).then_some(out)
    }

    /// The stored properties; `None` for bytes of another program.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let mut properties = BTreeMap::new();
        while !rest.is_empty() {
            let (namespace, local, value) = (part(&mut rest)?, part(&mut rest)?, part(&mut rest)?);
            properties.insert(Name { namespace, local }, value);
        }
        Some(Self(properties))
    }
}

fn part(rest: &mut &[u8]) -> Option<String> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = after;
    String::from_utf8(part.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_again() {
        let mut properties = DeadProperties::default();
        let name = |local: &str| Name { namespace: "Z:ü".into(), local: local.into() };
        for local in ["a", "b"] {
            properties.update(PropertyUpdate::Set(name(local), format!("<x>{local}</x>")));
        }
        properties.update(PropertyUpdate::Remove(name("none")));
        let bytes = properties.to_bytes().expect("few");
        assert_eq!(DeadProperties::from_bytes(&bytes), Some(properties.clone()));
        for end in 2..bytes.len() {
            let cut = DeadProperties::from_bytes(&bytes[..end]);
            assert!(cut.is_none_or(|cut| cut.iter().count() < 2), "{end}");
        }
        assert_eq!(DeadProperties::from_bytes(b""), None);
        properties.update(PropertyUpdate::Set(name("c"), "x".repeat(BYTES_MAX)));
        assert_eq!(properties.to_bytes(), None);
    }
}
