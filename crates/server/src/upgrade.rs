//! The upgrade of the binary (`USR2`): the running process starts a new one, which takes over its
//! sockets; when the new one serves, the old one drains. If the new one does not get that far, the old one
//! goes on as before.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use sekisho_config::Level;
use sekisho_lifecycle::drain::{Fact, Order};
use sekisho_lifecycle::{Manner, Moment};
use sekisho_net::quic_process;
use sekisho_parent::Say;
use sekisho_parent::pid_file::PidFile;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

use crate::handover::{self, Call, DRAINED, HandoverRequest, Offer};
use crate::pid_file::identity;
use crate::run::Server;
use crate::service_manager::{self, State};
use crate::{Problem, parent_link};

/// Names the process that a new process replaces.
const FROM: &str = "SEKISHO_UPGRADE_FROM";
/// How long a new process may take until it serves.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// How this program was started.
#[derive(Debug)]
pub(crate) struct Program {
    /// What the command line named, which may be a link; whatever it leads to now is the new one.
    named: Option<PathBuf>,
    /// Where the file itself was then, for when that is gone.
    resolved: io::Result<PathBuf>,
    arguments: Vec<OsString>,
}

impl Program {
    /// Asked at the start: later the file may have been replaced.
    pub(crate) fn this() -> Self {
        let arguments: Vec<OsString> = env::args_os().collect();
        let name = arguments.first().map(Path::new);
        let path = env::var_os("PATH").unwrap_or_default();
        let named = name.and_then(|name| named(name, &path)).filter(|named| is_this(named));
        Self { named, resolved: env::current_exe(), arguments }
    }

    /// The file to start.
    fn path(&self) -> Result<&Path, Problem> {
        if let Some(named) = self.named.as_deref().filter(|named| named.exists()) {
            return Ok(named);
        }
        self.resolved.as_deref().map_err(|error| {
            Problem::new(format_args!("the path of the program is unknown: {error}"))
        })
    }

    /// The file that is now at this program's path, with the same arguments.
    pub(crate) fn command(&self) -> Result<Command, Problem> {
        let mut arguments = self.arguments.iter();
        let mut command = Command::new(self.path()?);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments);
        Ok(command)
    }

    /// Starts it.
    pub(crate) fn start_again(&self, now: Moment) -> Result<Upgrade, Problem> {
        let path = self.path()?;
        let child = self.command()?.env(FROM, std::process::id().to_string()).spawn();
        let child = child.map_err(|error| {
            Problem::new(format_args!("cannot start {}: {error}", path.display()))
        })?;
        // The runtime's pipe is used only to wait: it is the safe way to wait for any descriptor.
        let ended = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .ok()
            .and_then(|fd| Receiver::from_owned_fd_unchecked(fd).ok());
        Ok(Upgrade { child, ended, ready_by: now + READY_LIMIT, asked: None })
    }
}

/// Where a program lies that was started by this name: below the current folder, or in a folder of `PATH`.
fn named(name: &Path, path: &OsStr) -> Option<PathBuf> {
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok();
    }
    let all = env::split_paths(path).map(|folder| folder.join(name));
    let found = all.into_iter().find(|file| is_this(file))?;
    std::path::absolute(found).ok()
}

/// Whether this file is the program that runs: a program may be started by any name.
fn is_this(file: &Path) -> bool {
    identity(file).is_some_and(|file| Some(file) == identity(Path::new("/proc/self/exe")))
}

/// Who waits for the result of an upgrade.
pub(crate) type Asked = oneshot::Sender<Result<(), String>>;

/// A new process that does not serve yet.
#[derive(Debug)]
pub(crate) struct Upgrade {
    child: Child,
    /// Readable when it has ended.
    ended: Option<Receiver>,
    ready_by: Moment,
    asked: Option<Asked>,
}

impl Upgrade {
    /// The new process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end: by a descriptor, as every CGI program would ring a `SIGCHLD`, too.
    pub(crate) async fn ended(&self) {
        match &self.ended {
            Some(ended) => drop(ended.readable().await),
            None => std::future::pending().await,
        }
    }

    /// When it must serve.
    pub(crate) fn ready_by(&self) -> Moment {
        self.ready_by
    }

    /// Why it will not serve, if that is known by now.
    pub(crate) fn failure(&mut self, now: Moment) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(status)) => Some(format!("the new process ended: {status}")),
            Err(error) => Some(format!("cannot wait for the new process: {error}")),
            Ok(None) if self.ready_by.is_due(now) => {
                Some(format!("the new process was not ready within {READY_LIMIT:?}"))
            }
            Ok(None) => None,
        }
    }

    /// Ends the new process.
    pub(crate) fn give_up(mut self) {
        // Both fail only for one that has ended, which was the aim.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// The new process, while it does not serve yet.
    pub(crate) fn successor(&self) -> Option<u32> {
        self.upgrade.as_ref().map(Upgrade::pid)
    }

    /// Starts the new process, or says why not. Who has asked is told when the new process serves, or why it does not.
    pub(crate) fn begin_upgrade(&mut self, asked: Option<Asked>) {
        if let Some(link) = parent_link::link().filter(|_| self.drain.manner().is_none()) {
            self.orders.upgrades.extend(asked);
            link.say(&Say::Upgrade);
            return;
        }
        let begun = if self.drain.manner().is_some() {
            Err(Problem::new("this process is ending"))
        } else if self.upgrade.is_some() {
            Err(Problem::new("another upgrade is in progress"))
        } else {
            self.try_upgrade()
        };
        match (begun, &mut self.upgrade) {
            (Ok(()), Some(upgrade)) => upgrade.asked = asked,
            (Ok(()), None) => {}
            (Err(problem), _) => {
                self.log(Level::Error, &format!("no upgrade: {problem}"));
                if let Some(asked) = asked {
                    let _ = asked.send(Err(problem.to_string()));
                }
            }
        }
    }

    fn try_upgrade(&mut self) -> Result<(), Problem> {
        if self.handover.is_none() {
            return Err(Problem::new("there is no socket to pass the listening sockets"));
        }
        if let Some(pid_file) = &mut self.pid_file
            && let Err(error) = pid_file.put_aside()
        {
            let message = format!("the pid file cannot be renamed: {error}");
            self.log(Level::Warn, &message);
        }
        match self.program.start_again(self.clock.now()) {
            Ok(upgrade) => {
                let message = format!("upgrade: process {} was started", upgrade.pid());
                self.log(Level::Notice, &message);
                self.upgrade = Some(upgrade);
                Ok(())
            }
            Err(problem) => {
                self.put_pid_file_back();
                Err(problem)
            }
        }
    }

    /// Hands the sockets to the new process.
    pub(crate) fn give_sockets(&mut self, call: Call) {
        let both = self.sockets.hand_over().and_then(|mut sockets| {
            sockets.extend(self.endpoint_sockets.hand_over()?);
            Ok(sockets)
        });
        match both {
            Ok(sockets) => {
                let pid_file = self.pid_file.as_ref().and_then(PidFile::share);
                call.give(Offer { sockets, pid_file, ..Offer::default() });
            }
            Err(error) => {
                self.abandon_upgrade(&format!("the sockets cannot be handed over: {error}"));
            }
        }
    }

    /// Hands the links for datagrams of QUIC connections to the new process.
    pub(crate) fn give_quic_links(&self, call: Call) {
        match quic_process::hand_over(&self.workers.shared()) {
            Ok(quic_links) => call.give(Offer { quic_links, ..Offer::default() }),
            // The connections of this process are lost then, and nothing else.
            Err(error) => {
                self.log(Level::Error, &format!("no links for QUIC connections: {error}"));
                call.answer(false, "");
            }
        }
    }

    /// The new process serves: this one drains.
    pub(crate) fn make_way(&mut self) -> Order {
        let Some(mut upgrade) = self.upgrade.take() else { return Order::Nothing };
        let by = upgrade.pid();
        if let Some(asked) = upgrade.asked.take() {
            let _ = asked.send(Ok(()));
        }
        service_manager::tell(State::Replaced { by }, format_args!("process {by} has taken over"));
        self.drain_for(by)
    }

    /// Another process serves now: this one finishes what it has, however long that takes (O3).
    pub(crate) fn drain_for(&mut self, by: u32) -> Order {
        self.is_replaced = true;
        self.log(Level::Notice, &format!("upgrade: process {by} serves now"));
        self.drain.set_grace(self.site.config().main.former_sessions_timeout);
        self.tell_drain(Fact::Asked(Manner::Graceful))
    }

    /// Sees whether the new process will never serve.
    pub(crate) fn look_after_upgrade(&mut self) {
        let now = self.clock.now();
        if let Some(why) = self.upgrade.as_mut().and_then(|upgrade| upgrade.failure(now)) {
            self.abandon_upgrade(&why);
        }
    }

    /// The new process has failed: this one goes on.
    pub(crate) fn abandon_upgrade(&mut self, why: &str) {
        if let Some(mut upgrade) = self.upgrade.take() {
            let asked = upgrade.asked.take();
            upgrade.give_up();
            self.put_pid_file_back();
            self.log(Level::Emerg, &format!("upgrade failed, this process continues: {why}"));
            if let Some(asked) = asked {
                // One that has gone finds it in the log.
                let _ = asked.send(Err(why.to_owned()));
            }
        }
    }

    fn put_pid_file_back(&mut self) {
        if let Some(pid_file) = &mut self.pid_file
            && let Err(error) = pid_file.put_back()
        {
            self.log(Level::Error, &format!("the pid file cannot be restored: {error}"));
        }
    }
}

/// What a new process has got from the one that it replaces.
#[derive(Debug)]
pub(crate) struct Inheritance {
    from: u32,
    /// Its sockets, and its pid file where it could not be put aside.
    pub(crate) offer: Offer,
    is_drained: bool,
}

/// Whether this process was started to take the place of another: the number of that one.
pub(crate) fn predecessor() -> Option<u32> {
    let from = env::var(FROM).ok().and_then(|text| text.parse::<u32>().ok());
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    // The variable may be left over from an upgrade long ago.
    from.filter(|from| Some(*from) == parent)
}

/// Tells the process that we were to replace that we cannot, and why: it has a log. It then ends us, if we do
/// not end before.
pub(crate) fn tell_failure(problem: &Problem) {
    if let Some(from) = predecessor() {
        // If it cannot be sent, it is on stderr.
        let _ = handover::ask(from, HandoverRequest::Failed, &problem.0);
    }
}

impl Inheritance {
    /// Takes over the sockets and the secrets of TLS tickets of the process that has started us for that, if one
    /// has.
    pub(crate) fn take() -> Result<Option<Self>, Problem> {
        let Some(from) = predecessor() else { return Ok(None) };
        let sockets = handover::take_descriptors(from, HandoverRequest::Sockets);
        let mut offer = sockets.map_err(|error| {
            Problem::new(format_args!("cannot take over from process {from}: {error}"))
        })?;
        // Without them clients shake hands anew: no reason not to take over.
        if let Ok(Some((true, text))) = handover::ask(from, HandoverRequest::TicketSecrets, "") {
            sekisho_net::tls::take_over_ticket_secrets(&text);
        }
        // One that does not know the question loses its QUIC connections.
        if let Ok(links) = handover::take_descriptors(from, HandoverRequest::QuicLinks) {
            offer.quic_links = links.quic_links;
        }
        // One that does not know the question is not drained.
        let answer = handover::ask(from, HandoverRequest::Drained, "");
        let is_drained = matches!(answer, Ok(Some((true, text))) if text == DRAINED);
        Ok(Some(Self { from, offer, is_drained }))
    }

    /// Whether an operator wants balancers to send new requests elsewhere, as before.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whose place we take.
    pub(crate) fn from(&self) -> u32 {
        self.from
    }
}
