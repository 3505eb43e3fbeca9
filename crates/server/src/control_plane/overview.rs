//! How the server is, on one page (O7): for the status page and for `ctl status`.
//!
//! Rates are measured between looks. Nothing wakes up to measure them: a client that looks again and again sees them move.

use std::collections::VecDeque;
use std::time::Duration;

use sekisho_config::{LocationId, ServerName};
use sekisho_endpoint::control::{
    Disk, LocationCount, Metrics, Overview, Rates, Sample, UpstreamServer,
};
use sekisho_handler::disk::{self, DeviceView};
use sekisho_handler::upstream::Unavailable;
use sekisho_net::Site;

use super::host::Host;
use super::metrics;

/// So many rates are kept.
const RATES_MAX: usize = 60;
/// Two looks are at least so far apart to give a rate of their own.
const LOOK_EVERY_MIN: Duration = Duration::from_secs(1);
/// After a longer time without a look, earlier rates are of no interest.
const LOOK_EVERY_MAX: Duration = Duration::from_mins(1);
/// So many locations are shown.
const LOCATIONS_MAX: usize = 10;

/// What a rate is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    uptime: Duration,
    requests: u64,
    errors: u64,
    sent_bytes: u64,
}

/// Earlier looks.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Totals,
    rates: VecDeque<Rates>,
}

impl History {
    /// Takes note of a look. The first one gives the rates since the start.
    fn look(&mut self, now: Totals) {
        let interval = now.uptime.saturating_sub(self.last.uptime);
        if interval < LOOK_EVERY_MIN && !self.rates.is_empty() {
            return;
        }
        let millis = interval.as_millis().max(1) as u64;
        let rate = |now: u64, before: u64| now.saturating_sub(before) * 1_000_000 / millis;
        if interval > LOOK_EVERY_MAX {
            self.rates.clear();
        }
        self.rates.push_back(Rates {
            interval_millis: millis,
            requests: rate(now.requests, self.last.requests),
            errors: rate(now.errors, self.last.errors),
            sent_bytes: rate(now.sent_bytes, self.last.sent_bytes),
        });
        if self.rates.len() > RATES_MAX {
            self.rates.pop_front();
        }
        self.last = now;
    }
}

/// The sum of the samples of this name with all of these label values.
fn sum(metrics: &Metrics, name: &str, values: &[&str]) -> u64 {
    let has = |sample: &&Sample| {
        values.iter().all(|value| sample.labels.iter().any(|label| label.value == *value))
    };
    let families = metrics.families.iter().filter(|family| family.name == name);
    let samples = families.flat_map(|family| family.samples.iter().filter(has));
    samples.map(|sample| sample.value).sum::<f64>() as u64
}

/// Gathers the page.
pub(super) async fn gather(host: &Host) -> Overview {
    let (metrics, stats) = metrics::gather_with_stats(host).await;
    let sum = |name: &str, values: &[&str]| sum(&metrics, name, values);
    let of_all = |name: &str, protocols: &[&str], values: &[&str]| -> u64 {
        protocols.iter().map(|protocol| sum(name, &[&[*protocol], values].concat())).sum()
    };
    let sessions =
        |state: &str| of_all("sekisho_sessions", &["http1", "http2", "tcp", "udp"], &[state]);
    let responses = ["2xx", "3xx", "4xx", "5xx"];
    let responses = responses.map(|class| sum("sekisho_responses_total", &[class]));
    let uptime = host.uptime();
    let (requests, sent_bytes) = (
        of_all("sekisho_requests_total", &["http1", "http2"], &[]),
        sum("sekisho_sent_bytes_total", &[]),
    );
    let rates = {
        let mut history = host.history.borrow_mut();
        history.look(Totals { uptime, requests, errors: responses[3], sent_bytes });
        history.rates.iter().copied().collect()
    };
    let locations = host
        .site()
        .map(|site| busiest(&site, stats.locations.of(site.serial())))
        .unwrap_or_default();
    let servers = host.upstream_servers().into_iter();
    let upstreams = servers.map(|(_, group, server, seen)| UpstreamServer {
        group,
        server: server.to_string(),
        state: seen.unavailable.map_or("up", Unavailable::name).to_owned(),
        running: seen.connections,
        requests: seen.requests,
        failures: seen.failures,
    });
    let upstreams = upstreams.collect();
    Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_millis: uptime.as_millis() as u64,
        pid: crate::parent_link::main_pid(),
        workers: sum("sekisho_workers", &[]) as u32,
        idle: sessions("idle"),
        processing: sessions("processing"),
        closing: sessions("closing"),
        requests,
        responses: responses.to_vec(),
        received_bytes: sum("sekisho_received_bytes_total", &[]),
        sent_bytes,
        programs: sum("sekisho_cgi_running", &[]),
        deadlines: sum("sekisho_deadlines_total", &[]),
        rates,
        locations,
        upstreams,
        certificates: host.certificates(),
        disks: disk::views().iter().map(disk_view).collect(),
        memory_budget: super::memory::budget(),
    }
}

fn disk_view(view: &DeviceView) -> Disk {
    let (major, minor) = view.number;
    Disk {
        path: view.path.display().to_string(),
        device: format!("{major}:{minor}"),
        running: view.running as u64,
        waiting: view.waiting as u64,
        abandoned: view.abandoned,
        stuck_millis: view.stuck.map_or(0, |age| age.as_millis() as u64),
    }
}

/// The locations with the most requests.
fn busiest(site: &Site, counts: &[u64]) -> Vec<LocationCount> {
    let mut all: Vec<(u64, u32)> = counts
        .iter()
        .zip(0..)
        .map(|(count, id)| (*count, id))
        .filter(|(count, _)| *count > 0)
        .collect();
    all.sort_by_key(|(count, id)| (std::cmp::Reverse(*count), *id));
    all.truncate(LOCATIONS_MAX);
    let shown = |(requests, id)| LocationCount { location: name(site, LocationId(id)), requests };
    all.into_iter().map(shown).collect()
}

/// A location as the configuration writes it, behind the name of its server.
fn name(site: &Site, id: LocationId) -> String {
    let location = site.location(id);
    let server = match site.table().server(location.server).names.first() {
        Some(ServerName::Exact(name)) => name.clone(),
        Some(ServerName::LeadingWildcard(name)) => format!("*{name}"),
        Some(ServerName::TrailingWildcard(name)) => format!("{name}*"),
        Some(ServerName::Regex(pattern)) => format!("~{}", pattern.source),
        None => String::new(),
    };
    let matches = &location.matches;
    if server.is_empty() { matches.to_string() } else { format!("{server} {matches}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O7
    #[test]
    fn rates_are_measured_between_looks() {
        let mut history = History::default();
        let at = |seconds, requests| Totals {
            uptime: Duration::from_secs(seconds),
            requests,
            ..Totals::default()
        };
        history.look(at(10, 50));
        assert_eq!(history.rates[0].requests, 5000);
        // Too soon for a rate of its own.
        history.look(Totals { uptime: Duration::from_millis(10_500), ..at(0, 60) });
        history.look(at(12, 70));
        assert_eq!(
            history.rates.iter().map(|rates| rates.requests).collect::<Vec<_>>(),
            [5000, 10_000]
        );
        history.look(at(112, 170));
        assert_eq!(history.rates.iter().map(|rates| rates.requests).collect::<Vec<_>>(), [1000]);
        for second in 0..100 {
            history.look(at(113 + second, 170));
        }
        assert_eq!((history.rates.len(), history.rates[0].requests), (RATES_MAX, 0));
    }
}
