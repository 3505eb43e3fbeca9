//! A client that comes back when its server does.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use sekisho_endpoint::{
    Address, Applicant, Backoff, CallError, Code, Config, Decision, Echo, Endpoint, Manner,
    NewRequest, ReconnectingClient, Services, service_fn,
};
use tokio::net::UnixListener;

use crate::addresses::{endpoint, run};

const QUICK: Backoff =
    Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(8), attempts: 12 };

fn listen(endpoint: &Rc<Endpoint>, path: &Path) {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("bound");
    tokio::task::spawn_local(Rc::clone(endpoint).listen_unix(listener));
}

#[test]
fn a_client_comes_back_after_its_server_has() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = Address::Unix(path.display().to_string());
        let client = ReconnectingClient::new(address, "returns", QUICK);
        let request = NewRequest::to(Echo::NUMBER).body(b"hello");
        for _ in 0..3 {
            let server = endpoint();
            listen(&server, &path);
            let first = client.session().await.expect("connected").session();
            for _ in 0..2 {
                assert_eq!(client.call(&request).await.expect("an answer"), b"hello");
            }
            assert_eq!(client.session().await.expect("connected").session(), first, "the same");
            server.shut_down_all(Manner::Forceful).await;
        }
    });
}

#[test]
fn a_server_that_comes_late_is_waited_for_and_one_that_does_not_come_is_not() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = Address::Unix(path.display().to_string());
        let client = ReconnectingClient::new(address.clone(), "waits", QUICK);
        let error = client.session().await.expect_err("no server");
        assert!(matches!(error, CallError::Transport(_)), "{error:?}");
        let patient = Backoff { attempts: u32::MAX, ..QUICK };
        let client = ReconnectingClient::new(address, "waits", patient);
        let server = endpoint();
        let comes = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            listen(&server, &path);
        };
        let (session, ()) = tokio::join!(client.session(), comes);
        assert!(session.is_ok());
    });
}

#[test]
fn a_call_in_flight_ends_with_an_error_that_says_so() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let mut services = Services::default();
        let silent = service_fn(|_, response| async move {
            response.cancelled().await;
        });
        services.add(1, "silent", silent).expect("free");
        let server = Endpoint::new(Config::default(), services);
        listen(&server, &path);
        let address = Address::Unix(path.display().to_string());
        let client = ReconnectingClient::new(address, "in flight", QUICK);
        client.session().await.expect("connected");
        let request = NewRequest::to(1);
        let ends = async {
            tokio::task::yield_now().await;
            while server.list().first().is_none_or(|session| session.requests.is_empty()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.shut_down_all(Manner::Forceful).await;
        };
        let (answer, ()) = tokio::join!(client.call(&request), ends);
        let error = answer.expect_err("the server went");
        // The service's own word if it came in time, or that of the session.
        assert!(error.is_session_over() || error.code() == Some(Code::Unknown), "{error:?}");
    });
}

#[test]
fn a_server_that_refuses_is_not_asked_again() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let refuses = Rc::new(|_: &Applicant<'_>| {
            Decision::Now(Err((Code::AuthenticationError, "not you".to_owned())))
        });
        let config = Config { authenticator: refuses, ..Config::default() };
        let server = Endpoint::new(config, Services::default());
        listen(&server, &path);
        let address = Address::Unix(path.display().to_string());
        let endless = Backoff { attempts: u32::MAX, ..QUICK };
        let client = ReconnectingClient::new(address, "refused", endless);
        let error = client.session().await.expect_err("refused");
        assert_eq!(error.code(), Some(Code::AuthenticationError));
        assert_eq!(server.counters().connected, 1);
    });
}
