//! Lines to a syslog server, each a datagram of RFC 3164 as nginx sends it:
//! `<190>Nov 16 08:05:29 host nginx: text`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;

use sekisho_config::{Level, Syslog, SyslogServer};
use sekisho_http::date;

use crate::error_log::Stamp;

/// A connected socket, and where it leads to.
#[derive(Debug)]
pub(crate) struct Socket {
    server: Server,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Server {
    Unix(std::path::PathBuf),
    Udp(SocketAddr),
}

#[derive(Debug)]
enum Connection {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    /// Finds the server. A missing server is no error: it is tried again with each line.
    pub(crate) fn open(syslog: &Syslog) -> io::Result<Self> {
        let server = match &syslog.server {
            SyslogServer::Unix(path) => Server::Unix(path.clone()),
            SyslogServer::Host(host) => {
                let found = host.to_socket_addrs()?.next();
                let none = || io::Error::new(io::ErrorKind::NotFound, "host not found");
                Server::Udp(found.ok_or_else(none)?)
            }
        };
        let connection = server.connect().ok();
        Ok(Self { server, connection })
    }

    /// Sends one line; returns whether it was sent. The error of an earlier datagram (no listener) is
    /// reported by the next send: so it is tried twice, the second time by a new socket.
    pub(crate) fn send(&mut self, line: &[u8]) -> bool {
        for _ in 0..2 {
            if self.connection.is_none() {
                self.connection = self.server.connect().ok();
            }
            let Some(connection) = &self.connection else { return false };
            let sent = match connection {
                Connection::Unix(socket) => socket.send(line),
                Connection::Udp(socket) => socket.send(line),
            };
            match sent {
                Ok(_) => return true,
                // Its buffer is full: logs do not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => self.connection = None,
            }
        }
        false
    }
}

impl Server {
    fn connect(&self) -> io::Result<Connection> {
        match self {
            Self::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Connection::Unix(socket))
            }
            Self::Udp(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(Connection::Udp(socket))
            }
        }
    }
}

/// The prefix of each line.
#[derive(Debug)]
pub(crate) struct Header {
    facility: u8,
    severity: Level,
    /// ` host tag: `, or without the host.
    behind_time: Vec<u8>,
}

impl Header {
    pub(crate) fn new(syslog: &Syslog) -> Self {
        let mut behind_time = vec![b' '];
        if !syslog.without_hostname {
            let name = rustix::system::uname();
            behind_time.extend(name.nodename().to_bytes().to_ascii_lowercase());
            behind_time.push(b' ');
        }
        behind_time.extend_from_slice(syslog.tag.as_bytes());
        behind_time.extend_from_slice(b": ");
        Self { facility: syslog.facility, severity: syslog.severity, behind_time }
    }

    /// Appends it. The severity is that of the line, where it has one.
    pub(crate) fn push(&self, severity: Option<Level>, stamp: Stamp, out: &mut Vec<u8>) {
        let severity = severity.unwrap_or(self.severity).syslog_severity();
        let at = date::civil(stamp.unix_secs + i64::from(stamp.utc_offset_secs));
        let month = date::MONTHS[usize::from(at.month - 1)];
        let _ = write!(
            out,
            "<{}>{month} {:>2} {:02}:{:02}:{:02}",
            self.facility * 8 + severity,
            at.day,
            at.hour,
            at.minute,
            at.second,
        );
        out.extend_from_slice(&self.behind_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorLogger;
    use crate::sink::{Buffering, Logs};
    use sekisho_config::LogTarget;
    use std::time::Duration;

    fn target(server: SyslogServer) -> Syslog {
        let (severity, tag) = (Level::Info, "nginx".to_owned());
        Syslog { server, facility: 23, severity, tag, without_hostname: true }
    }

    const STAMP: Stamp = Stamp { unix_secs: 784_111_777, utc_offset_secs: 0 };

    /// O6
    #[test]
    fn a_line_is_one_datagram_with_the_severity_of_its_level() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
        server.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let host = server.local_addr().expect("bound").to_string();
        let logs = Logs::new();
        let target = LogTarget::Syslog(target(SyslogServer::Host(host)));
        let sink = logs.open(&target, Buffering::default()).expect("it opens");
        let logger = ErrorLogger::new(vec![(sink, Level::Warn)]);
        logger.write(Level::Error, STAMP, Some(7), format_args!("one"));
        logger.write(Level::Warn, STAMP, None, format_args!("two"));
        logs.flush();
        let mut room = [0; 512];
        let mut next = || {
            let count = server.recv(&mut room).expect("a datagram");
            String::from_utf8_lossy(&room[..count]).into_owned()
        };
        let (one, two) = (next(), next());
        assert!(
            one.starts_with("<187>Nov  6 08:49:37 nginx: 1994/11/06 08:49:37 [error]"),
            "{one}"
        );
        assert!(one.ends_with("*7 one"), "{one}");
        assert!(two.starts_with("<188>Nov  6 08:49:37 nginx: "), "{two}");
    }

    /// O6
    #[test]
    fn a_server_that_comes_back_gets_lines_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("log");
        let mut socket = Socket::open(&target(SyslogServer::Unix(path.clone()))).expect("opened");
        assert!(!socket.send(b"lost"));
        for _ in 0..2 {
            let _ = std::fs::remove_file(&path);
            let server = UnixDatagram::bind(&path).expect("bound");
            assert!(socket.send(b"line"));
            let mut room = [0; 16];
            assert_eq!(server.recv(&mut room).expect("a datagram"), 4);
        }
    }
}
