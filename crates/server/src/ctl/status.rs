//! `ctl status`: how the server is, on one page; the tables are the status page's, too.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use sekisho_endpoint::control::{AskOverview, Certificate, MemoryShare, Overview, Rates, What};
use serde_json::json;

use super::session::{Scope, Server};
use super::{Failure, certificates, memory, show};

/// What `ctl status` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A table: its title, the names of its columns, its rows.
pub(crate) type Table = (&'static str, &'static [&'static str], Vec<Vec<String>>);

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let overview: Overview = server.ask(What::Overview(AskOverview {}))?;
    let mut out = Vec::new();
    if options.json {
        show::json_line(
            &server.signed(as_json(&overview)),
            &mut out,
            server.scope != Scope::Server,
        )?;
    } else {
        write(&overview, &mut out)?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A rate per 1000 seconds as people read it.
pub(crate) fn per_second(rate: u64) -> String {
    match rate {
        0..10_000 => format!("{}.{}", rate / 1000, rate % 1000 / 100),
        _ => (rate / 1000).to_string(),
    }
}

/// What stands in tables: stuck disks, locations, upstream servers, certificates.
pub(crate) fn tables(overview: &Overview) -> Vec<Table> {
    let locations = overview.locations.iter();
    let locations = locations.map(|of| vec![of.location.clone(), of.requests.to_string()]);
    let upstreams = overview.upstreams.iter().map(|of| {
        vec![
            of.group.clone(),
            of.server.clone(),
            of.state.clone(),
            of.running.to_string(),
            of.requests.to_string(),
            of.failures.to_string(),
        ]
    });
    let certificate = |of: &Certificate| {
        vec![of.names.join(", "), of.issuer.clone(), certificates::days_left(of), of.source.clone()]
    };
    // The others have nothing to tell.
    let stuck = overview.disks.iter().filter(|disk| disk.stuck_millis > 0).map(|disk| {
        vec![
            disk.path.clone(),
            disk.device.clone(),
            show::age(disk.stuck_millis),
            disk.running.to_string(),
            disk.waiting.to_string(),
            disk.abandoned.to_string(),
        ]
    });
    vec![
        (
            "Disks that do not respond",
            &["path", "device", "for", "running", "waiting", "given up"],
            stuck.collect(),
        ),
        ("Busiest locations", &["location", "requests"], locations.collect()),
        (
            "Upstream servers",
            &["group", "server", "state", "running", "requests", "failures"],
            upstreams.collect(),
        ),
        (
            "Certificates",
            &["names", "issuer", "days left", "from"],
            overview.certificates.iter().map(certificate).collect(),
        ),
    ]
}

fn write(overview: &Overview, out: &mut dyn Write) -> io::Result<()> {
    let last = overview.rates.last().copied().unwrap_or_default();
    let answers = |at: usize| overview.responses.get(at).copied().unwrap_or(0);
    let lines = [
        ("version", overview.version.clone()),
        ("uptime", show::age(overview.uptime_millis)),
        ("process", overview.pid.to_string()),
        ("workers", overview.workers.to_string()),
        (
            "sessions",
            format!(
                "{} idle, {} processing, {} closing",
                overview.idle, overview.processing, overview.closing
            ),
        ),
        (
            "requests",
            format!(
                "{}: {} 2xx, {} 3xx, {} 4xx, {} 5xx",
                overview.requests,
                answers(0),
                answers(1),
                answers(2),
                answers(3)
            ),
        ),
        ("rates", rates(&last)),
        ("received", show::bytes(overview.received_bytes)),
        ("sent", show::bytes(overview.sent_bytes)),
        ("programs", overview.programs.to_string()),
        ("deadlines", format!("{} expired", overview.deadlines)),
        ("memory", memory_budget(&overview.memory_budget)),
    ];
    for (name, value) in lines {
        writeln!(out, "{name:<12} {}", show::tame(&value))?;
    }
    for (title, head, rows) in tables(overview) {
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{title}")?;
        let mut all = vec![head.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>()];
        all.extend(rows);
        let width = |at: usize| all.iter().map(|row| show::tame(&row[at]).chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|at| width(at).unwrap_or(0)).collect();
        for row in &all {
            let cells = row.iter().zip(&widths);
            let cells = cells.map(|(cell, &width)| format!("{:<width$}", show::tame(cell)));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
    }
    Ok(())
}

/// The whole budget, and the classes of which something is taken.
fn memory_budget(budget: &[MemoryShare]) -> String {
    let share = |of: &MemoryShare| {
        let (taken, limit) = (show::bytes(of.taken_bytes), show::bytes(of.limit_bytes));
        format!("{} {taken} of {limit}", of.class)
    };
    let is_shown = |of: &&MemoryShare| of.class == "all" || of.taken_bytes > 0;
    budget.iter().filter(is_shown).map(share).collect::<Vec<_>>().join(", ")
}

fn rates(last: &Rates) -> String {
    format!(
        "{} requests/s, {} errors/s, {}/s sent, over the last {}",
        per_second(last.requests),
        per_second(last.errors),
        show::bytes(last.sent_bytes / 1000),
        show::age(last.interval_millis)
    )
}

fn as_json(overview: &Overview) -> serde_json::Value {
    let per_second = |rate: u64| rate as f64 / 1000.0;
    let rates = overview.rates.iter().map(|of| {
        json!({
            "interval_ms": of.interval_millis,
            "requests_per_second": per_second(of.requests),
            "errors_per_second": per_second(of.errors),
            "sent_bytes_per_second": per_second(of.sent_bytes),
        })
    });
    let locations = overview.locations.iter();
    let locations = locations.map(|of| json!({ "location": of.location, "requests": of.requests }));
    let upstreams = overview.upstreams.iter().map(|of| {
        json!({
            "group": of.group, "server": of.server, "state": of.state, "running": of.running,
            "requests": of.requests, "failures": of.failures,
        })
    });
    let disks = overview.disks.iter().map(|of| {
        json!({
            "path": of.path, "device": of.device, "running": of.running, "waiting": of.waiting,
            "given_up": of.abandoned, "stuck_ms": of.stuck_millis,
        })
    });
    json!({
        "version": overview.version,
        "uptime_ms": overview.uptime_millis,
        "pid": overview.pid,
        "workers": overview.workers,
        "sessions": { "idle": overview.idle, "processing": overview.processing, "closing": overview.closing },
        "requests_total": overview.requests,
        "responses_total": { "2xx": overview.responses.first(), "3xx": overview.responses.get(1),
            "4xx": overview.responses.get(2), "5xx": overview.responses.get(3) },
        "received_bytes": overview.received_bytes,
        "sent_bytes": overview.sent_bytes,
        "cgi_running": overview.programs,
        "deadlines_total": overview.deadlines,
        "rates": rates.collect::<Vec<_>>(),
        "locations": locations.collect::<Vec<_>>(),
        "upstreams": upstreams.collect::<Vec<_>>(),
        "certificates": overview.certificates.iter().map(certificates::as_json).collect::<Vec<_>>(),
        "disks": disks.collect::<Vec<_>>(),
        "memory_budget": memory::budget_as_json(&overview.memory_budget),
    })
}
