//! A session with a server, and the requests in it.

use prost::Message;
use sekisho_endpoint::blocking::{Client, Ticket};
use sekisho_endpoint::control::{CommandResult, ControlRequest, Session, Sessions, What};
use sekisho_endpoint::{CallError, Options, control};

use super::Failure;
use super::connect::Socket;

/// What is shown to a server: a token, or a user's password.
#[derive(Default)]
pub(super) struct Credential {
    pub(super) user: String,
    pub(super) secret: Vec<u8>,
}

/// A server that answers.
pub(crate) struct Server {
    client: Client<Socket>,
}

impl Server {
    /// Takes the control socket, or another.
    pub(super) fn connect(
        socket: Socket,
        Credential { user, secret }: Credential,
        label: &str,
        admin: bool,
    ) -> Result<Self, Failure> {
        let options = Options {
            label: format!("{label}-{}", std::process::id()),
            application: "sekisho ctl".to_owned(),
            user,
            credential: secret,
            admin,
            ..Options::default()
        };
        Ok(Self { client: Client::connect(socket, options)? })
    }

    /// Asks, and reads the one answer.
    pub(super) fn ask<T: Message + Default>(&mut self, what: What) -> Result<T, Failure> {
        let body = ControlRequest::from(what).encode_to_vec();
        let answer = self.client.call(control::NUMBER, &body)?;
        read(&answer)
    }

    /// Asks for a change of the whole server.
    pub(super) fn result(&mut self, what: What) -> Result<CommandResult, Failure> {
        self.ask(what)
    }

    /// Every session.
    pub(super) fn sessions(&mut self) -> Result<Vec<Session>, Failure> {
        let ticket = self.request(What::List(control::List {}))?;
        let mut sessions = Vec::new();
        while let Some(record) = self.client.next_record(&ticket)? {
            sessions.extend(read::<Sessions>(&record)?.sessions);
        }
        let listed: control::Listed = read(&self.client.answer(ticket)?)?;
        if listed.silent_workers > 0 {
            eprintln!("sekisho: {} workers did not answer in time", listed.silent_workers);
        }
        Ok(sessions)
    }

    /// Asks, to read from the channel.
    pub(super) fn request(&mut self, what: What) -> Result<Ticket, Failure> {
        let body = ControlRequest::from(what).encode_to_vec();
        Ok(self.client.request(control::NUMBER, &body)?)
    }

    /// The session itself.
    pub(super) fn client(&mut self) -> &mut Client<Socket> {
        &mut self.client
    }
}

/// Reads a message of the server's.
pub(super) fn read<T: Message + Default>(bytes: &[u8]) -> Result<T, Failure> {
    T::decode(bytes)
        .map_err(|error| Failure::Failed(format!("the server's answer is not understood: {error}")))
}

/// The error of a call, as text.
pub(super) fn failed(error: CallError) -> Failure {
    error.into()
}
