//! The files of Unix sockets. One that is left over from a server that is gone is replaced; one at which somebody
//! listens, or may listen, is not touched.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Makes room for a socket: removes a file at which nobody listens.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(about) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !about.file_type().is_socket() {
        return Err(io::Error::other("what is there is no socket"));
    }
    if !is_stale(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path).map_err(|error| {
        let why = "the file is left over from a server that is gone, and cannot be removed";
        io::Error::other(format!("{why} by whom this one is: {error}"))
    })
}

/// Whether nobody listens: refused, and for no other reason. Who does not answer at once is there all the same.
fn is_stale(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(connected == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    /// O3
    #[test]
    fn only_a_file_at_which_nobody_listens_is_removed() {
        let dir = std::env::temp_dir().join(format!("sekisho-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let at = |name: &str| dir.join(name);
        let _listening = UnixListener::bind(at("listening")).expect("a socket");
        let _datagrams = UnixDatagram::bind(at("datagrams")).expect("a socket");
        drop(UnixListener::bind(at("stale")).expect("a socket"));
        std::fs::write(at("file"), "").expect("a file");
        remove_stale(&at("nothing")).expect("there is room");
        remove_stale(&at("stale")).expect("there is room now");
        assert!(!at("stale").exists());
        for name in ["listening", "datagrams"] {
            let error = remove_stale(&at(name)).expect_err("somebody is there");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{name}");
        }
        let error = remove_stale(&at("file")).expect_err("not ours");
        assert_eq!(error.to_string(), "what is there is no socket");
        assert!(["listening", "datagrams", "file"].iter().all(|name| at(name).exists()));
        std::fs::remove_dir_all(&dir).expect("it can go");
    }
}
