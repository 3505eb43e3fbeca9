//! Bind, accept, connection limits.

pub(crate) mod udp;

use std::cell::{OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use sekisho_config::{Listen, ListenAddress, ListenOptions};
use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::connection::Connection;
use crate::handshake;
use crate::panic_report::Vital;
use crate::protocol::ProtocolKind;
use crate::quic;
use crate::stream_session::StreamSession;
use crate::tls::Chooser;
use crate::transport::{Socket as ClientSocket, Stream, TlsStream};
use crate::worker::{ListenerContext, Worker};
use sekisho_openings::socket_file;

/// How long accepting rests when descriptors are short and no session ends meanwhile (O5).
const PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: u32 = 4096;
/// How many bytes may wait in a socket before more are put into it.
const UNSENT_BYTES: u32 = 128 * 1024;
/// A connection is accepted when its first bytes are there, which spares a wake-up and half of its cost; one
/// that stays silent so long is accepted without them.
const DEFER_SECS: u16 = 1;
/// How long the last connections of a listener that closes may take to come in: all of them, and those that are
/// silent. A deferred one can be accepted when the kernel asks its client again. Between the last two looks
/// there is a pause for a connection that was just moving from the pending handshakes to the accept queue.
const LAST_HANDSHAKES: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_millis(2);
const LAST_SILENT: Duration = Duration::from_millis(1000 * DEFER_SECS as u64 + 500);

/// A listening socket as one worker gets it: its own descriptor of the shared socket.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: ListenAddress,
    /// Which socket it is, whatever the descriptor: the kernel's number for it.
    pub cookie: u64,
    /// The descriptor.
    pub socket: OwnedFd,
    is_narrow: Narrow,
    /// Which of the sockets of its address it is, and how many there are.
    position: (usize, usize),
}

/// Whether a socket takes only packets of handshakes that are under way. Connections accepted from it inherit
/// that, and it must be lifted for them.
type Narrow = Arc<AtomicBool>;

/// The process's listening sockets. They stay open over a reload, so that no connection that waits in
/// one is lost.
#[derive(Debug, Default)]
pub struct Sockets {
    open: Vec<Opened>,
    /// Why our parent could not bind an address; where there is a parent, nothing is bound here.
    unbound: Option<Vec<(ListenAddress, io::Error)>>,
}

/// An address, and the sockets that are open for it: one, or more with `reuseport`.
#[derive(Debug)]
struct Opened {
    address: ListenAddress,
    sockets: Vec<Socket>,
    holder: Holder,
    is_narrow: Narrow,
}

/// Which process holds a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// We alone: when we close it, it is gone.
    We,
    /// A service manager as well: it keeps the socket open without us, and hands it to the next server
    /// process. No change to it may outlive us.
    Manager,
    /// Our parent as well (`sekisho-parent`): it binds the socket and removes its file, we listen.
    Parent,
}

/// A socket that another process has opened.
#[derive(Debug)]
pub struct Inherited {
    /// Where it listens.
    pub address: ListenAddress,
    /// The descriptor.
    pub socket: OwnedFd,
    /// Which process holds it.
    pub holder: Holder,
}

/// An address that could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// Which.
    pub address: ListenAddress,
    /// Why.
    pub error: io::Error,
}

impl BindError {
    /// Whether another process has the address.
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_tcp = matches!(self.address, ListenAddress::Tcp(_));
        let why = match self.error.kind() {
            io::ErrorKind::AddrInUse => "the address is in use by another program".to_owned(),
            io::ErrorKind::PermissionDenied if is_tcp => {
                "no permission (ports below 1024 need root or CAP_NET_BIND_SERVICE)".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
            _ => self.error.to_string(),
        };
        write!(f, "cannot listen on {}: {why}", Shown(&self.address))
    }
}

impl std::error::Error for BindError {}

/// An address as a person reads it.
pub struct Shown<'a>(pub &'a ListenAddress);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

impl Sockets {
    /// Sockets that came from outside.
    pub fn inherit(inherited: Vec<Inherited>) -> io::Result<Self> {
        let mut all = Self::default();
        for Inherited { address, socket, holder } in inherited {
            let socket = Socket::from(socket);
            socket.set_nonblocking(true)?;
            if matches!(address, ListenAddress::Tcp(_)) {
                set_for_connections(&socket)?;
            }
            match all.open.iter_mut().find(|opened| opened.address == address) {
                Some(opened) => opened.sockets.push(socket),
                None => all.open.push(Opened::new(address, vec![socket], holder)),
            }
        }
        Ok(all)
    }

    /// All sockets of both, and those that our parent has bound since, with the addresses that it could not bind.
    pub fn with_given(
        &self,
        other: &Self,
        given: Vec<Inherited>,
        failed: Vec<(ListenAddress, io::Error)>,
    ) -> io::Result<Self> {
        let mut all = Self::inherit(given)?;
        for known in self.open.iter().chain(&other.open) {
            let mut sockets = Vec::new();
            for socket in &known.sockets {
                sockets.push(socket.try_clone()?);
            }
            match all.open.iter_mut().find(|opened| opened.address == known.address) {
                // New sockets beside the old ones.
                Some(opened) => {
                    sockets.append(&mut opened.sockets);
                    opened.sockets = sockets;
                    opened.is_narrow = Arc::clone(&known.is_narrow);
                }
                None => all.open.push(Opened {
                    is_narrow: Arc::clone(&known.is_narrow),
                    ..Opened::new(known.address.clone(), sockets, known.holder)
                }),
            }
        }
        all.unbound = Some(failed);
        Ok(all)
    }

    /// The sockets for these addresses: kept where they are open already, opened where not. On an error
    /// nothing has changed.
    ///
    /// A socket of `reuseport` is kept also when there are fewer workers than sockets: connections wait
    /// in it, and the kernel gives it more.
    pub fn reopen(&self, listens: &[Listen], workers: usize) -> Result<Self, BindError> {
        let mut next = Self { unbound: self.unbound.is_some().then(Vec::new), ..Self::default() };
        for listen in listens {
            let is_covered = |other: &Listen| covers(&other.address, &listen.address).is_some();
            if listens.iter().any(is_covered) {
                continue;
            }
            let known = self.find(&listen.address);
            let opened = match (&self.unbound, known) {
                (Some(failed), None) => Err(why_unbound(failed, &listen.address)),
                _ => open_all(known, listen, workers),
            };
            match opened {
                Ok(opened) => next.open.push(opened),
                Err(error) => {
                    next.remove_files_but(self);
                    return Err(BindError { address: listen.address.clone(), error });
                }
            }
        }
        Ok(next)
    }

    /// The sockets of the worker with this index, one of so many. Every socket is given to at least one
    /// worker.
    pub fn for_worker(&self, index: usize, workers: usize) -> io::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        for Opened { address, sockets, is_narrow, .. } in &self.open {
            let count = sockets.len();
            // Datagrams of one client must come to one worker: a socket for them is not shared.
            let is_shared = count < workers && !matches!(address, ListenAddress::Udp(_));
            let is_mine = |at: usize| if is_shared { index % count } else { index } == at % workers;
            for (at, socket) in sockets.iter().enumerate().filter(|(at, _)| is_mine(*at)) {
                listeners.push(Listener {
                    address: address.clone(),
                    cookie: socket.cookie()?,
                    socket: socket.try_clone()?.into(),
                    is_narrow: Arc::clone(is_narrow),
                    position: (at, count),
                });
            }
        }
        Ok(listeners)
    }

    /// A descriptor of every socket, for the process that takes over.
    pub fn hand_over(&self) -> io::Result<Vec<Inherited>> {
        let mut all = Vec::new();
        for Opened { address, sockets, holder, .. } in &self.open {
            for socket in sockets {
                let socket = socket.try_clone()?.into();
                all.push(Inherited { address: address.clone(), socket, holder: *holder });
            }
        }
        Ok(all)
    }

    /// The addresses, with the ports that were found for port 0.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        let found = |opened: &Opened| opened.sockets.first()?.local_addr().ok()?.as_socket();
        let address = |opened: &Opened| match (&opened.address, found(opened)) {
            (ListenAddress::Tcp(_), Some(at)) => ListenAddress::Tcp(at),
            (ListenAddress::Udp(_), Some(at)) => ListenAddress::Udp(at),
            (address, _) => address.clone(),
        };
        self.open.iter().map(address).collect()
    }

    /// Stops new connections at the addresses that `next` does not have, so that every connection in the
    /// accept queue can be served before the sockets close: closing a socket resets the connections in its
    /// queue. A SYN that comes meanwhile is dropped; when the client retries, it is refused.
    pub fn refuse_newcomers_but(&self, next: &Self) {
        for opened in self.open.iter().filter(|opened| next.find(&opened.address).is_none()) {
            match (&opened.address, opened.holder) {
                (ListenAddress::Tcp(_), Holder::We | Holder::Parent) => {
                    for socket in &opened.sockets {
                        // Some kernels want a right for it that we have given up.
                        if socket.attach_filter(&NO_SYN).is_err() {
                            opened.narrow(socket);
                        }
                    }
                }
                // Without its file the socket cannot be connected to.
                (ListenAddress::Unix(path), Holder::We) => {
                    // Someone else may have removed it; then it is gone, which was the aim.
                    let _ = std::fs::remove_file(path);
                }
                // Nobody waits in a socket for datagrams.
                (ListenAddress::Udp(_), _) | (_, Holder::Manager | Holder::Parent) => {}
            }
        }
    }

    /// Removes the files of Unix sockets that `next` does not have: the end of them, or of the process.
    pub fn remove_files_but(&self, next: &Self) {
        for opened in &self.open {
            if let (ListenAddress::Unix(path), Holder::We) = (&opened.address, opened.holder)
                && next.find(&opened.address).is_none()
            {
                // Someone else may have removed it; then it is gone, which was the aim.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// The files of Unix sockets that `next` does not have, and that are there still.
    pub fn files_left(&self, next: &Self) -> Vec<&Path> {
        let gone = self.open.iter().filter(|opened| next.find(&opened.address).is_none());
        let files = gone.filter_map(|opened| match (&opened.address, opened.holder) {
            (ListenAddress::Unix(path), Holder::We) => Some(path.as_path()),
            _ => None,
        });
        files.filter(|path| std::fs::symlink_metadata(path).is_ok()).collect()
    }

    /// The same for the files that none of these has.
    pub fn remove_files_but_all(&self, next: &[&Self]) {
        let mut kept = Self::default();
        for opened in next.iter().flat_map(|sockets| &sockets.open) {
            let (address, holder) = (opened.address.clone(), opened.holder);
            kept.open.push(Opened::new(address, Vec::new(), holder));
        }
        self.remove_files_but(&kept);
    }

    /// Whether there are sockets for this address.
    pub fn has(&self, address: &ListenAddress) -> bool {
        self.find(address).is_some()
    }

    fn find(&self, address: &ListenAddress) -> Option<&Opened> {
        self.open.iter().find(|opened| opened.address == *address)
    }
}

impl Opened {
    fn new(address: ListenAddress, sockets: Vec<Socket>, holder: Holder) -> Self {
        Self { address, sockets, holder, is_narrow: Narrow::default() }
    }

    /// Drops SYN packets without a filter: every packet must have a TTL of 255, and hardly any system sends
    /// that. A connection that is made now receives nothing until it is accepted and its own limit is lifted,
    /// so the filter is better.
    fn narrow(&self, socket: &Socket) {
        // First, so that no accepting worker can miss it.
        self.is_narrow.store(true, Ordering::SeqCst);
        // Without it a connection that is made in the last moment is reset: no worse than elsewhere.
        let _ = sekisho_sys::set_least_hops(socket, u8::MAX);
    }
}

/// A packet filter that drops what opens a TCP connection (SYN) and nothing else, so that handshakes that
/// are under way come to their end.
const NO_SYN: [SockFilter; 5] = [
    // The flags, and of them SYN.
    SockFilter::new(0x30, 0, 0, 13),
    SockFilter::new(0x54, 0, 0, 0x02),
    SockFilter::new(0x15, 0, 1, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
    SockFilter::new(0x06, 0, 0, 0),
];

/// A listening stream socket that another process has opened; `None` for any other descriptor.
pub fn address_of(socket: &OwnedFd) -> Option<ListenAddress> {
    let socket = SockRef::from(socket);
    let address = socket.local_addr().ok()?;
    if socket.r#type().ok()? == Type::DGRAM {
        return address
            .as_socket()
            .map(|at| ListenAddress::Udp(SocketAddr::new(at.ip(), at.port())));
    }
    if !socket.is_listener().ok()? {
        return None;
    }
    match (address.as_socket(), address.as_pathname()) {
        // Scope and flow are no part of what a configuration says.
        (Some(at), _) => Some(ListenAddress::Tcp(SocketAddr::new(at.ip(), at.port()))),
        (None, Some(path)) => Some(ListenAddress::Unix(path.to_owned())),
        (None, None) => None,
    }
}

fn open_all(known: Option<&Opened>, listen: &Listen, workers: usize) -> io::Result<Opened> {
    let kept = known.map_or(&[][..], |opened| &opened.sockets);
    let mut sockets = Vec::with_capacity(kept.len());
    let holder = known.map_or(Holder::We, |opened| opened.holder);
    for socket in kept {
        if holder != Holder::Manager {
            if listen.options.reuseport && !matches!(listen.address, ListenAddress::Unix(_)) {
                // Others may be bound beside it only if it says so itself.
                socket.set_reuse_port(true)?;
            }
            tune(socket, &listen.address, &listen.options)?;
        }
        sockets.push(socket.try_clone()?);
    }
    // Only the process that binds them decides how many sockets there are.
    let wanted = if listen.options.reuseport && holder == Holder::We { workers } else { 1 };
    while sockets.len() < wanted {
        match bind(&listen.address, &listen.options) {
            Ok(socket) => sockets.push(socket),
            // The process may have given up the right to bind: the sockets that are kept serve all workers.
            Err(_) if !kept.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    if listen.options.quic
        && let [first, _, ..] = &sockets[..]
    {
        // Without it, workers pass datagrams on to each other.
        let count = sockets.len().min(usize::from(u8::MAX)) as u8;
        let _ = sekisho_sys::steer_by_connection_id(first, count);
    }
    let opened = Opened::new(listen.address.clone(), sockets, holder);
    Ok(match known {
        Some(known) => Opened { is_narrow: Arc::clone(&known.is_narrow), ..opened },
        None => opened,
    })
}

/// Why our parent has not bound an address.
fn why_unbound(failed: &[(ListenAddress, io::Error)], address: &ListenAddress) -> io::Error {
    match failed.iter().find(|(of, _)| of == address) {
        Some((_, error)) => match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(error.to_string()),
        },
        None => io::Error::other("the parent has not bound it"),
    }
}

/// Whether a socket on the wildcard `all` also gets the connections to `one`; then which address that
/// is. Linux refuses a second socket for it, and nginx has the same rule.
pub(crate) fn covers(all: &ListenAddress, one: &ListenAddress) -> Option<IpAddr> {
    let (ListenAddress::Tcp(all), ListenAddress::Tcp(one)) = (all, one) else { return None };
    let is_covered = all.ip().is_unspecified()
        && !one.ip().is_unspecified()
        && all.port() == one.port()
        && all.is_ipv4() == one.is_ipv4();
    is_covered.then_some(one.ip())
}

fn bind(address: &ListenAddress, options: &ListenOptions) -> io::Result<Socket> {
    let socket = match address {
        ListenAddress::Tcp(at) => {
            let socket = Socket::new(Domain::for_address(*at), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            set_for_connections(&socket)?;
            if options.reuseport {
                socket.set_reuse_port(true)?;
            }
            if at.is_ipv6() {
                socket.set_only_v6(options.ipv6only.unwrap_or(true))?;
            }
            socket.bind(&SockAddr::from(*at))?;
            socket
        }
        ListenAddress::Udp(at) => {
            let socket = Socket::new(Domain::for_address(*at), Type::DGRAM, Some(Protocol::UDP))?;
            if options.reuseport {
                socket.set_reuse_port(true)?;
            }
            if at.is_ipv6() {
                socket.set_only_v6(options.ipv6only.unwrap_or(true))?;
            }
            socket.bind(&SockAddr::from(*at))?;
            socket
        }
        ListenAddress::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket_file::remove_stale(path)?;
            socket.bind(&SockAddr::unix(path)?)?;
            if let Some(mode) = options.mode {
                // No client can connect before it listens.
                socket_file::set_mode(path, mode)?;
            }
            socket
        }
    };
    tune(&socket, address, options)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What the connections that are accepted inherit: no call for each of them.
fn set_for_connections(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // What a slow client does not take waits with us, not in the kernel's memory, where thousands of slow
    // readers would hold gigabytes.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// What may be set at any time.
fn tune(socket: &Socket, address: &ListenAddress, options: &ListenOptions) -> io::Result<()> {
    if let ListenAddress::Tcp(at) = address {
        if at.ip().is_loopback() {
            // Without it, all that is lost is the speed.
            let _ = socket.set_tcp_congestion(sekisho_transport::LOCAL_CONGESTION);
        }
        if options.so_keepalive == Some(true) {
            socket.set_tcp_keepalive(&TcpKeepalive::new())?;
        }
        let is_deferred = options.deferred.unwrap_or(true);
        sekisho_sys::defer_accept(socket, if is_deferred { DEFER_SECS } else { 0 })?;
        if let Some(queue) = options.fastopen {
            sekisho_sys::set_fast_open(socket, queue.min(u16::MAX.into()) as u16)?;
        }
    }
    if let Some(bytes) = options.rcvbuf {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = options.sndbuf {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let ListenAddress::Udp(at) = address {
        // Answers leave from the address that a client has asked.
        if at.ip().is_unspecified() {
            sekisho_sys::tell_destination(socket, at.is_ipv6())?;
        }
        return Ok(());
    }
    socket.listen(options.backlog.unwrap_or(BACKLOG).min(i32::MAX as u32) as i32)
}

/// A listening socket in the hands of a worker.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// Until the runtime has it: where that is not possible now, it is tried again.
    listener: RefCell<Option<Listener>>,
    /// Used only to wait for readiness, as the runtime's type for datagrams: the types for listeners would
    /// register every connection that they accept.
    registered: OnceCell<UdpSocket>,
    is_tcp: bool,
    is_narrow: Narrow,
    position: (usize, usize),
}

impl Acceptor {
    pub(crate) fn new(listener: Listener) -> Self {
        let is_tcp = matches!(listener.address, ListenAddress::Tcp(_));
        let (is_narrow, position) = (Arc::clone(&listener.is_narrow), listener.position);
        let registered = OnceCell::new();
        Self { listener: RefCell::new(Some(listener)), registered, is_tcp, is_narrow, position }
    }

    /// Which of the sockets of its address it is, and how many there are.
    pub(crate) const fn position(&self) -> (usize, usize) {
        self.position
    }

    /// The socket as the runtime waits for it.
    pub(crate) fn registered(&self) -> io::Result<&UdpSocket> {
        if let Some(registered) = self.registered.get() {
            return Ok(registered);
        }
        let mut listener = self.listener.borrow_mut();
        let given = listener.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // The runtime keeps what it is given, or closes it.
        let registered = UdpSocket::from_std(given.socket.try_clone()?.into())?;
        *listener = None;
        Ok(self.registered.get_or_init(|| registered))
    }

    async fn accept(&self) -> io::Result<(ClientSocket, Option<SocketAddr>)> {
        let listener = self.registered()?;
        let accept = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::acceptfrom_with(listener, flags).map_err(io::Error::from)
        };
        let (socket, peer) = listener.async_io(Interest::READABLE, accept).await?;
        if self.is_narrow.load(Ordering::SeqCst) {
            sekisho_sys::set_least_hops(&socket, 0)?;
        }
        let peer = peer.filter(|_| self.is_tcp).and_then(|peer| SocketAddr::try_from(peer).ok());
        Ok((ClientSocket::new(socket, self.is_tcp), peer))
    }
}

/// Accepts connections at a listener for as long as it is open.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener_context: Rc<ListenerContext>,
    acceptor: Rc<Acceptor>,
) {
    let _vital = Vital(Rc::clone(&worker));
    loop {
        if worker.sessions.borrow().len() >= worker.sessions_max.get() {
            pause(&worker, &listener_context, "worker_connections are not enough").await;
            continue;
        }
        accept_one(&worker, &listener_context, &acceptor).await;
    }
}

/// Accepts the connections that wait at a listener that closes, and those whose handshake is under way: the
/// kernel has accepted them, so they are served (O4).
pub(crate) async fn empty(
    worker: Rc<Worker>,
    listener_context: Rc<ListenerContext>,
    acceptor: Rc<Acceptor>,
) {
    if listener_context.is_quic() {
        // Connections that drain go on receiving.
        return quic::receive(worker, listener_context, acceptor, true).await;
    }
    if matches!(listener_context.address, ListenAddress::Udp(_)) {
        return;
    }
    let begun = worker.clock.now();
    let last = tokio::time::sleep(LAST_HANDSHAKES);
    let mut last = std::pin::pin!(last);
    let mut was_last = false;
    loop {
        // In this order: when the time is over, the accept queue must be empty.
        tokio::select! {
            biased;
            () = accept_one(&worker, &listener_context, &acceptor) => {}
            () = &mut last => {
                let is_over = worker.clock.now().since(begun) >= LAST_SILENT;
                let is_last = is_over || !handshake::are_pending(&listener_context.address);
                if is_last && was_last {
                    return;
                }
                // A connection that was pending a moment ago may be in the accept queue now: both must be
                // seen empty twice.
                was_last = is_last;
                let next = if is_last { LAST_LOOK } else { LAST_HANDSHAKES };
                last.set(tokio::time::sleep(next));
            }
        }
    }
}

/// Accepts one connection, or rests while that is not possible.
async fn accept_one(
    worker: &Rc<Worker>,
    listener_context: &Rc<ListenerContext>,
    acceptor: &Acceptor,
) {
    match acceptor.accept().await {
        Ok((socket, remote)) => {
            // An address that is the same for every connection need not be asked for.
            let local = match listener_context.address {
                ListenAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip()),
                _ => socket.local_ip(),
            };
            let stream = secured(listener_context, socket, local);
            let accepted = &worker.shared.counters.accepted;
            if listener_context.bound_site().site.is_stream() {
                accepted.count(ProtocolKind::Tcp);
                let (worker, context) = (Rc::clone(worker), Rc::clone(listener_context));
                let session =
                    StreamSession::of_stream(Rc::clone(&worker), context, stream, remote, local);
                return worker.begin_stream(session);
            }
            accepted.count(ProtocolKind::Http1);
            let connection = Connection::new(
                Rc::clone(worker),
                Rc::clone(listener_context),
                stream,
                remote,
                local,
            );
            worker.begin(connection);
        }
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                worker.files.borrow_mut().clear();
                pause(worker, listener_context, &error.to_string()).await;
            }
            // The client went away before it was accepted.
            Some(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            _ => pause(worker, listener_context, &error.to_string()).await,
        },
    }
}

/// What a connection to an address runs over.
fn secured(
    listener_context: &ListenerContext,
    socket: ClientSocket,
    local: Option<IpAddr>,
) -> Stream {
    let bound_site = listener_context.bound_site();
    let listen = bound_site.listen(local);
    let is_behind_proxy = bound_site.site.is_behind_proxy(listen);
    let socket = if is_behind_proxy { socket.behind_proxy() } else { socket };
    if bound_site.site.is_tls(listen) {
        let chooser = Chooser { site: Arc::clone(&bound_site.site), listen };
        Stream::Tls(Box::new(TlsStream::new(socket, chooser)))
    } else {
        Stream::Plain(socket)
    }
}

/// Rests until a session ends, or for a moment: nothing spins when descriptors are short (O5).
pub(crate) async fn pause(worker: &Worker, listener_context: &ListenerContext, why: &str) {
    let pauses = worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
    // Only pauses 1, 2, 4, 8 and so on are logged; the counter has all.
    if pauses.is_power_of_two() || pauses == 0 {
        let site = &listener_context.bound_site().site;
        let stamp = worker.clock.stamp(worker.clock.now());
        let message =
            format_args!("pausing accept() on {}: {why}", Shown(&listener_context.address));
        site.log.write(sekisho_config::Level::Crit, stamp, None, message);
    }
    let vacated = worker.vacated.notified();
    let _ = tokio::time::timeout(PAUSE, vacated).await;
}

#[cfg(test)]
mod tests;
