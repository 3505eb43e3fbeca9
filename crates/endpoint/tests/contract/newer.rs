//! What version 1.1 adds, over every transport: bodies that go on, both directions at once, several channels, deadlines,
//! names, signs of life; and a client of 1.0 beside it.

use std::time::Duration;

use sekisho_endpoint::{CallError, CloseReason, Code, NewRequest, Options};
use sekisho_lifecycle::DeadlineKind;
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello, RequestOptions};

use crate::world::{
    COLLECT, ECHO, HOLD, MANY, PATIENT, Raw, SATED, STREAM, TALK, Transport, World, failure,
};

/// A peer without an engine that has said that it speaks 1.1.
async fn newer<T: Transport>(world: &World<T>, keepalive_millis: u32) -> Raw<T> {
    let mut raw = world.raw().await;
    let mut wire = Vec::new();
    let hello = Hello { major: 1, minor: 1, keepalive_millis, ..Hello::default() };
    message::write(&mut wire, Kind::Hello, 0, &hello);
    raw.send(&wire).await;
    assert_eq!(raw.next().await.expect("a frame").0.kind, Kind::Welcome);
    raw
}

contract! {
    async fn a_body_larger_than_any_window_goes_up_piece_by_piece() {
        let world = World::<T>::new();
        let client = world.connect("up").await;
        let mut call = client.start(&NewRequest::to(COLLECT).with_upload()).expect("made");
        let upload = call.upload();
        let part = vec![7; upload.part_bytes_max()];
        for _ in 0..20 {
            upload.send(&part).await.expect("wanted");
        }
        upload.send(b"x").await.expect("wanted");
        upload.finish();
        let answer = call.answer().await.expect("an answer");
        let expected = [vec![part.len().to_string(); 20].join(" "), "1".to_owned()].join(" ");
        assert_eq!(answer, expected.as_bytes());
    }

    async fn the_first_part_of_a_body_comes_with_its_request() {
        let world = World::<T>::new();
        let client = world.connect("first").await;
        let request = NewRequest::to(COLLECT).body(b"aaa").with_upload();
        let mut call = client.start(&request).expect("made");
        call.upload().send(b"bb").await.expect("wanted");
        call.upload().finish();
        assert_eq!(call.answer().await.expect("an answer"), b"3 2");
    }

    async fn a_service_that_does_not_take_streams_gets_the_whole_body() {
        let world = World::<T>::new();
        let client = world.connect("whole").await;
        let request = NewRequest::to(ECHO).body(b"one ").with_upload();
        let mut call = client.start(&request).expect("made");
        let upload = call.upload();
        for part in [&b"two "[..], b"", b"three"] {
            upload.send(part).await.expect("wanted");
        }
        upload.finish();
        assert_eq!(call.answer().await.expect("an answer"), b"one two three");
        // More than a request may have is refused, and the session goes on.
        let mut call = client.start(&request).expect("made");
        let upload = call.upload();
        let part = vec![0; upload.part_bytes_max()];
        while upload.send(&part).await.is_ok() {}
        assert_eq!(failure(&mut call).await, Code::ResourceLimitReached);
        assert_eq!(client.call(ECHO, b"on").await.expect("an answer"), b"on");
    }

    async fn both_sides_speak_at_once() {
        let world = World::<T>::new();
        let client = world.connect("talk").await;
        let mut call = client.start(&NewRequest::to(TALK).with_upload()).expect("made");
        let upload = call.upload();
        let sends = async {
            for number in 0..200_u32 {
                upload.send(&vec![number as u8; 5000]).await.expect("wanted");
            }
            upload.finish();
        };
        let takes = async {
            let mut count = 0;
            while let Some(record) = call.next_record().await.expect("alive") {
                assert_eq!(record, vec![count as u8; 5000]);
                count += 1;
            }
            assert_eq!(count, 200);
            call.answer().await.expect("an answer")
        };
        let ((), answer) = tokio::join!(sends, takes);
        assert_eq!(answer, b"done");
    }

    async fn a_question_is_answered_before_the_next_is_put() {
        let world = World::<T>::new();
        let client = world.connect("ping-pong").await;
        let mut call = client.start(&NewRequest::to(TALK).with_upload()).expect("made");
        let upload = call.upload();
        for number in 0..50_u8 {
            upload.send(&[number]).await.expect("wanted");
            assert_eq!(call.next_record().await.expect("alive"), Some(vec![number]));
        }
        upload.finish();
        assert_eq!(call.next_record().await.expect("alive"), None);
        assert_eq!(call.answer().await.expect("an answer"), b"done");
    }

    async fn a_service_that_waits_holds_its_client_back_and_nothing_else() {
        // E4
        let world = World::<T>::with(|policy| policy.channel_bytes_max = 1000, sekisho_endpoint::SessionSlots::new(9, 1, 9));
        let client = world.connect("slow").await;
        let mut call = client.start(&NewRequest::to(TALK).with_upload()).expect("made");
        let upload = call.upload();
        // The channel back is not read: the service comes to wait for it, and then the client for the service.
        let sent = async {
            loop {
                upload.send(&[1; 500]).await.expect("wanted");
            }
        };
        let sent = tokio::time::timeout(Duration::from_millis(50), sent).await;
        assert!(sent.is_err());
        assert_eq!(client.call(ECHO, b"on").await.expect("an answer"), b"on");
        call.drain_channel();
        upload.finish();
        assert_eq!(call.answer().await.expect("an answer"), b"done");
    }

    async fn a_body_that_is_not_wanted_stops_its_client() {
        let world = World::<T>::new();
        let client = world.connect("sated").await;
        let mut call = client.start(&NewRequest::to(SATED).with_upload()).expect("made");
        let upload = call.upload();
        upload.send(b"first").await.expect("wanted");
        let part = vec![0; upload.part_bytes_max()];
        let error = loop {
            if let Err(error) = upload.send(&part).await {
                break error;
            }
        };
        assert!(matches!(error, CallError::BodyUnwanted), "{error:?}");
        world.release(b"first").await;
        assert_eq!(call.answer().await.expect("an answer"), b"first");
        assert_eq!(client.call(ECHO, b"on").await.expect("an answer"), b"on");
    }

    async fn a_cancelled_body_is_lost_and_not_complete() {
        // L31
        let world = World::<T>::new();
        let client = world.connect("cancels").await;
        let mut call = client.start(&NewRequest::to(COLLECT).with_upload()).expect("made");
        call.upload().send(b"hhhh").await.expect("wanted");
        world.until(|| *world.shared.records.borrow() == 1).await;
        call.cancel();
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
        world.noted("body lost").await;
        // Where the service was not called yet, the same.
        let mut other = client.start(&NewRequest::to(ECHO).with_upload()).expect("made");
        other.cancel();
        assert_eq!(failure(&mut other).await, Code::OperationCancelled);
        drop((call, other, client));
        world.empty().await;
    }

    async fn a_lost_client_is_a_lost_body() {
        // L12
        let world = World::<T>::new();
        let client = world.connect("lost").await;
        let collects = client.start(&NewRequest::to(COLLECT).with_upload()).expect("made");
        let gathers = client.start(&NewRequest::to(ECHO).with_upload()).expect("made");
        client.flush().await.expect("sent");
        world.noted("collects").await;
        std::mem::forget((collects.upload(), gathers.upload()));
        drop((collects, gathers, client));
        world.noted("body lost").await;
    }

    async fn one_request_has_several_channels() {
        let world = World::<T>::new();
        let client = world.connect("many").await;
        let mut call = client.request(MANY, &[3]).expect("made");
        let mut seen = vec![Vec::new(); 3];
        while let Some((channel, record)) = call.next_of_any().await.expect("alive") {
            assert_eq!(record[0], channel);
            seen[usize::from(channel)].push(record[1]);
        }
        assert_eq!(seen, vec![vec![0, 1, 2]; 3]);
        assert_eq!(call.answer().await.expect("an answer"), b"done");
        // A caller that knows only the first one is not held up.
        let mut call = client.request(MANY, &[3]).expect("made");
        let mut count = 0;
        while call.next_record().await.expect("alive").is_some() {
            count += 1;
        }
        assert_eq!(count, 3);
        call.drain_channel();
        assert_eq!(call.answer().await.expect("an answer"), b"done");
        for _ in 0..200 {
            assert_eq!(client.call(MANY, &[2]).await.expect("an answer"), b"done");
        }
    }

    async fn a_request_is_ended_at_its_deadline() {
        let world = World::<T>::new();
        let client = world.connect("late").await;
        let soon = Duration::from_millis(20);
        let error = client.call_with(&NewRequest::to(PATIENT).timeout(soon)).await;
        assert_eq!(error.expect_err("too late").code(), Some(Code::DeadlineExceeded));
        world.noted("cancelled").await;
        // The same with a body that never comes to its end, for both kinds of services.
        for service in [COLLECT, ECHO] {
            let request = NewRequest::to(service).timeout(soon).with_upload();
            let mut call = client.start(&request).expect("made");
            assert_eq!(failure(&mut call).await, Code::DeadlineExceeded);
        }
        let later = Duration::from_mins(1);
        let answer = client.call_with(&NewRequest::to(ECHO).body(b"in time").timeout(later)).await;
        assert_eq!(answer.expect("an answer"), b"in time");
        drop(client);
        world.empty().await;
    }

    async fn a_deadline_does_not_cut_what_comes_before_it() {
        let world = World::<T>::new();
        let client = world.connect("stream").await;
        let request = NewRequest::to(STREAM).body(b"100000 100").timeout(Duration::from_millis(30));
        let mut call = client.start(&request).expect("made");
        let mut count = 0_usize;
        while let Some(record) = call.next_record().await.expect("alive") {
            assert_eq!(record[0], count as u8);
            count += 1;
            if count.is_multiple_of(100) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(failure(&mut call).await, Code::DeadlineExceeded);
    }

    async fn a_service_is_called_by_its_name() {
        let world = World::<T>::new();
        let client = world.connect("named").await;
        assert_eq!(client.call_named("echo", b"hello").await.expect("an answer"), b"hello");
        let error = client.call_named("nobody", b"").await.expect_err("there is none");
        assert_eq!(error.code(), Some(Code::ServiceNotFound));
        let request = NewRequest::to_name("hold").body(b"held");
        let mut call = client.start(&request).expect("made");
        client.flush().await.expect("sent");
        world.held(1).await;
        let running = &world.endpoint.list()[0].requests[0];
        assert_eq!((running.service, running.service_name.as_deref()), (HOLD, Some("hold")));
        world.release(b"held").await;
        assert_eq!(call.answer().await.expect("an answer"), b"held");
    }

    async fn a_client_of_the_older_version_goes_on_working() {
        let world = World::<T>::new();
        let mut raw = world.greeted().await;
        raw.request(4, ECHO, b"hello").await;
        let (head, body) = raw.next().await.expect("an answer");
        assert_eq!((head.kind, head.slot, &body[..]), (Kind::Result, 4, &b"hello"[..]));
        raw.request(4, MANY, &[2]).await;
        let mut kinds = Vec::new();
        while let Some((head, _)) = raw.next().await {
            assert_eq!(head.channel, 0);
            kinds.push(head.kind);
            if head.kind == Kind::Error {
                break;
            }
        }
        assert_eq!(kinds, [Kind::Acquired, Kind::Released, Kind::Error]);
        let mut wire = Vec::new();
        message::write(&mut wire, Kind::Options, 5, &RequestOptions::default());
        raw.send(&wire).await;
        assert_eq!(raw.bye().await, Code::InvalidRequest);
    }

    async fn a_peer_that_vanishes_is_noticed_and_one_that_answers_is_not_disturbed() {
        let slots = sekisho_endpoint::SessionSlots::new(9, 1, 9);
        let world = World::<T>::with(|policy| policy.keepalive_min = Duration::from_millis(20), slots);
        let mut raw = newer(&world, 1).await;
        // It answers for a while, and then does not.
        for _ in 0..5 {
            let (head, _) = raw.next().await.expect("a ping");
            assert_eq!(head.kind, Kind::Ping);
            let mut wire = Vec::new();
            frame::write(&mut wire, Head { word: head.word, ..Head::of_slot(Kind::Pong, 0) }, &[]);
            raw.send(&wire).await;
        }
        world.empty().await;
        let lost = CloseReason::Expired(DeadlineKind::Ping);
        assert_eq!(*world.shared.ends.borrow(), [lost]);
    }

    async fn a_watched_session_lives_though_nothing_is_asked() {
        let slots = sekisho_endpoint::SessionSlots::new(9, 1, 9);
        let world = World::<T>::with(|policy| policy.keepalive_min = Duration::from_millis(5), slots);
        let keepalive = Some(Duration::from_millis(5));
        let options = Options { keepalive, ..Options::from("watched") };
        let client = world.try_connect(options).await.expect("admitted");
        let watched = tokio::time::timeout(Duration::from_millis(200), client.watch()).await;
        assert!(watched.is_err(), "{watched:?}");
        assert_eq!(client.call(ECHO, b"still").await.expect("an answer"), b"still");
    }

    async fn a_server_that_vanishes_is_noticed() {
        let (near, mut far) = T::pair().await;
        // A server that welcomes its client and then says nothing.
        let server = async {
            let mut wire = Vec::new();
            let welcome = message::Welcome {
                major: 1,
                minor: 1,
                session: 1,
                frame_bytes_max: 1000,
                requests_max: 5,
                channel_bytes: 1000,
                keepalive_millis: 10,
                ..message::Welcome::default()
            };
            message::write(&mut wire, Kind::Welcome, 0, &welcome);
            let written = std::future::poll_fn(|cx| {
                sekisho_endpoint::Stream::poll_write(&mut far, cx, &wire)
            });
            assert_eq!(written.await.expect("written"), wire.len());
            std::future::pending::<()>().await;
        };
        let options = Options { keepalive: Some(Duration::from_millis(10)), ..Options::default() };
        let client = async {
            let client = sekisho_endpoint::Client::connect(near, options).await.expect("welcome");
            let waits = client.request(ECHO, b"").expect("made");
            let mut waits = waits;
            let (watched, answer) = tokio::join!(client.watch(), waits.answer());
            assert!(matches!(watched, Err(CallError::Transport(_))), "{watched:?}");
            assert!(matches!(answer, Err(CallError::Transport(_))), "{answer:?}");
        };
        tokio::select! {
            () = server => unreachable!("it never ends"),
            () = client => {}
        }
    }
}
