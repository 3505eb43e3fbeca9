//! A real Redis for a test.

use std::process::{Command, Stdio};

use sekisho_testkit::{Background, Tree, eventually, have, run};

use super::LONG;

/// A store at a Unix socket, which can be ended and started again.
pub(crate) struct Store {
    tree: Tree,
    process: Option<Background>,
}

impl Store {
    /// `None` without Redis.
    pub(crate) fn start() -> Option<Self> {
        have("redis-server").then(|| {
            let mut store = Self { tree: Tree::new(), process: None };
            store.run();
            store
        })
    }

    pub(crate) fn socket(&self) -> String {
        self.tree.path("redis.sock").display().to_string()
    }

    /// Starts it again, without memory of what was.
    pub(crate) fn run(&mut self) {
        let socket = self.socket();
        let dir = self.tree.dir().display().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket", &socket, "--dir", &dir]);
        self.process = Some(Background::start(command.stdout(Stdio::null())));
        eventually("Redis", LONG, || self.ask(&["ping"]).starts_with("PONG"));
    }

    pub(crate) fn end(&mut self) {
        self.process = None;
    }

    /// What `redis-cli` prints.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let socket = self.socket();
        run("redis-cli", &[&["-s", socket.as_str()], arguments].concat(), LONG).stdout
    }
}
