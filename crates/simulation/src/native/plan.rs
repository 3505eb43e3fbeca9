//! What happens in a native world: the clients, what they ask for and when, what the services do, how both
//! sides end it.

use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::{Manner, Moment};
use sekisho_native::Policy;

use crate::Scope;
use crate::network::LinkProfile;
use crate::rng::Rng;

/// No more clients than this.
const CLIENTS_MAX: usize = 4;
/// By then every session is asked to end, whatever it does.
const HORIZON: Moment = Moment::from_millis(40_000);

/// What happens in a world.
#[derive(Debug)]
pub(super) struct Plan {
    /// What sessions may use.
    pub(super) policy: Arc<Policy>,
    /// When the endpoint shuts its sessions down, and how.
    pub(super) stops: Vec<(Moment, Manner)>,
    /// The clients.
    pub(super) clients: Vec<PlannedClient>,
}

/// A client.
#[derive(Clone, Debug)]
pub(super) struct PlannedClient {
    /// The minor version that it speaks.
    pub(super) minor: u32,
    /// It says nothing about the end of a channel.
    pub(super) drains_at_end: bool,
    /// When it connects.
    pub(super) comes: Moment,
    /// What it asks for.
    pub(super) asks: Vec<PlannedCall>,
    /// What else it does, and when.
    pub(super) acts: Vec<(Moment, Act)>,
    /// How long it needs for a record.
    pub(super) takes: Duration,
    /// How much it reads at a time, and how long it waits then; none: it does not read after that moment.
    pub(super) reads: (usize, Duration),
    /// It does not read from then on.
    pub(super) stops_reading: Option<Moment>,
    /// It sends nothing after so many bytes.
    pub(super) stops_after: usize,
    /// When the connection is lost.
    pub(super) resets: Option<Moment>,
    /// The way to the server, and back.
    pub(super) ways: [LinkProfile; 2],
}

/// What a client does, or an operator to its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// It cancels one of its requests.
    Cancel(usize),
    /// An operator cancels it.
    CancelFromOutside(usize),
    /// It wants no more of a channel.
    Drain(usize),
    /// It asks for a longer life.
    Extend(Duration),
    /// It asks for the end.
    ShutDown(Manner),
    /// The endpoint ends this session.
    ShutDownFromOutside(Manner),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedCall {
    /// When it is made at the earliest.
    pub(super) at: Moment,
    /// The length of its body.
    pub(super) bytes: usize,
    /// How many parts of its body follow, how long they are, and how long the client waits between them; only where it
    /// speaks 1.1.
    pub(super) upload: Option<(usize, usize, Duration)>,
    /// What the service does.
    pub(super) script: Script,
}

/// What a service does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    /// When it begins.
    pub(super) first: Duration,
    /// How many records it writes, how long they are, and how long it waits between them.
    pub(super) channel: Option<(usize, usize, Duration)>,
    /// Whether it answers while its channel is open, which is a bug of its own (L29).
    pub(super) forgets_release: bool,
    /// What it answers.
    pub(super) answer: Given,
    /// How long it keeps its handle after that.
    pub(super) stays: Duration,
    /// How long it takes to heed a cancel, if it does.
    pub(super) heeds: Option<Duration>,
}

/// What a service answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// A result of this length.
    Result(usize),
    /// An error.
    Error,
    /// Nothing: it drops its handle (L32).
    Nothing,
}

impl Plan {
    /// The plan of a seed.
    pub(super) fn draw(seed: u64, scope: Scope) -> Self {
        let rng = Rng::new(seed);
        let mut own = rng.apart(1 << 32);
        let mut timeout = |longest: u64| {
            let least = own.pick(&[1, longest / 4, longest / 2]);
            (!own.is_one_of(10)).then(|| own.millis(least..=longest))
        };
        let timeouts = [timeout(2000), timeout(1500), timeout(2500), timeout(6000), timeout(2000)];
        let [handshake_timeout, frame_timeout, send_timeout, session_timeout, drain_timeout] =
            timeouts;
        let policy = Policy {
            frame_bytes_max: own.pick(&[60, 400, 5000]) as u32,
            requests_max: own.pick(&[1, 3, 8]) as u32,
            channels_max: own.pick(&[1, 3, 8]) as u32,
            channel_bytes_max: own.pick(&[64, 200, 2000]) as u32,
            output_bytes_max: own.pick(&[100, 1000, 20_000]),
            handshake_timeout,
            decide_timeout: Duration::from_secs(10),
            frame_timeout,
            send_timeout,
            session_timeout,
            session_extension_max: own.millis(1..=20_000),
            drain_timeout,
            keepalive_min: Duration::from_secs(1),
            linger_timeout: own.millis(1..=1500),
        };
        let latest = own.pick(&[1000, 8000, 30_000]);
        let first = Moment::from_millis(own.within(1..=latest));
        let manner = if own.is_one_of(70) { Manner::Graceful } else { Manner::Forceful };
        let mut stops = vec![(first, manner)];
        if own.is_one_of(30) {
            stops.push((first + own.millis(0..=3000), Manner::Forceful));
        }
        stops.push((HORIZON, Manner::Forceful));
        let count = own.size(1..=CLIENTS_MAX);
        let is_left_out = |client: usize| scope.only.is_some_and(|only| only != client);
        let clients = (0..count)
            .map(|client| {
                let mut planned = PlannedClient::draw(&policy, &mut rng.apart(client as u64));
                planned.asks.truncate(if is_left_out(client) { 0 } else { scope.asks_max });
                planned
            })
            .collect();
        Self { policy: Arc::new(policy), stops, clients }
    }
}

impl PlannedClient {
    fn draw(policy: &Policy, rng: &mut Rng) -> Self {
        let comes = Moment::from_millis(rng.within(0..=2000));
        // Worlds without unusual events get furthest.
        let is_calm = rng.is_one_of(50);
        let count = rng.pick(&[1, 3, 8, 20]);
        let span = rng.pick(&[0, 500, 5000]);
        let asks: Vec<PlannedCall> =
            (0..count).map(|_| PlannedCall::draw(comes, span, policy, rng)).collect();
        let mut acts: Vec<(Moment, Act)> = (0..rng.size(0..=4))
            .map(|_| {
                let at = comes + rng.millis(0..=5000);
                let ask = rng.size(0..=count - 1);
                let manner = if rng.is_one_of(60) { Manner::Graceful } else { Manner::Forceful };
                let act = match rng.within(0..=9) {
                    0..=3 => Act::Cancel(ask),
                    4 => Act::CancelFromOutside(ask),
                    5 | 6 => Act::Drain(ask),
                    7 => Act::Extend(rng.millis(0..=30_000)),
                    8 => Act::ShutDown(manner),
                    _ => Act::ShutDownFromOutside(manner),
                };
                (at, act)
            })
            .collect();
        acts.sort_by_key(|(at, _)| *at);
        Self {
            minor: u32::from(rng.is_one_of(70)),
            drains_at_end: rng.is_one_of(50),
            comes,
            asks,
            acts,
            takes: rng.millis(0..=rng.clone().pick(&[0, 20, 300])),
            reads: match rng.within(0..=3) {
                0..=2 => (usize::MAX, Duration::ZERO),
                _ => (rng.size(20..=300), rng.millis(1..=200)),
            },
            stops_reading: (!is_calm && rng.is_one_of(15)).then(|| comes + rng.millis(0..=3000)),
            stops_after: if !is_calm && rng.is_one_of(15) { rng.size(0..=600) } else { usize::MAX },
            resets: (!is_calm && rng.is_one_of(25)).then(|| comes + rng.millis(0..=5000)),
            ways: [LinkProfile::draw(is_calm, rng), LinkProfile::draw(is_calm, rng)],
        }
    }
}

impl PlannedCall {
    fn draw(comes: Moment, span: u64, policy: &Policy, rng: &mut Rng) -> Self {
        let most = policy.frame_bytes_max as usize;
        let record_max = (policy.channel_bytes_max as usize - 12).min(most);
        let channel = rng.is_one_of(50).then(|| {
            (rng.pick(&[0, 1, 5, 30]), rng.size(9..=record_max.max(9)), rng.millis(0..=30))
        });
        let script = Script {
            first: rng.millis(0..=rng.clone().pick(&[0, 100, 1500])),
            channel,
            forgets_release: rng.is_one_of(8),
            answer: match rng.within(0..=9) {
                0..=6 => Given::Result(rng.size(8..=most)),
                7 | 8 => Given::Error,
                _ => Given::Nothing,
            },
            stays: rng.millis(0..=rng.clone().pick(&[0, 0, 400])),
            heeds: rng.is_one_of(80).then(|| rng.millis(0..=100)),
        };
        let upload = rng.is_one_of(30).then(|| {
            (rng.pick(&[0, 1, 5, 30]), rng.size(9..=record_max.max(9)), rng.millis(0..=30))
        });
        Self { at: comes + rng.millis(0..=span), bytes: rng.size(8..=most), upload, script }
    }
}
