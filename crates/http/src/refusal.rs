//! Why a request is refused before any handler sees it: one variant per cause. The status follows from
//! the variant, never from text.

use crate::status::Status;

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
        /// What was wrong: with the client's bytes, its pace, or the number of its connections.
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
    BlankLines BAD_REQUEST "more than one empty line before the request line";
    RequestLineInvalid BAD_REQUEST "request line is not method, target and version with single spaces";
    MethodInvalid BAD_REQUEST "method is not a token";
    TargetInvalid BAD_REQUEST "request target is empty or has an invalid byte";
    ConnectWithPath METHOD_NOT_ALLOWED "CONNECT with a path";
    VersionMissing BAD_REQUEST "request line has no version";
    VersionInvalid BAD_REQUEST "version is not of the form HTTP/1.1";
    VersionNotSupported VERSION_NOT_SUPPORTED "version is neither HTTP/1.0 nor HTTP/1.1";
    BareCr BAD_REQUEST "carriage return without line feed";
    Nul BAD_REQUEST "NUL byte in the head";
    LineTooLong URI_TOO_LONG "request line is too long";
    FieldTooLong HEADER_TOO_LARGE "header field is too long";
    HeadTooLarge HEADER_TOO_LARGE "request head is too large";
    TooManyFields HEADER_TOO_LARGE "too many header fields";
    FieldFolded BAD_REQUEST "header field is folded over two lines";
    SpaceBeforeColon BAD_REQUEST "white space before the colon of a header field";
    ColonMissing BAD_REQUEST "header field without a colon";
    FieldNameInvalid BAD_REQUEST "header field name is not a token";
    FieldValueInvalid BAD_REQUEST "header field value has a control byte";
    HostMissing BAD_REQUEST "HTTP/1.1 request without a Host field";
    HostRepeated BAD_REQUEST "more than one Host field";
    HostInvalid BAD_REQUEST "Host is not a host with an optional port";
    FieldRepeated BAD_REQUEST "a header field that must not be repeated is repeated";
    LengthInvalid BAD_REQUEST "Content-Length is not a number of 64 bits";
    LengthRepeated BAD_REQUEST "more than one Content-Length";
    LengthAndCoding BAD_REQUEST "both Content-Length and Transfer-Encoding";
    CodingInHttp10 BAD_REQUEST "Transfer-Encoding in an HTTP/1.0 request";
    CodingInvalid BAD_REQUEST "Transfer-Encoding is not a list of codings";
    CodingRepeated BAD_REQUEST "the chunked coding is applied more than once";
    CodingNotLast BAD_REQUEST "the chunked coding is not the last one";
    CodingUnknown NOT_IMPLEMENTED "a transfer coding other than chunked";
    ProtocolUnknown NOT_IMPLEMENTED "CONNECT for a protocol other than websocket";
    ExpectationUnknown EXPECTATION_FAILED "an expectation other than 100-continue";
    ChunkSizeInvalid BAD_REQUEST "chunk size is not 1 to 16 hexadecimal digits";
    ChunkEndInvalid BAD_REQUEST "chunk does not end with CRLF where it should";
    ChunkExtensionInvalid BAD_REQUEST "chunk extension has a control byte";
    ChunkExtensionsTooLong BAD_REQUEST "chunk extensions are too long";
    TrailerInvalid BAD_REQUEST "trailer field is malformed";
    TrailersTooLong HEADER_TOO_LARGE "trailer section is too long";
    BodyTooLarge CONTENT_TOO_LARGE "request body is larger than allowed";
    HeaderTimedOut REQUEST_TIMEOUT "request head was not complete in time";
    TooManyConnections SERVICE_UNAVAILABLE "too many connections";
    BodyTimedOut REQUEST_TIMEOUT "request body was not received in time";
}
