//! One run of a program, with everything that can happen to it in any order: one head, one ending, no byte of body
//! before the head or beyond its length; deadlines that come to an end; a process that is terminated, then killed,
//! then swept, each once. And the same answer however the output is cut.
//!
//! The first four bytes are the rules; then follow steps, each an operation, a wait, and where it prints, a length
//! and as many bytes.

use std::time::Duration;

use sekisho_gateway::cgi::{
    Ending, Exit, Fact, HeadRules, Length, Program, ProgramOrders, Release, Rules, Signal,
};
use sekisho_lifecycle::Moment;

use crate::cuts;

/// Holds the run to it.
pub fn check(data: &[u8]) {
    let Some((bits, script)) = data.split_first_chunk::<4>() else { return };
    let rules = rules(*bits);
    let exit = if bits[0] & 0x80 == 0 { Exit::Code(i32::from(bits[3])) } else { Exit::Signal(9) };
    let [whole, single, drawn] = cuts::ways(script, u32::from_le_bytes(*bits));
    let answer = answer(rules, &whole, exit);
    for pieces in [single, drawn] {
        assert_eq!(self::answer(rules, &pieces, exit), answer, "the cut makes a difference");
    }
    live(rules, script, exit);
}

fn rules([bits, head, read, _]: [u8; 4]) -> Rules {
    let rules = HeadRules {
        bytes_max: usize::from(head) + 1,
        is_strict: bits & 1 == 0,
        takes_accel: bits & 2 == 0,
    };
    Rules {
        read_timeout: (bits & 4 == 0).then_some(Duration::from_millis(u64::from(read) * 50 + 1)),
        run_timeout: (bits & 8 == 0).then_some(Duration::from_secs(10)),
        run_kill: Duration::from_secs(2),
        kill_grace: Duration::from_secs(1),
        head: (bits & 48 != 48).then_some(rules),
        is_head: bits & 64 != 0,
    }
}

/// What a client gets.
#[derive(PartialEq, Debug, Default)]
struct Answer {
    release: Option<Release>,
    body: Vec<u8>,
    ending: Option<Ending>,
}

impl Answer {
    fn take(&mut self, output: &[u8], orders: &ProgramOrders, rules: Rules) {
        assert!(self.ending.is_none() || (orders.head.is_none() && orders.body.is_empty()));
        if let Some(release) = &orders.head {
            assert!(self.release.is_none(), "a second head");
            self.release = Some(release.clone());
        }
        assert!(orders.body.end <= output.len());
        let body = &output[orders.body.clone()];
        assert!(body.is_empty() || self.release.is_some(), "a body without a head");
        assert!(body.is_empty() || !rules.is_head, "a body for HEAD");
        self.body.extend_from_slice(body);
        match self.release.as_ref().map(|release| release.length) {
            Some(Length::Empty) => assert!(self.body.is_empty()),
            Some(Length::Known(length)) => assert!(self.body.len() as u64 <= length),
            Some(Length::Unknown) | None => {}
        }
        let Some(ending) = &orders.ending else { return };
        assert!(self.ending.is_none(), "a second ending");
        match ending {
            Ending::Finish => {
                let release = self.release.as_ref().expect("a head");
                if let (Length::Known(length), false) = (release.length, rules.is_head) {
                    assert_eq!(self.body.len() as u64, length, "cut short and called whole");
                }
            }
            Ending::Fail(_) | Ending::Redirect(_) | Ending::Accel(_) => {
                assert!(self.release.is_none());
            }
            Ending::Break(_) => assert!(self.release.is_some()),
            Ending::Lost => {}
        }
        self.ending = Some(ending.clone());
    }
}

fn answer(rules: Rules, pieces: &[&[u8]], exit: Exit) -> Answer {
    let mut program = Program::new(rules, Moment::ZERO);
    let mut answer = Answer::default();
    let facts = pieces.iter().map(|piece| Fact::Output(piece));
    for fact in facts.chain([Fact::Exited(exit), Fact::OutputEnded]) {
        let orders = program.after(fact, Moment::ZERO);
        let output = if let Fact::Output(bytes) = fact { bytes } else { b"" };
        answer.take(output, &orders, rules);
    }
    assert!(program.is_over() && answer.ending.is_some());
    answer
}

fn live(rules: Rules, mut script: &[u8], exit: Exit) {
    let mut program = Program::new(rules, Moment::ZERO);
    let (mut answer, mut signals) = (Answer::default(), Vec::new());
    let (mut now, mut has_exited, mut has_ended) = (0, false, false);
    while let [step, wait, rest @ ..] = script {
        script = rest;
        now += u64::from(*wait) * u64::from(*wait);
        let moment = Moment::from_millis(now);
        let mut output: &[u8] = b"";
        let fact = match step % 10 {
            0..=4 if !has_ended => {
                let length = usize::from(step / 10 * 3).min(script.len());
                (output, script) = script.split_at(length);
                Fact::Output(output)
            }
            5 => {
                has_ended = true;
                Fact::OutputEnded
            }
            6 => Fact::ClientAwaited(step / 10 % 2 == 0),
            8 if step / 10 % 4 == 0 => Fact::ClientLost,
            8 if step / 10 % 4 == 1 => Fact::Cancelled,
            9 if !has_exited => {
                has_exited = true;
                Fact::Exited(exit)
            }
            _ => Fact::InputTaken,
        };
        let orders = program.after(fact, moment);
        answer.take(output, &orders, rules);
        signals.extend(orders.signal);
        for turn in 0.. {
            assert!(turn < 6, "deadlines spin");
            if !program.next_deadline().is_some_and(|at| at.is_due(moment)) {
                break;
            }
            let orders = program.expire(moment);
            answer.take(b"", &orders, rules);
            signals.extend(orders.signal);
        }
    }
    // The client does what is its to do; then all must come to an end.
    let orders = program.after(Fact::ClientAwaited(false), Moment::from_millis(now));
    answer.take(b"", &orders, rules);
    if !has_exited && rules.read_timeout.is_none() && rules.run_timeout.is_none() {
        // Nothing but its own end ends it.
        let orders = program.after(Fact::Exited(exit), Moment::from_millis(now));
        answer.take(b"", &orders, rules);
        signals.extend(orders.signal);
        has_exited = true;
    }
    let mut last = Moment::from_millis(now);
    for turn in 0.. {
        let Some(at) = program.next_deadline() else { break };
        assert!(turn < 8, "deadlines spin");
        assert!(at <= Moment::from_millis(now + 60_000), "a deadline that never comes");
        last = last.max(at);
        let orders = program.expire(at);
        answer.take(b"", &orders, rules);
        signals.extend(orders.signal);
    }
    if !has_exited {
        let orders = program.after(Fact::Exited(exit), last);
        answer.take(b"", &orders, rules);
        signals.extend(orders.signal);
        while let Some(at) = program.next_deadline() {
            let orders = program.expire(at);
            answer.take(b"", &orders, rules);
            signals.extend(orders.signal);
        }
    }
    assert!(answer.ending.is_some(), "no ending");
    assert!(program.is_over() && program.next_deadline().is_none());
    let order = [Signal::Terminate, Signal::Kill, Signal::Sweep];
    let places: Vec<_> =
        signals.iter().map(|signal| order.iter().position(|known| known == signal)).collect();
    assert!(places.is_sorted() && places.windows(2).all(|two| two[0] != two[1]), "{signals:?}");
    assert_eq!(signals.last(), Some(&Signal::Sweep), "{signals:?}");
}
