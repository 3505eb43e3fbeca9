//! What became of a world: how much happened in it, or what went wrong, with the smallest part of the world
//! in which it still goes wrong, and how to see it again.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Fault, Scope, http, http2, native};

/// How many lines of a trace a failure shows.
const SHOWN_LINES: usize = 60;
/// How many requests of a client are tried one after another to make a failing world smaller.
const ASKS_TRIED: usize = 16;
/// How many clients are tried alone.
const CLIENTS_TRIED: usize = 6;

/// The kinds of world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    /// HTTP/1 clients, a server with handlers, programs, reloads and shutdowns.
    Http,
    /// HTTP/2 clients with many streams each.
    Http2,
    /// Native sessions, both sides.
    Native,
}

/// What happened in a world, or in many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunStats {
    /// Worlds.
    pub worlds: u64,
    /// Sessions.
    pub sessions: u64,
    /// Requests that a handler saw, or that were refused.
    pub requests: u64,
    /// Answers that reached their client completely.
    pub answers: u64,
    /// Answers that their client could see were not whole.
    pub cut: u64,
    /// Deadlines that fell.
    pub deadlines: u64,
    /// Requests that were cancelled.
    pub cancels: u64,
    /// Steps: wake-ups and looks at input.
    pub steps: u64,
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of world.
    pub world: World,
    /// Its seed.
    pub seed: u64,
    /// What was broken.
    pub violation: String,
    /// The part of the world that was enough for it.
    pub scope: Scope,
    /// What led to it there.
    pub trace: Vec<String>,
}

/// Plays the world of a seed.
pub fn check(world: World, seed: u64, fault: Option<Fault>) -> Result<RunStats, Box<Failure>> {
    match sim(world, seed, fault, Scope::WHOLE, false) {
        Ok(stats) => Ok(stats),
        Err(_) => Err(Box::new(smallest(world, seed, fault))),
    }
}

/// Looks for the smallest part of a failing world that still fails, and plays it with a trace.
fn smallest(world: World, seed: u64, fault: Option<Fault>) -> Failure {
    let fails = |scope| sim(world, seed, fault, scope, false).is_err();
    let alone = (0..CLIENTS_TRIED)
        .map(|client| Scope { only: Some(client), ..Scope::WHOLE })
        .find(|scope| fails(*scope));
    let scope = alone.unwrap_or(Scope::WHOLE);
    let shorter =
        (1..ASKS_TRIED).map(|asks_max| Scope { asks_max, ..scope }).find(|scope| fails(*scope));
    let scope = shorter.unwrap_or(scope);
    let (violation, trace) = match sim(world, seed, fault, scope, true) {
        Err(told) => told,
        Ok(_) => {
            ("it went wrong once and not again: something is left to chance".into(), Vec::new())
        }
    };
    Failure { world, seed, violation, scope, trace }
}

type Told = (String, Vec<String>);

fn sim(
    world: World,
    seed: u64,
    fault: Option<Fault>,
    scope: Scope,
    is_traced: bool,
) -> Result<RunStats, Told> {
    let played = catch_unwind(AssertUnwindSafe(|| match world {
        World::Http => http::sim(seed, fault, scope, is_traced),
        World::Http2 => http2::sim(seed, fault, scope, is_traced),
        World::Native => native::sim(seed, fault, scope, is_traced),
    }));
    played.unwrap_or_else(|panic| Err((format!("a panic: {}", panic_text(&*panic)), Vec::new())))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

impl RunStats {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.sessions += other.sessions;
        self.requests += other.requests;
        self.answers += other.answers;
        self.cut += other.cut;
        self.deadlines += other.deadlines;
        self.cancels += other.cancels;
        self.steps += other.steps;
    }
}

impl fmt::Display for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Native => "native",
        })
    }
}

impl fmt::Display for RunStats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worlds, sessions, requests, answers, cut, deadlines, cancels, steps } = self;
        write!(
            out,
            "{worlds} worlds, {sessions} sessions, {requests} requests, {answers} whole answers, {cut} visibly cut, \
             {deadlines} deadlines, {cancels} cancels, {steps} steps"
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, seed, violation, scope, trace } = self;
        writeln!(out, "seed {seed} of the {world} world: {violation}")?;
        if let Some(client) = scope.only {
            writeln!(out, "with client {client} alone, {} requests at the most", scope.asks_max)?;
        }
        for line in &trace[trace.len().saturating_sub(SHOWN_LINES)..] {
            writeln!(out, "  {line}")?;
        }
        write!(out, "again: cargo xtask simulate {world} --seed {seed}")
    }
}
