//! DELETE: removes a file, or if allowed a folder (F6).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sekisho_config::{DeleteDirectories, FileOps};
use sekisho_http::Status;
use sekisho_route::Table;

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::entries::EntryCheck;
use super::{Answer, Call, Failure, Job, Stop, land, ordering, resume, temp, webdav};
use crate::file_cache::files_changed;

/// How many folders within each other are open at once while they are removed.
const DEPTH_MAX: usize = 64;
/// A folder with more notes than these is not empty.
const NOTES_MAX: usize = 10_000;

/// Looks whether it may go, and how.
pub(super) fn job(call: &Call<'_>, file_ops: &FileOps, table: Arc<Table>) -> Result<Job, Failure> {
    let route_state = call.route_state;
    if !is_deep_enough(&route_state.path, file_ops.delete_depth_min) {
        return Err(Failure::because(
            Status::CONFLICT,
            "DELETE was refused: less deep than min_delete_depth",
        ));
    }
    let depth = call.request.head.named(b"depth");
    let file = route_state.file.clone();
    let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "delete", &file);
    let symlinks = call.settings().disable_symlinks;
    let spot = Spot::find(&file, route_state.root_bytes, symlinks, false).map_err(fail)?;
    if spot.name.is_empty() {
        // The root itself is the configuration's.
        return Err(Failure::because(Status::FORBIDDEN, "DELETE was refused: it names the root"));
    }
    let Some(there) = spot.look().map_err(fail)? else { return Err(Status::NOT_FOUND.into()) };
    let conditions = Conditions::of(call);
    conditions.check_locks(&file, true, true)?;
    if beneath::kind(&there) == FileType::Directory {
        let how = file_ops.delete_directories;
        // As in nginx: a folder must be named with a slash, and is removed with all that is in it or not at
        // all.
        match (how, spot.is_folder, depth) {
            (DeleteDirectories::Off, ..) => {
                return Err(Failure::because(
                    Status::FORBIDDEN,
                    "DELETE was refused: a folder, and upload_delete_directories is off",
                ));
            }
            (_, false, _) if file_ops.ext_methods.is_empty() => {
                return Err(Failure::because(
                    Status::CONFLICT,
                    "DELETE was refused: a folder, and no slash at the end",
                ));
            }
            (_, _, None | Some(b"infinity")) => {}
            (_, _, Some(_)) => {
                return Err(Failure::because(
                    Status::BAD_REQUEST,
                    "DELETE was refused: Depth is not infinity",
                ));
            }
        }
        let stop = Stop::default();
        let path = folder_path(call, &route_state.path)?;
        let check = EntryCheck::of_delete(call, table, path, &stop);
        return Ok(Job::stopped_by(stop, move || {
            let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "delete", &file);
            conditions.check(Some(&there))?;
            conditions.check_locks(&file, true, true)?;
            match how {
                DeleteDirectories::Recursive => remove_checked(&spot, &check)?,
                _ => when_empty(&spot.folder, &spot.name, || {
                    rustix::fs::unlinkat(&*spot.folder, &*spot.name, AtFlags::REMOVEDIR)
                }),
            }
            .map_err(fail)?;
            files_changed();
            webdav::locks::forget(&file);
            Ok(Answer::new(Status::NO_CONTENT))
        }));
    }
    if spot.is_folder {
        // A listing shows a link to a folder as a folder: the link goes, and nothing behind it.
        if !spot.is_link_to_folder(&there) {
            return Err(Failure::of(Status::NOT_FOUND));
        }
        check_link_path(call, &route_state.path)?;
    }
    if !matches!(depth, None | Some(b"0" | b"infinity")) {
        return Err(Failure::because(
            Status::BAD_REQUEST,
            "DELETE was refused: Depth is neither 0 nor infinity",
        ));
    }
    if !land::may_replace(&there) {
        // A device, a socket or a FIFO is no file of ours.
        return Err(Failure::because(
            Status::FORBIDDEN,
            "DELETE was refused: it names what is no file",
        ));
    }
    Ok(Job::new(move || {
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "delete", &file);
        let _turn = land::turn(&spot.name);
        let there = spot.look().map_err(fail)?;
        conditions.check(there.as_ref())?;
        conditions.check_locks(&file, true, true)?;
        rustix::fs::unlinkat(&*spot.folder, spot.name.as_slice(), AtFlags::empty())
            .map_err(fail)?;
        files_changed();
        webdav::locks::forget(&file);
        Ok(Answer::new(Status::NO_CONTENT))
    }))
}

/// The path of a folder, with its slash. Where a client left that out, the folder's own rules must be those of the
/// path that was asked for.
pub(super) fn folder_path(call: &Call<'_>, path: &[u8]) -> Result<Vec<u8>, Failure> {
    if path.ends_with(b"/") {
        return Ok(path.to_vec());
    }
    let path = [path, b"/"].concat();
    if call.table.is_entry_of(call.route_state.location, &path) {
        return Ok(path);
    }
    Err(Failure::because(
        Status::FORBIDDEN,
        "refused: another location is responsible for the folder",
    ))
}

/// A link that is named as the folder that it leads to: the rules of its own path must be those of the folder.
pub(super) fn check_link_path(call: &Call<'_>, path: &[u8]) -> Result<(), Failure> {
    let own = path.strip_suffix(b"/").unwrap_or(path);
    if call.table.is_entry_of(call.route_state.location, own) {
        return Ok(());
    }
    Err(Failure::because(
        Status::FORBIDDEN,
        "refused: another location is responsible for the link",
    ))
}

/// `min_delete_depth`, counted as nginx does: so many slashes, and something behind the last of them.
pub(crate) fn is_deep_enough(path: &[u8], depth_min: usize) -> bool {
    let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    match depth_min.checked_sub(1) {
        None => true,
        Some(before) => slashes.nth(before).is_some_and(|(at, _)| at + 1 < path.len()),
    }
}

/// Does what needs an empty folder. Notes about uploads that have their names already are no content: clients
/// do not see them, so they are removed when nothing else is there.
pub(super) fn when_empty(
    folder: &OwnedFd,
    name: &[u8],
    file_op: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match file_op() {
        Err(errno @ (Errno::NOTEMPTY | Errno::EXIST)) => {
            let opened = open_to_read(folder, name)?;
            let mut notes = Vec::new();
            for entry in Dir::read_from(&opened)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if notes.len() == NOTES_MAX || !resume::is_finished(&opened, name) {
                    return Err(errno);
                }
                notes.push(name.to_vec());
            }
            for note in notes {
                rustix::fs::unlinkat(&opened, note, AtFlags::empty())?;
            }
            file_op()
        }
        done => done,
    }
}

/// Looks at all that is in a folder, and removes it if each entry may be removed. It is moved out of reach in
/// one step; if something in it cannot be removed, the rest is moved back.
fn remove_checked(spot: &Spot, check: &EntryCheck) -> Result<Result<(), Errno>, Failure> {
    let own = format!("{}{}", temp::PREFIX, temp::random());
    let hide = || {
        let opened = open_to_read(&*spot.folder, &spot.name)?;
        temp::lock(opened.as_fd());
        rustix::fs::renameat(&*spot.folder, &*spot.name, &*spot.folder, &*own)?;
        Ok(opened)
    };
    let look = || check.walk(&spot.folder, &spot.name);
    let hidden = ordering::look_then_change(&[spot], look, hide)?;
    Ok(hidden.and_then(|_locked| {
        remove_tree(&spot.folder, own.as_bytes()).inspect_err(|_| {
            let flags = RenameFlags::NOREPLACE;
            let folder = &*spot.folder;
            let _ = rustix::fs::renameat_with(folder, &*own, folder, &*spot.name, flags);
        })
    }))
}

/// Removes a folder and everything in it, never through a link. Where that fails, the rest stays.
pub(super) fn remove_tree(folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let opened = open_to_read(folder, name)?;
    empty(&opened, &opened, 0)?;
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// `top` is the folder that all of this is in.
fn empty(top: &OwnedFd, folder: &OwnedFd, depth: usize) -> Result<(), Errno> {
    // Names that are removed while a folder is read may hide others from the reader: it is read again
    // until there is nothing more to remove.
    loop {
        let mut is_empty = true;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            is_empty = false;
            match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) if depth >= DEPTH_MAX => {
                    // However deep folders lie, so many are open at once: the rest is lifted to the top, where
                    // it is met when the top is read again.
                    let lifted = format!("{}{}", temp::PREFIX, temp::random());
                    rustix::fs::renameat(folder, name, top, &*lifted)?;
                }
                Err(Errno::ISDIR | Errno::PERM) => {
                    let inner = open_to_read(folder, name)?;
                    empty(top, &inner, depth + 1)?;
                    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        if is_empty {
            return Ok(());
        }
    }
}

/// A folder whose entries can be read, and that is no link.
pub(super) fn open_to_read(folder: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_as_nginx_does() {
        for (path, depth_min, expected) in [
            ("/a", 0, true),
            ("/a", 1, true),
            ("/", 1, false),
            ("/a", 2, false),
            ("/a/", 2, false),
            ("/a/b", 2, true),
            ("/a/b/", 2, true),
            ("/a/b", 3, false),
            ("/a", usize::MAX, false),
        ] {
            assert_eq!(is_deep_enough(path.as_bytes(), depth_min), expected, "{path} {depth_min}");
        }
    }
}
