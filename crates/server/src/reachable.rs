//! Whether the server can enter what its configuration serves, as who it will be. A folder that only its owner
//! may enter is the usual reason for a 403 that nobody understands: it is told at a start, at a reload and by
//! `-t`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sekisho_config::{Config, Report};

use crate::sandbox::places;
use crate::user::{self, Identity};

/// So many are told; the others are likely the same.
const TOLD_MAX: usize = 10;
const HELP: &str =
    "name a user who can by \"user\", or change whose it is and who may (chown, chmod)";

/// What stands in the way, and the first place that is not reached because of it.
type Obstacles = BTreeMap<String, PathBuf>;

/// What the server will not be able to reach.
pub(crate) fn warnings(config: &Config) -> Vec<Report> {
    let mut places = places::served(config);
    // Who cannot be found is an error elsewhere.
    let Ok(identity) = user::identity(config) else { return Vec::new() };
    let (who, found) = match identity {
        Some(identity) if identity.uid == 0 => return Vec::new(),
        Some(identity) => {
            // Only root can tell what is not there from what somebody else cannot see.
            places.retain(|path, _| fs::metadata(path).is_ok());
            (format!("user \"{}\"", identity.name), obstacles_of(&identity, &places))
        }
        None => match (user::own_name(config), &config.main.user) {
            (Some(name), _) => (format!("user \"{name}\""), obstacles(&places)),
            (None, None) => ("the server".to_owned(), obstacles(&places)),
            // It will be another one, who may see more than we do.
            (None, Some(_)) => return Vec::new(),
        },
    };
    let report = |(obstacle, path): (String, PathBuf)| {
        let path = path.display();
        let message = format!("{who} {obstacle}: requests for \"{path}\" will fail");
        Report::warning(&[], None, message).help(HELP.to_owned())
    };
    found.into_iter().take(TOLD_MAX).map(report).collect()
}

/// What stands in the way of somebody else. They are looked for by a thread that becomes them: the kernel alone
/// knows all of the rules. It is the thread that does, and not the process.
fn obstacles_of(identity: &Identity, places: &BTreeMap<PathBuf, bool>) -> Obstacles {
    let look = || -> rustix::io::Result<Obstacles> {
        let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(obstacles(places))
    };
    let found = std::thread::scope(|scope| {
        let looking = std::thread::Builder::new().spawn_scoped(scope, look).ok()?;
        looking.join().ok()?.ok()
    });
    // Who cannot become them will say so when it matters.
    found.unwrap_or_default()
}

/// What stands in our way.
fn obstacles(places: &BTreeMap<PathBuf, bool>) -> Obstacles {
    let mut all = Obstacles::new();
    for (path, is_changed) in places {
        if let Some(obstacle) = obstacle(path, *is_changed) {
            all.entry(obstacle).or_insert_with(|| path.clone());
        }
    }
    all
}

/// What stands in the way to a place, from the top. What is not there is another matter.
fn obstacle(path: &Path, is_changed: bool) -> Option<String> {
    let is_denied = |path: &Path, access: Access| {
        rustix::fs::accessat(CWD, path, access, AtFlags::empty()) == Err(Errno::ACCESS)
    };
    let steps: Vec<&Path> = path.ancestors().collect();
    for step in steps.into_iter().rev() {
        let is_folder = fs::metadata(step).ok()?.is_dir();
        if is_folder && is_denied(step, Access::EXEC_OK) {
            return Some(format!("cannot enter \"{}\"", step.display()));
        }
        if !is_folder && is_denied(step, Access::READ_OK) {
            return Some(format!("cannot read \"{}\"", step.display()));
        }
    }
    let is_shut = is_changed && is_denied(path, Access::WRITE_OK);
    is_shut.then(|| format!("cannot write into \"{}\"", path.display()))
}
