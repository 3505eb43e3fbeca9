//! The blocking client and the listeners, over real sockets.

use std::rc::Rc;

use sekisho_endpoint::{Client, Manner, blocking, ipc};

use crate::world::{ECHO, ENDLESS, Loopback, PATIENT, STREAM, World, run};

#[test]
fn a_blocking_client_calls_streams_and_ends_over_tcp() {
    // E1, E10
    run(async {
        let world = World::<Loopback>::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::task::spawn_local(Rc::clone(&world.endpoint).listen_tcp(listener));
        let client = tokio::task::spawn_blocking(move || {
            let stream = std::net::TcpStream::connect(address).expect("connected");
            talk(blocking::Client::connect(stream, "blocking").expect("admitted"));
        });
        client.await.expect("the client is content");
        world.empty().await;
        world.endpoint.shut_down_all(Manner::Graceful).await;
    });
}

#[test]
fn a_unix_socket_is_listened_to_by_both_clients() {
    // E1, E10
    run(async {
        let world = World::<Loopback>::new();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("endpoint");
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        tokio::task::spawn_local(Rc::clone(&world.endpoint).listen_unix(listener));
        let stream = tokio::net::UnixStream::connect(&path).await.expect("connected");
        let client = Client::connect(stream, "async").await.expect("admitted");
        assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        let blocking = tokio::task::spawn_blocking(move || {
            let stream = std::os::unix::net::UnixStream::connect(path).expect("connected");
            talk(blocking::Client::connect(stream, "blocking").expect("admitted"));
        });
        blocking.await.expect("the client is content");
        world.endpoint.shut_down_all(Manner::Graceful).await;
        assert!(client.ended().await.is_err());
    });
}

#[test]
fn shared_memory_is_listened_for_by_both_clients() {
    // E7, E10
    run(async {
        let world = World::<Loopback>::new();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("endpoint");
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        let config = ipc::Config::default();
        tokio::task::spawn_local(Rc::clone(&world.endpoint).listen_ipc(listener, config));
        let stream = tokio::net::UnixStream::connect(&path).await.expect("connected");
        let stream = ipc::Stream::connect(stream);
        let client = Client::connect(stream, "async").await.expect("admitted");
        assert_eq!(client.call(ECHO, b"x").await.expect("a result"), b"x");
        let blocking = tokio::task::spawn_blocking(move || {
            let stream = std::os::unix::net::UnixStream::connect(path).expect("connected");
            let stream = ipc::BlockingStream::connect(stream).expect("shared");
            talk(blocking::Client::connect(stream, "blocking").expect("admitted"));
        });
        blocking.await.expect("the client is content");
        world.endpoint.shut_down_all(Manner::Graceful).await;
        assert!(client.ended().await.is_err());
    });
}

fn talk<S: blocking::Transport>(mut client: blocking::Client<S>) {
    for number in 0..100_u8 {
        assert_eq!(client.call(ECHO, &[number]).expect("a result"), [number]);
    }
    let first = client.request(ECHO, b"first").expect("made");
    let second = client.request(STREAM, b"5 70000").expect("made");
    let mut records = 0;
    while let Some(record) = client.next_record(&second).expect("alive") {
        assert_eq!(record.len(), 70_000);
        records += 1;
    }
    assert_eq!(records, 5);
    assert_eq!(client.answer(second).expect("a result"), b"done");
    assert_eq!(client.answer(first).expect("a result"), b"first");
    // More than the sockets hold, made before any answer is waited for.
    let large = vec![7; 1 << 20];
    let tickets: Vec<_> = (0..40).map(|_| client.request(ECHO, &large).expect("made")).collect();
    for ticket in tickets {
        assert_eq!(client.answer(ticket).expect("a result").len(), large.len());
    }
    let given_up = client.request(STREAM, b"50 70000").expect("made");
    client.abandon(given_up);
    assert!(client.extend(std::time::Duration::from_secs(1000)).is_ok());
    client.shut_down(Manner::Graceful).expect("as asked");
}

#[test]
fn what_a_blocking_client_says_leaves_though_it_does_not_wait() {
    // L28, L31
    run(async {
        let world = World::<Loopback>::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::task::spawn_local(Rc::clone(&world.endpoint).listen_tcp(listener));
        let (go_on, goes_on) = std::sync::mpsc::channel();
        let client = tokio::task::spawn_blocking(move || {
            let wait = || goes_on.recv().expect("told");
            let stream = std::net::TcpStream::connect(address).expect("connected");
            let mut client = blocking::Client::connect(stream, "blocking").expect("admitted");
            // Each time the server must learn of it while the client does something else.
            let ticket = client.request(STREAM, b"3 5").expect("made");
            assert_eq!(client.answer(ticket).expect("a result"), b"done");
            wait();
            let ticket = client.request(PATIENT, b"").expect("made");
            assert_eq!(client.call(ECHO, b"x").expect("a result"), b"x");
            client.cancel(&ticket);
            wait();
            assert!(client.answer(ticket).is_err());
            let ticket = client.request(ENDLESS, b"").expect("made");
            assert!(client.next_record(&ticket).expect("alive").is_some());
            client.abandon(ticket);
            wait();
        });
        let is_idle = |total| {
            let list = world.endpoint.list();
            list.iter().any(|info| info.requests_total == total && info.requests.is_empty())
        };
        world.until(|| is_idle(1)).await;
        go_on.send(()).expect("heard");
        world.noted("cancelled").await;
        go_on.send(()).expect("heard");
        world.until(|| is_idle(4)).await;
        go_on.send(()).expect("heard");
        client.await.expect("the client is content");
    });
}

#[test]
fn a_blocking_client_takes_what_it_wants_of_a_service_with_many_records() {
    // L28, E10
    run(async {
        let world = World::<Loopback>::new();
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
        far.set_nonblocking(true).expect("set");
        let far = tokio::net::UnixStream::from_std(far).expect("registered");
        tokio::task::spawn_local(world.endpoint.serve(far));
        let client = tokio::task::spawn_blocking(move || {
            let mut client = blocking::Client::connect(near, "some").expect("admitted");
            assert_eq!(client.call(ENDLESS, b"").expect("a result"), b"enough");
            let ticket = client.request(ENDLESS, b"").expect("made");
            assert!(client.next_record(&ticket).expect("alive").is_some());
            assert_eq!(client.answer(ticket).expect("a result"), b"enough");
        });
        client.await.expect("the client is content");
    });
}

#[test]
fn nobody_waits_for_ever_for_a_server_that_says_nothing() {
    // E10
    use sekisho_endpoint::{CallError, Options};
    use std::time::Duration;
    let timeout = Some(Duration::from_millis(30));
    let (near, _silent) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = Options { timeout, ..Options::default() };
        let error = blocking::Client::connect(near, options).expect_err("there is no server");
        assert!(
            matches!(&error, CallError::Transport(why) if why.kind() == std::io::ErrorKind::TimedOut),
            "{error:?}"
        );
        tell.send(()).expect("heard");
    });
    told.recv_timeout(Duration::from_secs(10)).expect("it gives up");
}

#[test]
fn the_admin_slot_is_for_the_own_user() {
    // E4
    use sekisho_endpoint::{Code, Config, Endpoint, Options, Services};
    run(async {
        let endpoint = Endpoint::new(Config::default(), Services::default());
        let admin = Options { admin: true, ..Options::default() };
        let (near, far) = tokio::net::UnixStream::pair().expect("a pair");
        tokio::task::spawn_local(endpoint.serve(far));
        assert!(Client::connect(near, admin.clone()).await.is_ok());
        let (near, far) = <crate::world::Tcp as crate::world::Transport>::pair().await;
        tokio::task::spawn_local(endpoint.serve(far));
        let error = Client::connect(near, admin).await.expect_err("not over TCP");
        assert_eq!(error.code(), Some(Code::PermissionError));
    });
}

#[test]
fn a_client_can_be_shared_between_threads() {
    // E10
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Client<tokio::net::TcpStream>>();
    is_shared::<Client<sekisho_endpoint::loopback::End>>();
    is_shared::<Client<ipc::Stream>>();
    is_shared::<sekisho_endpoint::Call<tokio::net::UnixStream>>();
}
