//! Limits at max and at max + 1, the admin slot, handshakes that will not do.

use sekisho_endpoint::{CallError, Code, NewRequest, Options, SessionSlots};
use sekisho_native::frame::{Head, Kind};
use sekisho_native::message::{self, Hello};

use crate::world::{ECHO, HOLD, KEEP, LATE, OPEN, World, failure};

contract! {
    /// E4, E5: sessions; a session too many gets an error.
    #[test]
    async fn one_session_too_many_is_told_so() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(2, 1, 9));
        let first = world.connect("one").await;
        let second = world.connect("two").await;
        let error = world.try_connect("three".into()).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::ResourceLimitReached));
        assert_eq!(first.call(ECHO, b"x").await.expect("a result"), b"x");
        drop(second);
        world.until(|| world.slots.taken() == (1, 0)).await;
        world.connect("four").await;
    }

    /// E4, L33: a service that has answered and keeps its handle does not keep the slot.
    #[test]
    async fn an_ended_session_does_not_keep_its_slot() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(2, 1, 9));
        for _ in 0..5 {
            let client = world.connect("keeps").await;
            assert_eq!(client.call(KEEP, b"x").await.expect("a result"), b"x");
            drop(client);
            world.until(|| world.slots.taken() == (0, 0)).await;
        }
        assert_eq!(world.endpoint.list().len(), 5, "their records are there as long as the handles");
        world.shared.kept.borrow_mut().clear();
        world.empty().await;
    }

    /// E4: a service that is at work keeps its session's slot: a client that connects again and again cannot
    /// start more of them.
    #[test]
    async fn work_that_goes_on_counts_though_its_client_has_gone() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(1, 1, 9));
        let client = world.connect("works").await;
        let call = client.request(HOLD, b"x").expect("made");
        client.flush().await.expect("sent");
        world.held(1).await;
        drop((call, client));
        world.until(|| world.endpoint.list()[0].asked.is_some()).await;
        let error = world.try_connect("two".into()).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::ResourceLimitReached));
        world.release(b"x").await;
        world.empty().await;
        world.connect("three").await;
    }

    /// E4: the admin slot works when all others are taken, and is one.
    #[test]
    async fn the_admin_slot_is_free_when_all_others_are_taken() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(1, 1, 9));
        let _full = world.connect("one").await;
        assert!(world.try_connect("two".into()).await.is_err());
        let admin = Options { admin: true, ..Options::from("admin") };
        let client = world.try_connect(admin.clone()).await.expect("the admin slot");
        assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        assert!(world.endpoint.list().iter().any(|info| info.is_admin));
        let error = world.try_connect(admin).await.expect_err("one slot");
        assert_eq!(error.code(), Some(Code::ResourceLimitReached));
    }

    /// E4: requests per session.
    #[test]
    async fn one_request_too_many_is_refused() {
        let world = World::<T>::with(|policy| policy.requests_max = 2, SessionSlots::new(9, 1, 9));
        let client = world.connect("requests").await;
        assert_eq!(client.requests_max(), 2);
        let mut holding: Vec<_> = [b"a", b"b"]
            .into_iter()
            .map(|name| client.request(HOLD, name).expect("made"))
            .collect();
        assert!(matches!(client.request(ECHO, b""), Err(CallError::TooMany)));
        client.flush().await.expect("sent");
        world.release(b"a").await;
        assert_eq!(holding[0].answer().await.expect("a result"), b"a");
        assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        // A peer that does not count gets an error from the server.
        let mut raw = world.greeted().await;
        for slot in 0..3 {
            raw.request(slot, HOLD, &[b'0' + slot as u8]).await;
        }
        let (head, _) = raw.next().await.expect("an answer");
        assert_eq!((head.kind, head.slot), (Kind::Error, 2));
    }

    /// E4: channels per session.
    #[test]
    async fn one_channel_too_many_is_refused_to_the_service() {
        let world = World::<T>::with(|policy| policy.channels_max = 2, SessionSlots::new(9, 1, 9));
        let client = world.connect("channels").await;
        let _held: Vec<_> = [b"a", b"b"]
            .into_iter()
            .map(|name| client.request(OPEN, name).expect("made"))
            .collect();
        let mut third = client.request(OPEN, b"c").expect("made");
        assert_eq!(failure(&mut third).await, Code::ResourceLimitReached);
    }

    /// E4, X8: parts of a body that wait for a service count, however small they are.
    #[test]
    async fn many_small_parts_that_wait_are_refused() {
        for part in [&[b'x'; 1][..], &[b'x'; 4000]] {
            let world = World::<T>::holding(8000);
            let client = world.connect("parts").await;
            let mut call = client.start(&NewRequest::to(LATE).with_upload()).expect("made");
            let upload = call.upload();
            // The client may notice the refusal while it sends.
            for _ in 0..1000 {
                if upload.send(part).await.is_err() {
                    break;
                }
            }
            assert_eq!(failure(&mut call).await, Code::ResourceLimitReached);
            world.release(b"late").await;
            world.noted("body lost").await;
            assert!(*world.shared.records.borrow() < 100, "no more than there was memory for");
            drop((upload, call));
            // The session goes on, and has its memory back.
            let mut call = client.start(&NewRequest::to(LATE).with_upload()).expect("made");
            call.upload().send(part).await.expect("wanted");
            call.upload().finish();
            client.flush().await.expect("sent");
            world.release(b"late").await;
            assert_eq!(call.answer().await.expect("a result"), part.len().to_string().as_bytes());
            drop((call, client));
            world.empty().await;
        }
    }

    /// E4, X8: bytes that the bodies of requests hold; what is beyond them is refused, and the session goes on.
    #[test]
    async fn one_body_too_many_is_refused() {
        let world = World::<T>::holding(100_000);
        let client = world.connect("bodies").await;
        let mut holding = client.request(HOLD, &vec![b'a'; 70_000]).expect("made");
        client.flush().await.expect("sent");
        let mut refused = client.request(ECHO, &vec![b'b'; 40_000]).expect("made");
        assert_eq!(failure(&mut refused).await, Code::ResourceLimitReached);
        assert_eq!(client.call(ECHO, b"small").await.expect("a result"), b"small");
        // The whole endpoint has twice as much: others are not concerned.
        let other = world.connect("other").await;
        assert_eq!(other.call(ECHO, &vec![b'c'; 40_000]).await.expect("a result").len(), 40_000);
        world.release(&vec![b'a'; 70_000]).await;
        assert_eq!(holding.answer().await.expect("a result").len(), 70_000);
        drop(holding);
        assert_eq!(client.call(ECHO, &vec![b'b'; 40_000]).await.expect("a result").len(), 40_000);
        drop((client, other, refused));
        world.empty().await;
        assert_eq!(world.budget.taken(), 0, "all of it is given back");
    }

    /// E4: bytes per frame.
    #[test]
    async fn a_frame_at_the_limit_is_taken_and_a_longer_one_is_the_end() {
        let world = World::<T>::with(|policy| policy.frame_bytes_max = 5000, SessionSlots::new(9, 1, 9));
        let client = world.connect("frames").await;
        assert_eq!(client.call(ECHO, &[1; 5000]).await.expect("a result").len(), 5000);
        assert!(matches!(client.request(ECHO, &[1; 5001]), Err(CallError::TooLarge)));
        let mut raw = world.greeted().await;
        raw.request(0, ECHO, &[1; 5001]).await;
        assert_eq!(raw.bye().await, Code::ResourceLimitReached);
        // And one that claims four gigabytes before its greeting.
        let mut raw = world.raw().await;
        let mut wire = Vec::new();
        Head { length: u32::MAX, ..Head::of_slot(Kind::Hello, 0) }.write(&mut wire);
        raw.send(&wire).await;
        assert_eq!(raw.bye().await, Code::ResourceLimitReached);
    }

    /// E4, E5: peers that have only just connected are bounded as well.
    #[test]
    async fn too_many_that_say_nothing_do_not_fill_the_server() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(9, 1, 8));
        let mut silent = Vec::new();
        for _ in 0..30 {
            silent.push(world.raw().await);
        }
        // The oldest go, which is counted.
        world.until(|| world.endpoint.counters().refused >= 22).await;
        let client = world.connect("quick").await;
        assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        // They get the error, as long as they are not too many.
        assert_eq!(silent[21].bye().await, Code::ResourceLimitReached);
        drop((silent, client));
        world.empty().await;
    }

    /// E2: a handshake first, and one that will do.
    #[test]
    async fn a_handshake_that_will_not_do_is_refused() {
        let world = World::<T>::new();
        let wrong = Options { credential: b"wrong".to_vec(), ..Options::default() };
        let error = world.try_connect(wrong).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::AuthenticationError));
        let error = world.try_connect("a\nb".into()).await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::InvalidRequest));
        let mut raw = world.raw().await;
        raw.request(0, ECHO, b"").await;
        assert_eq!(raw.bye().await, Code::InvalidRequest);
        let mut raw = world.raw().await;
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(raw.bye().await, Code::InvalidRequest);
        drop(raw);
        world.empty().await;
    }

    /// E3: a peer with another major version gets the supported one.
    #[test]
    async fn a_newer_version_is_refused() {
        let world = World::<T>::new();
        let mut raw = world.raw().await;
        let mut wire = Vec::new();
        message::write(&mut wire, Kind::Hello, 0, &Hello { major: 2, ..Hello::default() });
        raw.send(&wire).await;
        assert_eq!(raw.bye().await, Code::UnsupportedOperation);
    }
}
