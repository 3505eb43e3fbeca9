//! The pages about the server itself (O7), written when a worker asks for one: a live page for people,
//! Prometheus's text, and nginx's counts.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use sekisho_config::StatusForm;
use sekisho_endpoint::control::{Overview, Rates, Session};
use sekisho_handler::status::{SCRIPT, STYLE, StatusQuery};
use sekisho_net::query::SessionFilter;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::host::Host;
use super::{metrics, overview};
use crate::ctl::{prometheus, show, status as overview_text};

/// So long a page is given to other clients, too: however many ask, the workers are asked this often.
const KEPT: Duration = Duration::from_millis(100);
/// More sessions are not shown on the page.
const SESSIONS_MAX: usize = 500;

/// Answers all queries.
pub(super) async fn answer_all(host: Rc<Host>, mut questions: UnboundedReceiver<StatusQuery>) {
    let mut kept: [Option<(Instant, Vec<u8>)>; 3] = Default::default();
    while let Some(StatusQuery { form, answer }) = questions.recv().await {
        let now = Instant::now();
        let kept = &mut kept[form as usize];
        if kept.as_ref().is_none_or(|(since, _)| now.duration_since(*since) >= KEPT) {
            *kept = Some((now, write(&host, form).await.into_bytes()));
        }
        // A client that has gone does not get it.
        let _ = answer.send(kept.as_ref().map(|(_, text)| text.clone()).unwrap_or_default());
    }
}

async fn write(host: &Host, form: StatusForm) -> String {
    match form {
        StatusForm::Prometheus => prometheus(&metrics::gather(host).await),
        // The worker that is asked knows these.
        StatusForm::Counts | StatusForm::Ready | StatusForm::Live | StatusForm::Pixel => {
            String::new()
        }
        StatusForm::Page => {
            let (mut sessions, _) = host.worker_registry.sessions(SessionFilter::All).await;
            sessions.extend(host.native_sessions().await);
            // Busy sessions come first.
            sessions.sort_by_key(|session| (session.requests.is_empty(), session.id));
            page(&overview::gather(host).await, &sessions)
        }
    }
}

fn page(overview: &Overview, sessions: &[Session]) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Sekisho status</title>\
         <noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>",
    );
    out.push_str(STYLE);
    _ = write!(
        out,
        "</style></head><body><header><h1>Sekisho {}</h1></header><main><p>up {}, process {}, {} {}</p>",
        overview.version,
        show::age(overview.uptime_millis),
        overview.pid,
        overview.workers,
        if overview.workers == 1 { "worker" } else { "workers" }
    );
    charts(overview, &mut out);
    let answers = |at: usize| overview.responses.get(at).copied().unwrap_or(0).to_string();
    out.push_str("<h2>Totals</h2><dl>");
    for (name, value) in [
        ("idle", overview.idle.to_string()),
        ("processing", overview.processing.to_string()),
        ("closing", overview.closing.to_string()),
        ("requests", overview.requests.to_string()),
        ("2xx", answers(0)),
        ("3xx", answers(1)),
        ("4xx", answers(2)),
        ("5xx", answers(3)),
        ("deadlines expired", overview.deadlines.to_string()),
        ("CGI programs", overview.programs.to_string()),
        ("received", show::bytes(overview.received_bytes)),
        ("sent", show::bytes(overview.sent_bytes)),
    ] {
        _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
    for (title, head, rows) in overview_text::tables(overview) {
        table(title, head, &rows, &mut out);
    }
    let row = |session: &Session| {
        vec![
            format!(":{}", session.id),
            session.protocol.clone(),
            session.peer.clone(),
            show::state(session),
            show::age(session.age_millis),
            show::deadline(session),
            show::bytes(session.received_bytes),
            show::bytes(session.sent_bytes),
            show::current(session),
        ]
    };
    let rows: Vec<_> = sessions.iter().take(SESSIONS_MAX).map(row).collect();
    table("Sessions", &SESSION_COLUMNS, &rows, &mut out);
    if sessions.len() > SESSIONS_MAX {
        _ = write!(out, "<p>and {} more</p>", sessions.len() - SESSIONS_MAX);
    }
    out.push_str("</main><script>");
    out.push_str(SCRIPT);
    out.push_str("</script></body></html>\n");
    out
}

/// The columns of the table of sessions.
const SESSION_COLUMNS: [&str; 9] =
    ["session", "protocol", "peer", "state", "age", "deadline", "in", "out", "request"];

fn table(title: &str, head: &[&str], rows: &[Vec<String>], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    // What is too wide scrolls by itself, and can be reached by keyboard.
    _ = write!(
        out,
        "<h2>{title}</h2><div class=\"s\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table><thead><tr>"
    );
    for name in head {
        _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for text in row {
            out.push_str("<td>");
            escape(text, out);
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// The rates between looks at the page, as small charts.
fn charts(overview: &Overview, out: &mut String) {
    /// What a chart is of, its values, and how one is shown.
    type Chart = (&'static str, fn(&Rates) -> u64, fn(u64) -> String);
    let kinds: [Chart; 3] = [
        ("requests per second", |rates| rates.requests, overview_text::per_second),
        ("errors (5xx) per second", |rates| rates.errors, overview_text::per_second),
        ("sent per second", |rates| rates.sent_bytes, |rate| show::bytes(rate / 1000)),
    ];
    out.push_str("<div class=\"c\">");
    for (title, of, shown) in kinds {
        let values: Vec<u64> = overview.rates.iter().map(of).collect();
        let last = values.last().copied().unwrap_or(0);
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let step = CHART_WIDTH / values.len().saturating_sub(1).max(1) as f64;
        let mut points = String::new();
        for (at, value) in values.iter().enumerate() {
            let height = CHART_HEIGHT - *value as f64 / most as f64 * (CHART_HEIGHT - 2.0) - 1.0;
            _ = write!(points, "{:.0},{height:.1} ", at as f64 * step);
        }
        if let [only] = values.as_slice() {
            let height = if *only == 0 { CHART_HEIGHT - 1.0 } else { 1.0 };
            _ = write!(points, "{CHART_WIDTH:.0},{height:.1}");
        }
        _ = write!(
            out,
            "<figure><figcaption>{title}<b>{}</b></figcaption><svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}: {} now, {} at most\">\
             <polyline points=\"{}\"/></svg></figure>",
            shown(last),
            shown(last),
            shown(if values.is_empty() { 0 } else { most }),
            points.trim_end()
        );
    }
    out.push_str("</div>");
}

/// The size of a chart, in its own units.
const CHART_WIDTH: f64 = 240.0;
const CHART_HEIGHT: f64 = 48.0;

/// Text from a peer is text.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_asks_for_is_no_markup_on_the_page() {
        // O7, V48
        let request = sekisho_endpoint::control::Request {
            method: "GET".to_owned(),
            target: "/<script>\"&".to_owned(),
            ..Default::default()
        };
        let session = Session { requests: vec![request], ..Session::default() };
        let page = page(&Overview::default(), &[session]);
        assert!(page.contains("GET /&lt;script&gt;&quot;&amp;") && !page.contains("/<script"));
    }
}
