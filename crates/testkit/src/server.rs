//! The real binary with a configuration of a test's own, on free ports, in a folder of its own. It is
//! killed and waited for, by its id, when dropped; a test that failed shows what the server said.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use std::{process, thread};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::client::Client;
use crate::clock::{Stopwatch, wait_for};
use crate::files::Tree;
use crate::process as proc;

/// How often a log is looked at, and how long at most.
const LOG_LOOK: Duration = Duration::from_millis(10);
const LOG_LIMIT: Duration = Duration::from_secs(5);
/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_mins(1);
/// `{port}` and `{port2}` to `{port4}` are replaced by ports of a test's own.
const PORT_NAMES: [&str; 4] = ["{port}", "{port2}", "{port3}", "{port4}"];
const CONFIG: &str = "sekisho.conf";
const STDERR: &str = "stderr.log";

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its end, once seen.
    exit: Option<ExitStatus>,
    tree: Tree,
    ports: [u16; PORT_NAMES.len()],
    /// Those that its configuration names.
    awaited: Vec<u16>,
}

/// A server that ended instead of listening.
#[derive(Debug)]
pub struct Failed {
    /// How it ended.
    pub status: ExitStatus,
    /// What it said.
    pub stderr: String,
}

impl Server {
    /// Starts the binary with this configuration, in which `{port}` (to `{port4}`), `{dir}` and
    /// `{root}` are replaced, and waits until it listens on every port named there.
    #[track_caller]
    pub fn start(binary: &str, config: &str) -> Self {
        Self::start_in(Tree::new(), binary, config)
    }

    /// The same, with files that are already there.
    #[track_caller]
    pub fn start_in(tree: Tree, binary: &str, config: &str) -> Self {
        match Self::try_start(tree, binary, config, &[]) {
            Ok(server) => server,
            Err(failed) => panic!("the server ended: {}\n{}", failed.status, failed.stderr),
        }
    }

    /// The same, with more arguments, for a server that may well refuse to start.
    #[track_caller]
    pub fn try_start(
        tree: Tree,
        binary: &str,
        config: &str,
        arguments: &[&str],
    ) -> Result<Self, Failed> {
        let ports = std::array::from_fn(|_| free_port());
        tree.file(CONFIG, filled_in(config, &tree, &ports));
        let child = spawn(&tree, binary, arguments);
        let awaited: Vec<u16> = PORT_NAMES
            .iter()
            .zip(ports)
            .filter(|(name, _)| config.contains(**name))
            .map(|(_, port)| port)
            .collect();
        let mut server = Self { child, exit: None, tree, ports, awaited };
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts it again, when it has ended: the same configuration, folder and ports.
    #[track_caller]
    pub fn start_again(&mut self, binary: &str) {
        assert!(self.try_exit().is_some(), "the server still runs");
        self.child = spawn(&self.tree, binary, &[]);
        self.exit = None;
        if let Err(failed) = self.wait_ready() {
            panic!("the server ended: {}\n{}", failed.status, failed.stderr);
        }
    }

    #[track_caller]
    fn wait_ready(&mut self) -> Result<(), Failed> {
        let (awaited, pid) = (self.awaited.clone(), self.child.id());
        let is_ready = wait_for(START_LIMIT, || {
            awaited.iter().all(|port| proc::is_listening_for_us(pid, *port))
                || self.try_exit().is_some()
        });
        if let Some(status) = self.try_exit() {
            return Err(Failed { status, stderr: self.stderr() });
        }
        let said = self.stderr();
        assert!(is_ready, "the server does not listen within {START_LIMIT:?}:\n{said}");
        Ok(())
    }

    /// Replaces the configuration file; the same ports and folders are filled in. The server learns of
    /// it by a signal.
    #[track_caller]
    pub fn rewrite_config(&self, config: &str) {
        self.tree.file(CONFIG, filled_in(config, &self.tree, &self.ports));
    }

    /// A new connection to `{port}`.
    #[track_caller]
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Where `{port}` is.
    pub fn address(&self) -> SocketAddr {
        self.address_of(0)
    }

    /// Where one of the ports is: 0 for `{port}`, 1 for `{port2}`, ….
    pub fn address_of(&self, index: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[index]))
    }

    /// A URL on `{port}`.
    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address())
    }

    /// The server's folder: `{dir}`, with the site in `root`.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The file that the server was given.
    pub fn config_path(&self) -> PathBuf {
        self.tree.path(CONFIG)
    }

    /// What the server has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.tree.text(STDERR)
    }

    /// What a log below `{dir}` holds so far; nothing when it is not there. Lines are written by a thread of
    /// the server's own, after the answer: it is waited for until all threads sleep and nothing has come meanwhile.
    /// Lines about the phases of requests, which `debug` has, are left out: see [`Self::whole_log`].
    pub fn log(&self, relative: &str) -> String {
        let text = self.whole_log(relative);
        text.split_inclusive('\n').filter(|line| !is_phase(line)).collect()
    }

    /// All lines of a log below `{dir}`.
    pub fn whole_log(&self, relative: &str) -> String {
        let watch = Stopwatch::start();
        loop {
            let found = self.tree.text(relative);
            crate::pause(LOG_LOOK);
            let is_idle = proc::is_idle(self.worker());
            if is_idle && self.tree.text(relative).len() == found.len()
                || watch.elapsed() > LOG_LIMIT
            {
                return found;
            }
        }
    }

    /// The server's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process that serves: a child of the server's process, if that is a parent.
    pub fn worker(&self) -> u32 {
        proc::worker_of(self.id())
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(self.exit.is_none(), "the server has ended already");
        kill_process(self.pid(), signal).expect("a child of ours takes signals");
    }

    /// Asks for a graceful end (QUIT).
    #[track_caller]
    pub fn quit(&self) {
        self.signal(Signal::QUIT);
    }

    /// Asks for a forceful end (TERM).
    #[track_caller]
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for the server's end; fails the test when it does not come.
    #[track_caller]
    pub fn wait_exit(&mut self, within: Duration) -> ExitStatus {
        let is_over = wait_for(within, || self.try_exit().is_some());
        assert!(is_over, "the server has not ended within {within:?}:\n{}", self.stderr());
        self.exit.expect("seen just now")
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.try_exit().is_none()
    }

    /// How many descriptors it has open.
    pub fn fds(&self) -> usize {
        proc::descriptors(self.id())
    }

    /// How much of its memory is resident.
    pub fn rss_bytes(&self) -> u64 {
        proc::rss_bytes(self.id())
    }

    /// How much processor time it has used, in ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        proc::cpu_ticks(self.id())
    }

    /// The processes it has started and not yet waited for.
    pub fn children(&self) -> Vec<u32> {
        proc::children(self.id())
    }

    /// Lets the running server have no more than so many descriptors from here on.
    #[track_caller]
    pub fn limit_descriptors(&self, most: u64) {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(Some(self.pid()), Resource::Nofile, limit).expect("a child of ours can be limited");
    }

    /// From here on the running server can write no file beyond this many bytes, as on a full disk: a write across
    /// the limit is short, one behind it fails. `None` removes the limit.
    #[track_caller]
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(self.pid()), Resource::Fsize, limit).expect("a child of ours can be limited");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn try_exit(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().expect("a child of ours can be waited for");
        }
        self.exit
    }
}

impl Server {
    /// The last lines of its error log, without `info` and `debug`.
    fn complaints(&self) -> String {
        const SHOWN_MAX: usize = 20;
        let log = std::fs::read(self.tree.path("error.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let is_told = |line: &&str| !line.contains("[debug]") && !line.contains("[info]");
        let lines: Vec<&str> = log.lines().filter(is_told).collect();
        let last = &lines[lines.len().saturating_sub(SHOWN_MAX)..];
        if last.is_empty() { String::new() } else { last.join("\n") + "\n" }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.try_exit().is_none() {
            let worker = Pid::from_raw(self.worker().cast_signed());
            // These can only fail for a process that is gone, and that is what is wanted.
            self.child.kill().ok();
            if let Some(worker) = worker.filter(|worker| *worker != self.pid()) {
                kill_process(worker, Signal::KILL).ok();
            }
            self.child.wait().ok();
        }
        if thread::panicking() {
            println!("--- the server said:\n{}{}---", self.stderr(), self.complaints());
        }
    }
}

fn spawn(tree: &Tree, binary: &str, arguments: &[&str]) -> Child {
    let output = |name: &str| File::create(tree.path(name)).expect("a file can be made");
    // A test may compare with nginx itself.
    let is_ours = !binary.ends_with("nginx");
    let own = if is_ours { as_root(&tree.text(CONFIG), arguments) } else { Vec::new() };
    sekisho_sys::unignore_signals();
    Command::new(binary)
        .arg("-p")
        .arg(tree.dir())
        .arg("-c")
        .arg(tree.path(CONFIG))
        .args(arguments)
        .args(own)
        // What a test asks of a server beside requests (`X-Inject-Fault`); only a test build listens to it.
        .env("SEKISHO_INJECT_FAULTS", "on")
        .stdin(Stdio::null())
        .stdout(output("stdout.log"))
        .stderr(output(STDERR))
        .spawn()
        .unwrap_or_else(|error| panic!("{binary}: {error}"))
}

/// What a server needs beside its configuration when root starts it: it would change to user `nobody`, and
/// run no programs as root. The files of a test are root's alone.
pub fn as_root(config: &str, arguments: &[&str]) -> Vec<&'static str> {
    let says = |name: &str| {
        config.split([';', '\n', '{', '}']).any(|it| it.trim_start().starts_with(name))
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || arguments.contains(&"-g") || says("user ") {
        return Vec::new();
    }
    let text = if says("cgi_allow_root ") { "user root;" } else { "user root; cgi_allow_root on;" };
    vec!["-g", text]
}

fn filled_in(config: &str, tree: &Tree, ports: &[u16]) -> String {
    let mut text = config
        .replace("{dir}", &tree.dir().to_string_lossy())
        .replace("{root}", &tree.root().to_string_lossy());
    let mut number = String::new();
    for (name, port) in PORT_NAMES.iter().zip(ports) {
        number.clear();
        write!(number, "{port}").expect("a string takes everything");
        text = text.replace(name, &number);
    }
    text
}

/// A port without a listener, TCP or UDP. The range lies below the kernel's own for outgoing connections, and
/// two tests of one process never get the same; processes begin at different places in it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let start = (process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let turn = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + ((u32::from(start) + u32::from(turn)) % u32::from(COUNT)) as u16;
        if is_free(port) {
            return port;
        }
    }
    panic!("no port is free")
}

/// Whether this port is free. The check only binds: a socket that listened, even for a moment, would take
/// another test's clients and reset them.
fn is_free(port: u16) -> bool {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
    let is_free = |kind| {
        let Ok(socket) = socket(AddressFamily::INET, kind, None) else { return false };
        // As a server does: connections that have ended do not count.
        if kind == SocketType::STREAM {
            let _ = sockopt::set_socket_reuseaddr(&socket, true);
        }
        bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).is_ok()
    };
    is_free(SocketType::STREAM) && is_free(SocketType::DGRAM)
}

/// Whether a line of the error log is about a phase of a request.
fn is_phase(line: &str) -> bool {
    const PHASES: [&str; 5] =
        ["request: \"", "location \"", "response: ", "upstream \"", "request is over: "];
    let said = line.split_once(" [debug] ").and_then(|(_, line)| line.split_once(": *"));
    let said = said.and_then(|(_, line)| line.split_once(' '));
    said.is_some_and(|(_, said)| PHASES.iter().any(|phase| said.starts_with(phase)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Something that starts like a server and does what its configuration says, which is a shell
    /// script. It is not written here: another test that forks just then would keep it "busy".
    const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in");

    #[test]
    fn placeholders_are_filled_in_and_the_ports_differ() {
        let tree = Tree::new();
        let text = filled_in("{port} {port2} {dir} {root}", &tree, &[1, 2, 3, 4]);
        let dir = tree.dir().display();
        assert_eq!(text, format!("1 2 {dir} {dir}/root"));
        assert_ne!(free_port(), free_port());
    }

    #[test]
    fn a_server_that_ends_at_once_is_told_with_what_it_said() {
        let config = "echo {port} is no good >&2; exit 7";
        let failed = Server::try_start(Tree::new(), STAND_IN, config, &[]).expect_err("it ended");
        assert_eq!(failed.status.code(), Some(7));
        assert!(failed.stderr.contains("is no good"));
    }

    #[test]
    fn a_server_takes_signals_and_its_end_is_seen() {
        let config = "trap 'exit 0' QUIT; echo ready >&2; while :; do sleep 0.01; done";
        let mut server = Server::start(STAND_IN, config);
        assert!(wait_for(SOON, || server.stderr().contains("ready")));
        assert!(server.is_running());
        assert!(server.fds() >= 3);
        assert!(server.rss_bytes() > 0);
        server.quit();
        assert_eq!(server.wait_exit(SOON).code(), Some(0));
    }

    /// A shell script starts `./test &` with INT and QUIT ignored, and a shell cannot take back what it inherits so.
    #[test]
    fn signals_that_the_tests_inherit_as_ignored_reach_a_server() {
        let own = std::env::current_exe().expect("this program");
        let name = "server::tests::a_server_takes_signals_and_its_end_is_seen";
        let script = format!("trap '' INT QUIT; exec '{}' --exact {name}", own.display());
        let ran = crate::run("sh", &["-c", &script], START_LIMIT);
        assert!(ran.status.success() && ran.stdout.contains("1 passed"), "{}", ran.stdout);
    }

    #[test]
    fn a_dropped_server_is_gone_and_nobody_is_left_to_wait_for() {
        let server = Server::start(STAND_IN, "exec sleep 60");
        let id = server.id();
        drop(server);
        assert!(!proc::exists(id));
    }
}
