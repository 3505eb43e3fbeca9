//! One run of a program, on virtual time. Each row is a script: what happens at which millisecond, and
//! what is ordered.

use std::time::Duration;

use sekisho_gateway::cgi::{
    Ending, Exit, Fact, HeadRules, Length, Program, ProgramOrders, Rules, Signal,
};
use sekisho_lifecycle::Moment;

const RULES: Rules = Rules {
    read_timeout: Some(Duration::from_secs(10)),
    run_timeout: None,
    run_kill: Duration::from_secs(1),
    kill_grace: Duration::from_secs(1),
    head: Some(HeadRules { bytes_max: 1024, is_strict: true, takes_accel: false }),
    is_head: false,
};

/// What happens.
#[derive(Clone, Copy)]
enum Do {
    Print(&'static str),
    Eof,
    /// Its output cannot be read.
    Lost,
    Exit(i32),
    Die(i32),
    Takes,
    Awaits(bool),
    Gone,
    Stop,
    /// Nothing: only time passes.
    Wait,
}
use Do::{Awaits, Die, Eof, Gone, Print, Stop, Takes, Wait};

/// Runs a script, deadlines included, and writes down every order with its time: `0 head 200 +unknown`,
/// `0 "body"`, `0 finish`, `0 sweep`.
fn run(rules: Rules, script: &[(u64, Do)]) -> Vec<String> {
    let mut program = Program::new(rules, Moment::ZERO);
    let mut log = Vec::new();
    for &(at, event) in script {
        let now = Moment::from_millis(at);
        // Data and deadline due in the same turn: the data wins (T3).
        while let Some(due) = program.next_deadline().filter(|due| *due < now) {
            let orders = program.expire(due);
            write_down(&mut log, due, &orders, "");
        }
        let (fact, text) = match event {
            Print(text) => (Fact::Output(text.as_bytes()), text),
            Eof => (Fact::OutputEnded, ""),
            Do::Lost => (Fact::OutputLost, ""),
            Do::Exit(code) => (Fact::Exited(Exit::Code(code)), ""),
            Die(signal) => (Fact::Exited(Exit::Signal(signal)), ""),
            Takes => (Fact::InputTaken, ""),
            Awaits(is_awaited) => (Fact::ClientAwaited(is_awaited), ""),
            Gone => (Fact::ClientLost, ""),
            Stop => (Fact::Cancelled, ""),
            Wait => continue,
        };
        let orders = program.after(fact, now);
        write_down(&mut log, now, &orders, text);
    }
    if !program.is_over() && program.next_deadline().is_none() {
        log.push("waits".into());
    }
    log
}

fn write_down(log: &mut Vec<String>, now: Moment, orders: &ProgramOrders, text: &str) {
    let at = now.as_nanos() / 1_000_000;
    if let Some(release) = &orders.head {
        let length = match release.length {
            Length::Empty => "empty".into(),
            Length::Known(bytes) => bytes.to_string(),
            Length::Unknown => "unknown".into(),
        };
        log.push(format!("{at} head {} {length}", release.head.status));
    }
    if !orders.body.is_empty() {
        log.push(format!("{at} {:?}", &text[orders.body.clone()]));
    }
    match &orders.ending {
        None => {}
        Some(Ending::Finish) => log.push(format!("{at} finish")),
        Some(Ending::Fail(cause)) => log.push(format!("{at} fail {} {cause:?}", cause.status())),
        Some(Ending::Break(cause)) => log.push(format!("{at} break {cause:?}")),
        Some(Ending::Redirect(target)) => {
            log.push(format!("{at} redirect {}", target.escape_ascii()));
        }
        Some(Ending::Accel(target)) => log.push(format!("{at} accel {}", target.escape_ascii())),
        Some(Ending::Lost) => log.push(format!("{at} lost")),
    }
    match orders.signal {
        None => {}
        Some(Signal::Terminate) => log.push(format!("{at} term")),
        Some(Signal::Kill) => log.push(format!("{at} kill")),
        Some(Signal::Sweep) => log.push(format!("{at} sweep")),
    }
}

#[track_caller]
fn check(rules: Rules, script: &[(u64, Do)], expected: &[&str]) {
    assert_eq!(run(rules, script), expected);
}

const HEAD: &str = "Content-Type: a/b\n\n";

/// C3: the head is held until the first body byte or the end of output.
#[test]
fn a_head_waits_for_its_body() {
    let whole = [(0, Print("X: 1\n\nbody")), (1, Eof), (2, Do::Exit(0))];
    check(RULES, &whole, &["0 head 200 unknown", "0 \"body\"", "2 finish", "2 sweep"]);
    let in_pieces =
        [(0, Print(HEAD)), (500, Print("a")), (600, Print("b")), (700, Eof), (700, Do::Exit(0))];
    check(
        RULES,
        &in_pieces,
        &["500 head 200 unknown", "500 \"a\"", "600 \"b\"", "700 finish", "700 sweep"],
    );
    let without_body = [(0, Print(HEAD)), (3, Eof), (4, Do::Exit(0))];
    check(RULES, &without_body, &["4 head 200 empty", "4 finish", "4 sweep"]);
    let exit_first = [(0, Print(HEAD)), (3, Do::Exit(0)), (4, Print("late")), (5, Eof)];
    check(RULES, &exit_first, &["4 head 200 unknown", "4 \"late\"", "5 finish", "5 sweep"]);
}

/// C3: where it is certain that no body comes, it leaves at once; what is printed later goes nowhere.
#[test]
fn a_head_without_a_body_leaves_at_once() {
    let head_request = Rules { is_head: true, ..RULES };
    let rows: [(Rules, &'static str, &str); 7] = [
        (head_request, HEAD, "head 200 unknown"),
        (head_request, "Content-Length: 7\n\n", "head 200 7"),
        (head_request, "X: 1\n\nbody", "head 200 unknown"),
        (RULES, "Status: 204 x\n\n", "head 204 empty"),
        (RULES, "Status: 304 x\nContent-Length: 7\n\n", "head 304 empty"),
        (RULES, "Content-Length: 0\n\n", "head 200 empty"),
        (RULES, "Location: http://h/\n\n", "head 302 empty"),
    ];
    for (rules, head, expected) in rows {
        let script = [(7, Print(head)), (8, Print("more")), (9, Eof), (9, Do::Exit(0))];
        let expected = [format!("7 {expected}"), "7 finish".into(), "9 sweep".into()];
        assert_eq!(run(rules, &script), expected, "{head}");
    }
}

/// C3: headers followed by silence are still a 504.
#[test]
fn a_head_and_then_silence_is_a_504() {
    let script = [(0, Print(HEAD)), (20_000, Wait)];
    check(RULES, &script, &["10000 fail 504 ReadTimeout", "10000 term", "11000 kill", "waits"]);
    let before_the_head = [(0, Print("X: 1\n")), (20_000, Wait)];
    check(
        RULES,
        &before_the_head,
        &["10000 fail 504 ReadTimeout", "10000 term", "11000 kill", "waits"],
    );
}

/// C4: any output feeds the deadline, also bytes of the head: an hour is not too long.
#[test]
fn a_program_that_prints_now_and_then_may_run_for_an_hour() {
    let mut script = vec![(0, Print("X: 1\n\n"))];
    script.extend((1..=720).map(|n| (n * 5000, Print("."))));
    script.extend([(3_600_001, Eof), (3_600_001, Do::Exit(0))]);
    let log = run(RULES, &script);
    assert_eq!(log.len(), 1 + 720 + 2);
    assert_eq!(log[721..], ["3600001 finish", "3600001 sweep"]);
    let slow_head = [
        (9000, Print("X")),
        (18_000, Print(": 1\n")),
        (27_000, Print("\nb")),
        (27_000, Eof),
        (27_000, Do::Exit(0)),
    ];
    check(
        RULES,
        &slow_head,
        &["27000 head 200 unknown", "27000 \"b\"", "27000 finish", "27000 sweep"],
    );
}

/// C5: after the first byte, a program that hangs or is killed breaks its answer off.
#[test]
fn an_answer_cut_short_is_broken_off() {
    let hangs = [(0, Print("X: 1\n\nb")), (10_500, Do::Exit(0)), (10_500, Eof)];
    check(
        RULES,
        &hangs,
        &["0 head 200 unknown", "0 \"b\"", "10000 break ReadTimeout", "10000 term", "10500 sweep"],
    );
    let killed = [(0, Print("X: 1\n\nb")), (1, Eof), (2, Die(9))];
    check(RULES, &killed, &["0 head 200 unknown", "0 \"b\"", "2 break Died(9)", "2 sweep"]);
    let exit_seen_first = [(0, Print("X: 1\n\nb")), (1, Die(11)), (2, Print("c")), (2, Eof)];
    check(
        RULES,
        &exit_seen_first,
        &["0 head 200 unknown", "0 \"b\"", "2 \"c\"", "2 break Died(11)", "2 sweep"],
    );
    // An exit code says nothing about the answer: the last command of a script may well be a `grep`.
    let code = [(0, Print("X: 1\n\nb")), (1, Eof), (2, Do::Exit(1))];
    check(RULES, &code, &["0 head 200 unknown", "0 \"b\"", "2 finish", "2 sweep"]);
}

/// C1, C2: each way to die before the head is complete is a 502, whatever is printed.
#[test]
fn a_program_without_a_head_is_a_502() {
    let ended = |code: i32| format!("6 fail 502 ClosedEarly(Some({code}))");
    check(RULES, &[(5, Eof), (6, Do::Exit(0))], &[&ended(0), "6 sweep"]);
    check(
        RULES,
        &[(0, Print("X: 1\n")), (5, Eof), (6, Die(9))],
        &["6 fail 502 Died(9)", "6 sweep"],
    );
    check(RULES, &[(0, Print("timeout")), (5, Eof), (6, Do::Exit(1))], &[&ended(1), "6 sweep"]);
    // One that goes on is not waited for.
    check(
        RULES,
        &[(5, Eof), (200, Do::Exit(0))],
        &["105 fail 502 ClosedEarly(None)", "105 term", "200 sweep"],
    );
    check(RULES, &[(4, Do::Exit(3)), (5, Eof)], &["5 fail 502 ClosedEarly(Some(3))", "5 sweep"]);
    check(RULES, &[(4, Die(9)), (5, Eof)], &["5 fail 502 Died(9)", "5 sweep"]);
    check(RULES, &[(0, Print(HEAD)), (4, Eof), (5, Die(9))], &["5 fail 502 Died(9)", "5 sweep"]);
    check(
        RULES,
        &[(5, Print("garbage\n")), (6, Die(15)), (6, Eof)],
        &["5 fail 502 BadHead(BadLine)", "5 term", "6 sweep"],
    );
    check(
        RULES,
        &[(5, Print("X: a\x07b\n")), (6, Die(15)), (6, Eof)],
        &["5 fail 502 BadHead(ControlByte)", "5 term", "6 sweep"],
    );
}

/// C9: a huge head is a 502.
#[test]
fn a_huge_head_is_a_502() {
    let rules = Rules {
        head: Some(HeadRules { bytes_max: 8, is_strict: true, takes_accel: false }),
        ..RULES
    };
    check(
        rules,
        &[(0, Print("X: 1\n")), (5, Print("Y: 12")), (6, Die(15)), (6, Eof)],
        &["5 fail 502 BadHead(TooLarge)", "5 term", "6 sweep"],
    );
}

/// C9: a `Content-Length` that is too long breaks off, one that is too short cuts.
#[test]
fn a_content_length_is_kept_to() {
    let exact =
        [(0, Print("Content-Length: 4\n\nbo")), (1, Print("dy")), (2, Eof), (2, Do::Exit(0))];
    check(RULES, &exact, &["0 head 200 4", "0 \"bo\"", "1 \"dy\"", "1 finish", "2 sweep"]);
    let long =
        [(0, Print("Content-Length: 3\n\nbo")), (1, Print("dy")), (2, Eof), (2, Do::Exit(0))];
    check(RULES, &long, &["0 head 200 3", "0 \"bo\"", "1 \"d\"", "1 finish", "2 sweep"]);
    let at_once = [(0, Print("Content-Length: 3\n\nbody")), (2, Eof), (2, Do::Exit(0))];
    check(RULES, &at_once, &["0 head 200 3", "0 \"bod\"", "0 finish", "2 sweep"]);
    let short = [(0, Print("Content-Length: 5\n\nbody")), (2, Eof), (2, Do::Exit(0))];
    check(
        RULES,
        &short,
        &["0 head 200 5", "0 \"body\"", "2 break BodyTooShort", "2 term", "2 sweep"],
    );
    let none = [(0, Print("Content-Length: 5\n\n")), (1, Do::Exit(0)), (2, Eof)];
    check(RULES, &none, &["2 fail 502 BodyTooShort", "2 sweep"]);
}

/// C5, X17: what cannot be read to its end does not look complete.
#[test]
fn output_that_is_lost_is_broken_off() {
    let begun = [(0, Print("X: 1\n\nbody")), (1, Do::Lost), (2, Do::Exit(0))];
    let orders = ["0 head 200 unknown", "0 \"body\"", "1 break OutputLost", "1 term", "2 sweep"];
    check(RULES, &begun, &orders);
    let none = [(0, Print(HEAD)), (1, Do::Lost), (2, Do::Exit(0))];
    check(RULES, &none, &["1 fail 502 OutputLost", "1 term", "2 sweep"]);
}

/// C9: redirects to elsewhere on this server.
#[test]
fn a_local_location_hands_over_at_once() {
    let script =
        [(0, Print("Location: /a?b\n\n")), (1, Print("ignored")), (2, Eof), (2, Do::Exit(0))];
    check(RULES, &script, &["0 redirect /a?b", "2 sweep"]);
    let rules = Rules {
        head: Some(HeadRules { bytes_max: 1024, is_strict: true, takes_accel: true }),
        ..RULES
    };
    let script = [(0, Print("X-Accel-Redirect: /i/x\n\n")), (2, Eof), (2, Do::Exit(0))];
    check(rules, &script, &["0 accel /i/x", "2 sweep"]);
}

/// C5, and the fault table: a child that keeps the output open is not waited for; its group is swept.
#[test]
fn the_answer_ends_when_the_leader_does() {
    let script =
        [(0, Print("X: 1\n\nb")), (5, Do::Exit(0)), (50, Print("late")), (300, Print("lost"))];
    check(
        RULES,
        &script,
        &["0 head 200 unknown", "0 \"b\"", "50 \"late\"", "105 finish", "105 sweep"],
    );
    let no_body = [(0, Print(HEAD)), (5, Do::Exit(0)), (300, Wait)];
    check(RULES, &no_body, &["105 head 200 empty", "105 finish", "105 sweep"]);
    let no_head = [(5, Do::Exit(0)), (300, Wait)];
    check(RULES, &no_head, &["105 fail 502 ClosedEarly(Some(0))", "105 sweep"]);
    let answered = [(0, Print("Content-Length: 1\n\nb")), (5, Do::Exit(0)), (300, Wait)];
    check(RULES, &answered, &["0 head 200 1", "0 \"b\"", "0 finish", "105 sweep"]);
}

/// C5: the end of the output is the end of the answer even where the program goes on; and it ends, too.
#[test]
fn a_program_that_closes_its_output_may_not_go_on_for_ever() {
    let script = [(0, Print("X: 1\n\nb")), (5, Eof), (20_000, Wait)];
    check(
        RULES,
        &script,
        &["0 head 200 unknown", "0 \"b\"", "105 finish", "10105 term", "11105 kill", "waits"],
    );
}

/// C6: its output is no longer wanted, and printing does not keep it alive.
#[test]
fn a_program_that_prints_on_after_its_answer_is_ended() {
    let mut script = vec![(0, Print("Content-Length: 1\n\nb"))];
    script.extend((1..30).map(|n| (n * 1000, Print("more"))));
    let expected = ["0 head 200 1", "0 \"b\"", "0 finish", "10000 term", "11000 kill", "waits"];
    check(RULES, &script, &expected);
    check(Rules { read_timeout: None, ..RULES }, &script, &expected);
}

/// C6: a lost client ends the program: TERM, then KILL.
#[test]
fn a_lost_client_ends_the_program() {
    let obeys = [(0, Print(HEAD)), (5, Gone), (6, Die(15)), (6, Eof)];
    check(RULES, &obeys, &["5 lost", "5 term", "6 sweep"]);
    let ignores = [(0, Print("X: 1\n\nb")), (5, Gone), (1100, Die(9)), (1100, Eof)];
    check(
        RULES,
        &ignores,
        &["0 head 200 unknown", "0 \"b\"", "5 lost", "5 term", "1005 kill", "1100 sweep"],
    );
    // The leader obeys, a child does not: it has its grace, then it is swept away.
    let child = [(5, Gone), (6, Die(15)), (2000, Wait)];
    check(RULES, &child, &["5 lost", "5 term", "1005 sweep"]);
    // It has answered already: nothing is lost.
    let answered = [(0, Print("Content-Length: 1\n\nb")), (5, Gone), (6, Eof), (6, Do::Exit(0))];
    check(RULES, &answered, &["0 head 200 1", "0 \"b\"", "0 finish", "6 sweep"]);
}

/// L31: a cancelled request gives exactly one answer.
#[test]
fn a_stop_by_force_is_answered_while_it_can_be() {
    let before = [(0, Print(HEAD)), (5, Stop), (6, Stop), (7, Gone), (8, Die(15)), (8, Eof)];
    check(RULES, &before, &["5 fail 503 Cancelled", "5 term", "8 sweep"]);
    let within = [(0, Print("X: 1\n\nb")), (5, Stop), (8, Die(15)), (8, Eof)];
    check(
        RULES,
        &within,
        &["0 head 200 unknown", "0 \"b\"", "5 break Cancelled", "5 term", "8 sweep"],
    );
    let after = [(0, Print("Content-Length: 1\n\nb")), (5, Stop), (8, Die(15)), (8, Eof)];
    check(RULES, &after, &["0 head 200 1", "0 \"b\"", "0 finish", "5 term", "8 sweep"]);
}

/// T4, X3: `cgi_timeout T [K]`: TERM at T, KILL K later, however much is printed.
#[test]
fn the_whole_run_has_its_own_deadline() {
    let rules = Rules {
        run_timeout: Some(Duration::from_secs(3)),
        run_kill: Duration::from_millis(200),
        ..RULES
    };
    let mut script = vec![(0, Print("X: 1\n\n"))];
    script.extend((1..8).map(|n| (n * 900, Print("."))));
    check(
        rules,
        &script,
        &[
            "900 head 200 unknown",
            "900 \".\"",
            "1800 \".\"",
            "2700 \".\"",
            "3000 break RunTimeout",
            "3000 term",
            "3200 kill",
            "waits",
        ],
    );
    check(rules, &[(9000, Wait)], &["3000 fail 504 RunTimeout", "3000 term", "3200 kill", "waits"]);
}

/// T9: while the client is what everything waits for, the program's silence is not counted; bytes that
/// it takes are a sign of life, too.
#[test]
fn silence_is_counted_only_where_it_is_the_programs() {
    let slow_upload = [
        (0, Awaits(true)),
        (60_000, Awaits(false)),
        (65_000, Takes),
        (74_000, Takes),
        (83_000, Print("X: 1\n\nb")),
        (83_001, Awaits(true)),
        (183_000, Awaits(false)),
        (195_000, Wait),
    ];
    check(
        RULES,
        &slow_upload,
        &[
            "83000 head 200 unknown",
            "83000 \"b\"",
            "193000 break ReadTimeout",
            "193000 term",
            "194000 kill",
            "waits",
        ],
    );
    check(RULES, &[(0, Awaits(true)), (99_000, Wait)], &["waits"]);
    check(Rules { read_timeout: None, ..RULES }, &[(99_000, Wait)], &["waits"]);
}

/// C5: what a program left in the pipe is not lost because the client is slow; but a child cannot go
/// on for ever by that.
#[test]
fn what_lies_in_the_pipe_survives_a_slow_client() {
    let script = [
        (0, Print("X: 1\n\na")),
        (1, Awaits(true)),
        (2, Do::Exit(0)),
        (5000, Awaits(false)),
        (5050, Print("b")),
        (5051, Awaits(true)),
        (9000, Awaits(false)),
        (9100, Print("c")),
        (9100, Eof),
    ];
    check(
        RULES,
        &script,
        &["0 head 200 unknown", "0 \"a\"", "5050 \"b\"", "9100 \"c\"", "9100 finish", "9100 sweep"],
    );
    let flood: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
    let mut program = Program::new(RULES, Moment::ZERO);
    program.after(Fact::Output(b"X: 1\n\n"), Moment::ZERO);
    program.after(Fact::Exited(Exit::Code(0)), Moment::ZERO);
    for at in 1..90 {
        program.after(Fact::ClientAwaited(true), Moment::from_millis(at));
        program.after(Fact::ClientAwaited(false), Moment::from_millis(at));
        program.after(Fact::Output(flood.as_bytes()), Moment::from_millis(at));
    }
    assert!(program.next_deadline() <= Some(Moment::from_millis(103)));
}

/// `cgi_body_only`: all that is printed is the body, and C1 still holds.
#[test]
fn a_program_without_heads_prints_its_body() {
    let rules = Rules { head: None, ..RULES };
    let script = [(0, Print("not: a\n\nhead")), (1, Eof), (1, Do::Exit(0))];
    check(rules, &script, &["0 head 200 unknown", "0 \"not: a\\n\\nhead\"", "1 finish", "1 sweep"]);
    check(rules, &[(1, Eof), (1, Do::Exit(0))], &["1 head 200 empty", "1 finish", "1 sweep"]);
    check(rules, &[(1, Eof), (1, Die(6))], &["1 fail 502 Died(6)", "1 sweep"]);
    check(
        rules,
        &[(11_500, Die(9)), (11_500, Eof)],
        &["10000 fail 504 ReadTimeout", "10000 term", "11000 kill", "11500 sweep"],
    );
    let head = Rules { is_head: true, ..rules };
    check(
        head,
        &[(0, Print("body")), (1, Eof), (1, Do::Exit(0))],
        &["0 head 200 unknown", "0 finish", "1 sweep"],
    );
}

/// T2, T3: one comparison; what is due to the nanosecond is due, and data that came with it wins.
#[test]
fn a_deadline_is_never_early_and_data_wins() {
    let mut program = Program::new(RULES, Moment::ZERO);
    let due = program.next_deadline().expect("a deadline");
    assert_eq!(due, Moment::from_millis(10_000));
    let before = Moment::from_nanos(due.as_nanos() - 1);
    assert_eq!(program.expire(before), ProgramOrders::default());
    program.after(Fact::Output(b"X"), due);
    assert_eq!(program.expire(due), ProgramOrders::default());
    assert_eq!(program.next_deadline(), Some(Moment::from_millis(20_000)));
}
