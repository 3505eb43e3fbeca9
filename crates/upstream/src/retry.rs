//! Whether another server is asked after a failure: `proxy_next_upstream` and its companions, with the rule
//! that a request which may have been processed is not sent twice unless that is safe (U1).

use std::time::Duration;

use sekisho_http::upstream::{Failure, HeadFault};
use sekisho_http::{Method, Status};
use sekisho_lifecycle::Moment;

use crate::balance::Outcome;

macro_rules! conditions {
    ($($variant:ident $name:literal,)*) => {
        /// When `proxy_next_upstream` lets another server be asked.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        #[repr(u8)]
        pub enum Condition { $($variant,)* }

        impl Condition {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in the configuration.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

conditions! {
    Error "error",
    Timeout "timeout",
    Denied "denied",
    InvalidHeader "invalid_header",
    Http500 "http_500",
    Http502 "http_502",
    Http503 "http_503",
    Http504 "http_504",
    Http403 "http_403",
    Http404 "http_404",
    Http429 "http_429",
}

impl Condition {
    /// The condition of a failure; `None` for one after which no server is left to ask.
    pub const fn of_failure(failure: Failure) -> Option<Self> {
        Some(match failure {
            Failure::NoLive => return None,
            Failure::NotResolved
            | Failure::NotConnected(_)
            | Failure::NotSecured
            | Failure::Lost(_)
            | Failure::ClosedEarly
            | Failure::BadBody(_)
            | Failure::BodyCut
            | Failure::NotTaken
            // No answer to what we sent: the connection was out of step.
            | Failure::BadHead(HeadFault::Unsolicited) => Self::Error,
            Failure::ConnectTimeout | Failure::SendTimeout | Failure::ReadTimeout => Self::Timeout,
            Failure::BadHead(_) | Failure::Rejected(_) => Self::InvalidHeader,
        })
    }

    /// The condition of an answer with this status, if it is one.
    pub const fn of_status(status: Status) -> Option<Self> {
        Some(match status.code() {
            500 => Self::Http500,
            502 => Self::Http502,
            503 => Self::Http503,
            504 => Self::Http504,
            403 => Self::Http403,
            404 => Self::Http404,
            429 => Self::Http429,
            _ => return None,
        })
    }

    /// Whether the server is to blame, as in nginx: 403 and 404 send a request on, and are answers.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Http403 | Self::Http404 => Outcome::Answered,
            _ => Outcome::Failed,
        }
    }
}

/// `proxy_next_upstream`, `_tries`, `_timeout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextUpstream {
    conditions: u16,
    /// `non_idempotent`
    pub retries_non_idempotent: bool,
    /// `proxy_next_upstream_tries`; 0 is no limit.
    pub tries: u32,
    /// `proxy_next_upstream_timeout`
    pub timeout: Option<Duration>,
}

impl Default for NextUpstream {
    /// `error timeout`
    fn default() -> Self {
        Self::new([Condition::Error, Condition::Timeout])
    }
}

impl NextUpstream {
    /// For these conditions; none is `off`.
    pub fn new(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let bits = conditions.into_iter().fold(0, |bits, one| bits | 1 << one as u8);
        Self { conditions: bits, retries_non_idempotent: false, tries: 0, timeout: None }
    }

    /// Whether it names this condition.
    pub const fn has(&self, condition: Condition) -> bool {
        self.conditions & 1 << condition as u8 != 0
    }
}

/// What is known about a try that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are the questions, each asked once")]
pub struct Attempt {
    /// What happened.
    pub condition: Condition,
    /// The method of the request.
    pub method: Method,
    /// Whether any byte of the request has left: it may have been processed, unless the server says that it was not.
    pub is_request_sent: bool,
    /// Whether any of the answer has been given to the client.
    pub is_answer_begun: bool,
    /// Whether the body of the request is gone with the try, as it was not kept (`proxy_request_buffering off`).
    pub is_body_gone: bool,
    /// Whether the connection was a kept one, and nothing of an answer came: the server may have closed it
    /// while it was idle.
    pub is_stale_connection: bool,
    /// How many tries there were, this one included.
    pub tries: u32,
    /// How many servers there are to ask.
    pub servers: u32,
    /// When the first try began.
    pub started: Moment,
}

/// What to do after a failure, and why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// Ask the next server.
    Next,
    /// Ask again by a new connection: the old one was closed while idle, which costs no try and is not the
    /// server's failure (U4).
    Again,
    /// Give the failure to the client.
    Stop(Stop),
}

/// Why no other server is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stop {
    /// The client has a part of the answer.
    AnswerBegun,
    /// `proxy_next_upstream` does not name the condition.
    NotConfigured,
    /// It may have been processed, and to do it twice is not safe.
    NotIdempotent,
    /// Its body cannot be sent again.
    BodyGone,
    /// Every server, or `proxy_next_upstream_tries`, was tried.
    TriesUsedUp,
    /// `proxy_next_upstream_timeout` is over.
    TimeOver,
}

impl Stop {
    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::AnswerBegun => "answer_begun",
            Self::NotConfigured => "not_configured",
            Self::NotIdempotent => "not_idempotent",
            Self::BodyGone => "body_gone",
            Self::TriesUsedUp => "tries_used_up",
            Self::TimeOver => "time_over",
        }
    }
}

/// Whether another server is asked (U1).
pub fn next_upstream(rules: &NextUpstream, attempt: &Attempt, now: Moment) -> Decision {
    let is_unsafe = attempt.is_request_sent && !is_idempotent(attempt.method);
    let limit = match rules.tries {
        0 => attempt.servers,
        tries => tries.min(attempt.servers),
    };
    let is_time_over = rules.timeout.is_some_and(|timeout| (attempt.started + timeout).is_due(now));
    if attempt.is_answer_begun {
        Decision::Stop(Stop::AnswerBegun)
    } else if !rules.has(attempt.condition) {
        Decision::Stop(Stop::NotConfigured)
    } else if is_unsafe && !rules.retries_non_idempotent {
        Decision::Stop(Stop::NotIdempotent)
    } else if attempt.is_body_gone {
        Decision::Stop(Stop::BodyGone)
    } else if is_time_over {
        Decision::Stop(Stop::TimeOver)
    } else if attempt.is_stale_connection && attempt.condition == Condition::Error {
        Decision::Again
    } else if attempt.tries >= limit {
        Decision::Stop(Stop::TriesUsedUp)
    } else {
        Decision::Next
    }
}

/// Whether a request may be made twice with the effect of once (RFC 9110 §9.2.2, RFC 4918). An unknown method
/// is not.
pub const fn is_idempotent(method: Method) -> bool {
    match method {
        Method::Post | Method::Patch | Method::Lock | Method::Connect | Method::Other => false,
        Method::Get
        | Method::Head
        | Method::Put
        | Method::Delete
        | Method::Options
        | Method::Trace
        | Method::Mkcol
        | Method::Copy
        | Method::Move
        | Method::Propfind
        | Method::Proppatch
        | Method::Unlock => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRY: Attempt = Attempt {
        condition: Condition::Error,
        method: Method::Get,
        is_request_sent: true,
        is_answer_begun: false,
        is_body_gone: false,
        is_stale_connection: false,
        tries: 1,
        servers: 3,
        started: Moment::ZERO,
    };

    /// U1: each rule, by itself.
    #[test]
    fn another_server_is_asked_where_that_is_safe_and_allowed() {
        let stop = Decision::Stop;
        let rows = [
            (TRY, Decision::Next),
            (Attempt { is_answer_begun: true, ..TRY }, stop(Stop::AnswerBegun)),
            (Attempt { condition: Condition::Http500, ..TRY }, stop(Stop::NotConfigured)),
            (Attempt { method: Method::Post, ..TRY }, stop(Stop::NotIdempotent)),
            (Attempt { method: Method::Other, ..TRY }, stop(Stop::NotIdempotent)),
            (Attempt { method: Method::Post, is_request_sent: false, ..TRY }, Decision::Next),
            (Attempt { is_body_gone: true, ..TRY }, stop(Stop::BodyGone)),
            // Not processed, and yet some of its body is gone.
            (Attempt { is_body_gone: true, is_request_sent: false, ..TRY }, stop(Stop::BodyGone)),
            (Attempt { tries: 3, ..TRY }, stop(Stop::TriesUsedUp)),
            (Attempt { is_stale_connection: true, tries: 3, ..TRY }, Decision::Again),
            (
                Attempt { is_stale_connection: true, method: Method::Post, ..TRY },
                stop(Stop::NotIdempotent),
            ),
            (
                Attempt { is_stale_connection: true, condition: Condition::Timeout, ..TRY },
                Decision::Next,
            ),
        ];
        let rules = NextUpstream::default();
        for (attempt, decision) in rows {
            let found = next_upstream(&rules, &attempt, Moment::from_millis(5));
            assert_eq!(found, decision, "{attempt:?}");
        }
        let brave = NextUpstream { retries_non_idempotent: true, ..rules };
        let post = Attempt { method: Method::Post, ..TRY };
        assert_eq!(next_upstream(&brave, &post, Moment::ZERO), Decision::Next);
        let off = NextUpstream::new([]);
        let unsent = Attempt { is_request_sent: false, ..TRY };
        assert_eq!(next_upstream(&off, &unsent, Moment::ZERO), stop(Stop::NotConfigured));
    }

    #[test]
    fn tries_and_time_are_bounded() {
        let two = NextUpstream { tries: 2, ..NextUpstream::default() };
        let second = Attempt { tries: 2, ..TRY };
        assert_eq!(next_upstream(&two, &TRY, Moment::ZERO), Decision::Next);
        assert_eq!(next_upstream(&two, &second, Moment::ZERO), Decision::Stop(Stop::TriesUsedUp));
        let timeout = Some(Duration::from_secs(2));
        let timed = NextUpstream { timeout, ..NextUpstream::default() };
        let at = |millis| next_upstream(&timed, &TRY, Moment::from_millis(millis));
        assert_eq!((at(1999), at(2000)), (Decision::Next, Decision::Stop(Stop::TimeOver)));
    }

    #[test]
    fn failures_and_statuses_have_their_conditions() {
        use Condition as C;
        for (failure, condition) in [
            (Failure::NoLive, None),
            (Failure::NotConnected(Some(111)), Some(C::Error)),
            (Failure::ConnectTimeout, Some(C::Timeout)),
            (Failure::ReadTimeout, Some(C::Timeout)),
            (Failure::ClosedEarly, Some(C::Error)),
            (Failure::BadHead(HeadFault::StatusLine), Some(C::InvalidHeader)),
            (Failure::BadHead(HeadFault::Unsolicited), Some(C::Error)),
        ] {
            assert_eq!(Condition::of_failure(failure), condition, "{failure}");
        }
        for (code, condition) in [(200, None), (404, Some(C::Http404)), (503, Some(C::Http503))] {
            let status = Status::new(code).expect("a status");
            assert_eq!(Condition::of_status(status), condition);
        }
        assert_eq!(C::Http404.outcome(), Outcome::Answered);
        assert_eq!(C::Http429.outcome(), Outcome::Failed);
        assert_eq!(C::ALL.len(), 11);
    }
}
