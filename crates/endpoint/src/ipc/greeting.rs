//! What goes over the socket before the memory is shared: sixteen bytes there, thirty-two and three descriptors
//! back, and nothing else in either direction ever.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use sekisho_native::Code;
use sekisho_ring::Rings;

use super::Refused;

const MAGIC: [u8; 8] = *b"SEKI-IPC";
const VERSION: u16 = 1;
/// What the client says.
pub(crate) const HELLO_BYTES: usize = 16;
/// What the server says.
pub(crate) const REPLY_BYTES: usize = 32;

/// The client's word.
pub(crate) fn hello() -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Whether the client's word will do.
pub(crate) fn check_hello(bytes: &[u8; HELLO_BYTES]) -> Result<(), Code> {
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    match bytes[..8] == MAGIC {
        false => Err(Code::InvalidRequest),
        true if version != VERSION => Err(Code::UnsupportedOperation),
        true if bytes[10..] != [0; 6] => Err(Code::InvalidRequest),
        true => Ok(()),
    }
}

/// The server's reply: rings of these sizes, or why not.
pub(crate) fn reply(rings: Result<(usize, usize), Code>) -> [u8; REPLY_BYTES] {
    let mut bytes = [0; REPLY_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    match rings {
        Err(code) => bytes[12..16].copy_from_slice(&code.number().to_le_bytes()),
        Ok((request, answer)) => {
            bytes[16..20].copy_from_slice(&(request as u32).to_le_bytes());
            bytes[20..24].copy_from_slice(&(answer as u32).to_le_bytes());
        }
    }
    bytes
}

/// What the server's word means.
pub(crate) fn read_reply(bytes: &[u8; REPLY_BYTES]) -> io::Result<Rings> {
    let number =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let kind = match number(12) {
        _ if bytes[..8] != MAGIC => return Err(unfit("not a server that shares memory")),
        0 => None,
        code => Some(match Code::of_number(code) {
            Code::PermissionError => io::ErrorKind::PermissionDenied,
            Code::UnsupportedOperation => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::ConnectionRefused,
        }),
    };
    if let Some(kind) = kind {
        return Err(io::Error::new(kind, Refused(number(12))));
    }
    if bytes[8..12] != [1, 0, 0, 0] || bytes[24..] != [0; 8] {
        return Err(unfit("an unsupported version"));
    }
    Rings::new(number(16) as usize, number(20) as usize)
        .ok_or_else(|| unfit("rings of impossible sizes"))
}

/// New memory, sealed so that no process can change its size.
pub(crate) fn new_memory(bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels do not know that memory need not be executed.
    let file = rustix::fs::memfd_create(c"sekisho", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"sekisho", flags))?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Sends the server's reply, with descriptors; at once, or not at all.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8; REPLY_BYTES],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent < bytes.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// The server's reply, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: [u8; REPLY_BYTES],
    filled: usize,
    descriptors: Vec<OwnedFd>,
}

impl Incoming {
    /// Takes more of it; `None` when it is not complete.
    pub(crate) fn take(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: RecvFlags,
    ) -> io::Result<Option<(Rings, Offer)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut self.bytes[self.filled..])];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(socket, &mut into, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled += received.bytes;
        if self.filled < REPLY_BYTES {
            return Ok(None);
        }
        let rings = read_reply(&self.bytes)?;
        let descriptors = std::mem::take(&mut self.descriptors);
        let Ok([memory, server_wakeup, client_wakeup]) = <[OwnedFd; 3]>::try_from(descriptors)
        else {
            return Err(unfit("the descriptors are missing"));
        };
        Ok(Some((rings, Offer { memory, server_wakeup, client_wakeup })))
    }
}

/// What came with the server's word.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) memory: OwnedFd,
    pub(crate) server_wakeup: OwnedFd,
    pub(crate) client_wakeup: OwnedFd,
}

impl Offer {
    /// The same to be sent.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.server_wakeup.as_fd(), self.client_wakeup.as_fd()]
    }
}

pub(crate) fn unfit(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_words_are_read_as_they_were_written() {
        // E7
        assert_eq!(check_hello(&hello()), Ok(()));
        let rings = read_reply(&reply(Ok((4096, 65536)))).expect("in order");
        assert_eq!((rings.request.bytes, rings.answer.bytes), (4096, 65536));
        let refused = read_reply(&reply(Err(Code::PermissionError))).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn every_byte_of_either_word_counts() {
        // E7
        for at in 0..HELLO_BYTES {
            let mut bytes = hello();
            bytes[at] ^= 0x20;
            assert!(check_hello(&bytes).is_err(), "{at}");
        }
        for at in 0..REPLY_BYTES {
            let mut bytes = reply(Ok((4096, 4096)));
            bytes[at] ^= 0x20;
            assert!(read_reply(&bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn new_memory_keeps_its_size() {
        // E7, V43
        let memory = new_memory(8192).expect("made");
        assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
        assert!(rustix::fs::ftruncate(&memory, 16384).is_err());
        assert!(rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).is_err());
    }
}
