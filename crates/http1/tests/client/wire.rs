//! A blocking task around one client engine and a real socket, to speak with real servers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sekisho_http::upstream::{Event, Failure, Request, ResponseHead, Scratch, UpstreamProtocol};
use sekisho_lifecycle::Moment;

/// A program that ends with the test.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Whether there is such a program: a test that needs one is skipped without it.
pub(crate) fn is_there(program: &str, flag: &str) -> bool {
    let mut command = Command::new(program);
    let found = command.arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Starts a program and waits until something listens at `socket`.
pub(crate) fn start(command: &mut Command, socket: &Path) -> Running {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    let running = Running(child);
    let end = now() + Duration::from_secs(30);
    while UnixStream::connect(socket).is_err() {
        assert!(now() < end, "nothing listens at {}", socket.display());
        std::thread::yield_now();
    }
    running
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for another program")]
fn now() -> Instant {
    Instant::now()
}

/// What came of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) head: ResponseHead,
    pub(crate) body: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) failure: Option<Failure>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One exchange: the whole request, then the whole answer.
pub(crate) fn exchange(
    stream: &mut UnixStream,
    engine: &mut dyn UpstreamProtocol,
    request: &Request<'_>,
    body: &[u8],
) -> Answer {
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let mut scratch = Scratch::default();
    engine.start(request, &mut scratch, Moment::ZERO).expect("a sound request");
    for piece in body.chunks(70_000) {
        engine.body(piece, &mut scratch, Moment::ZERO);
    }
    engine.end_body(&mut scratch, Moment::ZERO).expect("a whole body");
    stream.write_all(&scratch.out).expect("sent");
    engine.transmitted(scratch.out.len() as u64, false, Moment::ZERO);
    let mut answer = Answer::default();
    let mut inbox = Vec::new();
    loop {
        let step = engine.receive(&inbox, &mut scratch, Moment::ZERO);
        let is_rest = step.is_rest();
        let is_over = step.event.is_some_and(|event| take(event, &inbox, &scratch, &mut answer));
        inbox.drain(..step.taken);
        if is_over {
            return answer;
        }
        if is_rest {
            let mut buffer = [0; 5000];
            let count = stream.read(&mut buffer).expect("more");
            inbox.extend_from_slice(&buffer[..count]);
            if count == 0 {
                let event = engine.input_ended(Moment::ZERO).expect("an ending");
                assert!(take(event, &inbox, &scratch, &mut answer));
                return answer;
            }
        }
    }
}

fn take(event: Event, inbox: &[u8], scratch: &Scratch, answer: &mut Answer) -> bool {
    match event {
        Event::Informational | Event::Upgraded => {}
        Event::Head => answer.head = scratch.head.clone(),
        Event::Body(span) => answer.body.extend_from_slice(&inbox[span.range()]),
        Event::Stderr(span) => answer.stderr.extend_from_slice(&inbox[span.range()]),
        Event::End => return true,
        Event::Failed(failure) => {
            answer.failure = Some(failure);
            return true;
        }
    }
    false
}
