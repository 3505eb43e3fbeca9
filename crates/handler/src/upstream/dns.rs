//! Asks DNS servers for the addresses of a name: by UDP from a new port each time, by TCP where an answer is too long
//! for a datagram. The number of questions at a time is bounded: each has a socket. The messages are `sekisho_upstream::resolve`'s.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sekisho_config::Resolver;
use sekisho_upstream::resolve::{Addresses, Kind, ResolveFault, answer, query};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::descriptors::dns_questions;

/// How long one server has before the next is asked.
const RESEND: Duration = Duration::from_secs(2);
/// The most that a datagram brings: no larger size is offered (RFC 1035 §4.2.1), some servers send more.
const DATAGRAM_BYTES: usize = 4096;

/// How often a name may stand for another one that is asked for.
const ALIASES_MAX: usize = 16;

/// Why a name has no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoAddress {
    Fault(ResolveFault),
    TimedOut,
}

impl NoAddress {
    /// Whether it is the name's own fault: then older addresses of it are wrong, too.
    pub(super) const fn is_known(self) -> bool {
        matches!(self, Self::Fault(ResolveFault::NoSuchName))
    }
}

impl fmt::Display for NoAddress {
    /// In nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "110: Operation timed out",
            Self::Fault(ResolveFault::NoSuchName | ResolveFault::BadName) => "3: Host not found",
            Self::Fault(ResolveFault::Refused(1)) => "1: Format error",
            Self::Fault(ResolveFault::Refused(4)) => "4: Unimplemented",
            Self::Fault(ResolveFault::Refused(5)) => "5: Operation refused",
            Self::Fault(_) => "2: Server failure",
        })
    }
}

/// The addresses of a name; never none.
pub(super) async fn look_up(resolver: &Resolver, name: &str) -> Result<Addresses, NoAddress> {
    let of_kind = |kind, is_wanted: bool| async move {
        if is_wanted { Some(ask(resolver, name, kind).await) } else { None }
    };
    let both =
        async { tokio::join!(of_kind(Kind::A, resolver.ipv4), of_kind(Kind::Aaaa, resolver.ipv6)) };
    let (four, six) = timeout(resolver.timeout, both).await.map_err(|_| NoAddress::TimedOut)?;
    let mut found: Option<Addresses> = None;
    let mut fault = NoAddress::Fault(ResolveFault::NoSuchName);
    for answer in [four, six].into_iter().flatten() {
        match (answer, &mut found) {
            (Ok(more), _) if more.addresses.is_empty() => {}
            (Ok(more), None) => found = Some(more),
            (Ok(more), Some(all)) => {
                all.addresses.extend(more.addresses);
                all.ttl = all.ttl.min(more.ttl);
            }
            (Err(why), _) => fault = why,
        }
    }
    found.ok_or(fault)
}

/// The addresses of a name, or of the one that it stands for, where a server does not say both at once.
async fn ask(resolver: &Resolver, name: &str, kind: Kind) -> Result<Addresses, NoAddress> {
    let mut found = ask_for(resolver, name, kind).await?;
    for _ in 0..ALIASES_MAX {
        let Some(alias) = found.alias.take() else { return Ok(found) };
        let ttl = found.ttl;
        found = ask_for(resolver, &alias, kind).await?;
        found.ttl = found.ttl.min(ttl);
    }
    Err(NoAddress::Fault(ResolveFault::NoSuchName))
}

/// Asks one server after the other until one answers; the caller limits the time.
async fn ask_for(resolver: &Resolver, name: &str, kind: Kind) -> Result<Addresses, NoAddress> {
    let mut last = NoAddress::TimedOut;
    for server in resolver.servers.iter().cycle() {
        // The semaphore is never closed. What waits here has the time of the resolver, and then fails.
        let permit = dns_questions().acquire().await;
        let asked = timeout(RESEND, ask_one(*server, name, kind)).await;
        drop(permit);
        match asked {
            Ok(Ok(Ok(found))) => return Ok(found),
            Ok(Ok(Err(fault @ (ResolveFault::NoSuchName | ResolveFault::BadName)))) => {
                return Err(NoAddress::Fault(fault));
            }
            Ok(Ok(Err(fault))) if resolver.servers.len() == 1 => {
                return Err(NoAddress::Fault(fault));
            }
            Ok(Ok(Err(fault))) => {
                // Every server has answered so: asking again will not help.
                if matches!(last, NoAddress::Fault(_)) {
                    return Err(NoAddress::Fault(fault));
                }
                last = NoAddress::Fault(fault);
            }
            // No process listens there: do not retry at once.
            Ok(Err(_)) => tokio::time::sleep(RESEND / 10).await,
            Err(_) => {}
        }
    }
    Err(last)
}

async fn ask_one(
    server: SocketAddr,
    name: &str,
    kind: Kind,
) -> io::Result<Result<Addresses, ResolveFault>> {
    // SipHash with a key from the system's random numbers: it cannot be guessed.
    let id = RandomState::new().build_hasher().finish() as u16;
    let mut message = Vec::new();
    if let Err(fault) = query(id, name, kind, &mut message) {
        return Ok(Err(fault));
    }
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&message).await?;
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        let count = socket.recv(&mut datagram).await?;
        match answer(&datagram[..count], id, name, kind) {
            // The right one may still come.
            Err(ResolveFault::NotOurs) => {}
            Err(ResolveFault::Truncated) => break,
            found => return Ok(found),
        }
    }
    drop(socket);
    let stream = TcpStream::connect(server).await?;
    let length = message.len() as u16;
    message.splice(..0, length.to_be_bytes());
    write_all(&stream, &message).await?;
    let mut length = [0; 2];
    read_all(&stream, &mut length).await?;
    let mut whole = vec![0; usize::from(u16::from_be_bytes(length))];
    read_all(&stream, &mut whole).await?;
    Ok(answer(&whole, id, name, kind))
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_all(stream: &TcpStream, mut to: &mut [u8]) -> io::Result<()> {
    while !to.is_empty() {
        stream.readable().await?;
        match stream.try_read(to) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => to = &mut to[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
