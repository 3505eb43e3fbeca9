//! Reports of the server's state to a service manager (systemd, `NOTIFY_SOCKET`). Without one, nothing happens here.

use std::env;
use std::fmt::Display;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is reported to the service manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// We serve; also at the end of a reload, however it went.
    Ready,
    /// The configuration is being read again.
    Reloading,
    /// We end.
    Stopping,
    /// Another process takes our place.
    Replaced {
        /// Which.
        by: u32,
    },
}

/// Reports our state to the service manager, if there is one, for the manager itself and as text.
pub fn tell(state: State, status: impl Display) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    let first = match state {
        State::Ready => "READY=1".to_owned(),
        State::Reloading => {
            format!("RELOADING=1\nMONOTONIC_USEC={}", crate::monotonic().as_micros())
        }
        State::Stopping => "STOPPING=1".to_owned(),
        State::Replaced { by } => format!("MAINPID={by}"),
    };
    let message = format!("{first}\nSTATUS={status}\n");
    // A manager that does not listen cannot be informed.
    let _ = send(socket.as_bytes(), message.as_bytes());
}

fn send(socket: &[u8], message: &[u8]) -> io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    let sender = UnixDatagram::unbound()?;
    // Its queue may be full; we do not wait for it.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(message, &address).map(|_| ())
}
