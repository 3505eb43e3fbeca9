//! The sockets by which a server is found by its process number: an abstract name, and beside it a file in a
//! folder that only the server's user may write to. Any local user may take a free abstract name, so a server
//! that finds its own taken still has the file; and a client trusts neither before the kernel has said which
//! process and which user listens there.
//!
//! Abstract names belong to the network namespace and process numbers to the process namespace. Where several containers
//! share the first and not the second, names of different servers may be the same; the check of the
//! process number keeps them apart, and the file finds the right one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Where root's servers have their files.
const ROOT_FOLDER: &str = "/run/sekisho";

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// `sekisho ctl`.
    Control,
    /// A new process that takes the place of this one.
    Handover,
}

impl Purpose {
    fn abstract_name(self, pid: u32) -> String {
        match self {
            Self::Control => format!("sekisho/{pid}"),
            Self::Handover => format!("sekisho/{pid}/handover"),
        }
    }

    fn file_name(self, pid: u32) -> String {
        match self {
            Self::Control => format!("{pid}.sock"),
            Self::Handover => format!("{pid}-handover.sock"),
        }
    }
}

/// The sockets of this process for one purpose.
#[derive(Debug)]
pub(crate) struct LocalSockets {
    /// One or two.
    pub(crate) listeners: Vec<UnixListener>,
    /// The file, which goes with this.
    pub(crate) file: Option<SocketFile>,
    /// Which of them could not be opened, and why.
    pub(crate) complaint: Option<String>,
}

/// The control socket of this process, if it has one, and what is to be said about it.
pub(crate) fn control_socket(
    opened: io::Result<LocalSockets>,
) -> (Option<LocalSockets>, Option<String>) {
    match opened {
        Ok(mut sockets) => {
            let complaint = sockets.complaint.take();
            (Some(sockets), complaint.map(|why| format!("control socket: {why}")))
        }
        Err(error) => {
            let text = "no control socket, `sekisho ctl` cannot connect";
            (None, Some(format!("{text}: {error}")))
        }
    }
}

/// A socket's file. It is removed with this, if we still may; the next server of the same user does it otherwise.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Opens the sockets of this process; an error where there is none.
pub(crate) fn open(purpose: Purpose) -> io::Result<LocalSockets> {
    let pid = std::process::id();
    let name = purpose.abstract_name(pid);
    let named = SocketAddr::from_abstract_name(&name).and_then(|it| UnixListener::bind_addr(&it));
    let with_file = own_folder().and_then(|folder| {
        remove_left(&folder);
        let path = folder.join(purpose.file_name(pid));
        open_file(&path).map(|listener| (listener, SocketFile(path)))
    });
    let mut sockets = LocalSockets { listeners: Vec::new(), file: None, complaint: None };
    match (named, with_file) {
        (Err(error), Err(_)) => return Err(error),
        (named, with_file) => {
            match named {
                Ok(listener) => sockets.listeners.push(listener),
                Err(error) => {
                    let why =
                        format!("the name @{name} cannot be used, a file is used instead: {error}");
                    sockets.complaint = Some(why);
                }
            }
            if let Ok((listener, file)) = with_file {
                sockets.listeners.push(listener);
                sockets.file = Some(file);
            }
        }
    }
    for listener in &sockets.listeners {
        listener.set_nonblocking(true)?;
    }
    Ok(sockets)
}

fn open_file(path: &Path) -> io::Result<UnixListener> {
    // One of an earlier process with our number.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    // Access is decided by the peer credentials that the kernel reports.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// The folder for the files of this process, made if it is not there.
fn own_folder() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let folder = if uid == 0 {
        PathBuf::from(ROOT_FOLDER)
    } else {
        let place = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let place = place.filter(|place| place.is_absolute() && is_protected(place, &[uid]));
        place.ok_or_else(|| io::Error::other("no XDG_RUNTIME_DIR"))?.join("sekisho")
    };
    match fs::DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_protected(&folder, &[uid]) {
        Ok(folder)
    } else {
        Err(io::Error::other("other users can write to the folder of control sockets"))
    }
}

/// Whether this is a folder of one of these users, to which no other user may write.
fn is_protected(folder: &Path, owners: &[u32]) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|of| of.is_dir() && owners.contains(&of.uid()) && of.mode() & 0o022 == 0)
}

/// Removes the files of processes that are gone. A process number that is not found may belong to another
/// process namespace: only files without a listener are removed.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(pid_of_file);
        let is_gone = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        let path = entry.path();
        if is_gone
            && let Ok(address) = SocketAddrUnix::new(&*path)
            && matches!(connect_now(&address), Err(Errno::CONNREFUSED))
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn pid_of_file(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".sock")?;
    name.strip_suffix("-handover").unwrap_or(name).parse().ok()
}

/// Connects to the process with this number, and to no other: `None` if it cannot be reached.
pub(crate) fn connect(pid: u32, purpose: Purpose) -> io::Result<Option<UnixStream>> {
    let users = [0, rustix::process::geteuid().as_raw()];
    let owner = fs::metadata(format!("/proc/{pid}")).ok().map(|of| of.uid());
    let users: Vec<u32> = users.into_iter().chain(owner).collect();
    find(pid, purpose, &users)
}

/// The same for one that is root's or ours.
pub(crate) fn connect_trusted(pid: u32) -> io::Result<Option<UnixStream>> {
    find(pid, Purpose::Control, &[0, rustix::process::geteuid().as_raw()])
}

/// Looks at each place where the process may be, and asks the kernel which process listens there.
fn find(pid: u32, purpose: Purpose, users: &[u32]) -> io::Result<Option<UnixStream>> {
    let file = purpose.file_name(pid);
    let folders = std::iter::once(PathBuf::from(ROOT_FOLDER))
        .chain(users.iter().map(|uid| format!("/run/user/{uid}/sekisho").into()))
        .chain(std::env::var_os("XDG_RUNTIME_DIR").map(|place| Path::new(&place).join("sekisho")))
        .filter(|folder| is_protected(folder, users));
    let mut places = folders
        .map(|folder| SocketAddrUnix::new(folder.join(&file)))
        .collect::<Result<Vec<_>, _>>()?;
    places.push(SocketAddrUnix::new_abstract_name(purpose.abstract_name(pid).as_bytes())?);
    for place in places {
        let Ok(socket) = connect_now(&place) else { continue };
        let Ok(peer) = socket_peercred(&socket) else { continue };
        let is_meant = peer.pid.as_raw_nonzero().get().unsigned_abs() == pid;
        if is_meant && users.contains(&peer.uid.as_raw()) {
            let stream = UnixStream::from(socket);
            stream.set_nonblocking(false)?;
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

/// Connects without waiting: the queue of another user's socket may stay full for ever.
fn connect_now(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

/// The processes that claim to have a control socket, by the kernel's list of sockets. Any process may claim
/// so.
pub(crate) fn claimed(sockets: &str) -> impl Iterator<Item = u32> {
    sockets.lines().filter_map(|line| {
        let name = line.split_whitespace().nth(7)?;
        if let Some(number) = name.strip_prefix("@sekisho/") {
            return number.parse().ok();
        }
        let (folder, file) = name.rsplit_once('/')?;
        let is_ours = folder == ROOT_FOLDER || folder.ends_with("/sekisho");
        file.strip_suffix(".sock").filter(|_| is_ours)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_the_names_of_their_sockets() {
        // E10
        let sockets = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 111 @sekisho/42\n\
            0000: 00000002 00000000 00010000 0001 01 112 @sekisho/42/handover\n\
            0000: 00000002 00000000 00010000 0001 01 113 /run/@sekisho/x\n\
            0000: 00000003 00000000 00000000 0001 03 114 @sekisho/42\n\
            0000: 00000002 00000000 00010000 0001 01 116 /run/sekisho/43.sock\n\
            0000: 00000002 00000000 00010000 0001 01 117 /run/sekisho/43-handover.sock\n\
            0000: 00000002 00000000 00010000 0001 01 118 /run/user/7/sekisho/44.sock\n\
            0000: 00000002 00000000 00010000 0001 01 119 /tmp/45.sock\n\
            0000: 00000002 00000000 00010000 0001 01 115\n";
        assert_eq!(claimed(sockets).collect::<Vec<_>>(), [42, 42, 43, 44]);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        // V50
        let folder = tempfile::tempdir().expect("a folder");
        let uid = rustix::process::geteuid().as_raw();
        let with_mode = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("ours");
            is_protected(folder.path(), &[uid])
        };
        assert!(with_mode(0o755) && with_mode(0o700));
        assert!(!with_mode(0o777) && !with_mode(0o775) && !with_mode(0o757));
        assert!(with_mode(0o755) && !is_protected(folder.path(), &[uid.wrapping_add(1)]));
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).expect("a link");
        assert!(!is_protected(&folder.path().join("link"), &[uid]));
    }

    #[test]
    fn files_of_processes_that_are_gone_are_removed_and_others_stay() {
        // L13
        let folder = tempfile::tempdir().expect("a folder");
        let gone = u32::try_from(i32::MAX).expect("it fits");
        let path = |name: String| folder.path().join(name);
        let own = path(Purpose::Control.file_name(std::process::id()));
        let other = path("notes.sock".to_owned());
        let heard = path(Purpose::Handover.file_name(gone));
        let left = path(Purpose::Control.file_name(gone));
        let listeners: Vec<UnixListener> =
            [&own, &heard, &left].map(|path| open_file(path).expect("bound")).into();
        fs::write(&other, "").expect("written");
        let [_own, _heard, left_listener] = <[_; 3]>::try_from(listeners).expect("three");
        drop(left_listener);
        remove_left(folder.path());
        assert!(own.exists() && other.exists() && heard.exists());
        assert!(!left.exists());
    }
}
