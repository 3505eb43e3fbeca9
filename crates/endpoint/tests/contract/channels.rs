//! Channels: records, credit, which side ends first.

use std::time::Duration;

use sekisho_endpoint::{Code, Manner, SessionSlots};
use sekisho_lifecycle::Request;
use sekisho_native::frame::Kind;

use crate::world::{DEAF, ECHO, ELSEWHERE, ENDLESS, HASTY, STREAM, World, failure};

contract! {
    /// L22, L25: all records come, once and in order, and then the answer.
    #[test]
    async fn records_come_once_and_in_order() {
        let world = World::<T>::new();
        let client = world.connect("stream").await;
        for (count, size) in [(0, 0), (1, 0), (300, 10), (100, 60_000)] {
            let body = format!("{count} {size}");
            let mut call = client.request(STREAM, body.as_bytes()).expect("made");
            for number in 0..count {
                let record = call.next_record().await.expect("alive").expect("a record");
                assert_eq!(record, vec![number as u8; size]);
            }
            assert_eq!(call.next_record().await.expect("alive"), None);
            assert_eq!(call.answer().await.expect("a result"), b"done");
            assert_eq!(call.next_record().await.expect("alive"), None);
        }
        let idle = sekisho_lifecycle::Session::Idle;
        world.until(|| world.endpoint.list()[0].requests.is_empty()).await;
        assert_eq!(world.endpoint.list()[0].state, idle);
    }

    /// E1: a service may hand its response on to another task.
    #[test]
    async fn a_response_may_be_used_from_another_task() {
        let world = World::<T>::with(
            |policy| policy.channel_bytes_max = 5000,
            SessionSlots::new(9, 1, 9),
        );
        let client = world.connect("elsewhere").await;
        let mut call = client.request(ELSEWHERE, b"200 900").expect("made");
        let mut records = 0;
        while let Some(record) = call.next_record().await.expect("alive") {
            assert_eq!(record.len(), 900);
            records += 1;
        }
        assert_eq!(records, 200);
        assert_eq!(call.answer().await.expect("a result"), b"done");
        assert_eq!(world.endpoint.counters().dropped_unanswered, 0);
    }

    /// L30, L14: an undrained channel outlives the answer and blocks a graceful end.
    #[test]
    async fn an_undrained_channel_outlives_the_answer_and_blocks_grace() {
        let world = World::<T>::new();
        let client = world.connect_confirming("undrained").await;
        let mut call = client.request(STREAM, b"3 5").expect("made");
        assert_eq!(call.answer().await.expect("a result"), b"done");
        let info = world.endpoint.list().remove(0);
        assert_eq!(info.requests[0].state, Request::Lingering);
        client.start_shutdown(Manner::Graceful);
        client.flush().await.expect("sent");
        let id = client.session();
        world.until(|| world.endpoint.show(id).is_some_and(|info| info.asked.is_some())).await;
        assert!(world.endpoint.show(id).is_some_and(|info| info.deadline.is_some()));
        for _ in 0..3 {
            assert_eq!(call.next_record().await.expect("alive").expect("a record").len(), 5);
        }
        client.ended().await.expect("as asked");
        drop((call, client));
        world.empty().await;
    }

    /// L28, L30: a client that takes what it gave room for need not say that it did; what came is there after the end.
    #[test]
    async fn a_channel_that_ended_is_drained_without_a_word() {
        let world = World::<T>::new();
        let client = world.connect("silent").await;
        let mut call = client.request(STREAM, b"3 5").expect("made");
        assert_eq!(call.answer().await.expect("a result"), b"done");
        world.until(|| world.endpoint.list()[0].requests.is_empty()).await;
        client.shut_down(Manner::Graceful).await.expect("as asked");
        for _ in 0..3 {
            assert_eq!(call.next_record().await.expect("here").expect("a record").len(), 5);
        }
        assert_eq!(call.next_record().await.expect("here"), None);
        drop((call, client));
        world.empty().await;
    }

    /// L8, L14: while an idle session waits for a channel to be drained, it takes no more requests.
    #[test]
    async fn a_session_that_waits_for_its_channels_refuses_requests() {
        let world = World::<T>::new();
        let client = world.connect_confirming("waits").await;
        let mut undrained = client.request(STREAM, b"3 5").expect("made");
        assert_eq!(undrained.answer().await.expect("a result"), b"done");
        assert!(world.endpoint.shut_down(client.session(), Manner::Graceful));
        let mut late = client.request(ECHO, b"x").expect("made");
        assert_eq!(failure(&mut late).await, Code::SessionClosed);
        while undrained.next_record().await.expect("alive").is_some() {}
        let error = client.ended().await.expect_err("not as we asked");
        assert_eq!(error.code(), Some(Code::SessionClosed));
    }

    /// L14: the drain deadline turns grace into force.
    #[test]
    async fn grace_does_not_wait_for_a_channel_for_ever() {
        let world = World::<T>::with(
            |policy| policy.drain_timeout = Some(Duration::from_millis(30)),
            SessionSlots::new(9, 1, 9),
        );
        let client = world.connect_confirming("undrained").await;
        let mut call = client.request(STREAM, b"3 5").expect("made");
        assert_eq!(call.answer().await.expect("a result"), b"done");
        let since = tokio::time::Instant::now();
        client.start_shutdown(Manner::Graceful);
        client.ended().await.expect_err("the deadline's word");
        assert!(since.elapsed() >= Duration::from_millis(30), "never early");
        drop((call, client));
        world.empty().await;
    }

    /// L28, L24: the client is done before the producer, which neither blocks nor fails.
    #[test]
    async fn a_client_may_be_done_before_its_producer() {
        let world = World::<T>::new();
        let client = world.connect("done").await;
        let mut call = client.request(ENDLESS, b"").expect("made");
        assert!(call.next_record().await.expect("alive").is_some());
        call.drain_channel();
        assert_eq!(call.answer().await.expect("a result"), b"enough");
        assert_eq!(call.next_record().await.expect("alive"), None);
        world.until(|| world.endpoint.list()[0].requests.is_empty()).await;
    }

    /// L28: a client that wants no records need not wait for the channel to say so.
    #[test]
    async fn a_client_may_want_no_records_from_the_start() {
        let world = World::<T>::new();
        let client = world.connect("none").await;
        let mut call = client.request(ENDLESS, b"").expect("made");
        call.drain_channel();
        assert_eq!(call.next_record().await.expect("alive"), None);
        assert_eq!(call.answer().await.expect("a result"), b"enough");
        // More than a window, and no reader to take it.
        assert_eq!(client.call(STREAM, b"100 60000").await.expect("a result"), b"done");
        world.until(|| world.endpoint.list()[0].requests.is_empty()).await;
    }

    /// L28, L15: a producer that ignores the results of its writes delays no other session.
    #[test]
    async fn a_producer_that_nobody_reads_lets_others_have_their_turn() {
        let world = World::<T>::new();
        let client = world.connect("deaf").await;
        let mut call = client.request(DEAF, b"x").expect("made");
        assert!(call.next_record().await.expect("alive").is_some());
        call.drain_channel();
        let other = world.connect("other").await;
        for _ in 0..20 {
            assert_eq!(other.call(ECHO, b"x").await.expect("a result"), b"x");
            assert_eq!(client.call(ECHO, b"y").await.expect("a result"), b"y");
        }
        world.release(b"x").await;
        assert_eq!(call.answer().await.expect("a result"), b"at last");
        // The same after a client that has gone.
        let mut gone = other.request(DEAF, b"gone").expect("made");
        assert!(gone.next_record().await.expect("alive").is_some());
        drop((gone, other));
        world.until(|| world.endpoint.list().len() == 2).await;
        assert_eq!(client.call(ECHO, b"z").await.expect("a result"), b"z");
        world.release(b"gone").await;
        world.until(|| world.endpoint.list().len() == 1).await;
    }

    /// L14: a reader that withholds credit does not hold a graceful end for ever.
    #[test]
    async fn a_reader_that_takes_nothing_does_not_hold_a_graceful_end() {
        let world = World::<T>::with(
            |policy| policy.drain_timeout = Some(Duration::from_millis(100)),
            SessionSlots::new(9, 1, 9),
        );
        let mut raw = world.greeted().await;
        raw.request(0, ENDLESS, b"").await;
        // It takes bytes, and gives no credit for them.
        while raw.next().await.is_some_and(|(head, _)| head.kind != Kind::Record) {}
        let ending = async {
            world.endpoint.shut_down_all(Manner::Graceful).await;
        };
        let reading = async { while raw.next().await.is_some() {} };
        tokio::join!(ending, reading);
        world.empty().await;
    }

    /// L29: a result with an open channel is a handler's bug; the channel is closed for it.
    #[test]
    async fn a_result_with_an_open_channel_is_guarded() {
        let world = World::<T>::new();
        let client = world.connect("hasty").await;
        let mut call = client.request(HASTY, b"").expect("made");
        assert_eq!(call.answer().await.expect("a result"), b"too early");
        assert_eq!(call.next_record().await.expect("alive").expect("a record"), b"one");
        assert_eq!(call.next_record().await.expect("alive"), None);
        assert_eq!(world.endpoint.counters().answered_with_open_channel, 1);
        world.noted("AnsweredWithOpenChannel").await;
        world.until(|| world.endpoint.list()[0].requests.is_empty()).await;
    }

    /// E4: a slow reader slows its producer and no other session.
    #[test]
    async fn a_slow_reader_slows_its_producer_and_nobody_else() {
        let world = World::<T>::with(
            |policy| policy.channel_bytes_max = 10_000,
            SessionSlots::new(9, 1, 9),
        );
        let client = world.connect("slow").await;
        let mut slow = client.request(ENDLESS, b"").expect("made");
        // Other requests of the same session go on.
        for _ in 0..50 {
            assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        }
        assert_eq!(*world.shared.records.borrow(), 9, "one window of records");
        for _ in 0..100 {
            assert!(slow.next_record().await.expect("alive").is_some());
        }
        assert!(*world.shared.records.borrow() <= 109);
        slow.drain_channel();
        assert_eq!(slow.answer().await.expect("a result"), b"enough");
    }

    /// E4: a record at the limit and one byte more.
    #[test]
    async fn a_record_has_room_in_a_window_or_is_refused() {
        let world = World::<T>::with(
            |policy| policy.channel_bytes_max = 1000,
            SessionSlots::new(9, 1, 9),
        );
        let client = world.connect("records").await;
        let mut call = client.request(STREAM, b"2 988").expect("made");
        assert!(call.next_record().await.expect("alive").is_some());
        assert!(call.next_record().await.expect("alive").is_some());
        assert_eq!(call.answer().await.expect("a result"), b"done");
        let mut call = client.request(STREAM, b"1 989").expect("made");
        assert_eq!(failure(&mut call).await, Code::InvalidRequest);
    }

    /// L12, L14: a lost client counts as drained for all of its channels.
    #[test]
    async fn a_lost_client_leaves_no_channel_behind() {
        let world = World::<T>::new();
        let client = world.connect_confirming("gone").await;
        let mut undrained = client.request(STREAM, b"3 5").expect("made");
        let running = client.request(ENDLESS, b"").expect("made");
        assert_eq!(undrained.answer().await.expect("a result"), b"done");
        world.until(|| *world.shared.records.borrow() > 0).await;
        drop((undrained, running, client));
        world.empty().await;
    }
}
