//! The transport of a request that comes from within the process: no bytes pass, as the engine hands everything over
//! itself.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use super::{Capabilities, Ready, Transport};

/// No transport.
#[derive(Clone, Copy, Debug)]
pub struct Within;

impl Transport for Within {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn read(&mut self, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn send(&mut self, bytes: &[u8], _: bool) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn note(&mut self, _: Ready) {}

    fn is_full(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn shut_down_write(&mut self, _: bool) {}

    fn reset_on_close(&mut self) {}

    fn watch(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        Ok(())
    }
}

crate::plain_client_transport!(Within);
