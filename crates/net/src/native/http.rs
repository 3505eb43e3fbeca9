//! The service `http` (E9): an HTTP request without HTTP's connection, answered by the handlers of the same worker.

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

use prost::Message;
use sekisho_config::{ListenAddress, listen};
use sekisho_endpoint::http::Done;
use sekisho_endpoint::{
    Caller, Channel, Code, ControlAccess, Held, Peer, Request, Response, Service, Work, WriteError,
};
use sekisho_handler::memory;
use sekisho_http::token::is_token_byte;

use super::visit::{Part, Visit};
use crate::protocol::{AskedRequest, parts};
use crate::worker::{ListenerContext, Worker};

/// Bodies are sent in records of at most this size.
const RECORD_BYTES: usize = 32 * 1024;
/// The bytes of a [`Done`] at the most.
const DONE_BYTES_MAX: usize = 24;
/// What a request holds while it is answered, beside its body: what waits for the caller.
const ANSWER_BYTES: usize = 64 * 1024;

type Failure = (Code, String);

/// The service.
#[derive(Debug)]
pub struct HttpService {
    worker: Weak<Worker>,
    /// The addresses that callers other than operators reach; `None` if only operators call the service.
    named: Option<Vec<ListenAddress>>,
}

impl HttpService {
    pub(super) fn new(worker: &Rc<Worker>, named: Option<Vec<ListenAddress>>) -> Self {
        Self { worker: Rc::downgrade(worker), named }
    }

    /// The request, checked and made.
    fn visit(&self, caller: &Rc<Caller>, body: Vec<u8>) -> Result<Visit, Failure> {
        let over = |why: &str| (Code::ResourceLimitReached, why.to_owned());
        if memory::is_short() {
            return Err(over("memory is short"));
        }
        let ended = || (Code::ServiceUnavailable, "the server is about to end".to_owned());
        let worker = self.worker.upgrade().ok_or_else(ended)?;
        let (asked, address) = read(body)?;
        let context = self.context(&worker, caller, &address)?;
        // Rules about addresses apply to the address of the client.
        let remote: Option<SocketAddr> = match caller.peer {
            Peer::Tcp(address) => Some(address),
            _ => None,
        };
        Ok(worker.visit(asked, caller, remote, &context))
    }

    /// The listener that the caller names, or the first one that it may reach.
    fn context(
        &self,
        worker: &Worker,
        caller: &Caller,
        address: &str,
    ) -> Result<Rc<ListenerContext>, Failure> {
        let wanted = read_address(address)?;
        if self.named.is_none() && caller.control < ControlAccess::Full {
            let text = "full access to \"control\" is needed to reach every address";
            return Err((Code::PermissionError, text.to_owned()));
        }
        let wanted = match &self.named {
            Some(named) if caller.control < ControlAccess::Full => {
                Some(reachable(named, wanted.as_ref())?)
            }
            _ => wanted,
        };
        let contexts = worker.native.contexts.borrow();
        let is_meant = |context: &&Rc<ListenerContext>| {
            let is_http = !context.bound_site().site.is_stream();
            is_http && wanted.as_ref().is_none_or(|wanted| context.address == *wanted)
        };
        let found = contexts.iter().find(is_meant).cloned();
        let text = "no server listens on this address";
        found.ok_or_else(|| (Code::ServiceUnavailable, text.to_owned()))
    }

    /// Makes the request, and gives the caller what is there at once.
    fn begin(&self, request: Request, response: &Response) -> Result<Relay, Failure> {
        let over = |why: &dyn std::fmt::Display| (Code::ResourceLimitReached, why.to_string());
        let held = response.hold(ANSWER_BYTES).map_err(|error| over(&error))?;
        let caller = Rc::clone(request.shared_caller());
        let visit = self.visit(&caller, request.into_body())?;
        let channel = response.acquire_channel().map_err(|error| over(&error))?;
        let most = RECORD_BYTES.min(channel.record_bytes_max());
        Ok(Relay {
            visit,
            channel: Some(channel),
            response: response.clone(),
            most,
            done: Done::default(),
            _held: held,
        })
    }
}

impl Service for HttpService {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        let mut relay = match self.begin(request, &response) {
            Ok(relay) => relay,
            Err((code, text)) => {
                // A request that has just come in has no answer yet.
                let _ = response.error(code, &text);
                return Work::Done;
            }
        };
        drop(response);
        // An answer that is in memory is there now, and needs no future. If it is not, the future looks again.
        if relay.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Work::Done;
        }
        Work::later(std::future::poll_fn(move |cx| relay.poll(cx)))
    }
}

/// Gives the caller what comes: the head is the first record, the body the others.
struct Relay {
    visit: Visit,
    channel: Option<Channel>,
    response: Response,
    /// The longest record.
    most: usize,
    done: Done,
    _held: Held,
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let outcome = match self.go_on(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                if pin!(self.response.cancelled()).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                Err((Code::OperationCancelled, "the request was cancelled".to_owned()))
            }
        };
        if let Some(channel) = self.channel.take() {
            self.response.release_channel(channel);
        }
        // If the client has gone, the answer is dropped.
        let _ = match outcome {
            Ok(()) => {
                let mut bytes = [0; DONE_BYTES_MAX];
                let length = self.done.encoded_len().min(bytes.len());
                // There is room for two numbers.
                let _ = self.done.encode(&mut &mut bytes[..]);
                self.response.body(&bytes[..length])
            }
            Err((code, text)) => self.response.error(code, &text),
        };
        Poll::Ready(())
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Self { visit, channel, most, done, .. } = self;
        let Some(channel) = channel else { return Poll::Ready(Ok(())) };
        loop {
            let sent = visit.poll_part(cx, |cx, part, bytes| {
                let length = match part {
                    // A head is one record.
                    Part::Head(_) => bytes.len(),
                    Part::Body => bytes.len().min(*most),
                    Part::End(_) => return Poll::Ready((part, Ok(0))),
                };
                let written = ready!(channel.poll_write(cx, &bytes[..length]));
                Poll::Ready((part, written.map(|()| length)))
            });
            let (part, sent) = ready!(sent);
            let sent = match sent {
                Ok(sent) => sent,
                // The caller has what it wanted; the handler sees its client go.
                Err(WriteError::Unwanted) => return Poll::Ready(Ok(())),
                Err(error) => {
                    return Poll::Ready(Err((Code::ResourceLimitReached, error.to_string())));
                }
            };
            match part {
                Part::Head(status) => done.status = u32::from(status.code()),
                Part::Body => done.body_bytes += sent as u64,
                Part::End(true) if done.status > 0 => return Poll::Ready(Ok(())),
                Part::End(_) => {
                    let text = "the answer was broken off".to_owned();
                    return Poll::Ready(Err((Code::IoError, text)));
                }
            }
            visit.took(part, sent);
        }
    }
}

/// The address that a caller without the right to control reaches.
fn reachable(
    named: &[ListenAddress],
    wanted: Option<&ListenAddress>,
) -> Result<ListenAddress, Failure> {
    let found = match wanted {
        Some(wanted) => named.iter().find(|address| *address == wanted),
        None => named.first(),
    };
    found.cloned().ok_or_else(|| {
        let text = "this address is not among those of \"http_addresses\"";
        (Code::PermissionError, text.to_owned())
    })
}

fn read_address(text: &str) -> Result<Option<ListenAddress>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = listen::addresses(text.as_bytes())
        .map_err(|why| (Code::InvalidRequest, format!("address: {why}")))?;
    Ok(found.into_iter().next())
}

/// Reads a [`sekisho_endpoint::http::Request`] where it lies: the request as the engine takes it, and the address.
fn read(raw: Vec<u8>) -> Result<(AskedRequest, String), Failure> {
    let wrong = |what: &str| (Code::InvalidRequest, format!("{what} is not in order"));
    let cut = || (Code::InvalidRequest, "the request is not understood".to_owned());
    let mut asked = AskedRequest::default();
    let mut address = String::new();
    let mut parts = parts::Parts::new(&raw, 0..raw.len());
    while let Some((tag, range)) = parts.next().map_err(|()| cut())? {
        match tag {
            1 => asked.method = range,
            2 => asked.target = range,
            3 => {
                let (name, value) = parts::field(&raw, range).ok_or_else(cut)?;
                check_field(&raw[name.clone()], &raw[value])?;
                asked.has_host |= raw[name].eq_ignore_ascii_case(b"host");
            }
            4 => asked.body = range,
            5 => {
                let text = std::str::from_utf8(&raw[range]).map_err(|_| wrong("the address"))?;
                text.clone_into(&mut address);
            }
            _ => {}
        }
    }
    if !raw[asked.method.clone()].iter().all(|byte| is_token_byte(*byte)) {
        return Err(wrong("the method"));
    }
    if !raw[asked.target.clone()].iter().all(u8::is_ascii_graphic) {
        return Err(wrong("the target"));
    }
    asked.raw = raw;
    Ok((asked, address))
}

/// Fields that frame a message.
const FRAMING: [&str; 7] =
    ["connection", "content-length", "transfer-encoding", "keep-alive", "expect", "upgrade", "te"];

fn check_field(name: &[u8], value: &[u8]) -> Result<(), Failure> {
    let is_value = value.iter().all(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
    if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) || !is_value {
        return Err((Code::InvalidRequest, "a field is not in order".to_owned()));
    }
    if FRAMING.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
        let name = String::from_utf8_lossy(name);
        let text = format!("the field \"{name}\" frames the message and is ours to write");
        return Err((Code::InvalidRequest, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::bytes::Bytes;
    use sekisho_endpoint::http::{Field, Request as Asked};

    use sekisho_http::Fields;

    use super::*;

    fn field(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), value: value.into() }
    }

    #[test]
    fn a_request_is_read_where_it_lies() {
        // E9
        let message = Asked {
            method: "PUT".to_owned(),
            target: "/a?b".to_owned(),
            fields: vec![field("X", " 1 "), field("Host", "there"), field("Empty", "")],
            body: Bytes::from(vec![7; 200]),
            address: "127.0.0.1:80".to_owned(),
        };
        let mut raw = message.encode_to_vec();
        // Fields of a later version: a number, and bytes of fixed length.
        raw.extend([0x38, 0x96, 0x01, 0x45, 1, 2, 3, 4]);
        let (asked, address) = read(raw).expect("in order");
        assert_eq!((asked.method(), asked.target()), (&b"PUT"[..], &b"/a?b"[..]));
        assert_eq!((address.as_str(), asked.body_bytes()), ("127.0.0.1:80", 200));
        let mut fields = Fields::new();
        asked.for_each_field(|name, value| fields.push(name, value));
        assert_eq!(fields.get("x"), Some(&b"1"[..]));
        assert_eq!(fields.get("host"), Some(&b"there"[..]));
        assert_eq!(fields.get("content-length"), Some(&b"200"[..]));
        let raw = message.encode_to_vec();
        for end in 0..raw.len() {
            // Whatever is cut off, nothing beyond it is looked at.
            let _ = read(raw[..end].to_vec());
        }
    }

    #[test]
    fn a_request_is_taken_whole_or_not_at_all() {
        // E9, H9
        let asked = |target: &str, fields: Vec<Field>| Asked {
            target: target.to_owned(),
            fields,
            ..Asked::default()
        };
        let (request, _) = read(asked("", Vec::new()).encode_to_vec()).expect("in order");
        assert_eq!((request.method(), request.target()), (&b"GET"[..], &b"/"[..]));
        let mut fields = Fields::new();
        request.for_each_field(|name, value| fields.push(name, value));
        assert_eq!(fields.get("host"), Some(&b"localhost"[..]));
        for bad in [
            asked("/a b", Vec::new()),
            asked("/\r\nX: y", Vec::new()),
            asked("/", vec![field("X", "y\r\nZ: 1")]),
            asked("/", vec![field("X:", "y")]),
            asked("/", vec![field("", "y")]),
            asked("/", vec![field("Content-Length", "3")]),
            asked("/", vec![field("transfer-encoding", "chunked")]),
            Asked { method: "GET /x".to_owned(), ..Asked::default() },
        ] {
            let text = format!("{bad:?}");
            let refused = read(bad.encode_to_vec()).expect_err("refused");
            assert_eq!(refused.0, Code::InvalidRequest, "{text}");
        }
    }
}
