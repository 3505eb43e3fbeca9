//! What the head of a response says of its framing, for the variables of logs.

use sekisho_http::{BodyLength, Status};
use sekisho_route::SentFraming;

use super::Protocol;

impl Protocol {
    /// What the head of the response that has just begun says of itself; `length` is what it was to say.
    pub(crate) fn framing(&self, status: Status, length: BodyLength) -> SentFraming {
        let length = match length {
            BodyLength::Unknown => None,
            _ if status.is_bodyless() => None,
            BodyLength::Empty => Some(0),
            BodyLength::Known(length) => Some(length),
        };
        let Self::Http1(engine) = self else {
            return SentFraming {
                length,
                is_chunked: false,
                connection: "",
                keep_alive_secs: None,
            };
        };
        let is_last = engine.is_last();
        let keep_alive_secs = engine.policy().keepalive_header_secs;
        SentFraming {
            length,
            is_chunked: engine.sends_chunks(),
            connection: if is_last { "close" } else { "keep-alive" },
            keep_alive_secs: keep_alive_secs.filter(|_| !is_last),
        }
    }
}
