//! Recipes of `docs/stream.md`, with real programs on both sides.

use std::process::{Child, Command, Stdio};

use sekisho_testkit::{Server, Tree, eventually, have, run};

use crate::common::{BINARY, LONG};
use crate::stream;

#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[&str]) -> Running {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started");
    Running(child)
}

/// A web server behind us, by TCP and told of its clients by the PROXY protocol; curl in front.
#[test]
fn nginx_is_told_who_its_clients_are() {
    if !have("nginx") || !have("curl") {
        return;
    }
    let tree = Tree::new();
    let dir = tree.dir().display().to_string();
    tree.folder("temp");
    tree.file(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log; events {{ }}
             http {{ access_log off; client_body_temp_path {dir}/temp/a; proxy_temp_path {dir}/temp/b;
               fastcgi_temp_path {dir}/temp/c; uwsgi_temp_path {dir}/temp/d; scgi_temp_path {dir}/temp/e;
               server {{ listen unix:{dir}/nginx.sock proxy_protocol;
                 location / {{ return 200 \"$proxy_protocol_addr $host\"; }} }} }}"
        ),
    );
    let (config, socket) = (tree.path("nginx.conf"), tree.path("nginx.sock"));
    let _nginx = start("nginx", &["-c", config.to_str().expect("text")]);
    eventually("nginx", LONG, || socket.exists());
    let server = Server::start_in(
        tree,
        BINARY,
        &stream(&format!(
            "server {{ listen 127.0.0.1:{{port}}; proxy_pass unix:{dir}/nginx.sock; proxy_protocol on; }}"
        )),
    );
    let done = run("curl", &["-s", &server.url("/"), "--interface", "127.0.0.5"], LONG);
    assert_eq!(done.stdout, "127.0.0.5 127.0.0.1", "{}", server.log("error.log"));
}
