//! WebDAV (RFC 4918) without its files: what request bodies ask for, what answers say, whether the conditions of an
//! `If` field hold, and which locks there are. Bytes, paths and the time come in; no file is touched here.
#![forbid(unsafe_code)]

pub mod body;
pub mod condition;
pub mod dead;
pub mod lock;
pub mod multistatus;
mod tree;

pub use body::{LockRequest, PropertyUpdate, Propfind};
pub use condition::IfField;
pub use dead::DeadProperties;
pub use lock::{Lock, LockTable, Scope};

/// The namespace of the protocol's own names.
pub const DAV: &str = "DAV:";

/// The name of a property: a namespace, which may be none, and a local name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// Empty for none.
    pub namespace: String,
    /// A name without a prefix.
    pub local: String,
}

impl Name {
    /// A name of the protocol itself.
    pub fn dav(local: &str) -> Self {
        Self { namespace: DAV.to_owned(), local: local.to_owned() }
    }

    /// Whether it is one of the protocol's own.
    pub fn is_dav(&self) -> bool {
        self.namespace == DAV
    }
}

/// Why a body or field cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// It is no well-formed XML, or not what the method takes (400).
    Malformed,
    /// It is larger, deeper or has more parts than are taken (413).
    TooLarge,
}
