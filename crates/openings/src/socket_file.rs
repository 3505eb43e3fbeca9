//! The files of Unix sockets. A file that a terminated server has left is replaced; one at which a process
//! listens, or may listen, is not touched.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Makes room for a socket: removes a file at which no process listens.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(about) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !about.file_type().is_socket() {
        return Err(io::Error::other("the existing file is not a socket"));
    }
    if !is_stale(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path).map_err(|error| {
        let why = "the file is left over from a server that is gone, and cannot be removed";
        io::Error::other(format!("{why} by whom this one is: {error}"))
    })
}

/// Sets which users may connect. Not by the name alone: the owner of the folder could have put a link there
/// meanwhile, to a file of root.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("the socket was replaced by something else"));
    }
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(by_number, Mode::from_raw_mode(mode))?)
}

/// Whether no process listens: only if the connection is refused. A listener that does not answer at once
/// still exists.
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

    fn folder(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("sekisho-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        dir
    }

    /// V45
    #[test]
    fn the_mode_of_what_has_replaced_a_socket_is_left_alone() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = folder("modes");
        let (socket, link, file) = (dir.join("socket"), dir.join("link"), dir.join("file"));
        let _listening = UnixListener::bind(&socket).expect("a socket");
        std::fs::write(&file, "").expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        symlink(&file, &link).expect("a link");
        let mode = |path: &Path| {
            std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
        };
        for mode_of_all in [0o666, 0o640] {
            set_mode(&socket, mode_of_all).expect("it is ours");
            assert_eq!(mode(&socket), mode_of_all);
        }
        for other in [&link, &file] {
            set_mode(other, 0o666).expect_err("it is no socket");
        }
        assert_eq!(mode(&file), 0o600);
        std::fs::remove_dir_all(&dir).expect("it can go");
    }

    /// O3
    #[test]
    fn only_a_file_at_which_nobody_listens_is_removed() {
        let dir = folder("files");
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
        assert_eq!(error.to_string(), "the existing file is not a socket");
        assert!(["listening", "datagrams", "file"].iter().all(|name| at(name).exists()));
        std::fs::remove_dir_all(&dir).expect("it can go");
    }
}
