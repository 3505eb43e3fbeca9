//! A connection that is being made to a server: TCP, a Unix socket, or datagrams to one address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::{Reactor, Ready, Registration, Socket, Transport};

/// Options of a socket to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOptions {
    /// The address to connect from.
    pub bind: Option<SocketAddr>,
    /// `SO_KEEPALIVE`
    pub keepalive: bool,
}

/// A connection that is being made.
#[derive(Debug)]
pub struct Connecting {
    /// `None` when it has been taken.
    socket: Option<(Socket, Registration)>,
    is_connected: bool,
}

impl Connecting {
    /// Begins to connect to an address.
    pub fn tcp(reactor: &Rc<Reactor>, to: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        let fd = socket(family(to), SocketType::STREAM)?;
        if let Some(own) = options.bind {
            rustix::net::bind(&fd, &own)?;
        }
        if options.keepalive {
            sockopt::set_socket_keepalive(&fd, true)?;
        }
        // Without it, all that is lost is a moment.
        let _ = sockopt::set_tcp_nodelay(&fd, true);
        let is_connected = match rustix::net::connect(&fd, &to) {
            Ok(()) => true,
            Err(Errno::INPROGRESS | Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(Self::over(reactor, Socket::connecting(fd, true), is_connected))
    }

    /// Connects to a Unix socket, which takes no time.
    pub fn unix(reactor: &Rc<Reactor>, to: &Path) -> io::Result<Self> {
        let fd = socket(AddressFamily::UNIX, SocketType::STREAM)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(to)?)?;
        Ok(Self::over(reactor, Socket::connecting(fd, false), true))
    }

    /// A socket that sends datagrams to one address, and hears from no other.
    pub fn udp(reactor: &Rc<Reactor>, to: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        let fd = socket(family(to), SocketType::DGRAM)?;
        if let Some(own) = options.bind {
            rustix::net::bind(&fd, &own)?;
        }
        rustix::net::connect(&fd, &to)?;
        Ok(Self::over(reactor, Socket::datagrams(fd), true))
    }

    fn over(reactor: &Rc<Reactor>, socket: Socket, is_connected: bool) -> Self {
        Self { socket: Some((socket, reactor.register())), is_connected }
    }

    /// Ready when the connection is there, or has failed; not to be called again then.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, Registration)>> {
        let Some((socket, registration)) = &mut self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if self.is_connected {
            socket.note(Ready::TO_SEND);
        } else {
            registration.update(socket);
            if socket.is_full() && !socket.is_lost() {
                registration.wait(socket, Ready::TO_SEND, cx.waker())?;
                return Poll::Pending;
            }
            sockopt::socket_error(socket.as_fd())??;
        }
        self.socket.take().map_or(Poll::Pending, |connected| Poll::Ready(Ok(connected)))
    }
}

const fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use rustix::event::epoll;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reactor with its loop, and a task that counts how often it is woken.
    struct World {
        reactor: Rc<Reactor>,
        count: Arc<Count>,
        waker: Waker,
    }

    impl World {
        fn new() -> Self {
            let count = Arc::<Count>::default();
            let waker = Waker::from(Arc::clone(&count));
            Self { reactor: Reactor::new().expect("an epoll"), count, waker }
        }

        /// Calls until it is ready, with a turn of the loop in between.
        fn wait<T>(&self, mut call: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
            let mut cx = Context::from_waker(&self.waker);
            loop {
                let woken = self.count.0.load(Ordering::Relaxed);
                if let Poll::Ready(done) = call(&mut cx) {
                    return done;
                }
                while self.count.0.load(Ordering::Relaxed) == woken {
                    let mut events = Vec::with_capacity(8);
                    let into = rustix::buffer::spare_capacity(&mut events);
                    epoll::wait(self.reactor.as_fd(), into, None).expect("events");
                    for event in &events {
                        let ready = Ready::from_kernel(event.flags);
                        self.reactor.handle(event.data.u64(), ready);
                    }
                }
            }
        }

        fn read(&self, socket: &mut Socket, registration: &Registration) -> io::Result<Vec<u8>> {
            let mut to = Vec::with_capacity(100);
            self.wait(|cx| {
                registration.update(socket);
                let read = socket.append(&mut to);
                if read.is_pending() {
                    registration.wait(socket, Ready::TO_READ, cx.waker()).expect("watched");
                }
                read
            })?;
            Ok(to)
        }
    }

    #[test]
    fn a_connection_is_made_and_its_task_woken_for_what_comes() {
        let world = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let to = listener.local_addr().expect("an address");
        let mut connecting =
            Connecting::tcp(&world.reactor, to, SocketOptions::default()).expect("begun");
        let (mut socket, registration) = world.wait(|cx| connecting.poll(cx)).expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        assert!(matches!(socket.send(b"abc", false), Poll::Ready(Ok(3))));
        peer.read_exact(&mut [0; 3]).expect("bytes");
        peer.write_all(b"def").expect("sent");
        assert_eq!(world.read(&mut socket, &registration).expect("bytes"), b"def");
        registration.update(&mut socket);
        assert!(socket.is_quiet(), "nothing more has come");
        drop(peer);
        assert_eq!(world.read(&mut socket, &registration).expect("the end"), b"");
        assert!(!socket.is_quiet());
    }

    #[test]
    fn a_refused_connection_says_so() {
        let world = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let to = listener.local_addr().expect("an address");
        drop(listener);
        let connecting = Connecting::tcp(&world.reactor, to, SocketOptions::default());
        let refused = connecting.and_then(|mut it| world.wait(|cx| it.poll(cx)));
        assert_eq!(refused.expect_err("refused").kind(), io::ErrorKind::ConnectionRefused);
        let nowhere = Connecting::unix(&world.reactor, Path::new("/nowhere"));
        assert_eq!(nowhere.expect_err("no file").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_unix_socket_is_connected_at_once() {
        let world = World::new();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut connecting = Connecting::unix(&world.reactor, &path).expect("begun");
        let (mut socket, registration) = world.wait(|cx| connecting.poll(cx)).expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        peer.write_all(b"x").expect("sent");
        assert_eq!(world.read(&mut socket, &registration).expect("bytes"), b"x");
    }
}
