//! Files of Unix sockets in a folder that the server's user may not write to.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use sekisho_testkit::{Server, Signal, eventually};

use crate::common::{BINARY, LONG, site};
use crate::{is_root, open_tree};

fn ask(server: &Server) -> String {
    let path = server.tree().path("run/socket");
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    stream.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// O3, O4, V45: no error says that another program has it, as none has.
#[test]
fn the_file_of_a_socket_that_cannot_be_removed_is_told_of_and_replaced_by_a_start() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    tree.folder("run");
    tree.mode("run", 0o755);
    let config = |body: &str| format!("user nobody;\n{}", site(body));
    let with_socket = config("listen unix:{dir}/run/socket;");
    let mut server = Server::start_in(tree, BINARY, &with_socket);
    for signal in [Signal::QUIT, Signal::TERM] {
        assert!(ask(&server).ends_with("hello"));
        server.signal(signal);
        server.wait_exit(LONG);
        assert!(server.tree().exists("run/socket"));
        let log = server.log("error.log");
        assert!(log.contains("run/socket cannot be removed for user \"nobody\""), "{log}");
        server.start_again(BINARY);
    }
    assert!(ask(&server).ends_with("hello"));
    // A reload cannot do what a start can, and says why.
    server.rewrite_config(&config(""));
    server.signal(Signal::HUP);
    eventually("the reload", LONG, || server.log("error.log").contains(" reloaded"));
    server.rewrite_config(&with_socket);
    server.signal(Signal::HUP);
    eventually("the result", LONG, || server.log("error.log").contains("reload failed"));
    let log = server.log("error.log");
    assert!(log.contains("left over from a server that is gone"), "{log}");
    assert!(!log.contains("in use by another program"), "{log}");
}
