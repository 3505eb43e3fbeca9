//! A site to route in: one with a bit of everything, and a view of files that holds the router to its
//! word.

use std::path::Path;
use std::sync::Arc;

use sekisho_config::{LocationId, Memory, Options, RateLimit, Settings, load};
use sekisho_http::{Fields, Head, Status, target};
use sekisho_lifecycle::Moment;
use sekisho_route::{
    AccessChecks, Action, ConnectionFacts, Files, LineFormat, Look, Password, Rated, Request,
    RequestIdSeed, RouteState, Sent, Table, TimeTexts, WallTime, added_fields, log_line,
    media_type, wants_line,
};

const TEXT: &str = include_str!("site.conf");

/// The table of the site.
pub fn table() -> Table {
    let outcome =
        load(Path::new("/etc/site.conf"), &Options::new("/p"), &Memory::of("/etc/site.conf", TEXT));
    let shown: Vec<_> = outcome.reports.iter().map(|report| report.render(false)).collect();
    Table::new(Arc::new(outcome.config.unwrap_or_else(|| panic!("{}", shown.join("\n")))))
}

/// Decides one request at one of the listen addresses, and checks what comes of it. `is_strict`: the configuration
/// has no control bytes, so none may come out.
pub fn decide(table: &Table, head: &Head, is_strict: bool) {
    let connection = ConnectionFacts {
        id: 7,
        remote: Some(([192, 0, 2, 1], 4711).into()),
        local: Some(([192, 0, 2, 2], 8080).into()),
        requests: 1,
        since: Moment::ZERO,
        is_tls: false,
        tls: None,
        proxied: None,
        is_clear_by_mistake: false,
        is_udp: false,
    };
    // Which address is asked and which files there are follow from the target, so that one input is one story.
    // One address more than there are: a request for it gets an error.
    let sum = head.target().iter().fold(0_usize, |sum, byte| sum + usize::from(*byte));
    let listen = sum / 3 % (table.config().http.listens.len().min(8) + 1);
    let request = Request {
        head,
        listen,
        connection: &connection,
        wall: WallTime { unix_secs: 1_700_000_000, nanos: 5, utc_offset_secs: -5400 },
        request_id: RequestIdSeed(1 + listen as u128),
        since: Moment::ZERO,
        now: Moment::ZERO,
        is_pipelined: false,
        census: None,
    };
    let (mut route_state, mut view) =
        (RouteState::default(), View::new((sum % 3) as u8, is_strict));
    let mut action = table.decide(&request, &mut route_state, &mut view);
    // Whatever is waited for, waiting comes to an end.
    for waits in 0.. {
        assert!(waits < 100, "the decision does not end");
        let Action::Wait(_) = action else { break };
        check(table, &request, &route_state, &action);
        action = table.resume(&request, &mut route_state, &mut view);
    }
    check(table, &request, &route_state, &action);
    let late = Status::INTERNAL_SERVER_ERROR;
    let action = table.decide_error(late, &request, &mut route_state, &mut view);
    check(table, &request, &route_state, &action);
}

fn check(table: &Table, request: &Request<'_>, route_state: &RouteState, action: &Action<()>) {
    if !route_state.is_routed() {
        assert!(matches!(action, Action::Error(_)));
        return;
    }
    assert!(target::is_dotless(&route_state.path), "{:?}", route_state.path);
    if let Action::Redirect(_) = action {
        assert!(route_state.text.iter().all(u8::is_ascii_graphic), "{:?}", route_state.text);
    }
    let mut fields = Fields::new();
    added_fields(table, request, route_state, Status::OK, Some(1), &mut fields);
    check_lines(fields.as_lines());
    let _ = media_type(table, route_state);
    let sent = Sent { status: Some(Status::OK), fields: &fields, ..Sent::default() };
    for log in table.location(route_state.location).settings.access_logs.iter() {
        if let Some(condition) = &log.condition {
            let _ = wants_line(condition, table, request, route_state, Some(&sent));
        }
        let mut line = Vec::new();
        let (format, mut times) = (LineFormat::new(&log.format), TimeTexts::new());
        log_line(&format, table, request, route_state, Some(&sent), &mut times, &mut line);
    }
}

/// Whole field lines, and nothing that would make two of one.
fn check_lines(mut lines: &[u8]) {
    while !lines.is_empty() {
        let end = lines.iter().position(|byte| *byte == b'\r').expect("a line ends with CRLF");
        let (line, rest) = lines.split_at(end);
        assert!(!line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'), "{line:?}");
        assert!(line.contains(&b':'), "{line:?}");
        lines = rest.strip_prefix(b"\r\n").expect("a line ends with CRLF");
    }
}

/// Files that are there or not, without any file.
struct View {
    kind: u8,
    looks: usize,
    /// No control byte may be asked for.
    is_strict: bool,
}

impl View {
    fn new(kind: u8, is_strict: bool) -> Self {
        Self { kind, looks: 0, is_strict }
    }
}

impl AccessChecks for View {
    fn look_at_rate(&mut self, _: &RateLimit, key: &[u8], _: bool) -> Rated {
        assert!(!key.is_empty());
        if self.kind == 0 { Rated::Within(1000) } else { Rated::Over(1000) }
    }

    fn password(&mut self, _: LocationId, file: &[u8], user: &[u8], _: &[u8]) -> Password {
        assert!(file.first() == Some(&b'/') && !user.is_empty() && !user.contains(&b':'));
        match self.kind {
            0 => Password::Right,
            1 => Password::Unknown,
            _ => Password::Later,
        }
    }
}

impl Files for View {
    type File = ();

    fn look(&mut self, path: &[u8], root_bytes: usize, _: &Settings) -> Look<()> {
        // Each way back to the beginning may look at every candidate.
        self.looks += 1;
        assert!(self.looks < 100_000, "the decision does not end");
        let (root, rest) = path.split_at(root_bytes);
        let shown = || format!("{} below {}", rest.escape_ascii(), root.escape_ascii());
        assert_eq!(rest.first(), Some(&b'/'), "{}", shown());
        let mut parts = rest.split(|byte| *byte == b'/');
        assert!(!parts.any(|part| part == b"." || part == b".."), "{}", shown());
        // A configuration may have control bytes of its own; this site's has none.
        assert!(!self.is_strict || target::is_resolved(rest), "{}", shown());
        match (self.kind, path.last()) {
            (0, _) => Look::Missing,
            (1, Some(b'/')) | (2, _) => Look::Directory,
            _ => Look::File(()),
        }
    }
}
