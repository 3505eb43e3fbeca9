//! Packets between a parent and its worker process, or between an old parent and a new one: one text of a bounded
//! length, with at most one descriptor, over a socket pair that keeps packets apart (`SOCK_SEQPACKET`).

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use sekisho_config::ListenAddress;

/// The longest packet: a path and a message.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// How long a packet may wait for room: its reader is stuck then.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// A packet.
#[derive(Debug)]
pub struct Packet {
    /// A word, and behind a blank what belongs to it.
    pub text: Vec<u8>,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
}

impl Packet {
    /// A word with a text and a descriptor.
    pub(crate) fn new(word: &str, rest: impl AsRef<[u8]>, fd: Option<OwnedFd>) -> Self {
        let mut text = word.as_bytes().to_vec();
        if !rest.as_ref().is_empty() {
            text.push(b' ');
            text.extend_from_slice(rest.as_ref());
        }
        Self { text, fd }
    }

    /// A packet about a path.
    pub(crate) fn of_path(word: &str, path: &Path, fd: OwnedFd) -> Self {
        Self::new(word, path.as_os_str().as_bytes(), Some(fd))
    }

    /// Its word, and what comes behind it.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        match self.text.iter().position(|byte| *byte == b' ') {
            Some(end) => (&self.text[..end], &self.text[end + 1..]),
            None => (&self.text, b""),
        }
    }

    /// Sends it; the descriptor is kept.
    pub(crate) fn send(&self, to: impl AsFd) -> io::Result<()> {
        send(to, &self.text, self.fd.as_ref().map(AsFd::as_fd))
    }
}

/// Two ends of a new connection.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&ours, Timeout::Send, Some(SEND_LIMIT))?;
    Ok((ours, theirs))
}

/// Sends a packet.
pub(crate) fn send(to: impl AsFd, text: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    rustix::net::sendmsg(to, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a packet; `None` when the other side has closed. `flags`: whether to wait for one.
pub(crate) fn receive(from: impl AsFd, flags: RecvFlags) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; TEXT_BYTES_MAX];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(from, &mut slices, &mut ancillary, flags)?;
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            fd = rights.next();
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let text = bytes[..received.bytes].to_vec();
    Ok((!text.is_empty()).then_some(Packet { text, fd }))
}

/// An address as it is written in a packet: a path need not be UTF-8.
pub fn address_text(address: &ListenAddress) -> Vec<u8> {
    match address {
        ListenAddress::Tcp(address) => address.to_string().into_bytes(),
        ListenAddress::Udp(address) => format!("udp:{address}").into_bytes(),
        ListenAddress::Unix(path) => [b"unix:", path.as_os_str().as_bytes()].concat(),
    }
}

/// Reads an address that was written by the function above.
pub fn parse_address(text: &[u8]) -> Option<ListenAddress> {
    let address = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    if let Some(rest) = text.strip_prefix(b"unix:") {
        return Some(ListenAddress::Unix(path(rest)));
    }
    match text.strip_prefix(b"udp:") {
        Some(rest) => address(rest).map(ListenAddress::Udp),
        None => address(text).map(ListenAddress::Tcp),
    }
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}
