//! However the output is cut, the answer is the same; nothing panics; every run ends.

use std::time::Duration;

use proptest::prelude::*;
use sekisho_gateway::cgi::{
    Ending, Exit, Fact, Fed, HeadError, HeadReader, HeadRules, Length, Program, ResponseHead,
    Rules, Signal,
};
use sekisho_lifecycle::Moment;

/// Output of programs, good and bad.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "Content-Type: a/b",
        "Status: 404 x",
        "Status: 204",
        "Content-Length: 3",
        "Content-Length: 0",
        "Location: /a",
        "Location: http://h/",
        "X-Accel-Redirect: /i",
        "Connection: x",
        "X: \u{1}",
        "X",
        ":",
        " ",
        "\r",
        "\n",
        "\n",
        "\r\n",
        "\n\n",
        "body",
    ]);
    let text = prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![4 => text, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

fn rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 1_usize..80).prop_map(
        |(is_strict, takes_accel, is_head, has_head, bytes_max)| Rules {
            read_timeout: Some(Duration::from_secs(10)),
            run_timeout: Some(Duration::from_mins(1)),
            run_kill: Duration::from_secs(1),
            kill_grace: Duration::from_secs(1),
            head: has_head.then_some(HeadRules { bytes_max, is_strict, takes_accel }),
            is_head,
        },
    )
}

/// Cuts at these places, in any order, some beyond the end.
fn cut<'a>(output: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (output.len() + 1)).collect();
    ends.push(output.len());
    ends.sort_unstable();
    let mut start = 0;
    let mut pieces = Vec::new();
    for end in ends {
        pieces.push(&output[start..end]);
        start = end;
    }
    pieces
}

fn read_head(
    rules: HeadRules,
    pieces: &[&[u8]],
) -> Option<Result<(ResponseHead, usize), HeadError>> {
    let mut reader = HeadReader::new(rules);
    let mut before = 0;
    for piece in pieces {
        match reader.feed(piece) {
            Ok(Fed::More) => before += piece.len(),
            Ok(Fed::Head { head, taken }) => return Some(Ok((head, before + taken))),
            Err(error) => return Some(Err(error)),
        }
    }
    None
}

#[derive(PartialEq, Debug, Default)]
struct Answer {
    head: Option<(ResponseHead, Length)>,
    body: Vec<u8>,
    ending: Option<Ending>,
}

fn answer(rules: Rules, pieces: &[&[u8]], exit: Exit) -> Answer {
    let mut program = Program::new(rules, Moment::ZERO);
    let mut answer = Answer::default();
    let facts = pieces.iter().map(|piece| Fact::Output(piece));
    for fact in facts.chain([Fact::Exited(exit), Fact::OutputEnded]) {
        let orders = program.after(fact, Moment::ZERO);
        if let Some(release) = orders.head {
            assert!(answer.head.is_none() && answer.ending.is_none(), "one head");
            answer.head = Some((release.head, release.length));
        }
        if let Fact::Output(bytes) = fact {
            answer.body.extend_from_slice(&bytes[orders.body]);
        }
        if let Some(ending) = orders.ending {
            assert!(answer.ending.is_none(), "one ending");
            answer.ending = Some(ending);
        }
    }
    assert!(program.is_over());
    answer
}

proptest! {
    /// C9, V24: the head is the same however its bytes come.
    #[test]
    fn a_head_is_the_same_however_it_is_cut(
        output in output(),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
        is_strict in any::<bool>(),
        bytes_max in 1_usize..80,
    ) {
        let rules = HeadRules { bytes_max, is_strict, takes_accel: true };
        let whole = read_head(rules, &[&output]);
        let each: Vec<&[u8]> = output.chunks(1).collect();
        prop_assert_eq!(&whole, &read_head(rules, &cut(&output, &cuts)));
        prop_assert_eq!(&whole, &read_head(rules, &each));
        if let Some(Ok((head, _))) = whole {
            // C9: nothing that could split the response.
            for line in head.fields.as_lines().split_inclusive(|byte| *byte == b'\n') {
                let line = line.strip_suffix(b"\r\n").expect("a whole line");
                prop_assert!(line.contains(&b':'));
                prop_assert!(!line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
            }
        }
    }

    /// C3, C5, C9: so is the whole answer; there is one, and it has one ending.
    #[test]
    fn an_answer_is_the_same_however_it_is_cut(
        output in output(),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
        rules in rules(),
        is_killed in any::<bool>(),
    ) {
        let exit = if is_killed { Exit::Signal(9) } else { Exit::Code(0) };
        let whole = answer(rules, &[&output], exit);
        let each: Vec<&[u8]> = output.chunks(1).collect();
        prop_assert!(whole.ending.is_some());
        if let Some((_, Length::Known(length))) = whole.head {
            prop_assert!(whole.body.len() as u64 <= length);
            if whole.ending == Some(Ending::Finish) && !rules.is_head {
                prop_assert_eq!(whole.body.len() as u64, length);
            }
        }
        let cut = answer(rules, &cut(&output, &cuts), exit);
        prop_assert_eq!(&whole, &cut);
        prop_assert_eq!(&whole, &answer(rules, &each, exit));
    }

    /// C6, T2, V14: whatever happens in whatever order, there is at most one answer, deadlines come to an
    /// end, and a program that is never seen to exit is killed.
    #[test]
    fn every_run_ends(
        rules in rules(),
        facts in prop::collection::vec((0_u8..10, 0_u64..4000, output()), 0..20),
    ) {
        let mut program = Program::new(rules, Moment::ZERO);
        let mut now = 0;
        let (mut endings, mut signals) = (0, Vec::new());
        for (kind, wait, bytes) in &facts {
            now += wait;
            let moment = Moment::from_millis(now);
            let fact = match kind {
                0..=3 => Fact::Output(bytes),
                4 => Fact::OutputEnded,
                5 => Fact::ClientAwaited(bytes.len().is_multiple_of(2)),
                6 => Fact::InputTaken,
                7 => Fact::ClientLost,
                8 => Fact::OutputLost,
                _ => Fact::Cancelled,
            };
            let orders = program.after(fact, moment);
            prop_assert!(orders.body.end <= bytes.len());
            endings += u32::from(orders.ending.is_some());
            signals.extend(orders.signal);
            for turn in 0.. {
                prop_assert!(turn < 4, "deadlines spin");
                if !program.next_deadline().is_some_and(|at| at.is_due(moment)) {
                    break;
                }
                let orders = program.expire(moment);
                endings += u32::from(orders.ending.is_some());
                signals.extend(orders.signal);
            }
        }
        while let Some(at) = program.next_deadline() {
            prop_assert!(at <= Moment::from_millis(now + 120_000));
            let orders = program.expire(at);
            endings += u32::from(orders.ending.is_some());
            signals.extend(orders.signal);
        }
        prop_assert_eq!(endings, 1);
        prop_assert_eq!(signals, [Signal::Terminate, Signal::Kill]);
        let last = program.after(Fact::Exited(Exit::Signal(9)), Moment::from_millis(now));
        let swept = last.signal.or_else(|| {
            program.next_deadline().and_then(|at| program.expire(at).signal)
        });
        prop_assert_eq!(swept, Some(Signal::Sweep));
        prop_assert!(program.is_over() && program.next_deadline().is_none());
    }
}
