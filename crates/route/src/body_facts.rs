//! What is known about the body of a request that was gathered before it was passed on.

use std::path::Path;
use std::sync::Arc;

/// `$request_body` and `$request_body_file`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BodyFacts {
    /// All of it, where it is in memory.
    pub bytes: Option<Arc<Vec<u8>>>,
    /// The file that it is in, where that has a name.
    pub file: Option<Arc<Path>>,
}
