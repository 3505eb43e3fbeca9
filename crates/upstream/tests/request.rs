//! One request to a group of servers: scripts on virtual time, and any order of facts (U1, U2).

use std::time::Duration;

use proptest::prelude::*;
use sekisho_http::upstream::{Failure, HeadFault};
use sekisho_http::{Method as Verb, Status};
use sekisho_lifecycle::{DeadlineKind, Moment};
use sekisho_upstream::balance::Change;
use sekisho_upstream::cache::{Lifetime, UseStale};
use sekisho_upstream::request::{Order, Rules, Stored, UpstreamRequest};
use sekisho_upstream::retry::{Condition, NextUpstream};
use sekisho_upstream::{Balancer, Method, PeerSettings};

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn group(count: usize) -> Balancer {
    let peers = (0..count).map(|number| PeerSettings::new(&format!("s{number}"))).collect();
    Balancer::new(Method::RoundRobin, peers)
}

fn request(group: &Balancer, verb: Verb, rules: Rules) -> UpstreamRequest {
    UpstreamRequest::new(rules, verb, false, group.begin(b""), at(0))
}

fn connect(peer: usize) -> Order {
    Order::Connect { peer, may_be_kept: true }
}

fn status(code: u16) -> Status {
    Status::new(code).expect("a status")
}

fn running(group: &Balancer) -> Vec<u32> {
    group.snapshot(at(0)).iter().map(|peer| peer.connections).collect()
}

#[test]
fn an_answer_is_forwarded_and_the_server_released() {
    let group = group(2);
    let mut request = request(&group, Verb::Get, Rules::default());
    assert_eq!(request.start(&group, at(10), || 0), connect(0));
    assert_eq!(running(&group), [1, 0]);
    let deadline = request.next_deadline().expect("for connecting");
    assert_eq!((deadline.at, deadline.kind), (at(60_010), DeadlineKind::UpstreamConnect));
    request.connected(false, at(15));
    assert_eq!(request.next_deadline(), None);
    request.sent();
    assert_eq!(request.answered(status(200), &group, at(20), || 0), Order::Forward);
    request.finished(&group, at(50));
    assert!(request.is_over() && request.peer().is_none());
    assert_eq!(running(&group), [0, 0]);
    let [one] = request.tries() else { panic!("one try") };
    let millis = |length: Option<Duration>| length.map(|length| length.as_millis());
    assert_eq!((one.peer, one.status), (Some(0), Some(Status::OK)));
    assert_eq!(millis(one.connect_time), Some(5));
    assert_eq!(millis(one.header_time), Some(10));
    assert_eq!(millis(one.response_time), Some(40));
}

/// U1: the next server after a failure, each once, then the client gets the failure.
#[test]
fn each_server_is_asked_once() {
    let group = group(3);
    let mut request = request(&group, Verb::Get, Rules::default());
    request.start(&group, at(0), || 0);
    let refused = Failure::NotConnected(Some(111));
    assert_eq!(request.failed(refused, false, &group, at(1), || 0), connect(1));
    assert_eq!(request.take_change(), Some((0, Change::Disabled)));
    assert_eq!(request.take_change(), None);
    request.connected(false, at(2));
    request.sent();
    assert_eq!(request.failed(Failure::ClosedEarly, false, &group, at(3), || 0), connect(2));
    let order = request.expire(&group, at(3 + 60_000), || 0);
    assert_eq!(order, Order::Fail(Failure::ConnectTimeout));
    let statuses: Vec<_> = request.tries().iter().filter_map(|one| one.status).collect();
    assert_eq!(statuses, [status(502), status(502), status(504)]);
    assert_eq!(running(&group), [0, 0, 0]);
}

/// U1: what may have been processed is not sent twice.
#[test]
fn a_post_that_has_left_is_not_sent_again() {
    let group = group(2);
    let mut post = request(&group, Verb::Post, Rules::default());
    post.start(&group, at(0), || 0);
    post.connected(false, at(1));
    post.sent();
    let order = post.failed(Failure::ReadTimeout, false, &group, at(2), || 0);
    assert_eq!(order, Order::Fail(Failure::ReadTimeout));
    let mut unsent = request(&group, Verb::Post, Rules::default());
    let Order::Connect { peer, .. } = unsent.start(&group, at(20_000), || 0) else { panic!() };
    let order = unsent.failed(Failure::NotConnected(None), false, &group, at(20_000), || 0);
    assert_eq!(order, connect(1 - peer), "nothing had left");
}

/// U1, RFC 9113 §8.7: what a server says that it has not processed is sent again, as long as there is all of it.
#[test]
fn what_was_not_processed_is_sent_again_while_its_body_is_there() {
    for is_lost in [false, true] {
        let group = group(2);
        let mut post = request(&group, Verb::Post, Rules::default());
        post.start(&group, at(0), || 0);
        post.connected(false, at(1));
        post.sent();
        if is_lost {
            post.lose_body();
        }
        let order = post.failed(Failure::NotTaken, false, &group, at(2), || 0);
        assert_eq!(order, if is_lost { Order::Fail(Failure::NotTaken) } else { connect(1) });
    }
    // Any other reset may come from the midst of it.
    let group = group(2);
    let mut post = request(&group, Verb::Post, Rules::default());
    post.start(&group, at(0), || 0);
    post.connected(false, at(1));
    post.sent();
    let order = post.failed(Failure::Rejected(2), false, &group, at(2), || 0);
    assert_eq!(order, Order::Fail(Failure::Rejected(2)));
}

/// U4: a kept connection that was closed while idle costs no try and is not the server's fault.
#[test]
fn a_stale_connection_is_replaced_by_a_new_one() {
    let group = group(1);
    for failure in
        [Failure::ClosedEarly, Failure::Lost(Some(104)), Failure::BadHead(HeadFault::Unsolicited)]
    {
        let mut get = request(&group, Verb::Get, Rules::default());
        get.start(&group, at(0), || 0);
        get.connected(true, at(0));
        get.sent();
        let again = Order::Connect { peer: 0, may_be_kept: false };
        assert_eq!(get.failed(failure, false, &group, at(1), || 0), again);
        assert_eq!(running(&group), [1], "it is still the same server's");
        get.connected(false, at(2));
        get.sent();
        let order = get.failed(Failure::ClosedEarly, false, &group, at(3), || 0);
        assert_eq!(order, Order::Fail(Failure::ClosedEarly), "but only once");
        assert_eq!((running(&group), get.tries().len()), (vec![0], 2));
    }
    let mut answered = request(&group, Verb::Get, Rules::default());
    answered.start(&group, at(0), || 0);
    answered.connected(true, at(0));
    answered.sent();
    let order = answered.failed(Failure::ClosedEarly, true, &group, at(1), || 0);
    assert_eq!(order, Order::Fail(Failure::ClosedEarly), "it had begun to answer");
}

#[test]
fn a_status_may_send_the_request_on() {
    let rules = Rules { next: NextUpstream::new([Condition::Http503]), ..Rules::default() };
    let group = group(2);
    let mut get = request(&group, Verb::Get, rules);
    get.start(&group, at(0), || 0);
    get.connected(false, at(0));
    get.sent();
    assert_eq!(get.answered(status(503), &group, at(1), || 0), connect(1));
    get.connected(false, at(1));
    get.sent();
    assert_eq!(get.answered(status(503), &group, at(2), || 0), Order::Forward, "no server is left");
    let cut = get.failed(Failure::BodyCut, true, &group, at(3), || 0);
    assert_eq!(cut, Order::Cut(Failure::BodyCut));
    assert!(get.is_over());
    assert_eq!(running(&group), [0, 0]);
}

#[test]
fn a_body_that_is_streamed_goes_once() {
    let group = group(2);
    let selection = group.begin(b"");
    let mut put = UpstreamRequest::new(Rules::default(), Verb::Put, true, selection, at(0));
    put.start(&group, at(0), || 0);
    assert_eq!(put.failed(Failure::NotConnected(None), false, &group, at(0), || 0), connect(1));
    put.connected(false, at(0));
    put.sent();
    let order = put.failed(Failure::ClosedEarly, false, &group, at(1), || 0);
    assert_eq!(order, Order::Fail(Failure::ClosedEarly));
}

/// U2: 502 when no server may be asked, as in nginx.
#[test]
fn without_a_live_server_it_is_a_502() {
    let mut down = PeerSettings::new("a");
    down.is_down = true;
    let group = Balancer::new(Method::RoundRobin, vec![down]);
    let mut get = request(&group, Verb::Get, Rules::default());
    assert_eq!(get.start(&group, at(0), || 0), Order::Fail(Failure::NoLive));
    assert_eq!(get.tries()[0].status, Some(Status::BAD_GATEWAY));
    assert_eq!(get.start(&group, at(0), || 0), Order::Nothing);
}

/// A request for which a cache has a response that expired at 100 s, and may be given for an hour after that.
fn stored_request(group: &Balancer, is_revalidating: bool) -> UpstreamRequest {
    let lifetime = Lifetime {
        stored: 0,
        age: 0,
        valid_until: 100,
        stale_while_revalidate: 0,
        stale_if_error: 3600,
        must_revalidate: false,
    };
    let use_stale = UseStale::new([Condition::Timeout, Condition::Http404], false);
    let mut request = request(group, Verb::Get, Rules::default());
    request.set_stored(Stored { lifetime, use_stale, is_revalidating, wall: (at(0), 200) });
    assert_eq!(request.start(group, at(0), || 0), connect(0));
    request.connected(false, at(1));
    request.sent();
    request
}

#[test]
fn a_stale_response_is_served_where_no_server_has_a_better_one() {
    let group = group(1);
    let mut late = stored_request(&group, false);
    let order = late.failed(Failure::ReadTimeout, false, &group, at(2), || 0);
    assert_eq!(order, Order::ServeStale(Some(Failure::ReadTimeout)));
    let mut missing = stored_request(&group, false);
    assert_eq!(missing.answered(status(404), &group, at(2), || 0), Order::ServeStale(None));
    // A response that has begun is cut, and nothing follows it.
    let mut begun = stored_request(&group, false);
    assert_eq!(begun.answered(status(200), &group, at(2), || 0), Order::Forward);
    let order = begun.failed(Failure::BodyCut, true, &group, at(3), || 0);
    assert_eq!(order, Order::Cut(Failure::BodyCut));
    // The hour of `stale-if-error` is over, and the configuration does not name this condition.
    let mut old = stored_request(&group, false);
    assert_eq!(old.answered(status(500), &group, at(3_600_000), || 0), Order::Forward);
    assert_eq!(running(&group), [1]);
    old.finished(&group, at(3_600_000));
    assert_eq!(running(&group), [0]);
}

#[test]
fn a_stored_response_that_the_server_confirms_is_served_even_if_the_connection_is_lost_then() {
    let group = group(1);
    let mut asked = stored_request(&group, true);
    assert_eq!(asked.answered(status(304), &group, at(2), || 0), Order::ServeRevalidated);
    assert!(!asked.is_over() && asked.peer() == Some(0));
    let order = asked.failed(Failure::Lost(None), true, &group, at(3), || 0);
    assert_eq!((order, asked.is_over()), (Order::ServeRevalidated, true));
    assert_eq!(running(&group), [0]);
    // A client's own condition is met for the client.
    let mut unasked = stored_request(&group, false);
    assert_eq!(unasked.answered(status(304), &group, at(2), || 0), Order::Forward);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// In any order of facts: one ending, no server kept, no server asked twice but over a new connection, and no
    /// request that has left and is not idempotent sent again.
    #[test]
    fn every_request_has_one_ending(
        servers in 1_usize..4,
        is_post in any::<bool>(),
        is_streamed in any::<bool>(),
        steps in proptest::collection::vec((0_u8..8, any::<bool>(), 0_u64..90_000), 1..40),
    ) {
        let group = group(servers);
        let verb = if is_post { Verb::Post } else { Verb::Get };
        let conditions = Condition::ALL.iter().copied();
        let rules = Rules { next: NextUpstream::new(conditions), ..Rules::default() };
        let selection = group.begin(b"");
        let mut request = UpstreamRequest::new(rules, verb, is_streamed, selection, at(0));
        let mut now = 0;
        let (mut endings, mut has_left) = (0, false);
        let mut asked: Vec<usize> = Vec::new();
        let mut take = |order: Order, has_left: &mut bool| match order {
            Order::Connect { peer, may_be_kept } => {
                assert!(!(*has_left && (is_post || is_streamed)), "sent twice");
                *has_left = false;
                assert!(!may_be_kept || !asked.contains(&peer), "asked twice");
                asked.push(peer);
            }
            Order::Fail(_) | Order::Cut(_) | Order::ServeStale(_) => endings += 1,
            Order::Forward | Order::ServeRevalidated | Order::Nothing => {}
        };
        take(request.start(&group, at(now), || 0), &mut has_left);
        for (step, flag, time) in steps {
            now += time;
            let is_connected = request.next_deadline().is_none() && request.peer().is_some();
            let order = match step {
                0 => {
                    request.connected(flag, at(now));
                    Order::Nothing
                }
                1 if is_connected => {
                    request.sent();
                    has_left = true;
                    Order::Nothing
                }
                2 => request.answered(status(if flag { 200 } else { 500 }), &group, at(now), || 0),
                3 => request.failed(Failure::ClosedEarly, flag, &group, at(now), || 0),
                4 => request.failed(Failure::ReadTimeout, flag, &group, at(now), || 0),
                5 => request.failed(Failure::NotConnected(None), flag, &group, at(now), || 0),
                6 => request.expire(&group, at(now), || 0),
                _ => Order::Nothing,
            };
            take(order, &mut has_left);
            let busy: u32 = running(&group).iter().sum();
            prop_assert_eq!(busy, u32::from(request.peer().is_some()));
            prop_assert_eq!(request.is_over(), request.peer().is_none());
        }
        if !request.is_over() {
            request.finished(&group, at(now));
            endings += 1;
        }
        prop_assert_eq!(endings, 1);
        prop_assert!(running(&group).iter().all(|count| *count == 0));
        prop_assert!(request.tries().iter().all(|one| one.response_time.is_some()));
    }
}
