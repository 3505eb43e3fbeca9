//! What an operator sees and does.

use std::time::Duration;

use prost::Message as _;
use sekisho_endpoint::control::{self, ControlRequest, Finding, Outcome, ServiceList, What};
use sekisho_endpoint::{Code, FindError, Manner, Options};
use sekisho_lifecycle::Session;
use tokio::time::Instant;

use crate::world::{ECHO, HOLD, PATIENT, World, failure};

contract! {
    /// L34: every session is seen with what it is and does.
    #[test]
    async fn sessions_are_seen_live() {
        let world = World::<T>::new();
        let options = Options { application: "tests".into(), ..Options::from("shown") };
        let client = world.try_connect(options).await.expect("admitted");
        let mut call = client.request(HOLD, b"x").expect("made");
        client.flush().await.expect("sent");
        world.held(1).await;
        let shown = world.endpoint.show(client.session()).expect("it is there");
        assert_eq!((&*shown.label, &*shown.application), ("shown", "tests"));
        assert_eq!(shown.state, Session::Processing(std::num::NonZeroU32::MIN));
        assert_eq!(shown.requests[0].service_name.as_deref(), Some("hold"));
        assert!(shown.deadline.is_some_and(|(_, left)| left > Duration::from_secs(290)));
        world.release(b"x").await;
        call.answer().await.expect("a result");
        world.until(|| world.endpoint.list()[0].state == Session::Idle).await;
    }

    /// E9: a session is meant by its number or its label; an ambiguous label means none.
    #[test]
    async fn an_ambiguous_label_is_an_error() {
        let world = World::<T>::new();
        let one = world.connect("twin").await;
        let two = world.connect("twin").await;
        let only = world.connect("only").await;
        assert_eq!(world.endpoint.find("only"), Ok(only.session()));
        let twins = vec![one.session(), two.session()];
        assert_eq!(world.endpoint.find("twin"), Err(FindError::Ambiguous(twins)));
        assert_eq!(world.endpoint.find(&format!(":{}", two.session())), Ok(two.session()));
        for none in ["nobody", ":999", ":", ":x", ""] {
            assert_eq!(world.endpoint.find(none), Err(FindError::None), "{none}");
        }
        drop(one);
        world.until(|| world.endpoint.find("twin") == Ok(two.session())).await;
    }

    /// L15: what an operator orders happens at once.
    #[test]
    async fn a_session_is_shut_down_from_outside_at_once() {
        let world = World::<T>::new();
        for manner in [Manner::Graceful, Manner::Forceful] {
            let client = world.connect("controlled").await;
            client.call(ECHO, b"x").await.expect("a result");
            let since = Instant::now();
            assert!(world.endpoint.shut_down(client.session(), manner));
            let error = client.ended().await.expect_err("not as we asked");
            assert_eq!(error.code(), Some(Code::SessionClosed));
            assert!(since.elapsed() < Duration::from_millis(500));
        }
        assert!(!world.endpoint.shut_down(4711, Manner::Graceful));
        world.empty().await;
    }

    async fn an_admin_session_controls_the_endpoint() {
        // E9, L34
        let world = World::<T>::new();
        let client = world.connect("worker").await;
        let options = Options { admin: true, ..Options::from("operator") };
        let operator = world.try_connect(options).await.expect("admitted");
        let ask = async |what: What| {
            let request = ControlRequest { what: Some(what), ..ControlRequest::default() }.encode_to_vec();
            operator.call_named("control", &request).await
        };
        let outcome = async |what| Outcome::decode(&ask(what).await.expect("done")[..]).expect("read");
        let list = ask(What::ListServices(control::ListServices {})).await.expect("listed");
        let list = ServiceList::decode(&list[..]).expect("it can be read");
        let of = |name: &str| list.services.iter().find(|it| it.name == name).expect("there");
        assert!(of("control").schema.contains("message ControlRequest"));
        assert!(of("collect").takes_stream && !of("echo").takes_stream);
        assert_eq!(of("echo").number, ECHO);
        let mut call = client.request(PATIENT, b"").expect("made");
        client.flush().await.expect("sent");
        world.noted("patient").await;
        let mut listing = operator
            .request(control::NUMBER, &ControlRequest { what: Some(What::List(control::List {})), ..ControlRequest::default() }.encode_to_vec())
            .expect("made");
        let record = listing.next_record().await.expect("alive").expect("a record");
        let sessions = control::Sessions::decode(&record[..]).expect("it can be read").sessions;
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions[0].requests[0].handler, "patient");
        let reference = "worker".to_owned();
        let show = outcome(What::Show(control::Reference { reference: reference.clone() })).await;
        assert_eq!(show.sessions[0].id, client.session());
        let cancel = control::Cancel { reference: reference.clone(), request: 0 };
        assert_eq!(outcome(What::Cancel(cancel.clone())).await.cancelled, 1);
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
        assert_eq!(outcome(What::Cancel(cancel)).await.finding(), Finding::NothingRuns);
        let end = control::ShutDown { reference, forceful: false };
        assert_eq!(outcome(What::ShutDown(end.clone())).await.finding(), Finding::Done);
        assert!(client.ended().await.is_err());
        drop((call, client));
        world.until(|| world.endpoint.list().len() == 1).await;
        assert_eq!(outcome(What::ShutDown(end)).await.finding(), Finding::NotFound);
        let reload = ask(What::Reload(control::Reload {})).await.expect_err("not here");
        assert_eq!(reload.code(), Some(Code::UnsupportedOperation));
        // Nobody else may.
        let other = world.connect("other").await;
        let refused = other.call(control::NUMBER, b"").await.expect_err("refused");
        assert_eq!(refused.code(), Some(Code::PermissionError));
    }
}
