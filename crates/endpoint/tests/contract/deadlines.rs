//! What takes too long.

use std::time::Duration;

use sekisho_endpoint::{Code, SessionSlots};
use sekisho_lifecycle::DeadlineKind;
use sekisho_native::frame::{Head, Kind};
use tokio::time::Instant;

use crate::world::{ECHO, PATIENT, World, failure};

const SHORT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_secs(10);

contract! {
    /// E2: a handshake that does not come; never early.
    #[test]
    async fn a_handshake_has_a_deadline() {
        let world = World::<T>::with(
            |policy| policy.handshake_timeout = Some(SHORT),
            SessionSlots::new(9, 1, 9),
        );
        let since = Instant::now();
        let mut raw = world.raw().await;
        raw.send(&[2, 0, 0]).await;
        assert_eq!(raw.bye().await, Code::SessionExpired);
        assert!(since.elapsed() >= SHORT);
        drop(raw);
        world.empty().await;
    }

    /// E2: a frame that begins and never ends.
    #[test]
    async fn a_half_frame_has_a_deadline() {
        let world = World::<T>::with(
            |policy| policy.frame_timeout = Some(SHORT),
            SessionSlots::new(9, 1, 9),
        );
        let mut raw = world.greeted().await;
        // Between frames no side is late.
        let armed = world.endpoint.list()[0].deadline.expect("armed");
        assert_eq!(armed.0.kind, DeadlineKind::Session);
        raw.request(1, ECHO, b"x").await;
        assert_eq!(raw.next().await.expect("an answer").0.kind, Kind::Result);
        let since = Instant::now();
        let mut wire = Vec::new();
        Head { length: 100, ..Head::of_slot(Kind::Request, 2) }.write(&mut wire);
        wire.extend_from_slice(b"half");
        raw.send(&wire).await;
        assert_eq!(raw.bye().await, Code::InvalidRequest);
        assert!(since.elapsed() >= SHORT);
        drop(raw);
        world.empty().await;
    }

    /// E6: without traffic a session expires; running requests are cancelled, and answer.
    #[test]
    async fn a_quiet_session_expires_and_what_runs_is_told() {
        let world = World::<T>::with(
            |policy| policy.session_timeout = Some(SHORT),
            SessionSlots::new(9, 1, 9),
        );
        let client = world.connect("quiet").await;
        let since = Instant::now();
        let mut call = client.request(PATIENT, b"").expect("made");
        assert_eq!(failure(&mut call).await, Code::OperationCancelled);
        assert!(since.elapsed() >= SHORT);
        let error = client.ended().await.expect_err("expired");
        assert_eq!(error.code(), Some(Code::SessionExpired));
        drop((call, client));
        world.empty().await;
    }

    /// E6: traffic keeps it alive; an extension only lengthens its life, up to a maximum.
    #[test]
    async fn traffic_and_extensions_keep_a_session_alive() {
        let world = World::<T>::with(
            |policy| {
                // Long enough for a machine that is busy with other things.
                policy.session_timeout = Some(LONG);
                policy.session_extension_max = Duration::from_mins(1);
            },
            SessionSlots::new(9, 1, 9),
        );
        let since = Instant::now();
        let client = world.connect("alive").await;
        let armed = || world.endpoint.list()[0].deadline.expect("armed");
        let first = armed().0;
        assert_eq!(first.kind, DeadlineKind::Session);
        // Each call moves the deadline, to one whole timeout from then on.
        while armed().0.at.since(first.at) < SHORT {
            client.call(ECHO, b"x").await.expect("alive");
            assert!(armed().1 <= LONG);
        }
        assert!(since.elapsed() >= SHORT, "no faster than time passes");
        let life = client.extend(Duration::from_secs(30)).await.expect("alive");
        assert!(life > Duration::from_secs(29) && life <= Duration::from_secs(30), "{life:?}");
        let shorter = client.extend(Duration::from_secs(1)).await.expect("alive");
        assert!(shorter > Duration::from_secs(29), "never shortened: {shorter:?}");
        client.call(ECHO, b"x").await.expect("alive");
        assert!(armed().1 > Duration::from_secs(29), "nor by traffic: {:?}", armed().1);
        let most = client.extend(Duration::from_mins(100)).await.expect("alive");
        assert!(most <= Duration::from_mins(1), "{most:?}");
        assert_eq!(armed().0.kind, DeadlineKind::Session);
    }
}
