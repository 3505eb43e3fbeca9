//! Fields of a header block into the head of an answer, or into trailers, or why not (RFC 9113 §8.1–§8.3). As strict as
//! the server's side: everything that is taken could be written as one HTTP/1 answer with the same meaning (V5).

use sekisho_http::request::{is_name_byte, number};
use sekisho_http::upstream::{HeadFault, ResponseHead, is_hop_by_hop};
use sekisho_http::{Fields, Status, Version};

use super::Limits;
use crate::hpack::Field;
use sekisho_http::token::is_value_byte;

/// A head that is being put together.
pub(super) struct Assembly<'a> {
    head: &'a mut ResponseHead,
    limits: Limits,
    has_status: bool,
    /// A field that is no pseudo-header field has come.
    has_begun: bool,
    bytes: usize,
    fault: Option<HeadFault>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(head: &'a mut ResponseHead, limits: Limits) -> Self {
        head.clear();
        head.version = Version::Http2;
        Self { head, limits, has_status: false, has_begun: false, bytes: 0, fault: None }
    }

    /// Takes the next field. After a fault the rest is only decoded, for the sake of the table.
    pub(super) fn take(&mut self, field: Field<'_>) {
        if self.fault.is_none() {
            self.fault = self.try_take(field).err();
        }
    }

    fn try_take(&mut self, field: Field<'_>) -> Result<(), HeadFault> {
        self.bytes += field.name.len() + field.value.len();
        if self.bytes > self.limits.head_bytes_max {
            return Err(HeadFault::TooLarge);
        }
        if field.name.first() == Some(&b':') {
            if field.name != b":status" || self.has_status || self.has_begun {
                return Err(HeadFault::Pseudo);
            }
            self.has_status = true;
            self.head.status = status(field.value).ok_or(HeadFault::StatusInvalid)?;
            return Ok(());
        }
        if !self.has_status {
            return Err(HeadFault::StatusInvalid);
        }
        self.has_begun = true;
        let value = check(field)?;
        if field.name == b"content-length" {
            // Even equal ones: two lengths are a sign that two parsers have not agreed before.
            if self.head.content_length.is_some() {
                return Err(HeadFault::LengthRepeated);
            }
            self.head.content_length = Some(number(value).ok_or(HeadFault::LengthInvalid)?);
            return Ok(());
        }
        if self.head.fields.len() >= self.limits.fields_max {
            return Err(HeadFault::TooManyFields);
        }
        // `trailer` and `te` say nothing to the next connection.
        if !is_hop_by_hop(field.name) {
            self.head.fields.push(field.name, value);
        }
        Ok(())
    }

    /// The block is complete.
    pub(super) fn finish(self) -> Result<(), HeadFault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if !self.has_status => Err(HeadFault::StatusInvalid),
            None => Ok(()),
        }
    }
}

/// Trailers that are being put together.
pub(super) struct Trailers<'a> {
    fields: &'a mut Fields,
    limits: Limits,
    bytes: usize,
    fault: Option<HeadFault>,
}

impl<'a> Trailers<'a> {
    pub(super) fn new(fields: &'a mut Fields, limits: Limits) -> Self {
        fields.clear();
        Self { fields, limits, bytes: 0, fault: None }
    }

    pub(super) fn take(&mut self, field: Field<'_>) {
        if self.fault.is_none() {
            self.fault = self.try_take(field).err();
        }
    }

    fn try_take(&mut self, field: Field<'_>) -> Result<(), HeadFault> {
        self.bytes += field.name.len() + field.value.len();
        if self.bytes > self.limits.head_bytes_max || self.fields.len() >= self.limits.fields_max {
            return Err(HeadFault::TooLarge);
        }
        if field.name.first() == Some(&b':') {
            return Err(HeadFault::Pseudo);
        }
        let value = check(field)?;
        if !is_hop_by_hop(field.name) && field.name != b"content-length" {
            self.fields.push(field.name, value);
        }
        Ok(())
    }

    /// The block is complete.
    pub(super) fn finish(self) -> Result<(), HeadFault> {
        self.fault.map_or(Ok(()), Err)
    }
}

/// The value of a field that may stand in an answer.
fn check(field: Field<'_>) -> Result<&[u8], HeadFault> {
    let is_name = field.is_static_name
        || (!field.name.is_empty() && field.name.iter().copied().all(is_name_byte));
    if !is_name {
        return Err(HeadFault::Field);
    }
    if !field.value.iter().copied().fold(true, |all, byte| all & is_value_byte(byte)) {
        return Err(HeadFault::ControlByte);
    }
    // RFC 9113 §8.2.2: such an answer is malformed.
    match field.name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(HeadFault::ConnectionField)
        }
        // RFC 9113 §8.2.1 forbids white space at the edges; it has no meaning, so that it is only left out.
        _ => Ok(field.value.trim_ascii()),
    }
}

fn status(value: &[u8]) -> Option<Status> {
    let digits: [u8; 3] = value.try_into().ok()?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Status::new(digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
}
