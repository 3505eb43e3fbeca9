//! Files that root opens below folders of another user, such as the logs' folder, which belongs to the user
//! that the server changes to: a link that this user puts there, in the place of the file or of any folder on
//! the way, would have root write to any file of the machine.
//!
//! So the way is walked one name at a time, and root follows a link only where no other user can have put it.
//! A link to our own output (`access.log -> /dev/stdout`, as containers have it) opens nothing: the
//! descriptor that is open is used, also if the present user could not open it again.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;

/// More links than this lead nowhere, as the kernel has it.
const LINKS_MAX: usize = 40;
/// The usual mode of new files; the umask takes from it.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);
const STICKY: u32 = 0o1000;
/// Others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// The server's user: root does not open for it along a path that it can change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Whether it can put something else in the place of what lies in a folder.
    fn can_change(&self, folder: &Stat) -> bool {
        let is_sticky = folder.st_mode & STICKY != 0;
        let by_group = folder.st_mode & 0o020 != 0 && self.groups.contains(&folder.st_gid);
        folder.st_uid == self.uid || (!is_sticky && (by_group || folder.st_mode & 0o002 != 0))
    }
}

/// Opens a regular file for reading, to give it to a process of this user. It is refused where that user can change a
/// folder on the way, or has made a link there: it would choose which file root opens.
pub fn open_to_give(path: &Path, user: &User) -> io::Result<File> {
    let mut walk = Walk::new(path)?;
    walk.reader = Some(user.clone());
    while let Some(name) = walk.rest.pop() {
        let about = rustix::fs::fstat(&walk.folder)?;
        if user.uid != 0 && user.can_change(&about) {
            let text = format!(
                "the server's user can change the folder \"{}\": root does not open files there for it",
                walk.shown.display()
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        let found = walk.look(&name)?.ok_or(ErrorKind::NotFound)?;
        if found.is_link() {
            match walk.target(&found, &name)? {
                Target::Path(target) => walk.go_to(&target)?,
                Target::Output(_) | Target::Magic => return Err(Errno::INVAL.into()),
            }
            continue;
        }
        if !walk.rest.is_empty() {
            walk.enter(&name, OFlags::NOFOLLOW)?;
            continue;
        }
        let file = open_at(&walk.folder, &name, OFlags::RDONLY | OFlags::NOFOLLOW)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        return Ok(file);
    }
    Err(Errno::ISDIR.into())
}

/// Opens a file for writing; as root, not by a link that another user can have put there. Opening does not
/// wait for the reader of a FIFO; writing does.
pub fn open_guarded(flags: OFlags, path: &Path) -> io::Result<File> {
    let is_new = flags.contains(OFlags::EXCL);
    if let Some(output) = own_output(path) {
        return if is_new { Err(ErrorKind::AlreadyExists.into()) } else { output };
    }
    let mut walk = Walk::new(path)?;
    while let Some(name) = walk.rest.pop() {
        let is_last = walk.rest.is_empty();
        let Some(link) = walk.look(&name)?.filter(Found::is_link) else {
            if is_last {
                return open_at(&walk.folder, &name, flags | OFlags::NOFOLLOW);
            }
            walk.enter(&name, OFlags::NOFOLLOW)?;
            continue;
        };
        if is_last && is_new {
            return Err(ErrorKind::AlreadyExists.into());
        }
        match walk.target(&link, &name)? {
            Target::Output(output) if is_last => return output,
            Target::Output(_) => return Err(Errno::NOTDIR.into()),
            Target::Magic if is_last => return open_at(&walk.folder, &name, flags),
            Target::Magic => walk.enter(&name, OFlags::empty())?,
            Target::Path(target) => walk.go_to(&target)?,
        }
    }
    Err(Errno::ISDIR.into())
}

/// Whether a path means our own output, by itself or by a link.
pub fn is_own_output(path: &Path) -> bool {
    let leads_there = |target: PathBuf| output_of(&target).is_some();
    output_of(path).is_some() || std::fs::read_link(path).is_ok_and(leads_there)
}

fn open_at(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name, flags, NEW_FILE)?;
    rustix::fs::fcntl_setfl(&opened, rustix::fs::fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    Ok(opened.into())
}

/// Where a walk is.
struct Walk {
    folder: OwnedFd,
    /// Its name, for people.
    shown: PathBuf,
    /// The names that are left, the next one last.
    rest: Vec<OsString>,
    links: usize,
    is_root: bool,
    /// The user that a file is opened for, where it is to be read.
    reader: Option<User>,
}

/// What a name stands for.
struct Found {
    file: OwnedFd,
    about: Stat,
}

impl Found {
    fn is_link(&self) -> bool {
        FileType::from_raw_mode(self.about.st_mode) == FileType::Symlink
    }
}

/// Where a link leads.
enum Target {
    Path(PathBuf),
    /// To a descriptor of ours: a second one of it.
    Output(io::Result<File>),
    /// To an object of the kernel that has no path.
    Magic,
}

/// The standard streams.
enum Output {
    Standard,
    Error,
}

impl Walk {
    fn new(path: &Path) -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        // The current folder may be one that this user cannot enter.
        let start = if path.is_absolute() { "/" } else { "." };
        let folder = folder_at(rustix::fs::CWD, OsStr::new(start), OFlags::empty())?;
        let (shown, rest) = (PathBuf::new(), Vec::new());
        let mut walk = Self { folder, shown, rest, links: 0, is_root, reader: None };
        walk.go_to(path)?;
        Ok(walk)
    }

    /// What comes next is this path, from here or from the root.
    fn go_to(&mut self, path: &Path) -> io::Result<()> {
        if path.is_absolute() {
            self.folder = folder_at(rustix::fs::CWD, OsStr::new("/"), OFlags::empty())?;
            self.shown = PathBuf::from("/");
        }
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // A folder, whatever is there.
            self.rest.push(OsString::from("."));
        }
        let names = path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            Component::ParentDir => Some(OsStr::new("..")),
            _ => None,
        });
        self.rest.extend(names.map(OsStr::to_owned));
        Ok(())
    }

    /// What has this name, if anything has; a link is not followed.
    fn look(&self, name: &OsStr) -> io::Result<Option<Found>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(Found { about: rustix::fs::fstat(&file)?, file })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn enter(&mut self, name: &OsStr, flags: OFlags) -> io::Result<()> {
        self.folder = folder_at(self.folder.as_fd(), name, flags)?;
        self.shown.push(name);
        Ok(())
    }

    /// Where a link leads, if it may be followed.
    fn target(&mut self, link: &Found, name: &OsStr) -> io::Result<Target> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let text = rustix::fs::readlinkat(&link.file, c"", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(text.into_bytes()));
        let path = self.shown.join(name);
        if let Some(output) = own_output(&target) {
            // Nothing is opened, so it does not matter whose link it is.
            return Ok(Target::Output(output));
        }
        match &self.reader {
            Some(user) if user.uid != 0 && link.about.st_uid == user.uid => {
                let text = format!("\"{}\" is a link of the server's user", path.display());
                return Err(io::Error::new(ErrorKind::PermissionDenied, text));
            }
            None if self.is_root => self.must_be_roots(link, &path)?,
            _ => {}
        }
        // Those in `/proc` itself are paths (`self`); those below are not, whatever they look like.
        let is_magic = self.shown != Path::new("/proc")
            && rustix::fs::fstatfs(&self.folder)?.f_type == PROC_SUPER_MAGIC;
        Ok(if is_magic { Target::Magic } else { Target::Path(target) })
    }

    /// A link is root's own when it belongs to root, and no other user can have moved it to where it is.
    fn must_be_roots(&self, link: &Found, path: &Path) -> io::Result<()> {
        let folder = rustix::fs::fstat(&self.folder)?;
        let is_shut = folder.st_mode & OTHERS_WRITE == 0 || folder.st_mode & STICKY != 0;
        let why = if link.about.st_uid != 0 {
            "is a link of another user"
        } else if folder.st_uid != 0 || !is_shut {
            "is a link in a folder that another user may write to"
        } else {
            return Ok(());
        };
        let text = format!("\"{}\" {why}, which root does not follow", path.display());
        Err(io::Error::new(ErrorKind::PermissionDenied, text))
    }
}

fn folder_at(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

/// Which of our outputs a path means.
fn output_of(path: &Path) -> Option<Output> {
    match path.to_str()? {
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Some(Output::Standard),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Some(Output::Error),
        _ => None,
    }
}

/// A second descriptor of our own standard output or error output, where a path means that.
fn own_output(path: &Path) -> Option<io::Result<File>> {
    let output = match output_of(path)? {
        Output::Standard => io::stdout().as_fd().try_clone_to_owned(),
        Output::Error => io::stderr().as_fd().try_clone_to_owned(),
    };
    Some(output.and_then(|output| {
        let mode = rustix::fs::fcntl_getfl(&output)? & OFlags::RWMODE;
        if mode == OFlags::RDONLY {
            return Err(io::Error::other("it is not open for writing"));
        }
        Ok(output.into())
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE);
    const NOBODY: u32 = 65_534;

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!("skipped: only root can make links of another user");
        }
        is_root
    }

    fn give(path: &Path) {
        lchown(path, Some(NOBODY), Some(NOBODY)).expect("it is theirs now");
    }

    /// V45: the owner of the folder does not choose what root writes to; a link that root has put there is
    /// followed.
    #[test]
    fn root_follows_no_link_of_another_user() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let open = |name: &str| open_guarded(APPEND, &at(name));
        std::fs::write(at("secret"), "").expect("a file");
        for (link, target) in [("theirs", "secret"), ("nowhere", "not-there"), ("own", "secret")] {
            symlink(at(target), at(link)).expect("a link");
            if link != "own" {
                give(&at(link));
            }
        }
        for link in ["theirs", "nowhere"] {
            let error = open(link).expect_err("not followed");
            assert!(error.to_string().contains("another user"), "{error}");
        }
        assert!(!at("not-there").exists());
        open("own").expect("root's own link is followed");
        open("plain").expect("no link at all");
    }

    /// V45: nor by way of a folder that is such a link, wherever on the way it stands.
    #[test]
    fn root_follows_no_link_of_another_user_in_the_folders_above() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        for folder in ["secret/below", "theirs", "open", "sticky"] {
            std::fs::create_dir_all(at(folder)).expect("a folder");
        }
        for (folder, mode) in [("open", 0o777), ("sticky", 0o1777)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(at(folder), mode).expect("its rights");
        }
        give(&at("theirs"));
        for link in ["own", "theirs/link", "theirs/moved", "open/link", "sticky/link"] {
            symlink(at("secret"), at(link)).expect("a link");
        }
        give(&at("theirs/link"));
        for (path, refusal) in [
            ("theirs/link/x.log", Some("of another user")),
            ("theirs/link/below/x.log", Some("of another user")),
            // A link of root that they can have moved there.
            ("theirs/moved/x.log", Some("that another user may write to")),
            ("open/link/x.log", Some("that another user may write to")),
            ("sticky/link/x.log", None),
            ("own/x.log", None),
            ("own/below/../x.log", None),
            ("theirs/x.log", None),
        ] {
            let opened = open_guarded(APPEND, &at(path));
            let said = opened.as_ref().err().map(ToString::to_string);
            assert_eq!(said.is_some(), refusal.is_some(), "{path}: {said:?}");
            let (said, refusal) = (said.unwrap_or_default(), refusal.unwrap_or_default());
            assert!(said.contains(refusal), "{path}: {said}");
            // Seen by its absence: nothing was made there.
            let is_made = at("secret/x.log").exists() || at("secret/below/x.log").exists();
            assert!(said.is_empty() || !is_made, "{path}");
            std::fs::remove_file(at("secret/x.log")).ok();
        }
    }

    /// O8: a worker process that was taken over cannot have root open another file for it.
    #[test]
    fn root_opens_nothing_for_a_user_along_a_path_that_the_user_can_change() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let user = User { uid: NOBODY, groups: vec![NOBODY] };
        let open = |name: &str| open_to_give(&at(name), &user);
        for folder in ["shut/live", "theirs", "sticky", "open"] {
            std::fs::create_dir_all(at(folder)).expect("a folder");
        }
        for (folder, mode) in [("shut", 0o700), ("sticky", 0o1777), ("open", 0o777)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(at(folder), mode).expect("its mode");
        }
        std::fs::write(at("shut/key"), "secret").expect("a file");
        symlink("../key", at("shut/live/key")).expect("a link");
        open("shut/key").expect("root's file in root's folder");
        open("shut/live/key").expect("through root's link, as certbot has it");
        std::fs::write(at("theirs/key"), "").expect("a file");
        symlink(at("shut/key"), at("sticky/link")).expect("a link");
        give(&at("sticky/link"));
        symlink(at("shut/key"), at("theirs/link")).expect("a link");
        give(&at("theirs"));
        std::fs::write(at("open/key"), "").expect("a file");
        for path in ["theirs/key", "theirs/link", "open/key", "sticky/link"] {
            let error = open(path).expect_err(path);
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}: {error}");
        }
        for path in ["shut", "shut/none"] {
            open(path).expect_err(path);
        }
    }

    /// V45, O6: a link to our own output opens nothing, whichever user has made it.
    #[test]
    fn a_link_to_our_own_output_is_that_output() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let output = File::from(io::stderr().as_fd().try_clone_to_owned().expect("ours"));
        let known = output.metadata().expect("its number");
        for (name, target) in [("a.log", "/dev/stderr"), ("b.log", "/proc/self/fd/2")] {
            let path = dir.path().join(name);
            symlink(target, &path).expect("a link");
            if rustix::process::geteuid().is_root() {
                give(&path);
                give(dir.path());
            }
            for path in [path.as_path(), Path::new(target)] {
                let new = open_guarded(APPEND | OFlags::EXCL, path).expect_err("it is there");
                assert_eq!(new.kind(), ErrorKind::AlreadyExists);
                let found = open_guarded(APPEND, path).expect("it opens").metadata();
                let found = found.expect("its number");
                assert_eq!((found.dev(), found.ino()), (known.dev(), known.ino()), "{path:?}");
            }
            let below = open_guarded(APPEND, &path.join("below")).expect_err("no folder");
            assert_eq!(below.kind(), ErrorKind::NotADirectory);
        }
    }

    #[test]
    fn links_that_lead_in_circles_and_paths_of_folders_are_errors() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("loop");
        symlink(&path, &path).expect("a link");
        let error = open_guarded(APPEND, &path).expect_err("a circle");
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        for path in [dir.path(), Path::new("/"), &dir.path().join("none/x.log")] {
            open_guarded(APPEND, path).expect_err("no file can be made there");
        }
    }
}
