//! TLS: ended here, begun here, or only looked at on its way (`ssl_preread`).

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use sekisho_testkit::{Server, Tree, have, run};

use crate::common::{BINARY, LONG};
use crate::{Backend, stream};

/// A tree with a certificate for these names.
pub(crate) fn certified(names: &[&str]) -> Tree {
    let tree = Tree::new();
    for name in names {
        let (key, crt) = (tree.path(&format!("{name}.key")), tree.path(&format!("{name}.crt")));
        let subject = format!("/CN={name}");
        let extension = format!("subjectAltName=DNS:{name}");
        let arguments = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            &subject,
            "-addext",
            &extension,
            "-days",
            "2",
            "-keyout",
            key.to_str().expect("text"),
            "-out",
            crt.to_str().expect("text"),
        ];
        assert_eq!(run("openssl", &arguments, LONG).code(), 0);
    }
    tree
}

/// What a TLS client of OpenSSL reads that asks for this name and says this.
fn ask(port: u16, name: &str, said: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl can be started");
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(said.as_bytes()).expect("it reads");
    let mut text = String::new();
    let mut output = child.stdout.take().expect("it was asked for");
    output.read_to_string(&mut text).expect("text");
    drop(input);
    child.wait().expect("it ends");
    text
}

/// A server that says who it is, and what it was told.
fn named(name: &'static str) -> Backend {
    Backend::start(move |mut stream| {
        let mut said = [0; 5];
        let _ = stream.read_exact(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let _ = stream.write_all(format!("{name} {said}\n").as_bytes());
    })
}

#[test]
fn tls_is_ended_begun_and_chosen_by_name() {
    if !have("openssl") {
        return;
    }
    let tree = certified(&["one.test", "two.test"]);
    let (plain, other) = (named("plain"), named("other"));
    // The second server takes TLS off again that the first has put on; the third only looks at the name.
    let config = stream(&format!(
        "map $ssl_preread_server_name $to {{ one.test 127.0.0.1:{{port}}; two.test 127.0.0.1:{{port2}}; }}
         server {{ listen 127.0.0.1:{{port}} ssl; ssl_certificate {{dir}}/one.test.crt;
           ssl_certificate_key {{dir}}/one.test.key; proxy_pass {plain}; }}
         server {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/two.test.crt;
           ssl_certificate_key {{dir}}/two.test.key; proxy_pass {other}; }}
         server {{ listen 127.0.0.1:{{port3}}; ssl_preread on; proxy_pass $to; }}
         server {{ listen 127.0.0.1:{{port4}}; proxy_pass 127.0.0.1:{{port}}; proxy_ssl on;
           proxy_ssl_name one.test; proxy_ssl_server_name on; proxy_ssl_verify on;
           proxy_ssl_trusted_certificate {{dir}}/one.test.crt; }}",
        plain = plain.address,
        other = other.address
    ));
    let server = Server::start_in(tree, BINARY, &config);
    let port = |at| server.address_of(at).port();
    assert_eq!(ask(port(0), "one.test", "hello"), "plain hello\n", "{}", server.log("error.log"));
    assert_eq!(ask(port(2), "one.test", "first"), "plain first\n", "{}", server.log("error.log"));
    assert_eq!(ask(port(2), "two.test", "other"), "other other\n");
    let mut client = sekisho_testkit::Client::connect(server.address_of(3));
    client.send("clear");
    assert_eq!(client.read_to_close(), b"plain clear\n", "{}", server.log("error.log"));
}

/// Two servers at one address, told apart by the name in the handshake.
#[test]
fn servers_have_names() {
    if !have("openssl") {
        return;
    }
    let tree = certified(&["one.test", "two.test"]);
    let config = stream(
        "server { listen 127.0.0.1:{port} ssl; server_name one.test; ssl_certificate {dir}/one.test.crt;
           ssl_certificate_key {dir}/one.test.key; return \"first $ssl_server_name\"; }
         server { listen 127.0.0.1:{port} ssl; server_name ~^(?<which>t..)\\.test$; ssl_certificate {dir}/two.test.crt;
           ssl_certificate_key {dir}/two.test.key; return \"second $which\"; }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let port = server.address().port();
    assert_eq!(ask(port, "one.test", ""), "first one.test", "{}", server.log("error.log"));
    assert_eq!(ask(port, "two.test", ""), "second two");
    assert_eq!(ask(port, "none.test", ""), "first none.test");
}

#[test]
fn clients_choose_from_the_protocols_that_are_named() {
    if !have("openssl") {
        return;
    }
    let config = stream(
        "server { listen 127.0.0.1:{port} ssl; ssl_certificate {dir}/one.test.crt;
             ssl_certificate_key {dir}/one.test.key; ssl_alpn imap pop3; return $ssl_alpn_protocol; }",
    );
    let server = Server::start_in(certified(&["one.test"]), BINARY, &config);
    let chosen = |offered: &str| {
        let to = server.address().to_string();
        let arguments = ["s_client", "-quiet", "-connect", &to, "-alpn", offered];
        run("openssl", &arguments, LONG).stdout
    };
    assert_eq!(chosen("pop3,imap"), "imap", "the server's order counts");
    assert_eq!(chosen("smtp,pop3"), "pop3");
    assert_eq!(chosen("smtp"), "", "refused");
}
