//! `health_check` and `match`: what is wrong with them is told.
#![forbid(unsafe_code)]

use std::time::Duration;

use sekisho_config::{Config, Memory, Options, load};

fn outcome(text: &str) -> (Option<Config>, String) {
    let outcome = load("/c.conf".as_ref(), &Options::new("/"), &Memory::of("/c.conf", text));
    let said = outcome.reports.iter().map(|report| report.render(false)).collect();
    (outcome.config, said)
}

#[test]
fn a_check_has_its_parameters() {
    let (config, said) = outcome(
        "http { match m { status 200 300-399; header A; body ~ x; }
         upstream u { zone u 64k; server 127.0.0.1:1; }
         server { listen 80; location / { proxy_pass http://u;
           health_check interval=7s jitter=1s fails=2 passes=3 uri=/up port=81 match=m mandatory persistent; } } }",
    );
    let config = config.unwrap_or_else(|| panic!("{said}"));
    let [check] = &config.http.health_checks[..] else { panic!("one check") };
    let settings = check.settings;
    assert_eq!(
        (settings.interval, settings.jitter),
        (Duration::from_secs(7), Duration::from_secs(1))
    );
    assert_eq!((settings.fails, settings.passes, settings.is_mandatory), (2, 3, true));
    assert_eq!((&*check.uri, check.port, check.is_persistent), (&b"/up"[..], Some(81), true));
    assert_eq!(check.rules.head.statuses, [(200, 200), (300, 399)]);
    assert_eq!((check.rules.head.headers.len(), check.rules.body_patterns.len()), (1, 1));
}

#[test]
fn mistakes_are_told() {
    let group = "upstream u { zone u 64k; server 127.0.0.1:1; } upstream v { server 127.0.0.1:1; }";
    let table = [
        ("proxy_pass http://v; health_check;", "no shared memory zone in upstream \"v\""),
        ("health_check;", "needs a \"proxy_pass\""),
        ("proxy_pass http://$host; health_check;", "needs a \"proxy_pass\""),
        ("proxy_pass http://127.0.0.1:1; health_check;", "needs an \"upstream\""),
        ("proxy_pass http://u; health_check match=none;", "there is no \"match\" \"none\""),
        ("proxy_pass http://u; health_check interval=0;", "invalid parameter \"interval=0\""),
        ("proxy_pass http://u; health_check persistent;", "invalid parameter \"persistent\""),
        ("proxy_pass http://u; health_check uri=x;", "invalid parameter \"uri=x\""),
    ];
    for (body, expected) in table {
        let text = format!("http {{ {group} server {{ listen 80; location / {{ {body} }} }} }}");
        let (config, said) = outcome(&text);
        assert!(config.is_none() && said.contains(expected), "{body}: {said}");
    }
    for rules in ["status 700;", "header;", "body = x;", "require $x;", "status 300-200;"] {
        let (config, said) = outcome(&format!("http {{ match m {{ {rules} }} }}"));
        assert!(config.is_none() && said.contains("invalid"), "{rules}: {said}");
    }
}
