//! Finds where a request head ends, before anything looks into it. Remembers how far it has looked, so
//! that a head that comes byte by byte costs no more than one that comes whole; keeps the limits of
//! H10 while it looks, so that no head grows beyond them.
//!
//! Where an error is found depends on the stream alone, never on how it was cut: limits at the byte
//! that crosses them, a NUL in the request line at that byte, the rest of that line at its end, everything else at the
//! end of the head.

use crate::parse::{self, RequestLine};
use sekisho_http::Policy;
use sekisho_http::refusal::Cause;
use sekisho_http::token::is_token_byte;

/// Positions in a head have 32 bits.
pub(crate) const POSITION_MAX: usize = (u32::MAX - 1) as usize;

/// A complete head: where its parts lie in the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The request line, already parsed.
    pub line: RequestLine,
    /// Where the fields begin.
    pub fields_at: usize,
    /// How many field lines there are.
    pub fields: usize,
    /// Where the head ends, the empty line included.
    pub len: usize,
}

/// The empty line that may precede a request line (H5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Blank {
    #[default]
    None,
    Cr,
    Line,
}

/// Looks for the end of one head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Framer {
    /// Everything before this has been looked at.
    scanned: u32,
    /// Where the current line begins.
    line_at: u32,
    fields_at: u32,
    fields: u32,
    line: Option<RequestLine>,
    blank: Blank,
}

impl Framer {
    /// Takes the one empty line that is ignored before a request line (H5), as far as it is at the front of
    /// the input, and returns how many bytes that was. The bytes are not offered again.
    pub fn skip_blank(&mut self, input: &[u8]) -> Result<usize, Cause> {
        if self.scanned > 0 {
            return Ok(0);
        }
        let mut taken = 0;
        while let Some(byte) = input.get(taken) {
            self.blank = match (self.blank, byte) {
                (Blank::None, b'\r') => Blank::Cr,
                (Blank::None | Blank::Cr, b'\n') => Blank::Line,
                (Blank::Cr, _) => return Err(Cause::BareCr),
                (Blank::Line, b'\r' | b'\n') => return Err(Cause::BlankLines),
                _ => break,
            };
            taken += 1;
        }
        Ok(taken)
    }

    /// Looks on where the last call stopped. `input` begins with the request line and is the same as
    /// last time with more behind it. `None` means that the head is not complete.
    pub fn advance(&mut self, input: &[u8], limits: &Policy) -> Result<Option<Frame>, Cause> {
        // Bytes that are no request (a TLS hello, for example) are refused at once and not at the deadline.
        match input.first() {
            Some(0) if self.scanned == 0 => return Err(Cause::Nul),
            Some(first) if self.scanned == 0 && !is_token_byte(*first) => {
                return Err(Cause::MethodInvalid);
            }
            _ => {}
        }
        loop {
            let (limit, too_long) = self.limit(limits);
            let window = limit.min(input.len());
            let from = (self.scanned as usize).min(window);
            let found = memchr::memchr(b'\n', &input[from..window]);
            // The same for what another protocol begins with: most have zeros early.
            let until = found.map_or(window, |found| from + found);
            if self.line.is_none() && memchr::memchr(0, &input[from..until]).is_some() {
                return Err(Cause::Nul);
            }
            let Some(found) = found else {
                self.scanned = window as u32;
                return if input.len() >= limit { Err(too_long) } else { Ok(None) };
            };
            let end = from + found;
            let line = &input[(self.line_at as usize).min(end)..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.scanned = end as u32 + 1;
            self.line_at = self.scanned;
            match self.line {
                None => {
                    self.line = Some(parse::request_line(line)?);
                    self.fields_at = self.line_at;
                }
                Some(request_line) if line.is_empty() => {
                    return Ok(Some(Frame {
                        line: request_line,
                        fields_at: self.fields_at as usize,
                        fields: self.fields as usize,
                        len: end + 1,
                    }));
                }
                Some(_) if self.fields as usize >= limits.fields_max => {
                    return Err(Cause::TooManyFields);
                }
                Some(_) => self.fields += 1,
            }
        }
    }

    /// How far has been looked: nothing before it is looked at again.
    pub const fn scanned(&self) -> usize {
        self.scanned as usize
    }

    /// The request line, once it is complete.
    pub const fn line(&self) -> Option<RequestLine> {
        self.line
    }

    /// Where the current line must have ended at the latest, its line feed included, and what is
    /// wrong when it has not.
    fn limit(&self, limits: &Policy) -> (usize, Cause) {
        let (line_max, cause) = match self.line {
            None => (limits.line_bytes_max, Cause::LineTooLong),
            Some(_) => (limits.field_bytes_max, Cause::FieldTooLong),
        };
        let head_limit = limits.head_bytes_max.min(POSITION_MAX);
        let line_limit = line_max.saturating_add(self.line_at as usize);
        if line_limit <= head_limit || self.line.is_none() {
            (line_limit.min(head_limit), cause)
        } else {
            (head_limit, Cause::HeadTooLarge)
        }
    }
}
