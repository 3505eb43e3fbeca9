//! The loop of the parent: signals, words of the worker process, its end, time.
//!
//! ```text
//! Starting ──ready──► Serving ──QUIT, TERM, "stopping"──► Stopping ──end of the worker──► exit
//!     │                  │  ▲                                ▲
//!     └─ end: exit       │  └─ end of the worker: a new one  │
//!                        └──── a new parent serves ──────────┘
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use rustix::process::Signal;
use sekisho_config::Config;

use crate::delivery::{WORKER_OF, WorkerUser};
use crate::limits::{limit_capabilities, limit_descriptors};
use crate::list::Openings;
use crate::notify::{self, State};
use crate::pid_file::PidFile;
use crate::sockets::{self, Held};
use crate::upgrade::{Predecessor, STATE_LIMIT, Upgrade, WorkerState};
use crate::wire::{self, Packet};
use crate::{Setup, monotonic, reading};

/// A worker process that has been told to stop is killed after this time.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// One that lived shorter than this is started again after a pause, which doubles up to a bound: a fault that comes
/// back must not keep a processor busy.
const LIFE_MIN: Duration = Duration::from_millis(250);
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of packets read before signals have their turn: a worker process that was taken over may flood.
const PACKETS_MAX: usize = 64;
/// A line of the worker process for the service manager is cut to this length.
const STATUS_BYTES_MAX: usize = 256;

/// Which part of its life the server is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The first worker process does not serve yet.
    Starting,
    Serving,
    /// It ends with its worker process.
    Stopping,
    /// It ends with its worker process, and a new parent has the sockets.
    Replaced,
}

/// A worker process.
#[derive(Debug)]
struct Worker {
    child: Child,
    link: OwnedFd,
    started: Duration,
    is_ready: bool,
}

/// What was opened for a configuration.
#[derive(Debug, Default)]
struct Opened {
    packets: Vec<Packet>,
    openings: Openings,
    user: Option<WorkerUser>,
    pid: Option<PathBuf>,
}

/// A configuration that waits for the verdict of the worker process.
#[derive(Debug)]
struct Candidate {
    opened: Opened,
    new: Vec<Held>,
    wanted: Vec<sekisho_config::ListenAddress>,
}

struct Parent {
    setup: Setup,
    signals: OwnedFd,
    phase: Phase,
    pid_file: Option<PidFile>,
    held: Vec<Held>,
    /// Addresses whose sockets the parent before this one had: their files are not ours before we serve.
    inherited: Vec<sekisho_config::ListenAddress>,
    current: Opened,
    worker: Option<Worker>,
    candidate: Option<Candidate>,
    /// A reload was asked for that could not begin yet.
    is_reload_due: bool,
    /// How often the worker process has asked for a reload.
    reloads_asked: u64,
    state: WorkerState,
    /// An upgrade waits for the state of the worker process until then.
    state_by: Option<Duration>,
    upgrade: Option<Upgrade>,
    predecessor: Option<Predecessor>,
    /// When a worker process is started again, and how many in a row lived shortly.
    start_at: Option<Duration>,
    short_lives: u32,
    kill_at: Option<Duration>,
    /// For the error log, which only a worker process writes.
    notes: Vec<Packet>,
    /// Why the first worker process could not serve.
    failure: Option<String>,
    /// Why a server that could serve must not: it has no pid file.
    refusal: Option<String>,
    when_ready: Option<Box<dyn FnOnce()>>,
}

/// Serves until a signal ends it. An error is a start that failed; where the worker process has printed the reason
/// itself, there is an exit code.
pub fn run(setup: Setup) -> Result<ExitCode, String> {
    let predecessor = Predecessor::take().map_err(|error| format!("cannot take over: {error}"))?;
    let mut parent = Parent::new(setup, predecessor)?;
    let outcome = parent.open_and_start().and_then(|()| parent.serve());
    let failure = outcome.as_ref().err().or(parent.failure.as_ref());
    if let (Some(predecessor), Some(why)) = (&parent.predecessor, failure) {
        predecessor.report(Err(why));
    }
    parent.remove_files();
    outcome
}

impl Parent {
    fn new(mut setup: Setup, mut predecessor: Option<Predecessor>) -> Result<Self, String> {
        let signals = [
            Signal::HUP,
            Signal::USR1,
            Signal::USR2,
            Signal::QUIT,
            Signal::TERM,
            Signal::INT,
            Signal::CHILD,
            Signal::WINCH,
        ];
        let signals = sekisho_sys::signal_fd(&signals.map(Signal::as_raw))
            .map_err(|error| format!("cannot handle signals: {error}"))?;
        let held = predecessor.as_mut().map(|it| std::mem::take(&mut it.held)).unwrap_or_default();
        let state =
            predecessor.as_mut().map(|it| std::mem::take(&mut it.state)).unwrap_or_default();
        let when_ready = std::mem::replace(&mut setup.when_ready, Box::new(|| {}));
        Ok(Self {
            setup,
            signals,
            phase: Phase::Starting,
            pid_file: None,
            inherited: held.iter().map(|held| held.address.clone()).collect(),
            held,
            current: Opened::default(),
            worker: None,
            candidate: None,
            is_reload_due: false,
            reloads_asked: 0,
            state,
            state_by: None,
            upgrade: None,
            predecessor,
            start_at: None,
            short_lives: 0,
            kill_at: None,
            notes: Vec::new(),
            failure: None,
            refusal: None,
            when_ready: Some(when_ready),
        })
    }

    /// Reads the configuration, opens everything and starts the worker process.
    fn open_and_start(&mut self) -> Result<(), String> {
        let (config, texts) = reading::read(&self.setup.main_file, &self.setup.options);
        let Some(config) = config else {
            return Err(format!("configuration file {} failed", self.setup.main_file.display()));
        };
        limit_capabilities().map_err(|error| format!("cannot give up capabilities: {error}"))?;
        let mut opened = open(&config, texts)?;
        limit_descriptors(&config)?;
        if self.held.is_empty() {
            for (address, socket) in (self.setup.managed)(&config)? {
                let (sockets, is_managers) = (vec![socket], true);
                self.held.push(Held { address, sockets, is_managers });
            }
        }
        let wanted = sockets::wanted(&config);
        let new = sockets::bind_missing(&wanted, &self.held, &mut opened.packets);
        merge(&mut self.held, new);
        let named = |held: &Held| wanted.iter().any(|(address, ..)| *address == held.address);
        self.held.retain(named);
        self.current = opened;
        self.start_worker().map_err(|error| format!("cannot start the worker process: {error}"))
    }

    fn start_worker(&mut self) -> io::Result<()> {
        let (link, theirs) = wire::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(&self.setup.worker_name).args(&self.setup.arguments);
        command.env(WORKER_OF, std::process::id().to_string()).stdin(Stdio::from(theirs));
        let child = command.spawn()?;
        drop(command);
        let worker = Worker { child, link, started: monotonic(), is_ready: false };
        let mut packets = Vec::new();
        if let Some(user) = &self.current.user {
            packets.push(Packet::new("user", user.text(), None));
        }
        for held in &self.held {
            packets.extend(held.packets()?);
        }
        for listener in &self.setup.control {
            packets.push(Packet::new("control", "", Some(listener.try_clone()?)));
        }
        packets.extend(self.state.packets()?);
        let start = Packet::new("start", "", None);
        let notes = std::mem::take(&mut self.notes);
        let all = packets.iter().chain(&self.current.packets).chain(&notes).chain([&start]);
        // One that has ended already is noticed by its end.
        let _ = all.into_iter().try_for_each(|packet| packet.send(&worker.link));
        self.worker = Some(worker);
        Ok(())
    }

    fn serve(&mut self) -> Result<ExitCode, String> {
        loop {
            self.wait();
            while let Some(signal) = self.next_signal() {
                self.take_signal(signal);
            }
            self.hear_worker();
            if let Some(why) = self.refusal.take() {
                self.kill_worker();
                return Err(why);
            }
            self.look_after_upgrade();
            if let Some(code) = self.look_after_worker() {
                return Ok(code);
            }
        }
    }

    /// Waits for something to happen.
    fn wait(&self) {
        let upgrade_by = self.upgrade.as_ref().map(|upgrade| upgrade.ready_by);
        let times = [self.start_at, self.kill_at, self.state_by, upgrade_by];
        let timeout = times.into_iter().flatten().min().map(|at| at.saturating_sub(monotonic()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        let links = self.worker.iter().map(|worker| &worker.link);
        let links = links.chain(self.upgrade.iter().map(|upgrade| &upgrade.link));
        let fds = std::iter::once(&self.signals).chain(links);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // An interruption is one more look.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    fn next_signal(&self) -> Option<Signal> {
        let mut about = [0; 128];
        let count = rustix::io::read(&self.signals, &mut about).ok()?;
        let number = about.first_chunk::<4>().filter(|_| count == about.len())?;
        Signal::from_named_raw(i32::from_ne_bytes(*number))
    }

    fn take_signal(&mut self, signal: Signal) {
        match signal {
            Signal::HUP => self.reload(),
            Signal::USR1 => self.reopen(),
            Signal::USR2 => self.begin_upgrade(),
            Signal::QUIT => self.stop("quit"),
            Signal::TERM | Signal::INT => self.stop("stop"),
            // The end of a child is looked for in every turn; a window that changes its size is no order.
            _ => {}
        }
    }

    fn tell_worker(&self, word: &str, rest: impl AsRef<[u8]>) {
        if let Some(worker) = &self.worker {
            // One that has ended is noticed by its end.
            let _ = Packet::new(word, rest, None).send(&worker.link);
        }
    }

    fn stop(&mut self, word: &str) {
        if let Some(upgrade) = self.upgrade.take() {
            upgrade.give_up();
            self.tell_worker("upgrade-failed", "the server is shutting down");
        }
        if self.phase != Phase::Replaced {
            self.phase = Phase::Stopping;
            notify::tell(State::Stopping, "stopping");
        }
        self.start_at = None;
        self.tell_worker(word, "");
        if word == "stop" {
            self.kill_at = Some(monotonic() + STOP_LIMIT);
        }
    }

    /// Reads and opens everything anew; the worker process decides whether it is used.
    fn reload(&mut self) {
        let is_ready = self.worker.as_ref().is_some_and(|worker| worker.is_ready);
        let is_busy = self.candidate.is_some() || self.upgrade.is_some() || self.state_by.is_some();
        if self.phase != Phase::Serving || !is_ready || is_busy {
            self.is_reload_due = true;
            return;
        }
        self.is_reload_due = false;
        notify::tell(State::Reloading, "reading the configuration");
        let (config, texts) = reading::read(&self.setup.main_file, &self.setup.options);
        let (mut opened, mut wanted, mut new) = (Opened::default(), Vec::new(), Vec::new());
        match config {
            // The worker process reads the same texts and reports the errors.
            None => opened.packets.extend(texts_of(texts)),
            Some(config) => {
                opened = open(&config, texts).unwrap_or_default();
                // A change of the user needs a restart: what is opened is for the one that there is.
                opened.user.clone_from(&self.current.user);
                let addresses = sockets::wanted(&config);
                new = sockets::bind_missing(&addresses, &self.held, &mut opened.packets);
                wanted.extend(addresses.into_iter().map(|(address, ..)| address));
                let _ = limit_descriptors(&config);
            }
        }
        let mut packets = Vec::new();
        for held in &new {
            packets.extend(held.packets().unwrap_or_default());
        }
        let order = Packet::new("reload", self.reloads_asked.to_string(), None);
        let sent = self.worker.as_ref().map(|worker| {
            let mut all = packets.iter().chain(&opened.packets).chain([&order]);
            all.try_for_each(|packet| packet.send(&worker.link))
        });
        self.candidate = Some(Candidate { opened, new, wanted });
        if !matches!(sent, Some(Ok(()))) {
            self.decide(false, "the last reload failed");
        }
    }

    /// The verdict on a reload.
    fn decide(&mut self, is_good: bool, status: &str) {
        let Some(candidate) = self.candidate.take() else { return };
        notify::tell(State::Ready, status);
        if !is_good {
            let is_new = |held: &&Held| self.held.iter().all(|it| it.address != held.address);
            candidate.new.iter().filter(is_new).for_each(Held::remove_file);
            return;
        }
        merge(&mut self.held, candidate.new);
        let is_wanted = |held: &mut Held| candidate.wanted.contains(&held.address);
        self.held.extract_if(.., |held| !is_wanted(held)).for_each(|held| held.remove_file());
        if candidate.opened.pid != self.current.pid {
            // The old file goes first: it may be the same one by another name.
            self.pid_file = None;
            let written = candidate.opened.pid.as_deref();
            match written.map(|path| PidFile::write(path, self.setup.is_server)).transpose() {
                Ok(file) => self.pid_file = file,
                Err(why) => self.note("alert", &why),
            }
        }
        self.current = candidate.opened;
        become_small();
    }

    /// Opens the logs anew.
    fn reopen(&mut self) {
        let mut logs = Vec::new();
        self.current.openings.open_logs(self.current.user.as_ref(), &mut logs);
        let paths = &self.current.openings.logs;
        let is_log = |packet: &Packet| match packet.split() {
            (b"log", _) => true,
            (b"refused", rest) => {
                let path = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                paths.contains(&wire::path(path))
            }
            _ => false,
        };
        let order = Packet::new("reopen", "", None);
        if let Some(worker) = &self.worker {
            let _ = logs.iter().chain([&order]).try_for_each(|packet| packet.send(&worker.link));
        }
        // For a worker process that is started later.
        self.current.packets.retain(|packet| !is_log(packet));
        self.current.packets.append(&mut logs);
    }

    fn note(&mut self, word: &str, text: &str) {
        let packet = Packet::new(word, text, None);
        match &self.worker {
            Some(worker) if packet.send(&worker.link).is_ok() => {}
            _ => self.notes.push(packet),
        }
    }

    /// Hears what the worker process says: words without arguments that matter.
    fn hear_worker(&mut self) {
        for _ in 0..PACKETS_MAX {
            let Some(worker) = &mut self.worker else { break };
            let Ok(Some(packet)) = wire::receive(&worker.link, RecvFlags::DONTWAIT) else { break };
            let (word, rest) = packet.split();
            let status = String::from_utf8_lossy(&rest[..rest.len().min(STATUS_BYTES_MAX)]);
            let status = status.replace(char::is_control, " ");
            match word {
                b"ready" => {
                    worker.is_ready = true;
                    self.worker_serves(&status);
                }
                b"good" => self.decide(true, &status),
                b"bad" => self.decide(false, &status),
                b"reload" => {
                    self.reloads_asked += 1;
                    self.reload();
                }
                b"reopen" => self.reopen(),
                b"upgrade" => self.begin_upgrade(),
                b"stopping" => self.worker_stops(),
                b"failed" => self.failure = Some(status),
                b"state" => self.state.file = packet.fd,
                b"quic-link" => {
                    let process = rest.to_vec();
                    packet.fd.into_iter().for_each(|link| self.state.take_link(&process, link));
                }
                _ => {}
            }
        }
        let is_idle = self.candidate.is_none() && self.phase == Phase::Serving;
        if self.is_reload_due && is_idle {
            self.reload();
        }
    }

    fn worker_serves(&mut self, status: &str) {
        if self.phase != Phase::Starting {
            return;
        }
        // Scripts wait for the pid file: clients can connect when it is there, as with nginx.
        let path = self.current.pid.as_deref();
        match path.map(|path| PidFile::write(path, self.setup.is_server)).transpose() {
            Ok(file) => self.pid_file = file,
            Err(why) => {
                self.refusal = Some(why);
                return;
            }
        }
        self.phase = Phase::Serving;
        self.inherited.clear();
        // It is as old as the process before this one.
        self.state = WorkerState::default();
        become_small();
        notify::tell(State::Ready, status);
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.report(Ok(()));
        }
        if let Some(when_ready) = self.when_ready.take() {
            when_ready();
        }
    }

    fn kill_worker(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            // One that has ended already is what is wanted.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }

    /// The worker process accepts no more: nobody else does.
    fn worker_stops(&mut self) {
        if self.phase != Phase::Replaced {
            self.phase = Phase::Stopping;
            notify::tell(State::Stopping, "stopping");
            self.remove_files();
            self.pid_file.iter().for_each(PidFile::release);
        }
        self.held.clear();
    }

    /// Removes the files of Unix sockets, but for those of a parent before us that still serves.
    fn remove_files(&mut self) {
        let is_ours = |held: &&Held| !self.inherited.contains(&held.address);
        self.held.iter().filter(is_ours).for_each(Held::remove_file);
    }

    /// Starts a worker process where there is none; the exit code when the server is over.
    fn look_after_worker(&mut self) -> Option<ExitCode> {
        let now = monotonic();
        if self.kill_at.is_some_and(|at| now >= at)
            && let Some(worker) = &mut self.worker
        {
            let _ = worker.child.kill();
        }
        if let Some(worker) = &mut self.worker {
            let Ok(Some(status)) = worker.child.try_wait() else { return None };
            let (lived, was_ready) = (now.saturating_sub(worker.started), worker.is_ready);
            // What it said last.
            self.hear_worker();
            let pid = self.worker.take().map_or(0, |worker| worker.child.id());
            self.decide(false, "the worker process ended");
            if self.phase != Phase::Serving {
                return Some(code_of(status));
            }
            self.start_later(pid, status, lived, was_ready);
        }
        if matches!(self.phase, Phase::Stopping | Phase::Replaced) {
            return Some(ExitCode::SUCCESS);
        }
        if self.start_at.take_if(|at| now >= *at).is_some()
            && let Err(error) = self.start_worker()
        {
            self.note("alert", &format!("cannot start the worker process: {error}"));
            self.start_at = Some(now + PAUSE_MAX);
        }
        None
    }

    /// It died: another one takes its place, at once unless deaths repeat.
    fn start_later(&mut self, pid: u32, status: ExitStatus, lived: Duration, was_ready: bool) {
        let is_short = lived < LIFE_MIN || !was_ready;
        self.short_lives = if is_short { self.short_lives.saturating_add(1) } else { 0 };
        let pause = match self.short_lives {
            0 => Duration::ZERO,
            count => PAUSE_FIRST.saturating_mul(1 << (count - 1).min(16)).min(PAUSE_MAX),
        };
        self.start_at = Some(monotonic() + pause);
        let text =
            format!("worker process {pid} ended unexpectedly: {status}; a new one is started");
        self.notes.push(Packet::new("alert", text, None));
    }

    fn begin_upgrade(&mut self) {
        let is_ready = self.worker.as_ref().is_some_and(|worker| worker.is_ready);
        if self.phase != Phase::Serving || !is_ready {
            self.tell_worker("upgrade-failed", "the server does not serve");
        } else if self.upgrade.is_some() || self.state_by.is_some() {
            self.tell_worker("upgrade-failed", "another upgrade is in progress");
        } else {
            self.state = WorkerState::default();
            self.state_by = Some(monotonic() + STATE_LIMIT);
            self.tell_worker("state?", "");
        }
    }

    fn look_after_upgrade(&mut self) {
        let now = monotonic();
        let has_state = self.state.file.is_some();
        if self.state_by.take_if(|by| has_state || now >= *by).is_some() {
            self.start_successor(now);
        }
        let Some(outcome) = self.upgrade.as_mut().and_then(|upgrade| upgrade.outcome(now)) else {
            return;
        };
        let Some(upgrade) = self.upgrade.take() else { return };
        match outcome {
            Ok(()) => {
                let by = upgrade.child.id();
                self.phase = Phase::Replaced;
                self.held.clear();
                notify::tell(State::Replaced { by }, format_args!("process {by} has taken over"));
                self.tell_worker("replaced", by.to_string());
            }
            Err(why) => {
                upgrade.give_up();
                self.upgrade_failed(&why);
            }
        }
    }

    fn start_successor(&mut self, now: Duration) {
        if let Some(Err(error)) = self.pid_file.as_mut().map(PidFile::put_aside) {
            self.note("alert", &format!("the pid file cannot be renamed: {error}"));
        }
        let started = (self.setup.successor)().and_then(|program| {
            Upgrade::start(program, &self.held, &self.state, now)
                .map_err(|error| format!("cannot start the new process: {error}"))
        });
        match started {
            Ok(upgrade) => {
                self.note("note", &format!("upgrade: process {} was started", upgrade.child.id()));
                self.upgrade = Some(upgrade);
            }
            Err(why) => self.upgrade_failed(&why),
        }
    }

    fn upgrade_failed(&mut self, why: &str) {
        self.state = WorkerState::default();
        if let Some(Err(error)) = self.pid_file.as_mut().map(PidFile::put_back) {
            self.note("alert", &format!("the pid file cannot be restored: {error}"));
        }
        self.tell_worker("upgrade-failed", why);
    }
}

/// Opens what a configuration names.
fn open(config: &Config, texts: Vec<(PathBuf, OwnedFd)>) -> Result<Opened, String> {
    let user = reading::worker_user(config)?;
    let mut packets: Vec<Packet> = texts_of(texts).collect();
    let openings = Openings::of(config);
    openings.open(user.as_ref(), &mut packets);
    Ok(Opened { packets, openings, user, pid: config.main.pid.clone() })
}

fn texts_of(texts: Vec<(PathBuf, OwnedFd)>) -> impl Iterator<Item = Packet> {
    texts.into_iter().map(|(path, copy)| Packet::of_path("config", &path, copy))
}

/// Gives back what reading the configuration took: the parent waits from here on.
fn become_small() {
    sekisho_sys::give_back_memory();
    sekisho_sys::forget_code();
}

/// Adds sockets; those of one address stand together.
fn merge(held: &mut Vec<Held>, new: Vec<Held>) {
    for mut more in new {
        match held.iter_mut().find(|held| held.address == more.address) {
            Some(known) => known.sockets.append(&mut more.sockets),
            None => held.push(more),
        }
    }
}

/// The exit code of the server: that of its worker process.
fn code_of(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use sekisho_config::Options;

    use super::*;

    /// A parent of a configuration in this folder, and the worker process's end of its connection.
    fn parent(dir: &Path) -> (Parent, OwnedFd) {
        let main_file = dir.join("x.conf");
        let text = format!("error_log {}/error.log; events {{}}\n", dir.display());
        fs::write(&main_file, text).expect("written");
        let setup = Setup {
            main_file,
            options: Options::new(dir),
            arguments: Vec::new(),
            worker_name: "worker".into(),
            control: Vec::new(),
            managed: |_| Ok(Vec::new()),
            successor: Box::new(|| Err("no upgrade here".to_owned())),
            is_server: |_| false,
            when_ready: Box::new(|| {}),
        };
        let mut parent = Parent::new(setup, None).expect("signals");
        let (link, theirs) = wire::pair().expect("a pair");
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
        parent.worker = Some(Worker { child, link, started: monotonic(), is_ready: false });
        (parent, theirs)
    }

    /// The files that this process has open below a folder.
    fn open_files(dir: &Path) -> Vec<PathBuf> {
        let all = fs::read_dir("/proc/self/fd").expect("ours").flatten();
        let all = all.filter_map(|entry| fs::read_link(entry.path()).ok());
        all.filter(|path| path.starts_with(dir)).collect()
    }

    /// O8, V52: whatever a worker process says, the parent opens what the configuration names and sends nothing else.
    #[test]
    fn a_forged_message_opens_no_other_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let secret = dir.path().join("secret");
        fs::write(&secret, "secret").expect("written");
        let (mut parent, worker) = parent(dir.path());
        let shown = secret.display();
        let long = "x".repeat(8000);
        for forged in [
            format!("file {shown}"),
            format!("log {shown}"),
            format!("config {shown}"),
            format!("open {shown}"),
            format!("refused {shown}\0"),
            format!("ready {shown}\nMAINPID=1"),
            format!("reload {shown}"),
            format!("reopen {shown}"),
            format!("listen unix:{shown}"),
            format!("user 0 0 0 0 {shown}"),
            long,
            "\u{0}\u{1}".to_owned(),
        ] {
            let own = fs::File::open("/dev/null").expect("it is there");
            wire::send(&worker, forged.as_bytes(), Some(std::os::fd::AsFd::as_fd(&own)))
                .expect("sent");
            parent.hear_worker();
            assert!(!open_files(dir.path()).contains(&secret), "{forged:.40}");
        }
        let named = dir.path().join("error.log");
        let mut words = Vec::new();
        while let Ok(Some(packet)) = wire::receive(&worker, RecvFlags::DONTWAIT) {
            let (word, rest) = packet.split();
            words.push(String::from_utf8_lossy(word).into_owned());
            let path = wire::path(rest.split(|byte| *byte == 0).next().unwrap_or_default());
            let is_named = [&named, &parent.setup.main_file].contains(&&path);
            assert!(packet.fd.is_none() || is_named, "{path:?} was given");
        }
        // A reload is what it can have; the reopening came before anything was open.
        words.sort_unstable();
        assert_eq!(words, ["config", "log", "reload", "reopen"]);
        assert!(parent.held.is_empty() && parent.phase == Phase::Serving);
        if let Some(mut worker) = parent.worker.take() {
            worker.child.kill().and_then(|()| worker.child.wait()).expect("it ends");
        }
    }
}
