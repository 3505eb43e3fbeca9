//! The nodes of a cluster.

use prost::Message;

use super::What;

/// Which nodes there are.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ListNodes {}

/// What this node is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DescribeNode {}

/// Another program takes over.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Upgrade {}

/// The nodes, by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeList {
    /// What they are called together.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// The node that was asked.
    #[prost(string, tag = "2")]
    pub node: String,
    /// They.
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<NodeInfo>,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeInfo {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Its process id.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// How long it has been up.
    #[prost(uint64, tag = "4")]
    pub uptime_millis: u64,
    /// Whether it wants new requests, as health probes are told.
    #[prost(bool, tag = "5")]
    pub is_ready: bool,
    /// Whether an operator has drained it.
    #[prost(bool, tag = "6")]
    pub is_drained: bool,
    /// Its sessions.
    #[prost(uint64, tag = "7")]
    pub sessions: u64,
    /// Those of them with a running request.
    #[prost(uint64, tag = "8")]
    pub processing: u64,
    /// Requests so far.
    #[prost(uint64, tag = "9")]
    pub requests: u64,
    /// Whether it did not answer; then only its name is known, and when it was last heard of.
    #[prost(bool, tag = "10")]
    pub is_silent: bool,
    /// How long ago a silent node was heard of.
    #[prost(uint64, tag = "11")]
    pub heard_millis: u64,
}

impl What {
    /// Whether it changes something.
    pub const fn is_change(&self) -> bool {
        match self {
            Self::Cancel(_)
            | Self::ShutDown(_)
            | Self::Reload(_)
            | Self::Reopen(_)
            | Self::Stop(_)
            | Self::PurgeCache(_)
            | Self::Drain(_)
            | Self::Upgrade(_) => true,
            Self::List(_)
            | Self::Show(_)
            | Self::Measure(_)
            | Self::MeasureMemory(_)
            | Self::ListCertificates(_)
            | Self::ListServices(_)
            | Self::Overview(_)
            | Self::ListNodes(_)
            | Self::DescribeNode(_) => false,
        }
    }
}
