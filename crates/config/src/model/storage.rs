//! What the configuration says about object storage.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sekisho_storage::Place;

use super::{Destination, Forward, PathMapping};

/// `storage`: a bucket, or a part of one, whose objects are served and stored like files.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Its name.
    pub name: String,
    /// Its number among all of them: an index into [`Http::storages`](super::Http::storages).
    pub id: usize,
    /// Where its objects are.
    pub place: Place,
    /// The server that has them.
    pub to: Destination,
    /// How that server is spoken to.
    pub forward: Arc<Forward>,
    /// `credentials`
    pub credentials: CredentialSource,
    /// `part_size`: how large the parts of an upload are; what is smaller is sent in one request.
    pub part_bytes: u64,
    /// `abandoned`: after this time without a new part an upload is removed; `None` for never.
    pub abandoned: Option<Duration>,
}

impl Storage {
    /// What paths in it begin with.
    pub fn root(&self) -> String {
        format!("{}{}", PathMapping::STORAGE, self.name)
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.place == other.place
    }
}

impl Eq for Storage {}

/// Where the keys of an account come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CredentialSource {
    /// Requests are not signed.
    #[default]
    None,
    /// `AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT` and their companions in the environment.
    Environment,
    /// A file.
    File(PathBuf),
}
