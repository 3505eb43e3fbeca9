//! Sessions and requests as people and programs read them. The names of the JSON fields are promised in
//! docs/control.md.

use std::fmt::Write as _;
use std::io::{self, Write};

use sekisho_endpoint::control::{Request, Session, Subrequest};
use serde_json::{Value, json};

/// What a session is called: `:ID`, or `NODE:ID`.
pub(super) fn name(session: &Session) -> String {
    format!("{}:{}", session.node, session.id)
}

/// A table of sessions.
pub(super) fn sessions(sessions: &[Session], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![
        [
            "ID", "PROTOCOL", "LABEL", "PEER", "IDENTITY", "STATE", "AGE", "DEADLINE", "IN", "OUT",
            "REQUEST",
        ]
        .map(str::to_owned),
    ];
    for session in sessions {
        rows.push([
            name(session),
            session.protocol.clone(),
            label(session),
            session.peer.clone(),
            or_dash(&session.identity),
            state(session),
            age(session.age_millis),
            deadline(session),
            bytes(session.received_bytes),
            bytes(session.sent_bytes),
            current(session),
        ]);
    }
    table(&rows, &[6, 8, 9], out)
}

/// A table of running requests.
pub(super) fn requests(sessions: &[Session], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![
        ["SESSION", "REQUEST", "PEER", "HANDLER", "STATE", "STATUS", "AGE", "CANCELLED", "WHAT"]
            .map(str::to_owned),
    ];
    for session in sessions {
        for request in &session.requests {
            rows.push([
                name(session),
                request.id.to_string(),
                session.peer.clone(),
                request.handler.clone(),
                request.state.clone(),
                if request.status == 0 { "-".to_owned() } else { request.status.to_string() },
                age(request.age_millis),
                or_dash(&request.cancelled),
                what(request),
            ]);
        }
    }
    table(&rows, &[1, 6], out)
}

/// All there is to see of one session.
pub(super) fn session(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = vec![
        ("session", name(session)),
        ("protocol", session.protocol.clone()),
        ("label", or_dash(&session.label)),
        ("application", or_dash(&session.application)),
        ("peer", session.peer.clone()),
        ("identity", or_dash(&session.identity)),
        ("admin", if session.admin { "yes" } else { "no" }.to_owned()),
        ("state", state(session)),
        ("age", age(session.age_millis)),
        ("deadline", deadline(session)),
        ("received", format!("{} bytes", session.received_bytes)),
        ("sent", format!("{} bytes", session.sent_bytes)),
        ("requests", session.requests_total.to_string()),
        ("worker", session.worker.clone()),
    ];
    for request in &session.requests {
        let mut text = format!(
            "{}: {} by {}, {} for {}",
            request.id,
            what(request),
            request.handler,
            request.state,
            age(request.age_millis)
        );
        if request.status != 0 {
            _ = write!(text, ", answered with {}", request.status);
        }
        if !request.upstream.is_empty() {
            let Request { upstream, upstream_try, upstream_age_millis, .. } = request;
            let since = age(*upstream_age_millis);
            _ = write!(text, ", asks {upstream} (try {upstream_try}) for {since}");
            if !request.upstream_deadline.is_empty() {
                let left = age(request.upstream_deadline_millis);
                _ = write!(text, ", {} in {left}", request.upstream_deadline);
            }
        }
        if !request.cancelled.is_empty() {
            _ = write!(text, ", cancelled by {}", request.cancelled);
        }
        if !request.request_id.is_empty() {
            _ = write!(text, ", id {}", request.request_id);
        }
        lines.push(("running", text));
        for inner in &request.subrequests {
            let indent = "  ".repeat(inner.depth.min(50) as usize);
            let mut text = format!(
                "{indent}{} by {}, for {}",
                inner.path,
                inner.handler,
                age(inner.age_millis)
            );
            if inner.status != 0 {
                _ = write!(text, ", answered with {}", inner.status);
            }
            lines.push(("within", text));
        }
    }
    for (name, value) in lines {
        writeln!(out, "{name:<12} {}", tame(&value))?;
    }
    Ok(())
}

/// A JSON document: in one line where more follow.
pub(super) fn json_line(value: &Value, out: &mut dyn Write, is_compact: bool) -> io::Result<()> {
    if is_compact { writeln!(out, "{value}") } else { writeln!(out, "{value:#}") }
}

/// `{"sessions": […]}`
pub(super) fn sessions_json(sessions: &[Session]) -> Value {
    json!({ "sessions": sessions.iter().map(session_json).collect::<Vec<_>>() })
}

/// `{"requests": […]}`
pub(super) fn requests_json(sessions: &[Session]) -> Value {
    let requests = sessions.iter().flat_map(|session| {
        session.requests.iter().map(|request| {
            let mut value = request_json(request);
            value["session"] = session.id.into();
            if !session.node.is_empty() {
                value["node"] = session.node.as_str().into();
            }
            value["peer"] = session.peer.as_str().into();
            value
        })
    });
    json!({ "requests": requests.collect::<Vec<_>>() })
}

/// A session for programs.
pub(super) fn session_json(session: &Session) -> Value {
    let deadline = (!session.deadline.is_empty())
        .then(|| json!({ "kind": session.deadline, "in_ms": session.deadline_millis }));
    let mut value = json!({
        "id": session.id,
        "protocol": session.protocol,
        "label": session.label,
        "application": session.application,
        "peer": session.peer,
        "identity": (!session.identity.is_empty()).then_some(&session.identity),
        "admin": session.admin,
        "state": session.state,
        "shutdown": some(&session.asked),
        "age_ms": session.age_millis,
        "deadline": deadline,
        "received_bytes": session.received_bytes,
        "sent_bytes": session.sent_bytes,
        "requests_total": session.requests_total,
        "worker": session.worker,
        "requests": session.requests.iter().map(request_json).collect::<Vec<_>>(),
    });
    if !session.node.is_empty() {
        value["node"] = session.node.as_str().into();
    }
    value
}

fn request_json(request: &Request) -> Value {
    let deadline = (!request.upstream_deadline.is_empty()).then(
        || json!({ "kind": request.upstream_deadline, "in_ms": request.upstream_deadline_millis }),
    );
    let upstream = (!request.upstream.is_empty()).then(|| {
        json!({
            "server": request.upstream,
            "try": request.upstream_try,
            "age_ms": request.upstream_age_millis,
            "deadline": deadline,
        })
    });
    json!({
        "id": request.id,
        "handler": request.handler,
        "method": some(&request.method),
        "target": some(&request.target),
        "state": request.state,
        "status": (request.status != 0).then_some(request.status),
        "age_ms": request.age_millis,
        "cancelled": some(&request.cancelled),
        "request_id": some(&request.request_id),
        "upstream": upstream,
        "subrequests": request.subrequests.iter().map(subrequest_json).collect::<Vec<_>>(),
    })
}

fn subrequest_json(inner: &Subrequest) -> Value {
    json!({
        "path": inner.path,
        "handler": inner.handler,
        "status": (inner.status != 0).then_some(inner.status),
        "age_ms": inner.age_millis,
        "depth": inner.depth,
    })
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// What a session calls itself, and which program it is.
pub(super) fn label(session: &Session) -> String {
    match (session.label.as_str(), session.application.as_str()) {
        ("", "") => "-".to_owned(),
        ("", application) => format!("({application})"),
        (label, _) => label.to_owned(),
    }
}

/// Its state in words, the specification's letters beside it, and whether it was asked to end.
pub(crate) fn state(session: &Session) -> String {
    let mut text = match session.state.split_once('_') {
        Some(("p", count)) => format!("processing {count} (p_{count})"),
        Some(("c", count)) => format!("closing {count} (c_{count})"),
        _ => session.state.clone(),
    };
    if !session.asked.is_empty() {
        _ = write!(text, " {}", session.asked);
    }
    text
}

/// Which deadline is armed, and how long until then.
pub(crate) fn deadline(session: &Session) -> String {
    if session.deadline.is_empty() {
        return "-".to_owned();
    }
    format!("{} {}", session.deadline, age(session.deadline_millis))
}

/// What it does, in a few words.
pub(crate) fn current(session: &Session) -> String {
    match session.requests.as_slice() {
        [] => "-".to_owned(),
        [one] => what(one),
        [first, rest @ ..] => format!("{} and {} more", what(first), rest.len()),
    }
}

/// What a request is.
pub(super) fn what(request: &Request) -> String {
    if request.method.is_empty() {
        return request.handler.clone();
    }
    format!("{} {}", request.method, request.target)
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// `1.5s`, `2m03s`, `4h05m`, `3d02h`
pub(crate) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// `812`, `1.2K`, `34M`
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1024.0 {
            let has_point = value < 10.0 && !unit.is_empty();
            return if has_point {
                format!("{value:.1}{unit}")
            } else {
                format!("{value:.0}{unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.0}P")
}

/// Columns side by side; those named are numbers. Nothing that a peer says about itself reaches the
/// terminal as a command.
pub(super) fn table<const N: usize>(
    rows: &[[String; N]],
    numbers: &[usize],
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| tame(cell))).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if numbers.contains(&column) {
                _ = write!(line, "{cell:>width$}  ");
            } else {
                _ = write!(line, "{cell:<width$}  ");
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Text from a peer without control characters, and without those that turn the direction of what follows.
pub(super) fn tame(text: &str) -> String {
    let is_wild = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if is_wild(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_and_sizes_are_short() {
        let table = [(0, "0.0s"), (1560, "1.5s"), (59_999, "59s"), (123_000, "2m03s")];
        for (millis, expected) in table {
            assert_eq!(age(millis), expected);
        }
        assert_eq!((age(14_700_000), age(266_400_000)), ("4h05m".into(), "3d02h".into()));
        let table =
            [(0, "0"), (1023, "1023"), (1229, "1.2K"), (34 << 20, "34M"), (5 << 40, "5.0T")];
        for (count, expected) in table {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn what_a_peer_says_is_no_command_to_the_terminal() {
        // V: terminal escapes in labels
        let request = Request {
            method: "GET".to_owned(),
            target: "/\x1b[2J\u{202e}".to_owned(),
            ..Request::default()
        };
        let named = Session {
            label: "\x1b[2Jx\u{202e}".to_owned(),
            requests: vec![request],
            ..Session::default()
        };
        let mut out = Vec::new();
        sessions(std::slice::from_ref(&named), &mut out).expect("a vector takes all");
        requests(std::slice::from_ref(&named), &mut out).expect("a vector takes all");
        session(&named, &mut out).expect("a vector takes all");
        let out = String::from_utf8(out).expect("text");
        assert!(!out.contains(['\x1b', '\u{202e}']) && out.contains("[2J"), "{out}");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut out = Vec::new();
        let rows = [["A", "N"], ["long", "1"]].map(|row| row.map(str::to_owned));
        table(&rows, &[1], &mut out).expect("a vector takes all");
        assert_eq!(String::from_utf8_lossy(&out), "A     N\nlong  1\n");
    }
}
