//! What is done with requests and responses beside their handler: requests within a request, and filters of bodies.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::{Assignee, Template};

/// Filters of response bodies, and cookies that tell clients apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filters {
    /// `gunzip`: responses in gzip are decompressed for clients that do not take it.
    pub gunzip: bool,
    /// `add_before_body`, `add_after_body`
    pub addition: Option<Arc<Addition>>,
    /// `sub_filter`
    pub substitutions: Option<Arc<Substitutions>>,
    /// `ssi`
    pub ssi: Option<Arc<Ssi>>,
    /// `slice`: how long the ranges are that another server is asked for.
    pub slice: Option<NonZeroU64>,
    /// `userid`
    pub user_id: Option<Arc<UserId>>,
}

impl Filters {
    /// Whether a response of this type, which may have no body, may be changed.
    pub fn change(&self, media_type: &[u8], has_body: bool) -> bool {
        let is_replaced =
            || self.substitutions.as_ref().is_some_and(|it| it.types.contain(media_type));
        let has_includes = || self.ssi.as_ref().is_some_and(|it| it.types.contain(media_type));
        self.addition.as_ref().is_some_and(|it| it.types.contain(media_type))
            || (has_body && (is_replaced() || has_includes()))
    }
}

/// Media types that a filter is for; `text/html` is always one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MediaTypes(pub Arc<[String]>);

impl MediaTypes {
    /// Whether a `Content-Type` names one of them.
    pub fn contain(&self, content_type: &[u8]) -> bool {
        if self.0.iter().any(|one| one == "*") {
            // As in nginx also what has no type.
            return true;
        }
        let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
        let media_type = content_type[..end].trim_ascii();
        media_type.eq_ignore_ascii_case(b"text/html")
            || self.0.iter().any(|one| media_type.eq_ignore_ascii_case(one.as_bytes()))
    }
}

/// `sub_filter` and its companions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Substitutions {
    /// What is looked for, and what comes in its place.
    pub pairs: Arc<[(Template, Template)]>,
    /// `sub_filter_once`
    pub is_once: bool,
    /// `sub_filter_types`
    pub types: MediaTypes,
    /// `sub_filter_last_modified`
    pub keeps_modified: bool,
}

/// `add_before_body`, `add_after_body` and `addition_types`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addition {
    /// What is put before the body.
    pub before: Option<Arc<[u8]>>,
    /// What is put behind it.
    pub after: Option<Arc<[u8]>>,
    /// `addition_types`
    pub types: MediaTypes,
}

/// `ssi` and its companions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ssi {
    /// `ssi_types`
    pub types: MediaTypes,
    /// `ssi_silent_errors`
    pub is_silent: bool,
    /// `ssi_value_length`
    pub value_bytes_max: usize,
    /// `ssi_last_modified`
    pub keeps_modified: bool,
}

/// `userid` and its companions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserId {
    /// `userid`
    pub mode: UserIdMode,
    /// `userid_name`
    pub name: Arc<str>,
    /// `userid_path`, `userid_domain` and `userid_flags`, as they stand in the field.
    pub attributes: Arc<str>,
    /// `userid_expires`
    pub expires: UserIdExpires,
    /// `userid_p3p`
    pub p3p: Option<Arc<[u8]>>,
    /// `userid_service`
    pub service: Option<u32>,
    /// `userid_mark`
    pub mark: Option<u8>,
    /// The variable `$uid_reset`, where the configuration has one.
    pub reset: Option<Template>,
}

/// `userid`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UserIdMode {
    /// Cookies are neither set nor read.
    #[default]
    Off,
    /// Cookies of the second version.
    On,
    /// Cookies of the first version.
    V1,
    /// Cookies are read, none is set.
    Log,
}

/// `userid_expires`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UserIdExpires {
    /// With the session of the browser.
    #[default]
    Off,
    /// At the end of 2037.
    Max,
    /// After so many seconds.
    After(u64),
}

/// `auth_request` and `auth_request_set`: another location is asked for permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthRequest {
    /// Which.
    pub path: Arc<[u8]>,
    /// What is kept of its answer.
    pub sets: Arc<[(Assignee, Template)]>,
}

/// `mirror` and `mirror_request_body`: copies of a request are given to other locations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirrors {
    /// Which.
    pub paths: Arc<[Arc<[u8]>]>,
    /// `mirror_request_body`
    pub with_body: bool,
}
