//! Finding the server that is meant, and connecting to it.

use std::fs;
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sekisho_config::ListenAddress;
use sekisho_endpoint::blocking::Transport;
use sekisho_endpoint::control::{DescribeNode, NodeInfo, What};
use sekisho_endpoint::{TlsOptions, tls};

use super::session::{Credential, Server};
use super::tls::refused;
use super::{Failure, Target};
use crate::cli::Flags;
use crate::local_socket::{self, Purpose};
use crate::pid_file;
use crate::setup::Plan;

/// How long an answer may take: a reload reads files, and a machine may be busy.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// No credential is longer, with some room for spaces around it.
const CREDENTIAL_FILE_BYTES_MAX: u64 = 4096;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<tls::BlockingStream>),
}

impl Transport for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(unix) => Transport::read(unix, into),
            Self::Tcp(tcp) => Transport::read(tcp, into),
            Self::Tls(tls) => tls.read(into),
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(unix) => unix.write_some(bytes),
            Self::Tcp(tcp) => tcp.write_some(bytes),
            Self::Tls(tls) => tls.write_some(bytes),
        }
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        match self {
            Self::Unix(unix) => unix.wait(wants_to_write, timeout),
            Self::Tcp(tcp) => tcp.wait(wants_to_write, timeout),
            Self::Tls(tls) => tls.wait(wants_to_write, timeout),
        }
    }
}

impl Socket {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(unix) => unix.set_read_timeout(timeout),
            Self::Tcp(tcp) => tcp.set_read_timeout(timeout),
            Self::Tls(tls) => tls.tcp().set_read_timeout(timeout),
        }
    }
}

/// A session with the server that is meant, to control it.
pub(super) fn to_control(target: &Target) -> Result<Server, Failure> {
    Server::connect(connect(target)?, credential(target)?, "ctl", true)
}

/// The process that has taken over from another as this node, once it can be asked.
pub(super) fn successor(target: &Target, from: u32, node: &str) -> Option<Server> {
    let meant = |socket| {
        let mut server = Server::connect(socket, credential(target).ok()?, "ctl", true).ok()?;
        let seen = server.ask::<NodeInfo>(What::DescribeNode(DescribeNode {})).ok()?;
        (seen.name == node && seen.pid != from).then_some(server)
    };
    // A pid file and an address name the new process by now.
    if target.pid.is_none()
        && let Ok(socket) = connect(target)
        && let Some(server) = meant(socket)
    {
        return Some(server);
    }
    let sockets = fs::read_to_string("/proc/net/unix").ok()?;
    local_socket::claimed(&sockets)
        .filter(|pid| *pid != from)
        .filter(|pid| matches!(local_socket::connect_trusted(*pid), Ok(Some(_))))
        .find_map(|pid| meant(control_socket(pid).ok()?))
}

/// A session to call a service, which may take its time. At a named address it is an ordinary session, unless
/// the service controls the server or the credential is an operator's: not every client that may call may control.
pub(super) fn to_call(target: &Target, is_operator: bool) -> Result<Server, Failure> {
    let open = |is_admin| {
        let socket = connect(target)?;
        socket.set_read_timeout(None)?;
        Server::connect(socket, credential(target)?, "ctl", is_admin)
    };
    let must_control = is_operator || target.socket.is_none();
    let may_control = must_control || target.credential_file.is_some();
    match open(may_control) {
        Err(Failure::NotAllowed(_)) if may_control && !must_control => open(false),
        opened => opened,
    }
}

fn connect(target: &Target) -> Result<Socket, Failure> {
    match target {
        Target { socket: Some(at), cacert: None, .. } => socket(at),
        Target { socket: Some(at), .. } => match socket(at)? {
            Socket::Tcp(tcp) => secured(tcp, at, target),
            _ => Err(Failure::Failed(format!("{at}: TLS is for ADDRESS:PORT"))),
        },
        Target { pid: Some(pid), .. } => control_socket(*pid),
        Target { config: None, prefix: None, .. } => control_socket(the_only_one()?),
        target => configured(target),
    }
}

/// TLS, by what the command line says.
fn secured(tcp: TcpStream, at: &str, target: &Target) -> Result<Socket, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("TLS: {error}"));
    let options = TlsOptions {
        authorities: target.cacert.clone(),
        certificate: target.cert.clone(),
        key: target.key.clone(),
        name: target.servername.clone(),
    };
    let config = options.client_config().map_err(failed)?;
    let name = options.server_name(at).map_err(failed)?;
    let stream = tls::BlockingStream::connect(tcp, config, name, CONNECT_LIMIT);
    let stream = stream.map_err(|error| refused(&error, target))?;
    Ok(Socket::Tls(Box::new(stream)))
}

/// The control socket of a process.
pub(super) fn control_socket(pid: u32) -> Result<Socket, Failure> {
    let nobody =
        || Failure::NoServer(format!("process {pid} is not a server that can be controlled"));
    let stream = local_socket::connect(pid, Purpose::Control)?.ok_or_else(nobody)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(Socket::Unix(stream))
}

/// A path, `unix:PATH`, or an address.
fn socket(at: &str) -> Result<Socket, Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::NotAllowed(format!("{at}: {error}")),
        _ => Failure::NoServer(format!("{at}: {error}")),
    };
    if let Ok(address) = at.parse() {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(failed)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        return Ok(Socket::Tcp(stream));
    }
    let path = at.strip_prefix("unix:").unwrap_or(at);
    let stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(Socket::Unix(stream))
}

/// The server that has this configuration: by its pid file, or by an address of its endpoint.
fn configured(target: &Target) -> Result<Socket, Failure> {
    let flags =
        Flags { config: target.config.clone(), prefix: target.prefix.clone(), ..Flags::default() };
    let failed = |problem: crate::Problem| Failure::Failed(problem.to_string());
    let plan = Plan::from_flags(&flags).map_err(failed)?;
    let config = plan.read_to_find().map_err(failed)?;
    if let Some(path) = &config.main.pid {
        let pid =
            pid_file::server(path).map_err(|problem| Failure::NoServer(problem.to_string()))?;
        return control_socket(pid.as_raw_nonzero().get().unsigned_abs());
    }
    let listens = config.main.endpoint.listens.iter().filter(|(_, options)| !options.ipc);
    let addresses = listens.map(|(address, _)| address);
    let local = addresses.filter_map(|address| match address {
        ListenAddress::Unix(path) => path.to_str(),
        ListenAddress::Tcp(_) | ListenAddress::Udp(_) => None,
    });
    match local.into_iter().next() {
        Some(path) => socket(path),
        None => Err(Failure::NoServer(
            "the configuration has neither a pid file nor an endpoint on a Unix socket to find the \
             server by; name it with --pid"
                .to_owned(),
        )),
    }
}

/// The server that runs on this machine, if only one does. Any user may have a process that looks like one: without a
/// name only those of root and of our own user are meant.
fn the_only_one() -> Result<u32, Failure> {
    let sockets = fs::read_to_string("/proc/net/unix")?;
    let mut claimed: Vec<u32> = local_socket::claimed(&sockets).collect();
    claimed.sort_unstable();
    claimed.dedup();
    let is_trusted = |pid: &u32| matches!(local_socket::connect_trusted(*pid), Ok(Some(_)));
    let servers: Vec<u32> = claimed.iter().copied().filter(is_trusted).collect();
    match servers[..] {
        [one] => Ok(one),
        [] if !claimed.is_empty() => Err(Failure::NoServer(
            "no server of yours or of root's runs on this machine; name another user's with --pid"
                .to_owned(),
        )),
        [] => Err(Failure::NoServer("no server runs on this machine".to_owned())),
        _ => {
            let names: Vec<String> = servers.iter().map(|pid| named(*pid)).collect();
            let text = format!("several servers run, name one with --pid: {}", names.join("; "));
            Err(Failure::Ambiguous(text))
        }
    }
}

/// A process and how it was started.
fn named(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    // A process may have any name.
    format!("{pid} ({})", super::show::tame(&words.join(" ")))
}

fn credential(target: &Target) -> Result<Credential, Failure> {
    let Some(path) = &target.credential_file else { return Ok(Credential::default()) };
    let failed =
        |why: &dyn std::fmt::Display| Failure::Failed(format!("{}: {why}", path.display()));
    let file = fs::File::open(path).map_err(|error| failed(&error))?;
    let mut text = Vec::new();
    file.take(CREDENTIAL_FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| failed(&error))?;
    if text.len() as u64 > CREDENTIAL_FILE_BYTES_MAX {
        return Err(failed(&"too long for a credential"));
    }
    let user = target.user.clone().unwrap_or_default();
    Ok(Credential { user, secret: text.trim_ascii().to_vec() })
}

/// Rests between two looks.
pub(super) fn pause(length: Duration) {
    let length = rustix::time::Timespec {
        tv_sec: length.as_secs() as i64,
        tv_nsec: i64::from(length.subsec_nanos()),
    };
    // Interrupted early, the next look comes early.
    let _ = rustix::thread::nanosleep(&length);
}
