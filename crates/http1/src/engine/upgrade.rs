//! Answers before the answer (1xx), and the change to another protocol (101): from there on the connection is a
//! tunnel, whose bytes come as events of a body and leave as they are.

use sekisho_http::{Fields, Scratch, Status, Version};
use sekisho_lifecycle::{CloseReason, Moment, Step};

use super::{Http1, Input, Output};
use crate::event::Event;

impl Http1 {
    /// Writes an informational response; the final one follows. A client of HTTP/1.0 would not understand it
    /// (RFC 9110 §15.2).
    pub fn inform(&mut self, status: Status, fields: &Fields, scratch: &mut Scratch, now: Moment) {
        let is_informational = (102..200).contains(&status.code());
        if !self.awaits_response() || !is_informational || self.request.version == Version::Http10 {
            return;
        }
        self.put(scratch, now, |out| {
            push_status_line(status, out);
            out.extend_from_slice(fields.as_lines());
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Switches to another protocol (101). Not where the request has not ended or is not of HTTP/1.1: then nothing was
    /// written, and another answer is to be given.
    pub fn upgrade(
        &mut self,
        protocol: &[u8],
        fields: &Fields,
        scratch: &mut Scratch,
        now: Moment,
    ) -> bool {
        let is_complete = matches!(self.input, Input::Complete { .. });
        if !self.awaits_response() || !is_complete || self.request.version != Version::Http11 {
            return false;
        }
        self.put(scratch, now, |out| {
            push_status_line(Status::SWITCHING_PROTOCOLS, out);
            for part in [b"Connection: Upgrade\r\nUpgrade: ", protocol, b"\r\n"] {
                out.extend_from_slice(part);
            }
            out.extend_from_slice(fields.as_lines());
            out.extend_from_slice(b"\r\n");
        });
        self.input = Input::Tunnel;
        self.output = Output::UntilClose;
        self.until_close = true;
        self.closing = Some(CloseReason::CloseDelimited);
        self.read = None;
        true
    }

    /// Bytes of another protocol.
    pub(super) fn receive_tunnel(&self, input: &[u8]) -> Step<Event> {
        if input.is_empty() || self.held.is_some() {
            return Step::NOTHING;
        }
        Step { taken: input.len(), event: Some(Event::Body(0..input.len())) }
    }

    /// The client has ended its side of the tunnel: the shell gets that after the earlier bytes.
    pub(super) const fn end_tunnel(&mut self) {
        self.input = Input::Complete { report_end: true };
    }
}

fn push_status_line(status: Status, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let line = status.line();
    if line.is_empty() {
        out.extend_from_slice(itoa::Buffer::new().format(status.code()).as_bytes());
        out.push(b' ');
    } else {
        out.extend_from_slice(line.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
