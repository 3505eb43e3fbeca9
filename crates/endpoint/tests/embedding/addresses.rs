//! `connect` by address, with and without a runtime.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use sekisho_endpoint::{
    CallError, Config, Echo, Endpoint, Manner, Services, connect, connect_blocking, ipc,
};
use tokio::net::{TcpListener, UnixListener};

/// Waits in the tests are bounded by this.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(row: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("a runtime"), async {
        tokio::time::timeout(PATIENCE, row).await.expect("it comes to its end");
    });
}

/// An endpoint with `echo` that takes every client.
pub(crate) fn endpoint() -> Rc<Endpoint> {
    let mut services = Services::default();
    services.add(Echo::NUMBER, "echo", Rc::new(Echo)).expect("free");
    Endpoint::new(Config::default(), services)
}

/// The same, listening at an address of every kind.
async fn listening(folder: &std::path::Path) -> (Rc<Endpoint>, Vec<String>) {
    let endpoint = endpoint();
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut addresses = vec![format!("tcp://{}", tcp.local_addr().expect("bound"))];
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_tcp(tcp));
    let path = folder.join("unix");
    let unix = UnixListener::bind(&path).expect("bound");
    addresses.push(format!("unix:{}", path.display()));
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_unix(unix));
    let path = folder.join("ipc");
    let shared = UnixListener::bind(&path).expect("bound");
    addresses.push(format!("ipc:{}", path.display()));
    let memory = ipc::Config::default();
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(shared, memory));
    (endpoint, addresses)
}

#[test]
fn every_kind_of_address_is_connected_to() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (endpoint, addresses) = listening(folder.path()).await;
        for address in &addresses {
            let client = connect(address, "async").await.expect("admitted");
            assert_eq!(client.call_named("echo", b"hello").await.expect("an answer"), b"hello");
            client.shut_down(Manner::Graceful).await.expect("in order");
        }
        for address in addresses {
            let called = tokio::task::spawn_blocking(move || {
                let mut client = connect_blocking(&address, "blocking").expect("admitted");
                let answer = client.call(Echo::NUMBER, b"hello").expect("an answer");
                client.shut_down(Manner::Graceful).expect("in order");
                answer
            });
            assert_eq!(called.await.expect("it ran"), b"hello");
        }
        endpoint.shut_down_all(Manner::Graceful).await;
    });
}

#[test]
fn what_cannot_be_connected_to_says_so() {
    run(async {
        let none = ["nonsense", "unix:/nowhere/at/all", "ipc:/nowhere", "tcp://127.0.0.1:1"];
        for address in none.into_iter().chain(["tls://127.0.0.1:1"]) {
            let error = connect(address, "").await.expect_err("not there");
            assert!(matches!(error, CallError::Transport(_)), "{address}: {error:?}");
            // A program that was built without TLS says that, and does not try again.
            let is_built = cfg!(feature = "tls") || !address.starts_with("tls:");
            assert_eq!(error.may_pass(), is_built && address != "nonsense", "{address}: {error:?}");
        }
    });
}

#[test]
fn sides_that_look_before_they_sleep_lose_nothing() {
    // E7
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoint = endpoint();
        let path = folder.path().join("ipc");
        let listener = UnixListener::bind(&path).expect("bound");
        let spin = Duration::from_micros(50);
        let memory = ipc::Config { spin, ..ipc::Config::default() };
        tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(listener, memory));
        let address = format!("ipc:{}", path.display());
        let options =
            sekisho_endpoint::Options { spin, ..sekisho_endpoint::Options::from("spins") };
        let asynchronous = connect(&address, options.clone()).await.expect("admitted");
        let blocking = tokio::task::spawn_blocking(move || {
            let mut client = connect_blocking(&address, options).expect("admitted");
            for number in 0..2000_u32 {
                // Now and then the other side has gone to sleep.
                if number.is_multiple_of(500) {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
                let body = number.to_le_bytes();
                assert_eq!(client.call(Echo::NUMBER, &body).expect("an answer"), body);
            }
            client.shut_down(Manner::Graceful).expect("in order");
        });
        for number in 0..2000_u32 {
            let body = number.to_le_bytes();
            assert_eq!(asynchronous.call(Echo::NUMBER, &body).await.expect("an answer"), body);
        }
        blocking.await.expect("it ran");
    });
}
