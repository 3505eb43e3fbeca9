//! The contract over sockets: TCP, Unix, TLS. The peer is a thread of its own with a blocking stream.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sekisho_config::{Options, load};
use sekisho_handler::upstream::AnyCertificate;
use sekisho_log::Logs;
use sekisho_route::Machine;

use super::{Pair, check};
use crate::session::Token;
use crate::site::Site;
use crate::tls::Chooser;
use crate::transport::{Ready, Socket, TlsStream, Transport};

/// Nothing takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the peer is to do.
enum Order {
    Send(Vec<u8>),
    Read,
    End,
    Reset,
}

/// A peer's stream.
trait Peer: Read + Write + Send {
    /// Ends its side.
    fn end(&mut self) -> io::Result<()>;
    /// Makes its close a reset.
    fn make_reset(&mut self) {}
}

impl Peer for TcpStream {
    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn make_reset(&mut self) {
        let zero = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&*self, zero).expect("an option");
    }
}

impl Peer for UnixStream {
    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Peer for StreamOwned<ClientConnection, TcpStream> {
    fn end(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()?;
        self.sock.shutdown(Shutdown::Write)
    }

    fn make_reset(&mut self) {
        self.sock.make_reset();
    }
}

struct Sockets {
    transport: Option<Box<dyn Transport>>,
    epoll: OwnedFd,
    orders: Sender<Order>,
    replies: Receiver<io::Result<Vec<u8>>>,
    can_reset: bool,
    lag_bytes: usize,
}

impl Sockets {
    fn new(mut transport: Box<dyn Transport>, peer: Box<dyn Peer>, can_reset: bool) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll");
        let token = Token::from_bits(7);
        transport.watch(epoll.as_fd(), token.bits()).expect("it is watched");
        transport.watch(epoll.as_fd(), token.bits()).expect("a second time does nothing");
        let (orders, inbox) = channel();
        let (outbox, replies) = channel();
        std::thread::spawn(move || serve(peer, &inbox, &outbox));
        Self { transport: Some(transport), epoll, orders, replies, can_reset, lag_bytes: 0 }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the peer is there");
    }
}

fn serve(mut peer: Box<dyn Peer>, orders: &Receiver<Order>, replies: &Sender<io::Result<Vec<u8>>>) {
    let mut into = vec![0; 1 << 16];
    for order in orders {
        match order {
            Order::Send(bytes) => {
                let _ = peer.write_all(&bytes).and_then(|()| peer.flush());
            }
            Order::Read => {
                let read = peer.read(&mut into).map(|count| into[..count].to_vec());
                let _ = replies.send(read);
            }
            Order::End => drop(peer.end()),
            Order::Reset => return peer.make_reset(),
        }
    }
}

impl Pair for Sockets {
    fn transport(&mut self) -> &mut dyn Transport {
        &mut **self.transport.as_mut().expect("it is open")
    }

    fn peer_sends(&mut self, bytes: &[u8]) {
        self.order(Order::Send(bytes.to_vec()));
    }

    fn peer_reads(&mut self) -> io::Result<Vec<u8>> {
        self.order(Order::Read);
        self.replies.recv_timeout(PATIENCE).expect("a reply")
    }

    fn peer_ends(&mut self) {
        self.order(Order::End);
    }

    fn peer_resets(&mut self) -> bool {
        if self.can_reset {
            self.order(Order::Reset);
        }
        self.can_reset
    }

    fn wait(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(4);
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))
            .expect("it can be waited for");
        assert!(!events.is_empty(), "nothing changes");
        for event in events {
            assert_eq!(event.data.u64(), 7, "the token");
            self.transport().note(Ready::from_kernel(event.flags));
        }
    }

    fn close(&mut self) {
        self.transport = None;
    }

    fn can_reset(&self) -> bool {
        self.can_reset
    }

    fn lag_bytes(&self) -> usize {
        self.lag_bytes
    }
}

fn tcp_pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    let (ours, _) = listener.accept().expect("a connection");
    ours.set_nonblocking(true).expect("an option");
    (Socket::new(ours.into(), true), peer)
}

#[test]
fn a_tcp_socket_keeps_the_contract() {
    check(|| {
        let (ours, peer) = tcp_pair();
        Box::new(Sockets::new(Box::new(ours), Box::new(peer), true))
    });
}

#[test]
fn a_unix_socket_keeps_the_contract() {
    check(|| {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("an option");
        let ours = Socket::new(ours.into(), false);
        // There is no reset between Unix sockets.
        Box::new(Sockets::new(Box::new(ours), Box::new(peer), false))
    });
}

#[test]
fn a_tls_stream_keeps_the_contract() {
    let Some(site) = tls_site() else {
        println!("skipped: there is no openssl");
        return;
    };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate::new()))
        .with_no_client_auth();
    let config = Arc::new(config);
    check(|| {
        let (ours, peer) = tcp_pair();
        let chooser = Chooser { site: Arc::clone(&site), listen: 0 };
        let name = ServerName::try_from("a.test").expect("a name");
        let keys = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let peer = StreamOwned::new(keys, peer);
        let ours = Box::new(TlsStream::new(ours, chooser));
        // What is encrypted in one go.
        let pair = Sockets { lag_bytes: 128 << 10, ..Sockets::new(ours, Box::new(peer), true) };
        Box::new(pair)
    });
}

/// A site with a certificate of its own; `None` where none can be made.
fn tls_site() -> Option<Arc<Site>> {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("sekisho-contract-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (key, certificate) = (folder.join("a.key"), folder.join("a.pem"));
    let made = Program::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "30", "-subj", "/CN=a.test", "-addext", "subjectAltName=DNS:a.test"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_made = made.is_ok_and(|status| status.success());
    let text = format!(
        "error_log stderr emerg; events {{}} http {{ access_log off; server {{ listen 127.0.0.1:443 ssl; \
         ssl_certificate {}; ssl_certificate_key {}; return 200; }} }}",
        certificate.display(),
        key.display()
    );
    let site = is_made.then(|| {
        let files = sekisho_config::Memory::of("/c", text);
        let outcome = load("/c".as_ref(), &Options::new("/"), &files);
        let config = Arc::new(outcome.config.expect("a configuration"));
        let (zones, groups) = (crate::Zones::default(), crate::Groups::default());
        let site = Site::new(config, &Logs::new(), &zones, &groups, Machine::default());
        Arc::new(site.expect("a site"))
    });
    std::fs::remove_dir_all(&folder).expect("a folder");
    site
}
