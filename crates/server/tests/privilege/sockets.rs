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

/// O3, O4, O8: the parent binds the socket and removes its file, at a stop and at a reload.
#[test]
fn the_file_of_a_socket_in_a_folder_of_root_goes_and_comes_back() {
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
        assert!(!server.tree().exists("run/socket"));
        server.start_again(BINARY);
    }
    assert!(ask(&server).ends_with("hello"));
    server.rewrite_config(&config(""));
    server.signal(Signal::HUP);
    eventually("no file", LONG, || !server.tree().exists("run/socket"));
    server.rewrite_config(&with_socket);
    server.signal(Signal::HUP);
    eventually("the file", LONG, || server.log("error.log").matches(" reloaded").count() == 2);
    assert!(ask(&server).ends_with("hello"));
    // A bad reload takes nothing away.
    server.rewrite_config(&with_socket.replace("listen unix", "no_such_directive; listen unix"));
    server.signal(Signal::HUP);
    eventually("the result", LONG, || server.log("error.log").contains("reload failed"));
    assert!(ask(&server).ends_with("hello"));
}
