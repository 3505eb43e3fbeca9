//! The sweep: in each scenario the k-th call of each kind fails with each of its errors, for each k until the
//! scenario makes no such call. `SEKISHO_LONG=1` does all of it; otherwise a spread sample.
//!
//! After each fault: the server lives, what it said was right or an error, the next requests are served, and
//! descriptors, programs and files are what they were before.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Server, Signal, Stopwatch, have, pause, process, wait_for};

use crate::inject::{Fault, Hit, Injected, KINDS, Kind, hit};
use crate::scenario::{Cgi, Files, Native, Scenario, Seen, Uploads};

/// No scenario makes more calls of one kind in one thread, or it need not be known to the last.
const CALLS_MAX: u32 = 60;
/// Which calls are tried in the short form.
const SAMPLE: [u32; 4] = [1, 3, 7, 16];
/// A scenario that takes longer waits for something that does not come: for a deadline.
const STALL: Duration = Duration::from_secs(9);
/// How often the record of a fault is read.
const LOOK: Duration = Duration::from_millis(50);
/// What was begun must be over by then.
const CALM: Duration = Duration::from_secs(8);

pub(crate) fn is_long() -> bool {
    std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0")
}

/// X17, V26: no descriptors among others
#[test]
fn files_are_served_whatever_call_fails() {
    sweep(&Files);
}

/// X17, V26
#[test]
fn programs_run_or_fail_cleanly_whatever_call_fails() {
    sweep(&Cgi);
}

/// X17, F5
#[test]
fn uploads_are_whole_or_not_there_whatever_call_fails() {
    sweep(&Uploads);
}

/// X17, X18
#[test]
fn native_sessions_end_well_whatever_call_fails() {
    sweep(&Native);
}

fn sweep(scenario: &dyn Scenario) {
    if !have("strace") {
        return;
    }
    let only = std::env::var("FAULT").ok();
    let mut sweep = Sweep::start(scenario);
    for (number, kind) in KINDS.iter().enumerate() {
        if only.as_deref().is_some_and(|only| !only.split(',').any(|one| one == kind.name)) {
            continue;
        }
        if !sweep.kind(kind, number) {
            return;
        }
    }
    sweep.report();
}

/// A sweep under way.
struct Sweep<'a> {
    scenario: &'a dyn Scenario,
    server: Server,
    /// How many descriptors the server has when nothing happens.
    descriptors: usize,
    counts: BTreeMap<&'static str, usize>,
    restarts: usize,
    findings: Vec<String>,
}

impl<'a> Sweep<'a> {
    fn start(scenario: &'a dyn Scenario) -> Self {
        let server = scenario.start();
        let (counts, findings) = (BTreeMap::new(), Vec::new());
        let mut sweep = Self { scenario, server, descriptors: 0, counts, restarts: 0, findings };
        sweep.calibrate();
        sweep
    }

    /// The first rounds open what stays open. They must be without fault.
    fn calibrate(&mut self) {
        for _ in 0..3 {
            let seen = self.round();
            assert!(seen.is_perfect(), "without a fault: {seen:?}");
        }
        let mut last = 0;
        let is_calm = wait_for(CALM, || {
            let now = self.server.fds();
            let is_same = std::mem::replace(&mut last, now) == now;
            pause(Duration::from_millis(20));
            is_same && self.server.children().is_empty()
        });
        assert!(is_calm, "children {:?}", self.server.children());
        self.descriptors = self.server.fds();
    }

    /// One round of everything; a server that is gone in the middle of it is wrong as well.
    fn round(&self) -> Seen {
        let mut seen = Seen::default();
        let run = || self.scenario.run(&self.server, &mut seen);
        if std::panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
            seen.wrong("the round came to no end".to_owned());
        }
        seen
    }

    /// A round with a fault. Where it meets a call that cannot fail, such as one that wakes a thread, the server is killed:
    /// what waits for that call would wait for its deadline, and the fault does not count.
    fn round_under(&self, injected: &Injected) -> Seen {
        let is_over = AtomicBool::new(false);
        let (pid, log) = (self.server.id(), injected.log());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if hit(log) == Hit::Impossible {
                        let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
                        let _ = kill_process(pid, Signal::KILL);
                        return;
                    }
                    pause(LOOK);
                }
            });
            let seen = self.round();
            is_over.store(true, Ordering::Relaxed);
            seen
        })
    }

    /// All faults of one kind; `false` where tracing is not allowed.
    fn kind(&mut self, kind: &'static Kind, number: usize) -> bool {
        if is_long() {
            for error in kind.errors {
                for at in 1..=CALLS_MAX {
                    match self.fault(&Fault { kind, error, at }) {
                        None => return false,
                        Some(false) => break,
                        Some(true) => {}
                    }
                }
            }
        } else {
            for (turn, at) in SAMPLE.into_iter().enumerate() {
                let error = kind.errors[(turn + number) % kind.errors.len()];
                match self.fault(&Fault { kind, error, at }) {
                    None => return false,
                    Some(false) => break,
                    Some(true) => {}
                }
            }
        }
        true
    }

    /// One fault; whether there was such a call.
    fn fault(&mut self, fault: &Fault) -> Option<bool> {
        let injected = Injected::into(&self.server, fault)?;
        let watch = Stopwatch::start();
        let seen = self.round_under(&injected);
        let took = watch.elapsed();
        let calls = match injected.end() {
            Hit::None => {
                if !seen.is_perfect() {
                    self.find(fault, &format!("without a fault: {seen:?}"));
                }
                return Some(false);
            }
            Hit::Impossible => {
                self.recover(fault, false);
                return Some(true);
            }
            Hit::Calls(calls) => calls,
        };
        *self.counts.entry(fault.kind.name).or_default() += 1;
        let call = calls.join(" | ");
        for wrong in &seen.wrong {
            self.find(fault, &format!("{wrong} ({call})"));
        }
        if took > STALL && self.time_again(fault) > STALL {
            self.find(fault, &format!("took {took:?} ({call})"));
        }
        self.recover(fault, true);
        Some(true)
    }

    /// The same once more, only timed: a disk may have been slow for others' sake.
    fn time_again(&self, fault: &Fault) -> Duration {
        let injected = Injected::into(&self.server, fault);
        let watch = Stopwatch::start();
        let _ = self.round();
        let took = watch.elapsed();
        drop(injected);
        took
    }

    /// Whether all is as before; if not, that is a finding, and another server goes on.
    fn recover(&mut self, fault: &Fault, is_finding: bool) {
        let mut wrong = Vec::new();
        if self.server.is_running() {
            // What the fault has spoilt may be noticed by one more round, and no longer.
            let seen = self.round();
            if !seen.is_perfect() {
                wrong.push(format!("afterwards: {seen:?}"));
            }
            let is_calm = wait_for(CALM, || self.left().is_none());
            if !is_calm {
                wrong.push(self.left().unwrap_or_default());
            }
        } else {
            wrong.push(format!("the server ended: {}", self.server.stderr()));
        }
        let said = self.server.log("error.log") + &self.server.stderr();
        if let Some(line) = said.lines().find(|line| line.contains("panic")) {
            wrong.push(line.to_owned());
        }
        if wrong.is_empty() {
            return;
        }
        if is_finding {
            self.find(fault, &wrong.join("; "));
        }
        self.restarts += 1;
        self.server = self.scenario.start();
        self.calibrate();
    }

    fn left(&self) -> Option<String> {
        let children = self.server.children();
        let descriptors = self.server.fds();
        let files = self.scenario.leftovers(&self.server);
        let is_clean = children.is_empty() && descriptors <= self.descriptors && files.is_empty();
        (!is_clean).then(|| {
            let base = self.descriptors;
            let open = process_files(self.server.id());
            format!("children {children:?}, files {files:?}, {descriptors} descriptors and not {base}: {open}")
        })
    }

    fn find(&mut self, fault: &Fault, what: &str) {
        let line = format!("{}: {fault}: {what}", self.scenario.name());
        println!("FINDING {line}");
        self.findings.push(line);
    }

    fn report(&self) {
        let all: usize = self.counts.values().sum();
        let (name, restarts) = (self.scenario.name(), self.restarts);
        println!("{name}: {all} faults: {:?}, {restarts} other servers", self.counts);
        assert!(self.findings.is_empty(), "{}", self.findings.join("\n"));
        assert!(process::exists(self.server.id()));
    }
}

fn process_files(pid: u32) -> String {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect::<Vec<_>>().join(" ")
}
