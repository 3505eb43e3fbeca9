//! uwsgi: the head of a request is one packet of names and values with their lengths; the body follows as
//! it is. The answer is HTTP's or CGI's. One request for each connection: see
//! [`SingleRequest::uwsgi`](crate::SingleRequest::uwsgi).

use sekisho_http::upstream::{Request, RequestBody, RequestFault};

use crate::params::each_param;

/// `uwsgi_modifier1` and `uwsgi_modifier2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modifiers(pub u8, pub u8);

/// Writes a request head to `out`, or nothing. Lengths have 16 bits, lowest byte first.
pub(crate) fn encode(
    Modifiers(first, second): Modifiers,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RequestFault> {
    if request.body == RequestBody::Unknown {
        return Err(RequestFault::LengthUnknown);
    }
    let mut head = Vec::with_capacity(1024);
    let mut is_too_large = false;
    each_param(request.pairs, request.body, |name, value| {
        for text in [name, value] {
            let Ok(len) = u16::try_from(text.len()) else {
                is_too_large = true;
                return;
            };
            head.extend_from_slice(&len.to_le_bytes());
            head.extend_from_slice(text);
        }
    })?;
    let len = u16::try_from(head.len()).map_err(|_| RequestFault::TooLarge)?;
    if is_too_large {
        return Err(RequestFault::TooLarge);
    }
    out.push(first);
    out.extend_from_slice(&len.to_le_bytes());
    out.push(second);
    out.append(&mut head);
    Ok(())
}
