//! How the server is, on one page: what the status page and `ctl status` show.

use prost::Message;

use super::{Certificate, MemoryShare};

/// Asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct AskOverview {}

/// The page.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Overview {
    /// The version of the server.
    #[prost(string, tag = "1")]
    pub version: String,
    /// How long it has been up.
    #[prost(uint64, tag = "2")]
    pub uptime_millis: u64,
    /// Its process id.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// Workers that answer.
    #[prost(uint32, tag = "4")]
    pub workers: u32,
    /// Sessions of HTTP by state.
    #[prost(uint64, tag = "5")]
    pub idle: u64,
    /// See `idle`.
    #[prost(uint64, tag = "6")]
    pub processing: u64,
    /// See `idle`.
    #[prost(uint64, tag = "7")]
    pub closing: u64,
    /// Requests so far.
    #[prost(uint64, tag = "8")]
    pub requests: u64,
    /// Answers with the statuses 2xx, 3xx, 4xx and 5xx so far.
    #[prost(uint64, repeated, tag = "9")]
    pub responses: Vec<u64>,
    /// Bytes received from HTTP clients so far.
    #[prost(uint64, tag = "10")]
    pub received_bytes: u64,
    /// Bytes sent to them.
    #[prost(uint64, tag = "11")]
    pub sent_bytes: u64,
    /// CGI programs that run.
    #[prost(uint64, tag = "12")]
    pub programs: u64,
    /// Deadlines that expired so far.
    #[prost(uint64, tag = "13")]
    pub deadlines: u64,
    /// Rates between looks at the server, the oldest first.
    #[prost(message, repeated, tag = "14")]
    pub rates: Vec<Rates>,
    /// The busiest locations of the configuration in use.
    #[prost(message, repeated, tag = "15")]
    pub locations: Vec<LocationCount>,
    /// The servers of all upstream groups.
    #[prost(message, repeated, tag = "16")]
    pub upstreams: Vec<UpstreamServer>,
    /// The certificates in use.
    #[prost(message, repeated, tag = "17")]
    pub certificates: Vec<Certificate>,
    /// The devices that files were read from or written to.
    #[prost(message, repeated, tag = "18")]
    pub disks: Vec<Disk>,
    /// The budget of memory that peers can make the server hold: all of it, then the share of each class.
    #[prost(message, repeated, tag = "19")]
    pub memory_budget: Vec<MemoryShare>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Disk {
    /// A folder on it.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its number, as in `/proc/self/mountinfo`.
    #[prost(string, tag = "2")]
    pub device: String,
    /// Operations that run.
    #[prost(uint64, tag = "3")]
    pub running: u64,
    /// Operations that wait for a thread.
    #[prost(uint64, tag = "4")]
    pub waiting: u64,
    /// Operations that were given up so far.
    #[prost(uint64, tag = "5")]
    pub abandoned: u64,
    /// How long the device has not responded; 0 where it does.
    #[prost(uint64, tag = "6")]
    pub stuck_millis: u64,
}

/// Rates over some time, per 1000 seconds, so that whole numbers suffice.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Rates {
    /// How long that time was.
    #[prost(uint64, tag = "1")]
    pub interval_millis: u64,
    /// Requests.
    #[prost(uint64, tag = "2")]
    pub requests: u64,
    /// Answers with a status of 500 and above.
    #[prost(uint64, tag = "3")]
    pub errors: u64,
    /// Bytes sent.
    #[prost(uint64, tag = "4")]
    pub sent_bytes: u64,
}

/// A location and its requests.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocationCount {
    /// The server's name and the location, as in the configuration.
    #[prost(string, tag = "1")]
    pub location: String,
    /// Requests since the configuration was loaded.
    #[prost(uint64, tag = "2")]
    pub requests: u64,
}

/// A server that requests are passed to.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpstreamServer {
    /// The group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// The address.
    #[prost(string, tag = "2")]
    pub server: String,
    /// `up`, or why requests are not passed to it.
    #[prost(string, tag = "3")]
    pub state: String,
    /// Requests that run there.
    #[prost(uint32, tag = "4")]
    pub running: u32,
    /// Requests so far.
    #[prost(uint64, tag = "5")]
    pub requests: u64,
    /// Failures so far.
    #[prost(uint64, tag = "6")]
    pub failures: u64,
}
