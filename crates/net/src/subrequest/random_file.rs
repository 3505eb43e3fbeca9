//! `random_index`: a file of a folder, chosen by chance. A thread of the pool reads the folder, so that a slow disk
//! holds up the one request that needs it.

use std::ffi::OsStr;
use std::future::Future as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use sekisho_handler::disk::{self, Device, Operation};
use sekisho_handler::{BodyIn, Describe, Outbox, Progress, Task, Work, without};
use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;
use sekisho_route::{Picked, RouteState};

/// How many entries of a folder are looked at.
const ENTRIES_MAX: usize = 100_000;

/// A task that chooses a file.
#[derive(Debug)]
pub(crate) struct RandomFileTask {
    /// `None` when it was cancelled.
    reading: Option<Operation<Picked>>,
    picked: Picked,
}

impl RandomFileTask {
    /// Begins to read the folder of a route state; `chance` decides.
    pub(crate) fn start(route: &RouteState, chance: u128) -> Box<dyn Task> {
        let folder = PathBuf::from(OsStr::from_bytes(&route.file));
        let reading = Device::at(&folder).read(move || pick(&folder, chance));
        Box::new(Self { reading: Some(reading), picked: Picked::Nothing })
    }
}

/// A regular file of the folder, or what leads to one; those whose name begins with a dot do not count, as in nginx.
fn pick(folder: &Path, chance: u128) -> Picked {
    let Ok(entries) = std::fs::read_dir(folder) else { return Picked::Nothing };
    let is_file = |entry: &std::fs::DirEntry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| {
            kind.is_file()
                || (kind.is_symlink() && entry.path().metadata().is_ok_and(|it| it.is_file()))
        })
    };
    let mut names: Vec<Vec<u8>> = entries
        .take(ENTRIES_MAX)
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().as_bytes().starts_with(b"."))
        .filter(is_file)
        .map(|entry| entry.file_name().into_vec())
        .collect();
    if names.is_empty() {
        return Picked::Nothing;
    }
    let at = (chance % names.len() as u128) as usize;
    Picked::File(names.swap_remove(at))
}

impl Work for RandomFileTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        let Some(reading) = &mut self.reading else {
            return Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE));
        };
        match Pin::new(reading).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(picked)) => {
                self.picked = picked;
                Poll::Ready(Progress::Again)
            }
            Poll::Ready(Err(_)) => {
                out.fields.push("Retry-After", disk::RETRY_AFTER);
                Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE))
            }
        }
    }

    fn conclude(&mut self, route: &mut RouteState) {
        route.picked = std::mem::take(&mut self.picked);
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.reading = None;
    }
}

impl BodyIn for RandomFileTask {
    without!(body_sink, direct_bytes_done, end_body, return_body);

    /// The body is not for it.
    fn take(&mut self, _: &mut Context<'_>, _: &[u8], _: Moment) -> usize {
        0
    }
}

impl Describe for RandomFileTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "random_index"
    }
}
