//! Clients that go in the middle of everything, over and over.

use sekisho_endpoint::{CloseReason, SessionSlots};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello, Shutdown};

use crate::world::{ECHO, ENDLESS, FORGET, HASTY, PATIENT, STREAM, World};

/// Numbers that look random and are the same in every run.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What a client wants to say before it goes, of which it may say only a part.
fn speech(rng: &mut Rng) -> Vec<u8> {
    let mut wire = Vec::new();
    message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
    for slot in 0..rng.roll(12) as u16 {
        let services = [ECHO, ENDLESS, FORGET, HASTY, PATIENT, STREAM];
        let service = services[rng.roll(6) as usize];
        let head = Head { word: service, ..Head::of_slot(Kind::Request, slot) };
        frame::write(&mut wire, head, b"50 3000");
        match rng.roll(8) {
            0 => Head::of_slot(Kind::Cancel, slot).write(&mut wire),
            1 => Head::of_slot(Kind::Drained, slot).write(&mut wire),
            2 => message::write(&mut wire, Kind::Shutdown, 0, &Shutdown { forceful: false }),
            3 => message::write(&mut wire, Kind::Shutdown, 0, &Shutdown { forceful: true }),
            _ => {}
        }
    }
    if rng.roll(3) == 0 {
        wire.truncate(rng.roll(wire.len() as u64 + 1) as usize);
    }
    wire
}

contract! {
    /// L12, L13, L14, V44: whatever a client was doing, nothing of it is left, and its end has a reason.
    #[test]
    async fn vanished_clients_leave_nothing_behind() {
        let world = World::<T>::with(|_| {}, SessionSlots::new(50, 1, 50));
        let mut rng = Rng(0x5e71_5b0f_0d0d_0001);
        for round in 0..200 {
            let mut raw = world.raw().await;
            raw.send(&speech(&mut rng)).await;
            for _ in 0..rng.roll(20) {
                tokio::task::yield_now().await;
            }
            if rng.roll(2) == 0 {
                // It hears a little first.
                let heard = std::time::Duration::from_millis(1);
                let _ = tokio::time::timeout(heard, raw.next()).await;
            }
            drop(raw);
            if round % 20 == 0 {
                world.empty().await;
            }
        }
        world.empty().await;
        world.until(|| world.endpoint.connections() == 0).await;
        let ends = world.shared.ends.borrow();
        assert_eq!(ends.len(), 200);
        for reason in [CloseReason::PeerClosed, CloseReason::PeerClosedEarly] {
            assert!(ends.contains(&reason), "{reason:?} among {ends:?}");
        }
    }
}
