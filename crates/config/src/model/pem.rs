//! Certificates and keys (PEM), and where they are found.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::Template;

/// Where a certificate or a key is found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pem {
    /// In this file.
    File(PathBuf),
    /// `data:`: the text itself.
    Text(Box<[u8]>),
    /// What these variables say at the time: one of the two. A relative path begins in the folder.
    Computed {
        /// The value.
        value: Template,
        /// The folder of the configuration.
        folder: PathBuf,
    },
}

impl Pem {
    /// What a value says that has no variables (any more).
    pub fn of_value(value: &[u8], folder: &std::path::Path) -> Self {
        match value.strip_prefix(b"data:") {
            Some(text) => Self::Text(text.into()),
            None => Self::File(folder.join(OsStr::from_bytes(value))),
        }
    }

    /// The file, if it is one that is known.
    pub const fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) | Self::Computed { .. } => None,
        }
    }

    /// Whether it depends on variables.
    pub const fn is_computed(&self) -> bool {
        matches!(self, Self::Computed { .. })
    }

    /// The file, or what stands in its place in messages.
    pub fn shown(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Text(_) => "data:".into(),
            Self::Computed { .. } => "$variable".into(),
        }
    }
}

/// `ssl_certificate_cache`: certificates that variables choose, kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PemCache {
    /// How many certificates and keys.
    pub max: usize,
    /// For so long those that are not used are kept.
    pub inactive: Duration,
    /// After so long they are read again.
    pub valid: Duration,
}
