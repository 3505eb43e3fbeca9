//! The client for programs without a runtime: the same session over a connected TCP or Unix socket, or through
//! shared memory ([`crate::ipc::BlockingStream`]). The options limit how long connecting may take; later
//! waits are limited by the transport (`set_read_timeout`).
//!
//! A server takes no more requests from a peer that does not take its answers. So where a request cannot
//! leave at once, answers are read meanwhile.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SendFlags;

use sekisho_lifecycle::{Manner, Moment};

use crate::clock::Clock;
use crate::core::{CONNECT_TIMEOUT, CallError, Core, Options};
use crate::new_request::NewRequest;

/// How long the socket may take neither a byte nor give one while a request waits to leave.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connected transport that blocks.
pub trait Transport {
    /// Waits for bytes, and reads what is there; zero is the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes what goes at once; `WouldBlock` where that is nothing.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits until something can be read, or written where that is wanted; whether there is something to read.
    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool>;
}

impl<S: Read + AsFd> Transport for S {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Read::read(self, into)
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self, bytes, flags)?)
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let out = if wants_to_write { PollFlags::OUT } else { PollFlags::empty() };
        let mut ready = [PollFd::new(self, PollFlags::IN | out)];
        match rustix::event::poll(&mut ready, Some(&timeout))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            // A failure is there to be read as well.
            _ => Ok(!ready[0].revents().difference(PollFlags::OUT).is_empty()),
        }
    }
}

/// A session with a server.
#[derive(Debug)]
pub struct Client<S> {
    core: Core,
    stream: S,
}

/// The handle of a request. A caller that does not want its answer calls [`Client::abandon`].
#[derive(PartialEq, Eq, Debug)]
pub struct Ticket(usize);

impl<S: Transport> Client<S> {
    /// Sends the greeting and waits for the answer, as long as the options say.
    pub fn connect(stream: S, options: impl Into<Options>) -> Result<Self, CallError> {
        let options = options.into();
        let timeout = options.timeout.unwrap_or(CONNECT_TIMEOUT);
        let clock = Clock::new();
        let mut client = Self { core: Core::new(&options), stream };
        loop {
            client.write_some();
            match (&client.core.welcome, &client.core.end) {
                (Some(_), _) => return Ok(client),
                (None, Some(_)) => return Err(client.core.end_error()),
                (None, None) => {}
            }
            let left = timeout.saturating_sub(clock.now().since(Moment::ZERO));
            client.wait(left)?;
        }
    }

    /// The session's number.
    pub fn session(&self) -> u64 {
        self.core.welcome.as_ref().map_or(0, |welcome| welcome.session)
    }

    /// Makes a request and waits for its answer. Records that it sends are not wanted.
    pub fn call(&mut self, service: u32, body: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call_with(&NewRequest::to(service).body(body))
    }

    /// Makes this request and waits for its answer. Records that it sends are not wanted.
    pub fn call_with(&mut self, request: &NewRequest<'_>) -> Result<Vec<u8>, CallError> {
        let ticket = self.start(request)?;
        self.core.drain(ticket.0);
        self.answer(ticket)
    }

    /// Makes a request; it leaves with the next wait. Several may run at once.
    pub fn request(&mut self, service: u32, body: &[u8]) -> Result<Ticket, CallError> {
        self.start(&NewRequest::to(service).body(body))
    }

    /// Makes this request: by name, with a deadline, with a body that goes on.
    pub fn start(&mut self, request: &NewRequest<'_>) -> Result<Ticket, CallError> {
        self.core.request(request).map(Ticket)
    }

    /// Sends one more part of the body of a request, when the service has room for it.
    pub fn send(&mut self, ticket: &Ticket, part: &[u8]) -> Result<(), CallError> {
        let serial = self.core.mail[ticket.0].serial;
        self.wait_for(|core| core.send_part(ticket.0, serial, part))
    }

    /// The body of a request is complete.
    pub fn finish(&mut self, ticket: &Ticket) {
        let serial = self.core.mail[ticket.0].serial;
        self.core.end_body(ticket.0, serial);
        self.write_some();
    }

    /// The longest part of a body.
    pub fn part_bytes_max(&self) -> usize {
        self.core.part_bytes_max()
    }

    /// Waits for the next record of any channel of a request, with the channel's number; `None` after the last.
    pub fn next_of_any(&mut self, ticket: &Ticket) -> Result<Option<(u8, Vec<u8>)>, CallError> {
        self.wait_for(|core| core.take_any_record(ticket.0))
    }

    /// Waits for a request's one answer. Records that were not taken are given up; a service with more of
    /// them than a window holds does not come to its answer before.
    #[expect(clippy::needless_pass_by_value, reason = "there is one answer")]
    pub fn answer(&mut self, ticket: Ticket) -> Result<Vec<u8>, CallError> {
        self.core.drain(ticket.0);
        let answer = self.wait_for(|core| core.take_answer(ticket.0));
        self.core.abandon(ticket.0);
        self.write_some();
        answer
    }

    /// Waits for the next record of a request's channel; `None` after the last.
    pub fn next_record(&mut self, ticket: &Ticket) -> Result<Option<Vec<u8>>, CallError> {
        self.wait_for(|core| core.take_record(ticket.0))
    }

    /// Asks for a request to be cancelled. Its answer still comes.
    pub fn cancel(&mut self, ticket: &Ticket) {
        self.core.cancel(ticket.0);
        self.write_some();
    }

    /// The request is cancelled and its answer is dropped.
    #[expect(clippy::needless_pass_by_value, reason = "there is nothing more to ask")]
    pub fn abandon(&mut self, ticket: Ticket) {
        self.core.abandon(ticket.0);
        self.write_some();
    }

    /// Asks for a longer life from now on; returns what the session has.
    pub fn extend(&mut self, length: Duration) -> Result<Duration, CallError> {
        self.core.extend(length);
        self.wait_for(|core| match core.extended.take() {
            Some(millis) => Some(Ok(Duration::from_millis(millis))),
            None => core.end.is_some().then(|| Err(core.end_error())),
        })
    }

    /// Asks for the end of the session and waits for it.
    pub fn shut_down(mut self, manner: Manner) -> Result<(), CallError> {
        self.core.shut_down(manner);
        self.wait_for(|core| {
            core.end.as_ref()?;
            Some(match core.end_error() {
                CallError::Ended { code: None, .. } => Ok(()),
                error => Err(error),
            })
        })
    }

    fn wait_for<T>(
        &mut self,
        mut check: impl FnMut(&mut Core) -> Option<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        loop {
            self.write()?;
            if let Some(found) = check(&mut self.core) {
                // What the check has queued, such as credit, is sent now if possible.
                self.write_some();
                return found;
            }
            self.read()?;
        }
    }

    /// Writes what there is, and reads where that does not go at once.
    fn write(&mut self) -> Result<(), CallError> {
        loop {
            self.write_some();
            if self.core.output().is_empty() {
                return Ok(());
            }
            self.wait(STALL_TIMEOUT)?;
        }
    }

    /// Waits until what is to leave can, or something comes, and reads that.
    fn wait(&mut self, timeout: Duration) -> Result<(), CallError> {
        match self.stream.wait(!self.core.output().is_empty(), timeout) {
            Ok(true) => self.read(),
            Ok(false) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(CallError::Transport(error)),
        }
    }

    /// Writes what the socket takes at once.
    fn write_some(&mut self) {
        while !self.core.output().is_empty() {
            match self.stream.write_some(self.core.output()) {
                Ok(count) => self.core.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // What the server sent before it closed may still be read.
                Err(_) => {
                    let rest = self.core.output().len();
                    self.core.wrote(rest);
                }
            }
        }
    }

    fn read(&mut self) -> Result<(), CallError> {
        match self.stream.read(self.core.room()) {
            Ok(count) => self.core.read(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                return Err(CallError::Transport(error));
            }
            Err(error) => self.core.lost(error.kind()),
        }
        Ok(())
    }
}
