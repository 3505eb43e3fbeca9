//! Every state that a session with up to four requests can reach, by breadth-first search, and in each
//! of them every fact there is. What must hold is checked on every step; from every state it is shown
//! that the session can still come to its end, with kind and with unkind peers.
//!
//! Requests are alike: two states that differ only in the order of their requests are one.

use std::collections::{HashSet, VecDeque};

use sekisho_lifecycle::stay::{Entry, Fact, Illegal, Order};
use sekisho_lifecycle::{Cause, Manner, Request, RequestId, Session, Stay};

/// How many requests live at once in the model.
const REQUESTS_MAX: u32 = 4;
/// Longer than any way home: each request has at most a handful of facts left.
const WAY_HOME_MAX: usize = 64;
/// The search ends long before; a mistake that makes it endless ends here.
const STATES_MAX: usize = 2_000_000;

#[test]
fn every_reachable_state_holds_every_property_and_can_end() {
    // L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L14, L27, L29, L30, L31, L32, L33
    let mut seen = HashSet::new();
    let mut queue = VecDeque::new();
    let start = Stay::new(REQUESTS_MAX);
    seen.insert(key(&start));
    queue.push_back(start);
    let mut steps = 0_usize;
    let mut orders = Vec::new();
    while let Some(before) = queue.pop_front() {
        assert!(seen.len() < STATES_MAX, "the model does not end");
        ends_with_kind_peers(&before);
        ends_after_a_loss(&before);
        for fact in facts(&before) {
            steps += 1;
            orders.clear();
            let mut after = before.clone();
            let result = after.after(fact, &mut orders);
            check(&before, fact, result, &orders, &after);
            if result.is_ok() && seen.insert(key(&after)) {
                queue.push_back(after);
            }
        }
    }
    println!("{} states, {steps} steps", seen.len());
    assert!(seen.len() > 1000, "the model is too small to mean anything: {}", seen.len());
}

/// Every fact there is, for every request there is, and for one that is not there.
fn facts(stay: &Stay) -> Vec<Fact> {
    let mut facts = vec![
        Fact::Connected,
        Fact::RequestReceived,
        Fact::ShutdownAsked(Manner::Graceful),
        Fact::ShutdownAsked(Manner::Forceful),
        Fact::TransportLost,
        Fact::Reclaimed,
    ];
    let nobody = RequestId(u64::MAX);
    let mut tried = HashSet::new();
    for entry in stay.requests().iter() {
        // Twins lead to the same states.
        if tried.insert(entry_key(entry)) {
            facts.extend(facts_of(entry.id));
        }
    }
    facts.extend(facts_of(nobody));
    facts
}

fn facts_of(id: RequestId) -> [Fact; 7] {
    [
        Fact::Answered(id),
        Fact::ResponseSent(id),
        Fact::ChannelAcquired(id),
        Fact::ChannelReleased(id),
        Fact::ChannelDrained(id),
        Fact::CancelAsked(id, Cause::Operator),
        Fact::HandleDropped(id),
    ]
}

fn check(before: &Stay, fact: Fact, result: Result<(), Illegal>, orders: &[Order], after: &Stay) {
    let context = || format!("{before:?}\n  {fact:?} {result:?} {orders:?}\n{after:?}");
    if result.is_err() {
        assert!(
            before == after && orders.is_empty(),
            "an illegal fact did something: {}",
            context()
        );
        return;
    }
    // No transition out of finished, one answer each, nothing weakened.
    for old in before.requests().iter() {
        let new = find(after, old.id);
        check_request(before, fact, orders, old, new)
            .unwrap_or_else(|why| panic!("{why}: {}", context()));
    }
    for new in after.requests().iter() {
        if find(before, new.id).is_none() {
            assert!(orders.contains(&Order::Admit(new.id)), "from nowhere: {}", context());
            assert!(before.asked().is_none(), "admitted during shutdown: {}", context());
        }
    }
    check_session(before, fact, orders, after).unwrap_or_else(|why| panic!("{why}: {}", context()));
}

fn check_request(
    before: &Stay,
    fact: Fact,
    orders: &[Order],
    old: &Entry,
    new: Option<&Entry>,
) -> Result<(), &'static str> {
    let id = old.id;
    let given = orders
        .iter()
        .filter(
            |order| matches!(order, Order::SendAnswer(of) | Order::AnswerUnknown(of) if *of == id),
        )
        .count();
    let discarded = count(orders, Order::DiscardAnswer(id));
    let is_forced = before.asked() == Some(Manner::Forceful)
        || matches!(fact, Fact::ShutdownAsked(Manner::Forceful) | Fact::TransportLost);
    // L31, L32: an answer is given once, and what was given is at most thrown away.
    let answers_now = new.is_none_or(|new| new.is_answered) && !old.is_answered;
    if usize::from(answers_now) != given + usize::from(answers_now && discarded == 1) {
        return Err("not exactly one answer");
    }
    if old.is_answered && given > 0 {
        return Err("a second answer");
    }
    let is_lost = before.is_lost() || fact == Fact::TransportLost;
    if discarded > 1 || (discarded == 1 && !is_lost) {
        return Err("an answer thrown away without a loss");
    }
    // L14: under grace only the client's own word empties a channel.
    let dropped = count(orders, Order::DropChannel(id));
    if dropped > 1 || (dropped == 1 && !is_forced && fact != Fact::ChannelDrained(id)) {
        return Err("an undrained channel was lost");
    }
    // L6: a graceful end cancels no request.
    let cancels =
        orders.iter().filter(|order| matches!(order, Order::Cancel(of, _) if *of == id)).count();
    let is_asked = matches!(fact, Fact::CancelAsked(of, _) if of == id);
    if cancels > usize::from(old.cancelled.is_none() && (is_forced || is_asked)) {
        return Err("cancelled without a reason, or twice");
    }
    let Some(new) = new else {
        // L33: freed exactly when finished and without a handle.
        let is_let_go = !old.is_held || fact == Fact::HandleDropped(id);
        let is_freed = count(orders, Order::ReleaseRequest(id)) == 1;
        return if is_let_go && is_freed { Ok(()) } else { Err("freed while held") };
    };
    if old.state == Request::Finished && new.state != Request::Finished {
        return Err("a way out of finished");
    }
    if (old.is_answered && !new.is_answered) || (!old.is_held && new.is_held) {
        return Err("something taken back");
    }
    if old.cancelled.is_some() && old.cancelled != new.cancelled {
        return Err("the first cause was lost");
    }
    if new.state == Request::Finished && !new.is_held {
        return Err("not freed");
    }
    if !new.state.is_running() && !new.is_answered {
        return Err("over without an answer");
    }
    Ok(())
}

fn check_session(
    before: &Stay,
    fact: Fact,
    orders: &[Order],
    after: &Stay,
) -> Result<(), &'static str> {
    // L10: force is never weakened, and no shutdown is forgotten before the place is reclaimed.
    if fact != Fact::Reclaimed && after.asked() < before.asked() {
        return Err("a shutdown was weakened");
    }
    // L5, L9, L33: the session counts what runs, and nothing else; the last one may wait for channels.
    let waits =
        usize::from(matches!(after.session(), Session::Closing(..)) && after.running() == 0);
    if after.session().running() as usize != after.running() + waits {
        return Err("the session counts wrongly");
    }
    let undrained = after.requests().iter().any(|entry| entry.state.has_undrained_channel());
    // L14: a session that waits does so in a graceful end and for a channel.
    if after.is_waiting_for_channels() && (!undrained || after.asked() != Some(Manner::Graceful)) {
        return Err("waits for nothing");
    }
    if after.asked() == Some(Manner::Forceful) && undrained {
        return Err("force left a channel");
    }
    // L3, L9: shutdown only when nothing runs and nothing is undrained.
    if after.session() == Session::Shutdown && (after.running() > 0 || undrained) {
        return Err("shut down too early");
    }
    // L7: force cancels every request that has not answered.
    if after.asked() == Some(Manner::Forceful)
        && after.requests().iter().any(|entry| !entry.is_answered && entry.cancelled.is_none())
    {
        return Err("force overlooked a request");
    }
    // L13: each of the two moments is ordered when it is reached, and only then.
    let is_entered = |state| after.session() == state && before.session() != state;
    if count(orders, Order::ReleaseWorker) != usize::from(is_entered(Session::Shutdown)) {
        return Err("the worker is not released exactly once");
    }
    if count(orders, Order::ReleaseSlot) != usize::from(is_entered(Session::Vacant)) {
        return Err("the slot is not released exactly once");
    }
    Ok(())
}

/// With handlers that answer and a client that reads, grace alone brings every session home.
fn ends_with_kind_peers(from: &Stay) {
    way_home(from, |stay| {
        if stay.asked().is_none() {
            return Some(Fact::ShutdownAsked(Manner::Graceful));
        }
        stay.requests().iter().find_map(|entry| {
            let id = entry.id;
            Some(match entry.state {
                state if state.has_open_channel() => Fact::ChannelReleased(id),
                state if state.is_running() && !entry.is_answered => Fact::Answered(id),
                state if state.is_running() => Fact::ResponseSent(id),
                Request::Lingering => Fact::ChannelDrained(id),
                _ if entry.is_held => Fact::HandleDropped(id),
                _ => return None,
            })
        })
    });
}

/// With a client that is gone and handlers that just drop their handles, nothing stays behind.
fn ends_after_a_loss(from: &Stay) {
    let mut is_told = false;
    way_home(from, move |stay| {
        if !is_told {
            is_told = true;
            return Some(Fact::TransportLost);
        }
        stay.requests().iter().find(|entry| entry.is_held).map(|e| Fact::HandleDropped(e.id))
    });
}

fn way_home(from: &Stay, mut next: impl FnMut(&Stay) -> Option<Fact>) {
    let mut stay = from.clone();
    if stay.session() == Session::Vacant {
        return;
    }
    let mut orders = Vec::new();
    for _ in 0..WAY_HOME_MAX {
        if stay.is_reclaimable() {
            stay.after(Fact::Reclaimed, &mut orders).expect("reclaimable");
            assert_eq!(stay.session(), Session::Vacant);
            return;
        }
        let Some(fact) = next(&stay) else { break };
        stay.after(fact, &mut orders).unwrap_or_else(|why| panic!("{fact:?} {why}: {stay:?}"));
    }
    panic!("no way home from {from:?}, stuck at {stay:?}");
}

fn find(stay: &Stay, id: RequestId) -> Option<&Entry> {
    stay.requests().get(id)
}

fn count(orders: &[Order], wanted: Order) -> usize {
    orders.iter().filter(|order| **order == wanted).count()
}

/// A state without the names of its requests.
fn key(stay: &Stay) -> (Session, Option<Manner>, bool, [u16; REQUESTS_MAX as usize]) {
    let mut requests = [0; REQUESTS_MAX as usize];
    for (place, entry) in requests.iter_mut().zip(stay.requests().iter()) {
        *place = entry_key(entry);
    }
    requests.sort_unstable();
    (stay.session(), stay.asked(), stay.is_lost(), requests)
}

fn entry_key(entry: &Entry) -> u16 {
    let cause = entry.cancelled.map_or(0, |cause| cause as u16);
    1 + (entry.state as u16) * 64
        + u16::from(entry.is_answered) * 32
        + u16::from(entry.is_held) * 16
        + cause
}
