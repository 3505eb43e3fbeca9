//! LOCK and UNLOCK.

use std::sync::Arc;

use rustix::fs::FileType;
use sekisho_config::{Conflict, FileOps};
use sekisho_http::Status;
use sekisho_webdav::lock::{self, Refused};
use sekisho_webdav::{Lock, LockRequest, condition, multistatus};

use super::super::beneath::{self, Spot};
use super::super::conditions::Conditions;
use super::super::intake::Intake;
use super::super::land::{self, Rules};
use super::super::{Answer, Call, Failure, Job, Outcome, temp};
use super::{Depth, depth, invalid, locks, properties, receive, xml};

/// What is to be locked.
struct Asked {
    spot: Spot,
    path: Vec<u8>,
    file: Vec<u8>,
    is_there: bool,
    is_deep: bool,
    timeout: std::time::Duration,
    conditions: Conditions,
    rules: Rules,
}

/// LOCK. `may_come` says whether an empty file may be made where there is none (RFC 4918 §7.3).
pub(in super::super) fn begin(
    call: &Call<'_>,
    file_ops: &FileOps,
    may_come: bool,
) -> Result<Intake, Failure> {
    let (route_state, head) = (call.route_state, call.request.head);
    let file = route_state.file.clone();
    let fail = |errno| Failure::by(errno, Status::CONFLICT, "open", &file);
    let symlinks = call.settings().disable_symlinks;
    let spot = Spot::find(&file, route_state.root_bytes, symlinks, false).map_err(fail)?;
    let there = if spot.name.is_empty() {
        Some(rustix::fs::fstat(&*spot.folder).map_err(fail)?)
    } else {
        spot.look().map_err(fail)?
    };
    let mut path = route_state.path.clone();
    let is_folder = there.as_ref().map(beneath::kind) == Some(FileType::Directory);
    if is_folder && !path.ends_with(b"/") {
        path.push(b'/');
        if !call.table.is_entry_of(route_state.location, &path) {
            return Err(Failure::of(Status::FORBIDDEN));
        }
    }
    if there.is_none() && spot.is_folder {
        return Err(Failure::because(
            Status::CONFLICT,
            "LOCK was refused: there is no such folder",
        ));
    }
    if there.is_none() && !may_come {
        return Err(Failure::because(
            Status::FORBIDDEN,
            "LOCK was refused: there is no such file, and none may be made",
        ));
    }
    let is_deep = match depth(call)? {
        Depth::Zero => false,
        Depth::Infinity => is_folder,
        Depth::One => {
            return Err(Failure::because(Status::BAD_REQUEST, "LOCK was refused: Depth is 1"));
        }
    };
    let conditions = Conditions::of(call);
    conditions.check(there.as_ref())?;
    let timeout = lock::timeout(head.named(b"timeout"));
    let rules = Rules { conflict: Conflict::Refuse, ..Rules::of(file_ops) };
    let is_there = there.is_some();
    let asked = Asked { spot, path, file, is_there, is_deep, timeout, conditions, rules };
    Ok(receive(call, move |body: &[u8]| asked.answer(body)))
}

impl Asked {
    fn answer(self, body: &[u8]) -> Outcome {
        let key = locks::key(&self.file);
        let Some(request) = LockRequest::parse(body).map_err(invalid)? else {
            return self.refresh(&key);
        };
        if !self.is_there {
            // It is created in a folder that may be locked itself.
            self.conditions.check_locks(&self.file, false, true)?;
        }
        let token = lock::token(temp::random_bytes());
        let mut lock = Lock::new(token, key.clone(), self.is_deep, request.scope, request.owner);
        lock.timeout = self.timeout;
        let acquired = locks::hold().acquire(lock, locks::now());
        let lock = acquired.map_err(|refused| match refused {
            Refused::Locked(path) => {
                let why = format!("LOCK was refused: \"{}\" is locked", path.escape_ascii());
                Failure::because(Status::LOCKED, &why)
            }
            Refused::Full => {
                Failure::because(Status::SERVICE_UNAVAILABLE, "LOCK was refused: too many locks")
            }
        })?;
        let status = if self.is_there { Status::OK } else { Status::CREATED };
        if !self.is_there
            && let Err(failure) = self.make(&lock)
        {
            locks::hold().release(&key, lock.token.as_bytes(), locks::now());
            return Err(failure);
        }
        let coded = format!("<{}>", lock.token);
        let answer = xml(status, multistatus::lock_answer(&lock, &self.path));
        Ok(answer.field("Lock-Token", coded.as_bytes()))
    }

    fn refresh(self, key: &[u8]) -> Outcome {
        let tokens = self.conditions.tokens().iter().map(Vec::as_slice);
        let refreshed = locks::hold().refresh(key, tokens, self.timeout, locks::now());
        let Some(lock) = refreshed else {
            return Err(Failure::because(
                Status::PRECONDITION_FAILED,
                "LOCK was refused: no body, and no token of a lock in If",
            ));
        };
        let root = properties::root_of(&lock, key, &self.path);
        Ok(xml(Status::OK, multistatus::lock_answer(&lock, &root)))
    }

    /// An empty file of this name, under the lock that was just taken.
    fn make(&self, lock: &Lock) -> Result<(), Failure> {
        let fail = |errno| Failure::by(errno, Status::CONFLICT, "store", &self.file);
        let temp = self.spot.new_file().map_err(fail)?;
        let own = Conditions::knowing(self.conditions.tokens(), lock.token.as_bytes());
        land::land(temp, &self.spot, &own, &self.rules, &self.file)?;
        Ok(())
    }
}

/// UNLOCK
pub(in super::super) fn unlock(call: &Call<'_>) -> Result<Job, Failure> {
    let Some(token) = call.request.head.named(b"lock-token").and_then(condition::coded_url) else {
        return Err(Failure::because(Status::BAD_REQUEST, "UNLOCK was refused: no Lock-Token"));
    };
    let (token, key) = (Arc::<[u8]>::from(token), locks::key(&call.route_state.file));
    Ok(Job::new(move || {
        if locks::hold().release(&key, &token, locks::now()) {
            return Ok(Answer::new(Status::NO_CONTENT));
        }
        Err(Failure::because(Status::CONFLICT, "UNLOCK was refused: there is no such lock here"))
    }))
}
