//! What happened so far (O7), gathered from the workers and the endpoints, in Prometheus's terms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use sekisho_endpoint::control::{Certificate, Family, Label, Metrics, Sample};
use sekisho_handler::disk::{self, DeviceView};
use sekisho_handler::memory as guard;
use sekisho_handler::upstream::{Snapshot, Unavailable};
use sekisho_lifecycle::{Budget, DeadlineKind, Session as State};
use sekisho_net::counters::ByProtocol;
use sekisho_net::request_stats::{BUCKETS_MICROS, RequestStats};
use sekisho_net::{ProtocolKind, WatchedThread};

use super::host::Host;

const OPENED: &str = "sekisho_sessions_opened_total";
const REQUESTS: &str = "sekisho_requests_total";

/// Everything.
pub(super) async fn gather(host: &Host) -> Metrics {
    gather_with_stats(host).await.0
}

/// The same, and what it is made of.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(super) async fn gather_with_stats(host: &Host) -> (Metrics, RequestStats) {
    let workers = host.worker_registry.measure().await;
    let shared = &host.shared;
    let counters = &shared.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let mut stats = shared.past.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (mut here, mut received, mut sent) = ([[0; 3]; ProtocolKind::ALL.len()], 0, 0);
    let mut alone = 0;
    for (_, measured) in &workers {
        stats.merge(&measured.stats);
        let more = measured.sessions.as_flattened();
        here.as_flattened_mut().iter_mut().zip(more).for_each(|(all, more)| *all += more);
        received += measured.moved.0;
        sent += measured.moved.1;
        alone += measured.programs_alone;
    }
    let mut native = [0_u64; 3];
    let mut endpoint = *shared.past_native.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, measured) in &workers {
        native.iter_mut().zip(measured.native_sessions).for_each(|(all, more)| *all += more);
        endpoint = endpoint.plus(measured.native);
    }
    if let Some(own) = host.endpoint() {
        for info in own.list() {
            let at = match info.state {
                State::Vacant | State::Idle => 0,
                State::Processing(_) => 1,
                State::Closing(..) | State::Shutdown => 2,
            };
            native[at] += 1;
        }
        endpoint = endpoint.plus(own.counters());
    }
    let by_protocol = |name: &str, help: &str, counts: &ByProtocol, native: u64| {
        let of = |kind| (label(name, kind), counts.of(kind));
        // A call of `http` in a native session is no session of its own.
        let is_shown = |(label, _): &(&str, u64)| !label.is_empty();
        let counts = ProtocolKind::ALL.map(of).into_iter().filter(is_shown);
        let samples = counts.chain([("native", native)]);
        let samples = samples.map(|(of, count)| sample("", &[("protocol", of)], count as f64));
        family(name, help, "counter", samples.collect())
    };
    let one = |name: &str, help: &str, kind: &str, value: f64| {
        family(name, help, kind, vec![sample("", &[], value)])
    };
    let families = vec![
        one("sekisho_uptime_seconds", "Time since the start", "gauge", host.uptime().as_secs_f64()),
        one("sekisho_workers", "Workers that answer", "gauge", workers.len() as f64),
        by_state(here, native),
        by_protocol(OPENED, "Connections accepted", &counters.accepted, endpoint.connected),
        by_protocol(REQUESTS, "Requests received", &counters.requests, endpoint.requests),
        responses(&stats),
        latency(&stats),
        one(
            "sekisho_received_bytes_total",
            "Bytes received from HTTP clients",
            "counter",
            received as f64 + count(&counters.received_bytes),
        ),
        one(
            "sekisho_sent_bytes_total",
            "Bytes sent to HTTP clients",
            "counter",
            sent as f64 + count(&counters.sent_bytes),
        ),
        expired(&counters.expired),
        one(
            "sekisho_native_deadlines_total",
            "Deadlines of native sessions that expired",
            "counter",
            endpoint.expired as f64,
        ),
        one(
            "sekisho_requests_cancelled_total",
            "Requests cancelled by an operator",
            "counter",
            count(&counters.cancelled),
        ),
        one(
            "sekisho_responses_broken_off_total",
            "Responses that could not be completed",
            "counter",
            count(&counters.broken_off),
        ),
        one(
            "sekisho_sessions_forced_total",
            "Sessions closed forcefully in the middle of a request",
            "counter",
            count(&counters.forced),
        ),
        one(
            "sekisho_panics_total",
            "Connections ended by a bug of the server",
            "counter",
            count(&counters.panics),
        ),
        one(
            "sekisho_workers_stuck_total",
            "Workers that hung",
            "counter",
            count(&counters.workers_stuck),
        ),
        one(
            "sekisho_workers_replaced_total",
            "Workers replaced because they had ended or hung",
            "counter",
            count(&counters.workers_replaced),
        ),
        threads_stuck(host),
        disks(
            "sekisho_disk_operations_running",
            "File operations that run, by device",
            "gauge",
            |disk| disk.running as f64,
        ),
        disks(
            "sekisho_disk_operations_abandoned_total",
            "File operations given up because the device did not respond in time",
            "counter",
            |disk| disk.abandoned as f64,
        ),
        disks(
            "sekisho_disk_stuck_seconds",
            "How long a device has not responded; 0 where it does",
            "gauge",
            |disk| disk.stuck.map_or(0.0, |age| age.as_secs_f64()),
        ),
        one(
            "sekisho_accept_pauses_total",
            "Pauses of accept(), for lack of descriptors or memory",
            "counter",
            count(&counters.accept_pauses),
        ),
        one(
            "sekisho_native_refused_total",
            "Native peers and requests that were refused",
            "counter",
            endpoint.refused as f64,
        ),
        one(
            "sekisho_native_withdrawn_total",
            "Native sessions ended because their password or certificate was withdrawn",
            "counter",
            endpoint.withdrawn as f64,
        ),
        one(
            "sekisho_service_denied_total",
            "Calls of services that their callers might not make, or not then (`permit`, `requests_per_identity`)",
            "counter",
            endpoint.denied as f64,
        ),
        one(
            "sekisho_memory_short",
            "Whether memory is short, so that new connections and costly work are refused",
            "gauge",
            f64::from(u8::from(guard::is_still_short())),
        ),
        one(
            "sekisho_memory_shortages_total",
            "Times that memory became short",
            "counter",
            guard::shortages() as f64,
        ),
        one(
            "sekisho_memory_refusals_total",
            "Connections and work refused because memory was short",
            "counter",
            guard::refusals() as f64,
        ),
        by_class(
            "sekisho_memory_budget_taken_bytes",
            "Memory that peers make the server hold, by class",
            Budget::taken,
        ),
        by_class(
            "sekisho_memory_budget_limit_bytes",
            "Maximum of the memory that peers can make the server hold, by class",
            Budget::limit,
        ),
        one(
            "sekisho_service_bugs_total",
            "Services that broke their contract",
            "counter",
            (endpoint.answered_with_open_channel + endpoint.dropped_unanswered) as f64,
        ),
        one(
            "sekisho_log_lines_dropped_total",
            "Log lines dropped because their target did not take them",
            "counter",
            sekisho_log::lines_dropped() as f64,
        ),
        one(
            "sekisho_cgi_running",
            "CGI programs that run",
            "gauge",
            shared.process_slots.taken() as f64,
        ),
        one(
            "sekisho_cgi_alone",
            "CGI programs that run on without their client",
            "gauge",
            alone as f64,
        ),
        certificates(host),
        upstreams(host, "sekisho_upstream_server_up", "Whether a server may be asked", |it| {
            f64::from(u8::from(it.unavailable.is_none()))
        }),
        upstreams(
            host,
            "sekisho_upstream_server_healthy",
            "Whether active checks speak for a server",
            |it| f64::from(u8::from(it.unavailable != Some(Unavailable::Unhealthy))),
        ),
        upstreams(
            host,
            "sekisho_upstream_server_connections",
            "Requests that a server has now",
            |it| f64::from(it.connections),
        ),
    ];
    (Metrics { families }, stats)
}

/// The threads beside the workers, of which there is one each.
fn threads_stuck(host: &Host) -> Family {
    let threads = host.shared.watched_threads.all();
    let of = |thread: &Arc<WatchedThread>| {
        let count = thread.stuck_count.load(Ordering::Relaxed);
        sample("", &[("thread", thread.name)], count as f64)
    };
    let samples = threads.iter().map(of).collect();
    let help = "Times that a thread beside the workers hung";
    family("sekisho_threads_stuck_total", help, "counter", samples)
}

/// A fact about each device.
fn disks(name: &str, help: &str, kind: &str, of: fn(&DeviceView) -> f64) -> Family {
    let one = |disk: &DeviceView| {
        let (major, minor) = disk.number;
        let (device, path) = (format!("{major}:{minor}"), disk.path.display().to_string());
        sample("", &[("device", &device), ("path", &path)], of(disk))
    };
    family(name, help, kind, disk::views().iter().map(one).collect())
}

/// A fact about each server of each group.
fn upstreams(host: &Host, name: &str, help: &str, of: fn(&Snapshot) -> f64) -> Family {
    let mut samples = Vec::new();
    for (block, group, server, snapshot) in host.upstream_servers() {
        let labels = [("block", block), ("upstream", group.as_str()), ("server", &*server)];
        samples.push(sample("", &labels, of(&snapshot)));
    }
    family(name, help, "gauge", samples)
}

/// How long each certificate lasts.
fn certificates(host: &Host) -> Family {
    let all = host.certificates();
    let of = |it: &Certificate| {
        let names = it.names.join(",");
        let labels = [("names", names.as_str()), ("issuer", &it.issuer), ("source", &it.source)];
        sample("", &labels, it.seconds_left as f64 / 86_400.0)
    };
    let samples = all.iter().filter(|it| !it.is_missing).map(of).collect();
    let help = "Days until a certificate expires; negative where it has";
    family("sekisho_certificate_days_left", help, "gauge", samples)
}

/// What a protocol is called in one of the two; nothing where it is left out.
fn label(name: &str, kind: ProtocolKind) -> &'static str {
    match (kind, name == OPENED) {
        // Which version is spoken is not known when a connection is accepted.
        (ProtocolKind::Http1, true) => "http",
        (ProtocolKind::Http2 | ProtocolKind::Internal, true) => "",
        (ProtocolKind::Internal, false) => "internal",
        (
            ProtocolKind::Http1
            | ProtocolKind::Http2
            | ProtocolKind::Http3
            | ProtocolKind::Tcp
            | ProtocolKind::Udp,
            _,
        ) => kind.name(),
    }
}

fn by_state(here: [[u64; 3]; ProtocolKind::ALL.len()], native: [u64; 3]) -> Family {
    let mut samples = Vec::new();
    let here = ProtocolKind::ALL.into_iter().zip(here);
    let here = here.filter(|(kind, _)| *kind != ProtocolKind::Internal);
    let here = here.map(|(kind, counts)| (kind.name(), counts));
    for (protocol, counts) in here.chain([("native", native)]) {
        for (state, count) in ["idle", "processing", "closing"].into_iter().zip(counts) {
            let labels = [("protocol", protocol), ("state", state)];
            samples.push(sample("", &labels, count as f64));
        }
    }
    family("sekisho_sessions", "Open sessions", "gauge", samples)
}

fn responses(stats: &RequestStats) -> Family {
    let classes = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
    let pairs = classes.into_iter().zip(stats.statuses);
    let samples = pairs.map(|(class, count)| sample("", &[("class", class)], count as f64));
    let help = "Answers to HTTP requests, by status";
    family("sekisho_responses_total", help, "counter", samples.collect())
}

fn latency(stats: &RequestStats) -> Family {
    let mut samples = Vec::new();
    let mut below = 0;
    for (end, count) in BUCKETS_MICROS.iter().zip(stats.latencies) {
        below += count;
        let end = (*end as f64 / 1e6).to_string();
        samples.push(sample("_bucket", &[("le", &end)], below as f64));
    }
    samples.push(sample("_bucket", &[("le", "+Inf")], stats.count() as f64));
    samples.push(sample("_sum", &[], stats.latency_sum.as_secs_f64()));
    samples.push(sample("_count", &[], stats.count() as f64));
    let help = "Time from a request's first byte to the end of its answer";
    family("sekisho_request_seconds", help, "histogram", samples)
}

fn expired(counters: &[AtomicU64]) -> Family {
    let samples = DeadlineKind::ALL.iter().zip(counters).map(|(kind, counter)| {
        sample("", &[("kind", kind.tag())], counter.load(Ordering::Relaxed) as f64)
    });
    let help = "Deadlines of HTTP sessions that expired";
    family("sekisho_deadlines_total", help, "counter", samples.collect())
}

/// A figure of each share of the memory budget.
fn by_class(name: &str, help: &str, of: impl Fn(&Budget) -> usize) -> Family {
    let of = |(class, budget)| sample("", &[("class", class)], of(budget) as f64);
    family(name, help, "gauge", guard::budgets().map(of).collect())
}

fn family(name: &str, help: &str, kind: &str, samples: Vec<Sample>) -> Family {
    Family { name: name.to_owned(), help: help.to_owned(), kind: kind.to_owned(), samples }
}

fn sample(suffix: &str, labels: &[(&str, &str)], value: f64) -> Sample {
    let label = |(name, value): &(&str, &str)| Label {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    Sample { suffix: suffix.to_owned(), labels: labels.iter().map(label).collect(), value }
}
