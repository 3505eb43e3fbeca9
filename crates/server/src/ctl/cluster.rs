//! `ctl --cluster`: the commands over all nodes of the cluster that the server belongs to, each asked through it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sekisho_endpoint::control::{self, Metrics, NodeInfo, NodeList, What};
use sekisho_net::Clock;
use serde_json::{Value, json};

use super::session::{Scope, Server};
use super::{Command, Failure, Target, connect, metrics, show};
use crate::terminal::complain;

/// How long a node may take until it is ready again.
const READY_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What `ctl nodes` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `ctl nodes`. The exit status says whether all of them answered.
pub(super) fn nodes(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let list = server.nodes()?;
    let mut out = Vec::new();
    if options.json {
        show::json_line(&as_json(&list), &mut out, false)?;
    } else {
        write(&list, &mut out)?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    let all_answer = list.nodes.iter().all(|node| !node.is_silent);
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn state(node: &NodeInfo) -> &'static str {
    match node {
        NodeInfo { is_silent: true, .. } => "silent",
        NodeInfo { is_drained: true, .. } => "drained",
        NodeInfo { is_ready: true, .. } => "ready",
        _ => "ending",
    }
}

fn write(list: &NodeList, out: &mut dyn Write) -> io::Result<()> {
    let head = ["NODE", "STATE", "VERSION", "PID", "UP", "SESSIONS", "RUNNING", "REQUESTS"];
    let mut rows = vec![head.map(str::to_owned)];
    for node in &list.nodes {
        let number = |value: u64| value.to_string();
        let is_asked = if node.name == list.node { "*" } else { "" };
        let mut row = [
            format!("{}{is_asked}", node.name),
            state(node).to_owned(),
            node.version.clone(),
            number(node.pid.into()),
            show::age(node.uptime_millis),
            number(node.sessions),
            number(node.processing),
            number(node.requests),
        ];
        if node.is_silent {
            row[2..].fill("-".to_owned());
            row[4] = format!("heard {} ago", show::age(node.heard_millis));
        }
        rows.push(row);
    }
    show::table(&rows, &[3, 4, 5, 6, 7], out)
}

fn as_json(list: &NodeList) -> Value {
    let nodes = list.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "state": state(node),
            "version": node.version,
            "pid": node.pid,
            "uptime_ms": node.uptime_millis,
            "sessions": node.sessions,
            "processing": node.processing,
            "requests": node.requests,
            "heard_ms": node.is_silent.then_some(node.heard_millis),
        })
    });
    json!({ "cluster": list.cluster, "node": list.node, "nodes": nodes.collect::<Vec<_>>() })
}

/// Whether a command has a meaning at another node, or at all nodes: none is run at the server itself instead.
pub(super) fn check(command: &Command, target: &Target) -> Result<(), Failure> {
    let why = match command {
        Command::Stop { .. } if target.cluster => {
            "one node is stopped at a time: name it with --node"
        }
        Command::Call(_) if target.cluster || target.node.is_some() => {
            "a service is called at the server that ctl connects to, and at no other node: name that server with --socket"
        }
        Command::Nodes(_) if target.node.is_some() => {
            "the nodes are listed by the server that ctl connects to: leave --node out"
        }
        _ => return Ok(()),
    };
    Err(Failure::Failed(why.to_owned()))
}

/// The nodes that answer; the others are named on standard error, and counted.
pub(super) fn answering(server: &mut Server) -> Result<(Vec<String>, usize), Failure> {
    let (silent, there): (Vec<_>, Vec<_>) =
        server.nodes()?.nodes.into_iter().partition(|node| node.is_silent);
    for node in &silent {
        let ago = show::age(node.heard_millis);
        complain(format_args!(
            "sekisho: node \"{}\" does not answer; it was heard {ago} ago\n",
            node.name
        ));
    }
    server.is_partial |= !silent.is_empty();
    let mut names: Vec<String> = there.into_iter().map(|node| node.name).collect();
    names.dedup();
    Ok((names, silent.len()))
}

/// Runs a command at one node after the other, each under its name. What fails at one is told, and the others are
/// asked all the same.
pub(super) fn each(
    server: &mut Server,
    is_headed: bool,
    run: &mut dyn FnMut(&mut Server) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let (nodes, silent) = answering(server)?;
    let mut is_good = silent == 0;
    for (at, node) in nodes.iter().enumerate() {
        server.scope = Scope::Node(node.clone());
        if is_headed {
            let blank = if at > 0 { "\n" } else { "" };
            writeln!(io::stdout(), "{blank}node {node}")?;
        }
        match run(server) {
            Ok(code) => is_good &= code == ExitCode::SUCCESS,
            Err(Failure::NobodyReads) => return Err(Failure::NobodyReads),
            Err(failure) => {
                complain(format_args!("sekisho: {node}: {}\n", failure.text()));
                is_good = false;
            }
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The metrics of all nodes, each sample with its node as a label.
pub(super) fn all_metrics(server: &mut Server) -> Result<Metrics, Failure> {
    let (nodes, _) = answering(server)?;
    let mut all = Metrics::default();
    for node in nodes {
        server.scope = Scope::Node(node.clone());
        match server.ask::<Metrics>(What::Measure(control::Measure { every_millis: 0 })) {
            Ok(of) => metrics::merge(&mut all, of, &node),
            Err(failure) => {
                complain(format_args!("sekisho: {node}: {}\n", failure.text()));
                server.is_partial = true;
            }
        }
    }
    server.scope = Scope::All;
    Ok(all)
}

/// What is done to one node after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Reload,
    Upgrade,
}

impl Step {
    const fn done(self) -> &'static str {
        match self {
            Self::Reload => "reloaded",
            Self::Upgrade => "upgraded",
        }
    }
}

/// One node after the other; each must be ready again before the next one is touched. Stops at the first that is not.
pub(super) fn rolling(
    server: &mut Server,
    step: Step,
    target: &Target,
) -> Result<ExitCode, Failure> {
    let list = server.nodes()?;
    if let Some(node) = list.nodes.iter().find(|node| node.is_silent) {
        let text = format!("nothing was done: node \"{}\" does not answer", node.name);
        return Err(Failure::Failed(text));
    }
    // The node that is asked comes last: it may be replaced, and the connection with it.
    let (own, others): (Vec<_>, Vec<_>) =
        list.nodes.iter().partition(|node| node.name == list.node);
    let order: Vec<&NodeInfo> = others.into_iter().chain(own).collect();
    for (at, node) in order.iter().enumerate() {
        let failed = |why: &str| {
            let left = order[at + 1..].iter().map(|node| node.name.as_str());
            let left = left.collect::<Vec<_>>().join(", ");
            let left = if left.is_empty() { "no other".to_owned() } else { left };
            let name = &node.name;
            Failure::Failed(format!("stopped at node \"{name}\": {why}\nnot touched: {left}"))
        };
        let is_own = node.name == list.node;
        let own = is_own.then_some(target);
        one_step(server, step, node, own).map_err(|failure| failed(failure.text()))?;
        writeln!(io::stdout(), "{}: {}", node.name, step.done())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `own`: how the server that is asked was found, if it is the node.
fn one_step(
    server: &mut Server,
    step: Step,
    node: &NodeInfo,
    own: Option<&Target>,
) -> Result<(), Failure> {
    server.scope = Scope::Node(node.name.clone());
    let what = match step {
        Step::Reload => What::Reload(control::Reload {}),
        Step::Upgrade => What::Upgrade(control::Upgrade {}),
    };
    let result = server.result(what)?;
    if !result.is_good {
        return Err(Failure::Failed(result.text.trim_end().to_owned()));
    }
    let until = Clock::machine_now() + READY_LIMIT;
    // A drained node stays drained by a reload, and was not ready before.
    let is_back = |now: &NodeInfo| match step {
        Step::Reload => now.is_ready || node.is_drained,
        Step::Upgrade => now.pid != node.pid && now.is_ready,
    };
    loop {
        // A process that is replaced goes on answering while it drains; its successor is another server.
        let mut successor = match own.filter(|_| step == Step::Upgrade) {
            Some(target) => connect::successor(target, node.pid, &node.name),
            None => None,
        };
        let asked = successor.as_mut().unwrap_or(server);
        asked.scope = Scope::Node(node.name.clone());
        let seen = asked.ask::<NodeInfo>(What::DescribeNode(control::DescribeNode {}));
        if seen.is_ok_and(|seen| is_back(&seen)) {
            return Ok(());
        }
        if Clock::machine_now() >= until {
            let what = if step == Step::Reload { "ready" } else { "replaced by a ready process" };
            let text = format!("it is not {what} within {} s; see its log", READY_LIMIT.as_secs());
            return Err(Failure::Failed(text));
        }
        connect::pause(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_with_what_is_known_of_them() {
        let node = |name: &str| NodeInfo { name: name.to_owned(), ..NodeInfo::default() };
        let list = NodeList {
            cluster: "edge".to_owned(),
            node: "a".to_owned(),
            nodes: vec![
                NodeInfo { version: "0.1.0".into(), pid: 7, is_ready: true, ..node("a") },
                NodeInfo { is_drained: true, ..node("b") },
                NodeInfo { is_silent: true, heard_millis: 9000, ..node("c") },
                node("d"),
            ],
        };
        let mut out = Vec::new();
        write(&list, &mut out).expect("a vector takes all");
        let text = String::from_utf8(out).expect("text");
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
        assert_eq!(words[1], ["a*", "ready", "0.1.0"]);
        assert_eq!(words[2][..2], ["b", "drained"]);
        assert_eq!(words[3], ["c", "silent", "-"]);
        assert_eq!(words[4][..2], ["d", "ending"]);
        assert!(text.contains("heard 9"), "{text}");
        assert_eq!(as_json(&list)["nodes"][2]["heard_ms"], 9000);
        assert_eq!(as_json(&list)["nodes"][0]["heard_ms"], Value::Null);
    }
}
