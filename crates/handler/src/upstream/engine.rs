//! The protocols that servers are asked in: the only file that names an engine.

use sekisho_config::{Family, Forward};
use sekisho_gateway::SingleRequest;
use sekisho_gateway::fastcgi::FastCgi;
use sekisho_gateway::uwsgi::Modifiers;
use sekisho_http::upstream::{Timeouts, UpstreamProtocol};
use sekisho_http1::client::{Client, Limits};
use sekisho_http2::client::{Client as Http2Client, Limits as Http2Limits};

/// How many fields the head of an answer may have.
const FIELDS_MAX: usize = 1000;

/// A protocol engine. Everything but what differs between two requests is done through [`UpstreamProtocol`].
#[derive(Debug)]
pub(super) enum Engine {
    Http1(Client),
    /// Behind a pointer, so that a connection of the others does not pay for its size.
    Http2(Box<Http2Client>),
    FastCgi(FastCgi),
    Single(SingleRequest),
}

impl Engine {
    pub(super) fn get(&self) -> &dyn UpstreamProtocol {
        match self {
            Self::Http1(engine) => engine,
            Self::Http2(engine) => &**engine,
            Self::FastCgi(engine) => engine,
            Self::Single(engine) => engine,
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut dyn UpstreamProtocol {
        match self {
            Self::Http1(engine) => engine,
            Self::Http2(engine) => &mut **engine,
            Self::FastCgi(engine) => engine,
            Self::Single(engine) => engine,
        }
    }

    /// Other limits and timeouts, for the next request: a kept connection serves more than one location.
    pub(super) fn set_policy(&mut self, forward: &Forward) {
        let timeouts = Timeouts { send: forward.send_timeout, read: forward.read_timeout };
        match self {
            Self::Http1(engine) => engine.set_policy(limits(forward), timeouts),
            Self::Http2(engine) => engine.set_policy(http2_limits(forward), timeouts),
            Self::FastCgi(engine) => engine.set_policy(forward.buffer_size, timeouts),
            Self::Single(_) => {}
        }
    }
}

/// An engine for a new connection; `is_tls` where it is encrypted.
pub(super) fn engine(family: Family, forward: &Forward, is_tls: bool) -> Engine {
    let timeouts = Timeouts { send: forward.send_timeout, read: forward.read_timeout };
    let size = forward.buffer_size;
    match family {
        Family::Grpc | Family::Proxy if forward.is_http2() => {
            Engine::Http2(Box::new(Http2Client::new(http2_limits(forward), timeouts, is_tls)))
        }
        Family::Grpc | Family::Proxy => Engine::Http1(Client::new(limits(forward), timeouts)),
        Family::FastCgi => Engine::FastCgi(FastCgi::new(size, timeouts)),
        Family::Scgi => Engine::Single(SingleRequest::scgi(size, timeouts)),
        Family::Uwsgi => {
            let modifiers = Modifiers(forward.modifiers.0, forward.modifiers.1);
            Engine::Single(SingleRequest::uwsgi(modifiers, size, timeouts))
        }
    }
}

const fn http2_limits(forward: &Forward) -> Http2Limits {
    Http2Limits { head_bytes_max: forward.buffer_size, fields_max: FIELDS_MAX }
}

const fn limits(forward: &Forward) -> Limits {
    Limits { head_bytes_max: forward.buffer_size, fields_max: FIELDS_MAX }
}
