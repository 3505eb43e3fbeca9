//! The servers: started, asked from outside, paused, ended and started again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Server, Signal, Tree, have, run};

use crate::common::{BINARY, LONG, http};

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    S3,
    Azure,
}

/// A store; its objects go with it.
pub(crate) struct Store {
    pub(crate) kind: Kind,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) port: u16,
    pub(crate) secret: String,
    access: String,
}

static INSTALL: Mutex<()> = Mutex::new(());

/// The folder with the server of Azure; `None` where it cannot be had.
fn azurite() -> Option<String> {
    let _turn = INSTALL.lock();
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/azurite").to_owned();
    let is_there =
        || Path::new(&folder).join("node_modules/azurite/dist/src/blob/main.js").exists();
    if !is_there() {
        if !have("node") || !have("npm") {
            println!("skipped: there is no node, or no npm");
            return None;
        }
        std::fs::create_dir_all(&folder).expect("a folder");
        let args = ["install", "--prefix", &folder, "--omit=dev", "--no-audit", "--no-fund"];
        let npm = run("npm", &[&args[..], &["azurite@3"]].concat(), 10 * LONG);
        if !is_there() {
            println!("skipped: Azurite cannot be installed: {}", npm.stderr);
            return None;
        }
    }
    Some(folder)
}

/// The interpreter that has the server of S3; `None` where it cannot be had.
pub(crate) fn python() -> Option<String> {
    let _turn = INSTALL.lock();
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/moto");
    let python = format!("{folder}/bin/python");
    let is_there = || {
        Path::new(&python).exists()
            && run(&python, &["-c", "import moto.server, boto3"], LONG).code() == 0
    };
    if !is_there() {
        if !have("python3") {
            println!("skipped: there is no python3");
            return None;
        }
        run("python3", &["-m", "venv", folder], LONG);
        let wanted = "moto[s3,server]>=5.1,<6";
        let pip = run(&python, &["-m", "pip", "install", "-q", wanted], 5 * LONG);
        if !is_there() {
            println!("skipped: moto cannot be installed: {}", pip.stderr);
            return None;
        }
    }
    Some(python)
}

impl Store {
    /// `None` where there is no such server.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        Self::start_at(kind, 0)
    }

    pub(crate) fn start_at(kind: Kind, port: u16) -> Option<Self> {
        let mut command = match kind {
            Kind::S3 => {
                let mut command = Command::new(python()?);
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/storage/store.py"));
                command
            }
            Kind::Azure => {
                let mut command = Command::new("node");
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/storage/azure.js"));
                command.arg(azurite()?);
                command
            }
        };
        let mut child = command
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the store starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut store = Self {
            kind,
            child,
            input,
            output,
            port: 0,
            secret: String::new(),
            access: String::new(),
        };
        let hello = store.line();
        store.port = field(&hello, "port").parse().expect("a port");
        field(&hello, "access").clone_into(&mut store.access);
        field(&hello, "secret").clone_into(&mut store.secret);
        Some(store)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the store answers");
        assert!(!line.is_empty(), "the store has ended");
        line
    }

    /// Asks the store from outside; the answer is JSON.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").expect("the store listens");
        let line = self.line();
        let answer = line.trim().strip_prefix("{\"ok\": ").and_then(|it| it.strip_suffix('}'));
        answer.unwrap_or_else(|| panic!("{command}: {line}")).to_owned()
    }

    #[track_caller]
    pub(crate) fn put(&mut self, key: &str, body: &str) {
        self.ask(&format!("{{\"do\": \"put\", \"key\": \"{key}\", \"body\": \"{body}\"}}"));
    }

    /// Every key, as JSON.
    #[track_caller]
    pub(crate) fn keys(&mut self) -> String {
        self.ask("{\"do\": \"keys\"}")
    }

    /// Whether nothing is left of uploads that were not completed. Azure removes blocks by itself, after a week.
    #[track_caller]
    pub(crate) fn has_no_uploads(&mut self) -> bool {
        self.kind == Kind::Azure || self.ask("{\"do\": \"uploads\"}") == "[]"
    }

    pub(crate) fn access(&self) -> String {
        self.access.clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it is there");
    }

    /// The lines of a `storage` with this name.
    pub(crate) fn block(&self, name: &str, more: &str) -> String {
        let (port, account) = (self.port, &self.access);
        let place = match self.kind {
            Kind::S3 => format!("url s3://bucket/pre/; endpoint http://127.0.0.1:{port};"),
            Kind::Azure => {
                format!("url az://bucket/pre/; endpoint http://127.0.0.1:{port}/{account};")
            }
        };
        format!("storage {name} {{ {place} credentials {{dir}}/keys; timeout 5s; {more} }}\n")
    }

    /// A folder with its keys in it.
    pub(crate) fn tree(&self) -> Tree {
        let tree = Tree::new();
        tree.file("keys", self.keys_file(&self.secret));
        tree
    }

    /// A file of keys with this secret.
    pub(crate) fn keys_file(&self, secret: &str) -> String {
        let access = &self.access;
        match self.kind {
            Kind::S3 => format!("aws_access_key_id = {access}\naws_secret_access_key = {secret}\n"),
            Kind::Azure => {
                format!("azure_storage_account = {access}\nazure_storage_key = {secret}\n")
            }
        }
    }

    /// A server with this in its `http` block.
    pub(crate) fn serve(&self, body: &str) -> Server {
        Server::start_in(self.tree(), BINARY, &http(body))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may be stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A member of an object of JSON, without its quotes.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let at = line.find(&format!("\"{name}\": ")).expect("the field");
    let value = &line[at + name.len() + 4..];
    let end = value.find([',', '}']).expect("its end");
    value[..end].trim_matches('"')
}
