//! MKCOL, COPY and MOVE, as nginx's `dav` module has them: within one root, and each in one step as far
//! as the file system goes. What takes long is made under a name of ours first.

use std::collections::HashSet;
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
use super::{Answer, Call, Failure, Job, Outcome, Stop, delete};
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
    if !spot.is_folder {
        // nginx's answer: a folder is named as one.
        return Err(Failure::because(Status::CONFLICT, "MKCOL was refused: no slash at the end"));
    }
    Conditions::of(call.request.head).check(spot.look().map_err(fail)?.as_ref())?;
    let location = encoded(&route_state.path);
    let (mode, sync) = (file_ops.access.folder, file_ops.sync);
    Ok(Job::new(move || {
        let fail = |errno| Failure::by(errno, Status::CONFLICT, "make folder", &file);
        let done = {
            let _appearing = Appearing::at(&spot).map_err(fail)?;
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
    let change = Change::find(call, file_ops, to, table)?;
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
    let change = Change::find(call, file_ops, to, table)?;
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
}

impl Change {
    fn find(
        call: &Call<'_>,
        file_ops: &FileOps,
        to: &Destination,
        table: Arc<Table>,
    ) -> Result<Self, Failure> {
        let (route_state, head) = (call.route_state, call.request.head);
        let overwrites = overwrites(head)?;
        let (root, symlinks) = (route_state.root_bytes, call.settings().disable_symlinks);
        let file = route_state.file.clone();
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "open", &file);
        let from = Spot::find(&file, root, symlinks, false).map_err(fail)?;
        let fail_there = |errno| Failure::by(errno, Status::CONFLICT, "open", &to.file);
        let there = Spot::find(&to.file, root, symlinks, false).map_err(fail_there)?;
        if from.name.is_empty() || there.name.is_empty() {
            return Err(Failure::because(
                Status::FORBIDDEN,
                "a change was refused: it names the root",
            ));
        }
        let Some(source) = from.look().map_err(fail)? else {
            return Err(Failure::of(Status::NOT_FOUND));
        };
        Conditions::of(head).check(Some(&source))?;
        let is_folder = match beneath::kind(&source) {
            FileType::Directory => true,
            FileType::RegularFile | FileType::Symlink => false,
            _ => {
                return Err(Failure::because(
                    Status::FORBIDDEN,
                    "a change was refused: it names what is no file",
                ));
            }
        };
        if is_folder != from.is_folder {
            return Err(Failure::because(
                Status::CONFLICT,
                "a change was refused: a folder without its slash, or a file with one",
            ));
        }
        let old = there.look().map_err(fail_there)?;
        if let Some(old) = &old {
            if (old.st_dev, old.st_ino) == (source.st_dev, source.st_ino) {
                return Err(Failure::because(
                    Status::FORBIDDEN,
                    "a change was refused: the destination is the source",
                ));
            }
            if !overwrites {
                return Err(Failure::because(
                    Status::PRECONDITION_FAILED,
                    "a change was refused: the destination is there, and Overwrite is F",
                ));
            }
            let may_go = match beneath::kind(old) {
                FileType::Directory => {
                    is_folder && file_ops.delete_directories != DeleteDirectories::Off
                }
                _ => !is_folder && land::may_replace(old),
            };
            if !may_go {
                return Err(Failure::because(
                    Status::CONFLICT,
                    "a change was refused: what is at the destination may not be replaced",
                ));
            }
        }
        if is_folder && to.file.starts_with(&file) {
            // Into itself.
            return Err(Failure::because(
                Status::CONFLICT,
                "a change was refused: a folder into itself",
            ));
        }
        let rules = Rules { conflict: Conflict::Replace, ..Rules::of(file_ops) };
        let folders = file_ops.delete_directories;
        let location = encoded(&to.path);
        let stop = Stop::default();
        let check = EntryCheck::of_change(call, table, &to.path, &stop);
        Ok(Self { from, to: there, source, old, rules, folders, file, location, check, stop })
    }

    fn copy(self, is_deep: bool) -> Outcome {
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
                let none = Conditions::default();
                land::land(temp, &self.to, &none, &rules, &self.file)?;
            }
        }
        self.done()
    }

    fn rename(self) -> Outcome {
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
            Ok(()) => self.done(),
            // Another file system is mounted within the root.
            Err(Errno::XDEV) => {
                let Spot { folder, name, .. } = self.from.clone();
                let is_folder = beneath::kind(&self.source) == FileType::Directory;
                let file = self.file.clone();
                let answer = self.copy(true)?;
                if is_folder {
                    delete::remove_tree(&folder, &name)
                } else {
                    rustix::fs::unlinkat(&*folder, name, AtFlags::empty())
                }
                .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "delete", &file))?;
                files_changed();
                Ok(answer)
            }
            Err(errno) => Err(fail(errno)),
        }
    }

    /// Gives a folder its new name: the source, or a copy that nobody else can reach. One that is in the way is
    /// swapped out in the same step, and removed then, as far as folders may be removed at all. Both have been
    /// looked through before.
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

/// `Overwrite`: what is in the way may go unless it says `F`.
fn overwrites(head: &Head) -> Result<bool, Failure> {
    match head.named(b"overwrite") {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(_) => Err(Failure::because(
            Status::BAD_REQUEST,
            "a change was refused: Overwrite is neither T nor F",
        )),
    }
}

fn encoded(path: &[u8]) -> Vec<u8> {
    let mut location = Vec::new();
    target::encode_path(path, &mut location);
    location
}
