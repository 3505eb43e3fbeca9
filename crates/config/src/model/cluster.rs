//! The `cluster` block: the view of several servers as one.

use std::path::PathBuf;

use sekisho_nats::Address;

/// The `cluster` block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// `name`: what the servers are called together.
    pub name: String,
    /// `node`: what this one is called; none is the machine's name.
    pub node: Option<String>,
    /// `nats`: where they meet, in the order in which they are tried.
    pub servers: Vec<Address>,
    /// `credentials`: what this node proves itself by.
    pub credentials: Option<PathBuf>,
    /// `trusted_certificate`: whom it believes; none is whom the machine believes.
    pub trusted_certificate: Option<PathBuf>,
}
