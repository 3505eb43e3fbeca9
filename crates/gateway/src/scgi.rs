//! SCGI: the head of a request is a netstring of names and values, each ended by NUL, `CONTENT_LENGTH`
//! first; the body follows as it is. The answer is CGI's. One request for each connection: see
//! [`SingleRequest::scgi`](crate::SingleRequest::scgi).

use sekisho_http::upstream::{Request, RequestBody, RequestFault};

use crate::params::{CONTENT_LENGTH, each_param};

/// Writes a request head to `out`, or nothing.
pub(crate) fn encode(request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), RequestFault> {
    let length = match request.body {
        RequestBody::None => 0,
        RequestBody::Known(bytes) => bytes,
        RequestBody::Unknown => return Err(RequestFault::LengthUnknown),
    };
    let mut head = Vec::with_capacity(1024);
    let mut push = |name: &[u8], value: &[u8]| {
        for part in [name, b"\0", value, b"\0"] {
            head.extend_from_slice(part);
        }
    };
    push(CONTENT_LENGTH, itoa::Buffer::new().format(length).as_bytes());
    push(b"SCGI", b"1");
    each_param(request.pairs, request.body, |name, value| {
        if name != CONTENT_LENGTH && name != b"SCGI" {
            push(name, value);
        }
    })?;
    out.extend_from_slice(itoa::Buffer::new().format(head.len()).as_bytes());
    out.push(b':');
    out.append(&mut head);
    out.push(b',');
    Ok(())
}
