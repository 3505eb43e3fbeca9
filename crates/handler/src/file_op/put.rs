//! PUT: the body becomes the file of that name.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use sekisho_config::{Conflict, FileOps};
use sekisho_http::{Head, Known, Status, date, target};

use super::beneath::Spot;
use super::conditions::Conditions;
use super::intake::{Intake, Sink};
use super::land::{self, Landed, Rules};
use super::temp::Temp;
use super::{Answer, Call, Failure, Outcome, sweep};
use crate::open_file::etag_of;

/// A file on its way.
#[derive(Debug)]
struct Put {
    /// There when the first bytes are written.
    temp: Option<Temp>,
    spot: Spot,
    conditions: Conditions,
    rules: Rules,
    file: Vec<u8>,
    /// The path it was asked under.
    path: Vec<u8>,
    has_etag: bool,
}

/// Looks whether the file may be put there at all, before its body is taken.
pub(super) fn begin(call: &Call<'_>, file_ops: &FileOps) -> Result<Intake, Failure> {
    let (route_state, head) = (call.route_state, call.request.head);
    if route_state.file.last() == Some(&b'/') || route_state.path.last() == Some(&b'/') {
        return Err(Failure::because(
            Status::CONFLICT,
            "PUT was refused: the path ends with a slash",
        ));
    }
    if head.named(b"content-range").is_some() {
        // A part of a file must not be taken for the whole (nginx's answer).
        return Err(Failure::because(
            Status::NOT_IMPLEMENTED,
            "PUT was refused: it has a Content-Range",
        ));
    }
    let settings = call.settings();
    let file = route_state.file.clone();
    let fail = |errno| Failure::by(errno, Status::CONFLICT, "store", &file);
    let symlinks = settings.disable_symlinks;
    let spot = Spot::find(&file, route_state.root_bytes, symlinks, file_ops.creates_folders)
        .map_err(fail)?;
    if spot.name.is_empty() {
        return Err(Failure::because(Status::CONFLICT, "PUT was refused: it names a folder"));
    }
    let conditions = Conditions::of(call);
    let there = spot.look().map_err(fail)?;
    conditions.check(there.as_ref())?;
    conditions.check_locks(&file, false, there.is_none())?;
    if let Some(there) = &there
        && (!land::may_replace(there) || file_ops.conflict == Conflict::Refuse)
    {
        return Err(Failure::because(
            Status::CONFLICT,
            "PUT was refused: the name is taken, by a folder or by what may not be replaced",
        ));
    }
    sweep::visit(&spot.folder, None, call.request.wall.unix_secs);
    let mut rules = Rules { modified: modified(head), ..Rules::of(file_ops) };
    // A client that names the file which it means to replace, and might delete it, gets no second one.
    let names_old = head.known(Known::IfMatch).is_some() && file_ops.methods.delete;
    if names_old && rules.conflict == Conflict::Rename {
        rules.conflict = Conflict::Replace;
    }
    let (path, has_etag) = (route_state.path.clone(), settings.etag);
    let put = Put { temp: None, spot, conditions, rules, file, path, has_etag };
    Ok(Intake::new(call.device(), Box::new(put), call.direct_bytes(file_ops)))
}

/// What time the client wants the file to have: `X-OC-Mtime`, or `Date`, as in nginx.
pub(super) fn modified(head: &Head) -> Option<i64> {
    let seconds = head.named(b"x-oc-mtime").and_then(|value| std::str::from_utf8(value).ok());
    let seconds = seconds.and_then(|text| text.parse().ok());
    seconds.or_else(|| date::parse(head.named(b"date")?))
}

impl Put {
    fn opened(&mut self) -> Result<&mut Temp, Failure> {
        let temp = match self.temp.take() {
            Some(temp) => temp,
            None => self.spot.new_file().map_err(|errno| self.failure(errno))?,
        };
        Ok(self.temp.insert(temp))
    }
}

impl Sink for Put {
    fn open(&mut self) -> Result<(), Failure> {
        self.opened().map(|_| ())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.opened()?.write(bytes);
        written.map_err(|errno| self.failure(errno))
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.temp.as_ref()?.descriptor().ok()
    }

    fn wrote(&mut self, bytes: u64) {
        if let Some(temp) = &mut self.temp {
            temp.wrote(bytes);
        }
    }

    fn failure(&self, errno: Errno) -> Failure {
        Failure::by(errno, Status::CONFLICT, "store", &self.file)
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.opened()?;
        let Self { temp, spot, conditions, rules, file, mut path, has_etag } = *self;
        let temp = temp.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let Landed { name, is_new, stat, .. } =
            land::land(temp, &spot, &conditions, &rules, &file)?;
        let status = if is_new { Status::CREATED } else { Status::NO_CONTENT };
        let mut answer = Answer::new(status);
        if is_new {
            if name != spot.name {
                path.truncate(path.len() - spot.name.len());
                path.extend_from_slice(&name);
            }
            let mut location = Vec::new();
            target::encode_path(&path, &mut location);
            answer = answer.field("Location", &location);
        }
        if has_etag {
            answer = answer.field("ETag", etag_of(&stat, stat.st_size as u64).as_bytes());
        }
        Ok(answer)
    }
}
