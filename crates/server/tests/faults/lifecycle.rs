//! Calls that fail while the server starts, reads its configuration again, or hands over to a new binary. A
//! start may fail, with a message; a reload and an upgrade may fail, and then all is as before; every request
//! meanwhile and afterwards is served.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{
    Client, Server, Signal, Tree, eventually, free_port, have, process, wait_for,
};

use crate::common::{BINARY, LONG, http, site};
use crate::inject::{Fault, Hit, Injected, KINDS, Kind, hit};
use crate::sweep::is_long;

/// What fails must fail by then.
const PATIENCE: Duration = Duration::from_mins(1);
/// Which calls are tried in the short form, and how many at the most in the long one.
const SAMPLE: [u32; 2] = [1, 5];
const CALLS_MAX: u32 = 16;

/// How sockets go from the old process to the new one.
const HANDOVER: Kind = Kind {
    name: "handover",
    calls: "sendmsg,recvmsg",
    errors: &["ECONNRESET", "ENOMEM", "EMFILE"],
    in_children: true,
};

/// What a fault has come to.
enum Outcome {
    /// It met a call, or one that does not count.
    Met { counts: bool },
    /// There was no such call.
    Missed,
    /// Tracing is not allowed here.
    Forbidden,
}

/// Goes through all faults; `one` does what it is about, and tells what it found.
fn sweep(name: &str, mut one: impl FnMut(&Fault, &mut Vec<String>) -> Outcome) {
    let only = std::env::var("FAULT").ok();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    // The processes use sockets to communicate; but the runtime also uses one for signals, and that cannot
    // fail. What is mapped is mostly the program itself, before it begins.
    let is_meant = |kind: &&Kind| !matches!(kind.name, "receive" | "send" | "map");
    let kinds = KINDS.iter().filter(is_meant).chain([&HANDOVER]);
    for (number, kind) in kinds.enumerate() {
        if only.as_deref().is_some_and(|only| !only.split(',').any(|one| one == kind.name)) {
            continue;
        }
        let mut missed = None;
        for fault in faults(kind, number) {
            // A call that is not there is not followed by another one.
            if is_long() && missed == Some(fault.error) {
                continue;
            }
            let before = findings.len();
            match one(&fault, &mut findings) {
                Outcome::Met { counts: true } => *counts.entry(kind.name).or_default() += 1,
                Outcome::Met { counts: false } => findings.truncate(before),
                Outcome::Missed => missed = Some(fault.error),
                Outcome::Forbidden => return,
            }
            for line in &mut findings[before..] {
                *line = format!("{name}: {fault}: {line}");
                println!("FINDING {line}");
            }
        }
    }
    println!("{name}: {} faults: {counts:?}", counts.values().sum::<usize>());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

fn faults(kind: &'static Kind, number: usize) -> Vec<Fault> {
    let fault = |at, error| Fault { kind, error, at };
    if is_long() {
        let each = |error| (1..=CALLS_MAX).map(move |at| fault(at, error));
        kind.errors.iter().copied().flat_map(each).collect()
    } else {
        let error = |turn: usize| kind.errors[(turn + number) % kind.errors.len()];
        SAMPLE.into_iter().enumerate().map(|(turn, at)| fault(at, error(turn))).collect()
    }
}

/// X17
#[test]
fn a_start_succeeds_or_says_why_not_whatever_call_fails() {
    if !have("strace") {
        return;
    }
    let tree = Tree::new();
    tree.file("root/index.html", "a");
    sweep("start", |fault, findings| start_under(&tree, fault, findings));
}

fn start_under(tree: &Tree, fault: &Fault, findings: &mut Vec<String>) -> Outcome {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let config = site("").replace("127.0.0.1:{port}", &address.to_string());
    let dir = tree.dir().display().to_string();
    let config = config.replace("{dir}", &dir).replace("{root}", &format!("{dir}/root"));
    tree.file("sekisho.conf", config);
    let log = tree.path("strace");
    let _ = fs::remove_file(&log);
    let output = |name: &str| File::create(tree.path(name)).expect("a file");
    let child = Command::new("strace")
        .args(["-f", "-y", "-s", "8"])
        .args(fault.arguments())
        .arg("-o")
        .arg(&log)
        .args([BINARY, "-p", &dir, "-c", &format!("{dir}/sekisho.conf")])
        .stdin(Stdio::null())
        .stdout(output("stdout"))
        .stderr(output("stderr"))
        .spawn();
    let Ok(mut strace) = child else { return Outcome::Forbidden };
    let mut ended = None;
    let mut serves = false;
    let is_decided = wait_for(PATIENCE, || {
        ended = strace.try_wait().expect("a child of ours can be waited for");
        serves = ended.is_none() && process::is_listening(address.port());
        ended.is_some() || serves
    });
    if serves {
        let is_served = || asked(address).as_deref() == Some("a");
        // The one call may just have been in its way; the next is served.
        let is_well = is_served() || is_served();
        // It may have listened already when it gave up.
        let has_ended = !is_well
            && wait_for(PATIENCE, || {
                ended = strace.try_wait().expect("a child of ours can be waited for");
                ended.is_some()
            });
        if !is_well && !has_ended {
            findings.push("it listens and does not serve".to_owned());
        }
    } else if !is_decided {
        findings.push("it neither serves nor ends".to_owned());
    }
    if ended.is_none() {
        for child in process::children(strace.id()) {
            let child = Pid::from_raw(child.cast_signed()).expect("a process");
            let _ = kill_process(child, Signal::TERM);
        }
        let is_over = wait_for(PATIENCE, || {
            ended = strace.try_wait().expect("a child of ours can be waited for");
            ended.is_some()
        });
        if !is_over {
            findings.push("it does not end".to_owned());
            for child in process::children(strace.id()) {
                let child = Pid::from_raw(child.cast_signed()).expect("a process");
                let _ = kill_process(child, Signal::KILL);
            }
            ended = strace.wait().ok();
        }
    }
    let said = tree.text("stderr");
    let code = ended.and_then(|status| status.code());
    // 127: the program could not even be loaded.
    let is_told = matches!(code, Some(1 | 127)) && !said.trim().is_empty();
    let is_told = is_told || (code == Some(101) && !is_panic(&said));
    if is_panic(&said) || !(code == Some(0) || is_told) {
        findings.push(format!("ended with {ended:?}: {said}"));
    }
    outcome(&hit(&log))
}

/// Where the runtime cannot prepare for signals it has no other word for it; that is a start that failed.
fn is_panic(said: &str) -> bool {
    said.contains("panicked") && !said.contains("failed to create UnixStream")
}

fn outcome(hit: &Hit) -> Outcome {
    match hit {
        Hit::Calls(_) => Outcome::Met { counts: true },
        Hit::Impossible => Outcome::Met { counts: false },
        Hit::None => Outcome::Missed,
    }
}

/// X10 and X17
#[test]
fn a_reload_happens_or_leaves_all_as_it_was_whatever_call_fails() {
    if !have("strace") {
        return;
    }
    let config = |text: &str, more: &str| {
        let body = format!(
            "server {{ listen 127.0.0.1:{{port}}; {more} access_log {{dir}}/{text}.log;
             location / {{ return 200 {text}; }} }}"
        );
        format!("endpoint {{ listen unix:{{dir}}/{text}; }}\n{}", http(&body))
    };
    let old = config("old", "");
    let new = config("new", "listen unix:{dir}/more;").replace("processes 1", "processes 2");
    let start = || Server::start(BINARY, &old);
    let answers = |server: &Server, text: &str| asked(server.address()).as_deref() == Some(text);
    let reload = |server: &Server, to: &str, text: &str| {
        server.rewrite_config(to);
        server.signal(Signal::HUP);
        wait_for(PATIENCE, || answers(server, text))
    };
    let mut server = start();
    let mut base = 0;
    sweep("reload", |fault, findings| {
        if base == 0 {
            // The first reloads open what stays open.
            for _ in 0..2 {
                assert!(reload(&server, &new, "new") && reload(&server, &old, "old"));
            }
            base = settled(&server);
        }
        server.rewrite_config(&new);
        let told = |server: &Server| {
            let log = server.log("error.log");
            log.matches("reload failed").count()
                + log.matches("] reloaded").count()
                + log.matches(": reloaded").count()
        };
        let before = told(&server);
        let Some(injected) = Injected::with_children(server.id(), server.tree(), fault) else {
            return Outcome::Forbidden;
        };
        server.signal(Signal::HUP);
        // What it says of it may just be what could not be written.
        let _ = wait_for(Duration::from_secs(2), || told(&server) > before);
        let answer = asked(server.address()).unwrap_or_default();
        if !matches!(answer.as_str(), "" | "old" | "new") && !answer.contains("<h1>50") {
            findings.push(format!("answered {answer}"));
        }
        let outcome = outcome(&injected.end());
        if server.is_running() {
            for (to, text) in [(&new, "new"), (&old, "old")] {
                if !reload(&server, to, text) {
                    findings.push(format!("no reload to {text} afterwards: {}", tail(&server)));
                }
            }
            if !wait_for(PATIENCE, || server.fds() <= base) {
                findings.push(format!("{} descriptors and not {base}", server.fds()));
            }
            if server.tree().exists("more") || server.tree().exists("new") {
                findings.push("a socket's file is left".to_owned());
            }
        } else {
            findings.push(format!("the server ended: {}", server.stderr()));
        }
        if server.stderr().contains("panicked") {
            findings.push(format!("it panicked: {}", server.stderr()));
        }
        if !findings.is_empty() || matches!(outcome, Outcome::Met { counts: false }) {
            server = start();
            base = 0;
        }
        outcome
    });
}

/// What is answered to a plain request, if anything is.
fn asked(address: SocketAddr) -> Option<String> {
    drop(TcpStream::connect_timeout(&address, PATIENCE).ok()?);
    let mut client = Client::connect(address).with_patience(PATIENCE);
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
    client.try_read_response(false).ok().map(|response| response.text())
}

fn tail(server: &Server) -> String {
    let log = server.log("error.log");
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    lines.join(" / ")
}

/// How many descriptors it has when nothing happens.
fn settled(server: &Server) -> usize {
    let mut last = 0;
    eventually("calm", LONG, || {
        let now = server.fds();
        sekisho_testkit::pause(Duration::from_millis(100));
        std::mem::replace(&mut last, now) == now
    });
    last
}

/// X11 and X17
#[test]
fn an_upgrade_happens_or_the_old_process_goes_on_whatever_call_fails() {
    if !have("strace") {
        return;
    }
    let servers = "server { listen 127.0.0.1:{port}; location / { return 200 $pid; } }";
    let config = format!(
        "pid {{dir}}/server.pid;\nendpoint {{ listen unix:{{dir}}/s; }}\n{}",
        http(servers)
    );
    let mut server = Server::start(BINARY, &config);
    let pid_of = |server: &Server| server.log("server.pid").trim().parse::<u32>().ok();
    sweep("upgrade", |fault, findings| {
        let mut old = 0;
        eventually("the pid file", LONG, || {
            old = pid_of(&server).unwrap_or(0);
            old > 0
        });
        let ends = ["serves now", "upgrade failed", "no upgrade"];
        let ended = |server: &Server| {
            let log = server.log("error.log");
            ends.iter().map(|end| log.matches(end).count()).sum::<usize>()
        };
        let before = ended(&server);
        let Some(injected) = Injected::with_children(old, server.tree(), fault) else {
            return Outcome::Forbidden;
        };
        send(old, Signal::USR2);
        let is_changed = |server: &Server| pid_of(server).is_some_and(|pid| pid != old);
        let _ = wait_for(PATIENCE, || is_over(old) || ended(&server) > before);
        let outcome = outcome(&injected.end());
        // One of the two serves, alone, and the pid file names it. A file that could not be removed names no
        // process.
        let put_aside = || server.log("server.pid.oldbin").trim().parse().ok();
        let is_settled = wait_for(PATIENCE, || {
            let Some(pid) = pid_of(&server).filter(|pid| !is_over(*pid)) else { return false };
            let by = || asked(server.address()).unwrap_or_default();
            (is_over(old) || !is_changed(&server))
                && put_aside().is_none_or(is_over)
                && (0..3).all(|_| by() == pid.to_string())
        });
        if !is_settled {
            let now = pid_of(&server);
            findings.push(format!("after {old}: the pid file says {now:?}: {}", tail(&server)));
        }
        if is_panic(&server.stderr()) {
            findings.push(format!("it panicked: {}", server.stderr()));
        }
        // One that has taken over with a fault may lack something, and say so: its socket for the next upgrade.
        if !findings.is_empty() || !matches!(outcome, Outcome::Missed) {
            if let Some(pid) = pid_of(&server) {
                send(pid, Signal::KILL);
            }
            send(old, Signal::KILL);
            server = Server::start(BINARY, &config);
        }
        outcome
    });
    if let Some(pid) = pid_of(&server) {
        send(pid, Signal::KILL);
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    // It may just have ended.
    let _ = kill_process(pid, signal);
}

fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}
