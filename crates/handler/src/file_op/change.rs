//! MKCOL, COPY and MOVE, as nginx's `dav` module has them: within one root, and each in one step as far
//! as the file system goes. What takes long is made under a name of ours first.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, RenameFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{Conflict, DeleteDirectories, FileOps, Sync};
use sekisho_http::{Head, Status, target};
use sekisho_route::{Destination, Table};

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::copy::{self, Tree};
use super::entries::EntryCheck;
use super::land::{self, Rules};
use super::ordering::{self, Appearing};
use super::{Answer, Call, Failure, Job, Outcome, Stop, delete, temp, webdav};
use crate::file_cache::files_changed;

/// MKCOL
pub(super) fn make_folder(call: &Call<'_>, file_ops: &FileOps) -> Result<Job, Failure> {
    let route_state = call.route_state;
    let file = route_state.file.clone();
    let fail = |errno| Failure::by(errno, Status::CONFLICT, "make folder", &file);
    let symlinks = call.settings().disable_symlinks;
    let spot = Spot::find(&file, route_state.root_bytes, symlinks, false).map_err(fail)?;
    if spot.name.is_empty() {
        return Err(Failure::of(Status::METHOD_NOT_ALLOWED));
    }
    let path = if file_ops.ext_methods.is_empty() {
        route_state.path.clone()
    } else {
        delete::folder_path(call, &route_state.path)?
    };
    if !path.ends_with(b"/") {
        // nginx's answer: a folder is named as one.
        return Err(Failure::because(Status::CONFLICT, "MKCOL was refused: no slash at the end"));
    }
    let conditions = Conditions::of(call);
    conditions.check(spot.look().map_err(fail)?.as_ref())?;
    conditions.check_locks(&file, false, true)?;
    let location = encoded(&path);
    let (mode, sync) = (file_ops.access.folder, file_ops.sync);
    Ok(Job::new(move || {
        let fail = |errno| Failure::by(errno, Status::CONFLICT, "make folder", &file);
        let done = {
            let _appearing = Appearing::at(&spot).map_err(fail)?;
            conditions.check_locks(&file, false, true)?;
            beneath::make_folder(&*spot.folder, &spot.name, mode)
        };
        match done {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(Failure::because(
                    Status::METHOD_NOT_ALLOWED,
                    "MKCOL was refused: the name is taken",
                ));
            }
            Err(errno) => return Err(fail(errno)),
        }
        files_changed();
        if sync == Sync::Full {
            land::sync_folder(&spot.folder).map_err(fail)?;
        }
        Ok(Answer::new(Status::CREATED).field("Location", &location))
    }))
}

/// COPY
pub(super) fn copy(
    call: &Call<'_>,
    file_ops: &FileOps,
    to: &Destination,
    table: Arc<Table>,
) -> Result<Job, Failure> {
    let change = Change::find(call, file_ops, to, table, false)?;
    let is_deep = match call.request.head.named(b"depth") {
        None | Some(b"infinity") => true,
        Some(b"0") => false,
        Some(_) => {
            return Err(Failure::because(
                Status::BAD_REQUEST,
                "COPY was refused: Depth is neither 0 nor infinity",
            ));
        }
    };
    Ok(Job::stopped_by(change.stop.clone(), move || change.copy(is_deep)))
}

/// MOVE
pub(super) fn rename(
    call: &Call<'_>,
    file_ops: &FileOps,
    to: &Destination,
    table: Arc<Table>,
) -> Result<Job, Failure> {
    let change = Change::find(call, file_ops, to, table, true)?;
    if !matches!(call.request.head.named(b"depth"), None | Some(b"infinity")) {
        return Err(Failure::because(
            Status::BAD_REQUEST,
            "MOVE was refused: Depth is not infinity",
        ));
    }
    Ok(Job::stopped_by(change.stop.clone(), move || change.rename()))
}

/// From here to there.
#[derive(Debug)]
struct Change {
    from: Spot,
    to: Spot,
    source: Stat,
    /// What is there already, and may go.
    old: Option<Stat>,
    rules: Rules,
    folders: DeleteDirectories,
    file: Vec<u8>,
    location: Vec<u8>,
    /// For what lies in a folder.
    check: EntryCheck,
    stop: Stop,
    locks: ChangeLocks,
}

/// Which locks the client knows, and what it needs them for.
#[derive(Debug)]
struct ChangeLocks {
    conditions: Conditions,
    is_move: bool,
    /// The file of the destination.
    to: Vec<u8>,
}

impl ChangeLocks {
    fn check(&self, from: &[u8], is_new: bool) -> Result<(), Failure> {
        if self.is_move {
            self.conditions.check_locks(from, true, true)?;
        }
        self.conditions.check_locks(&self.to, true, is_new)
    }
}

/// Whether one file lies in the folder of another, or is that folder.
fn is_within(file: &[u8], folder: &[u8]) -> bool {
    with_slash(file).starts_with(&with_slash(folder))
}

/// A listing shows a link to a folder as a folder, and a client names it so. MOVE renames the link.
fn is_link_as_folder(
    call: &Call<'_>,
    from: &Spot,
    source: &Stat,
    to: &Destination,
) -> Result<bool, Failure> {
    if !from.is_folder || !from.is_link_to_folder(source) {
        return Ok(false);
    }
    delete::check_link_path(call, &call.route_state.path)?;
    delete::check_link_path(call, &to.path)?;
    Ok(true)
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn with_slash(path: &[u8]) -> Vec<u8> {
    [without_slash(path), b"/"].concat()
}

impl Change {
    fn find(
        call: &Call<'_>,
        file_ops: &FileOps,
        to: &Destination,
        table: Arc<Table>,
        is_move: bool,
    ) -> Result<Self, Failure> {
        let is_webdav = !file_ops.ext_methods.is_empty();
        let (route_state, head) = (call.route_state, call.request.head);
        let overwrites = overwrites(head)?;
        let (root, symlinks) = (route_state.root_bytes, call.settings().disable_symlinks);
        let file = route_state.file.clone();
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "open", &file);
        let from = Spot::find(&file, root, symlinks, false).map_err(fail)?;
        let fail_there = |errno| Failure::by(errno, Status::CONFLICT, "open", &to.file);
        let there = Spot::find(&to.file, root, symlinks, false).map_err(fail_there)?;
        if from.name.is_empty() || there.name.is_empty() {
            return Err(Failure::because(Status::FORBIDDEN, "refused to change the root folder"));
        }
        let Some(source) = from.look().map_err(fail)? else {
            return Err(Failure::of(Status::NOT_FOUND));
        };
        let conditions = Conditions::of(call);
        conditions.check(Some(&source))?;
        let is_folder = match beneath::kind(&source) {
            FileType::Directory => true,
            FileType::RegularFile | FileType::Symlink => false,
            _ => {
                return Err(Failure::because(
                    Status::FORBIDDEN,
                    "refused to change something that is neither a file nor a folder",
                ));
            }
        };
        let is_link = is_move && is_link_as_folder(call, &from, &source, to)?;
        let may_differ = is_link || (is_webdav && is_folder);
        if is_folder != from.is_folder && !may_differ {
            return Err(Failure::because(
                Status::CONFLICT,
                "refused: a folder without a slash at the end, or a file with one",
            ));
        }
        let old = there.look().map_err(fail_there)?;
        if let Some(old) = &old {
            if (old.st_dev, old.st_ino) == (source.st_dev, source.st_ino) {
                return Err(Failure::because(
                    Status::FORBIDDEN,
                    "refused: source and destination are the same",
                ));
            }
            if !overwrites {
                return Err(Failure::because(
                    Status::PRECONDITION_FAILED,
                    "refused: the destination exists, and Overwrite is F",
                ));
            }
            let may_go = match (beneath::kind(old), is_folder) {
                (FileType::Directory, true) => {
                    file_ops.delete_directories != DeleteDirectories::Off
                }
                (FileType::Directory, false) => {
                    is_webdav && file_ops.delete_directories == DeleteDirectories::Recursive
                }
                (_, true) => is_webdav && land::may_replace(old),
                (_, false) => land::may_replace(old),
            };
            if !may_go {
                return Err(Failure::because(
                    Status::CONFLICT,
                    "refused: the destination may not be replaced",
                ));
            }
        }
        if is_folder && is_within(&to.file, &file) {
            // Into itself.
            return Err(Failure::because(
                Status::CONFLICT,
                "refused: a folder cannot be put into itself",
            ));
        }
        let rules = Rules { conflict: Conflict::Replace, ..Rules::of(file_ops) };
        let folders = file_ops.delete_directories;
        let (source_path, path) = if is_folder {
            (delete::folder_path(call, &route_state.path)?, with_slash(&to.path))
        } else {
            (route_state.path.clone(), without_slash(&to.path).to_vec())
        };
        let location = encoded(&path);
        let stop = Stop::default();
        // What is replaced lies below a folder of this path, whatever it is replaced by.
        let check = EntryCheck::of_change(call, table, source_path, with_slash(&path), &stop);
        let locks =
            ChangeLocks { conditions: conditions.without_states(), is_move, to: to.file.clone() };
        locks.check(&file, old.is_none())?;
        Ok(Self {
            from,
            to: there,
            source,
            old,
            rules,
            folders,
            file,
            location,
            check,
            stop,
            locks,
        })
    }

    /// Puts aside what is at the destination where it is of another kind: nothing replaces that in one step.
    fn displace(&mut self) -> Result<Option<Displaced>, Failure> {
        let Some(old) = &self.old else { return Ok(None) };
        let is_folder = |stat: &Stat| beneath::kind(stat) == FileType::Directory;
        if is_folder(old) == is_folder(&self.source) {
            return Ok(None);
        }
        if is_folder(old) {
            self.check.walk(&self.to.folder, &self.to.name)?;
        }
        let displaced = Displaced::put_aside(&self.to, is_folder(old));
        displaced
            .map(Some)
            .map_err(|errno| Failure::by(errno, Status::CONFLICT, "replace", &self.locks.to))
    }

    fn copy(mut self, is_deep: bool) -> Outcome {
        self.locks.check(&self.file, self.old.is_none())?;
        let displaced = self.displace()?;
        let old = if displaced.is_some() { self.old.take() } else { None };
        self.make_copy(is_deep)?;
        if let Some(displaced) = displaced {
            displaced.remove();
            self.old = old;
        }
        webdav::locks::forget_below(&self.locks.to);
        self.done()
    }

    fn make_copy(&self, is_deep: bool) -> Result<(), Failure> {
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "copy", &self.file);
        match beneath::kind(&self.source) {
            FileType::Directory => {
                if is_deep {
                    // Before anything is made: what must not be copied shall cost nothing.
                    self.check.walk(&self.from.folder, &self.from.name)?;
                }
                let tree = Tree::new(&self.to.folder, &self.stop).map_err(fail)?;
                let check = &self.check;
                tree.copy_folder(&self.from.folder, &self.from.name, is_deep, check, fail)?;
                self.replace_folder(tree.inside(), Tree::NAME, true)?.map_err(fail)?;
            }
            FileType::Symlink => {
                let tree = Tree::new(&self.to.folder, &self.stop).map_err(fail)?;
                tree.copy_link(&self.from.folder, &self.from.name).map_err(fail)?;
                let to = &self.to;
                let _appearing = Appearing::at(to).map_err(fail)?;
                rustix::fs::renameat(tree.inside(), Tree::NAME, &*to.folder, &*to.name)
                    .map_err(fail)?;
            }
            _ => {
                let file = copy::open_file(&self.from.folder, &self.from.name).map_err(fail)?;
                let (temp, stat) =
                    copy::copy_file(&file, &self.to.folder, &self.stop).map_err(fail)?;
                let rules = copy::rules(&self.rules, &stat);
                land::land(
                    temp,
                    &self.to,
                    &self.locks.conditions,
                    &rules,
                    without_slash(&self.locks.to),
                )?;
            }
        }
        Ok(())
    }

    fn rename(mut self) -> Outcome {
        self.locks.check(&self.file, self.old.is_none())?;
        let displaced = self.displace()?;
        let old = if displaced.is_some() { self.old.take() } else { None };
        self.make_rename()?;
        if let Some(displaced) = displaced {
            displaced.remove();
            self.old = old;
        }
        // A lock stays where it is, and nothing is there any more (RFC 4918 §7.7).
        webdav::locks::forget(&self.file);
        webdav::locks::forget_below(&self.locks.to);
        self.done()
    }

    fn make_rename(&self) -> Result<(), Failure> {
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "move", &self.file);
        let renamed = if beneath::kind(&self.source) == FileType::Directory {
            self.replace_folder(&self.from.folder, &self.from.name, false)?
        } else {
            let (from, to) = (&self.from, &self.to);
            let _appearing = Appearing::at(to).map_err(fail)?;
            from.check_place().map_err(fail)?;
            let _turn = land::turn(&to.name);
            rustix::fs::renameat(&*from.folder, &*from.name, &*to.folder, &*to.name)
        };
        match renamed {
            Ok(()) => Ok(()),
            // Another file system is mounted within the root.
            Err(Errno::XDEV) => {
                let Spot { folder, name, .. } = self.from.clone();
                let is_folder = beneath::kind(&self.source) == FileType::Directory;
                self.make_copy(true)?;
                if is_folder {
                    delete::remove_tree(&folder, &name)
                } else {
                    rustix::fs::unlinkat(&*folder, name, AtFlags::empty())
                }
                .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "delete", &self.file))?;
                files_changed();
                Ok(())
            }
            Err(errno) => Err(fail(errno)),
        }
    }

    /// Gives a folder its new name: the source, or a copy that no other request can reach. One that is in the
    /// way is swapped out in the same step, and removed then, as far as folders may be removed at all. Both
    /// have been looked through before.
    fn replace_folder(
        &self,
        folder: &rustix::fd::OwnedFd,
        name: &[u8],
        is_copy: bool,
    ) -> Result<Result<(), Errno>, Failure> {
        let to = &self.to;
        let is_removed = self.old.is_some() && self.folders == DeleteDirectories::Recursive;
        let look = || {
            // A copy was checked as it was made.
            let mut seen = if is_copy { HashSet::new() } else { self.check.walk(folder, name)? };
            if is_removed {
                seen.extend(self.check.walk(&to.folder, &to.name)?);
            }
            Ok(seen)
        };
        let change = || {
            if self.old.is_none() {
                let flags = RenameFlags::NOREPLACE;
                return rustix::fs::renameat_with(folder, name, &*to.folder, &*to.name, flags);
            }
            if self.folders == DeleteDirectories::Empty {
                // A rename over a folder that is not empty fails.
                return delete::when_empty(&to.folder, &to.name, || {
                    rustix::fs::renameat(folder, name, &*to.folder, &*to.name)
                });
            }
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(folder, name, &*to.folder, &*to.name, flags)
        };
        let spots: &[&Spot] = if is_copy { &[to] } else { &[to, &self.from] };
        let changed = ordering::look_then_change(spots, look, change)?;
        Ok(changed
            .and_then(|()| if is_removed { delete::remove_tree(folder, name) } else { Ok(()) }))
    }

    fn done(self) -> Outcome {
        files_changed();
        if self.rules.sync == Sync::Full {
            let synced = [&self.from.folder, &self.to.folder].map(Arc::clone);
            for folder in synced {
                land::sync_folder(&folder)
                    .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "sync", &self.file))?;
            }
        }
        Ok(match self.old {
            Some(_) => Answer::new(Status::NO_CONTENT),
            None => Answer::new(Status::CREATED).field("Location", &self.location),
        })
    }
}

/// What was at a destination, under a name of ours; it comes back unless something has taken its place.
#[derive(Debug)]
struct Displaced {
    to: Spot,
    own: String,
    is_folder: bool,
    /// Says "in use" for as long as it is open.
    _locked: Option<rustix::fd::OwnedFd>,
}

impl Displaced {
    fn put_aside(to: &Spot, is_folder: bool) -> Result<Self, Errno> {
        let own = format!("{}{}", temp::PREFIX, temp::random());
        let opened = if is_folder {
            Some(delete::open_to_read(&*to.folder, &to.name)?)
        } else {
            copy::open_file(&to.folder, &to.name).ok()
        };
        if let Some(opened) = &opened {
            temp::lock(opened.as_fd());
        }
        rustix::fs::renameat(&*to.folder, &*to.name, &*to.folder, &*own)?;
        Ok(Self { to: to.clone(), own, is_folder, _locked: opened })
    }

    fn remove(self) {
        let folder = &self.to.folder;
        let _ = if self.is_folder {
            delete::remove_tree(folder, self.own.as_bytes())
        } else {
            rustix::fs::unlinkat(&**folder, &*self.own, AtFlags::empty())
        };
    }
}

impl Drop for Displaced {
    fn drop(&mut self) {
        // If something has taken its place, this fails, and what is left is gone or removed by a sweep.
        let (folder, flags) = (&*self.to.folder, RenameFlags::NOREPLACE);
        let _ = rustix::fs::renameat_with(folder, &*self.own, folder, &*self.to.name, flags);
    }
}

/// `Overwrite`: an existing destination may be replaced unless it is `F`.
fn overwrites(head: &Head) -> Result<bool, Failure> {
    match head.named(b"overwrite") {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(_) => {
            Err(Failure::because(Status::BAD_REQUEST, "refused: Overwrite is neither T nor F"))
        }
    }
}

fn encoded(path: &[u8]) -> Vec<u8> {
    let mut location = Vec::new();
    target::encode_path(path, &mut location);
    location
}
