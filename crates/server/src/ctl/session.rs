//! A session with a server, and the requests in it: about the server itself, about a node of its cluster, or about all.

use std::io::ErrorKind;
use std::process::ExitCode;

use prost::Message;
use sekisho_endpoint::blocking::{Client, Ticket};
use sekisho_endpoint::control::{
    CommandResult, ControlRequest, Finding, ListNodes, NodeList, Outcome, Reference, Session,
    Sessions, What,
};
use sekisho_endpoint::{CallError, Options, control};
use serde_json::Value;

use super::Failure;
use super::cluster::answering;
use super::connect::Socket;
use crate::terminal::complain;

/// What is shown to a server: a token, or a user's password.
#[derive(Default)]
pub(super) struct Credential {
    pub(super) user: String,
    pub(super) secret: Vec<u8>,
}

/// What is asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// The server itself.
    Server,
    /// A node of its cluster.
    Node(String),
    /// Every node of its cluster.
    All,
}

/// A server that answers.
pub(crate) struct Server {
    client: Client<Socket>,
    /// What is asked about.
    pub(super) scope: Scope,
    /// A node of the cluster has not answered: what is shown is not all.
    pub(super) is_partial: bool,
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
        let is_plain_tcp = matches!(socket, Socket::Tcp(_));
        let client = Client::connect(socket, options).map_err(|error| match error {
            CallError::Transport(why)
                if is_plain_tcp
                    && matches!(why.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
            {
                Failure::NoServer(format!(
                    "the connection failed: {why}; where the server speaks TLS (\"listen … ssl\"), use --cacert"
                ))
            }
            error => error.into(),
        })?;
        Ok(Self { client, scope: Scope::Server, is_partial: false })
    }

    /// Asks, and reads the one answer.
    pub(super) fn ask<T: Message + Default>(&mut self, what: What) -> Result<T, Failure> {
        let body = self.about(what)?.encode_to_vec();
        let answer = self.client.call(control::NUMBER, &body)?;
        read(&answer)
    }

    /// Asks about one session. Where all nodes are asked, what is found has its node.
    pub(super) fn ask_of_session(&mut self, what: What) -> Result<Outcome, Failure> {
        let is_all = self.scope == Scope::All;
        let request = self.about(what)?;
        let answer = self.client.call(control::NUMBER, &request.encode_to_vec())?;
        let mut outcome: Outcome = read(&answer)?;
        if is_all {
            for session in &mut outcome.sessions {
                session.node.clone_from(&request.node);
            }
        }
        Ok(outcome)
    }

    /// The request, to the node that it is about.
    fn about(&mut self, mut what: What) -> Result<ControlRequest, Failure> {
        let node = match &self.scope {
            Scope::Server => String::new(),
            Scope::Node(node) => node.clone(),
            Scope::All => match &mut what {
                What::Show(Reference { reference })
                | What::Cancel(control::Cancel { reference, .. })
                | What::ShutDown(control::ShutDown { reference, .. }) => self.find(reference)?,
                // Which nodes there are is asked of the server itself.
                _ => String::new(),
            },
        };
        Ok(ControlRequest { what: Some(what), node })
    }

    /// The node of a session: `NODE:ID`, or a label that only one node has.
    fn find(&mut self, reference: &mut String) -> Result<String, Failure> {
        if let Some((node, id)) = reference.split_once(':') {
            if node.is_empty() {
                let text =
                    format!("every node may have a session {reference}: say NODE{reference}");
                return Err(Failure::Ambiguous(text));
            }
            let node = node.to_owned();
            *reference = format!(":{id}");
            return Ok(node);
        }
        let (nodes, _) = answering(self)?;
        let mut having = Vec::new();
        for node in nodes {
            self.scope = Scope::Node(node.clone());
            let what = What::Show(Reference { reference: reference.clone() });
            let outcome = self.ask::<Outcome>(what);
            self.scope = Scope::All;
            match outcome?.finding() {
                Finding::NotFound => {}
                _ => having.push(node),
            }
        }
        match &having[..] {
            [] => Err(Failure::NotFound(format!("no session {reference} at any node"))),
            [one] => Ok(one.clone()),
            several => {
                let nodes = several.join(", ");
                let text = format!("several nodes have a session \"{reference}\": {nodes}");
                Err(Failure::Ambiguous(text))
            }
        }
    }

    /// Asks for a change of the whole server.
    pub(super) fn result(&mut self, what: What) -> Result<CommandResult, Failure> {
        self.ask(what)
    }

    /// The exit status of a command that shows what all nodes have.
    pub(super) fn completeness(&self) -> ExitCode {
        if self.is_partial { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// The nodes of its cluster.
    pub(super) fn nodes(&mut self) -> Result<NodeList, Failure> {
        let scope = std::mem::replace(&mut self.scope, Scope::Server);
        let list = self.ask(What::ListNodes(ListNodes {}));
        self.scope = scope;
        list
    }

    /// Every session; with its node, where all nodes are asked.
    pub(super) fn sessions(&mut self) -> Result<Vec<Session>, Failure> {
        if self.scope != Scope::All {
            return self.sessions_of_one();
        }
        let (nodes, _) = answering(self)?;
        let mut all = Vec::new();
        for node in nodes {
            self.scope = Scope::Node(node.clone());
            match self.sessions_of_one() {
                Ok(sessions) => {
                    all.extend(sessions.into_iter().map(|of| Session { node: node.clone(), ..of }));
                }
                Err(failure) => {
                    complain(format_args!("sekisho: {node}: {}\n", failure.text()));
                    self.is_partial = true;
                }
            }
            self.scope = Scope::All;
        }
        Ok(all)
    }

    fn sessions_of_one(&mut self) -> Result<Vec<Session>, Failure> {
        let ticket = self.request(What::List(control::List {}))?;
        let mut sessions = Vec::new();
        while let Some(record) = self.client.next_record(&ticket)? {
            sessions.extend(read::<Sessions>(&record)?.sessions);
        }
        let listed: control::Listed = read(&self.client.answer(ticket)?)?;
        if listed.silent_workers > 0 {
            let silent = match listed.silent_workers {
                1 => "1 worker".to_owned(),
                several => format!("{several} workers"),
            };
            complain(format_args!("sekisho: {silent} did not answer in time\n"));
        }
        Ok(sessions)
    }

    /// Asks, to read from the channel.
    pub(super) fn request(&mut self, what: What) -> Result<Ticket, Failure> {
        let body = self.about(what)?.encode_to_vec();
        Ok(self.client.request(control::NUMBER, &body)?)
    }

    /// The session itself.
    pub(super) fn client(&mut self) -> &mut Client<Socket> {
        &mut self.client
    }

    /// A document says which node it is about.
    pub(super) fn signed(&self, mut document: Value) -> Value {
        if let Scope::Node(node) = &self.scope {
            document["node"] = node.as_str().into();
        }
        document
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
