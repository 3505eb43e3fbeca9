//! WebDAV beyond changing files (RFC 4918, `dav_ext_methods`): properties and locks. `sekisho_webdav` parses
//! the bodies and keeps the locks; here they are applied to files.

mod dead;
pub(super) mod lock;
pub(super) mod locks;
pub(super) mod properties;
pub(super) mod propfind;
pub(super) mod proppatch;

use rustix::io::Errno;
use sekisho_config::FileOps;
use sekisho_http::{Fields, Head, Status};
use sekisho_webdav::Invalid;

use super::intake::{Intake, Sink};
use super::{Answer, Call, Failure, Outcome};

pub(super) use dead::copy as copy_properties;

/// What the answer to OPTIONS says of it.
pub(super) fn describe(file_ops: &FileOps, fields: &mut Fields) {
    if !file_ops.ext_methods.options {
        return;
    }
    let classes = if file_ops.ext_methods.lock { "1, 2" } else { "1" };
    fields.push("DAV", classes.as_bytes());
    // Without it Microsoft's clients try other protocols first.
    fields.push("MS-Author-Via", b"DAV");
}

/// A body of XML, gathered in memory until it is complete.
struct XmlBody<F> {
    bytes: Vec<u8>,
    then: F,
}

impl<F> std::fmt::Debug for XmlBody<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XmlBody").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Takes a body of XML, and does this with it.
fn receive(call: &Call<'_>, then: impl FnOnce(&[u8]) -> Outcome + Send + 'static) -> Intake {
    Intake::new(call.device(), Box::new(XmlBody { bytes: Vec::new(), then }), None)
}

impl<F: FnOnce(&[u8]) -> Outcome + Send> Sink for XmlBody<F> {
    fn open(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.bytes.len() + bytes.len() > sekisho_webdav::body::BYTES_MAX {
            return Err(invalid(Invalid::TooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        (self.then)(&self.bytes)
    }

    fn failure(&self, errno: Errno) -> Failure {
        Failure::by(errno, Status::INTERNAL_SERVER_ERROR, "read", b"body")
    }
}

/// The answer to a body that cannot be understood.
fn invalid(why: Invalid) -> Failure {
    match why {
        Invalid::Malformed => Failure::because(Status::BAD_REQUEST, "request refused: invalid XML"),
        Invalid::TooLarge => {
            Failure::because(Status::CONTENT_TOO_LARGE, "request refused: the XML is too large")
        }
    }
}

/// The type of answers.
pub(crate) const XML_TYPE: &[u8] = b"application/xml; charset=utf-8";

/// An answer of XML.
fn xml(status: Status, body: Vec<u8>) -> Answer {
    let mut answer = Answer::new(status).field("Content-Type", XML_TYPE);
    answer.body = body;
    answer
}

/// `Depth`: 0, 1 or, also by default, infinity.
fn depth(call: &Call<'_>) -> Result<Depth, Failure> {
    Depth::of(call.request.head).ok_or_else(|| Failure::because(Status::BAD_REQUEST, WRONG_DEPTH))
}

pub(crate) const WRONG_DEPTH: &str = "request refused: Depth is not 0, 1 or infinity";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    Zero,
    One,
    Infinity,
}

impl Depth {
    /// `None` where it is something else.
    pub(crate) fn of(head: &Head) -> Option<Self> {
        match head.named(b"depth") {
            Some(b"0") => Some(Self::Zero),
            Some(b"1") => Some(Self::One),
            None => Some(Self::Infinity),
            Some(text) if text.eq_ignore_ascii_case(b"infinity") => Some(Self::Infinity),
            Some(_) => None,
        }
    }
}
