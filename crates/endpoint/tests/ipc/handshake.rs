//! What goes over the socket before the memory is shared, cut, wrong, late, and from servers that lie.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sekisho_endpoint::{Client, CloseReason, Echo, ipc};

use crate::support::{HELLO, Rng, Server, alone, connect, held, is_ready, rounds};

#[test]
fn a_greeting_is_taken_in_any_cut_and_nothing_else_is() {
    // E2, E7
    let _alone = alone();
    let mut server = Server::start(ipc::Config::default());
    for cut in 1..HELLO.len() {
        let mut socket = server.socket();
        socket.write_all(&HELLO[..cut]).expect("sent");
        socket.write_all(&HELLO[cut..]).expect("sent");
        let (bytes, descriptors) = crate::support::receive(&socket).expect("an answer");
        assert_eq!((bytes.len(), descriptors.len()), (32, 3));
    }
    for (bad, code) in [(b"GET / HTTP/1.1\r\n", 13), (b"SEKI-IPC\x02\0\0\0\0\0\0\0", 3)] {
        let mut socket = server.socket();
        socket.write_all(bad).expect("sent");
        let (bytes, descriptors) = crate::support::receive(&socket).expect("an answer");
        assert_eq!((bytes[12], descriptors.len()), (code, 0));
        assert_eq!(socket.read(&mut [0; 8]).unwrap_or(0), 0, "and the end");
    }
    server.stop();
}

#[test]
fn a_peer_that_says_nothing_or_half_of_it_is_gone_after_the_deadline() {
    // E2: the deadline of the handshake is the transport's as well.
    let _alone = alone();
    let mut server = Server::start(ipc::Config::default());
    for said in [0, 7, 16] {
        let mut socket = server.socket();
        socket.write_all(&HELLO[..said]).expect("sent");
        if said == 16 {
            crate::support::receive(&socket).expect("an answer");
        }
        assert!(is_ready(&socket, 15_000), "{said} bytes: the server closes");
    }
    server.ended(3);
    let reasons = server.ends.lock().expect("whole").clone();
    let is_late = |reason: &CloseReason| matches!(reason, CloseReason::Expired(_));
    assert!(reasons.iter().all(is_late), "{reasons:?}");
    server.stop();
}

const STRANGER_PATH: &str = "SEKISHO_TEST_STRANGER_PATH";
/// The user `nobody` on most systems; neither root nor, as a rule, our user.
const STRANGER: u32 = 65534;

/// Not a test of its own: what a process of another user sees.
#[test]
fn stranger() {
    let Some(path) = std::env::var_os(STRANGER_PATH) else { return };
    let shared = ipc::BlockingStream::connect(connect(path.as_ref()));
    println!("stranger: {:?}", shared.map(drop).map_err(|error| error.kind()));
}

#[test]
fn only_the_users_that_may_connect_get_memory() {
    // E7
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run a process of another user");
        return;
    }
    for (access, wanted) in [
        (ipc::Access::OwnUser, "Err(PermissionDenied)"),
        (ipc::Access::Users(vec![STRANGER + 1]), "Err(PermissionDenied)"),
        (ipc::Access::Users(vec![STRANGER]), "Ok(())"),
        (ipc::Access::Anybody, "Ok(())"),
    ] {
        let mut server = Server::start(ipc::Config { access, ..ipc::Config::default() });
        for path in [server.path(), server.path().parent().expect("a folder").to_owned()] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("set");
        }
        let ran = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "handshake::stranger", "--nocapture"])
            .env(STRANGER_PATH, server.path())
            .uid(STRANGER)
            .output();
        let Ok(output) = ran else {
            println!("skipped: the test's own program is not for other users");
            server.stop();
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("stranger: {wanted}")), "{said}");
        server.ended(1);
        let is_refused = server.ends.lock().expect("whole")[..] == [CloseReason::NotAdmitted];
        assert_eq!(is_refused, wanted != "Ok(())");
        assert_eq!(server.client().call(Echo::NUMBER, b"x").expect("served"), b"x");
        server.stop();
    }
}

/// A server that sends these bytes and descriptors to every client.
fn lie(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL;
    let _ = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags);
}

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"lie", flags).expect("made");
    rustix::fs::ftruncate(&file, bytes).expect("set");
    rustix::fs::fcntl_add_seals(&file, seals).expect("sealed");
    file
}

/// Descriptors of every kind, good and bad.
fn any_descriptor(rng: &mut Rng) -> OwnedFd {
    let event = rustix::event::EventfdFlags::CLOEXEC;
    match rng.roll(8) {
        0 => memory(4096 + 2 * 65536, SealFlags::SHRINK),
        1 => memory(4096 + 2 * 65536, SealFlags::empty()),
        2 => memory(rng.roll(200_000), SealFlags::SHRINK),
        3 => rustix::event::eventfd(0, event).expect("made"),
        4 => std::fs::File::open("/dev/null").expect("there").into(),
        5 => std::io::pipe().expect("made").0.into(),
        6 => std::fs::File::open("/").expect("there").into(),
        _ => UnixStream::pair().expect("made").0.into(),
    }
}

#[test]
fn a_client_survives_any_descriptors_that_a_server_hands_out() {
    // E7, V43, X18: truncated, unsealed, of the wrong kind, too few, too many.
    let _alone = alone();
    let before = held();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("liar");
    let listener = UnixListener::bind(&path).expect("bound");
    let count = rounds(300, 20_000);
    let liar = std::thread::spawn(move || {
        let mut rng = Rng(0x1234_5678_9abc_def1);
        for _ in 0..count {
            let (mut socket, _) = listener.accept().expect("accepted");
            socket.read_exact(&mut [0; 16]).expect("a greeting");
            let mut word = *b"SEKI-IPC\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0";
            if rng.roll(4) == 0 {
                word[rng.roll(32) as usize] = rng.next() as u8;
            }
            let some: Vec<OwnedFd> =
                (0..3 + rng.roll(3) - rng.roll(2)).map(|_| any_descriptor(&mut rng)).collect();
            let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            let end = if rng.roll(8) == 0 { rng.roll(32) as usize } else { 32 };
            lie(&socket, &word[..end], &some);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for round in 0..count {
        if round % 2 == 0 {
            if let Ok(mut stream) = ipc::BlockingStream::connect(connect(&path)) {
                stream.set_read_timeout(Some(Duration::from_millis(1)));
                assert!(sekisho_endpoint::blocking::Client::connect(stream, "x").is_err());
            }
        } else {
            runtime.block_on(async {
                let socket = tokio::net::UnixStream::connect(&path).await.expect("connected");
                let stream = ipc::Stream::connect(socket);
                let waited = Duration::from_millis(2);
                let client = tokio::time::timeout(waited, Client::connect(stream, "x")).await;
                assert!(!matches!(client, Ok(Ok(_))), "the client got no valid answer");
            });
        }
    }
    liar.join().expect("it ends");
    drop(runtime);
    assert_eq!(held(), before);
}
