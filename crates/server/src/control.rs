//! The control socket: an abstract Unix socket named `sekisho/<pid>` that takes one line and gives one
//! answer. Over it `-s reload` learns its verdict, and a new process takes over the sockets of the old
//! one. Only root and our own user are listened to; whoever asks makes sure that the process it meant
//! answers.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use sekisho_config::ListenAddress;
use sekisho_net::listen::{Holder, Inherited, Shown};
use tokio::io::Interest;
use tokio::sync::mpsc;

/// How long somebody may take to say what they want, or to take the answer.
const SPEAK_LIMIT: Duration = Duration::from_secs(2);
/// How long a verdict may take: a configuration may be large, and its names many.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// How long taking calls rests when that is not possible (no descriptors).
const PAUSE: Duration = Duration::from_millis(100);
/// So many calls may wait.
const CALLS_MAX: usize = 8;
const LINE_BYTES_MAX: usize = 64;
/// Sockets, names and all: no more than this is taken from an old process.
const OFFER_BYTES_MAX: usize = 1 << 20;
/// The descriptors that one message may bring.
const DESCRIPTORS_MAX: usize = 4;

const DONE: &str = "done";
const FAILED: &str = "failed";

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// Read the configuration again.
    Reload,
    /// Give me your sockets.
    Sockets,
    /// I serve; you may go.
    Ready,
}

impl Question {
    const ALL: [Self; 3] = [Self::Reload, Self::Sockets, Self::Ready];

    const fn word(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Sockets => "sockets",
            Self::Ready => "ready",
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
}

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(crate) struct Call {
    /// What they want.
    pub(crate) question: Question,
    /// Which process they are.
    pub(crate) pid: u32,
    stream: tokio::net::UnixStream,
}

/// Our own control socket.
#[derive(Debug)]
pub(crate) struct Control {
    calls: mpsc::Receiver<Call>,
}

impl Control {
    /// Opens the socket of this process. Called inside of a runtime.
    pub(crate) fn open() -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        tokio::spawn(take_calls(listener, sender));
        Ok(Self { calls })
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
        // One at a time: those who may speak here are few and quick.
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
    let (mut line, mut filled) = ([0; LINE_BYTES_MAX], 0);
    while is_known && filled < line.len() && !line[..filled].ends_with(b"\n") {
        stream.readable().await.ok()?;
        match stream.try_read(&mut line[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    let word = line[..filled].strip_suffix(b"\n")?;
    let question = Question::ALL.into_iter().find(|question| question.word().as_bytes() == word)?;
    Some(Call { question, pid: peer.pid.as_raw_nonzero().get().unsigned_abs(), stream })
}

impl Call {
    /// Answers: whether it went well, and what there is to say about it.
    pub(crate) fn answer(self, is_good: bool, text: &str) {
        let answer = format!("{}\n{text}", if is_good { DONE } else { FAILED });
        tokio::spawn(async move {
            let sent = send_all(&self.stream, answer.as_bytes(), None);
            // Whoever does not wait for their answer does not get it.
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
    for Inherited { address, socket, holder } in &offer.sockets {
        let holder = match holder {
            Holder::We => "we",
            Holder::Manager => "manager",
        };
        let line = format!("listen {holder} {}\n", Shown(address));
        send_all(stream, line.as_bytes(), Some(socket.as_fd())).await?;
    }
    if let Some((path, file)) = &offer.pid_file {
        let line = format!("pid {}\n", path.display());
        send_all(stream, line.as_bytes(), Some(file.as_fd())).await?;
    }
    send_all(stream, format!("{DONE}\n").as_bytes(), None).await
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
/// `None` when there is nobody to ask.
pub(crate) fn ask(pid: u32, question: Question) -> io::Result<Option<(bool, String)>> {
    let Some(mut stream) = call(pid, question)? else { return Ok(None) };
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (word, text) = answer.split_once('\n').unwrap_or((&answer, ""));
    match word {
        DONE => Ok(Some((true, text.to_owned()))),
        FAILED => Ok(Some((false, text.to_owned()))),
        _ => Err(io::Error::other("no verdict came back")),
    }
}

/// Takes the sockets of a server.
pub(crate) fn take_sockets(pid: u32) -> io::Result<Offer> {
    let nobody = || io::Error::other("nobody is there");
    let stream = call(pid, Question::Sockets)?.ok_or_else(nobody)?;
    let (mut text, mut descriptors) = (Vec::new(), VecDeque::new());
    while !text.ends_with(b"done\n") {
        if receive(&stream, &mut text, &mut descriptors)? == 0 || text.len() > OFFER_BYTES_MAX {
            return Err(io::Error::other("the offer was cut short"));
        }
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    read_offer(&text, descriptors)
}

fn read_offer(text: &str, mut descriptors: VecDeque<OwnedFd>) -> io::Result<Offer> {
    let bad = || io::Error::other("the offer cannot be understood");
    let mut offer = Offer::default();
    for line in text.lines().filter(|line| *line != DONE) {
        let (word, rest) = line.split_once(' ').ok_or_else(bad)?;
        let descriptor = descriptors.pop_front().ok_or_else(bad)?;
        match (word, rest.split_once(' ')) {
            ("listen", Some((holder, address))) => offer.sockets.push(Inherited {
                address: parse_address(address).ok_or_else(bad)?,
                socket: descriptor,
                holder: if holder == "manager" { Holder::Manager } else { Holder::We },
            }),
            ("pid", _) => offer.pid_file = Some((rest.into(), descriptor.into())),
            _ => return Err(bad()),
        }
    }
    Ok(offer)
}

fn parse_address(text: &str) -> Option<ListenAddress> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(ListenAddress::Unix(path.into())),
        None => text.parse().ok().map(ListenAddress::Tcp),
    }
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

fn call(pid: u32, question: Question) -> io::Result<Option<UnixStream>> {
    let mut stream = match UnixStream::connect_addr(&address(pid)?) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(error),
    };
    // Anybody may take a name that nobody has.
    let peer = socket_peercred(&stream)?;
    if peer.pid.as_raw_nonzero().get().unsigned_abs() != pid {
        return Ok(None);
    }
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(SPEAK_LIMIT))?;
    writeln!(stream, "{}", question.word())?;
    Ok(Some(stream))
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("sekisho/{pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        // O4
        let pipe = || rustix::pipe::pipe().expect("a pipe").0;
        let text = "listen we 127.0.0.1:80\nlisten manager unix:/run/a b\npid /run/x.pid\ndone\n";
        let offer = read_offer(text, [pipe(), pipe(), pipe()].into()).expect("understood");
        let found: Vec<_> =
            offer.sockets.iter().map(|it| (Shown(&it.address).to_string(), it.holder)).collect();
        let expected = [("127.0.0.1:80", Holder::We), ("unix:/run/a b", Holder::Manager)];
        assert_eq!(found, expected.map(|(address, holder)| (address.to_owned(), holder)));
        assert_eq!(offer.pid_file.map(|(path, _)| path), Some("/run/x.pid".into()));
        for bad in ["listen we x\n", "listen 127.0.0.1:80\n", "what is this\n", "pid\n"] {
            assert!(read_offer(bad, [pipe()].into()).is_err(), "{bad}");
        }
        assert!(read_offer("listen we 127.0.0.1:80\n", VecDeque::new()).is_err());
    }
}
