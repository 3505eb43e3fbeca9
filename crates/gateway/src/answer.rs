//! The answer of an application behind FastCGI, SCGI or uwsgi: a head as a CGI program prints it, or one
//! that begins with an HTTP status line, then the body. Whatever carries these bytes is not known here.

use std::ops::Range;

use sekisho_http::Status;
use sekisho_http::upstream::{Failure, HeadFault, ResponseHead};

use crate::cgi::{Fed, HeadError, HeadReader};

const PROTOCOL: &[u8] = b"HTTP/";

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct Answer {
    state: State,
    /// HEAD: no body is wanted, whatever comes.
    is_head: bool,
}

#[derive(Debug)]
enum State {
    /// Perhaps a status line; this much of it has come.
    Line {
        line: Vec<u8>,
        bytes_max: usize,
    },
    Fields(Box<HeadReader>),
    /// So much is still to come, if that is known.
    Body(Option<u64>),
    /// No body is wanted, or all of it has come; the rest is thrown away.
    Whole,
}

/// The result for some bytes; how many were taken is returned beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The head goes on, or bytes were thrown away.
    Nothing,
    /// The head is complete.
    Head,
    /// Body bytes: this range.
    Body(Range<usize>),
}

impl Answer {
    /// For one request.
    pub(crate) const fn new(head_bytes_max: usize, is_head: bool) -> Self {
        let state = State::Line { line: Vec::new(), bytes_max: head_bytes_max };
        Self { state, is_head }
    }

    /// Whether the head is complete.
    pub(crate) const fn has_head(&self) -> bool {
        matches!(self.state, State::Body(_) | State::Whole)
    }

    /// Whether nothing that may still come belongs to the answer.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole)
    }

    /// Takes bytes, up to one part; the head is put into `head`.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
    ) -> Result<(usize, Part), HeadFault> {
        let skipped = self.line(input)?;
        let input = &input[skipped..];
        match &mut self.state {
            State::Line { .. } => Ok((skipped, Part::Nothing)),
            State::Fields(reader) => match reader.feed(input).map_err(head_fault)? {
                Fed::More => Ok((skipped + input.len(), Part::Nothing)),
                Fed::Head { head: read, taken } => {
                    self.take_head(&read, head);
                    Ok((skipped + taken, Part::Head))
                }
            },
            State::Body(None) => Ok((input.len(), Part::Body(0..input.len()))),
            State::Body(Some(left)) => {
                let len = (*left).min(input.len() as u64);
                *left -= len;
                if *left == 0 {
                    self.state = State::Whole;
                }
                // What goes beyond `Content-Length` is cut (C9).
                Ok((input.len(), Part::Body(0..len as usize)))
            }
            State::Whole => Ok((input.len(), Part::Nothing)),
        }
    }

    /// There is no more: whether what there was is an answer (C5).
    pub(crate) const fn end(&self) -> Result<(), Failure> {
        match self.state {
            State::Line { .. } | State::Fields(_) => Err(Failure::ClosedEarly),
            State::Body(Some(_)) => Err(Failure::BodyCut),
            State::Body(None) | State::Whole => Ok(()),
        }
    }

    /// Takes what belongs to a status line, if there is one.
    fn line(&mut self, input: &[u8]) -> Result<usize, HeadFault> {
        let State::Line { line, bytes_max } = &mut self.state else { return Ok(0) };
        let mut taken = 0;
        while let Some(byte) = input.get(taken) {
            if PROTOCOL.get(line.len()).is_some_and(|expected| expected != byte) {
                let mut reader = Box::new(HeadReader::for_upstream(*bytes_max));
                // Text without a line end: the head goes on after it.
                reader.feed(line).map_err(head_fault)?;
                self.state = State::Fields(reader);
                return Ok(taken);
            }
            if line.len() >= *bytes_max {
                return Err(HeadFault::TooLarge);
            }
            line.push(*byte);
            taken += 1;
            if *byte == b'\n' {
                let status = status_line(line).ok_or(HeadFault::StatusLine)?;
                let mut reader = Box::new(HeadReader::for_upstream(*bytes_max - line.len()));
                reader.set_status(status);
                self.state = State::Fields(reader);
                return Ok(taken);
            }
        }
        Ok(taken)
    }

    fn take_head(&mut self, read: &crate::cgi::ResponseHead, head: &mut ResponseHead) {
        head.clear();
        head.status = read.status;
        head.content_length = read.content_length;
        head.fields.extend_from(&read.fields);
        let is_bodyless = self.is_head || read.status.is_bodyless();
        head.has_body = !is_bodyless && read.content_length != Some(0);
        self.state = if head.has_body { State::Body(read.content_length) } else { State::Whole };
    }
}

/// `HTTP/1.1 200 OK` with its line end: a final status.
fn status_line(line: &[u8]) -> Option<Status> {
    let line = line.strip_suffix(b"\n")?;
    let rest = line.strip_suffix(b"\r").unwrap_or(line).strip_prefix(PROTOCOL)?;
    let ([b'0'..=b'9', b'.', b'0'..=b'9', b' ', code @ ..], reason) = rest.split_at_checked(7)?
    else {
        return None;
    };
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if !matches!(reason, [] | [b' ', ..]) || reason.iter().any(is_control) {
        return None;
    }
    let code = std::str::from_utf8(code).ok()?;
    let code: u16 = code.bytes().all(|byte| byte.is_ascii_digit()).then(|| code.parse().ok())??;
    Status::new(code).filter(|status| (200..600).contains(&status.code()))
}

const fn head_fault(error: HeadError) -> HeadFault {
    match error {
        HeadError::TooLarge => HeadFault::TooLarge,
        HeadError::BadLine => HeadFault::Field,
        HeadError::ControlByte => HeadFault::ControlByte,
        HeadError::BadStatus => HeadFault::StatusInvalid,
        HeadError::BadLength => HeadFault::LengthInvalid,
        HeadError::BadLocation => HeadFault::LocationInvalid,
        HeadError::Empty => HeadFault::Empty,
    }
}
