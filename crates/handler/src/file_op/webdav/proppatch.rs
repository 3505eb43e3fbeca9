//! PROPPATCH: all changes of properties are made, or none (RFC 4918 §9.2).

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags};
use sekisho_config::FileOps;
use sekisho_http::Status;
use sekisho_webdav::PropertyUpdate;
use sekisho_webdav::multistatus::MultiStatus;

use super::super::beneath::{self, Spot};
use super::super::conditions::Conditions;
use super::super::intake::Intake;
use super::super::{Call, Failure, Outcome, land};
use super::{dead, invalid, properties, propfind, receive, xml};

/// Looks whether properties can be changed here, and takes the body.
pub(in super::super) fn begin(call: &Call<'_>, _: &FileOps) -> Result<Intake, Failure> {
    let route_state = call.route_state;
    let file = route_state.file.clone();
    let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "open", &file);
    let symlinks = call.settings().disable_symlinks;
    let spot = Spot::find(&file, route_state.root_bytes, symlinks, false).map_err(fail)?;
    let opened = open(&spot).map_err(fail)?;
    let stat = rustix::fs::fstat(&opened).map_err(fail)?;
    let is_folder = match beneath::kind(&stat) {
        FileType::Directory => true,
        FileType::RegularFile if !spot.is_folder => false,
        FileType::RegularFile => return Err(Failure::of(Status::NOT_FOUND)),
        _ => return Err(Failure::of(Status::FORBIDDEN)),
    };
    let mut path = route_state.path.clone();
    if is_folder && !path.ends_with(b"/") {
        path.push(b'/');
        if !call.table.is_entry_of(route_state.location, &path) {
            return Err(Failure::of(Status::FORBIDDEN));
        }
    }
    let conditions = Conditions::of(call);
    conditions.check(Some(&stat))?;
    conditions.check_locks(&file, false, false)?;
    let then = move |body: &[u8]| -> Outcome {
        let updates = PropertyUpdate::parse(body).map_err(invalid)?;
        conditions.check_locks(&file, false, false)?;
        let statuses = change(&opened, &spot.name, &updates);
        let mut answer = MultiStatus::default();
        let changes = updates.iter().zip(&statuses);
        answer.push_changes(&path, changes.map(|(update, status)| (update.name(), *status)));
        Ok(xml(Status::MULTI_STATUS, answer.finish()))
    };
    Ok(receive(call, then))
}

fn open(spot: &Spot) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name: &[u8] = if spot.name.is_empty() { b"." } else { &spot.name };
    rustix::fs::openat(&*spot.folder, name, flags, Mode::empty())
}

/// Makes the changes; what came of each.
fn change(file: &OwnedFd, name: &[u8], updates: &[PropertyUpdate]) -> Vec<&'static str> {
    if updates.iter().any(|update| properties::is_live(update.name())) {
        // The server's own properties are not for clients to set, and nothing else is changed then.
        let status = |update: &PropertyUpdate| {
            if properties::is_live(update.name()) {
                "403 Forbidden"
            } else {
                "424 Failed Dependency"
            }
        };
        return updates.iter().map(status).collect();
    }
    let _turn = land::turn(name);
    let mut properties = dead::read(file);
    for update in updates {
        properties.update(update.clone());
    }
    let status = match dead::write(file, &properties) {
        Ok(()) => "200 OK",
        Err(errno) => propfind::status_of(errno),
    };
    vec![status; updates.len()]
}
