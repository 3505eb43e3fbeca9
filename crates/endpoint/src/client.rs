//! The async client. There is no task behind it: a call that waits for its answer reads for all the others as
//! well, and hands the reading on when it has its own. So a single call costs no switch between tasks.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sekisho_lifecycle::Manner;

use crate::core::{CONNECT_TIMEOUT, CallError, Core, Options};
use crate::new_request::NewRequest;
use crate::stream::Stream;

/// A session with a server. Clones are the same session.
pub struct Client<S> {
    shared: Arc<Mutex<Shared<S>>>,
}

struct Shared<S> {
    core: Core,
    stream: S,
    /// The waiter that is registered with the transport.
    driver: Option<Waiter>,
    /// The wakers of waiters without a call: for the handshake, an extension, the end.
    others: Vec<(u64, Waker)>,
    next_other: u64,
}

/// A call or another waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiter {
    Call(usize),
    Other(u64),
}

/// A request that was made. Dropping it before its answer has come cancels it.
pub struct Call<S: Stream> {
    shared: Arc<Mutex<Shared<S>>>,
    key: usize,
}

impl<S: Stream> Client<S> {
    /// Says hello and waits for the answer.
    pub async fn connect(stream: S, options: impl Into<Options>) -> Result<Self, CallError> {
        let options = options.into();
        let core = Core::new(&options);
        let shared = Shared { core, stream, driver: None, others: Vec::new(), next_other: 0 };
        let client = Self { shared: Arc::new(Mutex::new(shared)) };
        let welcomed = client.wait_for(|core| match (&core.welcome, &core.end) {
            (Some(_), _) => Some(Ok(())),
            (None, Some(_)) => Some(Err(core.end_error())),
            (None, None) => None,
        });
        let timeout = options.timeout.unwrap_or(CONNECT_TIMEOUT);
        match tokio::time::timeout(timeout, welcomed).await {
            Ok(welcomed) => welcomed.map(|()| client),
            Err(_) => Err(CallError::Transport(io::ErrorKind::TimedOut.into())),
        }
    }

    /// The session's number.
    pub fn session(&self) -> u64 {
        lock(&self.shared).core.welcome.as_ref().map_or(0, |welcome| welcome.session)
    }

    /// Whether the session is known to be over.
    pub fn is_over(&self) -> bool {
        let mut shared = lock(&self.shared);
        if shared.core.end.is_none() && shared.driver.is_none() {
            // No call reads: what the server said meanwhile is looked at.
            shared.look();
        }
        shared.core.end.is_some()
    }

    /// How many requests may run at once.
    pub fn requests_max(&self) -> u32 {
        lock(&self.shared).core.welcome.as_ref().map_or(0, |welcome| welcome.requests_max)
    }

    /// Makes a request and waits for its answer. Records that it sends are not wanted.
    pub async fn call(&self, service: u32, body: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call_with(&NewRequest::to(service).body(body)).await
    }

    /// The same for the service with this name.
    pub async fn call_named(&self, service: &str, body: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call_with(&NewRequest::to_name(service).body(body)).await
    }

    /// Makes this request and waits for its answer. Records that it sends are not wanted.
    pub async fn call_with(&self, request: &NewRequest<'_>) -> Result<Vec<u8>, CallError> {
        let mut call = self.start(request)?;
        lock(&self.shared).core.drain(call.key);
        call.answer().await
    }

    /// Makes a request. It is sent with the next wait of any call, together with other requests, or with
    /// [`Client::flush`].
    pub fn request(&self, service: u32, body: &[u8]) -> Result<Call<S>, CallError> {
        self.start(&NewRequest::to(service).body(body))
    }

    /// Makes this request: by name, with a deadline, with a body that goes on.
    pub fn start(&self, request: &NewRequest<'_>) -> Result<Call<S>, CallError> {
        let key = lock(&self.shared).core.request(request)?;
        Ok(Call { shared: Arc::clone(&self.shared), key })
    }

    /// Waits until the session is over, and asks the server whether it is there when nothing comes from it
    /// ([`Options::keepalive`]). While a task waits here, everything that comes is read at once.
    pub async fn watch(&self) -> Result<(), CallError> {
        let Some(every) = lock(&self.shared).core.keepalive() else { return self.ended().await };
        let mut is_asked = false;
        loop {
            let before = lock(&self.shared).core.heard;
            if let Ok(end) = tokio::time::timeout(every, self.ended()).await {
                return end;
            }
            let mut shared = lock(&self.shared);
            if shared.core.heard != before {
                is_asked = false;
            } else if std::mem::replace(&mut is_asked, true) {
                shared.core.lost(io::ErrorKind::TimedOut);
                shared.others.drain(..).for_each(|(_, waker)| waker.wake());
            } else {
                shared.say(Core::ping);
            }
        }
    }

    /// Sends what is queued, as far as the transport takes it.
    pub async fn flush(&self) -> Result<(), CallError> {
        self.wait_for(|core| {
            if core.end.is_some() {
                return Some(Err(core.end_error()));
            }
            core.output().is_empty().then_some(Ok(()))
        })
        .await
    }

    /// Asks for a longer life from now on; returns what the session has.
    pub async fn extend(&self, length: Duration) -> Result<Duration, CallError> {
        lock(&self.shared).core.extend(length);
        self.wait_for(|core| match core.extended.take() {
            Some(millis) => Some(Ok(Duration::from_millis(millis))),
            None => core.end.is_some().then(|| Err(core.end_error())),
        })
        .await
    }

    /// Asks for the end of the session and returns at once; calls that run go on, or are cancelled.
    pub fn start_shutdown(&self, manner: Manner) {
        lock(&self.shared).say(|core| core.shut_down(manner));
    }

    /// Asks for the end of the session and waits for it.
    pub async fn shut_down(&self, manner: Manner) -> Result<(), CallError> {
        self.start_shutdown(manner);
        self.ended().await
    }

    /// Waits until the session is over; an error says why, unless we had asked for it.
    pub async fn ended(&self) -> Result<(), CallError> {
        self.wait_for(|core| {
            core.end.as_ref()?;
            Some(match core.end_error() {
                CallError::Ended { code: None, .. } => Ok(()),
                error => Err(error),
            })
        })
        .await
    }

    async fn wait_for<T>(&self, check: impl FnMut(&mut Core) -> Option<T>) -> T {
        let who = {
            let mut shared = lock(&self.shared);
            shared.next_other += 1;
            Waiter::Other(shared.next_other)
        };
        wait(&self.shared, who, check).await
    }
}

impl<S: Stream> Call<S> {
    /// Waits for the one answer. A service with more records than a window holds does not come to it before
    /// the caller takes them, or calls [`Call::drain_channel`].
    pub async fn answer(&mut self) -> Result<Vec<u8>, CallError> {
        self.wait_for(Core::take_answer).await
    }

    /// Waits for the next record of the channel; `None` after the last, or when there is no channel.
    pub async fn next_record(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        self.wait_for(Core::take_record).await
    }

    /// Waits for the next record of any of its channels, with the channel's number; `None` after the last.
    pub async fn next_of_any(&mut self) -> Result<Option<(u8, Vec<u8>)>, CallError> {
        self.wait_for(Core::take_any_record).await
    }

    /// The way to send the rest of the body ([`NewRequest::with_upload`]), beside what is done with the call.
    pub fn upload(&self) -> Upload<S> {
        let serial = lock(&self.shared).core.mail[self.key].serial;
        Upload { client: Client { shared: Arc::clone(&self.shared) }, key: self.key, serial }
    }

    /// Asks for the request to be cancelled. Its answer still comes.
    pub fn cancel(&self) {
        lock(&self.shared).say(|core| core.cancel(self.key));
    }

    /// No more records are wanted; the answer still is.
    pub fn drain_channel(&self) {
        lock(&self.shared).say(|core| core.drain(self.key));
    }

    async fn wait_for<T>(&self, take: impl Fn(&mut Core, usize) -> Option<T>) -> T {
        let key = self.key;
        wait(&self.shared, Waiter::Call(key), |core| take(core, key)).await
    }
}

impl<S: Stream> Drop for Call<S> {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.say(|core| core.abandon(self.key));
        shared.hand_on(Waiter::Call(self.key));
    }
}

/// The rest of a request's body, part by part. The service sees each part as one piece.
pub struct Upload<S: Stream> {
    client: Client<S>,
    key: usize,
    serial: u64,
}

impl<S: Stream> Upload<S> {
    /// Sends one more part, when the service has room for it. [`CallError::BodyUnwanted`] says that it wants no more;
    /// its answer still comes.
    pub async fn send(&self, part: &[u8]) -> Result<(), CallError> {
        self.client.wait_for(|core| core.send_part(self.key, self.serial, part)).await?;
        // It leaves with the next wait of any call, or now.
        lock(&self.client.shared).say(|_| {});
        Ok(())
    }

    /// The body is complete. Without this the service waits; dropping the call cancels it.
    pub fn finish(self) {
        lock(&self.client.shared).say(|core| core.end_body(self.key, self.serial));
    }

    /// The longest part.
    pub fn part_bytes_max(&self) -> usize {
        lock(&self.client.shared).core.part_bytes_max()
    }
}

impl<S: Stream> fmt::Debug for Upload<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Upload({})", self.key)
    }
}

/// Waits for something. A waiter that is dropped hands the reading on.
async fn wait<S: Stream, T>(
    shared: &Mutex<Shared<S>>,
    who: Waiter,
    mut check: impl FnMut(&mut Core) -> Option<T>,
) -> T {
    struct WaitGuard<'a, S: Stream>(&'a Mutex<Shared<S>>, Waiter);
    impl<S: Stream> Drop for WaitGuard<'_, S> {
        fn drop(&mut self) {
            let mut shared = lock(self.0);
            drop(shared.unregister(self.1));
            shared.hand_on(self.1);
        }
    }
    let _guard = WaitGuard(shared, who);
    poll_fn(|cx| poll(shared, cx, who, &mut check)).await
}

/// Looks, moves bytes, looks again; registers if that was not enough.
fn poll<S: Stream, T>(
    shared: &Mutex<Shared<S>>,
    cx: &mut Context<'_>,
    who: Waiter,
    check: &mut impl FnMut(&mut Core) -> Option<T>,
) -> Poll<T> {
    let shared = &mut *lock(shared);
    // The present waiter need not be woken for what it finds itself: that would cost another poll.
    let own = shared.unregister(who).filter(|waker| waker.will_wake(cx.waker()));
    // What is already here needs no system call, but queued output must be sent.
    let is_quiet = shared.core.output().is_empty();
    let mut found = if is_quiet { check(&mut shared.core) } else { None };
    if found.is_none() {
        let end = shared.core.end.is_some();
        shared.drive(cx, who, &mut |core| {
            found = check(core);
            found.is_some()
        });
        if found.is_none() && !end && shared.core.end.is_some() {
            found = check(&mut shared.core);
        }
    }
    let Some(found) = found else {
        shared.register(own.unwrap_or_else(|| cx.waker().clone()), who);
        return Poll::Pending;
    };
    if !shared.core.output().is_empty() {
        // Credit, or a drained channel: it leaves now, if the transport takes it.
        shared.write(cx);
        if !shared.core.output().is_empty() {
            // The transport may keep only one waker, and that is ours now: it is handed on.
            shared.driver = Some(who);
        }
    }
    Poll::Ready(found)
}

impl<S: Stream> Shared<S> {
    /// Writes and reads as far as it goes, or until `is_enough`.
    fn drive(
        &mut self,
        cx: &mut Context<'_>,
        who: Waiter,
        is_enough: &mut impl FnMut(&mut Core) -> bool,
    ) {
        self.driver = Some(who);
        loop {
            self.write(cx);
            if is_enough(&mut self.core) || self.core.end.is_some() {
                return;
            }
            match self.stream.poll_read(cx, self.core.room()) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) => self.core.read(count),
                Poll::Ready(Err(error)) => self.core.lost(error.kind()),
            }
            if self.core.end.is_some() {
                // The server waits for our end, if it is still there.
                let _ = self.stream.poll_shut_down(cx);
            }
            self.others.drain(..).for_each(|(_, waker)| waker.wake());
        }
    }

    /// Reads what is there, without waiting for more.
    fn look(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        while self.core.end.is_none() {
            match self.stream.poll_read(cx, self.core.room()) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) => self.core.read(count),
                Poll::Ready(Err(error)) => self.core.lost(error.kind()),
            }
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) {
        while !self.core.output().is_empty() {
            match self.stream.poll_write(cx, self.core.output()) {
                Poll::Ready(Ok(0)) => return self.core.lost(io::ErrorKind::WriteZero),
                Poll::Ready(Ok(count)) => self.core.wrote(count),
                // What the server sent before it closed may still be read.
                Poll::Ready(Err(_)) => {
                    let rest = self.core.output().len();
                    self.core.wrote(rest);
                }
                Poll::Pending => return,
            }
        }
    }

    fn unregister(&mut self, who: Waiter) -> Option<Waker> {
        match who {
            Waiter::Call(key) => self.core.mail.get_mut(key)?.waker.take(),
            Waiter::Other(id) => {
                let at = self.others.iter().position(|(other, _)| *other == id)?;
                Some(self.others.swap_remove(at).1)
            }
        }
    }

    fn register(&mut self, waker: Waker, who: Waiter) {
        match who {
            Waiter::Call(key) => self.core.mail[key].waker = Some(waker),
            Waiter::Other(id) => self.others.push((id, waker)),
        }
    }

    /// The waiter that read for all has what it wanted, or is gone: another one takes over.
    fn hand_on(&mut self, who: Waiter) {
        if self.driver != Some(who) {
            return;
        }
        self.driver = None;
        self.appoint();
    }

    /// Another waiter is to read from now on. If it is dropped before it has run, it hands that on.
    fn appoint(&mut self) {
        if let Some((id, waker)) = self.others.pop() {
            self.driver = Some(Waiter::Other(id));
            return waker.wake();
        }
        let next =
            self.core.mail.iter_mut().find_map(|(key, mail)| Some((key, mail.waker.take()?)));
        if let Some((key, waker)) = next {
            self.driver = Some(Waiter::Call(key));
            waker.wake();
        }
    }

    /// Sends something at once, even if no call waits.
    fn say(&mut self, say: impl FnOnce(&mut Core)) {
        say(&mut self.core);
        if !self.core.output().is_empty() {
            self.write(&mut Context::from_waker(Waker::noop()));
            if !self.core.output().is_empty() {
                // The transport is full, and no waiter is registered for when it is not.
                self.appoint();
            }
        }
    }
}

fn lock<S>(shared: &Mutex<Shared<S>>) -> MutexGuard<'_, Shared<S>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for Client<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Client")
    }
}

impl<S: Stream> fmt::Debug for Call<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Call({})", self.key)
    }
}
