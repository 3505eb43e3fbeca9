//! Requests, answers, cancel, slots.

use sekisho_endpoint::{Code, RequestId, SessionSlots};
use sekisho_native::frame::Kind;

use crate::world::{ECHO, FORGET, HOLD, KEEP, PANIC, PATIENT, World, failure};

contract! {
    /// L4, L5: n in flight, answered out of order.
    #[test]
    async fn many_in_flight_are_answered_out_of_order() {
        let world = World::<T>::new();
        let client = world.connect("many").await;
        let names: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number]).collect();
        let mut calls = Vec::new();
        for name in &names {
            calls.push(client.request(HOLD, name).expect("made"));
        }
        client.flush().await.expect("sent");
        world.held(20).await;
        for name in names.iter().rev() {
            world.release(name).await;
            let call = &mut calls[usize::from(name[0])];
            assert_eq!(call.answer().await.expect("a result"), *name);
        }
        drop((calls, client));
        world.empty().await;
    }

    /// E1, E9: many small calls, one after the other and all at once.
    #[test]
    async fn echo_answers_with_what_it_was_sent() {
        let world = World::<T>::new();
        let client = world.connect("echo").await;
        for length in [0, 1, 100, 4096, 100_000, 1 << 20] {
            let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            assert_eq!(client.call(ECHO, &body).await.expect("a result"), body);
        }
        let mut calls: Vec<_> =
            (0..200_u8).map(|at| client.request(ECHO, &[at]).expect("made")).collect();
        for (at, call) in calls.iter_mut().enumerate() {
            assert_eq!(call.answer().await.expect("a result"), [at as u8]);
        }
    }

    /// E1: many tasks share one session; some of them give up. None waits for ever.
    #[test]
    async fn many_tasks_share_one_session() {
        let world = World::<T>::with(|policy| policy.requests_max = 64, SessionSlots::new(9, 1, 9));
        let client = world.connect("shared").await;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..60_usize {
            let client = client.clone();
            tasks.spawn_local(async move {
                for turn in 0..30_usize {
                    let body = vec![task as u8; (task * 31 + turn * 977) % 9000];
                    // As many as there are tasks have room; those of the impatient may linger.
                    let Ok(mut call) = client.request(ECHO, &body) else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    if (task + turn) % 7 == 0 {
                        let soon = std::time::Duration::from_micros(turn as u64 * 10);
                        let _ = tokio::time::timeout(soon, call.answer()).await;
                        continue;
                    }
                    assert_eq!(call.answer().await.expect("a result"), body);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("content");
        }
        assert_eq!(client.call(ECHO, b"last").await.expect("a result"), b"last");
        // Several wait for the end, and one for something else.
        let waits = async { tokio::join!(client.ended(), client.ended()) };
        let asks = async {
            client.extend(std::time::Duration::from_secs(1)).await.expect("alive");
            client.shut_down(sekisho_endpoint::Manner::Graceful).await.expect("as asked");
        };
        let (ends, ()) = tokio::join!(waits, asks);
        ends.0.expect("as asked");
        ends.1.expect("as asked");
        drop(client);
        world.empty().await;
    }

    /// E1: when the task that read for the others gives up, another one reads.
    #[test]
    async fn the_impatient_hand_the_reading_on() {
        let world = World::<T>::new();
        let client = world.connect("impatient").await;
        for round in 0..20_u8 {
            let mut kept = client.request(HOLD, &[round]).expect("made");
            let waits = {
                let mut call = client.request(HOLD, &[round, 1]).expect("made");
                tokio::task::spawn_local(async move { call.answer().await.expect("a result") })
            };
            tokio::task::yield_now().await;
            // The last to wait reads; then it goes, and keeps its call.
            let soon = std::time::Duration::from_millis(2);
            assert!(tokio::time::timeout(soon, kept.answer()).await.is_err());
            assert!(tokio::time::timeout(soon, client.ended()).await.is_err());
            world.release(&[round, 1]).await;
            assert_eq!(waits.await.expect("content"), [round, 1]);
            world.release(&[round]).await;
            assert_eq!(kept.answer().await.expect("a result"), [round]);
        }
    }

    /// L31: the cancelled request still gives its result, and no second answer.
    #[test]
    async fn a_cancelled_request_may_still_give_its_result() {
        let world = World::<T>::new();
        let mut raw = world.greeted().await;
        raw.request(1, HOLD, b"x").await;
        world.held(1).await;
        raw.bare(Kind::Cancel, 1).await;
        world.until(|| world.endpoint.list()[0].requests[0].cancelled.is_some()).await;
        world.release(b"x").await;
        let (head, body) = raw.next().await.expect("an answer");
        assert_eq!((head.kind, head.slot, &body[..]), (Kind::Result, 1, &b"x"[..]));
        world.noted("cancelled and answered").await;
        raw.request(2, ECHO, b"next").await;
        assert_eq!(raw.next().await.expect("an answer").0.slot, 2, "cancel has no answer of its own");
    }

    /// L31: or it says that it was cancelled.
    #[test]
    async fn a_cancelled_request_may_say_so() {
        let world = World::<T>::new();
        let client = world.connect("cancel").await;
        let mut call = client.request(PATIENT, b"").expect("made");
        client.flush().await.expect("sent");
        world.noted("patient").await;
        call.cancel();
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
    }

    /// L31: a cancel for a finished request is void.
    #[test]
    async fn a_late_cancel_is_void() {
        let world = World::<T>::new();
        let mut raw = world.greeted().await;
        raw.bare(Kind::Cancel, 9).await;
        raw.request(1, ECHO, b"a").await;
        assert_eq!(raw.next().await.expect("an answer").0.kind, Kind::Result);
        raw.bare(Kind::Cancel, 1).await;
        raw.request(1, ECHO, b"b").await;
        let (head, body) = raw.next().await.expect("an answer");
        assert_eq!((head.kind, &body[..]), (Kind::Result, &b"b"[..]));
    }

    /// L12, L15, V44: a peer that goes cancels what runs for it, at once.
    #[test]
    async fn a_lost_peer_cancels_at_once() {
        let world = World::<T>::new();
        let mut raw = world.greeted().await;
        raw.request(1, PATIENT, b"").await;
        world.noted("patient").await;
        let since = tokio::time::Instant::now();
        drop(raw);
        world.noted("cancelled").await;
        assert!(since.elapsed() < std::time::Duration::from_millis(500));
        world.empty().await;
    }

    /// L31: a client that drops its call cancels it.
    #[test]
    async fn a_dropped_call_is_cancelled_and_its_slot_comes_back() {
        let world = World::<T>::with(|policy| policy.requests_max = 1, SessionSlots::new(9, 1, 9));
        let client = world.connect("drop").await;
        let call = client.request(PATIENT, b"").expect("made");
        client.flush().await.expect("sent");
        world.noted("patient").await;
        // The server gets the cancellation though no call waits.
        drop(call);
        world.noted("cancelled").await;
        // The unwanted answer frees the slot.
        while client.request(ECHO, b"").is_err() {
            let _ = client.extend(std::time::Duration::ZERO).await.expect("alive");
        }
    }

    /// L32: a handler that gives no answer is a bug; the client gets one all the same.
    #[test]
    async fn a_dropped_handle_gives_unknown() {
        let world = World::<T>::new();
        let client = world.connect("forget").await;
        let mut call = client.request(FORGET, b"").expect("made");
        assert_eq!(failure(&mut call).await, Code::Unknown);
        assert_eq!(world.endpoint.counters().dropped_unanswered, 1);
        world.noted("DroppedUnanswered").await;
        assert_eq!(client.call(ECHO, b"on").await.expect("the session goes on"), b"on");
    }

    /// L32, V47: a handler that panics has dropped its handle; the session and the others go on.
    #[test]
    async fn a_panicking_service_gives_unknown_and_harms_nobody() {
        let world = World::<T>::new();
        let client = world.connect("panic").await;
        let mut other = client.request(HOLD, b"x").expect("made");
        for body in [&b"now"[..], b"later"] {
            let mut call = client.request(PANIC, body).expect("made");
            assert_eq!(failure(&mut call).await, Code::Unknown);
        }
        world.release(b"x").await;
        assert_eq!(other.answer().await.expect("a result"), b"x");
        assert_eq!(world.endpoint.counters().panicked, 2);
    }

    /// L33: a handle that is held after the answer keeps neither the slot nor the session.
    #[test]
    async fn a_held_handle_keeps_nothing_but_the_object() {
        let world = World::<T>::new();
        let client = world.connect("keep").await;
        assert_eq!(client.call(KEEP, b"a").await.expect("a result"), b"a");
        assert_eq!(client.call(KEEP, b"b").await.expect("a result"), b"b");
        client.shut_down(sekisho_endpoint::Manner::Graceful).await.expect("ended");
        drop(client);
        world.until(|| world.endpoint.connections() == 0).await;
        assert_eq!(world.endpoint.list()[0].state, sekisho_lifecycle::Session::Shutdown);
        // The object goes with the last handle (L11, L13).
        let kept = std::mem::take(&mut *world.shared.kept.borrow_mut());
        assert!(kept[0].body(b"again").is_err(), "there is one answer");
        drop(kept);
        assert!(world.endpoint.list().is_empty());
        world.empty().await;
    }

    /// E3: a slot is used again and again; one in use is not.
    #[test]
    async fn slots_are_used_again_but_not_twice_at_once() {
        let world = World::<T>::with(|policy| policy.requests_max = 2, SessionSlots::new(9, 1, 9));
        let client = world.connect("slots").await;
        for number in 0..300_u32 {
            let body = number.to_le_bytes();
            assert_eq!(client.call(ECHO, &body).await.expect("a result"), body);
        }
        let mut raw = world.greeted().await;
        raw.request(7, HOLD, b"first").await;
        world.held(1).await;
        raw.request(7, ECHO, b"second").await;
        assert_eq!(raw.bye().await, Code::InvalidRequest);
        world.release(b"first").await;
    }

    /// E3
    #[test]
    async fn an_unknown_service_is_not_found() {
        let world = World::<T>::new();
        let client = world.connect("lost").await;
        let mut call = client.request(4711, b"").expect("made");
        assert_eq!(failure(&mut call).await, Code::ServiceNotFound);
    }

    /// L34, L31: an operator sees a request and cancels it.
    #[test]
    async fn an_operator_cancels_a_request() {
        let world = World::<T>::new();
        let client = world.connect("seen").await;
        let mut call = client.request(PATIENT, b"").expect("made");
        client.flush().await.expect("sent");
        world.noted("patient").await;
        let seen = world.endpoint.list().remove(0);
        assert_eq!((&*seen.label, seen.requests.len()), ("seen", 1));
        assert_eq!(seen.requests[0].service_name.as_deref(), Some("patient"));
        assert!(world.endpoint.cancel(seen.id, seen.requests[0].id));
        assert!(!world.endpoint.cancel(seen.id, RequestId(99)));
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
    }
}
