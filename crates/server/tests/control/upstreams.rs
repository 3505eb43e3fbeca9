//! A request that another server has (L34).

use std::net::TcpListener;

use sekisho_testkit::{Server, eventually};

use crate::common::{BINARY, LONG, http};
use crate::support::{busy_session, ctl_ok, session_of};

/// Which server, the how many-th that is asked, for how long, and until when it must answer.
#[test]
fn a_request_to_an_upstream_shows_its_server_try_age_and_deadline() {
    // It accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let to = silent.local_addr().expect("it has an address").to_string();
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         server {{ listen 127.0.0.1:{{port}}; proxy_read_timeout 1h;
             location / {{ proxy_pass http://{to}; }}
             location /cached {{ proxy_pass http://{to}; proxy_cache one; }}
             location /filtered {{ proxy_pass http://{to}; ssi on; mirror /copy; }}
             location /copy {{ return 204; }} }}"
    ));
    let server = Server::start(BINARY, &config);
    for path in ["/slow", "/cached", "/filtered"] {
        shows_its_server(&server, &to, path);
    }
}

fn shows_its_server(server: &Server, to: &str, path: &str) {
    let mut client = server.connect();
    let peer = client.local_address();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let session = busy_session(server, &peer);
    let upstream = || session_of(server, &peer).map(|it| it["requests"][0]["upstream"].clone());
    eventually(&format!("{path}: the request has left"), LONG, || {
        upstream().is_some_and(|it| it["deadline"]["kind"] == "upstream_read_timeout")
    });
    let shown = upstream().expect("it runs");
    assert_eq!((shown["server"].as_str(), shown["try"].as_u64()), (Some(to), Some(1)), "{shown}");
    let left = shown["deadline"]["in_ms"].as_u64().expect("a number");
    assert!((3_000_000..=3_600_000).contains(&left), "{shown}");
    assert!(shown["age_ms"].as_u64().is_some_and(|age| age < 600_000), "{shown}");
    let text = ctl_ok(server, &["session", "show", &session]);
    assert!(text.contains(&format!("asks {to} (try 1) for ")), "{text}");
    assert!(text.contains(", upstream_read_timeout in "), "{text}");
}
