//! What an operator sees and does.

use std::time::Duration;

use sekisho_endpoint::{Code, FindError, Manner, Options};
use sekisho_lifecycle::Session;
use tokio::time::Instant;

use crate::world::{ECHO, HOLD, World};

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
}
