//! The pages about the server itself (O7), written when a worker asks for one: a live page for people,
//! Prometheus's text, and nginx's counts.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use sekisho_config::StatusForm;
use sekisho_endpoint::control::{Metrics, Sample, Session};
use sekisho_handler::status::{STYLE, StatusQuery};
use sekisho_net::query::SessionFilter;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::host::Host;
use super::metrics;
use crate::ctl::{prometheus, show};

/// So long a page is reused: however many clients ask, the workers are asked once.
const KEPT: Duration = Duration::from_millis(100);
/// More sessions are not shown on the page.
const SESSIONS_MAX: usize = 500;

/// Answers until the queue of queries is closed.
pub(super) async fn answer_all(host: Rc<Host>, mut questions: UnboundedReceiver<StatusQuery>) {
    let mut kept: [Option<(Instant, Vec<u8>)>; 3] = Default::default();
    while let Some(StatusQuery { form, answer }) = questions.recv().await {
        let now = Instant::now();
        let kept = &mut kept[form as usize];
        if kept.as_ref().is_none_or(|(since, _)| now.duration_since(*since) >= KEPT) {
            *kept = Some((now, write(&host, form).await.into_bytes()));
        }
        // If the request has gone, the answer is dropped.
        let _ = answer.send(kept.as_ref().map(|(_, text)| text.clone()).unwrap_or_default());
    }
}

async fn write(host: &Host, form: StatusForm) -> String {
    let metrics = metrics::gather(host).await;
    match form {
        StatusForm::Prometheus => prometheus(&metrics),
        // The worker that is asked knows these.
        StatusForm::Counts => String::new(),
        StatusForm::Page => {
            let (mut sessions, _) = host.worker_registry.sessions(SessionFilter::All).await;
            sessions.extend(host.native_sessions());
            // Busy sessions come first.
            sessions.sort_by_key(|session| (session.requests.is_empty(), session.id));
            page(&metrics, &sessions)
        }
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

fn page(metrics: &Metrics, sessions: &[Session]) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Sekisho</title>\
         <meta http-equiv=\"refresh\" content=\"2\">\
         <meta name=\"viewport\" content=\"width=device-width\"><style>",
    );
    out.push_str(STYLE);
    out.push_str("</style></head><body><h1>Sekisho</h1><dl>");
    let http = |state: &str| sum(metrics, "sekisho_sessions", &[state]);
    let responses = |class: &str| sum(metrics, "sekisho_responses_total", &[class]);
    for (name, value) in [
        ("up", show::age(sum(metrics, "sekisho_uptime_seconds", &[]) * 1000)),
        ("idle", http("idle").to_string()),
        ("working", http("processing").to_string()),
        ("ending", http("closing").to_string()),
        ("requests", sum(metrics, "sekisho_requests_total", &[]).to_string()),
        ("2xx", responses("2xx").to_string()),
        ("4xx", responses("4xx").to_string()),
        ("5xx", responses("5xx").to_string()),
        ("deadlines", sum(metrics, "sekisho_deadlines_total", &[]).to_string()),
        ("programs", sum(metrics, "sekisho_cgi_running", &[]).to_string()),
        ("received", show::bytes(sum(metrics, "sekisho_received_bytes_total", &[]))),
        ("sent", show::bytes(sum(metrics, "sekisho_sent_bytes_total", &[]))),
    ] {
        _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str(
        "</dl><div class=\"s\"><table><tr><th>session<th>protocol<th>peer<th>state<th>age\
         <th>deadline<th>in<th>out<th>request</tr>",
    );
    for session in sessions.iter().take(SESSIONS_MAX) {
        _ = write!(out, "<tr><td>:{}", session.id);
        for text in [
            &session.protocol,
            &session.peer,
            &show::state(session),
            &show::age(session.age_millis),
            &show::deadline(session),
            &show::bytes(session.received_bytes),
            &show::bytes(session.sent_bytes),
            &show::current(session),
        ] {
            out.push_str("<td>");
            escape(text, &mut out);
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    if sessions.len() > SESSIONS_MAX {
        _ = write!(out, "<p>and {} more", sessions.len() - SESSIONS_MAX);
    }
    out.push_str("</body></html>\n");
    out
}

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
        let page = page(&Metrics::default(), &[session]);
        assert!(page.contains("GET /&lt;script&gt;&quot;&amp;") && !page.contains("<script"));
    }
}
