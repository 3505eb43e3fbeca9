//! What nodes say to each other. A field that a later version adds is skipped by an earlier one.
//!
//! Subjects: `sekisho.CLUSTER.announce` (every node says that it is there), `sekisho.CLUSTER.nodes` (every node
//! describes itself to the asker) and `sekisho.CLUSTER.node.NODE` (one node is asked).

use prost::{Message, Oneof};
use sekisho_endpoint::control::NodeInfo;

/// A node says that it is there, or that it leaves.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Announcement {
    #[prost(string, tag = "1")]
    pub(super) node: String,
    /// Of the process: another one may have its name.
    #[prost(string, tag = "2")]
    pub(super) instance: String,
    #[prost(bool, tag = "3")]
    pub(super) is_leaving: bool,
}

/// A node describes itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Description {
    #[prost(message, optional, tag = "1")]
    pub(super) node: Option<NodeInfo>,
    #[prost(string, tag = "2")]
    pub(super) instance: String,
}

/// A request of the service `control`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Request {
    /// The node that asks, and its operator; for the log.
    #[prost(string, tag = "1")]
    pub(super) asker: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) body: Vec<u8>,
}

/// A part of the answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Reply {
    /// Counts from 0: a gap is a loss.
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(oneof = "Content", tags = "2, 3, 4")]
    pub(super) content: Option<Content>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Content {
    #[prost(bytes, tag = "2")]
    Record(Vec<u8>),
    #[prost(bytes, tag = "3")]
    Result(Vec<u8>),
    #[prost(message, tag = "4")]
    Error(Failure),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Failure {
    #[prost(uint32, tag = "1")]
    pub(super) code: u32,
    #[prost(string, tag = "2")]
    pub(super) text: String,
}
