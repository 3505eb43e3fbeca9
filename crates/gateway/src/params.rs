//! The parameters of a FastCGI, SCGI or uwsgi request: what CGI calls its environment, by the same rules
//! (C8).

use sekisho_http::upstream::{RequestBody, RequestFault};
use sekisho_http::{Fields, Head, Known};

use crate::cgi::{Environment, http_variables};

pub(crate) const CONTENT_LENGTH: &[u8] = b"CONTENT_LENGTH";
/// The same as a field of the request.
const HTTP_CONTENT_LENGTH: &[u8] = b"HTTP_CONTENT_LENGTH";

/// Adds `HTTP_*` for each field of the request that may become one, those of one name together. A name that the
/// configuration sets is left as it is.
pub fn push_http_params(head: &Head, is_configured: impl Fn(&[u8]) -> bool, out: &mut Fields) {
    // Here the application also gets the `Authorization` field, as in nginx.
    http_variables(head, true, |name, values| {
        if !is_configured(name) {
            out.push_with(name, |value| values.write(value));
        }
    });
    // Unlike programs of CGI, applications get these fields as such, too.
    let own: [(&[u8], Known); 2] =
        [(b"HTTP_CONTENT_TYPE", Known::ContentType), (HTTP_CONTENT_LENGTH, Known::ContentLength)];
    for (name, known) in own {
        if let Some(value) = head.known(known)
            && !is_configured(name)
        {
            out.push(name, value);
        }
    }
}

/// Adds the variables of a CGI environment.
pub fn push_environment(environment: &Environment, out: &mut Fields) {
    for variable in environment.iter() {
        let variable = variable.to_bytes();
        let equals = memchr::memchr(b'=', variable).unwrap_or(variable.len());
        out.push(&variable[..equals], variable.get(equals + 1..).unwrap_or_default());
    }
}

/// Gives the parameters in order, with the one true `CONTENT_LENGTH`: that of the body, not that of the
/// pairs. Names must not be empty and nothing may have a NUL, which ends a value for C.
pub(crate) fn each_param(
    pairs: &Fields,
    body: RequestBody,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<(), RequestFault> {
    let is_sound = |(name, value): (&[u8], &[u8])| {
        !name.is_empty()
            && memchr::memchr2(0, b'=', name).is_none()
            && memchr::memchr(0, value).is_none()
    };
    if !pairs.iter().all(is_sound) {
        return Err(RequestFault::Pair);
    }
    let mut buffer = itoa::Buffer::new();
    let length: &[u8] = match body {
        RequestBody::Known(bytes) => buffer.format(bytes).as_bytes(),
        RequestBody::None | RequestBody::Unknown => b"",
    };
    let mut is_said = false;
    for (name, value) in pairs.iter() {
        if name == HTTP_CONTENT_LENGTH {
            if !length.is_empty() {
                take(name, length);
            }
        } else if name != CONTENT_LENGTH {
            take(name, value);
        } else if !is_said {
            is_said = true;
            take(CONTENT_LENGTH, length);
        }
    }
    if !is_said && !length.is_empty() {
        take(CONTENT_LENGTH, length);
    }
    Ok(())
}
