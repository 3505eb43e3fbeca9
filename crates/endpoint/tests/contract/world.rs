//! What the rows share: transports, an endpoint with scripted services, bounded waits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_endpoint::{
    Admission, Admitted, Applicant, Budget, Bug, Call, CallError, Caller, Channel, Client,
    CloseReason, Code, Config, ControlAccess, Decision, Echo, Endpoint, Evidence, Identity,
    Observer, Options, Peer, Permissions, Policy, Request, RequestId, RequestLimits, Response,
    ServiceAccess, Services, SessionSlots, Stream, WriteError, ipc, loopback, service_fn,
    stream_service_fn,
};
use sekisho_native::frame::{self, HEAD_BYTES, Head, Kind};
use sekisho_native::message::{self, Bye, Hello};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, oneshot};

/// Waits in the tests are bounded by this.
const PATIENCE: Duration = Duration::from_mins(1);

/// A way to be connected.
pub(crate) trait Transport: 'static {
    type Stream: Stream + 'static;
    /// Two ends: the client's and the server's.
    fn pair() -> impl Future<Output = (Self::Stream, Self::Stream)>;
}

pub(crate) struct Loopback;
pub(crate) struct Tcp;
pub(crate) struct Unix;
pub(crate) struct Ipc;

impl Transport for Loopback {
    type Stream = loopback::End;
    async fn pair() -> (loopback::End, loopback::End) {
        loopback::pair()
    }
}

impl Transport for Tcp {
    type Stream = TcpStream;
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (near, (far, _)) = (near.expect("connected"), far.expect("accepted"));
        near.set_nodelay(true).expect("set");
        far.set_nodelay(true).expect("set");
        (near, far)
    }
}

impl Transport for Unix {
    type Stream = UnixStream;
    async fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair")
    }
}

impl Transport for Ipc {
    type Stream = ipc::Stream;
    async fn pair() -> (ipc::Stream, ipc::Stream) {
        ipc::pair(&ipc::Config::default()).expect("a pair")
    }
}

/// Each row becomes one test for each transport. `T` is the transport.
macro_rules! contract {
    ($($(#[$meta:meta])* async fn $name:ident() $body:block)*) => {
        $(
            mod $name {
                #[allow(unused_imports, reason = "each row uses a part of it")]
                use super::*;

                async fn row<T: crate::world::Transport>() $body

                #[test]
                fn over_loopback() {
                    crate::world::run(row::<crate::world::Loopback>());
                }

                #[test]
                fn over_tcp() {
                    crate::world::run(row::<crate::world::Tcp>());
                }

                #[test]
                fn over_ipc() {
                    crate::world::run(row::<crate::world::Ipc>());
                }

                #[test]
                fn over_unix() {
                    crate::world::run(row::<crate::world::Unix>());
                }
            }
        )*
    };
}

/// Runs a row, and not for ever.
pub(crate) fn run(row: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(PATIENCE, row).await.expect("the row comes to its end");
    });
}

pub(crate) const ECHO: u32 = Echo::NUMBER;
/// Waits until the world releases it, then answers with its body.
pub(crate) const HOLD: u32 = 10;
/// Waits until it is cancelled and says so.
pub(crate) const PATIENT: u32 = 11;
/// Its body is "count size": so many records of that size, then "done".
pub(crate) const STREAM: u32 = 12;
/// Gives no answer.
pub(crate) const FORGET: u32 = 13;
/// Answers while its channel is open.
pub(crate) const HASTY: u32 = 14;
/// Writes records until the client wants no more, then answers "enough".
pub(crate) const ENDLESS: u32 = 15;
/// Answers and keeps its handle.
pub(crate) const KEEP: u32 = 16;
/// Opens a channel, or says why not, and keeps it until the world releases it.
pub(crate) const OPEN: u32 = 17;
/// Panics, at once or later.
pub(crate) const PANIC: u32 = 18;
/// As `STREAM`, but in a task of its own.
pub(crate) const ELSEWHERE: u32 = 19;

/// Writes records whether or not the client takes them, until the world releases it.
pub(crate) const DEAF: u32 = 20;

/// Takes a body while it comes and answers with the lengths of its pieces.
pub(crate) const COLLECT: u32 = 21;
/// Sends each piece of its body back through its channel, and answers "done" after the last.
pub(crate) const TALK: u32 = 22;
/// Takes one piece of its body, wants no more, and answers when the world releases it.
pub(crate) const SATED: u32 = 23;
/// Its body is a count: so many channels with three records each, written in turns, then "done".
pub(crate) const MANY: u32 = 24;
/// As `COLLECT`, once the world releases `late`.
pub(crate) const LATE: u32 = 25;

/// What the services and the rows share.
#[derive(Default)]
pub(crate) struct Shared {
    held: RefCell<BTreeMap<Vec<u8>, oneshot::Sender<()>>>,
    notes: RefCell<Vec<String>>,
    pub(crate) kept: RefCell<Vec<Response>>,
    pub(crate) records: RefCell<usize>,
    pub(crate) ends: RefCell<Vec<CloseReason>>,
    changed: Notify,
}

pub(crate) struct World<T: Transport> {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) slots: Arc<SessionSlots>,
    pub(crate) budget: Arc<Budget>,
    transport: PhantomData<T>,
}

impl<T: Transport> World<T> {
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, SessionSlots::new(100, 1, 100))
    }

    /// Each session may hold so many bytes, and all of them twice as many beside their buffers.
    pub(crate) fn holding(session_bytes: usize) -> Self {
        let budget = Budget::new(2 * session_bytes + (1 << 20));
        Self::made(|_| {}, SessionSlots::new(9, 1, 9), budget, session_bytes)
    }

    pub(crate) fn with(change: impl FnOnce(&mut Policy), slots: Arc<SessionSlots>) -> Self {
        let Config { budget, session_bytes_max, .. } = Config::default();
        Self::made(change, slots, budget, session_bytes_max)
    }

    /// The same, with rules about identities.
    pub(crate) fn ruled(
        change: impl FnOnce(&mut Policy),
        slots: Arc<SessionSlots>,
        permissions: Permissions,
        limits: Arc<RequestLimits>,
    ) -> Self {
        let made = Self::with(change, slots);
        let config = Config {
            access: ServiceAccess { permissions: Arc::new(permissions), limits },
            ..made.endpoint.config().clone()
        };
        Self { endpoint: Endpoint::new(config, services(&made.shared)), ..made }
    }

    fn made(
        change: impl FnOnce(&mut Policy),
        slots: Arc<SessionSlots>,
        budget: Arc<Budget>,
        session_bytes_max: usize,
    ) -> Self {
        let mut policy = Policy::default();
        change(&mut policy);
        let shared = Rc::new(Shared::default());
        let authenticator = gate(&shared);
        let config = Config {
            policy: Arc::new(policy),
            slots: Arc::clone(&slots),
            budget: Arc::clone(&budget),
            session_bytes_max,
            authenticator: Rc::new(authenticator),
            observer: Rc::clone(&shared) as Rc<dyn Observer>,
            ..Config::default()
        };
        let endpoint = Endpoint::with_control(config, services(&shared)).expect("a free number");
        Self { endpoint, shared, slots, budget, transport: PhantomData }
    }

    /// A client of this world.
    pub(crate) async fn connect(&self, label: &str) -> Client<T::Stream> {
        self.try_connect(label.into()).await.expect("admitted")
    }

    /// A client that says when it has taken the last record of a channel.
    pub(crate) async fn connect_confirming(&self, label: &str) -> Client<T::Stream> {
        let options = Options { confirms_drained: true, ..label.into() };
        self.try_connect(options).await.expect("admitted")
    }

    pub(crate) async fn try_connect(
        &self,
        options: Options,
    ) -> Result<Client<T::Stream>, CallError> {
        Client::connect(self.raw().await.stream, options).await
    }

    /// A peer that says what it likes.
    pub(crate) async fn raw(&self) -> Raw<T> {
        let (near, far) = T::pair().await;
        tokio::task::spawn_local(self.endpoint.serve(far));
        Raw { stream: near, inbox: Vec::new() }
    }

    /// The same, after its handshake.
    pub(crate) async fn greeted(&self) -> Raw<T> {
        let mut raw = self.raw().await;
        let mut wire = Vec::new();
        message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
        raw.send(&wire).await;
        let (head, _) = raw.next().await.expect("a frame");
        assert_eq!(head.kind, Kind::Welcome);
        raw
    }

    /// Lets a held request go, once it is there.
    pub(crate) async fn release(&self, name: &[u8]) {
        self.until(|| self.shared.held.borrow().contains_key(name)).await;
        let held = self.shared.held.borrow_mut().remove(name);
        let _ = held.expect("it is there").send(());
    }

    /// Waits until so many requests are held.
    pub(crate) async fn held(&self, count: usize) {
        self.until(|| self.shared.held.borrow().len() == count).await;
    }

    /// Waits until a service has left this note.
    pub(crate) async fn noted(&self, note: &str) {
        self.until(|| self.shared.notes.borrow().iter().any(|other| other == note)).await;
    }

    /// Waits until something is so; the row's own patience bounds it.
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            let changed = self.shared.changed.notified();
            let _ = tokio::time::timeout(Duration::from_millis(1), changed).await;
        }
    }

    /// All is given back: no session, no slot, no connection.
    pub(crate) async fn empty(&self) {
        self.until(|| self.endpoint.list().is_empty()).await;
        self.until(|| self.slots.taken() == (0, 0)).await;
    }
}

/// A peer without an engine.
pub(crate) struct Raw<T: Transport> {
    pub(crate) stream: T::Stream,
    inbox: Vec<u8>,
}

impl<T: Transport> Raw<T> {
    pub(crate) async fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| self.stream.poll_write(cx, bytes)).await;
            bytes = &bytes[written.expect("written")..];
        }
    }

    pub(crate) async fn request(&mut self, slot: u16, service: u32, body: &[u8]) {
        let mut wire = Vec::new();
        let head = Head { word: service, ..Head::of_slot(Kind::Request, slot) };
        frame::write(&mut wire, head, body);
        self.send(&wire).await;
    }

    pub(crate) async fn bare(&mut self, kind: Kind, slot: u16) {
        let mut wire = Vec::new();
        Head::of_slot(kind, slot).write(&mut wire);
        self.send(&wire).await;
    }

    /// The next frame, or nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<(Head, Vec<u8>)> {
        loop {
            if let Some(head) = Head::read(&self.inbox).expect("a good frame") {
                let end = HEAD_BYTES + head.length as usize;
                if self.inbox.len() >= end {
                    let payload = self.inbox[HEAD_BYTES..end].to_vec();
                    self.inbox.drain(..end);
                    return Some((head, payload));
                }
            }
            let mut buffer = [0; 4096];
            let read = poll_fn(|cx| self.stream.poll_read(cx, &mut buffer)).await;
            match read.unwrap_or(0) {
                0 => return None,
                count => self.inbox.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// The code of the `BYE` that must be next, and behind which there is nothing.
    pub(crate) async fn bye(&mut self) -> Code {
        use prost::Message as _;
        let (head, payload) = self.next().await.expect("a last word");
        assert_eq!(head.kind, Kind::Bye);
        assert_eq!(self.next().await, None, "nothing follows");
        Code::of_number(Bye::decode(&payload[..]).expect("it can be read").code)
    }
}

/// The code of a call that failed.
pub(crate) async fn failure<S: Stream>(call: &mut Call<S>) -> Code {
    let error = call.answer().await.expect_err("an error");
    assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
    error.code().expect("a code")
}

/// Admits everybody but peers with the credential `wrong`. A user's name is believed, once the world releases it where the
/// credential is `later`. The user `monitor` may only control.
fn gate(shared: &Rc<Shared>) -> impl Fn(&Applicant<'_>) -> Decision + use<> {
    let shared = Rc::clone(shared);
    move |applicant| {
        let Applicant { greeting, peer, .. } = *applicant;
        let identity = match greeting.user.as_str() {
            "" => Identity::of_peer(peer),
            user => Identity::User(user.into()),
        };
        // Only a session that asks for the admin slot controls anything.
        let control = if greeting.wants_admin { ControlAccess::Full } else { ControlAccess::None };
        let is_control_only = greeting.user == "monitor";
        let evidence = match greeting.credential.bytes() {
            b"password" => Evidence::Password([7; 32]),
            _ => Evidence::None,
        };
        let admitted: Admission = Ok(Admitted { identity, control, is_control_only, evidence });
        match greeting.credential.bytes() {
            b"wrong" => {
                let text = "who are you".to_owned();
                Decision::Now(Err((Code::AuthenticationError, text)))
            }
            b"later" => {
                let receiver = shared.wait(greeting.user.as_bytes());
                let gone = Gone(Rc::clone(&shared));
                Decision::later(async move {
                    let _ = receiver.await;
                    std::mem::forget(gone);
                    admitted
                })
            }
            _ => Decision::Now(admitted),
        }
    }
}

/// Notes that a decision was given up.
struct Gone(Rc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note("given up");
    }
}

fn services(shared: &Rc<Shared>) -> Services {
    let mut services = Services::default();
    services.add(ECHO, "echo", Rc::new(Echo)).expect("free");
    let mut add = |number, name: &str, serve: fn(Rc<Shared>, Request, Response) -> Serving| {
        let shared = Rc::clone(shared);
        let service =
            service_fn(move |request, response| serve(Rc::clone(&shared), request, response));
        services.add(number, name, service).expect("free");
    };
    add(HOLD, "hold", |shared, request, response| Box::pin(hold(shared, request, response)));
    add(PATIENT, "patient", |shared, _, response| Box::pin(patient(shared, response)));
    add(STREAM, "stream", |_, request, response| Box::pin(stream(request, response)));
    add(ELSEWHERE, "elsewhere", |_, request, response| {
        Box::pin(async move {
            tokio::task::spawn_local(stream(request, response));
        })
    });
    add(FORGET, "forget", |_, _, _| Box::pin(async {}));
    add(HASTY, "hasty", |_, _, response| Box::pin(hasty(response)));
    add(ENDLESS, "endless", |shared, _, response| Box::pin(endless(shared, response)));
    add(PANIC, "panic", |_, request, _response| {
        assert!(request.body() != b"now", "as was asked");
        Box::pin(async { panic!("as was asked") })
    });
    add(KEEP, "keep", |shared, request, response| {
        Box::pin(async move { keep(&shared, &request, response) })
    });
    add(DEAF, "deaf", |shared, request, response| Box::pin(deaf(shared, request, response)));
    add(MANY, "many", |_, request, response| Box::pin(many(request, response)));
    add(OPEN, "open", |shared, request, response| Box::pin(open(shared, request, response)));
    let mut add = |number, name: &str, serve: fn(Rc<Shared>, Request, Response) -> Serving| {
        let shared = Rc::clone(shared);
        let serve = move |request, response| serve(Rc::clone(&shared), request, response);
        services.add(number, name, stream_service_fn(serve)).expect("free");
    };
    add(COLLECT, "collect", |shared, request, response| {
        Box::pin(collect(shared, request, response))
    });
    add(LATE, "late", |shared, request, response| {
        Box::pin(async move {
            let _ = shared.wait(b"late").await;
            collect(shared, request, response).await;
        })
    });
    add(TALK, "talk", |_, request, response| Box::pin(talk(request, response)));
    add(SATED, "sated", |shared, request, response| Box::pin(sated(shared, request, response)));
    services
}

type Serving = std::pin::Pin<Box<dyn Future<Output = ()>>>;

impl Observer for Shared {
    fn opened(&self, label: &str, caller: &Caller) {
        self.note(&format!("{label} is {}", caller.identity));
    }

    fn refused(&self, _: u64, _: &Peer, code: Code, _: &str) {
        self.note(&format!("refused: {code}"));
    }

    fn denied(&self, caller: &Caller, service: &str, code: Code, _: &str) {
        self.note(&format!("{service} denied to {}: {code}", caller.identity));
    }

    fn closed(&self, _: u64, _: &Peer, reason: CloseReason) {
        self.ends.borrow_mut().push(reason);
        self.changed.notify_waiters();
    }

    fn bug(&self, _: u64, _: RequestId, bug: Bug) {
        self.note(&format!("{bug:?}"));
    }
}

impl Shared {
    fn note(&self, note: &str) {
        self.notes.borrow_mut().push(note.to_owned());
        self.changed.notify_waiters();
    }

    fn wait(&self, name: &[u8]) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.held.borrow_mut().insert(name.to_vec(), sender);
        self.changed.notify_waiters();
        receiver
    }
}

async fn hold(shared: Rc<Shared>, request: Request, response: Response) {
    let _ = shared.wait(request.body()).await;
    if response.is_cancelled() {
        shared.note("cancelled and answered");
    }
    let _ = response.body(request.body());
}

async fn patient(shared: Rc<Shared>, response: Response) {
    shared.note("patient");
    response.cancelled().await;
    shared.note("cancelled");
    let _ = response.error(Code::OperationCancelled, "as you wish");
}

async fn stream(request: Request, response: Response) {
    let text = String::from_utf8_lossy(request.body()).into_owned();
    let mut numbers = text.split(' ').map(|number| number.parse::<usize>().expect("a number"));
    let (count, size) = (numbers.next().expect("a count"), numbers.next().expect("a size"));
    let channel = response.acquire_channel().expect("a channel");
    for number in 0..count {
        match channel.write(&vec![number as u8; size]).await {
            Ok(()) => {}
            Err(WriteError::Unwanted) => break,
            Err(_) => {
                response.release_channel(channel);
                let _ = response.error(Code::InvalidRequest, "too large");
                return;
            }
        }
    }
    response.release_channel(channel);
    let _ = response.body(b"done");
}

async fn collect(shared: Rc<Shared>, mut request: Request, response: Response) {
    shared.note("collects");
    let mut stream = request.take_stream();
    let mut lengths = Vec::new();
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => {
                assert!(piece.iter().all(|byte| *byte == piece[0]));
                lengths.push(piece.len().to_string());
                *shared.records.borrow_mut() += 1;
            }
            Err(lost) => {
                shared.note("body lost");
                let _ = response.error(Code::OperationCancelled, &lost.to_string());
                return;
            }
        }
    }
    let _ = response.body(lengths.join(" ").as_bytes());
}

async fn talk(mut request: Request, response: Response) {
    let channel = response.acquire_channel().expect("a channel");
    let mut stream = request.take_stream();
    while let Some(Ok(piece)) = stream.next().await {
        if channel.write(&piece).await.is_err() {
            break;
        }
    }
    response.release_channel(channel);
    let _ = response.body(b"done");
}

async fn sated(shared: Rc<Shared>, mut request: Request, response: Response) {
    let mut stream = request.take_stream();
    let piece = stream.next().await.expect("a piece").expect("not lost");
    drop(stream);
    let _ = shared.wait(&piece).await;
    let _ = response.body(&piece);
}

async fn many(request: Request, response: Response) {
    let count = request.body().first().copied().unwrap_or(0);
    let first = response.acquire_channel().expect("a channel");
    let mut channels = Vec::new();
    for number in 1..count {
        match response.add_channel() {
            Ok(channel) => {
                assert_eq!(channel.number(), number);
                channels.push(channel);
            }
            Err(error) => {
                response.release_channel(first);
                let _ = response.error(Code::UnsupportedOperation, &error.to_string());
                return;
            }
        }
    }
    for turn in 0..3 {
        first.write(&[0, turn]).await.expect("room");
        for channel in &channels {
            let _ = channel.write(&[channel.number(), turn]).await;
        }
    }
    for channel in channels {
        response.release_channel(channel);
    }
    response.release_channel(first);
    let _ = response.body(b"done");
}

async fn hasty(response: Response) {
    let channel: Channel = response.acquire_channel().expect("a channel");
    channel.write(b"one").await.expect("room");
    response.body(b"too early").expect("the one answer");
    channel.write(b"two").await.expect_err("the channel was closed");
}

async fn endless(shared: Rc<Shared>, response: Response) {
    let channel = response.acquire_channel().expect("a channel");
    while channel.write(&[7; 1000]).await.is_ok() {
        *shared.records.borrow_mut() += 1;
    }
    let again = channel.write(b"nobody reads this").await;
    assert_eq!(again, Err(WriteError::Unwanted));
    response.release_channel(channel);
    let _ = response.body(b"enough");
}

/// Never looks at what comes of a write.
async fn deaf(shared: Rc<Shared>, request: Request, response: Response) {
    let channel = response.acquire_channel().expect("a channel");
    let mut released = shared.wait(request.body());
    while released.try_recv().is_err() {
        let _ = channel.write(&[7; 1000]).await;
    }
    response.release_channel(channel);
    let _ = response.body(b"at last");
}

fn keep(shared: &Shared, request: &Request, response: Response) {
    response.body(request.body()).expect("the one answer");
    shared.kept.borrow_mut().push(response);
}

async fn open(shared: Rc<Shared>, request: Request, response: Response) {
    match response.acquire_channel() {
        Err(error) => {
            let _ = response.error(Code::ResourceLimitReached, &error.to_string());
        }
        Ok(channel) => {
            let _ = shared.wait(request.body()).await;
            response.release_channel(channel);
            let _ = response.body(b"closed");
        }
    }
}
