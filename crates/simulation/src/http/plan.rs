//! A world's plan, complete before it begins: which client comes when, with which requests and habits, over
//! which network; when the server is reloaded and stopped. It follows from the seed, and each client's part
//! from the seed and the client's number alone, so that a world can be tried with fewer of them.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Policy;
use sekisho_lifecycle::{Manner, Moment};

use super::planned_request::{PlannedRequest, Token};
use crate::Scope;
use crate::network::LinkProfile;
use crate::rng::Rng;

/// No more clients than this.
const CLIENTS_MAX: usize = 6;
/// By then every session is asked to end, whatever it does.
const HORIZON: Moment = Moment::from_millis(60_000);

/// What happens in a world.
#[derive(Debug)]
pub(super) struct Plan {
    /// The configurations, one after another, each with the policies of two servers.
    pub(super) sites: Vec<[Arc<Policy>; 2]>,
    /// When each but the first comes into effect.
    pub(super) reloads: Vec<Moment>,
    /// When the server is asked to end, and how.
    pub(super) stops: Vec<(Moment, Manner)>,
    /// `worker_shutdown_timeout`
    pub(super) grace: Option<Duration>,
    /// When an operator cancels what a client's request runs.
    pub(super) cancels: Vec<(Moment, usize)>,
    /// How many sessions there may be at a time.
    pub(super) sessions_max: usize,
    /// The clients.
    pub(super) clients: Vec<PlannedClient>,
}

/// A client.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what one client does, each independent")]
pub(super) struct PlannedClient {
    /// When it connects.
    pub(super) comes: Moment,
    /// What it asks for.
    pub(super) asks: Vec<PlannedRequest>,
    /// Where each request begins in its stream.
    pub(super) starts: Vec<usize>,
    /// Whether it asks on before it has its answers.
    pub(super) pipelines: bool,
    /// How much it sends at once, and how long it waits then.
    pub(super) drip: (usize, Duration),
    /// It sends no more than this.
    pub(super) stops_after: usize,
    /// How long it waits for a 100.
    pub(super) patience: Duration,
    /// How it reads.
    pub(super) reads: Reads,
    /// What it does at the end.
    pub(super) leaves: Leaves,
    /// Whether it sends on after an answer that announced the end of the connection.
    pub(super) is_rude: bool,
    /// When it resets the connection, or the network does.
    pub(super) resets: Option<Moment>,
    /// The way to the server, and back.
    pub(super) ways: [LinkProfile; 2],
    /// Whether files leave without being read.
    pub(super) sends_files: bool,
    /// Whether the transport knows what the client has acknowledged.
    pub(super) is_counted: bool,
}

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reads {
    /// As soon as something is there.
    Promptly,
    /// So many bytes at a time.
    Slowly(usize, Duration),
    /// Not after so many bytes.
    Until(usize),
}

/// What a client does when it has sent all and has all answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// It closes.
    Closes,
    /// It closes its side as soon as it has sent all.
    Halves,
    /// It waits for the server to close.
    Waits,
}

impl Plan {
    /// The plan of a seed.
    pub(super) fn draw(seed: u64, scope: Scope) -> Self {
        let rng = Rng::new(seed);
        let mut own = rng.apart(1 << 32);
        let reloads = own.pick(&[0, 0, 1, 3]);
        let mut times: Vec<Moment> =
            (0..reloads).map(|_| Moment::from_millis(own.within(0..=6000))).collect();
        times.sort_unstable();
        let count = own.size(1..=CLIENTS_MAX);
        let mut stops = Vec::new();
        let at = own.pick(&[3000, 10_000, 30_000, 30_000]);
        let first = Moment::from_millis(own.within(1..=at));
        let manner = if own.is_one_of(70) { Manner::Graceful } else { Manner::Forceful };
        stops.push((first, manner));
        if own.is_one_of(20) {
            stops.push((first + own.millis(0..=3000), Manner::Graceful));
        }
        stops.push((HORIZON, Manner::Forceful));
        stops.push((HORIZON + Duration::from_secs(20), Manner::Forceful));
        let sites = (0..=reloads)
            .map(|_| [Arc::new(draw_policy(&mut own)), Arc::new(draw_policy(&mut own))])
            .collect();
        let grace = own.is_one_of(60).then(|| own.millis(1..=8000));
        let cancels = (0..own.size(0..=2))
            .map(|_| (Moment::from_millis(own.within(0..=5000)), own.size(0..=count - 1)))
            .collect();
        let is_left_out = |client: usize| scope.only.is_some_and(|only| only != client);
        let clients = (0..count)
            .map(|client| {
                let mut planned = PlannedClient::draw(client, &mut rng.apart(client as u64));
                planned.keep(if is_left_out(client) { 0 } else { scope.asks_max });
                planned
            })
            .collect();
        let sessions_max = own.pick(&[2, 100, 100]);
        Self { sites, reloads: times, stops, grace, cancels, sessions_max, clients }
    }
}

impl PlannedClient {
    fn draw(client: usize, rng: &mut Rng) -> Self {
        // Worlds without unusual events get furthest.
        let is_calm = rng.is_one_of(50);
        let count = rng.pick(&[1, 2, 4, 9, 16]);
        let asks: Vec<PlannedRequest> = (0..count)
            .map(|ask| PlannedRequest::draw(Token { client, ask }, is_calm, rng))
            .collect();
        let (starts, all) = starts(&asks);
        let stops_after =
            if !is_calm && rng.is_one_of(25) { rng.size(0..=all) } else { usize::MAX };
        let drip = match rng.within(0..=5) {
            _ if is_calm => (usize::MAX, Duration::ZERO),
            0..=2 => (usize::MAX, Duration::ZERO),
            3 => (rng.size(1..=200), rng.millis(0..=20)),
            4 => (rng.size(1..=40), rng.millis(1..=60)),
            _ => (rng.size(1..=3000), rng.millis(1..=900)),
        };
        Self {
            comes: Moment::from_millis(rng.within(0..=3000)),
            asks,
            starts,
            pipelines: rng.is_one_of(50),
            drip,
            stops_after,
            patience: rng.millis(1..=800),
            reads: match rng.within(0..=9) {
                _ if is_calm => Reads::Promptly,
                0..=6 => Reads::Promptly,
                7 | 8 => Reads::Slowly(rng.pick(&[1, 50, 700]), rng.millis(1..=400)),
                _ => Reads::Until(rng.size(0..=3000)),
            },
            leaves: rng.pick(&[Leaves::Closes, Leaves::Closes, Leaves::Halves, Leaves::Waits]),
            is_rude: rng.is_one_of(30),
            resets: (!is_calm && rng.is_one_of(20))
                .then(|| Moment::from_millis(rng.within(0..=6000))),
            ways: [LinkProfile::draw(is_calm, rng), LinkProfile::draw(is_calm, rng)],
            sends_files: rng.is_one_of(60),
            is_counted: rng.is_one_of(60),
        }
    }

    /// Keeps so many of its requests; none: it does not come.
    fn keep(&mut self, asks_max: usize) {
        self.asks.truncate(asks_max);
        self.starts.truncate(asks_max + 1);
    }

    /// Where the head of a request ends.
    pub(super) fn head_end(&self, ask: usize) -> usize {
        self.starts[ask] + self.asks[ask].head.len()
    }

    /// Where a request ends.
    pub(super) fn end(&self, ask: usize) -> usize {
        self.starts[ask] + self.asks[ask].len()
    }

    /// Whether it ever stops reading, resets or leaves early: such a one is owed less.
    pub(super) fn is_kind(&self) -> bool {
        self.reads == Reads::Promptly && self.resets.is_none()
    }
}

fn starts(asks: &[PlannedRequest]) -> (Vec<usize>, usize) {
    let mut at = 0;
    let mut starts = vec![0];
    for ask in asks {
        at += ask.len();
        starts.push(at);
    }
    (starts, at)
}

fn draw_policy(rng: &mut Rng) -> Policy {
    let is_calm = rng.is_one_of(60);
    let patience = if is_calm { 5 } else { 1 };
    let mut timeout = |off: u64, longest: u64| {
        let longest = longest * patience;
        let least = rng.pick(&[1, longest / 4, longest / 2]);
        (is_calm || !rng.is_one_of(off)).then(|| rng.millis(least..=longest))
    };
    let (header_timeout, body_timeout) = (timeout(5, 3000), timeout(10, 2000));
    let (keepalive_timeout, send_timeout) = (timeout(8, 3000), timeout(10, 3000));
    let (lingering_timeout, lingering_time) = (timeout(5, 1000), timeout(5, 4000));
    Policy {
        header_timeout,
        body_timeout,
        body_min_rate: rng.is_one_of(25).then(|| rng.within(10..=5000)),
        keepalive_timeout,
        send_timeout,
        lingering_timeout,
        lingering_time,
        keepalive_requests: if is_calm { 1000 } else { rng.pick(&[1, 3, 10, 1000]) },
        body_discard_max: if is_calm { 1 << 20 } else { rng.pick(&[0, 150, 1000, 1 << 20]) },
        half_close: rng.is_one_of(40),
        ..Policy::default()
    }
}
