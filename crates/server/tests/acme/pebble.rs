//! A real authority for a test: Debian's `pebble` and the DNS server that comes with it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Signal, Tree, eventually, free_port};

use crate::common::LONG;

/// Whether there is one here; where not, the test says so and is over.
pub(crate) fn is_there() -> bool {
    let there = |name: &str, argument: &str| {
        let mut command = Command::new(name);
        command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let all = there("pebble", "-h")
        && there("pebble-challtestsrv", "-h")
        && there("openssl", "version")
        && there("curl", "-V");
    if !all {
        println!("skipped: there is no pebble, openssl or curl");
    }
    all
}

/// A running authority. It is killed and waited for, by its id, when dropped.
pub(crate) struct Pebble {
    authority: Option<Child>,
    names: Child,
    port: u16,
    names_port: u16,
    environment: Vec<(&'static str, String)>,
}

impl Pebble {
    /// Prepares one in a folder that checks names at these ports; `more` is put into its configuration.
    pub(crate) fn new(tree: &Tree, http_port: u16, tls_port: u16, more: &str) -> Self {
        let (port, management, names_port) = (free_port(), free_port(), free_port());
        openssl(tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key"]);
        let own = ["req", "-x509", "-new", "-key", "ca.key", "-out", "ca.pem", "-days", "30"];
        openssl(tree, &[&own[..], &["-subj", "/CN=Pebble's own"]].concat());
        openssl(tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "p.key"]);
        openssl(tree, &["req", "-new", "-key", "p.key", "-out", "p.csr", "-subj", "/CN=pebble"]);
        tree.file("p.cnf", "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
        let sign = ["x509", "-req", "-in", "p.csr", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let into = ["-CAcreateserial", "-out", "p.pem", "-days", "30", "-extfile", "p.cnf"];
        openssl(tree, &[&sign[..], &into].concat());
        let dir = tree.dir().display();
        let config = format!(
            r#"{{"pebble": {{"listenAddress": "127.0.0.1:{port}",
                "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "{dir}/p.pem", "privateKey": "{dir}/p.key",
                "httpPort": {http_port}, "tlsPort": {tls_port}, "ocspResponderURL": ""{more}}}}}"#
        );
        tree.file("pebble.json", config);
        let names = Command::new("pebble-challtestsrv")
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""])
            .arg("-dns01")
            .arg(format!("127.0.0.1:{names_port}"))
            .arg("-management")
            .arg(format!("127.0.0.1:{}", free_port()))
            .stdin(Stdio::null())
            .stdout(File::create(tree.path("names.log")).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the DNS server runs");
        Self { authority: None, names, port, names_port, environment: Vec::new() }
    }

    /// The same with a wish for it, such as how many nonces it rejects.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Starts it, or starts it again without memory of what was.
    pub(crate) fn start(&mut self, tree: &Tree) {
        self.stop();
        let log = File::create(tree.path("pebble.log")).expect("a file");
        let child = Command::new("pebble")
            .arg("-config")
            .arg(tree.path("pebble.json"))
            .arg("-dnsserver")
            .arg(format!("127.0.0.1:{}", self.names_port))
            .env("PEBBLE_VA_NOSLEEP", "1")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("pebble runs");
        self.authority = Some(child);
        let at = (Ipv4Addr::LOCALHOST, self.port);
        eventually("the authority listens", LONG, || std::net::TcpStream::connect(at).is_ok());
    }

    /// The authority is gone.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.authority.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// It hears nothing until it is continued.
    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.authority.as_ref().expect("it runs");
        let id = Pid::from_child(child);
        kill_process(id, signal).expect("a signal");
    }

    /// Where its directory is.
    pub(crate) fn uri(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// `acme_issuer` for it; `more` stands within.
    pub(crate) fn issuer(&self, more: &str) -> String {
        format!(
            "acme_issuer test {{ uri {}; ssl_trusted_certificate {{dir}}/ca.pem;
             contact mailto:admin@example.org; accept_terms_of_service; state_path {{dir}}/state; {more} }}",
            self.uri()
        )
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        self.names.kill().ok();
        self.names.wait().ok();
    }
}

fn openssl(tree: &Tree, arguments: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(tree.dir()).stdin(Stdio::null());
    let output = command.output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
