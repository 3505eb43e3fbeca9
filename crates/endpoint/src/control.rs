//! The service `control` as its callers see it: its number and its messages. The server in this
//! project offers it; what it does is described in `docs/control.md`.
//!
//! A request is an [`ControlRequest`]. A field that a later version adds is skipped by an earlier one; a number once
//! given is never given to something else.

use prost::{Message, Oneof};

mod describe;
mod nodes;
mod overview;
pub(crate) mod service;

pub use describe::{describe_services, send_sessions, shown_peer};
pub use nodes::{DescribeNode, ListNodes, NodeInfo, NodeList, Upgrade};
pub use overview::{AskOverview, Disk, LocationCount, Overview, Rates, UpstreamServer};

/// What its messages look like.
pub const SCHEMA: &str = include_str!("../proto/control.proto");

/// The number under which servers offer it.
pub const NUMBER: u32 = 1;

/// What is asked.
#[derive(Clone, PartialEq, Message)]
pub struct ControlRequest {
    /// One of these.
    #[prost(oneof = "What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22")]
    pub what: Option<What>,
    /// The node of the cluster that is asked; empty for the server itself.
    #[prost(string, tag = "100")]
    pub node: String,
}

/// What may be asked.
#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    /// Every session: records of [`Sessions`] through the channel, then [`Listed`].
    #[prost(message, tag = "1")]
    List(List),
    /// One session: [`Outcome`].
    #[prost(message, tag = "2")]
    Show(Reference),
    /// A running request shall be cancelled: [`Outcome`].
    #[prost(message, tag = "3")]
    Cancel(Cancel),
    /// A session shall end: [`Outcome`].
    #[prost(message, tag = "4")]
    ShutDown(ShutDown),
    /// The configuration shall be read again: [`CommandResult`].
    #[prost(message, tag = "5")]
    Reload(Reload),
    /// The server shall end: [`CommandResult`], before it does.
    #[prost(message, tag = "6")]
    Stop(Stop),
    /// What happened so far: [`Metrics`], once or again and again.
    #[prost(message, tag = "7")]
    Measure(Measure),
    /// What is held in memory: [`Memory`].
    #[prost(message, tag = "8")]
    MeasureMemory(MeasureMemory),
    /// Which certificates are shown to clients: [`CertificateList`].
    #[prost(message, tag = "9")]
    ListCertificates(ListCertificates),
    /// Entries of caches shall be deleted: [`Purged`].
    #[prost(message, tag = "10")]
    PurgeCache(PurgeCache),
    /// How the server is, on one page: [`Overview`].
    #[prost(message, tag = "11")]
    Overview(AskOverview),
    /// Health probes shall say that the server wants no new requests, or that it does again: [`CommandResult`].
    #[prost(message, tag = "12")]
    Drain(Drain),
    /// Which services there are: [`ServiceList`].
    #[prost(message, tag = "13")]
    ListServices(ListServices),
    /// The log files shall be opened again: [`CommandResult`].
    #[prost(message, tag = "14")]
    Reopen(Reopen),
    /// Which nodes the cluster has: [`NodeList`].
    #[prost(message, tag = "20")]
    ListNodes(ListNodes),
    /// What this node is: [`NodeInfo`].
    #[prost(message, tag = "21")]
    DescribeNode(DescribeNode),
    /// The program that is now at the server's path shall take over: [`CommandResult`], when it was started.
    #[prost(message, tag = "22")]
    Upgrade(Upgrade),
}

/// Every session.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct List {}

/// Every service.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ListServices {}

/// The services.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServiceList {
    /// They, in the order of their numbers.
    #[prost(message, repeated, tag = "1")]
    pub services: Vec<ServiceInfo>,
}

/// A service.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServiceInfo {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Its name, by which it may be called as well.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether it takes the body of a request while that comes.
    #[prost(bool, tag = "3")]
    pub takes_stream: bool,
    /// What its bodies and records look like, where it says so: a `.proto` file, as a rule.
    #[prost(string, tag = "4")]
    pub schema: String,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Reference {
    /// `:id`, or a label.
    #[prost(string, tag = "1")]
    pub reference: String,
}

/// A running request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cancel {
    /// Whose: `:id`, or a label.
    #[prost(string, tag = "1")]
    pub reference: String,
    /// Its number in the session; zero for all that run.
    #[prost(uint64, tag = "2")]
    pub request: u64,
}

/// The end of a session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ShutDown {
    /// Whose: `:id`, or a label.
    #[prost(string, tag = "1")]
    pub reference: String,
    /// Whether running requests are cancelled.
    #[prost(bool, tag = "2")]
    pub forceful: bool,
}

/// A reload.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Reload {}

/// New log files.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Reopen {}

/// The end of the server.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Stop {
    /// Whether running requests are cancelled.
    #[prost(bool, tag = "1")]
    pub forceful: bool,
}

/// What health probes are told; the server goes on serving.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Drain {
    /// Whether new requests are wanted again.
    #[prost(bool, tag = "1")]
    pub is_over: bool,
}

/// Numbers.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Measure {
    /// Zero for one answer. Otherwise a record so often through the channel, until the request is cancelled.
    #[prost(uint32, tag = "1")]
    pub every_millis: u32,
}

/// Memory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MeasureMemory {}

/// Some of the sessions, in one record.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sessions {
    /// They.
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<Session>,
}

/// The end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Listed {
    /// How many sessions were listed.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// How many workers did not answer in time.
    #[prost(uint32, tag = "2")]
    pub silent_workers: u32,
}

/// A session, of whatever protocol.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Session {
    /// Its number, unique in the server.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// `http1` or `native`.
    #[prost(string, tag = "2")]
    pub protocol: String,
    /// What it calls itself; HTTP has no such name.
    #[prost(string, tag = "3")]
    pub label: String,
    /// Which program it is.
    #[prost(string, tag = "4")]
    pub application: String,
    /// The peer, as text.
    #[prost(string, tag = "5")]
    pub peer: String,
    /// Whether it has an admin slot.
    #[prost(bool, tag = "6")]
    pub admin: bool,
    /// `idle`, `p_n`, `c_n`, `shutdown`.
    #[prost(string, tag = "7")]
    pub state: String,
    /// The strongest shutdown that was asked for: `graceful`, `forceful` or nothing.
    #[prost(string, tag = "8")]
    pub asked: String,
    /// How long it has been here.
    #[prost(uint64, tag = "9")]
    pub age_millis: u64,
    /// Which deadline is armed, by the name of its directive; empty for none.
    #[prost(string, tag = "10")]
    pub deadline: String,
    /// How long until then.
    #[prost(uint64, tag = "11")]
    pub deadline_millis: u64,
    /// Bytes that came from it.
    #[prost(uint64, tag = "12")]
    pub received_bytes: u64,
    /// Bytes that it took.
    #[prost(uint64, tag = "13")]
    pub sent_bytes: u64,
    /// How many requests it has made, where that is counted.
    #[prost(uint64, tag = "14")]
    pub requests_total: u64,
    /// Which thread serves it.
    #[prost(string, tag = "15")]
    pub worker: String,
    /// Those that run, or whose channel is not drained.
    #[prost(message, repeated, tag = "16")]
    pub requests: Vec<Request>,
    /// Who it is: `anonymous`, `unix:UID`, `token:NAME`, `user:NAME` or `certificate:SUBJECT`; empty for HTTP, whose
    /// requests may differ.
    #[prost(string, tag = "17")]
    pub identity: String,
    /// The node of the cluster that it is at; empty where one server was asked.
    #[prost(string, tag = "100")]
    pub node: String,
}

/// A request of a session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// Its number in the session.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What works on it: a handler of HTTP, or a service.
    #[prost(string, tag = "2")]
    pub handler: String,
    /// HTTP: its method.
    #[prost(string, tag = "3")]
    pub method: String,
    /// HTTP: what it asks for.
    #[prost(string, tag = "4")]
    pub target: String,
    /// Its state, by its name in the lifecycle.
    #[prost(string, tag = "5")]
    pub state: String,
    /// How long ago it came.
    #[prost(uint64, tag = "6")]
    pub age_millis: u64,
    /// What cancelled it; empty if it is not cancelled.
    #[prost(string, tag = "7")]
    pub cancelled: String,
    /// HTTP: the status of the answer, once that has begun; zero before.
    #[prost(uint32, tag = "8")]
    pub status: u32,
    /// HTTP: its id in the logs.
    #[prost(string, tag = "9")]
    pub request_id: String,
    /// HTTP: the server that it was passed to; empty for none.
    #[prost(string, tag = "10")]
    pub upstream: String,
    /// The how many-th server that is, from 1.
    #[prost(uint32, tag = "11")]
    pub upstream_try: u32,
    /// How long ago that server was chosen.
    #[prost(uint64, tag = "12")]
    pub upstream_age_millis: u64,
    /// What is waited for there; empty for nothing.
    #[prost(string, tag = "13")]
    pub upstream_deadline: String,
    /// How long until then.
    #[prost(uint64, tag = "14")]
    pub upstream_deadline_millis: u64,
    /// HTTP: the requests within it that run, outer ones before those within them.
    #[prost(message, repeated, tag = "15")]
    pub subrequests: Vec<Subrequest>,
}

/// A request within a request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Subrequest {
    /// What it asks for.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Who works on it.
    #[prost(string, tag = "2")]
    pub handler: String,
    /// How long ago it began.
    #[prost(uint64, tag = "3")]
    pub age_millis: u64,
    /// The status of its answer, once that has begun; zero before.
    #[prost(uint32, tag = "4")]
    pub status: u32,
    /// In how many requests it stands, from 1.
    #[prost(uint32, tag = "5")]
    pub depth: u32,
}

/// What came of an order for one session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Outcome {
    /// See [`Finding`].
    #[prost(enumeration = "Finding", tag = "1")]
    pub finding: i32,
    /// The session that was meant, or those that could have been.
    #[prost(message, repeated, tag = "2")]
    pub sessions: Vec<Session>,
    /// How many requests were cancelled.
    #[prost(uint64, tag = "3")]
    pub cancelled: u64,
}

/// How an order for one session went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Finding {
    /// It was done.
    Done = 0,
    /// There is no such session.
    NotFound = 1,
    /// Several sessions have this label.
    Ambiguous = 2,
    /// The session runs no such request.
    NothingRuns = 3,
}

/// How a change of the whole server went.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CommandResult {
    /// Whether it was, or will be, done.
    #[prost(bool, tag = "1")]
    pub is_good: bool,
    /// All there is to say about it.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// What happened so far, as Prometheus knows it.
#[derive(Clone, PartialEq, Message)]
pub struct Metrics {
    /// Families of numbers.
    #[prost(message, repeated, tag = "1")]
    pub families: Vec<Family>,
}

/// Numbers of one name.
#[derive(Clone, PartialEq, Message)]
pub struct Family {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it means.
    #[prost(string, tag = "2")]
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// The numbers.
    #[prost(message, repeated, tag = "4")]
    pub samples: Vec<Sample>,
}

/// One number.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// What follows the family's name: `_bucket`, `_sum`, `_count` or nothing.
    #[prost(string, tag = "1")]
    pub suffix: String,
    /// What it is about.
    #[prost(message, repeated, tag = "2")]
    pub labels: Vec<Label>,
    /// How much.
    #[prost(double, tag = "3")]
    pub value: f64,
}

/// What a number is about.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Label {
    /// In which respect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Which.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What is held in memory, by kind, and what the kernel and the allocator say of the process.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Memory {
    /// What is known to be held, all of it from the allocator.
    #[prost(message, repeated, tag = "1")]
    pub held: Vec<MemoryEntry>,
    /// What the program has from the allocator; zero if that is not known.
    #[prost(uint64, tag = "2")]
    pub heap_bytes: u64,
    /// What the allocator keeps for later.
    #[prost(uint64, tag = "3")]
    pub heap_free_bytes: u64,
    /// What is resident of the process, as the kernel counts.
    #[prost(uint64, tag = "4")]
    pub resident_bytes: u64,
    /// Of these: memory of the process itself (heap, stacks).
    #[prost(uint64, tag = "5")]
    pub resident_anonymous_bytes: u64,
    /// Of these: pages of files, such as the program itself.
    #[prost(uint64, tag = "6")]
    pub resident_file_bytes: u64,
    /// Of these: memory that is shared with others.
    #[prost(uint64, tag = "7")]
    pub resident_shared_bytes: u64,
    /// How many native sessions have memory mapped that they share with their client, and how much.
    #[prost(message, optional, tag = "8")]
    pub shared: Option<MemoryEntry>,
    /// How many workers did not answer in time.
    #[prost(uint32, tag = "9")]
    pub silent_workers: u32,
    /// The budget of memory that peers can make the server hold: all of it, then the share of each class.
    #[prost(message, repeated, tag = "10")]
    pub budget: Vec<MemoryShare>,
}

/// A share of the budget.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MemoryShare {
    /// The class of memory; "all" for the whole budget.
    #[prost(string, tag = "1")]
    pub class: String,
    /// Bytes that are taken.
    #[prost(uint64, tag = "2")]
    pub taken_bytes: u64,
    /// Bytes that may be taken.
    #[prost(uint64, tag = "3")]
    pub limit_bytes: u64,
}

/// What is held of one kind.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MemoryEntry {
    /// What it is.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// How many of them.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// How many bytes together.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// Entries of caches that shall be deleted.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PurgeCache {
    /// The name of the cache (`keys_zone`); empty for every cache.
    #[prost(string, tag = "1")]
    pub zone: String,
    /// What `proxy_cache_key` came to; all variants of it are meant. Empty for every entry.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// What was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Purged {
    /// How many caches were looked through.
    #[prost(uint64, tag = "1")]
    pub caches: u64,
    /// How many entries were deleted.
    #[prost(uint64, tag = "2")]
    pub entries: u64,
}

/// Which certificates are shown to clients.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ListCertificates {}

/// All of them.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CertificateList {
    /// Each once.
    #[prost(message, repeated, tag = "1")]
    pub certificates: Vec<Certificate>,
}

/// A certificate.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Certificate {
    /// What it is for.
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    /// The issuer that has signed it.
    #[prost(string, tag = "2")]
    pub issuer: String,
    /// Its serial number, in hexadecimal digits.
    #[prost(string, tag = "3")]
    pub serial: String,
    /// From when it is valid, in seconds since 1970.
    #[prost(int64, tag = "4")]
    pub valid_from: i64,
    /// Until when.
    #[prost(int64, tag = "5")]
    pub valid_to: i64,
    /// How long that is from now; negative where it has expired.
    #[prost(int64, tag = "6")]
    pub seconds_left: i64,
    /// It has been ordered, and is not there yet.
    #[prost(bool, tag = "7")]
    pub is_missing: bool,
    /// The file, or the authority that it is ordered from.
    #[prost(string, tag = "8")]
    pub source: String,
}

impl From<What> for ControlRequest {
    fn from(what: What) -> Self {
        Self { what: Some(what), node: String::new() }
    }
}
