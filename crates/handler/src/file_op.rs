//! File operations: requests that change files. A body becomes a file only when it is complete, and in one step;
//! what is aborted, refused or killed leaves nothing and harms nothing (F5). Everything is reached below the
//! root by descriptors, never by a path that another process may change meanwhile (V19).

mod beneath;
mod change;
mod conditions;
mod copy;
mod delete;
mod direct;
mod entries;
mod intake;
mod land;
mod note;
mod ordering;
mod put;
mod resume;
mod store;
mod sweep;
mod temp;
mod unfinished;
mod webdav;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustix::io::Errno;
use sekisho_config::{Cgi, FileOps, Level, LocationId, Settings};
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;
use sekisho_route::{FileOp, Request, RouteState, Store, Table};

use crate::cgi::HandlerContext;
use crate::descriptors::{self, DescriptorPermit};
use crate::disk::{self, Device, DiskError, Operation};
use crate::memory;
use crate::task::{BodyIn, BodySink, Describe, Outbox, Progress, Task, Work};
use crate::without;
use intake::{Intake, Sink};

pub(crate) use conditions::own_head as own_conditions;
pub(crate) use delete::is_deep_enough;
pub use direct::memory_usage;
pub(crate) use store::{
    PART_HEAD_BYTES_MAX, form_name, is_urlencoded, raw_name, stored_answer, way_back,
};
pub use sweep::{forget_finished, leftovers};
pub(crate) use temp::random;

/// What PROPFIND has in common, wherever files are kept.
pub(crate) mod dav {
    pub(crate) use super::webdav::properties::{Known, Resource, find};
    pub(crate) use super::webdav::propfind::Growing;
    pub(crate) use super::webdav::{Depth, WRONG_DEPTH, XML_TYPE};
}

/// What uploads that can be resumed have in common, wherever they are kept.
pub(crate) mod tus {
    pub(crate) use super::note::{Note, metadata};
    pub(crate) use super::resume::{
        DONE, DONE_LIFE, ID_BYTES, MEDIA_TYPE, NOTE, PREFIX, VERSION, is_spoken, number,
    };
    pub(crate) use super::unfinished::{OWNER_BYTES, owner_of};
}

/// What is to be done, and for which request.
#[derive(Debug)]
pub struct Call<'a> {
    /// The routing table.
    pub table: &'a Table,
    /// The request.
    pub request: &'a Request<'a>,
    /// What was decided.
    pub route_state: &'a RouteState,
    /// The time.
    pub now: Moment,
    /// What shall be done.
    pub file_op: &'a FileOp,
    /// Whether body bytes follow.
    pub has_body: bool,
    /// How many, if that is known.
    pub body_bytes: Option<u64>,
}

impl Call<'_> {
    fn settings(&self) -> &Settings {
        &self.table.location(self.route_state.location).settings
    }

    /// The device that is written to.
    fn device(&self) -> Arc<Device> {
        let file = match self.file_op {
            FileOp::Copy(to) | FileOp::Move(to) => &to.file,
            _ => &self.route_state.file,
        };
        let folder_bytes = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Device::at(Path::new(OsStr::from_bytes(&file[..folder_bytes.max(1).min(file.len())])))
    }

    /// How long the body is, where it is so long that it goes to the disk past the page cache.
    fn direct_bytes(&self, file_ops: &FileOps) -> Option<u64> {
        self.body_bytes
            .zip(file_ops.direct_min)
            .filter(|(bytes, least)| bytes >= least)
            .map(|both| both.0)
    }
}

/// Starts a file operation; an error is the status to answer with, and its fields have been appended to
/// `fields`.
pub fn start(
    call: &Call<'_>,
    context: Rc<dyn HandlerContext>,
    fields: &mut Fields,
) -> Result<Box<dyn Task>, Status> {
    let settings = call.settings();
    webdav::locks::observe(call.now);
    let begun = match &settings.file_ops {
        // A body holds memory here and in the kernel for as long as its client likes (X8).
        Some(_) if takes_body(call.file_op) && memory::is_short() => {
            let failure = Failure::because(Status::SERVICE_UNAVAILABLE, "memory is short");
            Err(failure.field("Retry-After", b"1"))
        }
        Some(file_ops) => {
            take_share().and_then(|share| Ok((begin(call, file_ops, &context)?, share)))
        }
        None => Err(Failure::of(Status::FORBIDDEN)),
    };
    match begun {
        Ok((stage, share)) => {
            let (device, has_body_ended) = (call.device(), false);
            Ok(Box::new(FileOpTask { stage, has_body_ended, context, device, _share: share }))
        }
        Err(failure) => {
            failure.report(&*context);
            fields.extend_from(&failure.fields);
            Err(failure.status)
        }
    }
}

/// Descriptors for one more operation; 503 where there are none left (V39).
fn take_share() -> Result<DescriptorPermit, Failure> {
    descriptors::FILE_OPERATIONS.take().ok_or_else(|| {
        let why = Some("file operation refused: too many open files".to_owned());
        let failure = Failure::of(Status::SERVICE_UNAVAILABLE).field("Retry-After", b"1");
        Failure { why, ..failure }
    })
}

/// The answer to OPTIONS beside `Allow`: the status, and its fields.
pub fn options(settings: &Settings, fields: &mut Fields) -> Status {
    let file_ops = settings.file_ops.as_deref();
    if let Some(file_ops) = file_ops {
        webdav::describe(file_ops, fields);
    }
    if file_ops.is_none_or(|file_ops| file_ops.resumable.is_none()) {
        return Status::OK;
    }
    let answer = resume::describe(settings.client_max_body_size);
    fields.extend_from(&answer.fields);
    answer.status
}

fn begin(
    call: &Call<'_>,
    file_ops: &FileOps,
    context: &Rc<dyn HandlerContext>,
) -> Result<FileOpStage, Failure> {
    if call.has_body && !takes_body(call.file_op) {
        // nginx's answer: a body is not understood here.
        return Err(Failure::of(Status::UNSUPPORTED_MEDIA_TYPE));
    }
    match call.file_op {
        FileOp::Put => Ok(FileOpStage::Receiving(put::begin(call, file_ops)?)),
        FileOp::Delete => Ok(FileOpStage::Ready(delete::job(call, file_ops, context.table())?)),
        FileOp::Mkcol => Ok(FileOpStage::Ready(change::make_folder(call, file_ops)?)),
        FileOp::Copy(to) => {
            Ok(FileOpStage::Ready(change::copy(call, file_ops, to, context.table())?))
        }
        FileOp::Move(to) => {
            Ok(FileOpStage::Ready(change::rename(call, file_ops, to, context.table())?))
        }
        FileOp::Propfind => {
            Ok(FileOpStage::Receiving(webdav::propfind::begin(call, file_ops, context.table())?))
        }
        FileOp::Proppatch => Ok(FileOpStage::Receiving(webdav::proppatch::begin(call, file_ops)?)),
        FileOp::Lock(may_come) => {
            Ok(FileOpStage::Receiving(webdav::lock::begin(call, file_ops, *may_come)?))
        }
        FileOp::Unlock => Ok(FileOpStage::Ready(webdav::lock::unlock(call)?)),
        FileOp::Store(place)
            if file_ops.resumable.is_some() && resume::is_spoken(call.request.head) =>
        {
            resume::create(call, file_ops, &Programs::of(call, place, context.table()))
        }
        FileOp::Store(place) => {
            let programs = Programs::of(call, place, context.table());
            Ok(FileOpStage::Receiving(store::begin(call, file_ops, place, programs)?))
        }
        FileOp::Resume(place) => resume::resume(call, file_ops, place),
    }
}

fn takes_body(file_op: &FileOp) -> bool {
    match file_op {
        FileOp::Put
        | FileOp::Store(_)
        | FileOp::Resume(_)
        | FileOp::Propfind
        | FileOp::Proppatch
        | FileOp::Lock(_)
        // It has no use for a body, and some clients send one.
        | FileOp::Unlock => true,
        FileOp::Delete | FileOp::Mkcol | FileOp::Copy(_) | FileOp::Move(_) => false,
    }
}

/// Which names in a store are programs: a client that may store files may not run them, nor make another
/// client run them.
#[derive(Debug)]
struct Programs {
    /// Where the store is.
    cgi: Option<Arc<Cgi>>,
    /// Under the path by which its files can be asked for: another location may answer there.
    address: Option<Vec<u8>>,
    table: Arc<Table>,
    location: LocationId,
}

impl Programs {
    fn of(call: &Call<'_>, store: &Store, table: Arc<Table>) -> Self {
        Self {
            cgi: call.settings().cgi.clone(),
            address: store.address.clone(),
            table,
            location: call.route_state.location,
        }
    }

    /// A file of this name must not be created.
    fn refuse(&self, name: &[u8]) -> Result<(), Failure> {
        let is_own = self.cgi.as_deref().is_some_and(|cgi| cgi.is_program(name));
        let path = self.address.as_ref().map(|address| [address.as_slice(), name].concat());
        let is_run =
            is_own || path.is_some_and(|path| self.table.is_run(self.location, &path, name));
        if !is_run {
            return Ok(());
        }
        let name = name.escape_ascii();
        let why = format!("\"{name}\" is not stored: it would run as a program");
        Err(Failure { why: Some(why), ..Failure::of(Status::FORBIDDEN) })
    }
}

/// A successful end.
#[derive(Debug)]
struct Answer {
    status: Status,
    fields: Fields,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: Status) -> Self {
        Self { status, fields: Fields::new(), body: Vec::new() }
    }

    fn field(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push(name, value);
        self
    }
}

/// Why a file operation cannot be done: the status to answer with, and the text for the log.
#[derive(Debug)]
struct Failure {
    status: Status,
    why: Option<String>,
    /// What the system said.
    errno: Option<Errno>,
    level: Level,
    /// Fields that belong to it.
    fields: Fields,
}

impl Failure {
    /// The client's doing: nothing to tell.
    fn of(status: Status) -> Self {
        Self { status, why: None, errno: None, level: Level::Error, fields: Fields::new() }
    }

    /// Caused by the client. The status may mean several things, so the reason is logged at `info`.
    fn because(status: Status, why: &str) -> Self {
        Self { why: Some(why.to_owned()), level: Level::Info, ..Self::of(status) }
    }

    /// A system call failed. `missing` is the status for a name that is not there.
    fn by(errno: Errno, missing: Status, what: &str, file: &[u8]) -> Self {
        let status = match errno {
            Errno::NOENT | Errno::NOTDIR => missing,
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::LOOP | Errno::XDEV => {
                Status::FORBIDDEN
            }
            Errno::NOSPC | Errno::DQUOT => Status::INSUFFICIENT_STORAGE,
            Errno::FBIG => Status::CONTENT_TOO_LARGE,
            Errno::NAMETOOLONG => Status::URI_TOO_LONG,
            Errno::INVAL | Errno::ILSEQ => Status::BAD_REQUEST,
            Errno::ISDIR
            | Errno::EXIST
            | Errno::NOTEMPTY
            | Errno::BUSY
            | Errno::TXTBSY
            | Errno::STALE => Status::CONFLICT,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::SERVICE_UNAVAILABLE,
            // The disk does not respond.
            Errno::AGAIN => return DiskError::Busy.into(),
            // By ourselves; see `Stop`.
            Errno::CANCELED => return Self::of(Status::SERVICE_UNAVAILABLE),
            _ => Status::INTERNAL_SERVER_ERROR,
        };
        let error = std::io::Error::from(errno);
        let why = format!("{what} \"{}\" failed: {error}", file.escape_ascii());
        let level = if status.code() >= 500 { Level::Crit } else { Level::Error };
        Self { why: Some(why), errno: Some(errno), level, ..Self::of(status) }
    }

    fn field(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push(name, value);
        self
    }

    fn report(&self, context: &dyn HandlerContext) {
        let Some(why) = &self.why else { return };
        let hint = self.errno.map(|errno| context.denial_hint(errno)).unwrap_or_default();
        context.report(self.level, format_args!("{why}{hint}"));
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        let why = Some(format!("file operation failed: {error}"));
        let of = |status| Self { why, level: Level::Crit, ..Self::of(status) };
        match error {
            DiskError::Busy => {
                of(Status::SERVICE_UNAVAILABLE).field("Retry-After", disk::RETRY_AFTER.as_bytes())
            }
            DiskError::Lost => of(Status::INTERNAL_SERVER_ERROR),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::of(status)
    }
}

type Outcome = Result<Answer, Failure>;

/// Work on the file system that needs no more of the body; done outside the event loop.
struct Job {
    work: Box<dyn FnOnce() -> Outcome + Send>,
    /// Set if it may take so long that it should end when the client has gone.
    stop: Option<Stop>,
}

/// What was found before the body is taken.
#[derive(Debug)]
enum Prepared {
    /// Where it goes.
    Receive(Box<dyn Sink>),
    /// That nothing more is to be done.
    Answer(Answer),
}

/// A flag that tells long work to end. Work that is stopped leaves nothing behind.
#[derive(Clone, Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// To be asked between two steps.
    fn check(&self) -> Result<(), Errno> {
        disk::note_progress();
        if self.0.load(Ordering::Relaxed) { Err(Errno::CANCELED) } else { Ok(()) }
    }
}

impl Job {
    fn new(work: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        Self { work: Box::new(work), stop: None }
    }

    /// One that asks `stop` whether it shall go on.
    fn stopped_by(stop: Stop, work: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        Self { work: Box::new(work), stop: Some(stop) }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// A file operation being done.
#[derive(Debug)]
struct FileOpTask {
    stage: FileOpStage,
    /// The body is complete, though the stage may not have been ready to take it.
    has_body_ended: bool,
    context: Rc<dyn HandlerContext>,
    device: Arc<Device>,
    /// Its share of the descriptors.
    _share: DescriptorPermit,
}

/// ```text
/// preparing ──► receiving ──► settling ──► ready ──► working ──► ended ──► answered
///      └────────────┴────────────┴───────────┴──────────────────►
/// ```
#[derive(Debug)]
enum FileOpStage {
    /// A thread finds out where the body goes.
    Preparing(Operation<Result<Prepared, Failure>>),
    /// The body comes.
    Receiving(Intake),
    /// The body has come, and its last bytes are being written.
    Settling(Intake),
    /// The body, if there is one, has come.
    Ready(Job),
    /// A thread does it; it is done also if the request is dropped.
    Working(Operation<Outcome>, Option<Stop>),
    /// It is over, and not answered yet.
    Ended(Outcome),
    /// The head has been given, with these bytes to follow.
    Answered(Vec<u8>),
    /// All has been said.
    Over,
}

impl FileOpStage {
    /// Finds out beside the event loop what is to be done.
    fn prepare(
        device: &Device,
        work: impl FnOnce() -> Result<Prepared, Failure> + Send + 'static,
    ) -> Self {
        Self::Preparing(device.write(work))
    }

    fn prepared(device: &Arc<Device>, prepared: Result<Prepared, Failure>) -> Self {
        match prepared {
            Ok(Prepared::Receive(sink)) => {
                Self::Receiving(Intake::new(Arc::clone(device), sink, None))
            }
            Ok(Prepared::Answer(answer)) => Self::Ended(Ok(answer)),
            Err(failure) => Self::Ended(Err(failure)),
        }
    }
}

impl FileOpTask {
    fn work(&mut self, job: Job) {
        self.stage = FileOpStage::Working(self.device.change(job.work), job.stop);
    }

    fn fail(&mut self, failure: Failure) {
        self.stage = FileOpStage::Ended(Err(failure));
    }

    /// Goes on with what was found out, and with what has come of the body.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if let FileOpStage::Preparing(work) = &mut self.stage
            && let Poll::Ready(prepared) = Pin::new(work).poll(cx)
        {
            let prepared = prepared.unwrap_or_else(|error| Err(error.into()));
            self.stage = FileOpStage::prepared(&self.device, prepared);
            if self.has_body_ended {
                self.settle();
            }
        }
        if let FileOpStage::Receiving(intake) = &mut self.stage
            && let Poll::Ready(Err(failure)) = intake.advance(cx)
        {
            self.fail(failure);
        }
    }

    /// No more of the body comes.
    fn settle(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, FileOpStage::Over) {
            FileOpStage::Receiving(intake) => FileOpStage::Settling(intake),
            other => other,
        };
    }
}

impl Work for FileOpTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _now: Moment) -> Poll<Progress> {
        self.advance(cx);
        if let FileOpStage::Receiving(intake) = &mut self.stage
            && let Err(failure) = intake.pause(cx)
        {
            self.fail(failure);
        }
        loop {
            match std::mem::replace(&mut self.stage, FileOpStage::Over) {
                FileOpStage::Settling(mut intake) => match intake.settle(cx) {
                    Poll::Pending => {
                        self.stage = FileOpStage::Settling(intake);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(work)) => {
                        self.stage = FileOpStage::Ready(Job { work, stop: None });
                    }
                    Poll::Ready(Err(failure)) => self.fail(failure),
                },
                FileOpStage::Ready(job) => self.work(job),
                FileOpStage::Working(mut handle, stop) => match Pin::new(&mut handle).poll(cx) {
                    Poll::Pending => {
                        self.stage = FileOpStage::Working(handle, stop);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(outcome)) => self.stage = FileOpStage::Ended(outcome),
                    Poll::Ready(Err(error)) => self.fail(error.into()),
                },
                FileOpStage::Ended(Ok(answer)) => {
                    out.fields.extend_from(&answer.fields);
                    let length = answer.body.len() as u64;
                    self.stage = FileOpStage::Answered(answer.body);
                    return Poll::Ready(Progress::Head(answer.status, Some(length)));
                }
                FileOpStage::Ended(Err(failure)) => {
                    failure.report(&*self.context);
                    out.fields.extend_from(&failure.fields);
                    return Poll::Ready(Progress::Fail(failure.status));
                }
                FileOpStage::Answered(body) if body.is_empty() => {
                    return Poll::Ready(Progress::Done);
                }
                FileOpStage::Answered(mut body) => {
                    out.body.append(&mut body);
                    self.stage = FileOpStage::Answered(body);
                    return Poll::Ready(Progress::Body);
                }
                stage @ (FileOpStage::Preparing(_)
                | FileOpStage::Receiving(_)
                | FileOpStage::Over) => {
                    self.stage = stage;
                    return Poll::Pending;
                }
            }
        }
    }

    fn cancel(&mut self, _cause: Cause, _now: Moment) {
        match &self.stage {
            FileOpStage::Preparing(_)
            | FileOpStage::Receiving(_)
            | FileOpStage::Settling(_)
            | FileOpStage::Ready(_) => {
                self.fail(Failure::of(Status::SERVICE_UNAVAILABLE));
            }
            // Work that has begun is done in a moment, or stops at its next check, and its result is
            // answered.
            FileOpStage::Working(_, Some(stop)) => stop.tell(),
            FileOpStage::Working(_, None)
            | FileOpStage::Ended(_)
            | FileOpStage::Answered(_)
            | FileOpStage::Over => {}
        }
    }
}

impl BodyIn for FileOpTask {
    without!(return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], _now: Moment) -> usize {
        self.advance(cx);
        match &mut self.stage {
            FileOpStage::Preparing(_) => return 0,
            FileOpStage::Receiving(intake) => match intake.take(cx, bytes) {
                Ok(count) => return count,
                Err(failure) => self.fail(failure),
            },
            _ => {}
        }
        // A body that is not needed is taken and dropped: the answer is on its way.
        bytes.len()
    }

    fn body_sink(&mut self, cx: &mut Context<'_>) -> BodySink<'_> {
        self.advance(cx);
        // Failure is checked first: memory that is lent out cannot be given up.
        if let FileOpStage::Receiving(intake) = &mut self.stage
            && let Err(failure) = intake.body_sink(cx)
        {
            self.fail(failure);
        }
        match &mut self.stage {
            FileOpStage::Receiving(intake) => BodySink::Memory(intake.room()),
            // What is done in a moment is done and answered, also if the client sends no more.
            FileOpStage::Preparing(_)
            | FileOpStage::Settling(_)
            | FileOpStage::Ready(Job { stop: None, .. })
            | FileOpStage::Working(_, None) => BodySink::Memory(&mut []),
            _ => BodySink::Ordinary,
        }
    }

    fn direct_bytes_done(&mut self, bytes: u64) {
        if let FileOpStage::Receiving(intake) = &mut self.stage {
            intake.filled(bytes);
        }
    }

    fn end_body(&mut self, _cx: &mut Context<'_>, _now: Moment) {
        self.has_body_ended = true;
        self.settle();
    }
}

impl Describe for FileOpTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "file_op"
    }
}
