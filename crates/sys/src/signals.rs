//! Signals as something to read, for a process with one thread and no runtime.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// Signals that a caller of the process may have ignored: a shell does that for programs in the background (INT, QUIT),
/// `nohup` too (HUP). With CHLD ignored, no end of a child could be waited for.
pub(crate) const INHERITED: [libc::c_int; 7] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
];

/// Gives signals that were inherited as ignored their default actions again, for this process and those that it starts.
/// Handlers that are set already stay.
pub fn unignore_signals() {
    for signal in INHERITED {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `sigaction` fills the structure where it succeeds, and only then is it read; the default action is
        // one for every signal.
        unsafe {
            if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
            {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Blocks these signals in the calling thread. The descriptor is readable when one of them is pending; a read gives
/// 128 bytes, which begin with its number.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set, and `sigaddset` changes one that is filled; the mask is read from it.
    let (set, blocked) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            if libc::sigaddset(set.as_mut_ptr(), *signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let set = set.assume_init();
        (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
    };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: the set is filled; a descriptor is returned that no one else has.
    unsafe {
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
