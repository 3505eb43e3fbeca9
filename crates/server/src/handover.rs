//! The handover to a new process: a Unix socket (`local_socket.rs`) that takes one line and gives one answer, with descriptors. All else is asked at the control socket (`control_plane.rs`), whose protocol
//! has no descriptors. Only root and our own user are listened to; the calling process makes sure that the
//! intended process answers.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
#[cfg(test)]
use sekisho_config::ListenAddress;
use sekisho_net::listen::{Holder, Inherited};
use sekisho_net::quic_process::ProcessLink;
use sekisho_parent::{address_text, parse_address};
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::local_socket::{self, LocalSockets, Purpose, SocketFile};

/// How long a caller may take to send its line, or to take the answer.
const SPEAK_LIMIT: Duration = Duration::from_secs(2);
/// How long an answer may take: a configuration may be large, and have many names.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// How long taking calls rests when that is not possible (no descriptors).
const PAUSE: Duration = Duration::from_millis(100);
/// So many calls may wait.
const CALLS_MAX: usize = 8;
/// The longest line: a request with its text.
const LINE_BYTES_MAX: usize = 2048;
/// The text of a request is cut to this length, which leaves room for the request.
const SAID_BYTES_MAX: usize = 1900;
/// Sockets, names and all: no more than this is taken from an old process.
const OFFER_BYTES_MAX: usize = 1 << 20;
/// The descriptors that one message may bring.
const DESCRIPTORS_MAX: usize = 4;

const DONE: &str = "done";
const FAILED: &str = "failed";
/// How a process says that it drains.
pub(crate) const DRAINED: &str = "yes";

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandoverRequest {
    /// Give me your sockets.
    Sockets,
    /// I serve; you may go.
    Ready,
    /// Give me the secrets of your TLS tickets. Asked apart from the sockets, since a process that does not know this
    /// question must still be replaceable.
    TicketSecrets,
    /// Give me the links for datagrams of your QUIC connections. Asked apart for the same reason.
    QuicLinks,
    /// Has an operator made you drain (`ctl drain`)? Then so do I. Asked apart for the same reason.
    Drained,
    /// I cannot serve, and this is why.
    Failed,
}

impl HandoverRequest {
    const ALL: [Self; 6] = [
        Self::Sockets,
        Self::Ready,
        Self::TicketSecrets,
        Self::QuicLinks,
        Self::Drained,
        Self::Failed,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Ready => "ready",
            Self::TicketSecrets => "ticket-secrets",
            Self::QuicLinks => "quic-links",
            Self::Drained => "drained",
            Self::Failed => "failed",
        }
    }
}

/// What is handed to a process that takes over.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// Every listening socket.
    pub(crate) sockets: Vec<Inherited>,
    /// The pid file, where it could not be put aside.
    pub(crate) pid_file: Option<(PathBuf, File)>,
    /// Links for datagrams of QUIC connections.
    pub(crate) quic_links: Vec<ProcessLink>,
}

/// A caller that waits for an answer.
#[derive(Debug)]
pub(crate) struct Call {
    /// What it wants.
    pub(crate) question: HandoverRequest,
    /// What they say along with it.
    pub(crate) said: String,
    /// Which process they are.
    pub(crate) pid: u32,
    stream: tokio::net::UnixStream,
}

/// Our own socket for it.
#[derive(Debug)]
pub(crate) struct Handover {
    calls: mpsc::Receiver<Call>,
    _file: Option<SocketFile>,
}

impl Handover {
    /// Listens at the sockets of this process. Called inside of a runtime.
    pub(crate) fn listen(sockets: LocalSockets) -> io::Result<Self> {
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        for listener in sockets.listeners {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            tokio::spawn(take_calls(listener, sender.clone()));
        }
        Ok(Self { calls, _file: sockets.file })
    }

    /// The next call.
    pub(crate) async fn next(&mut self) -> Call {
        match self.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        }
    }
}

async fn take_calls(listener: tokio::net::UnixListener, calls: mpsc::Sender<Call>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // One at a time: callers are few and quick.
        let heard = tokio::time::timeout(SPEAK_LIMIT, hear(stream)).await;
        if let Ok(Some(call)) = heard
            && calls.send(call).await.is_err()
        {
            return;
        }
    }
}

async fn hear(stream: tokio::net::UnixStream) -> Option<Call> {
    let peer = socket_peercred(&stream).ok()?;
    let is_known = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    let (mut line, mut filled) = (vec![0; LINE_BYTES_MAX], 0);
    while is_known && filled < line.len() && !line[..filled].ends_with(b"\n") {
        stream.readable().await.ok()?;
        match stream.try_read(&mut line[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    let line = line[..filled].strip_suffix(b"\n")?;
    let (word, said) = split_word(line).unwrap_or((line, b""));
    let question =
        HandoverRequest::ALL.into_iter().find(|question| question.word().as_bytes() == word)?;
    let said = String::from_utf8_lossy(said).into_owned();
    Some(Call { question, said, pid: peer.pid.as_raw_nonzero().get().unsigned_abs(), stream })
}

impl Call {
    /// Answers: whether it succeeded, and a text.
    pub(crate) fn answer(self, is_good: bool, text: &str) {
        let answer = format!("{}\n{text}", if is_good { DONE } else { FAILED });
        // At once if there is room, as there always is for a short text: we may be about to end.
        let sent = send(self.stream.as_fd(), answer.as_bytes(), None).unwrap_or(0);
        if sent == answer.len() {
            return;
        }
        tokio::spawn(async move {
            let sent = send_all(&self.stream, &answer.as_bytes()[sent..], None);
            // If the caller does not wait for its answer, it is dropped.
            let _ = tokio::time::timeout(SPEAK_LIMIT, sent).await;
        });
    }

    /// Answers with descriptors.
    pub(crate) fn give(self, offer: Offer) {
        tokio::spawn(async move {
            let _ = tokio::time::timeout(SPEAK_LIMIT, send_offer(&self.stream, &offer)).await;
        });
    }
}

/// One line for each descriptor, which comes with it; then a line that says that this was all.
async fn send_offer(stream: &tokio::net::UnixStream, offer: &Offer) -> io::Result<()> {
    let Some(lines) = write_offer(offer) else {
        let refusal = format!("{FAILED}\na path with a line break cannot be handed over");
        return send_all(stream, refusal.as_bytes(), None).await;
    };
    for (line, descriptor) in lines {
        send_all(stream, &line, Some(descriptor)).await?;
    }
    send_all(stream, format!("{DONE}\n").as_bytes(), None).await
}

/// The lines and what comes with them; `None` when one of them would be two.
fn write_offer(offer: &Offer) -> Option<Vec<(Vec<u8>, BorrowedFd<'_>)>> {
    let mut lines = Vec::new();
    for Inherited { address, socket, holder } in &offer.sockets {
        let holder = match holder {
            Holder::We | Holder::Parent => "we",
            Holder::Manager => "manager",
        };
        let mut line = format!("listen {holder} ").into_bytes();
        line.extend_from_slice(&address_text(address));
        lines.push((line, socket.as_fd()));
    }
    if let Some((path, file)) = &offer.pid_file {
        lines.push(([b"pid ", path.as_os_str().as_bytes()].concat(), file.as_fd()));
    }
    for ProcessLink { process, socket } in &offer.quic_links {
        lines.push((format!("quic {process}").into_bytes(), socket.as_fd()));
    }
    if lines.iter().any(|(line, _)| line.contains(&b'\n')) {
        return None;
    }
    for (line, _) in &mut lines {
        line.push(b'\n');
    }
    Some(lines)
}

async fn send_all(
    stream: &tokio::net::UnixStream,
    mut bytes: &[u8],
    mut descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream.async_io(Interest::WRITABLE, || send(stream.as_fd(), bytes, descriptor));
        let sent = sent.await?;
        bytes = &bytes[sent..];
        descriptor = None;
    }
    Ok(())
}

fn send(to: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let bytes = [IoSlice::new(bytes)];
    Ok(rustix::net::sendmsg(to, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Asks a server to do something and waits for its verdict: whether it went well, and what it says.
/// `None` when no includes here.
pub(crate) fn ask(
    pid: u32,
    question: HandoverRequest,
    said: &str,
) -> io::Result<Option<(bool, String)>> {
    let Some(mut stream) = call(pid, question, said)? else { return Ok(None) };
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (word, text) = answer.split_once('\n').unwrap_or((&answer, ""));
    match word {
        DONE => Ok(Some((true, text.to_owned()))),
        FAILED => Ok(Some((false, text.to_owned()))),
        _ => Err(io::Error::other("no result was received")),
    }
}

/// Takes descriptors of a server.
pub(crate) fn take_descriptors(pid: u32, question: HandoverRequest) -> io::Result<Offer> {
    let nobody = || io::Error::other("nobody is there");
    let stream = call(pid, question, "")?.ok_or_else(nobody)?;
    let (mut text, mut descriptors) = (Vec::new(), VecDeque::new());
    while !is_whole(&text) {
        if receive(&stream, &mut text, &mut descriptors)? == 0 || text.len() > OFFER_BYTES_MAX {
            let refusal = text.strip_prefix(b"failed\n").map(String::from_utf8_lossy);
            let why = refusal.unwrap_or("the message was incomplete".into());
            return Err(io::Error::other(why.into_owned()));
        }
    }
    read_offer(&text, descriptors)
}

/// Whether the last line has come. A path may end like it.
fn is_whole(text: &[u8]) -> bool {
    text == b"done\n" || text.ends_with(b"\ndone\n")
}

fn read_offer(text: &[u8], descriptors: VecDeque<OwnedFd>) -> io::Result<Offer> {
    try_read_offer(text, descriptors)
        .ok_or_else(|| io::Error::other("the message cannot be understood"))
}

fn try_read_offer(text: &[u8], mut descriptors: VecDeque<OwnedFd>) -> Option<Offer> {
    let mut offer = Offer::default();
    let lines = text.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty() && *line != DONE.as_bytes()) {
        let (word, rest) = split_word(line)?;
        let descriptor = descriptors.pop_front()?;
        match (word, split_word(rest)) {
            (b"listen", Some((holder, address))) => offer.sockets.push(Inherited {
                address: parse_address(address)?,
                socket: descriptor,
                holder: if holder == b"manager" { Holder::Manager } else { Holder::We },
            }),
            (b"pid", _) => offer.pid_file = Some((path(rest), descriptor.into())),
            (b"quic", _) => offer.quic_links.push(ProcessLink {
                process: std::str::from_utf8(rest).ok()?.parse().ok()?,
                socket: descriptor,
            }),
            _ => return None,
        }
    }
    Some(offer)
}

fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..end], &text[end + 1..]))
}

fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

fn receive(
    from: &UnixStream,
    text: &mut Vec<u8>,
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 1024];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = rustix::net::recvmsg(from, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    text.extend_from_slice(&bytes[..message.bytes]);
    Ok(message.bytes)
}

fn call(pid: u32, question: HandoverRequest, said: &str) -> io::Result<Option<UnixStream>> {
    let Some(mut stream) = local_socket::connect(pid, Purpose::Handover)? else { return Ok(None) };
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(SPEAK_LIMIT))?;
    stream.write_all(line_of(question, said).as_bytes())?;
    Ok(Some(stream))
}

/// One line, whatever is said.
fn line_of(question: HandoverRequest, said: &str) -> String {
    let end = said.floor_char_boundary(SAID_BYTES_MAX);
    let said: String = said[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let space = if said.is_empty() { "" } else { " " };
    format!("{}{space}{said}\n", question.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> OwnedFd {
        rustix::pipe::pipe().expect("a pipe").0
    }

    fn offer(socket_path: &[u8], pid_path: &[u8]) -> Offer {
        let socket = |address, holder| Inherited { address, socket: pipe(), holder };
        let tcp = ListenAddress::Tcp("127.0.0.1:80".parse().expect("an address"));
        let unix = ListenAddress::Unix(path(socket_path));
        Offer {
            sockets: vec![socket(tcp, Holder::We), socket(unix, Holder::Manager)],
            pid_file: Some((path(pid_path), pipe().into())),
            quic_links: vec![ProcessLink { process: 7, socket: pipe() }],
        }
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        // O4
        let given = offer(b"/run/a b\xff", b"/run/x.pid");
        let lines = write_offer(&given).expect("written");
        let text: Vec<u8> = lines.iter().flat_map(|(line, _)| line).copied().collect();
        let text = [&text, &b"done\n"[..]].concat();
        let taken = read_offer(&text, [pipe(), pipe(), pipe(), pipe()].into()).expect("understood");
        let shown = |offer: &Offer| {
            let sockets = offer.sockets.iter().map(|it| (it.address.clone(), it.holder));
            let pid_path = offer.pid_file.as_ref().map(|(path, _)| path.clone());
            let processes = offer.quic_links.iter().map(|link| link.process);
            (sockets.collect::<Vec<_>>(), pid_path, processes.collect::<Vec<_>>())
        };
        assert_eq!(shown(&taken), shown(&given));
        for bad in ["listen we x\n", "listen 127.0.0.1:80\n", "what is this\n", "pid\n", "quic x\n"]
        {
            assert!(read_offer(bad.as_bytes(), [pipe()].into()).is_err(), "{bad}");
        }
        assert!(read_offer(b"listen we 127.0.0.1:80\n", VecDeque::new()).is_err());
    }

    #[test]
    fn an_offer_ends_with_its_last_line_and_no_path_breaks_it() {
        // O4
        for (text, expected) in [
            (&b"done\n"[..], true),
            (b"pid /x\ndone\n", true),
            (b"pid /run/done\n", false),
            (b"listen we unix:/abandone\xffdone\n", false),
            (b"done", false),
        ] {
            assert_eq!(is_whole(text), expected, "{}", text.escape_ascii());
        }
        assert!(write_offer(&offer(b"/a\ndone\n", b"/x")).is_none());
        assert!(write_offer(&offer(b"/a", b"/x\n")).is_none());
    }

    #[test]
    fn a_question_is_one_line_whatever_is_said_with_it() {
        assert_eq!(line_of(HandoverRequest::Ready, ""), "ready\n");
        assert_eq!(line_of(HandoverRequest::Failed, "a\nb\tc"), "failed a b c\n");
        let long = line_of(HandoverRequest::Failed, &"ü".repeat(LINE_BYTES_MAX));
        assert!(long.len() <= LINE_BYTES_MAX && long.ends_with("ü\n"));
    }
}
