//! Why an upstream gave no answer, or no whole one. The status follows from the variant, never from text
//!. Words are nginx's where tools look for them in the error log.

use std::fmt;

use crate::Status;

/// Why an upstream gave no answer, or no whole one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No server of the group may be asked now.
    NoLive,
    /// The name of the upstream has no address.
    NotResolved,
    /// No connection: refused, unreachable, no such socket. With the system's error number.
    NotConnected(Option<i32>),
    /// The TLS handshake failed, or the certificate is not the upstream's.
    NotSecured,
    /// The connection did not come up in time.
    ConnectTimeout,
    /// The upstream took no bytes of the request in time.
    SendTimeout,
    /// The upstream was silent for too long.
    ReadTimeout,
    /// The connection broke: a reset, a broken pipe. With the system's error number.
    Lost(Option<i32>),
    /// The upstream closed the connection before the head of its answer was complete.
    ClosedEarly,
    /// The head of the answer cannot be read, or could be read in two ways.
    BadHead(HeadFault),
    /// The body of the answer cannot be read.
    BadBody(BodyFault),
    /// The body ended before its declared end: a client must see it as cut.
    BodyCut,
    /// The upstream will not take the request, and has not processed it: a FastCGI application has too many at once or
    /// another role; an HTTP/2 server has refused the stream, or closes the connection without it.
    NotTaken,
    /// An HTTP/2 server has reset the stream, with this code.
    Rejected(u32),
}

/// Who erred.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// The upstream.
    Upstream,
    /// What lies between: the network, a name server.
    Network,
    /// The group: it has no live server.
    Group,
}

/// What an exchange with an upstream is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The connection is made.
    Connecting,
    /// The request is sent.
    Sending,
    /// The head of the answer is awaited.
    ReadingHead,
    /// The body of the answer is read.
    ReadingBody,
    /// Both directions are a tunnel.
    Tunnelling,
    /// Between requests, or over.
    Idle,
}

impl Phase {
    /// The phase in nginx's words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connecting => "connecting to upstream",
            Self::Sending => "sending request to upstream",
            Self::ReadingHead => "reading response header from upstream",
            Self::ReadingBody => "reading upstream",
            Self::Tunnelling => "proxying upgraded connection",
            Self::Idle => "keeping the connection to upstream",
        }
    }
}

macro_rules! faults {
    ($(#[$meta:meta])* $name:ident { $($variant:ident $message:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $(#[doc = $message] $variant,)* }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In words, for the error log.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

faults! {
    /// What is wrong with the head of an answer.
    HeadFault {
        StatusLine "invalid status line";
        Version "a version that is neither HTTP/1.0 nor HTTP/1.1";
        TooLarge "too big header";
        TooManyFields "too many header fields";
        Folded "header field is folded over two lines";
        Field "invalid header field";
        ControlByte "control byte in the header";
        LengthInvalid "invalid \"Content-Length\"";
        LengthRepeated "more than one \"Content-Length\"";
        LengthAndCoding "\"Content-Length\" and \"Transfer-Encoding\" at the same time";
        CodingInHttp10 "\"Transfer-Encoding\" in an HTTP/1.0 answer";
        Coding "unknown \"Transfer-Encoding\"";
        UpgradeUnasked "switched protocols without being asked";
        InformationalBody "an informational answer that declares a body";
        TooManyInformational "too many informational answers";
        StatusInvalid "invalid \"Status\"";
        LocationInvalid "invalid \"Location\"";
        Empty "a header without fields";
        Unsolicited "an answer that no request asked for";
        Pseudo "invalid pseudo-header field";
        ConnectionField "a field about the connection";
        Block "a header block that cannot be decoded";
        Caught "an error in stderr";
    }
}

faults! {
    /// What is wrong with the body of an answer, or with the records it comes in.
    BodyFault {
        Chunk "invalid chunked response";
        Trailer "invalid trailer";
        RecordVersion "unsupported FastCGI protocol version";
        RecordType "unexpected FastCGI record";
        RecordRequest "unexpected FastCGI request id";
        RecordLength "unexpected FastCGI record length";
        Frame "invalid HTTP/2 frame";
        FlowControl "more than the HTTP/2 window allows";
        Flood "too many HTTP/2 frames without use";
        TooLong "more of a body than was declared";
    }
}

impl Failure {
    /// The status for the client, if no head has been sent yet.
    pub const fn status(self) -> Status {
        match self {
            Self::ConnectTimeout | Self::SendTimeout | Self::ReadTimeout => Status::GATEWAY_TIMEOUT,
            // As in nginx, whose `error_page 502` is for both.
            Self::NoLive
            | Self::NotResolved
            | Self::NotConnected(_)
            | Self::NotSecured
            | Self::Lost(_)
            | Self::ClosedEarly
            | Self::BadHead(_)
            | Self::BadBody(_)
            | Self::BodyCut
            | Self::NotTaken
            | Self::Rejected(_) => Status::BAD_GATEWAY,
        }
    }

    /// Who erred.
    pub const fn origin(self) -> Origin {
        match self {
            Self::NoLive => Origin::Group,
            Self::NotResolved | Self::NotConnected(_) | Self::ConnectTimeout | Self::Lost(_) => {
                Origin::Network
            }
            Self::NotSecured
            | Self::SendTimeout
            | Self::ReadTimeout
            | Self::ClosedEarly
            | Self::BadHead(_)
            | Self::BadBody(_)
            | Self::BodyCut
            | Self::NotTaken
            | Self::Rejected(_) => Origin::Upstream,
        }
    }

    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::NoLive => "upstream_no_live",
            Self::NotResolved => "upstream_not_resolved",
            Self::NotConnected(_) => "upstream_not_connected",
            Self::NotSecured => "upstream_not_secured",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::SendTimeout => "upstream_send_timeout",
            Self::ReadTimeout => "upstream_read_timeout",
            Self::Lost(_) => "upstream_lost",
            Self::ClosedEarly => "upstream_closed_early",
            Self::BadHead(_) => "upstream_bad_head",
            Self::BadBody(_) => "upstream_bad_body",
            Self::BodyCut => "upstream_body_cut",
            Self::NotTaken => "upstream_not_taken",
            Self::Rejected(_) => "upstream_rejected",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLive => "no live upstreams",
            Self::NotResolved => "host not found in upstream",
            Self::NotConnected(None) => "connect() failed",
            Self::NotConnected(Some(errno)) => return write!(f, "connect() failed ({errno})"),
            Self::NotSecured => "SSL_do_handshake() failed",
            Self::ConnectTimeout | Self::SendTimeout | Self::ReadTimeout => "upstream timed out",
            Self::Lost(None) => "recv() failed",
            Self::Lost(Some(errno)) => return write!(f, "recv() failed ({errno})"),
            Self::ClosedEarly | Self::BodyCut => "upstream prematurely closed connection",
            Self::BadHead(HeadFault::TooLarge) => "upstream sent too big header",
            Self::BadHead(fault) => {
                return write!(f, "upstream sent invalid header: {}", fault.message());
            }
            Self::BadBody(fault) => return write!(f, "upstream sent {}", fault.message()),
            Self::NotTaken => "upstream refused the request",
            Self::Rejected(code) => {
                return write!(f, "upstream rejected request with error {code}");
            }
        })
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    /// U2: the ladder, by type.
    #[test]
    fn each_failure_has_its_status_and_tag() {
        let table = [
            (Failure::NoLive, 502, Origin::Group),
            (Failure::NotResolved, 502, Origin::Network),
            (Failure::NotConnected(Some(111)), 502, Origin::Network),
            (Failure::NotSecured, 502, Origin::Upstream),
            (Failure::ConnectTimeout, 504, Origin::Network),
            (Failure::SendTimeout, 504, Origin::Upstream),
            (Failure::ReadTimeout, 504, Origin::Upstream),
            (Failure::Lost(Some(104)), 502, Origin::Network),
            (Failure::ClosedEarly, 502, Origin::Upstream),
            (Failure::BadHead(HeadFault::LengthAndCoding), 502, Origin::Upstream),
            (Failure::BadBody(BodyFault::Chunk), 502, Origin::Upstream),
            (Failure::BodyCut, 502, Origin::Upstream),
            (Failure::NotTaken, 502, Origin::Upstream),
            (Failure::Rejected(2), 502, Origin::Upstream),
        ];
        let mut tags = std::collections::HashSet::new();
        for (failure, code, origin) in table {
            assert_eq!(failure.status().code(), code, "{failure}");
            assert_eq!(failure.origin(), origin, "{failure}");
            assert!(tags.insert(failure.tag()), "{failure}");
        }
    }

    /// Operators search their logs for nginx's words.
    #[test]
    fn failures_are_worded_as_in_nginx() {
        let rows = [
            (Failure::NoLive, Phase::Connecting, "no live upstreams while connecting to upstream"),
            (
                Failure::ClosedEarly,
                Phase::ReadingHead,
                "upstream prematurely closed connection while reading response header from upstream",
            ),
            (Failure::ReadTimeout, Phase::ReadingBody, "upstream timed out while reading upstream"),
            (
                Failure::BadHead(HeadFault::TooLarge),
                Phase::ReadingHead,
                "upstream sent too big header while reading response header from upstream",
            ),
        ];
        for (failure, phase, expected) in rows {
            assert_eq!(format!("{failure} while {}", phase.words()), expected);
        }
    }
}
