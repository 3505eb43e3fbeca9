//! A session with its requests: each rule as a short story of facts and the orders they lead to.

use sekisho_lifecycle::session::Session as S;
use sekisho_lifecycle::stay::{Bug, Entry, Fact as F, Illegal, Order as O, Refusal};
use sekisho_lifecycle::{Cause, Manner as M, Request, RequestId, Stay};

const A: RequestId = RequestId(0);
const B: RequestId = RequestId(1);

/// A stay that takes legal facts only and hands back the orders of each.
struct Story(Stay);

impl Story {
    /// Connected, with so many requests running.
    fn with_requests(count: usize) -> Self {
        let mut story = Self(Stay::new(4));
        assert_eq!(story.tell(F::Connected), [O::Allocate]);
        for _ in 0..count {
            story.tell(F::RequestReceived);
        }
        story
    }

    /// With a request A that is answered and whose channel is not drained (`sce_f`), its handle gone.
    fn with_an_undrained_channel() -> Self {
        let mut story = Self::with_requests(1);
        story.tell(F::ChannelAcquired(A));
        story.tell(F::ChannelReleased(A));
        story.tell(F::Answered(A));
        // L30: the channel outlives the response, in the session's hands.
        assert_eq!(story.tell(F::ResponseSent(A)), [O::AdoptChannel(A)]);
        assert_eq!(story.tell(F::HandleDropped(A)), []);
        story
    }

    fn tell(&mut self, fact: F) -> Vec<O> {
        let mut orders = Vec::new();
        if let Err(illegal) = self.0.after(fact, &mut orders) {
            panic!("{fact:?}: {illegal}");
        }
        orders
    }

    /// Tells something illegal: it must change nothing and order nothing.
    fn refused(&mut self, fact: F) -> Illegal {
        let before = self.0.clone();
        let mut orders = Vec::new();
        let illegal = self.0.after(fact, &mut orders).expect_err("illegal");
        assert_eq!(self.0, before, "{fact:?} changed something");
        assert_eq!(orders, []);
        illegal
    }
}

#[test]
fn a_request_is_admitted_answered_sent_and_freed() {
    // L2, L5
    let mut story = Story::with_requests(0);
    assert_eq!(story.tell(F::RequestReceived), [O::Admit(A)]);
    assert_eq!(story.0.session().to_string(), "p_1");
    assert_eq!(story.tell(F::Answered(A)), [O::SendAnswer(A)]);
    assert_eq!(story.tell(F::ResponseSent(A)), []);
    assert_eq!(story.0.session(), S::Idle);
    assert_eq!(story.tell(F::HandleDropped(A)), [O::ReleaseRequest(A)]);
    assert!(story.0.requests().is_empty());
}

#[test]
fn a_request_beyond_the_limit_is_refused_and_not_counted() {
    // E4
    let mut story = Story::with_requests(4);
    assert_eq!(story.tell(F::RequestReceived), [O::Refuse(Refusal::TooMany)]);
    assert_eq!(story.0.running(), 4);
}

#[test]
fn a_lost_transport_is_a_forceful_shutdown_in_every_state() {
    // L12
    let mut idle = Story::with_requests(0);
    assert_eq!(idle.tell(F::TransportLost), [O::ReleaseWorker]);

    let mut busy = Story::with_requests(2);
    let cancelled = [O::Cancel(A, Cause::ClientLost), O::Cancel(B, Cause::ClientLost)];
    assert_eq!(busy.tell(F::TransportLost), cancelled);
    assert_eq!(busy.0.session().to_string(), "c_2");

    let mut closing = Story::with_requests(1);
    assert_eq!(closing.tell(F::ShutdownAsked(M::Graceful)), []);
    assert_eq!(closing.tell(F::TransportLost), [O::Cancel(A, Cause::ClientLost)]);

    let mut over = Story::with_requests(0);
    over.tell(F::ShutdownAsked(M::Graceful));
    assert_eq!(over.tell(F::TransportLost), []);
}

#[test]
fn after_a_lost_transport_answers_are_thrown_away_and_still_counted_once() {
    // L12, L31: A had its answer on the way, B gives its own later.
    let mut story = Story::with_requests(2);
    story.tell(F::Answered(A));
    let orders = [O::Cancel(B, Cause::ClientLost), O::DiscardAnswer(A)];
    assert_eq!(story.tell(F::TransportLost), orders);
    assert_eq!(story.0.session().to_string(), "c_1");
    assert_eq!(story.tell(F::Answered(B)), [O::DiscardAnswer(B), O::ReleaseWorker]);
    assert_eq!(story.0.session(), S::Shutdown);
}

#[test]
fn the_worker_goes_at_shutdown_and_the_slot_when_reclaimed() {
    // L13, L11: both moments are orders of their own.
    let mut story = Story::with_requests(0);
    assert_eq!(story.tell(F::ShutdownAsked(M::Graceful)), [O::ReleaseWorker]);
    assert!(story.0.is_reclaimable());
    assert_eq!(story.tell(F::Reclaimed), [O::ReleaseSlot]);
    assert_eq!(story.0.session(), S::Vacant);
}

#[test]
fn grace_waits_in_idle_for_an_undrained_channel_and_takes_no_new_request() {
    // L14, L8
    let mut story = Story::with_an_undrained_channel();
    assert_eq!(story.tell(F::ShutdownAsked(M::Graceful)), []);
    assert_eq!(story.0.session(), S::Idle);
    assert!(story.0.is_waiting_for_channels());
    assert_eq!(story.tell(F::RequestReceived), [O::Refuse(Refusal::SessionClosed)]);
    let orders = [O::DropChannel(A), O::ReleaseRequest(A), O::ReleaseWorker];
    assert_eq!(story.tell(F::ChannelDrained(A)), orders);
    assert_eq!(story.0.session(), S::Shutdown);
}

#[test]
fn grace_waits_for_an_undrained_channel_at_the_last_answer() {
    // L14
    let mut story = Story::with_an_undrained_channel();
    story.tell(F::RequestReceived);
    story.tell(F::ShutdownAsked(M::Graceful));
    story.tell(F::Answered(B));
    assert_eq!(story.tell(F::ResponseSent(B)), []);
    assert_eq!(story.0.session().to_string(), "c_1");
    assert_eq!(story.0.running(), 0);
    assert!(story.0.is_waiting_for_channels());
    let orders = [O::DropChannel(A), O::ReleaseRequest(A), O::ReleaseWorker];
    assert_eq!(story.tell(F::ChannelDrained(A)), orders);
}

#[test]
fn force_and_a_lost_transport_discard_undrained_channels() {
    // L14: force is also what the drain deadline says; a lost transport leaks nothing.
    for end in [F::ShutdownAsked(M::Forceful), F::TransportLost] {
        for waits_already in [false, true] {
            let mut story = Story::with_an_undrained_channel();
            if waits_already {
                story.tell(F::ShutdownAsked(M::Graceful));
            }
            let orders = [O::DropChannel(A), O::ReleaseRequest(A), O::ReleaseWorker];
            assert_eq!(story.tell(end), orders);
        }
    }
}

#[test]
fn a_channel_opened_under_force_is_dropped_at_once_and_its_producer_goes_on() {
    // L14, L28
    let mut story = Story::with_requests(1);
    story.tell(F::ShutdownAsked(M::Forceful));
    assert_eq!(story.tell(F::ChannelAcquired(A)), [O::DropChannel(A)]);
    assert_eq!(story.tell(F::ChannelReleased(A)), []);
    // What the client says about it now may have been on its way for a while.
    assert_eq!(story.tell(F::ChannelDrained(A)), []);
    story.tell(F::Answered(A));
    assert_eq!(story.tell(F::ResponseSent(A)), [O::ReleaseWorker]);
}

#[test]
fn a_client_may_be_done_with_a_channel_before_its_producer_is() {
    // L28
    let mut story = Story::with_requests(1);
    story.tell(F::ChannelAcquired(A));
    assert_eq!(story.tell(F::ChannelDrained(A)), [O::DropChannel(A)]);
    assert_eq!(first(&story.0).state, Request::ChannelDrained);
    assert_eq!(story.tell(F::ChannelReleased(A)), []);
    assert_eq!(story.tell(F::Answered(A)), [O::SendAnswer(A)]);
    assert_eq!(story.tell(F::ResponseSent(A)), []);
    assert_eq!(story.0.session(), S::Idle);
}

#[test]
fn an_answer_over_an_open_channel_closes_it_is_reported_and_is_still_sent() {
    // L29, in sco and in scc.
    for drained_first in [false, true] {
        let mut story = Story::with_requests(1);
        story.tell(F::ChannelAcquired(A));
        if drained_first {
            story.tell(F::ChannelDrained(A));
        }
        let orders =
            [O::CloseChannel(A), O::Report(A, Bug::AnsweredWithOpenChannel), O::SendAnswer(A)];
        assert_eq!(story.tell(F::Answered(A)), orders);
        let adopted: &[O] = if drained_first { &[] } else { &[O::AdoptChannel(A)] };
        assert_eq!(story.tell(F::ResponseSent(A)), adopted);
    }
}

#[test]
fn a_cancel_has_no_answer_of_its_own_and_is_heard_once() {
    // L31
    let mut story = Story::with_requests(1);
    let cancel = F::CancelAsked(A, Cause::Operator);
    assert_eq!(story.tell(cancel), [O::Cancel(A, Cause::Operator)]);
    assert_eq!(story.tell(F::CancelAsked(A, Cause::Deadline)), []);
    // Force finds it cancelled already: the first cause stays.
    assert_eq!(story.tell(F::ShutdownAsked(M::Forceful)), []);
    assert_eq!(first(&story.0).cancelled, Some(Cause::Operator));
    assert_eq!(story.tell(F::Answered(A)), [O::SendAnswer(A)]);
    assert_eq!(story.refused(F::Answered(A)), Illegal::AnsweredAlready(A));
}

#[test]
fn a_cancel_for_a_finished_request_is_void() {
    // L31: answered, sent, freed, or never there.
    let mut story = Story::with_requests(1);
    story.tell(F::Answered(A));
    assert_eq!(story.tell(F::CancelAsked(A, Cause::ClientAsked)), []);
    story.tell(F::ResponseSent(A));
    assert_eq!(story.tell(F::CancelAsked(A, Cause::ClientAsked)), []);
    story.tell(F::HandleDropped(A));
    assert_eq!(story.tell(F::CancelAsked(A, Cause::ClientAsked)), []);
    assert_eq!(story.tell(F::CancelAsked(RequestId(99), Cause::ClientAsked)), []);
}

#[test]
fn a_handle_dropped_without_an_answer_makes_an_unknown_error_and_a_report() {
    // L32
    let mut story = Story::with_requests(1);
    let orders = [O::Report(A, Bug::DroppedUnanswered), O::AnswerUnknown(A)];
    assert_eq!(story.tell(F::HandleDropped(A)), orders);
    assert_eq!(story.tell(F::ResponseSent(A)), [O::ReleaseRequest(A)]);

    let mut open = Story::with_requests(1);
    open.tell(F::ChannelAcquired(A));
    let orders = [O::CloseChannel(A), O::Report(A, Bug::DroppedUnanswered), O::AnswerUnknown(A)];
    assert_eq!(open.tell(F::HandleDropped(A)), orders);
}

#[test]
fn a_handler_that_holds_its_handle_after_the_answer_does_not_keep_the_session_open() {
    // L33: the answer moves the state, the handle frees the object.
    let mut story = Story::with_requests(1);
    story.tell(F::ShutdownAsked(M::Graceful));
    story.tell(F::Answered(A));
    assert_eq!(story.tell(F::ResponseSent(A)), [O::ReleaseWorker]);
    assert_eq!(story.0.session(), S::Shutdown);
    assert_eq!(story.refused(F::Reclaimed), Illegal::StillHeld);
    assert_eq!(story.tell(F::HandleDropped(A)), [O::ReleaseRequest(A)]);
    assert_eq!(story.tell(F::Reclaimed), [O::ReleaseSlot]);
}

#[test]
fn a_place_that_was_reclaimed_serves_the_next_session_under_new_numbers() {
    // L11, L1
    let mut story = Story::with_requests(1);
    story.tell(F::HandleDropped(A));
    story.tell(F::TransportLost);
    story.tell(F::Reclaimed);
    assert_eq!(story.tell(F::Connected), [O::Allocate]);
    assert_eq!(story.tell(F::RequestReceived), [O::Admit(B)]);
    assert_eq!(story.0.asked(), None);
}

#[test]
fn what_cannot_be_changes_nothing() {
    // L27, L33
    let mut vacant = Story(Stay::new(4));
    for fact in [
        F::RequestReceived,
        F::ShutdownAsked(M::Graceful),
        F::ShutdownAsked(M::Forceful),
        F::TransportLost,
        F::Reclaimed,
    ] {
        assert!(matches!(vacant.refused(fact), Illegal::Session(_)), "{fact:?}");
    }
    let mut busy = Story::with_requests(1);
    assert!(matches!(busy.refused(F::Connected), Illegal::Session(_)));
    assert!(matches!(busy.refused(F::Reclaimed), Illegal::Session(_)));
    assert_eq!(busy.refused(F::ResponseSent(A)), Illegal::NotAnswered(A));
    assert!(matches!(busy.refused(F::ChannelDrained(A)), Illegal::Request(..)));
    assert!(matches!(busy.refused(F::ChannelReleased(A)), Illegal::Request(..)));
    assert_eq!(busy.refused(F::Answered(B)), Illegal::NoSuchRequest(B));
    busy.tell(F::Answered(A));
    assert_eq!(busy.refused(F::ChannelAcquired(A)), Illegal::AnsweredAlready(A));
    busy.tell(F::ResponseSent(A));
    // Its answer has left; it cannot leave twice.
    assert!(matches!(busy.refused(F::ResponseSent(A)), Illegal::Request(..)));
}

fn first(stay: &Stay) -> Entry {
    *stay.requests().iter().next().expect("a request")
}
