//! Who a peer is: decided before anything of its session runs, and what rules about identities hold.

use std::time::Duration;

use prost::Message as _;
use sekisho_endpoint::control::{self, ControlRequest, What};
use sekisho_endpoint::{
    CallError, CloseReason, Code, Evidence, Identity, IdentityMatch, Options, Permissions,
    RequestLimits, SessionSlots,
};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello};

use crate::world::{ECHO, HOLD, World, failure};

fn user(name: &str, credential: &[u8]) -> Options {
    Options { user: name.to_owned(), credential: credential.to_vec(), ..Options::from(name) }
}

/// A handshake that takes time to decide on, with a request behind it.
fn pipelined() -> Vec<u8> {
    let mut wire = Vec::new();
    let credential = b"later".to_vec();
    let hello = Hello { major: 1, user: "ann".into(), credential, ..Hello::default() };
    message::write(&mut wire, Kind::Hello, 0, &hello);
    let head = Head { word: ECHO, ..Head::of_slot(Kind::Request, 1) };
    frame::write(&mut wire, head, b"early");
    wire
}

contract! {
    /// E13, L6: what a session was admitted for is withdrawn: it ends gracefully, with the reason, and no other does.
    #[test]
    async fn a_session_whose_evidence_is_withdrawn_ends_gracefully() {
        let world = World::<T>::new();
        let ann = world.try_connect(user("ann", b"password")).await.expect("admitted");
        let other = world.try_connect(user("bob", b"")).await.expect("admitted");
        let mut running = ann.request(HOLD, b"x").expect("made");
        ann.flush().await.expect("sent");
        world.held(1).await;
        let endpoint = &world.endpoint;
        let [(caller, evidence)] = &endpoint.evidence()[..] else { panic!("one may be withdrawn") };
        assert_eq!(*evidence, Evidence::Password([7; 32]));
        endpoint.withdraw(caller.session, "gone", "it is gone");
        // Neither a repeat nor a session without evidence.
        endpoint.withdraw(caller.session, "gone", "it is gone");
        endpoint.withdraw(other.session(), "gone", "it is gone");
        assert_eq!(endpoint.counters().withdrawn, 1);
        assert!(endpoint.evidence().is_empty(), "it is known to end");
        world.release(b"x").await;
        assert_eq!(running.answer().await.expect("a result"), b"x");
        let ended = ann.ended().await.expect_err("not as we asked");
        assert!(matches!(&ended, CallError::Ended { code: Some(Code::AuthenticationError), text } if text == "gone"));
        assert_eq!(other.call(ECHO, b"y").await.expect("a result"), b"y");
    }

    /// E2, E13: what comes behind the handshake waits for the decision, and then runs.
    #[test]
    async fn a_decision_takes_its_time_and_nothing_runs_before() {
        let world = World::<T>::new();
        let mut raw = world.raw().await;
        raw.send(&pipelined()).await;
        world.held(1).await;
        assert_eq!(world.connect("other").await.call(ECHO, b"x").await.expect("a result"), b"x");
        assert_eq!(world.endpoint.counters().requests, 1, "the other's");
        assert!(world.endpoint.list().iter().all(|info| info.identity != Identity::User("ann".into())));
        world.release(b"ann").await;
        let (head, _) = raw.next().await.expect("a frame");
        assert_eq!(head.kind, Kind::Welcome);
        let (head, body) = raw.next().await.expect("a frame");
        assert_eq!((head.kind, &body[..]), (Kind::Result, &b"early"[..]));
        assert!(world.endpoint.list().iter().any(|info| info.identity == Identity::User("ann".into())));
    }

    /// E2, E13: a decision that takes too long is none.
    #[test]
    async fn a_decision_that_takes_too_long_is_given_up() {
        let change = |policy: &mut sekisho_endpoint::Policy| {
            policy.decide_timeout = Duration::from_millis(30);
        };
        let world = World::<T>::with(change, SessionSlots::new(9, 1, 9));
        let mut raw = world.raw().await;
        raw.send(&pipelined()).await;
        assert_eq!(raw.bye().await, Code::ServiceUnavailable);
        world.noted("given up").await;
        drop(raw);
        world.empty().await;
        assert_eq!(world.endpoint.counters().requests, 0);
    }

    /// L12, E13: a client that goes while it is decided on is noticed, and the decision is given up.
    #[test]
    async fn a_client_that_goes_meanwhile_is_noticed() {
        let world = World::<T>::new();
        let mut raw = world.raw().await;
        raw.send(&pipelined()).await;
        world.held(1).await;
        drop(raw);
        world.noted("given up").await;
        world.until(|| !world.shared.ends.borrow().is_empty()).await;
        let ends = world.shared.ends.borrow().clone();
        let is_gone = matches!(ends[..], [CloseReason::PeerClosedEarly | CloseReason::TransportLost]);
        assert!(is_gone, "{ends:?}");
        world.empty().await;
    }

    /// E4, E14: more behind a handshake than is taken waits in the transport.
    #[test]
    async fn what_is_sent_meanwhile_is_not_taken_in_without_end() {
        let world = World::<T>::new();
        let mut raw = world.raw().await;
        raw.send(&pipelined()).await;
        world.held(1).await;
        for slot in 2..22 {
            raw.request(slot, ECHO, &[7; 1000]).await;
        }
        world.release(b"ann").await;
        let mut kinds = Vec::new();
        for _ in 0..22 {
            kinds.push(raw.next().await.expect("a frame").0.kind);
        }
        assert_eq!(kinds[0], Kind::Welcome);
        assert!(kinds[1..].iter().all(|kind| *kind == Kind::Result), "{kinds:?}");
    }

    /// E2, E13: a refusal has its reason, and is counted and reported.
    #[test]
    async fn a_refusal_is_counted_and_reported() {
        let world = World::<T>::new();
        let error = world.try_connect(user("ann", b"wrong")).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::AuthenticationError));
        world.noted("refused: AUTHENTICATION_ERROR").await;
        assert_eq!(world.endpoint.counters().refused, 1);
    }

    /// E14: a service is for the callers that are named, and its session goes on after a refusal.
    #[test]
    async fn a_service_is_for_those_that_are_named() {
        let mut permissions = Permissions::default();
        permissions.permit("echo", [IdentityMatch::User("ann".into())]);
        let slots = SessionSlots::new(9, 1, 9);
        let world = World::<T>::ruled(|_| {}, slots, permissions, RequestLimits::new(None, None));
        let ann = world.try_connect(user("ann", b"")).await.expect("admitted");
        assert_eq!(ann.call(ECHO, b"x").await.expect("a result"), b"x");
        let bob = world.try_connect(user("bob", b"")).await.expect("admitted");
        for _ in 0..2 {
            let error = bob.call(ECHO, b"x").await.expect_err("refused");
            let is_told = matches!(&error, CallError::Failed { code: Code::PermissionError, text }
                if text.contains("echo") && text.contains("user:bob"));
            assert!(is_told, "{error:?}");
        }
        world.noted("echo denied to user:bob: PERMISSION_ERROR").await;
        assert_eq!(world.endpoint.counters().denied, 2);
        let mut call = bob.request(HOLD, b"h").expect("made");
        bob.flush().await.expect("sent");
        world.release(b"h").await;
        assert_eq!(call.answer().await.expect("no rule names it"), b"h");
    }

    /// E14: a session that is admitted for `control` alone calls nothing else, by number or by name.
    #[test]
    async fn a_session_for_control_calls_nothing_else() {
        let world = World::<T>::new();
        let options = Options { admin: true, ..user("monitor", b"") };
        let monitor = world.try_connect(options).await.expect("admitted");
        let what = Some(What::ListServices(control::ListServices {}));
        let asks = ControlRequest { what, ..ControlRequest::default() };
        let list = monitor.call(control::NUMBER, &asks.encode_to_vec()).await.expect("a list");
        assert!(!list.is_empty());
        for denied in [monitor.call(ECHO, b"x").await, monitor.call_named("echo", b"x").await] {
            assert_eq!(denied.expect_err("refused").code(), Some(Code::PermissionError));
        }
        world.noted("echo denied to user:monitor: PERMISSION_ERROR").await;
        assert_eq!(world.endpoint.counters().denied, 2);
    }

    /// E4, E14: sessions of one identity, wherever they come from.
    #[test]
    async fn an_identity_has_so_many_sessions() {
        let slots = SessionSlots::with_shares(9, 1, 9, (9, 2));
        let limits = RequestLimits::new(None, None);
        let world = World::<T>::ruled(|_| {}, slots, Permissions::default(), limits);
        let first = world.try_connect(user("ann", b"")).await.expect("admitted");
        let _second = world.try_connect(user("ann", b"")).await.expect("admitted");
        let error = world.try_connect(user("ann", b"")).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::ResourceLimitReached));
        let _other = world.try_connect(user("bob", b"")).await.expect("admitted");
        drop(first);
        world.until(|| world.slots.taken() == (2, 0)).await;
        world.try_connect(user("ann", b"")).await.expect("there is room again");
    }

    /// E4, E14: running requests of one identity, over all its sessions.
    #[test]
    async fn an_identity_has_so_many_running_requests() {
        let slots = SessionSlots::new(9, 1, 9);
        let limits = RequestLimits::new(Some(2), None);
        let world = World::<T>::ruled(|_| {}, slots, Permissions::default(), limits);
        let first = world.try_connect(user("ann", b"")).await.expect("admitted");
        let second = world.try_connect(user("ann", b"")).await.expect("admitted");
        let mut calls = Vec::new();
        for (client, name) in [(&first, b"a"), (&second, b"b")] {
            calls.push(client.request(HOLD, name).expect("made"));
            client.flush().await.expect("sent");
        }
        world.held(2).await;
        let mut third = second.request(HOLD, b"c").expect("made");
        assert_eq!(failure(&mut third).await, Code::ResourceLimitReached);
        let bob = world.try_connect(user("bob", b"")).await.expect("admitted");
        assert_eq!(bob.call(ECHO, b"x").await.expect("a result"), b"x");
        world.release(b"a").await;
        assert_eq!(calls[0].answer().await.expect("a result"), b"a");
        assert_eq!(second.call(ECHO, b"x").await.expect("there is room again"), b"x");
        world.release(b"b").await;
    }
}
