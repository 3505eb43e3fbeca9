//! Bodies that come after their request (1.1): a stream from the client with credit, as a channel is one to it. A body
//! keeps its slot until the client has ended it, though the request may have its answer long before.

use std::ops::Range;

use prost::Message;
use sekisho_lifecycle::{Moment, RequestId};

use super::Server;
use crate::channel::{Ledger, cost};
use crate::event::{Event, Scratch};
use crate::frame::{Head, Kind};
use crate::message::RequestOptions;
use crate::violation::Violation;

/// A body that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inbound {
    /// The request that wants it; none where it was refused, is over, was cancelled, or wants no more.
    pub(super) id: Option<RequestId>,
    ledger: Ledger,
}

impl Inbound {
    pub(super) const fn new(window: u32) -> Self {
        Self { id: None, ledger: Ledger::new(window) }
    }
}

impl Server {
    /// The service has taken a part of so many bytes: the client may send more.
    pub fn body_taken(&mut self, id: RequestId, bytes: usize, scratch: &mut Scratch, now: Moment) {
        let Some(slot) = self.body_slot(id) else { return };
        let Some(inbound) = self.bodies.get_mut(&slot) else { return };
        if let Some(word) = inbound.ledger.taken(cost(bytes)) {
            let head = Head { word, ..Head::of_slot(Kind::DataCredit, slot) };
            self.put_bare(head, scratch, now);
        }
    }

    /// The service wants no more of the body.
    pub fn stop_body(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) {
        let Some(slot) = self.body_slot(id) else { return };
        self.discard_body(id);
        self.put_bare(Head::of_slot(Kind::DataStop, slot), scratch, now);
    }

    /// Whether the service waits for more of the body, as far as a graceful end is concerned.
    pub fn await_body(&mut self, id: RequestId, is_awaited: bool, now: Moment) {
        let is_awaited = is_awaited && self.body_slot(id).is_some();
        self.change_waiting(id, |lane| lane.waits_for_body = is_awaited);
        self.arm_drain(now);
    }

    /// What comes of the body from here on is thrown away.
    pub(super) fn discard_body(&mut self, id: RequestId) {
        if let Some(slot) = self.body_slot(id)
            && let Some(inbound) = self.bodies.get_mut(&slot)
        {
            inbound.id = None;
        }
        self.change_waiting(id, |lane| lane.waits_for_body = false);
    }

    /// The slot of the request whose body is wanted and not complete.
    fn body_slot(&self, id: RequestId) -> Option<u16> {
        let slot = self.lanes.get(id)?.slot;
        self.bodies.get(&slot).filter(|inbound| inbound.id == Some(id)).map(|_| slot)
    }

    pub(super) fn take_options(
        &mut self,
        slot: u16,
        payload: &[u8],
    ) -> Result<Option<Event>, Violation> {
        let options =
            RequestOptions::decode(payload).map_err(|_| Violation::Malformed(Kind::Options))?;
        // A client knows how many requests may run before it can send these.
        if options.body_follows && self.bodies.len() >= self.policy.requests_max as usize {
            return Err(Violation::TooManyBodies);
        }
        self.options = Some(Box::new((slot, options)));
        Ok(None)
    }

    /// Whether there is a body in this slot, and credit for so much of it.
    pub(super) fn check_data(&self, head: Head) -> Result<(), Violation> {
        let inbound = self.bodies.get(&head.slot).ok_or(Violation::NoSuchRequest(head.slot))?;
        let mut ledger = inbound.ledger;
        let is_paid = ledger.arrived(cost(head.length as usize));
        if is_paid { Ok(()) } else { Err(Violation::CreditExceeded(head.slot)) }
    }

    /// Whether the pieces of this frame go to a service.
    pub(super) fn is_piece_wanted(&self, head: Head) -> bool {
        head.kind != Kind::Data
            || self.bodies.get(&head.slot).is_some_and(|inbound| inbound.id.is_some())
    }

    pub(super) fn data(&mut self, head: Head, body: Range<usize>) -> Event {
        let Some(inbound) = self.bodies.get_mut(&head.slot) else { return Event::Discarded };
        // Looked at when the head came.
        inbound.ledger.arrived(cost(head.length as usize));
        match inbound.id {
            Some(id) => Event::Data { id, body },
            None => Event::Discarded,
        }
    }

    pub(super) fn data_end(&mut self, slot: u16, now: Moment) -> Result<Option<Event>, Violation> {
        let inbound = self.bodies.remove(&slot).ok_or(Violation::NoSuchRequest(slot))?;
        let Some(id) = inbound.id else { return Ok(None) };
        self.change_waiting(id, |lane| lane.waits_for_body = false);
        self.arm_drain(now);
        Ok(Some(Event::DataEnded(id)))
    }
}
