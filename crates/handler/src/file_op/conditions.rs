//! `If-Match`, `If-None-Match` and `If-Unmodified-Since` of a request that changes a file: asked before
//! the body is taken, and once more when the file is to take its place.

use rustix::fs::Stat;
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::{Head, Known, Status, Version};

use crate::open_file::etag_of;

const FIELDS: [Known; 3] = [Known::IfMatch, Known::IfNoneMatch, Known::IfUnmodifiedSince];

/// The conditions of a request; most have none.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    head: Option<Box<Head>>,
}

impl Conditions {
    pub(super) fn of(head: &Head) -> Self {
        if FIELDS.iter().all(|field| head.known(*field).is_none()) {
            return Self::default();
        }
        let mut own = Head::default();
        own.begin(head.method_name(), b"/", Version::Http11);
        for field in FIELDS {
            for value in head.all_known(field) {
                own.push(field.name().as_bytes(), value);
            }
        }
        Self { head: Some(Box::new(own)) }
    }

    /// Whether they hold for what there is.
    pub(super) fn check(&self, there: Option<&Stat>) -> Result<(), Status> {
        let Some(head) = &self.head else { return Ok(()) };
        let holds = match there {
            // What is not there matches nothing, and has not been modified.
            None => head.known(Known::IfMatch).is_none(),
            Some(stat) => {
                let etag = etag_of(stat, stat.st_size as u64);
                let validators =
                    Validators { etag: Some(etag.as_bytes()), modified: stat.st_mtime };
                conditional::evaluate(head, &validators, Since::Off) == PreconditionResult::Proceed
            }
        };
        if holds { Ok(()) } else { Err(Status::PRECONDITION_FAILED) }
    }
}
