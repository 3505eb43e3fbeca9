//! What is known about the servers that were asked for a request, for logs and fields.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::{Fields, Status};
use sekisho_upstream::cache::CacheStatus;

/// All servers that were asked.
#[derive(Clone, Debug, Default)]
pub struct UpstreamFacts {
    /// One for each try, in order.
    pub tries: Vec<UpstreamTry>,
    /// How many of them are of handlers before the present one.
    pub settled: usize,
    /// The fields of the last answer.
    pub fields: Fields,
    /// The fields that followed its body.
    pub trailers: Fields,
    /// What a cache had, where one was asked.
    pub cache: Option<CacheStatus>,
}

impl UpstreamFacts {
    /// Empties it; the storage stays.
    pub fn clear(&mut self) {
        self.tries.clear();
        self.settled = 0;
        self.fields.clear();
        self.trailers.clear();
        self.cache = None;
    }
}

/// One try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamTry {
    /// The address of the server, or the name of the group where none could be asked.
    pub name: Arc<str>,
    /// The status of its answer, or the one for its failure.
    pub status: Option<Status>,
    /// How long it took to be connected.
    pub connect_time: Option<Duration>,
    /// How long it took until the head was there.
    pub header_time: Option<Duration>,
    /// How long it took in all.
    pub response_time: Option<Duration>,
    /// Bytes that were received, and of these, of the body.
    pub received: u64,
    /// Bytes of the body of the answer.
    pub body: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Whether it is the first one of another location: the answer of those before led there.
    pub is_elsewhere: bool,
}
