//! The sockets that a service manager (systemd) has opened for us (`LISTEN_FDS`). Without one, nothing happens here.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use sekisho_config::Listen;
use sekisho_net::listen::{Holder, Inherited, Shown, address_of};

pub(crate) use sekisho_parent::notify::{State, tell};

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
