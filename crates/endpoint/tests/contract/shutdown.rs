//! Graceful and forceful ends, before, during and after requests.

use sekisho_endpoint::{CallError, Code, Manner, SessionSlots};
use sekisho_lifecycle::Session;

use crate::world::{ECHO, HOLD, PATIENT, World, failure};

contract! {
    /// L3: before and after requests, both manners end at once.
    #[test]
    async fn an_idle_session_ends_at_once() {
        let world = World::<T>::new();
        for manner in [Manner::Graceful, Manner::Forceful] {
            let before = world.connect("before").await;
            before.shut_down(manner).await.expect("as asked");
            let after = world.connect("after").await;
            assert_eq!(after.call(ECHO, b"x").await.expect("a result"), b"x");
            after.shut_down(manner).await.expect("as asked");
            assert!(after.request(ECHO, b"y").is_err());
        }
        world.empty().await;
    }

    /// L6, L9: grace lets what runs finish.
    #[test]
    async fn grace_waits_for_what_runs() {
        let world = World::<T>::new();
        let client = world.connect("grace").await;
        let mut call = client.request(HOLD, b"x").expect("made");
        client.start_shutdown(Manner::Graceful);
        client.flush().await.expect("sent");
        world.until(|| {
            world.endpoint.list().iter().any(|info| matches!(info.state, Session::Closing(..)))
        }).await;
        assert!(world.endpoint.list()[0].requests[0].cancelled.is_none());
        world.release(b"x").await;
        assert_eq!(call.answer().await.expect("a result"), b"x");
        client.ended().await.expect("as asked");
        drop((call, client));
        world.empty().await;
    }

    /// L7, X13: force cancels what runs; it still answers.
    #[test]
    async fn force_cancels_what_runs_and_each_answers_once() {
        let world = World::<T>::new();
        let client = world.connect("force").await;
        let mut calls: Vec<_> =
            (0..3).map(|_| client.request(PATIENT, b"").expect("made")).collect();
        client.start_shutdown(Manner::Forceful);
        for call in &mut calls {
            assert_eq!(failure(call).await, Code::OperationCancelled);
        }
        client.ended().await.expect("as asked");
        world.until(|| world.endpoint.list().is_empty()).await;
    }

    /// L7, L15: the shutdown frame is sent at once, though other output waits for the next wait of a call.
    #[test]
    async fn the_word_to_end_does_not_wait_for_anybody() {
        let world = World::<T>::new();
        let client = world.connect("word").await;
        let mut call = client.request(PATIENT, b"").expect("made");
        let waiting = tokio::task::spawn_local(async move { failure(&mut call).await });
        world.noted("patient").await;
        let _not_waited_for = client.request(ECHO, b"x").expect("made");
        client.start_shutdown(Manner::Forceful);
        assert_eq!(waiting.await.expect("content"), Code::OperationCancelled);
    }

    /// L10: force may follow grace.
    #[test]
    async fn force_may_follow_grace() {
        let world = World::<T>::new();
        let client = world.connect("both").await;
        let mut call = client.request(PATIENT, b"").expect("made");
        client.start_shutdown(Manner::Graceful);
        client.flush().await.expect("sent");
        world.noted("patient").await;
        let id = client.session();
        world.until(|| world.endpoint.show(id).is_some_and(|info| info.asked.is_some())).await;
        assert!(world.endpoint.shut_down(id, Manner::Forceful));
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
        let error = client.ended().await.expect_err("not as we asked");
        assert_eq!(error.code(), Some(Code::SessionClosed));
    }

    /// L8: in c_n a request is refused, and is not counted.
    #[test]
    async fn a_request_in_a_closing_session_is_refused() {
        let world = World::<T>::new();
        let client = world.connect("closing").await;
        let mut first = client.request(HOLD, b"x").expect("made");
        client.flush().await.expect("sent");
        world.held(1).await;
        assert!(world.endpoint.shut_down(client.session(), Manner::Graceful));
        let mut late = client.request(ECHO, b"late").expect("made");
        assert_eq!(failure(&mut late).await, Code::SessionClosed);
        let one = std::num::NonZeroU32::MIN;
        let state = world.endpoint.list()[0].state;
        assert_eq!(state, Session::Closing(one, Manner::Graceful));
        world.release(b"x").await;
        assert_eq!(first.answer().await.expect("a result"), b"x");
        let error = client.ended().await.expect_err("not as we asked");
        assert!(matches!(error, CallError::Ended { code: Some(Code::SessionClosed), .. }));
    }

    /// O4: the endpoint as a whole: new sessions are refused, the last answer is waited for.
    #[test]
    async fn an_endpoint_drains() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(9, 1, 9));
        let idle = world.connect("idle").await;
        let busy = world.connect("busy").await;
        let newcomer = world.raw().await;
        let mut call = busy.request(HOLD, b"x").expect("made");
        busy.flush().await.expect("sent");
        world.held(1).await;
        let answered = async {
            assert!(idle.ended().await.is_err());
            let error = world.try_connect("late".into()).await.expect_err("refused");
            assert_eq!(error.code(), Some(Code::SessionClosed));
            world.release(b"x").await;
            let answer = call.answer().await.expect("a result");
            drop((idle, busy, call, newcomer));
            answer
        };
        let (answer, ()) =
            tokio::join!(answered, world.endpoint.shut_down_all(Manner::Graceful));
        assert_eq!(answer, b"x");
        world.empty().await;
    }
}
