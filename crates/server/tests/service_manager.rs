//! A service manager and the server: the messages over `NOTIFY_SOCKET`, and the sockets that the manager
//! opens.
#![forbid(unsafe_code)]

mod background_load;
mod common;

use std::fs::File;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use background_load::{ByPidFile, is_over, send};
use common::{BINARY, LONG, http, own_address};
use sekisho_testkit::process::worker_of;
use sekisho_testkit::{Client, Signal, Tree, as_root, eventually, have};

/// A server that was started by a service manager.
struct Service {
    child: Child,
    current: ByPidFile,
    tree: Tree,
    address: SocketAddr,
}

impl Service {
    fn start(main: &str, tree: Tree, program: &[&str], notify: &str) -> Self {
        let address = own_address(18_080);
        let dir = tree.dir().display().to_string();
        let config = http("server { listen 127.0.0.1:{port}; location / { return 200 $pid; } }");
        let config =
            config.replace("127.0.0.1:{port}", &address.to_string()).replace("{dir}", &dir);
        let text = format!("{main}pid {dir}/server.pid;\n{config}");
        let path = tree.file("x.conf", &text);
        let [first, rest @ ..] = program else { panic!("no program") };
        let replaced: Vec<String> =
            rest.iter().map(|word| word.replace("{address}", &address.to_string())).collect();
        let output = |name: &str| File::create(tree.path(name)).expect("a file can be made");
        let child = Command::new(first)
            .args(replaced)
            .arg("-c")
            .arg(path)
            .args(as_root(&text, &[]))
            .env("NOTIFY_SOCKET", notify)
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("the program can be started");
        let current = ByPidFile::new(tree.path("server.pid"));
        Self { child, current, tree, address }
    }

    #[track_caller]
    fn wait(&mut self) -> Option<i32> {
        eventually("the end", LONG, || is_over(self.child.id()));
        self.child.wait().expect("a child of ours").code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both can only fail for a child that is gone, and that is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The next message.
#[track_caller]
fn next(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let count = manager.recv(&mut buffer).expect("a message in time");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

/// The next message has all of these lines, or lines that begin so.
#[track_caller]
fn expect(manager: &UnixDatagram, lines: &[&str]) -> String {
    let message = next(manager);
    for line in lines {
        assert!(message.lines().any(|it| it.starts_with(line)), "no {line:?} in {message:?}");
    }
    message
}

#[test]
fn a_service_manager_is_told_how_the_server_is() {
    // O3, O4
    let tree = Tree::new();
    let name = format!("sekisho-test/{}", std::process::id());
    let path = tree.path("notify");
    let by_path = UnixDatagram::bind(&path).expect("bound");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let by_name = UnixDatagram::bind_addr(&address).expect("bound");
    let path = path.display().to_string();
    for (manager, place) in [(by_path, path), (by_name, format!("@{name}"))] {
        manager.set_read_timeout(Some(LONG)).expect("a socket takes its options");
        let is_named = place.starts_with('@');
        // With a parent and without.
        let main = if is_named { "master_process on;\n" } else { "" };
        let mut service = Service::start(main, Tree::new(), &[BINARY], &place);
        expect(&manager, &["READY=1", "STATUS=serving on 1 addresses with 1 workers"]);
        assert_eq!(Client::connect(service.address).get("/").status, 200, "it does");
        service.current.signal(Signal::HUP);
        let reloading = expect(&manager, &["RELOADING=1", "MONOTONIC_USEC=", "STATUS="]);
        let usec = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(usec.expect("just seen").parse::<u64>().expect("a number") > 0);
        expect(&manager, &["READY=1", "STATUS=serving"]);
        service.tree.file("x.conf", "nonsense;");
        service.current.signal(Signal::HUP);
        expect(&manager, &["RELOADING=1"]);
        // It is ready all the same: it serves as before.
        let failed = expect(&manager, &["READY=1"]);
        assert!(failed.contains("failed"), "{failed}");
        service.current.signal(Signal::QUIT);
        expect(&manager, &["STOPPING=1", if is_named { "STATUS=" } else { "STATUS=draining" }]);
        assert_eq!(service.wait(), Some(0));
    }
}

#[test]
fn a_service_manager_is_told_who_takes_over() {
    // O4
    let tree = Tree::new();
    let path = tree.path("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    for main in ["", "master_process on;\n"] {
        let path = path.display().to_string();
        let mut service = Service::start(main, Tree::new(), &[BINARY], &path);
        expect(&manager, &["READY=1"]);
        let new = service.current.upgrade();
        let messages = [next(&manager), next(&manager)];
        let named = format!("MAINPID={new}\n");
        assert!(messages.iter().any(|message| message.contains(&named)), "{messages:?}");
        assert!(messages.iter().all(|message| !message.contains("STOPPING")), "{messages:?}");
        assert_eq!(service.wait(), Some(0));
        send(new, Signal::QUIT);
        expect(&manager, &["STOPPING=1"]);
        eventually("its end", LONG, || is_over(new));
    }
}

#[test]
fn sockets_of_a_service_manager_are_used_where_a_listen_names_them() {
    // O4
    if !have("systemd-socket-activate") {
        return;
    }
    let other = own_address(18_081);
    let other = other.to_string();
    let program = ["systemd-socket-activate", "-l", "{address}", "-l", &*other, BINARY];
    for main in ["", "master_process on;\n"] {
        use_sockets(main, &program, &other);
    }
}

fn use_sockets(main: &str, program: &[&str], other: &str) {
    let mut service = Service::start(main, Tree::new(), program, "");
    // It is started by the first connection, which waits for it.
    eventually("the manager listens", LONG, || {
        service.tree.text("stderr").matches("Listening on").count() == 2
    });
    let mut first = Client::connect(service.address);
    assert_eq!(first.get("/").text(), worker_of(service.child.id()).to_string());
    assert_eq!(Client::connect(service.address).get("/").status, 200);
    let log = service.tree.path("error.log");
    let complaint = format!("listens on {other}, which no \"listen\" names");
    eventually("its complaint", LONG, || {
        let stderr = service.tree.path("stderr");
        background_load::lines_with(if main.is_empty() { &log } else { &stderr }, &complaint) == 1
    });
    // The sockets go from hand to hand.
    let new = service.current.upgrade();
    assert_eq!(Client::connect(service.address).get("/").text(), worker_of(new).to_string());
    assert_eq!(service.wait(), Some(0));
    send(new, Signal::QUIT);
    eventually("its end", LONG, || is_over(new));
}
