//! Why a request is answered by a refusal before any handler sees it, and why one is not answered at all.

use sekisho_http::Status;

/// A refusal: what to answer, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status to answer with.
    pub status: Status,
    /// The cause, for the log.
    pub cause: Cause,
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Self { status: cause.status(), cause }
    }
}

macro_rules! causes {
    ($($variant:ident $status:ident $message:literal;)*) => {
        /// Why a well-formed request is refused.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Cause { $(#[doc = $message] $variant,)* }

        impl Cause {
            /// Every cause.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The status this cause is answered with.
            pub const fn status(self) -> Status {
                match self { $(Self::$variant => Status::$status,)* }
            }

            /// The cause in words, for the error log.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

causes! {
    LineTooLong URI_TOO_LONG "request path is too long";
    FieldTooLong HEADER_TOO_LARGE "header field is too long";
    HeadTooLarge HEADER_TOO_LARGE "request head is too large";
    TooManyFields HEADER_TOO_LARGE "too many header fields";
    HostMissing BAD_REQUEST "request without an authority or a Host field";
    HostInvalid BAD_REQUEST "authority is not a host with an optional port";
    ExpectationUnknown EXPECTATION_FAILED "an expectation other than 100-continue";
    BodyTooLarge CONTENT_TOO_LARGE "request body is larger than allowed";
    BodyTimedOut REQUEST_TIMEOUT "request body did not come in time";
}

macro_rules! malformed {
    ($($variant:ident $message:literal;)*) => {
        /// What makes a request malformed (RFC 9113 §8.1.1): its stream is reset with PROTOCOL_ERROR.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Malformed { $(#[doc = $message] $variant,)* }

        impl Malformed {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In words, for the error log.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

malformed! {
    PseudoUnknown "pseudo-header field that a request cannot have";
    PseudoRepeated "pseudo-header field more than once";
    PseudoLate "pseudo-header field behind another field";
    PseudoInTrailers "pseudo-header field in trailers";
    MethodMissing "request without :method";
    MethodInvalid ":method is not a token";
    SchemeMissing "request without :scheme";
    SchemeInvalid ":scheme is not a scheme";
    PathMissing "request without :path";
    PathInvalid ":path is not an absolute path, or has a byte that may not stand in it";
    ConnectInvalid "CONNECT with :scheme or :path, or without :authority";
    HostDiffers "Host is not what :authority says";
    HostRepeated "more than one Host field";
    NameInvalid "header field name is not a token in lower case";
    ValueInvalid "header field value has a control byte, or white space at its ends";
    ConnectionField "header field that is for one HTTP/1 connection only";
    TeInvalid "TE is something else than trailers";
    LengthInvalid "Content-Length is not one number of 64 bits";
    LengthDiffers "body is not as long as Content-Length says";
    DependsOnItself "stream depends on itself";
    TrailersWithoutEnd "trailers that do not end the stream";
}
