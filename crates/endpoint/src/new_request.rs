//! What a caller asks for: a service, by number or name, with a body, a deadline, an upload.

use std::time::Duration;

/// A request that is to be made: for a service, by its number or its name, with a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRequest<'a> {
    pub(crate) number: u32,
    pub(crate) name: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) timeout: Option<Duration>,
    pub(crate) has_upload: bool,
}

impl<'a> NewRequest<'a> {
    /// For the service with this number.
    pub const fn to(number: u32) -> Self {
        Self { number, name: "", body: b"", timeout: None, has_upload: false }
    }

    /// For the service with this name.
    pub const fn to_name(name: &'a str) -> Self {
        Self { number: 0, name, body: b"", timeout: None, has_upload: false }
    }

    /// With this body, or this first part of it.
    #[must_use]
    pub const fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// The server ends the request after so long: with `DEADLINE_EXCEEDED`, if it has no answer by then.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The body goes on after the request was made.
    #[must_use]
    pub const fn with_upload(mut self) -> Self {
        self.has_upload = true;
        self
    }
}
