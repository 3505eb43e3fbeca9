//! The listening sockets: bound here, because ports below 1024 and files of Unix sockets need root; held here, so that
//! connections wait while a worker process is started again. Only the worker process listens and accepts.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sekisho_config::{Config, ListenAddress, ListenOptions, Workers};
use sekisho_openings::socket_file;

use crate::wire::{self, Packet};

/// How often, and at which interval, an address in use is tried again: a server that was killed, or the worker
/// process itself after a reload, may have it a moment longer.
const BIND_TRIES: u32 = 10;
const BIND_PAUSE: Duration = Duration::from_millis(150);

/// An address, and the sockets that are bound to it: one, or one for each worker with `reuseport`.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) address: ListenAddress,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Whether a service manager has opened it, and keeps it.
    pub(crate) is_managers: bool,
}

impl Held {
    /// The packets that give it to a process.
    pub(crate) fn packets(&self) -> io::Result<Vec<Packet>> {
        let word = if self.is_managers { "managed" } else { "listen" };
        let address = wire::address_text(&self.address);
        let packet = |socket: &OwnedFd| Ok(Packet::new(word, &address, Some(socket.try_clone()?)));
        self.sockets.iter().map(packet).collect()
    }

    /// Removes the file of a Unix socket that is not used any more.
    pub(crate) fn remove_file(&self) {
        if let (ListenAddress::Unix(path), false) = (&self.address, self.is_managers) {
            // Another process may have removed it; then it is gone, which was the aim.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What must be bound for a configuration, and how often.
pub(crate) fn wanted(config: &Config) -> Vec<(ListenAddress, ListenOptions, usize)> {
    let workers = match config.main.worker_processes {
        Workers::Count(count) => count.max(1),
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let served = config.listens().map(|listen| (&listen.address, &listen.options));
    let endpoint = config.main.endpoint.listens.iter().map(|(address, options)| (address, options));
    let mut all: Vec<(ListenAddress, ListenOptions, usize)> = Vec::new();
    for (address, options) in served.chain(endpoint) {
        let is_covered = config.listens().any(|other| covers(&other.address, address));
        if !is_covered && all.iter().all(|(known, ..)| known != address) {
            let count = if options.reuseport { workers } else { 1 };
            all.push((address.clone(), options.clone(), count));
        }
    }
    all
}

/// Whether a socket on a wildcard gets the connections of an address, too: a second one cannot be bound.
fn covers(all: &ListenAddress, one: &ListenAddress) -> bool {
    let (ListenAddress::Tcp(all), ListenAddress::Tcp(one)) = (all, one) else { return false };
    all.ip().is_unspecified()
        && !one.ip().is_unspecified()
        && all.port() == one.port()
        && all.is_ipv4() == one.is_ipv4()
}

/// Binds what is missing. An address that cannot be bound is reported in a packet.
pub(crate) fn bind_missing(
    wanted: &[(ListenAddress, ListenOptions, usize)],
    held: &[Held],
    failed: &mut Vec<Packet>,
) -> Vec<Held> {
    let mut new = Vec::new();
    for (address, options, count) in wanted {
        let known = held.iter().find(|held| held.address == *address);
        let has =
            known.map_or(0, |known| if known.is_managers { *count } else { known.sockets.len() });
        let mut sockets = Vec::new();
        for held in known.filter(|_| has < *count).into_iter().flat_map(|known| &known.sockets) {
            // Others may be bound beside it only if it says so itself.
            let _ = set_socket_reuseport(held, true);
        }
        for _ in has..*count {
            match bind(address, options) {
                Ok(socket) => sockets.push(socket),
                // The sockets that there are serve all workers.
                Err(_) if has + sockets.len() > 0 => break,
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(0);
                    let (number, why) = (format!("{number} "), format!("\0{error}"));
                    let address = wire::address_text(address);
                    let rest = [number.as_bytes(), &address, why.as_bytes()].concat();
                    failed.push(Packet::new("cannot-listen", rest, None));
                    break;
                }
            }
        }
        if !sockets.is_empty() {
            new.push(Held { address: address.clone(), sockets, is_managers: false });
        }
    }
    new
}

fn bind(address: &ListenAddress, options: &ListenOptions) -> io::Result<OwnedFd> {
    for _ in 0..BIND_TRIES {
        match bind_once(address, options) {
            Err(error) if error.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error()) => {
                let pause = Timespec::try_from(BIND_PAUSE).ok();
                let _ = rustix::event::poll(&mut [], pause.as_ref());
            }
            done => return done,
        }
    }
    bind_once(address, options)
}

fn bind_once(address: &ListenAddress, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket = |family, kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let (at, kind) = match address {
        ListenAddress::Tcp(at) => (at, SocketType::STREAM),
        ListenAddress::Udp(at) => (at, SocketType::DGRAM),
        ListenAddress::Unix(path) => {
            let socket = socket(AddressFamily::UNIX, SocketType::STREAM)?;
            socket_file::remove_stale(path)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path.as_path())?)?;
            if let Some(mode) = options.mode {
                // No client can connect before it listens.
                socket_file::set_mode(path, mode)?;
            }
            return Ok(socket);
        }
    };
    let socket =
        socket(if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }, kind)?;
    if kind == SocketType::STREAM {
        set_socket_reuseaddr(&socket, true)?;
    }
    if options.reuseport {
        set_socket_reuseport(&socket, true)?;
    }
    if at.is_ipv6() {
        set_ipv6_v6only(&socket, options.ipv6only.unwrap_or(true))?;
    }
    rustix::net::bind(&socket, at)?;
    Ok(socket)
}
