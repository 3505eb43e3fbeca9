//! TLS over a socket (S1, S3). rustls holds keys and the state of the handshake and no buffers: records are
//! decrypted where they were read and encrypted where they are sent from, in buffers that the connections of a
//! thread share. An idle connection has none.

mod records;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Poll, ready};

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncryptError, WriteTraffic};
use sekisho_handler::memory::{self, Class, RESPONSE_BYTES_MIN};
use sekisho_http::ProxyHeader;
use sekisho_route::TlsFacts;

use records::{Records, Taken, Waiting, complete_records, encode, seal, session_id};

use super::{Capabilities, ClientTransport, DatagramTransport, Ready, Secured, Socket, Transport};
use crate::tls::hello::{Peek, peek};
use crate::tls::{Chooser, Hello, ServerTls};

/// Where rustls takes plaintext.
type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// What one read takes: a few records.
const READ_BYTES: usize = 36 << 10;
/// A handshake message may be as long, and so may a buffer grow that waits for its end.
const HANDSHAKE_BYTES_MAX: usize = 68 << 10;
/// So often a read may find records without a byte of plaintext in them.
const EMPTY_READS_MAX: usize = 32;
/// So much plaintext is encrypted in one go.
const SEND_BYTES: usize = 64 << 10;
/// A hello may be spread over so many records.
const HELLO_RECORDS_MAX: usize = 64;
/// The type of a record that a handshake begins with.
const HANDSHAKE_RECORD: u8 = 22;

/// Where a connection stands.
#[expect(clippy::large_enum_variant, reason = "nearly all have keys nearly all of the time")]
enum State {
    /// The name that the client asks for is not known yet; so many records did not contain it.
    Hello(Chooser, usize),
    /// The handshake runs, or is over: [`TlsStream::facts`] says which.
    Keys(UnbufferedServerConnection, Arc<ServerTls>),
    /// The client speaks in the clear (S2).
    Clear,
    /// Nothing more can be sent or received.
    Failed,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hello(..) => "Hello",
            Self::Keys(..) => "Keys",
            Self::Clear => "Clear",
            Self::Failed => "Failed",
        })
    }
}

/// A client's connection with TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: Socket,
    state: State,
    /// Records that have come.
    input: Waiting,
    /// What was in them and has not been read.
    plain: Waiting,
    /// Records that are to leave.
    output: Waiting,
    /// How much plaintext is in the output that has not been reported as sent.
    encrypted: usize,
    /// What was said in the clear, until the handshake is over.
    hello: Hello,
    facts: Option<Arc<TlsFacts>>,
    has_peer_closed: bool,
    has_sent_close: bool,
    /// The end is to follow when the output has left.
    is_shut: bool,
}

/// The peer broke the protocol, or we cannot speak with it.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl TlsStream {
    /// The server's side of a connection that was just accepted.
    pub fn new(socket: Socket, chooser: Chooser) -> Self {
        Self {
            socket,
            state: State::Hello(chooser, 0),
            input: Waiting::default(),
            plain: Waiting::default(),
            output: Waiting::default(),
            encrypted: 0,
            hello: Hello::default(),
            facts: None,
            has_peer_closed: false,
            has_sent_close: false,
            is_shut: false,
        }
    }

    /// What it holds in memory beside itself.
    pub fn memory_bytes(&self) -> usize {
        self.buffer_bytes() + size_of::<Self>()
    }

    const fn is_open(&self) -> bool {
        self.facts.is_some() || matches!(self.state, State::Clear)
    }

    /// Takes what the records at hand hold, as much as there is room for; zero where they hold nothing.
    fn take_records(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let State::Hello(..) = self.state {
            self.take_hello()?;
        }
        let mut count = self.take_plain(into);
        let mut is_early = false;
        while self.plain.is_empty() && (count < into.len() || self.facts.is_none()) {
            let State::Keys(keys, _) = &mut self.state else { break };
            let records = Records {
                input: &mut self.input,
                plain: &mut self.plain,
                output: &mut self.output,
            };
            match records.take_one(keys, &mut into[count..]) {
                Ok(Taken::Plain(taken)) => count += taken,
                Ok(Taken::Early(taken)) => {
                    count += taken;
                    is_early = true;
                    break;
                }
                Ok(Taken::Other) => {}
                Ok(Taken::Nothing) => break,
                Ok(Taken::Close) => {
                    self.has_peer_closed = true;
                    break;
                }
                Err(error) => {
                    self.fail();
                    return Err(error);
                }
            }
        }
        self.note_keys(is_early);
        Ok(count)
    }

    /// Looks for the name that the client asks for: it decides which server's certificate is shown, and more.
    fn take_hello(&mut self) -> io::Result<()> {
        let State::Hello(chooser, seen) = &mut self.state else { return Ok(()) };
        let input = self.input.left();
        // Looked at only with a further record, so that who stalls holds nothing but what it has sent.
        let records = complete_records(input);
        let is_handshake = input.first().is_some_and(|first| *first == HANDSHAKE_RECORD);
        if records == *seen && (is_handshake || input.is_empty()) {
            return Ok(());
        }
        *seen = records;
        if records > HELLO_RECORDS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match peek(input) {
            Peek::More => Ok(()),
            Peek::Clear => {
                self.state = State::Clear;
                std::mem::swap(&mut self.plain, &mut self.input);
                Ok(())
            }
            Peek::Hello(name, offered) => {
                let chosen = chooser.choose(&name);
                (self.hello.server_name, self.hello.offered) = (name, Some(offered));
                let config = chosen.as_ref().map(|server| {
                    chooser.config_for(server, &server.config, &self.hello, || self.socket.peer())
                });
                self.state = State::Failed;
                let Some((server, config)) = chosen.zip(config) else {
                    // As OpenSSL words it for nginx: the name is not known.
                    self.send_last(&[21, 3, 3, 0, 2, 2, 112]);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "handshake rejected"));
                };
                let config = match config {
                    Ok(config) => config,
                    Err(why) => {
                        // An internal error.
                        self.send_last(&[21, 3, 3, 0, 2, 2, 80]);
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                };
                let keys = UnbufferedServerConnection::new(config);
                self.state = State::Keys(keys.map_err(failed)?, server);
                Ok(())
            }
            Peek::Odd(alert, error) => {
                self.state = State::Failed;
                self.send_last(&alert);
                Err(failed(error))
            }
        }
    }

    /// The handshake may be over, or early data be there: then what it came to is known.
    fn note_keys(&mut self, is_early: bool) {
        if self.facts.as_ref().is_some_and(|facts| !facts.is_early) {
            return;
        }
        let State::Keys(keys, server) = &self.state else { return };
        if self.facts.is_none() && self.hello.session_id.is_empty() {
            self.hello.session_id = session_id(self.output.left()).unwrap_or_default();
        }
        let is_over = !keys.is_handshaking();
        if is_over || (is_early && self.facts.is_none()) {
            let hello = match &self.facts {
                Some(facts) => Hello::of(facts),
                None => std::mem::take(&mut self.hello),
            };
            self.facts = Some(Arc::new(server.facts(keys, hello)));
        }
    }

    /// Sends the alert, as far as the socket takes it at once; nothing else is sent from here on.
    fn fail(&mut self) {
        if let State::Keys(keys, _) = &mut self.state {
            while let Ok(ConnectionState::EncodeTlsData(mut record)) =
                keys.process_tls_records(self.input.left_mut()).state
            {
                if encode(&mut self.output, |room| record.encode(room)).is_err() {
                    break;
                }
            }
        }
        self.state = State::Failed;
        let _ = self.flush(false);
    }

    fn send_last(&mut self, bytes: &[u8]) {
        self.output.push(bytes);
        let _ = self.flush(false);
    }

    fn take_plain(&mut self, into: &mut [u8]) -> usize {
        let left = self.plain.left();
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.plain.used(count);
        count
    }

    /// Reads records. `Ready(false)` is the end.
    fn fill(&mut self) -> Poll<io::Result<bool>> {
        let is_open = self.facts.is_some();
        if !is_open && self.input.left().len() >= HANDSHAKE_BYTES_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let room = self.input.room(READ_BYTES);
        let read = self.socket.read(room);
        let count = if let Poll::Ready(Ok(count)) = read { count } else { 0 };
        self.input.cut(READ_BYTES - count);
        read.map_ok(|count| count > 0)
    }

    /// Goes on until keys are agreed on.
    fn shake_hands(&mut self) -> Poll<io::Result<()>> {
        while !self.is_open() {
            self.take_records(&mut [])?;
            let _ = self.flush(false)?;
            if self.is_open() {
                break;
            }
            match self.fill() {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.input.shrink(true);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Puts plaintext into the output as records.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with_traffic(bytes.len(), |traffic, room| traffic.encrypt(bytes, room))
    }

    /// Puts what is made of so much plaintext into the output, behind all that rustls has to send first.
    fn with_traffic(
        &mut self,
        bytes: usize,
        mut make: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        let State::Keys(keys, _) = &mut self.state else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        loop {
            let records = Records {
                input: &mut self.input,
                plain: &mut self.plain,
                output: &mut self.output,
            };
            match records.take_one(keys, &mut [])? {
                Taken::Plain(_) | Taken::Early(_) | Taken::Other => {}
                // It has closed its side; ours is open.
                Taken::Close => self.has_peer_closed = true,
                Taken::Nothing => break,
            }
        }
        // Always with what has come: rustls keeps in mind where in it the parts of a message stand.
        match keys.process_tls_records(self.input.left_mut()).state.map_err(failed)? {
            ConnectionState::WriteTraffic(mut traffic) => {
                seal(&mut self.output, bytes, |room| make(&mut traffic, room))
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends records. How much plaintext has left with them; all of it where nothing waits any more. It is
    /// reckoned in proportion, so that a slow client is seen to take its answer (T4).
    fn flush(&mut self, more: bool) -> io::Result<Poll<usize>> {
        let mut left = 0;
        while !self.output.is_empty() {
            let records = self.output.left();
            let all = records.len();
            let Poll::Ready(sent) = self.socket.send(records, more) else {
                if memory::is_full(Class::Responses) {
                    self.output.shrink(true);
                }
                return Ok(if left > 0 { Poll::Ready(left) } else { Poll::Pending });
            };
            let sent = sent?;
            let part = (self.encrypted as u64 * sent as u64 / all as u64) as usize;
            self.encrypted -= part;
            left += part;
            self.output.used(sent);
        }
        Ok(Poll::Ready(left + std::mem::take(&mut self.encrypted)))
    }

    /// Says that nothing follows (S3).
    fn send_close(&mut self) {
        if self.has_sent_close || self.facts.is_none() {
            return;
        }
        self.has_sent_close = true;
        // If that cannot be sent, the connection is lost already.
        let queue = |traffic: &mut Traffic<'_>, room: &mut [u8]| traffic.queue_close_notify(room);
        let _ = self.with_traffic(0, queue);
    }

    /// The end follows what was to be sent.
    fn end_output(&mut self) {
        if self.is_shut && matches!(self.flush(false), Ok(Poll::Ready(_)) | Err(_)) {
            self.is_shut = false;
            self.socket.shut_down_write(true);
        }
    }
}

impl Transport for TlsStream {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.end_output();
        for _ in 0..EMPTY_READS_MAX {
            let count = self.take_records(into)?;
            if !self.output.is_empty() && self.encrypted == 0 {
                let _ = self.flush(false)?;
            }
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            match self.state {
                State::Clear => return self.socket.read(into),
                State::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                _ if self.has_peer_closed => return Poll::Ready(Ok(0)),
                _ => {}
            }
            let Poll::Ready(filled) = self.fill() else {
                self.input.shrink(!self.is_open() || memory::is_full(Class::HeaderBlocks));
                return Poll::Pending;
            };
            if !filled? {
                // Without a `close_notify`; a body that is cut is seen by its length.
                let is_open = self.is_open();
                self.has_peer_closed = true;
                return Poll::Ready(if is_open {
                    Ok(0)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                });
            }
        }
        // An endless row of empty records has no purpose and would delay other sessions.
        self.state = State::Failed;
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }

    /// Bytes that were encrypted and have not left are offered again: `Pending` has taken none.
    fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        ready!(self.shake_hands())?;
        if let State::Clear = self.state {
            return self.socket.send(bytes, more);
        }
        if self.encrypted == 0 {
            // A client that does not read may hold it for long (O9).
            let is_full = memory::is_full(Class::Responses);
            let max = if is_full { RESPONSE_BYTES_MIN } else { SEND_BYTES };
            let count = bytes.len().min(max);
            self.encrypt(&bytes[..count])?;
            self.encrypted = count;
        }
        self.flush(more)?.map(Ok)
    }

    fn unacknowledged(&self) -> Option<u64> {
        self.socket.unacknowledged()
    }

    fn note(&mut self, ready: Ready) {
        self.socket.note(ready);
    }

    fn is_full(&self) -> bool {
        self.socket.is_full()
    }

    fn has_ended(&self) -> bool {
        self.has_peer_closed || self.socket.has_ended()
    }

    fn is_lost(&self) -> bool {
        self.socket.is_lost()
    }

    fn cork(&self, is_corked: bool) {
        self.socket.cork(is_corked);
    }

    fn set_no_delay(&self, is_on: bool) {
        self.socket.set_no_delay(is_on);
    }

    fn stay_local(&self) {
        self.socket.stay_local();
    }

    fn lift_unsent_limit(&self) {
        self.socket.lift_unsent_limit();
    }

    fn end(&mut self) {
        // Where a part of an answer is still here, the end is no complete one.
        if self.encrypted == 0 {
            self.send_close();
        }
        let _ = self.flush(false);
    }

    fn shut_down_write(&mut self, is_complete: bool) {
        if is_complete {
            self.send_close();
        }
        self.has_sent_close = true;
        self.is_shut = true;
        self.end_output();
    }

    fn reset_on_close(&mut self) {
        // What is cut has no `close_notify` (S3).
        self.has_sent_close = true;
        self.socket.reset_on_close();
    }

    fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.socket.watch(epoll, token)
    }
}

impl ClientTransport for TlsStream {
    fn awaits_proxy_header(&self) -> bool {
        self.socket.awaits_proxy_header()
    }

    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        self.socket.read_proxy_header()
    }

    fn secured(&self) -> Secured<'_> {
        match (&self.facts, &self.state) {
            (Some(facts), _) => Secured::By(facts),
            (None, State::Clear) => Secured::NotThoughItShould,
            (None, _) => Secured::NotYet,
        }
    }

    fn buffer_bytes(&self) -> usize {
        let buffers = [&self.input, &self.plain, &self.output];
        buffers.iter().map(|it| it.held_bytes()).sum()
    }

    fn judge_again(&mut self, chooser: &Chooser) {
        let Some(facts) = &self.facts else { return };
        if let State::Keys(keys, _) = &self.state
            && let Some(server) = chooser.choose(&facts.server_name)
        {
            self.facts = Some(Arc::new(server.facts(keys, Hello::of(facts))));
        }
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramTransport> {
        None
    }
}
