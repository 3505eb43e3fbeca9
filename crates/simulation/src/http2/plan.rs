//! What the seed decides of an HTTP/2 world: who comes when, what is asked for on which stream, what handlers do, and
//! when an operator asks for the end.

use sekisho_lifecycle::Moment;

use crate::Scope;
use crate::network::LinkProfile;
use crate::rng::Rng;

/// By then every deadline has fallen that can: nobody is left, however clients behave.
pub(super) const NOBODY_IS_LEFT: Moment = Moment::from_millis(600_000);
/// How large windows are where nobody is stingy.
const WINDOW_BYTES: u32 = 65_535;

/// A world.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: Vec<PlannedClient>,
    /// When a graceful end is asked for, before all is over.
    pub(super) drains: Option<Moment>,
    /// When it becomes a forceful one.
    pub(super) forces: Option<Moment>,
    pub(super) reloads: Option<Moment>,
}

/// A client.
#[derive(Clone, Debug)]
pub(super) struct PlannedClient {
    pub(super) comes: Moment,
    pub(super) ways: [LinkProfile; 2],
    /// Nothing stalls on its way.
    pub(super) is_calm: bool,
    /// How much it lets each stream send before it opens the window.
    pub(super) window: u32,
    /// It never opens a window.
    pub(super) is_stingy: bool,
    /// How and when it goes, without a word of HTTP/2.
    pub(super) vanishes: Option<(Moment, Vanish)>,
    /// It ends the connection when it has all.
    pub(super) closes: bool,
    pub(super) streams: Vec<PlannedStream>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vanish {
    Reset,
    Fin,
    /// It neither reads nor writes any more.
    Silence,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct PlannedStream {
    pub(super) opens: Moment,
    /// How long its body is; `None` for a `GET`.
    pub(super) upload: Option<usize>,
    /// When the client resets it.
    pub(super) resets: Option<Moment>,
    pub(super) script: Script,
}

/// What its handler does.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// It answers at once, and looks at no body.
    pub(super) is_at_once: bool,
    pub(super) body_bytes: usize,
    pub(super) says_length: bool,
    /// Before the head, and before each piece of the body, in milliseconds.
    pub(super) pause: u64,
    pub(super) piece_bytes: usize,
    /// How many bytes of an upload it takes in one go.
    pub(super) takes_max: usize,
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Done,
    /// Half of the body is all there will be.
    Break,
    /// There is no head, but a failure.
    Fail,
    /// It waits until it is dropped.
    Hang,
}

impl PlannedClient {
    /// Whether it does all that HTTP/2 asks of it, in time: then it is owed every answer.
    pub(super) fn is_good(&self) -> bool {
        self.is_calm && !self.is_stingy && self.vanishes.is_none()
    }
}

impl Plan {
    pub(super) fn draw(seed: u64, scope: Scope) -> Self {
        let dice = Rng::new(seed);
        let mut rng = dice.apart(1);
        let count = rng.size(1..=4);
        let clients = (0..count).map(|at| {
            let mut client = PlannedClient::draw(&mut dice.apart(100 + at as u64));
            client.streams.truncate(scope.asks_max);
            if scope.only.is_some_and(|only| only != at) {
                client.streams.clear();
            }
            client
        });
        let clients = clients.collect();
        let mut later = |cases, most| rng.is_one_of(cases).then(|| rng.millis(0..=most));
        let drains = later(50, 4000).map(|after| Moment::ZERO + after);
        let forces = later(30, 3000).and_then(|after| Some(drains? + after));
        let reloads = later(20, 4000).map(|after| Moment::ZERO + after);
        Self { clients, drains, forces, reloads }
    }
}

impl PlannedClient {
    fn draw(rng: &mut Rng) -> Self {
        let is_calm = rng.is_one_of(70);
        let mut way = || LinkProfile {
            capacity: rng.pick(&[600, 2000, 1 << 16]),
            ..LinkProfile::draw(is_calm, rng)
        };
        let ways = [way(), way()];
        let is_stingy = rng.is_one_of(10);
        let comes = Moment::ZERO + rng.millis(0..=1000);
        let vanish = rng.pick(&[Vanish::Reset, Vanish::Fin, Vanish::Silence]);
        let vanishes = rng.is_one_of(20).then(|| (comes + rng.millis(0..=3000), vanish));
        let streams = (0..rng.size(1..=8)).map(|_| {
            let spread = rng.pick(&[0, 100, 3000]);
            let opens = comes + rng.millis(0..=spread);
            let upload = rng.is_one_of(30).then(|| rng.pick(&[0, 1, 700, 9000]));
            let resets = rng.is_one_of(15).then(|| opens + rng.millis(0..=500));
            // Only who is told that its client is gone may wait for that.
            let is_told = resets.is_some() && vanishes.is_none_or(|(_, how)| how == Vanish::Reset);
            PlannedStream { opens, upload, resets, script: Script::draw(rng, is_told) }
        });
        let mut streams: Vec<_> = streams.collect();
        streams.sort_by_key(|stream| stream.opens);
        let window = if rng.is_one_of(70) && !is_stingy { WINDOW_BYTES } else { 200 };
        let closes = rng.is_one_of(50);
        Self { comes, ways, is_calm, window, is_stingy, vanishes, closes, streams }
    }
}

impl Script {
    fn draw(rng: &mut Rng, may_hang: bool) -> Self {
        let ending = match rng.within(0..=99) {
            0..=9 => Ending::Break,
            10..=14 => Ending::Fail,
            15..=40 if may_hang => Ending::Hang,
            _ => Ending::Done,
        };
        let body_bytes = rng.pick(&[0, 1, 100, 3000, 20_000]);
        Self {
            is_at_once: ending == Ending::Done && rng.is_one_of(40),
            // There must be something to break off.
            body_bytes: if ending == Ending::Break { body_bytes.max(100) } else { body_bytes },
            says_length: rng.is_one_of(50),
            pause: rng.pick(&[0, 0, 5, 50, 300]),
            // At most so many pauses, or a world would not come to its end.
            piece_bytes: rng.pick(&[50, 1000, 50_000]).max(body_bytes / 20),
            takes_max: rng.pick(&[100, 5000, 1 << 20]),
            ending,
        }
    }

    /// The body, byte for byte: another one for each stream.
    pub(super) fn byte(client: usize, stream: usize, at: usize) -> u8 {
        b'a' + ((client * 7 + stream * 3 + at) % 26) as u8
    }
}
