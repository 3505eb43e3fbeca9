//! Where is listened, and how.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::ServerId;

/// An address that is listened on, with the servers behind it.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where.
    pub address: ListenAddress,
    /// The server for requests whose `Host` names none.
    pub default_server: ServerId,
    /// All servers at this address, the default one included, in the order of the file.
    pub servers: Vec<ServerId>,
    /// Socket options.
    pub options: ListenOptions,
}

/// Socket options of a `listen`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own in the directive")]
pub struct ListenOptions {
    /// `backlog=`
    pub backlog: Option<u32>,
    /// `reuseport`: one socket for each worker.
    pub reuseport: bool,
    /// `ipv6only=`; nginx's default is on.
    pub ipv6only: Option<bool>,
    /// `so_keepalive=on|off` (finer forms are accepted as on).
    pub so_keepalive: Option<bool>,
    /// `rcvbuf=`
    pub rcvbuf: Option<u64>,
    /// `sndbuf=`
    pub sndbuf: Option<u64>,
    /// `deferred`, `deferred=off`: whether a connection is accepted only with its first bytes; ours is on.
    pub deferred: Option<bool>,
    /// `fastopen=`
    pub fastopen: Option<u32>,
    /// `http2`: as `http2 on` in the servers of this address.
    pub http2: bool,
    /// `proxy_protocol`: connections begin with the header of a balancer.
    pub proxy_protocol: bool,
    /// `ssl`: connections to this address are encrypted. Also set by `quic`.
    pub tls: bool,
    /// `quic`: HTTP/3 over datagrams.
    pub quic: bool,
    /// `ipc`: sessions at this Unix socket go through shared memory.
    pub ipc: bool,
    /// `mode=`: who may connect to a Unix socket; what the process makes of files where it is not said.
    pub mode: Option<u32>,
}

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ListenAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// UDP over IPv4 or IPv6.
    Udp(SocketAddr),
}
