//! `sekisho ctl`: sees and controls a running server, over the native protocol and its service `control`.
//! Tables for people, JSON for scripts, and an exit status that says what went wrong.

mod cache;
mod call;
mod certificates;
mod cluster;
mod connect;
mod memory;
mod metrics;
mod services;
mod session;
pub(crate) mod show;
pub(crate) mod status;
mod tls;
mod top;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use sekisho_endpoint::control::{CommandResult, Finding, What};
use sekisho_endpoint::{CallError, Code, control};

use crate::Problem;
use crate::terminal::complain;
use cluster::Step;
pub(crate) use metrics::prometheus;
use session::{Credential, Scope, Server};

/// How often `--watch` looks.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How often the live view may look, and how seldom.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_hours(1);

/// What `sekisho ctl` takes.
#[derive(Debug, Args)]
pub(crate) struct Ctl {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

/// Which server is meant. Without any of these: the one that runs, if only one does.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server with this configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The prefix that the server was started with
    #[arg(short = 'p', long = "prefix", value_name = "DIR", global = true)]
    prefix: Option<PathBuf>,
    /// The server with this process id
    #[arg(long, value_name = "N", global = true, conflicts_with_all = ["config", "prefix"])]
    pid: Option<u32>,
    /// The server that listens here: a path of a Unix socket, or ADDRESS:PORT
    #[arg(long, value_name = "PATH|ADDR", global = true, conflicts_with_all = ["config", "prefix", "pid"])]
    socket: Option<String>,
    /// Send the content of this file as credential (`credential_file` of the server)
    #[arg(long, value_name = "FILE", global = true)]
    credential_file: Option<PathBuf>,
    /// The credential is the password of this user (`password_file` of the server)
    #[arg(long, value_name = "NAME", global = true, requires = "credential_file")]
    user: Option<String>,
    /// Speak TLS (`listen … ssl`) with a server whose certificate is from this authority (PEM)
    #[arg(long, value_name = "FILE", global = true, requires = "socket")]
    cacert: Option<PathBuf>,
    /// The name in the server's certificate, if that is not the address
    #[arg(long, value_name = "NAME", global = true, requires = "cacert")]
    servername: Option<String>,
    /// A client certificate (PEM), with its key unless --key is given
    #[arg(long, value_name = "FILE", global = true, requires = "cacert")]
    cert: Option<PathBuf>,
    /// The key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", global = true, requires = "cert")]
    key: Option<PathBuf>,
    /// The node of the server's cluster that is meant; the server asks it
    #[arg(long, value_name = "NAME", global = true)]
    node: Option<String>,
    /// Every node of the server's cluster; sessions are called NODE:ID then
    #[arg(long, global = true, conflicts_with = "node")]
    cluster: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show an overview: version, uptime, rates, busiest locations, upstream servers, certificates
    Status(status::Options),
    /// List the sessions of every protocol
    Sessions(Listing),
    /// Show or control one session
    Session {
        #[command(subcommand)]
        command: SessionSubcommand,
    },
    /// List the running requests
    Requests(Listing),
    /// List the nodes of the cluster
    Nodes(cluster::Options),
    /// Read the configuration again, and report whether that succeeded; with --cluster one node after the other
    Reload,
    /// Have the program that is now at the server's path take over; with --cluster one node after the other
    Upgrade,
    /// Tell health probes (`status health`) that new requests shall go elsewhere; the server goes on serving
    Drain {
        /// Accept new requests again
        #[arg(long)]
        end: bool,
        /// Return only after so many seconds, by which balancers have noticed
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        wait: Option<Duration>,
    },
    /// Stop the server when its running requests have finished
    Stop {
        /// Cancel running requests
        #[arg(long)]
        forceful: bool,
    },
    /// Show all counters
    Metrics(metrics::Options),
    /// Show memory usage by kind
    Memory(memory::Options),
    /// List the certificates in use
    Certificates(certificates::Options),
    /// List the services that can be called, or print the schema of one
    Services(services::Options),
    /// See to the caches of answers
    Cache {
        #[command(subcommand)]
        command: cache::Command,
    },
    /// Call a service
    Call(call::Options),
    /// Show all sessions, live
    Top {
        /// Seconds between two updates
        #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
        every: Duration,
    },
}

/// How to list.
#[derive(Debug, Args)]
struct Listing {
    /// Repeat every second
    #[arg(long)]
    watch: bool,
    /// Print JSON: one document (with --watch one per line)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SessionSubcommand {
    /// Show all details
    Show {
        /// `:id`, or a label
        #[arg(required = true, value_name = "REF")]
        sessions: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Cancel the running requests; each still gets its one answer
    Cancel {
        /// `:id`, or a label
        #[arg(required = true, value_name = "REF")]
        sessions: Vec<String>,
        /// Only the request with this number in the session
        #[arg(long, value_name = "N")]
        request: Option<u64>,
    },
    /// End the session
    Shutdown {
        /// `:id`, or a label
        #[arg(required = true, value_name = "REF")]
        sessions: Vec<String>,
        /// Let running requests finish (this is the default)
        #[arg(long, conflicts_with = "forceful")]
        graceful: bool,
        /// Cancel running requests
        #[arg(long)]
        forceful: bool,
    },
}

/// Why it was not done. Each has its exit status (docs/control.md).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused or failed.
    Failed(String),
    /// There is no server, or it cannot be reached.
    NoServer(String),
    /// It may not be asked by us.
    NotAllowed(String),
    /// There is no such session.
    NotFound(String),
    /// Several servers or sessions could be meant.
    Ambiguous(String),
    /// The session runs no such request.
    NothingRuns(String),
    /// The reader of our output has gone.
    NobodyReads,
}

impl Failure {
    const fn status(&self) -> u8 {
        match self {
            Self::NobodyReads => 0,
            Self::Failed(_) => 1,
            Self::NoServer(_) => 3,
            Self::NotAllowed(_) => 4,
            Self::NotFound(_) => 5,
            Self::Ambiguous(_) => 6,
            Self::NothingRuns(_) => 7,
        }
    }

    /// Whether other sessions would fail the same way.
    const fn is_final(&self) -> bool {
        matches!(self, Self::NobodyReads | Self::NoServer(_) | Self::NotAllowed(_))
    }

    fn text(&self) -> &str {
        match self {
            Self::NobodyReads => "",
            Self::Failed(text)
            | Self::NoServer(text)
            | Self::NotAllowed(text)
            | Self::NotFound(text)
            | Self::Ambiguous(text)
            | Self::NothingRuns(text) => text,
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed { code: Code::PermissionError | Code::AuthenticationError, text }
            | CallError::Ended {
                code: Some(Code::PermissionError | Code::AuthenticationError),
                text,
            } => Self::NotAllowed(text),
            CallError::Transport(why)
                if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                Self::NoServer("the server did not answer in time".to_owned())
            }
            CallError::Transport(why) => Self::NoServer(format!("the connection failed: {why}")),
            CallError::Broken(why) => Self::NoServer(format!(
                "the other side does not speak the native protocol ({why}): is this an address of the endpoint block, and not one for shared memory (\"ipc\")?"
            )),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            return Self::NobodyReads;
        }
        Self::Failed(error.to_string())
    }
}

/// Does what the command line asks for.
pub(crate) fn run(ctl: &Ctl) -> ExitCode {
    match act(ctl) {
        Ok(code) => code,
        Err(failure) => {
            if !failure.text().is_empty() {
                complain(format_args!("sekisho: {}\n", failure.text()));
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Asks a process for a reload; `None` when it cannot be asked.
pub(crate) fn reload(pid: u32) -> Result<Option<CommandResult>, Problem> {
    command(pid, "reload", What::Reload(control::Reload {}))
}

/// Asks a process to open its logs again; `None` when it cannot be asked.
pub(crate) fn reopen(pid: u32) -> Result<Option<CommandResult>, Problem> {
    command(pid, "reopen", What::Reopen(control::Reopen {}))
}

fn command(pid: u32, name: &str, what: What) -> Result<Option<CommandResult>, Problem> {
    let result = connect::control_socket(pid).and_then(|socket| {
        let mut server = Server::connect(socket, Credential::default(), name, true)?;
        server.result(what)
    });
    match result {
        Ok(result) => Ok(Some(result)),
        Err(Failure::NoServer(_)) => Ok(None),
        Err(failure) => Err(Problem::new(format_args!("process {pid}: {}", failure.text()))),
    }
}

fn act(ctl: &Ctl) -> Result<ExitCode, Failure> {
    cluster::check(&ctl.command, &ctl.target)?;
    let mut server = match &ctl.command {
        Command::Call(options) => connect::to_call(&ctl.target, options.is_operator())?,
        _ => connect::to_control(&ctl.target)?,
    };
    server.scope = match (&ctl.target.node, ctl.target.cluster) {
        (Some(node), _) => Scope::Node(node.clone()),
        (None, true) => Scope::All,
        (None, false) => Scope::Server,
    };
    if server.scope == Scope::All
        && let Some(is_headed) = is_for_each(&ctl.command)
    {
        return cluster::each(&mut server, is_headed, &mut |server| at_one(ctl, server));
    }
    at_one(ctl, &mut server)
}

/// Commands that are run at each node in turn, and whether its name stands above what they print.
fn is_for_each(command: &Command) -> Option<bool> {
    match command {
        Command::Status(options) => Some(!options.json),
        Command::Memory(options) => Some(!options.json),
        Command::Certificates(options) => Some(!options.json),
        Command::Services(options) => Some(!options.json),
        Command::Drain { .. } | Command::Cache { .. } => Some(true),
        _ => None,
    }
}

/// At the server, at one node, or at all nodes at once.
fn at_one(ctl: &Ctl, server: &mut Server) -> Result<ExitCode, Failure> {
    match &ctl.command {
        Command::Sessions(how) => watch(how, server, &mut |server, out| {
            let sessions = server.sessions()?;
            if how.json {
                show::json_line(&show::sessions_json(&sessions), out, how.watch)?;
            } else {
                show::sessions(&sessions, out)?;
            }
            Ok(())
        }),
        Command::Requests(how) => watch(how, server, &mut |server, out| {
            let sessions = server.sessions()?;
            if how.json {
                show::json_line(&show::requests_json(&sessions), out, how.watch)?;
            } else {
                show::requests(&sessions, out)?;
            }
            Ok(())
        }),
        Command::Session { command } => session(command, server),
        Command::Nodes(options) => cluster::nodes(options, server),
        Command::Reload if server.scope == Scope::All => {
            cluster::rolling(server, Step::Reload, &ctl.target)
        }
        Command::Upgrade if server.scope == Scope::All => {
            cluster::rolling(server, Step::Upgrade, &ctl.target)
        }
        Command::Upgrade => {
            let result = server.result(What::Upgrade(control::Upgrade {}))?;
            if !result.is_good {
                return Err(Failure::Failed(result.text));
            }
            say("the new process serves")
        }
        Command::Reload => {
            let result = server.result(What::Reload(control::Reload {}))?;
            complain(&result.text);
            if !result.is_good {
                return Err(Failure::Failed(String::new()));
            }
            say("reloaded")
        }
        Command::Drain { end, wait } => {
            server.result(What::Drain(control::Drain { is_over: *end }))?;
            #[expect(clippy::disallowed_methods, reason = "to wait is what was asked for")]
            std::thread::sleep(wait.unwrap_or_default());
            say(if *end { "ready" } else { "draining" })
        }
        Command::Stop { forceful } => {
            server.result(What::Stop(control::Stop { forceful: *forceful }))?;
            say(if *forceful { "stopping" } else { "draining" })
        }
        Command::Status(options) => status::run(options, server),
        Command::Metrics(options) => metrics::run(options, server),
        Command::Memory(options) => memory::run(options, server),
        Command::Certificates(options) => certificates::run(options, server),
        Command::Services(options) => services::run(options, server),
        Command::Cache { command } => cache::run(command, server),
        Command::Call(options) => call::run(options, server),
        Command::Top { every } => top::run(server, *every),
    }
}

/// One line on standard output.
fn say(line: &str) -> Result<ExitCode, Failure> {
    writeln!(std::io::stdout(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// A number of seconds, of which a terminal can show what happened.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|length| (EVERY_MIN..=EVERY_MAX).contains(length))
        .ok_or_else(|| "from 0.1 to 3600 seconds".to_owned())
}

/// What makes one look's output.
type Look<'a> = &'a mut dyn FnMut(&mut Server, &mut dyn Write) -> Result<(), Failure>;

/// Looks once, or again and again.
fn watch(how: &Listing, server: &mut Server, look: Look<'_>) -> Result<ExitCode, Failure> {
    use std::io::IsTerminal;
    let stdout = std::io::stdout();
    let is_terminal = stdout.is_terminal();
    loop {
        let mut out = Vec::new();
        if how.watch && !how.json && is_terminal {
            // From the top, over what was there.
            out.extend_from_slice(b"\x1b[H\x1b[2J");
        }
        look(server, &mut out)?;
        if how.watch && !how.json && !is_terminal {
            out.push(b'\n');
        }
        let mut stdout = stdout.lock();
        stdout.write_all(&out)?;
        stdout.flush()?;
        if !how.watch {
            return Ok(server.completeness());
        }
        drop(stdout);
        connect::pause(WATCH_EVERY);
    }
}

/// Runs the command for every named session; each failure is printed, and the first one is the exit status.
fn session(command: &SessionSubcommand, server: &mut Server) -> Result<ExitCode, Failure> {
    let (SessionSubcommand::Show { sessions, .. }
    | SessionSubcommand::Cancel { sessions, .. }
    | SessionSubcommand::Shutdown { sessions, .. }) = command;
    let mut first_failure = None;
    for reference in sessions {
        if let Err(failure) = one_session(command, reference, server) {
            if failure.is_final() {
                return Err(failure);
            }
            complain(format_args!("sekisho: {}\n", failure.text()));
            first_failure.get_or_insert(failure.status());
        }
    }
    Ok(first_failure.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn one_session(
    command: &SessionSubcommand,
    reference: &str,
    server: &mut Server,
) -> Result<(), Failure> {
    let whom = reference.to_owned();
    let order = match command {
        SessionSubcommand::Show { .. } => What::Show(control::Reference { reference: whom }),
        SessionSubcommand::Cancel { request, .. } => {
            What::Cancel(control::Cancel { reference: whom, request: request.unwrap_or_default() })
        }
        SessionSubcommand::Shutdown { forceful, .. } => {
            What::ShutDown(control::ShutDown { reference: whom, forceful: *forceful })
        }
    };
    let outcome = server.ask_of_session(order)?;
    let names = || {
        let names = outcome.sessions.iter();
        names.map(|of| format!("{} ({})", show::name(of), of.peer)).collect::<Vec<_>>().join(", ")
    };
    match outcome.finding() {
        Finding::Done => {}
        Finding::NotFound => return Err(Failure::NotFound(format!("no session {reference}"))),
        Finding::Ambiguous => {
            let text = format!("several sessions are called \"{reference}\": {}", names());
            return Err(Failure::Ambiguous(text));
        }
        Finding::NothingRuns => {
            let text = format!("session {reference} has no such request");
            return Err(Failure::NothingRuns(text));
        }
    }
    let out = &mut std::io::stdout().lock();
    match command {
        SessionSubcommand::Show { json: true, .. } => {
            for session in &outcome.sessions {
                show::json_line(&show::session_json(session), out, false)?;
            }
        }
        SessionSubcommand::Show { .. } => {
            for session in &outcome.sessions {
                show::session(session, out)?;
            }
        }
        SessionSubcommand::Cancel { .. } => {
            writeln!(out, "{}: {} cancelled", names(), outcome.cancelled)?;
        }
        SessionSubcommand::Shutdown { forceful, .. } => {
            let manner = if *forceful { "forceful" } else { "graceful" };
            writeln!(out, "{}: {manner} shutdown", names())?;
        }
    }
    Ok(())
}
