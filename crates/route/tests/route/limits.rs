//! How fast and how much at once, on virtual time.

use sekisho_lifecycle::Moment;
use sekisho_route::{Table, push_variable};

use crate::access_checks::FakeAccessChecks;
use crate::configured::configured;
use crate::support::Asked;

fn server(directives: &str) -> Table {
    configured(&format!(
        "limit_req_zone $arg_k zone=one:1m rate=1r/s;
         limit_req_zone $arg_k zone=two:1m rate=2r/s;
         limit_req_zone $arg_m zone=min:1m rate=1r/m;
         limit_conn_zone $arg_k zone=key:1m;
         limit_conn_zone $arg_s zone=site:1m;
         server {{ listen 8080; root /srv; {directives} }}"
    ))
}

/// Many requests that share what a server shares.
struct Clients<'t> {
    table: &'t Table,
    access_checks: FakeAccessChecks,
}

impl<'t> Clients<'t> {
    fn of(table: &'t Table) -> Self {
        Self { table, access_checks: FakeAccessChecks::default() }
    }

    /// A request at this millisecond: its outcome.
    fn at(&mut self, millis: u64, path: &str) -> (String, Asked) {
        let mut asked = Asked::new(&format!("GET {path}"), &["/srv/a", "/srv/page"]);
        std::mem::swap(&mut asked.files.access_checks, &mut self.access_checks);
        asked.files.access_checks.now = Moment::from_millis(millis);
        asked.files.access_checks.taken.clear();
        let outcome = asked.decide(self.table);
        std::mem::swap(&mut asked.files.access_checks, &mut self.access_checks);
        (outcome, asked)
    }

    fn outcome(&mut self, millis: u64, path: &str) -> String {
        self.at(millis, path).0
    }
}

fn variable(asked: &Asked, table: &Table, variable: &sekisho_config::Variable) -> String {
    let mut out = Vec::new();
    push_variable(variable, table, &asked.request(), &asked.route_state, &mut out);
    String::from_utf8(out).expect("text")
}

fn rate_status(asked: &Asked, table: &Table) -> String {
    variable(asked, table, &sekisho_config::Variable::LimitReqStatus)
}

#[test]
fn without_a_burst_whoever_is_too_fast_is_refused() {
    let table = server("limit_req zone=one; limit_req_status 429;");
    let mut clients = Clients::of(&table);
    for (millis, expected, status) in [
        (0, "file /srv/a", "PASSED"),
        (680, "error 429", "REJECTED"),
        (1000, "file /srv/a", "PASSED"),
        (1999, "error 429", "REJECTED"),
        (2000, "file /srv/a", "PASSED"),
    ] {
        let (outcome, asked) = clients.at(millis, "/a?k=x");
        assert_eq!((outcome.as_str(), rate_status(&asked, &table).as_str()), (expected, status));
    }
    assert_eq!(clients.outcome(2000, "/a?k=y"), "file /srv/a", "another key has its own rate");
    let lines = ["0.320", "0.001"]
        .map(|excess| format!("error limiting requests, excess: {excess} by zone \"one\""));
    assert_eq!(clients.access_checks.lines, lines);
}

#[test]
fn within_the_burst_requests_wait_for_their_turn() {
    let table = server("limit_req zone=two burst=3;");
    let mut clients = Clients::of(&table);
    let outcomes: Vec<String> = (0..5).map(|_| clients.outcome(5000, "/a?k=x")).collect();
    let expected = ["file /srv/a", "wait 500ms", "wait 1000ms", "wait 1500ms", "error 503"];
    assert_eq!(outcomes, expected);
    assert_eq!(
        clients.access_checks.lines[0],
        "warn delaying request, excess: 1.000, by zone \"two\""
    );
    // After half a second there is room for one more.
    assert_eq!(clients.outcome(5500, "/a?k=x"), "wait 1500ms");
    let (outcome, mut asked) = clients.at(9999, "/a?k=x");
    assert_eq!(outcome, "file /srv/a");
    assert_eq!(asked.resume(&table), "file /srv/a", "and is counted once");
}

#[test]
fn nodelay_and_delay_say_who_waits() {
    let expected = [
        ("burst=3 nodelay", ["file /srv/a", "file /srv/a", "file /srv/a", "file /srv/a"]),
        ("burst=3 delay=2", ["file /srv/a", "file /srv/a", "file /srv/a", "wait 1000ms"]),
        ("burst=2 delay=0", ["file /srv/a", "wait 1000ms", "wait 2000ms", "error 503"]),
    ];
    for (words, outcomes) in expected {
        let table = server(&format!("limit_req zone=one {words};"));
        let mut clients = Clients::of(&table);
        assert_eq!(outcomes.map(|_| clients.outcome(0, "/a?k=x")), outcomes, "{words}");
    }
}

#[test]
fn a_delayed_request_goes_on_without_being_counted_again() {
    let table = server("limit_req zone=one burst=1; error_page 404 /page;");
    let mut clients = Clients::of(&table);
    clients.outcome(0, "/a?k=x");
    let (outcome, mut asked) = clients.at(0, "/missing?k=x");
    assert_eq!(outcome, "wait 1000ms");
    // Also the error page that it leads to is the same request.
    assert_eq!(asked.resume(&table), "file /srv/page as 404");
    assert_eq!(rate_status(&asked, &table), "DELAYED");
}

#[test]
fn an_empty_key_is_not_limited() {
    let table = server("limit_req zone=one; limit_conn key 1;");
    let mut clients = Clients::of(&table);
    for _ in 0..9 {
        let (outcome, asked) = clients.at(0, "/a");
        assert_eq!((outcome.as_str(), rate_status(&asked, &table).as_str()), ("file /srv/a", ""));
    }
}

#[test]
fn a_rate_in_minutes_is_what_it_says() {
    let table = server("limit_req zone=min;");
    let mut clients = Clients::of(&table);
    for minute in 0..9 {
        assert_eq!(clients.outcome(minute * 60_000, "/a?m=x"), "file /srv/a", "{minute}");
        assert_eq!(clients.outcome(minute * 60_000 + 59_000, "/a?m=x"), "error 503", "{minute}");
    }
}

#[test]
fn of_several_rates_the_strictest_decides_and_a_refusal_is_counted_by_none() {
    let table = server("limit_req zone=two burst=5; limit_req zone=min burst=1 nodelay;");
    let mut clients = Clients::of(&table);
    // The longest delay is the one of `two`, as `min` does not delay.
    assert_eq!(clients.outcome(0, "/a?k=x&m=x"), "file /srv/a");
    assert_eq!(clients.outcome(0, "/a?k=x&m=x"), "wait 500ms");
    for _ in 0..9 {
        assert_eq!(clients.outcome(0, "/a?k=x&m=x"), "error 503");
    }
    // Had the refused ones been counted by `two`, this one would be beyond its burst.
    assert_eq!(clients.outcome(0, "/a?k=x"), "wait 1000ms");
    // A client with the last key only.
    assert_eq!(clients.outcome(0, "/a?m=y"), "file /srv/a");
}

#[test]
fn a_dry_run_only_tells() {
    let table = server(
        "limit_req zone=one burst=1; limit_req_dry_run on; limit_conn key 1; limit_conn_dry_run on;",
    );
    let mut clients = Clients::of(&table);
    for status in ["PASSED", "DELAYED_DRY_RUN", "REJECTED_DRY_RUN"] {
        let (outcome, asked) = clients.at(0, "/a?k=x");
        assert_eq!(
            (outcome.as_str(), rate_status(&asked, &table).as_str()),
            ("file /srv/a", status)
        );
    }
    let lines = [
        "warn delaying request, dry run, excess: 1.000, by zone \"one\"",
        "error limiting connections, dry run, by zone \"key\"",
        "error limiting requests, dry run, excess: 2.000 by zone \"one\"",
        "error limiting connections, dry run, by zone \"key\"",
    ];
    assert_eq!(clients.access_checks.lines, lines);
}

#[test]
fn log_levels_are_as_configured_and_delays_one_lower() {
    for (level, refused, delayed) in [
        ("error", "error", "warn"),
        ("warn", "warn", "notice"),
        ("notice", "notice", "info"),
        ("info", "info", "info"),
    ] {
        let table = server(&format!("limit_req zone=one burst=1; limit_req_log_level {level};"));
        let mut clients = Clients::of(&table);
        for _ in 0..3 {
            clients.outcome(0, "/a?k=x");
        }
        let levels: Vec<&str> =
            clients.access_checks.lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(levels, [delayed, refused]);
    }
}

#[test]
fn permits_are_taken_from_all_limits_or_from_none() {
    let table = server("limit_conn key 2; limit_conn site 3; limit_conn_status 429;");
    let mut clients = Clients::of(&table);
    let kept = |clients: &mut Clients<'_>, path: &str| {
        let outcome = clients.outcome(0, path);
        let taken = std::mem::take(&mut clients.access_checks.taken);
        (outcome, taken)
    };
    let (one, first) = kept(&mut clients, "/a?k=x&s=s");
    let (two, _) = kept(&mut clients, "/a?k=x&s=s");
    assert_eq!((one.as_str(), two.as_str(), first.len()), ("file /srv/a", "file /srv/a", 2));
    let (three, taken) = kept(&mut clients, "/a?k=x&s=s");
    assert_eq!((three.as_str(), taken.len()), ("error 429", 0));
    assert_eq!(kept(&mut clients, "/a?k=y&s=s").0, "file /srv/a");
    // `key` has a place for this one and `site` has none: the first is given back.
    let (full, taken) = kept(&mut clients, "/a?k=z&s=s");
    assert_eq!((full.as_str(), taken.len()), ("error 429", 0));
    clients.access_checks.taken = first;
    clients.access_checks.leave();
    assert_eq!(kept(&mut clients, "/a?k=z&s=s").0, "file /srv/a");
    assert_eq!(clients.access_checks.lines[0], "error limiting connections by zone \"key\"");
    assert_eq!(clients.access_checks.lines[1], "error limiting connections by zone \"site\"");
}

#[test]
fn a_zone_without_room_refuses_connections() {
    let table = server("limit_conn key 9;");
    let mut clients = Clients::of(&table);
    clients.access_checks.zone_bytes = Some(300);
    for (key, expected) in [("a", "file /srv/a"), ("b", "file /srv/a"), ("c", "error 503")] {
        let (outcome, asked) = clients.at(0, &format!("/a?k={key}"));
        assert_eq!(outcome, expected, "{key}");
        let status = variable(&asked, &table, &sekisho_config::Variable::LimitConnStatus);
        assert_eq!(status, if key == "c" { "REJECTED" } else { "PASSED" });
        clients.access_checks.taken.clear();
    }
    assert_eq!(clients.access_checks.lines, ["alert no room for a key in zone \"key\""]);
}

/// The order of nginx: rates, places, addresses.
#[test]
fn rates_come_before_connections_and_both_before_addresses() {
    let table = server(
        "limit_req zone=one; limit_req_status 429; limit_conn key 1; limit_conn_status 430; deny all;",
    );
    let mut clients = Clients::of(&table);
    assert_eq!(clients.outcome(0, "/a?k=x"), "error 403");
    // The place of the first is still taken.
    assert_eq!(clients.outcome(1000, "/a?k=x"), "error 430");
    assert_eq!(clients.outcome(1000, "/a?k=x"), "error 429");
}

#[test]
fn long_keys_are_not_limited_and_said_so() {
    let table = server("limit_conn key 1;");
    let mut clients = Clients::of(&table);
    let path = format!("/a?k={}", "x".repeat(300));
    assert_eq!(clients.outcome(0, &path), "file /srv/a");
    assert_eq!(clients.outcome(0, &path), "file /srv/a");
    assert_eq!(
        clients.access_checks.lines[0],
        "error the key of zone \"key\" has more than 255 bytes: 300"
    );
}
