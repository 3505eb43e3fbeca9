//! Landlock: a thread gives up all files but those below certain places, for itself, for the threads that
//! it starts and for the programs that it becomes. It can never take that back.
//!
//! The kernel's terms: a *ruleset* lists what is forbidden unless a rule allows it, gets its rules, and is
//! then applied to a thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Asks for the version instead of making a ruleset.
const VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const RULE_NET_PORT: u32 = 2;
/// The first version that lets files be renamed from folder to folder: without it uploads would fail.
const VERSION_MIN: i64 = 2;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
/// Since version 3.
const TRUNCATE: u64 = 1 << 14;
/// Since version 5.
const IOCTL_DEV: u64 = 1 << 15;
/// Since version 4.
const BIND_TCP: u64 = 1 << 0;
const CONNECT_TCP: u64 = 1 << 1;

/// What of these rights means anything for a file that is no folder.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// What may be done below a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// Files may be read, folders listed.
    Read,
    /// The same, and files may be run.
    Run,
    /// Files, folders and links may be read, written, made, renamed and removed.
    Write,
    /// The same, and sockets and pipes may be made, and files be run: for programs.
    Use,
}

impl Right {
    const fn bits(self) -> u64 {
        const WRITE: u64 = READ_FILE
            | READ_DIR
            | WRITE_FILE
            | REMOVE_DIR
            | REMOVE_FILE
            | MAKE_DIR
            | MAKE_REG
            | MAKE_SYM
            | REFER
            | TRUNCATE;
        match self {
            Self::Read => READ_FILE | READ_DIR,
            Self::Run => READ_FILE | READ_DIR | EXECUTE,
            Self::Write => WRITE,
            Self::Use => WRITE | EXECUTE | MAKE_SOCK | MAKE_FIFO | IOCTL_DEV,
        }
    }

    /// Whether this right includes the other one.
    pub const fn covers(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }
}

/// Which version of Landlock the kernel has; an error where it has none, or one that is too old for a server
/// that moves files, or where it is forbidden.
pub fn landlock_version() -> io::Result<i64> {
    // SAFETY: with these arguments the call looks at no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) };
    match version {
        // A filter of system calls may forbid what the kernel has.
        ..0 => Err(io::Error::last_os_error()),
        VERSION_MIN.. => Ok(version),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// What a thread will be allowed.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
    network: u64,
}

#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
}

#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
}

/// The kernel's structure is packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: RawFd,
}

impl Ruleset {
    /// Nothing is allowed yet; of the network, neither listening nor connecting by TCP where `is_quiet`.
    pub fn new(is_quiet: bool) -> io::Result<Self> {
        let version = landlock_version()?;
        let all = EXECUTE | Right::Use.bits() | MAKE_CHAR | MAKE_BLOCK;
        let handled = match version {
            ..3 => all & !(TRUNCATE | IOCTL_DEV),
            3..5 => all & !IOCTL_DEV,
            _ => all,
        };
        let network = if is_quiet && version >= 4 { BIND_TCP | CONNECT_TCP } else { 0 };
        let attributes = RulesetAttributes { files: handled, network };
        // An older kernel knows of the first field only.
        let size = if version >= 4 { size_of::<RulesetAttributes>() } else { size_of::<u64>() };
        // SAFETY: the attributes have the given length, and are only read.
        let ruleset = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0)
        };
        let ruleset = RawFd::try_from(ruleset).map_err(io::Error::other)?;
        if ruleset < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for us, close-on-exec.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(ruleset) }, handled, network })
    }

    /// Allows this below a folder, or for a file.
    pub fn allow(&self, place: BorrowedFd<'_>, is_folder: bool, right: Right) -> io::Result<()> {
        let meant = if is_folder { u64::MAX } else { OF_FILES };
        let allowed = right.bits() & meant & self.handled;
        let rule = PathBeneath { allowed, parent: place.as_raw_fd() };
        let ruleset = self.descriptor.as_fd().as_raw_fd();
        // SAFETY: the rule has the kernel's own form and is only read; both descriptors are open.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset,
                RULE_PATH_BENEATH,
                &raw const rule,
                0,
            )
        };
        if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Allows connecting to this port by TCP.
    pub fn allow_connect(&self, port: u16) -> io::Result<()> {
        if self.network == 0 {
            return Ok(());
        }
        let rule = NetPort { allowed: CONNECT_TCP, port: u64::from(port) };
        self.add_port(&rule)
    }

    /// Allows a connection to come from an address of ours (a port that the system chooses).
    pub fn allow_bind(&self) -> io::Result<()> {
        if self.network == 0 {
            return Ok(());
        }
        self.add_port(&NetPort { allowed: BIND_TCP, port: 0 })
    }

    fn add_port(&self, rule: &NetPort) -> io::Result<()> {
        let ruleset = self.descriptor.as_fd().as_raw_fd();
        // SAFETY: the rule has the kernel's own form and is only read; the descriptor is open.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset,
                RULE_NET_PORT,
                std::ptr::from_ref(rule),
                0,
            )
        };
        if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Limits the calling thread to what is allowed, for ever, and all that it starts from now on. It must
    /// have given up new privileges before.
    pub fn restrict_thread(&self) -> io::Result<()> {
        let ruleset = self.descriptor.as_fd().as_raw_fd();
        // SAFETY: no memory is looked at; the descriptor is open.
        let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;

    use super::*;

    /// V45: what a thread that is limited can do, and one that is not.
    #[test]
    fn a_thread_is_limited_to_its_places_and_its_children_are_too() {
        if landlock_version().is_err() {
            println!("skipped: this kernel has no Landlock");
            return;
        }
        let base = std::env::temp_dir().join(format!("sekisho-landlock-{}", std::process::id()));
        for name in ["read", "write", "other"] {
            fs::create_dir_all(base.join(name)).expect("a folder");
            fs::write(base.join(name).join("file"), name).expect("a file");
        }
        std::os::unix::fs::symlink("../other/file", base.join("read/link")).expect("a link");
        let socket_path = TcpListener::bind("127.0.0.1:0").expect("a door");
        let address = socket_path.local_addr().expect("an address");
        let ruleset = Ruleset::new(true).expect("a ruleset");
        for (name, right) in [("read", Right::Read), ("write", Right::Write)] {
            let place = File::open(base.join(name)).expect("opened");
            ruleset.allow(place.as_fd(), true, right).expect("allowed");
        }
        let inside = base.clone();
        let limited = std::thread::spawn(move || {
            // SAFETY: a switch for this thread, which only narrows what it may do.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            ruleset.restrict_thread().expect("restricted");
            let at = |name: &str| -> PathBuf { inside.join(name) };
            assert_eq!(fs::read(at("read/file")).expect("read"), b"read");
            assert!(fs::read(at("read/link")).is_err(), "a link that leads out");
            assert!(fs::read(at("other/file")).is_err());
            assert!(fs::write(at("read/file"), "x").is_err());
            assert!(fs::write(at("read/new"), "x").is_err());
            fs::write(at("write/new"), "x").expect("written");
            fs::create_dir(at("write/folder")).expect("made");
            fs::rename(at("write/new"), at("write/folder/moved")).expect("moved");
            assert!(fs::rename(at("write/file"), at("other/moved")).is_err());
            let started = std::process::Command::new("/bin/true").status();
            assert!(started.is_err(), "nothing may be run");
            let child = std::thread::spawn(move || fs::read(inside.join("other/file")).is_err());
            assert!(child.join().expect("ended"), "a thread of its own is limited, too");
            assert!(
                landlock_version().is_ok_and(|version| version < 4)
                    || TcpStream::connect(address).is_err(),
                "no connection is made"
            );
        });
        limited.join().expect("ended");
        assert_eq!(fs::read(base.join("other/file")).expect("read"), b"other");
        fs::remove_dir_all(&base).expect("removed");
    }

    #[test]
    fn a_right_covers_those_that_are_smaller() {
        use Right as R;
        for (large, small, expected) in [
            (R::Read, R::Read, true),
            (R::Read, R::Write, false),
            (R::Write, R::Read, true),
            (R::Write, R::Run, false),
            (R::Use, R::Run, true),
            (R::Use, R::Write, true),
        ] {
            assert_eq!(large.covers(small), expected, "{large:?} {small:?}");
        }
    }
}
