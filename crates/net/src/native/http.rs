//! The service `http` (E9): an HTTP request without HTTP's connection, answered by the handlers of the same worker.

use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use prost::Message;
use prost::bytes::Bytes;
use sekisho_config::{ListenAddress, listen};
use sekisho_endpoint::http::{Done, Field, Head, Request as Asked};
use sekisho_endpoint::{
    Caller, Channel, Code, ControlAccess, Peer, Request, Response, Service, Work, WriteError,
};
use sekisho_handler::memory;
use sekisho_http::Fields;

use super::visit::{Part, Visit};
use crate::protocol::InternalRequest;
use crate::worker::{ListenerContext, Worker};

/// Bodies are sent in records of at most this size.
const RECORD_BYTES: usize = 32 * 1024;
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
    fn visit(&self, caller: &Rc<Caller>, body: Vec<u8>) -> Result<(Visit, bool), Failure> {
        let over = |why: &str| (Code::ResourceLimitReached, why.to_owned());
        if memory::is_short() {
            return Err(over("memory is short"));
        }
        let ended = || (Code::ServiceUnavailable, "the server is about to end".to_owned());
        let worker = self.worker.upgrade().ok_or_else(ended)?;
        // The body is a part of what came, and not copied.
        let asked = Asked::decode(Bytes::from(body))
            .map_err(|error| (Code::InvalidRequest, error.to_string()))?;
        let context = self.context(&worker, caller, &asked.address)?;
        // Rules about addresses apply to the address of the client.
        let remote: Option<SocketAddr> = match caller.peer {
            Peer::Tcp(address) => Some(address),
            _ => None,
        };
        let mut request = internal(asked)?;
        request.caller = Some(Rc::clone(caller));
        let is_head = request.method == b"HEAD";
        Ok((worker.visit(request, caller.session, remote, &context), is_head))
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

    async fn serve(&self, request: Request, response: &Response) -> Result<Done, Failure> {
        let over = |why: &dyn std::fmt::Display| (Code::ResourceLimitReached, why.to_string());
        let _held = response.hold(ANSWER_BYTES).map_err(|error| over(&error))?;
        let caller = Rc::clone(request.shared_caller());
        let (mut visit, _) = self.visit(&caller, request.into_body())?;
        let channel = response.acquire_channel().map_err(|error| over(&error))?;
        let outcome = tokio::select! {
            biased;
            done = relay(&mut visit, &channel) => done,
            () = response.cancelled() => {
                Err((Code::OperationCancelled, "the request was cancelled".to_owned()))
            }
        };
        response.release_channel(channel);
        outcome
    }
}

impl Service for HttpService {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        Work::later(async move {
            let outcome = self.serve(request, &response).await;
            // If the client has gone, the answer is dropped.
            let _ = match outcome {
                Ok(done) => response.body(&done.encode_to_vec()),
                Err((code, text)) => response.error(code, &text),
            };
        })
    }
}

/// Gives the caller what comes: the head is the first record, the body the others.
async fn relay(visit: &mut Visit, channel: &Channel) -> Result<Done, Failure> {
    let most = RECORD_BYTES.min(channel.record_bytes_max());
    let mut done = Done::default();
    loop {
        let part = std::future::poll_fn(|cx| visit.poll_part(cx)).await;
        let sent = match part {
            Part::Head(status, fields) => {
                done.status = u32::from(status.code());
                let field = |(name, value): (&[u8], &[u8])| Field {
                    name: String::from_utf8_lossy(name).into_owned(),
                    value: value.to_vec(),
                };
                let fields = fields.iter().map(field).collect();
                channel.write(&Head { status: done.status, fields }.encode_to_vec()).await
            }
            Part::Body(bytes) => send(channel, &bytes, most, &mut done.body_bytes).await,
            Part::End(true) if done.status > 0 => return Ok(done),
            Part::End(_) => return Err((Code::IoError, "the answer was broken off".to_owned())),
        };
        match sent {
            Ok(()) => {}
            // The caller has what it wanted; the handler sees its client go.
            Err(WriteError::Unwanted) => return Ok(done),
            Err(error) => return Err((Code::ResourceLimitReached, error.to_string())),
        }
    }
}

async fn send(
    channel: &Channel,
    bytes: &[u8],
    most: usize,
    sent: &mut u64,
) -> Result<(), WriteError> {
    for piece in bytes.chunks(most) {
        channel.write(piece).await?;
        *sent += piece.len() as u64;
    }
    Ok(())
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

/// The request as the engine takes it.
fn internal(asked: Asked) -> Result<InternalRequest, Failure> {
    let wrong = |what: &str| (Code::InvalidRequest, format!("{what} is not in order"));
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let (method, target) = (or(asked.method, "GET"), or(asked.target, "/"));
    if !method.bytes().all(is_token) {
        return Err(wrong("the method"));
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("the target"));
    }
    let mut fields = Fields::new();
    let mut has_host = false;
    for Field { name, value } in &asked.fields {
        let is_value = value.iter().all(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
        if name.is_empty() || !name.bytes().all(is_token) || !is_value {
            return Err(wrong("a field"));
        }
        let framing = ["connection", "content-length", "transfer-encoding", "keep-alive", "expect"];
        let is_one_of = |names: &[&str]| names.iter().any(|it| name.eq_ignore_ascii_case(it));
        if is_one_of(&framing) || is_one_of(&["upgrade", "te"]) {
            let text = format!("the field \"{name}\" frames the message and is ours to write");
            return Err((Code::InvalidRequest, text));
        }
        has_host |= name.eq_ignore_ascii_case("host");
        fields.push(name, value.trim_ascii());
    }
    if !has_host {
        fields.push("Host", "localhost");
    }
    if !asked.body.is_empty() || matches!(method.as_str(), "POST" | "PUT") {
        fields.push_number("Content-Length", asked.body.len() as u64);
    }
    Ok(InternalRequest {
        method: method.into_bytes(),
        target: target.into_bytes(),
        fields,
        body: asked.body,
        ..InternalRequest::default()
    })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), value: value.into() }
    }

    #[test]
    fn a_request_is_taken_whole_or_not_at_all() {
        // E9, H9
        let asked = |target: &str, fields: Vec<Field>| Asked {
            target: target.to_owned(),
            fields,
            ..Asked::default()
        };
        let request = internal(asked("", Vec::new())).expect("in order");
        assert_eq!((&request.method[..], &request.target[..]), (&b"GET"[..], &b"/"[..]));
        assert_eq!(request.fields.get("host"), Some(&b"localhost"[..]));
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
            assert_eq!(internal(bad).expect_err("refused").0, Code::InvalidRequest, "{text}");
        }
    }
}
