//! What programs may use (V40), and what they can become.

use sekisho_testkit::{Server, have};

use crate::common::{BINARY, LONG, serve, site};
use crate::{is_root, open_tree};

fn script(text: &str) -> String {
    format!("#!/bin/sh\n{text}\n")
}

/// C13, V40: a program that exceeds a limit is killed, and the client gets one answer; the others go on.
#[test]
fn a_program_that_takes_too_much_is_ended_and_its_client_is_told() {
    let tree = open_tree();
    let print = "printf 'Content-Type: text/plain\\n\\n'";
    tree.script("root/cpu.cgi", &script("while :; do :; done"));
    let file = "exec 2>/dev/null; head -c 3000000 /dev/zero >big";
    tree.script("root/file.cgi", &script(&format!("{file} || exit $?\n{print}; echo fine")));
    let fork = "ulimit -n; ulimit -f; ulimit -t; ulimit -v; ulimit -c";
    tree.script("root/all.cgi", &script(&format!("{print}; {fork}")));
    tree.file(
        "root/memory.py",
        "x = bytearray(1 << 30)\nprint('Content-Type: text/plain\\n\\nfine')\n",
    );
    let server = serve(
        tree,
        "cgi_extension .cgi; cgi_extension .py /usr/bin/python3;\n\
         cgi_read_timeout 90s; cgi_limits cpu=1s file=1m memory=512m files=64;",
    );
    let mut client = server.connect().with_patience(LONG * 5);
    assert_eq!(client.get("/cpu.cgi").status, 502, "{}", server.log("error.log"));
    assert_eq!(client.get("/file.cgi").status, 502, "the connection was kept");
    assert!(server.tree().read("root/big").len() <= 1 << 20);
    if have("python3") {
        assert_eq!(client.get("/memory.py").status, 502);
    }
    // The shell says by its status what its program was killed by.
    let log = server.log("error.log");
    assert!(log.contains("SIGXCPU: too long on a processor, see cgi_limits cpu"), "{log}");
    assert!(log.contains("SIGXFSZ: too large a file, see cgi_limits file"), "{log}");
    let limits = client.get("/all.cgi").text();
    assert_eq!(limits, "64\n2048\n1\n524288\n0\n", "and one that keeps to them is served");
}

/// O12, V45: what a setuid file would give, and where that is needed after all.
#[test]
fn programs_cannot_become_more_than_they_are() {
    for (directive, expected) in [("", "1"), ("no_new_privs off;", "0")] {
        let tree = open_tree();
        let print = "printf 'Content-Type: text/plain\\n\\n'; ";
        let text = format!("{print} sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/self/status");
        tree.script("root/x.cgi", &script(&text));
        let config = format!("{directive}\n{}", site("cgi_extension .cgi;"));
        let server = Server::start_in(tree, BINARY, &config);
        assert_eq!(server.connect().get("/x.cgi").text().trim(), expected, "{directive}");
    }
}

/// O12, V45: programs run as the user that the server has changed to, without any capability.
#[test]
fn programs_are_who_the_server_is() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    let print = "printf 'Content-Type: text/plain\\n\\n'; ";
    let text = format!(
        "{print} id -u; id -G; sed -n 's/^Cap\\(Eff\\|Bnd\\):[[:space:]]*//p' /proc/self/status"
    );
    tree.script("root/x.cgi", &script(&text));
    let server = Server::start_in(tree, BINARY, &format!("user nobody;\n{}", site("cgi on;")));
    let answer = server.connect().get("/x.cgi").text();
    assert_eq!(answer, "65534\n65534\n0000000000000000\n0000000000000000\n");
}
