//! The client for programs without a runtime: the same session over anything that reads and writes. How long
//! a wait may last is the stream's affair (`set_read_timeout`).

use std::io::{self, Read, Write};
use std::time::Duration;

use sekisho_lifecycle::Manner;

use crate::core::{CallError, Core, Options};

/// A session with a server.
#[derive(Debug)]
pub struct Client<S> {
    core: Core,
    stream: S,
}

/// A request that was made, to be asked about. Whoever does not want its answer says [`Client::abandon`].
#[derive(PartialEq, Eq, Debug)]
pub struct Ticket(usize);

impl<S: Read + Write> Client<S> {
    /// Says hello and waits for the answer.
    pub fn connect(stream: S, options: impl Into<Options>) -> Result<Self, CallError> {
        let mut client = Self { core: Core::new(&options.into()), stream };
        client.wait_for(|core| match (&core.welcome, &core.end) {
            (Some(_), _) => Some(Ok(())),
            (None, Some(_)) => Some(Err(core.end_error())),
            (None, None) => None,
        })?;
        Ok(client)
    }

    /// The session's number.
    pub fn session(&self) -> u64 {
        self.core.welcome.as_ref().map_or(0, |welcome| welcome.session)
    }

    /// Makes a request and waits for its answer.
    pub fn call(&mut self, service: u32, body: &[u8]) -> Result<Vec<u8>, CallError> {
        let ticket = self.request(service, body)?;
        self.answer(ticket)
    }

    /// Makes a request; it leaves with the next wait. Several may run at once.
    pub fn request(&mut self, service: u32, body: &[u8]) -> Result<Ticket, CallError> {
        self.core.request(service, body).map(Ticket)
    }

    /// Waits for a request's one answer. Records that nobody took are given up.
    #[expect(clippy::needless_pass_by_value, reason = "there is one answer")]
    pub fn answer(&mut self, ticket: Ticket) -> Result<Vec<u8>, CallError> {
        let answer = self.wait_for(|core| core.take_answer(ticket.0));
        self.core.abandon(ticket.0);
        answer
    }

    /// Waits for the next record of a request's channel; `None` after the last.
    pub fn next_record(&mut self, ticket: &Ticket) -> Result<Option<Vec<u8>>, CallError> {
        self.wait_for(|core| core.take_record(ticket.0))
    }

    /// Asks for a request to be cancelled. Its answer still comes.
    pub fn cancel(&mut self, ticket: &Ticket) {
        self.core.cancel(ticket.0);
    }

    /// The request is cancelled and nobody waits for it.
    #[expect(clippy::needless_pass_by_value, reason = "there is nothing more to ask")]
    pub fn abandon(&mut self, ticket: Ticket) {
        self.core.abandon(ticket.0);
    }

    /// Asks for a longer life from now on (E6); tells what the session has.
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
            while !self.core.output().is_empty() {
                match self.stream.write(self.core.output()) {
                    Ok(count) if count > 0 => self.core.wrote(count),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // What the server said before it went may still be read.
                    _ => {
                        let rest = self.core.output().len();
                        self.core.wrote(rest);
                    }
                }
            }
            if let Some(found) = check(&mut self.core) {
                return found;
            }
            match self.stream.read(self.core.room()) {
                Ok(count) => self.core.read(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Err(CallError::Transport(error));
                }
                Err(error) => self.core.lost(error.kind()),
            }
        }
    }
}
