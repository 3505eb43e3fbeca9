//! Bind, accept, connection limits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use sekisho_config::{Listen, ListenAddress, ListenOptions};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::drive::Connection;
use crate::stream::Stream;
use crate::worker::{Door, Worker};

/// How long accepting rests when descriptors are short and no session ends meanwhile (O5).
const PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: u32 = 4096;
/// How many bytes may wait in a socket before more are put into it.
const UNSENT_BYTES: u32 = 256 * 1024;

/// A listening socket as one worker gets it: its own descriptor of the shared socket.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: ListenAddress,
    /// The descriptor.
    pub socket: OwnedFd,
}

/// The process's listening sockets. They stay open over a reload, so that no connection that waits in
/// one is lost.
#[derive(Debug, Default)]
pub struct Sockets {
    open: Vec<(ListenAddress, Vec<Socket>)>,
}

/// An address that could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// Which.
    pub address: ListenAddress,
    /// Why.
    pub error: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.error.kind() {
            io::ErrorKind::AddrInUse => "the address is in use by another program".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "no permission (ports below 1024 need root or CAP_NET_BIND_SERVICE)".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
            _ => self.error.to_string(),
        };
        write!(f, "cannot listen on {}: {why}", Shown(&self.address))
    }
}

impl std::error::Error for BindError {}

/// An address as a person reads it.
pub struct Shown<'a>(pub &'a ListenAddress);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Sockets {
    /// The sockets for these addresses: kept where they are open already, opened where not, and closed
    /// where they are no longer wanted. On an error nothing has changed.
    pub fn reopen(&self, listens: &[Listen], workers: usize) -> Result<Self, BindError> {
        let mut next = Self::default();
        for listen in listens {
            let is_covered = |other: &Listen| covers(&other.address, &listen.address).is_some();
            if listens.iter().any(is_covered) {
                continue;
            }
            let count = if listen.options.reuseport { workers } else { 1 };
            let known = self.open.iter().find(|(address, _)| *address == listen.address);
            let mut sockets: Vec<Socket> = Vec::new();
            for index in 0..count {
                let socket = match known.and_then(|(_, sockets)| sockets.get(index)) {
                    Some(socket) => socket.try_clone(),
                    None => bind(&listen.address, &listen.options),
                };
                sockets.push(
                    socket.map_err(|error| BindError { address: listen.address.clone(), error })?,
                );
            }
            next.open.push((listen.address.clone(), sockets));
        }
        Ok(next)
    }

    /// The sockets as the worker with this index gets them.
    pub fn for_worker(&self, index: usize) -> io::Result<Vec<Listener>> {
        self.open
            .iter()
            .map(|(address, sockets)| {
                let socket = sockets[index % sockets.len()].try_clone()?;
                Ok(Listener { address: address.clone(), socket: socket.into() })
            })
            .collect()
    }

    /// The addresses, with the ports that were found for port 0.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.open
            .iter()
            .map(|(address, sockets)| {
                let found =
                    sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket());
                found.map_or_else(|| address.clone(), ListenAddress::Tcp)
            })
            .collect()
    }

    /// Removes the files of Unix sockets that `next` does not have: the end of them, or of the process.
    pub fn remove_files_but(&self, next: &Self) {
        for (address, _) in &self.open {
            if let ListenAddress::Unix(path) = address
                && !next.open.iter().any(|(other, _)| other == address)
            {
                // Someone else may have removed it; then it is gone, which was the aim.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Whether a socket on the wildcard `all` also gets the connections to `one`; then which address that
/// is. Linux refuses a second socket for it, and nginx has the same rule.
pub(crate) fn covers(all: &ListenAddress, one: &ListenAddress) -> Option<IpAddr> {
    let (ListenAddress::Tcp(all), ListenAddress::Tcp(one)) = (all, one) else { return None };
    let is_covered = all.ip().is_unspecified()
        && !one.ip().is_unspecified()
        && all.port() == one.port()
        && all.is_ipv4() == one.is_ipv4();
    is_covered.then_some(one.ip())
}

fn bind(address: &ListenAddress, options: &ListenOptions) -> io::Result<Socket> {
    let socket = match address {
        ListenAddress::Tcp(at) => {
            let socket = Socket::new(Domain::for_address(*at), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            // Inherited by the connections that are accepted: no call for each of them.
            socket.set_tcp_nodelay(true)?;
            // Inherited too: what a slow client does not take waits with us, not in the kernel's memory,
            // where thousands of slow readers would hold gigabytes.
            socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
            if options.reuseport {
                socket.set_reuse_port(true)?;
            }
            if at.is_ipv6() {
                socket.set_only_v6(options.ipv6only.unwrap_or(true))?;
            }
            if options.so_keepalive == Some(true) {
                socket.set_tcp_keepalive(&TcpKeepalive::new())?;
            }
            socket.bind(&SockAddr::from(*at))?;
            socket
        }
        ListenAddress::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            remove_stale(path);
            socket.bind(&SockAddr::unix(path)?)?;
            socket
        }
    };
    if let Some(bytes) = options.rcvbuf {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = options.sndbuf {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    socket.listen(options.backlog.unwrap_or(BACKLOG).min(i32::MAX as u32) as i32)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket file that nobody listens on is left over from a server that was killed.
fn remove_stale(path: &Path) {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener.address {
            ListenAddress::Tcp(_) => Self::Tcp(TcpListener::from_std(listener.socket.into())?),
            ListenAddress::Unix(_) => Self::Unix(UnixListener::from_std(listener.socket.into())?),
        })
    }

    async fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Some(peer)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), None))
            }
        }
    }
}

/// Accepts connections at a door for as long as it is open.
pub async fn accept(worker: Rc<Worker>, door: Rc<Door>, listener: Listener) {
    let acceptor = match Acceptor::new(listener) {
        Ok(acceptor) => acceptor,
        Err(error) => {
            let site = &door.placed().site;
            let stamp = worker.clock.stamp(worker.clock.now());
            let message = format_args!("cannot accept on {}: {error}", Shown(&door.address));
            site.log.write(sekisho_config::Level::Emerg, stamp, None, message);
            return;
        }
    };
    // An address that is the same for every connection need not be asked for.
    let fixed = match door.address {
        ListenAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip()),
        _ => None,
    };
    loop {
        if worker.sessions.borrow().len() >= worker.sessions_max.get() {
            pause(&worker, &door, "worker_connections are not enough").await;
            continue;
        }
        match acceptor.accept().await {
            Ok((stream, remote)) => {
                let local = fixed.or_else(|| local_address(&stream));
                let connection =
                    Connection::new(Rc::clone(&worker), Rc::clone(&door), stream, remote, local);
                worker.shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
                tokio::task::spawn_local(connection);
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    worker.files.borrow_mut().clear();
                    pause(&worker, &door, &error.to_string()).await;
                }
                // The client went away before it was accepted.
                _ => tokio::task::yield_now().await,
            },
        }
    }
}

/// Rests until a session ends, or for a moment: nothing spins when descriptors are short (O5).
async fn pause(worker: &Worker, door: &Door, why: &str) {
    let pauses = worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
    // The first of a row is told; the counter has the rest.
    if pauses.is_power_of_two() || pauses == 0 {
        let site = &door.placed().site;
        let stamp = worker.clock.stamp(worker.clock.now());
        let message = format_args!("accepting on {} rests: {why}", Shown(&door.address));
        site.log.write(sekisho_config::Level::Crit, stamp, None, message);
    }
    let vacated = worker.vacated.notified();
    let _ = tokio::time::timeout(PAUSE, vacated).await;
}

fn local_address(stream: &Stream) -> Option<IpAddr> {
    match stream {
        Stream::Tcp(tcp) => tcp.local_addr().ok().map(|address| address.ip()),
        Stream::Unix(_) => None,
    }
}
