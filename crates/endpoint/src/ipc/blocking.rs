//! The client's end of a session through shared memory, for programs without a runtime.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::greeting::{self, Incoming};
use super::link::Link;
use super::spin::Spin;
use super::wakeup::wake_server;
use crate::blocking::Transport;

/// How long the server may take for its reply by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's end of a session, which blocks.
#[derive(Debug)]
pub struct BlockingStream {
    link: Link,
    wakeup: OwnedFd,
    server_wakeup: OwnedFd,
    /// What the server watches.
    _socket: UnixStream,
    read_timeout: Option<Duration>,
    spin: Spin,
    is_gone: bool,
}

impl BlockingStream {
    /// Shares memory with the server that is connected.
    pub fn connect(socket: UnixStream) -> io::Result<Self> {
        match rustix::net::send(&socket, &greeting::hello(), SendFlags::NOSIGNAL) {
            // A server that refuses us need not have waited for our greeting; its reply says why.
            Ok(_) | Err(Errno::PIPE) => {}
            Err(error) => return Err(error.into()),
        }
        let mut incoming = Incoming::default();
        let (rings, offer) = loop {
            wait_for(&socket, Some(CONNECT_TIMEOUT))?;
            match incoming.take(socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok(Some(word)) => break word,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        };
        // The open file is ours alone: waiting for it is one call.
        rustix::io::ioctl_fionbio(&offer.client_wakeup, false)?;
        Ok(Self {
            link: Link::new(&offer.memory, rings, false)?,
            wakeup: offer.client_wakeup,
            server_wakeup: offer.server_wakeup,
            _socket: socket,
            read_timeout: None,
            spin: Spin::new(Duration::ZERO),
            is_gone: false,
        })
    }

    /// How long a wait for bytes may last; for ever if not set.
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// So long it looks for bytes before it sleeps; zero, as in the beginning, is not at all.
    pub fn set_spin(&mut self, longest: Duration) {
        self.spin = Spin::new(longest);
    }

    /// Sleeps until it is woken.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some() {
            wait_for(&self.wakeup, timeout)?;
        }
        match rustix::io::read(&self.wakeup, &mut [0; 64]) {
            Ok(0) => self.is_gone = true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Transport for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let wakeup = &self.server_wakeup;
            if let Some(count) = self.link.read(into, || wake_server(wakeup))? {
                return Ok(count);
            }
            if self.is_gone {
                return Ok(0);
            }
            let link = &self.link;
            if self.spin.until(|| link.has_something()) {
                continue;
            }
            if self.link.reader_waits()? {
                self.sleep(self.read_timeout)?;
            }
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wakeup = &self.server_wakeup;
        match self.link.write(bytes, || wake_server(wakeup))? {
            _ if self.is_gone => Err(io::ErrorKind::BrokenPipe.into()),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        let may_sleep = !self.is_gone
            && (!wants_to_write || self.link.writer_waits()?)
            && self.link.reader_waits()?;
        if may_sleep {
            self.sleep(Some(timeout))?;
        }
        // Whether there is anything to read costs no system call: announcing the wait checks it.
        Ok(self.is_gone || !self.link.reader_waits()?)
    }
}

/// Waits until there is something to read.
fn wait_for(file: &impl AsFd, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    loop {
        let mut files = [PollFd::new(file, PollFlags::IN)];
        match rustix::event::poll(&mut files, timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
