//! Where the body of a request is, so that it goes with the request to what answers instead: an `error_page` that is
//! another server, `X-Accel-Redirect`. What a handler cannot give back is lost, and no handler gets a part of a body.

use std::cell::RefCell;

use sekisho_handler::request_body::Gathered;
use sekisho_handler::task::ReturnedBody;
use sekisho_http::{Head, Method};
use sekisho_lifecycle::Moment;
use sekisho_route::{Action, RouteState};

use crate::dispatch::RouteInput;
use crate::exchange::{Exchange, Waited};
use crate::link::Link;

/// The body of the client's request.
#[derive(Debug, Default)]
pub(crate) struct ClientBody {
    /// Whether there is one, and how long it is, as the client has said.
    declared: Option<(bool, Option<u64>)>,
    place: Place,
    /// How much of what waits for the handler the client was given credit for.
    credited: usize,
    /// The handler is to be told that the body has ended.
    is_end_due: bool,
}

#[derive(Debug, Default)]
enum Place {
    /// No handler has taken anything of it.
    #[default]
    Client,
    /// With the handler.
    Handler,
    /// Its beginning is here, and the rest is where it was.
    Begun { bytes: Vec<u8>, credited: usize, has_ended: bool },
    /// All of it is here, until a handler takes it.
    Kept(RefCell<Option<Gathered>>),
    /// A handler has used it up.
    Lost,
    /// The engine does not read it.
    Refused,
}

impl ClientBody {
    /// What the client has said of it, when an answer is looked for.
    pub(crate) fn declare(&mut self, declared: (bool, Option<u64>), input: &RouteInput) {
        self.declared.get_or_insert(declared);
        if matches!((&self.place, input), (Place::Client, RouteInput::Refused(_))) {
            self.place = Place::Refused;
        }
    }

    /// Whether a handler gets a body, and how long it is, where that is known.
    pub(crate) fn given(&self) -> (bool, Option<u64>) {
        let none = (false, None);
        match &self.place {
            Place::Client | Place::Begun { .. } => self.declared.unwrap_or(none),
            Place::Kept(body) => match &*body.borrow() {
                Some(body) => (true, Some(body.len())),
                None => none,
            },
            Place::Handler | Place::Lost | Place::Refused => none,
        }
    }

    /// All of it, where it is here.
    pub(crate) fn gathered(&self) -> Option<&RefCell<Option<Gathered>>> {
        match &self.place {
            Place::Kept(body) if body.borrow().is_some() => Some(body),
            _ => None,
        }
    }

    /// Whether this would be done with a request whose body is lost, as if it had none.
    pub(crate) fn is_missed<F>(
        &self,
        asked: Waited,
        action: &Action<F>,
        head: &Head,
        route: &RouteState,
    ) -> bool {
        let is_lost = match &self.place {
            Place::Client | Place::Begun { .. } | Place::Refused => false,
            Place::Kept(body) => body.borrow().is_none(),
            Place::Handler | Place::Lost => true,
        };
        // An error page asks with GET, which means the same without a body.
        let is_same =
            route.method == head.method() && !matches!(route.method, Method::Get | Method::Head);
        let has_body = self.declared.is_some_and(|(has_body, _)| has_body);
        let is_for_body = matches!(action, Action::Pass | Action::Cgi);
        is_lost && !asked.is_request && is_same && has_body && is_for_body
    }

    /// How many of so many bytes that the handler has taken the client gets credit for.
    pub(crate) fn new_credit(&mut self, taken: usize) -> usize {
        let before = taken.min(self.credited);
        self.credited -= before;
        taken - before
    }
}

impl Exchange {
    /// Another handler is going to answer: what the present one can give back of the body is for that.
    pub(crate) fn recover_body(&mut self, link: &mut Link, now: Moment) {
        let Some(task) = &mut self.task else { return };
        let place = &mut self.client_body.place;
        if matches!(place, Place::Client | Place::Begun { .. } | Place::Refused) {
            // It has not taken any of it.
            return;
        }
        match task.return_body() {
            ReturnedBody::Whole(body) => *place = Place::Kept(RefCell::new(Some(body))),
            ReturnedBody::Begun(mut bytes) => {
                let credited = bytes.len() + self.client_body.credited;
                bytes.append(&mut self.body);
                *place = Place::Begun { bytes, credited, has_ended: self.has_body_ended };
                link.protocol.hold_body(self.id, true, now);
            }
            ReturnedBody::Lost => match place {
                Place::Kept(body) if body.borrow().is_some() => {}
                place => *place = Place::Lost,
            },
        }
    }

    /// A handler is there for the body.
    pub(crate) fn hand_out_body(&mut self, link: &mut Link, now: Moment) {
        match std::mem::take(&mut self.client_body.place) {
            Place::Client => self.client_body.place = Place::Handler,
            Place::Begun { bytes, credited, has_ended } => {
                self.client_body.place = Place::Handler;
                self.client_body.credited = credited;
                self.has_body_ended = has_ended;
                self.client_body.is_end_due = has_ended && bytes.is_empty();
                self.body = bytes;
                if self.body.is_empty() {
                    link.protocol.hold_body(self.id, false, now);
                }
            }
            place => self.client_body.place = place,
        }
    }

    /// The answer needs no body: what is left of it is thrown away.
    pub(crate) fn drop_body(&mut self, link: &mut Link, now: Moment) {
        if matches!(self.client_body.place, Place::Begun { .. }) {
            self.client_body.place = Place::Lost;
            link.protocol.hold_body(self.id, false, now);
        }
    }

    /// Whether the handler is to be told of the end now, once.
    pub(crate) fn take_due_end(&mut self) -> bool {
        self.body.is_empty() && std::mem::take(&mut self.client_body.is_end_due)
    }
}
