//! What the kernel reports about a process.

use std::io;

/// The session of a process, or of this one. It is 0 for a session whose leader is outside this pid
/// namespace, as in many containers.
pub fn session_of(pid: Option<i32>) -> io::Result<i32> {
    // SAFETY: it takes a number, touches no memory and answers with a number.
    let session = unsafe { libc::getsid(pid.unwrap_or(0)) };
    if session < 0 { Err(io::Error::last_os_error()) } else { Ok(session) }
}

#[cfg(test)]
mod tests {
    use super::session_of;

    #[test]
    fn the_session_of_this_process_is_known_by_its_number_too() {
        let own = session_of(None).expect("our own session");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(session_of(Some(pid)).expect("by number"), own);
        assert!(session_of(Some(i32::MAX)).is_err(), "no process has that number");
    }
}
