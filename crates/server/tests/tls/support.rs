//! Certificates made for a test, and a client that tells every way in which a connection may end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};
use sekisho_handler::upstream::AnyCertificate;
use sekisho_testkit::{Server, Tree};

use crate::common::{BINARY, LONG, http};

/// Whether certificates can be made here; where not, the test says so and is over.
pub(crate) fn can_make_certificates() -> bool {
    let is_there = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        println!("skipped: there is no openssl");
    }
    is_there
}

pub(crate) fn openssl(tree: &Tree, arguments: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(tree.dir()).stdin(Stdio::null());
    let output = command.output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `NAME.pem` and `NAME.key`, signed by themselves.
pub(crate) fn certificate(tree: &Tree, name: &str, days: &str) {
    let key = format!("{name}.key");
    openssl(tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
    let (file, subject) = (format!("{name}.pem"), format!("/CN={name}"));
    let names = format!("subjectAltName=DNS:{name}");
    let own = ["-out", &file, "-days", days, "-subj", &subject, "-addext", &names];
    openssl(tree, &[&["req", "-x509", "-new", "-key", &key][..], &own].concat());
}

/// `NAME.pem` and `NAME.key`, signed by `AUTHORITY.pem`.
pub(crate) fn signed(tree: &Tree, name: &str, authority: &str) {
    let (key, request, file) =
        (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
    let (ca, ca_key) = (format!("{authority}.pem"), format!("{authority}.key"));
    openssl(tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
    let subject = format!("/CN={name}/O=Test");
    openssl(tree, &["req", "-new", "-key", &key, "-out", &request, "-subj", &subject]);
    // Without version 3 no library takes it for a certificate of a client.
    tree.file("ext.cnf", "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n");
    let from = ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"];
    let into = ["-out", &file, "-days", "30", "-extfile", "ext.cnf"];
    openssl(tree, &[&from[..], &into].concat());
}

/// A server with a certificate for `a.test`; `body` is put into its block.
pub(crate) fn serve(tree: Tree, body: &str) -> Server {
    if !tree.path("a.test.pem").exists() {
        certificate(&tree, "a.test", "30");
    }
    Server::start_in(tree, BINARY, &site(body))
}

/// Its configuration.
pub(crate) fn site(body: &str) -> String {
    http(&format!(
        "server {{ listen 127.0.0.1:{{port}} ssl; http2 on; server_name a.test; root {{root}};\n\
         ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;\n{body}\n}}"
    ))
}

/// How a client speaks.
#[derive(Clone)]
pub(crate) struct Speech {
    pub(crate) config: ClientConfig,
}

impl Speech {
    pub(crate) fn new(versions: &[&'static SupportedProtocolVersion]) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new()))
            .with_no_client_auth();
        Self { config }
    }

    pub(crate) fn alpn(mut self, protocols: &[&str]) -> Self {
        self.config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        self
    }

    /// The same with a certificate of its own.
    pub(crate) fn shows(tree: &Tree, name: &str) -> Self {
        let file = |end: &str| -> PathBuf { tree.path(&format!("{name}.{end}")) };
        let chain = CertificateDer::pem_file_iter(file("pem")).expect("a file");
        let chain: Vec<_> = chain.map(|it| it.expect("a certificate")).collect();
        let key = PrivateKeyDer::from_pem_file(file("key")).expect("a key");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new()))
            .with_client_auth_cert(chain, key)
            .expect("a pair");
        Self { config }
    }

    /// Connects and asks for a name; an error where the handshake fails.
    pub(crate) fn connect(&self, to: SocketAddr, name: &str) -> io::Result<Tls> {
        self.connect_behind(b"", to, name)
    }

    /// The same, with bytes in the clear before the handshake.
    pub(crate) fn connect_behind(
        &self,
        first: &[u8],
        to: SocketAddr,
        name: &str,
    ) -> io::Result<Tls> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let keys = ClientConnection::new(Arc::new(self.config.clone()), name).expect("a client");
        let mut socket = TcpStream::connect(to)?;
        socket.write_all(first)?;
        socket.set_read_timeout(Some(LONG))?;
        socket.set_write_timeout(Some(LONG))?;
        let mut stream = StreamOwned::new(keys, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Tls { stream })
    }
}

impl Default for Speech {
    fn default() -> Self {
        Self::new(rustls::ALL_VERSIONS)
    }
}

/// A connected client.
pub(crate) struct Tls {
    pub(crate) stream: StreamOwned<ClientConnection, TcpStream>,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TlsEnd {
    /// With a `close_notify`.
    Complete,
    /// Without.
    Cut,
}

impl Tls {
    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("sent");
        self.stream.flush().expect("sent");
    }

    /// A response with a `Content-Length`: its head and its body.
    pub(crate) fn response(&mut self) -> (String, Vec<u8>) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            let count = self.stream.read(&mut byte).expect("a head");
            assert_eq!(count, 1, "the end after {:?}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
        });
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body).expect("a body");
        (head, body)
    }

    /// `GET`, and the answer as text: status line and body.
    pub(crate) fn get(&mut self, target: &str, host: &str) -> (String, String) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let (head, body) = self.response();
        let line = head.lines().next().unwrap_or_default().to_owned();
        (line, String::from_utf8_lossy(&body).into_owned())
    }

    /// Everything up to the end, and how that came.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, TlsEnd) {
        let mut all = Vec::new();
        let mut room = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return (all, TlsEnd::Complete),
                Ok(count) => all.extend_from_slice(&room[..count]),
                Err(error) => {
                    let kind = error.kind();
                    let is_cut =
                        matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
                    assert!(is_cut, "{error}");
                    return (all, TlsEnd::Cut);
                }
            }
        }
    }

    /// The certificate that was shown.
    pub(crate) fn shown(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().expect("one")[0].to_vec()
    }
}

/// The first certificate of a file.
pub(crate) fn der(tree: &Tree, name: &str) -> Vec<u8> {
    let path = tree.path(&format!("{name}.pem"));
    CertificateDer::from_pem_file(path).expect("a certificate").to_vec()
}
