//! PROPFIND: the properties of a file, or of a folder and what is in it. An entry that another location answers for, or
//! that would be run as a program, is not listed; nor is what a listing could not open.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{FileOps, LocationId, Symlinks};
use sekisho_http::Status;
use sekisho_lifecycle::Share;
use sekisho_route::Table;
use sekisho_webdav::multistatus::{self, Found, MultiStatus};
use sekisho_webdav::{DeadProperties, Propfind};

use super::super::intake::Intake;
use super::super::{Call, Failure, Outcome, Stop, beneath};
use super::properties::{self, Known, Resource};
use super::{Depth, dead, depth, invalid, receive, xml};
use crate::file_cache;
use crate::memory::{self, Class};

/// How much of the answer is accounted for at a time.
const ACCOUNT_BYTES: usize = 64 << 10;

/// A request for properties, once its body is there.
struct Asked {
    table: Arc<Table>,
    location: LocationId,
    path: Vec<u8>,
    file: Vec<u8>,
    root_bytes: usize,
    symlinks: Symlinks,
    depth: Depth,
    has_locks: bool,
    stop: Stop,
}

/// Takes the body.
pub(in super::super) fn begin(
    call: &Call<'_>,
    file_ops: &FileOps,
    table: Arc<Table>,
) -> Result<Intake, Failure> {
    let route_state = call.route_state;
    let asked = Asked {
        table,
        location: route_state.location,
        path: route_state.path.clone(),
        file: route_state.file.clone(),
        root_bytes: route_state.root_bytes,
        symlinks: call.settings().disable_symlinks,
        depth: depth(call)?,
        has_locks: file_ops.ext_methods.lock,
        stop: Stop::default(),
    };
    Ok(receive(call, move |body: &[u8]| asked.answer(body)))
}

impl Asked {
    fn answer(mut self, body: &[u8]) -> Outcome {
        let asked = Propfind::parse(body).map_err(invalid)?;
        let (opened, stat) = self.open()?;
        let is_folder = beneath::kind(&stat) == FileType::Directory;
        if is_folder && !self.path.ends_with(b"/") {
            // Clients leave the slash out; the folder itself must be this location's, too.
            self.path.push(b'/');
            if !self.table.is_entry_of(self.location, &self.path) {
                return Err(Failure::of(Status::FORBIDDEN));
            }
        }
        if is_folder && self.depth == Depth::Infinity {
            // How deep folders lie is not for a client to make us find out (RFC 4918 §9.1).
            return Ok(xml(Status::FORBIDDEN, multistatus::error("propfind-finite-depth", &[])));
        }
        let mut answer = Growing::new().ok_or_else(over_budget)?;
        let quota = properties::wants_quota(&asked).then(|| quota(&opened)).flatten();
        self.push(
            &mut answer,
            &asked,
            (&self.path, &self.file),
            (Some(opened.as_fd()), &stat),
            quota,
        )?;
        if is_folder && self.depth == Depth::One {
            self.push_entries(&mut answer, &asked, &opened, quota)?;
        }
        Ok(xml(Status::MULTI_STATUS, answer.finish()))
    }

    fn open(&self) -> Result<(OwnedFd, Stat), Failure> {
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "open", &self.file);
        let opened = file_cache::open(&self.file, self.root_bytes, self.symlinks).map_err(fail)?;
        match beneath::kind(&opened.1) {
            FileType::RegularFile if self.path.ends_with(b"/") => {
                Err(Failure::of(Status::NOT_FOUND))
            }
            FileType::RegularFile | FileType::Directory => Ok(opened),
            _ => Err(Failure::of(Status::FORBIDDEN)),
        }
    }

    fn push_entries(
        &self,
        answer: &mut Growing,
        asked: &Propfind,
        folder: &OwnedFd,
        quota: Option<(u64, u64)>,
    ) -> Result<(), Failure> {
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "read folder", &self.file);
        for entry in Dir::read_from(folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            let is_own = name.starts_with(sekisho_route::OWN_PREFIX);
            if matches!(name, b"." | b"..") || is_own || name.iter().any(u8::is_ascii_control) {
                continue;
            }
            self.stop.check().map_err(fail)?;
            let Some(stat) = self.look(folder, name) else { continue };
            let kind = beneath::kind(&stat);
            let slash: &[u8] = match kind {
                FileType::Directory => b"/",
                FileType::RegularFile => b"",
                _ => continue,
            };
            let path = [&self.path, name, slash].concat();
            if !self.table.is_entry_of(self.location, &path) {
                continue;
            }
            let between: &[u8] = if self.file.ends_with(b"/") { b"" } else { b"/" };
            let file = [&self.file, between, name].concat();
            let wants = properties::wants_dead(asked);
            let opened = if wants { open_entry(folder, name) } else { None };
            let opened = opened.as_ref().map(AsFd::as_fd);
            self.push(answer, asked, (&path, &file), (opened, &stat), quota)?;
        }
        Ok(())
    }

    /// What an entry is, through a link where links are followed.
    fn look(&self, folder: &OwnedFd, name: &[u8]) -> Option<Stat> {
        let stat = beneath::look(folder, name).ok().flatten()?;
        if beneath::kind(&stat) != FileType::Symlink {
            return Some(stat);
        }
        if self.symlinks != Symlinks::Follow {
            return None;
        }
        rustix::fs::statat(folder, name, AtFlags::empty()).ok()
    }

    fn push(
        &self,
        answer: &mut Growing,
        asked: &Propfind,
        (path, file): (&[u8], &[u8]),
        (opened, stat): (Option<std::os::fd::BorrowedFd<'_>>, &Stat),
        quota: Option<(u64, u64)>,
    ) -> Result<(), Failure> {
        let dead = match opened {
            Some(opened) if properties::wants_dead(asked) => dead::read(opened),
            _ => DeadProperties::default(),
        };
        let media_type = sekisho_route::media_type_of(&self.table, self.location, path);
        let has_locks = self.has_locks;
        let known = Known::of(stat);
        let resource = Resource { path, file, known, media_type, has_locks, quota };
        let found = properties::find(&resource, asked, &dead);
        if answer.push(path, &found) { Ok(()) } else { Err(over_budget()) }
    }
}

/// A file or folder in a folder, for its attributes.
fn open_entry(folder: &OwnedFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).ok()
}

fn quota(file: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(file).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize);
    Some((free, used))
}

/// An answer that grows within the memory that listings have.
pub(crate) struct Growing {
    out: MultiStatus,
    share: Share,
}

impl Growing {
    /// `None` if listings have reached their limit.
    pub(crate) fn new() -> Option<Self> {
        let share = memory::budget(Class::Listings).begin(ACCOUNT_BYTES)?;
        Some(Self { out: MultiStatus::default(), share })
    }

    /// Whether there is memory for more.
    pub(crate) fn push(&mut self, path: &[u8], found: &Found) -> bool {
        self.out.push(path, found);
        let needed = self.out.len() + ACCOUNT_BYTES;
        self.out.len() <= self.share.bytes() || self.share.resize(needed)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.out.finish()
    }
}

fn over_budget() -> Failure {
    let why = "PROPFIND was refused: listings and archives have reached their memory limit";
    Failure::because(Status::SERVICE_UNAVAILABLE, why).field("Retry-After", b"1")
}

/// What the system says when a property cannot be kept.
pub(super) fn status_of(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE => "507 Insufficient Storage",
        _ => "403 Forbidden",
    }
}
