//! A transport that can wake only one task, whatever it waits for, as shared memory is. A task that takes
//! that place and ends must hand it on to another.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use sekisho_endpoint::{Client, Peer, Stream, loopback};
use sekisho_native::frame::{self, HEAD_BYTES, Head, Kind};
use sekisho_native::message::{self, Welcome};

use crate::world::{ECHO, run};

/// What the loopback holds.
const PIPE_BYTES: usize = 64 * 1024;

#[derive(Default)]
struct SharedWaker(Mutex<Option<Waker>>);

impl Wake for SharedWaker {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = self.0.lock().expect("whole").take() {
            waker.wake();
        }
    }
}

struct OneWaker {
    end: loopback::End,
    waker_slot: Arc<SharedWaker>,
}

impl OneWaker {
    /// A task that has to wait takes the one place.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut loopback::End, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.waker_slot));
        let polled = poll(&mut self.end, &mut Context::from_waker(&waker));
        if polled.is_pending() {
            *self.waker_slot.0.lock().expect("whole") = Some(cx.waker().clone());
        }
        polled
    }
}

impl Stream for OneWaker {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |end, cx| end.poll_read(cx, into))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |end, cx| end.poll_write(cx, bytes))
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end.poll_shut_down(cx)
    }

    fn peer(&self) -> Peer {
        Peer::Loopback
    }
}

async fn say(end: &mut loopback::End, wire: &[u8]) {
    let written = poll_fn(|cx| end.poll_write(cx, wire)).await;
    assert_eq!(written.expect("open"), wire.len());
}

async fn skip(end: &mut loopback::End) {
    let read = poll_fn(|cx| end.poll_read(cx, &mut [0; 4096])).await;
    assert!(read.expect("open") > 0);
}

#[test]
fn a_caller_that_leaves_hands_its_waker_on_to_those_who_wait() {
    // E10, L15
    run(async {
        let (near, mut server) = loopback::pair();
        let stream = OneWaker { end: near, waker_slot: Arc::default() };
        let connecting = tokio::task::spawn_local(Client::connect(stream, "one waker"));
        skip(&mut server).await;
        let mut wire = Vec::new();
        let welcome = Welcome {
            major: 1,
            session: 1,
            frame_bytes_max: 1 << 20,
            requests_max: 9,
            channel_bytes: 1000,
            ..Welcome::default()
        };
        message::write(&mut wire, Kind::Welcome, 0, &welcome);
        say(&mut server, &wire).await;
        let client = connecting.await.expect("content").expect("admitted");

        // One call with a record that is worth credit, and one that is waited for.
        let mut streams = client.request(ECHO, b"").expect("made");
        let mut waited_for = client.request(ECHO, b"").expect("made");
        let waiting = tokio::task::spawn_local(async move { waited_for.answer().await });
        skip(&mut server).await;
        wire.clear();
        Head::of_slot(Kind::Acquired, 0).write(&mut wire);
        frame::write(&mut wire, Head::of_slot(Kind::Record, 0), &[7; 600]);
        say(&mut server, &wire).await;

        // The way to the server is filled to the last byte, so that nothing is left to be said.
        let _fills = client.request(ECHO, &vec![0; PIPE_BYTES - HEAD_BYTES]).expect("made");
        client.flush().await.expect("sent");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(streams.next_record().await.expect("alive").is_some());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        wire.clear();
        frame::write(&mut wire, Head::of_slot(Kind::Result, 1), b"here");
        say(&mut server, &wire).await;
        assert_eq!(waiting.await.expect("content").expect("a result"), b"here");
    });
}
