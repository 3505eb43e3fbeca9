//! What the scenario files share: where the binary is, and the frame around a test's configuration.
#![allow(dead_code, reason = "each scenario file uses what it needs")]

pub(crate) mod store;

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Server, Signal, Tree, as_root, eventually};

/// The real binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_sekisho");
/// Longer than anything takes that is going to happen at all, on a loaded machine too.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A configuration with one server on `{port}` whose files are in `{root}`; `body` is put into its block.
pub(crate) fn site(body: &str) -> String {
    http(&format!("server {{ listen 127.0.0.1:{{port}}; root {{root}};\n{body}\n}}"))
}

/// A configuration whose `http` block holds `body`. The error log tells everything.
pub(crate) fn http(body: &str) -> String {
    format!(
        "worker_processes 1;\nerror_log {{dir}}/error.log debug;\nevents {{}}\n\
         http {{\naccess_log off;\n{body}\n}}\n"
    )
}

/// A server with [`site`] and files that are already there.
#[track_caller]
pub(crate) fn serve(tree: Tree, body: &str) -> Server {
    Server::start_in(tree, BINARY, &site(body))
}

/// Bytes that are the same at no two places near each other.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at / 251 % 256) as u8).collect()
}

/// The binary with arguments of a test's own. It is killed and waited for, by its id, when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    tree: Tree,
}

impl Process {
    /// Starts the binary in the tree's folder.
    #[track_caller]
    pub(crate) fn start(tree: Tree, arguments: &[&str]) -> Self {
        Self::start_with(tree, arguments, &[])
    }

    /// The same with more in its environment.
    #[track_caller]
    pub(crate) fn start_with(
        tree: Tree,
        arguments: &[&str],
        environment: &[(&str, &std::path::Path)],
    ) -> Self {
        let output = |name: &str| File::create(tree.path(name)).expect("a file can be made");
        let named = arguments.iter().skip_while(|word| **word != "-c").nth(1);
        let config = named.map(|file| tree.text(file));
        let root = config.map(|text| as_root(&text, arguments)).unwrap_or_default();
        let child = Command::new(BINARY)
            .args(arguments)
            .args(root)
            .envs(environment.iter().copied())
            .current_dir(tree.dir())
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("the binary can be started");
        Self { child, tree }
    }

    /// Its folder.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child of ours takes signals");
    }

    /// Waits for its end and says how it was.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the end of the server", LONG, || {
            status = self.child.try_wait().expect("a child of ours can be waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Waits until it has said on stdout where it listens.
    #[track_caller]
    pub(crate) fn address(&mut self) -> SocketAddr {
        let mut found = None;
        eventually("the address on stdout", LONG, || {
            let said = self.tree.text("stdout");
            let rest = said.split_once("http://").map(|(_, rest)| rest);
            found = rest.and_then(|rest| rest.split_once('/')?.0.parse().ok());
            found.is_some() || self.child.try_wait().is_ok_and(|status| status.is_some())
        });
        found.unwrap_or_else(|| panic!("it ended: {}", self.tree.text("stderr")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both can only fail for a child that is gone, and that is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A loopback address that no other test has, so that its ports are free.
pub(crate) fn own_address(port: u16) -> SocketAddr {
    static TAKEN: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let own = TAKEN.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from(([127, high.max(1), low, own], port))
}
