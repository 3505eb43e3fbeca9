//! Status codes and their reason phrases: those of RFC 9110, but for 405 and 504, which monitoring that was written for
//! nginx looks for by nginx's own.

/// A status code, 100 to 999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident $code:literal $phrase:literal;)*) => {
        impl Status {
            $(#[doc = concat!(stringify!($code), " ", $phrase)] pub const $name: Self = Self($code);)*

            /// The reason phrase; empty for a code without one.
            pub const fn phrase(self) -> &'static str {
                match self.0 { $($code => $phrase,)* _ => "" }
            }

            /// `"200 OK"`: the code and its phrase, as error pages show them; empty for a code without one.
            pub const fn line(self) -> &'static str {
                match self.0 { $($code => concat!(stringify!($code), " ", $phrase),)* _ => "" }
            }
        }
    };
}

statuses! {
    CONTINUE 100 "Continue";
    SWITCHING_PROTOCOLS 101 "Switching Protocols";
    OK 200 "OK";
    CREATED 201 "Created";
    ACCEPTED 202 "Accepted";
    NO_CONTENT 204 "No Content";
    PARTIAL_CONTENT 206 "Partial Content";
    MULTI_STATUS 207 "Multi-Status";
    MULTIPLE_CHOICES 300 "Multiple Choices";
    MOVED_PERMANENTLY 301 "Moved Permanently";
    FOUND 302 "Found";
    SEE_OTHER 303 "See Other";
    NOT_MODIFIED 304 "Not Modified";
    TEMPORARY_REDIRECT 307 "Temporary Redirect";
    PERMANENT_REDIRECT 308 "Permanent Redirect";
    BAD_REQUEST 400 "Bad Request";
    UNAUTHORIZED 401 "Unauthorized";
    PAYMENT_REQUIRED 402 "Payment Required";
    FORBIDDEN 403 "Forbidden";
    NOT_FOUND 404 "Not Found";
    METHOD_NOT_ALLOWED 405 "Not Allowed";
    NOT_ACCEPTABLE 406 "Not Acceptable";
    REQUEST_TIMEOUT 408 "Request Timeout";
    CONFLICT 409 "Conflict";
    GONE 410 "Gone";
    LENGTH_REQUIRED 411 "Length Required";
    PRECONDITION_FAILED 412 "Precondition Failed";
    CONTENT_TOO_LARGE 413 "Content Too Large";
    URI_TOO_LONG 414 "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE 415 "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE 416 "Range Not Satisfiable";
    EXPECTATION_FAILED 417 "Expectation Failed";
    MISDIRECTED_REQUEST 421 "Misdirected Request";
    LOCKED 423 "Locked";
    TOO_EARLY 425 "Too Early";
    UPGRADE_REQUIRED 426 "Upgrade Required";
    TOO_MANY_REQUESTS 429 "Too Many Requests";
    HEADER_TOO_LARGE 431 "Request Header Fields Too Large";
    INTERNAL_SERVER_ERROR 500 "Internal Server Error";
    NOT_IMPLEMENTED 501 "Not Implemented";
    BAD_GATEWAY 502 "Bad Gateway";
    SERVICE_UNAVAILABLE 503 "Service Unavailable";
    GATEWAY_TIMEOUT 504 "Gateway Time-out";
    VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE 507 "Insufficient Storage";
}

impl Status {
    /// 444: nginx's number for a connection that was closed without an answer.
    pub const NO_RESPONSE: Self = Self(444);
    /// 495: nginx's number for a client's certificate that will not do; 400 on the wire.
    pub const BAD_CLIENT_CERTIFICATE: Self = Self(495);
    /// 496: nginx's number for a client without a certificate where one is needed; 400 on the wire.
    pub const NO_CLIENT_CERTIFICATE: Self = Self(496);
    /// 497: nginx's number for a request in the clear at a port for TLS; 400 on the wire.
    pub const PLAIN_AT_TLS_PORT: Self = Self(497);
    /// 499: nginx's number for a client that left before it had an answer.
    pub const CLIENT_CLOSED_REQUEST: Self = Self(499);

    /// The status with this code, if it is one (100 to 999).
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 999 { Some(Self(code)) } else { None }
    }

    /// The status that is sent: nginx's own numbers for what TLS refuses are a 400.
    #[must_use]
    pub const fn on_the_wire(self) -> Self {
        if self.0 >= 495 && self.0 <= 497 { Self::BAD_REQUEST } else { self }
    }

    /// The code as a number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether this is a 4xx or 5xx.
    pub const fn is_error(self) -> bool {
        self.0 >= 400
    }

    /// Whether this is a 3xx that carries a `Location`.
    pub const fn is_redirect(self) -> bool {
        matches!(self.0, 301 | 302 | 303 | 307 | 308)
    }

    /// Whether the request succeeded: 2xx.
    pub const fn is_success(self) -> bool {
        matches!(self.code(), 200..=299)
    }

    /// Whether a response with this status never has a body (RFC 9110 §6.4.1).
    pub const fn is_bodyless(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
