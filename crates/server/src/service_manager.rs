//! The interface to a service manager (systemd): sockets that it has opened for us (`LISTEN_FDS`), and
//! reports of our state (`NOTIFY_SOCKET`). Without one, nothing happens here.

use std::env;
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use sekisho_config::Listen;
use sekisho_net::Clock;
use sekisho_net::listen::{Holder, Inherited, Shown, address_of};

/// What is reported to the service manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
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
pub(crate) fn tell(state: State, status: impl Display) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    let first = match state {
        State::Ready => "READY=1".to_owned(),
        State::Reloading => {
            format!("RELOADING=1\nMONOTONIC_USEC={}", Clock::machine_monotonic().as_micros())
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

/// The sockets that a service manager has opened for these addresses, and a message about each that the
/// configuration does not use.
pub(crate) fn inherited(listens: &[Listen]) -> io::Result<(Vec<Inherited>, Vec<String>)> {
    // The descriptors themselves stay open and are not inherited further; what we use is a duplicate.
    let descriptors = sd_notify::listen_fds()?;
    let (mut wanted, mut complaints) = (Vec::new(), Vec::new());
    if descriptors.len() == 0 {
        return Ok((wanted, complaints));
    }
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    for number in descriptors {
        let socket: OwnedFd = pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?;
        let Some(address) = address_of(&socket) else {
            complaints.push(format!("descriptor {number} is not a listening stream socket"));
            continue;
        };
        if listens.iter().any(|listen| listen.address == address) {
            wanted.push(Inherited { address, socket, holder: Holder::Manager });
        } else {
            let address = Shown(&address);
            complaints.push(format!(
                "descriptor {number} listens on {address}, which no \"listen\" names"
            ));
        }
    }
    Ok((wanted, complaints))
}
