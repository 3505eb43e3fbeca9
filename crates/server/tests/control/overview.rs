//! The overview: `ctl status` and the status page (O7).

use sekisho_testkit::{Server, Signal, Tree, eventually, have, run};
use serde_json::Value;

use crate::common::{BINARY, LONG, http, serve};
use crate::support::{busy_session, ctl_ok};

/// O7: version, uptime, rates, busiest locations, upstream servers and certificates, by `ctl` and on the page alike.
#[test]
fn one_page_says_how_the_server_is() {
    if !have("openssl") {
        return;
    }
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    let dir = tree.dir().display().to_string();
    let order = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=a.test \
         -addext subjectAltName=DNS:a.test -keyout {dir}/key.pem -out {dir}/cert.pem"
    );
    assert_eq!(run("sh", &["-c", &order], LONG).code(), 0);
    let config = http(
        "upstream app { server 127.0.0.1:9; server 127.0.0.1:10 down; }
         server {
             listen 127.0.0.1:{port}; root {root}; server_name www.test;
             location / { } location = /status { status page; } location ~ ^/x { return 204; }
             location /app/ { proxy_pass http://app; } location /cgi-bin/ { cgi on; }
         }
         server {
             listen 127.0.0.1:{port2} ssl; server_name a.test;
             ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
         }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    assert_eq!(client.get("/x").status, 204);
    assert_eq!(client.get("/app/").status, 502);
    let mut busy = server.connect();
    busy.send("GET /cgi-bin/slow HTTP/1.1\r\nHost: x\r\n\r\n");
    busy_session(&server, &busy.local_address());

    let all: Value = serde_json::from_str(&ctl_ok(&server, &["status", "--json"])).expect("JSON");
    assert_eq!(all["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(all["pid"], server.id());
    assert_eq!(all["sessions"]["processing"], 1);
    assert_eq!(all["responses_total"]["2xx"], 6);
    let locations = all["locations"].as_array().expect("a list");
    assert_eq!(locations[0]["location"], "www.test /");
    assert_eq!(locations[0]["requests"], 5);
    assert_eq!(locations.len(), 3, "{all}");
    let upstreams = all["upstreams"].as_array().expect("a list");
    let states = |at: usize| (upstreams[at]["server"].as_str(), upstreams[at]["state"].as_str());
    assert_eq!(states(1), (Some("127.0.0.1:10"), Some("down")));
    assert_eq!((states(0).0, &upstreams[0]["failures"]), (Some("127.0.0.1:9"), &Value::from(1)));
    assert_eq!(all["certificates"][0]["names"][0], "a.test");
    assert!(
        all["rates"][0]["requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0),
        "{all}"
    );

    let text = ctl_ok(&server, &["status"]);
    for words in
        ["Busiest locations", "www.test /  ", "Upstream servers", "Certificates", "requests/s"]
    {
        assert!(text.contains(words), "{text}");
    }
    let shown = ctl_ok(&server, &["sessions"]);
    assert!(shown.contains("processing 1 (p_1)"), "{shown}");
    let page = client.get("/status").text();
    for words in ["Busiest locations", "www.test /", "127.0.0.1:10<td>down", "a.test", "<polyline"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }

    // A reload begins to count anew.
    ctl_ok(&server, &["reload"]);
    eventually("new counts", LONG, || {
        assert_eq!(client.get("/x").status, 204);
        let text = ctl_ok(&server, &["status", "--json"]);
        let all: Value = serde_json::from_str(&text).expect("JSON");
        all["locations"][0]["location"] == "www.test ~ ^/x"
    });
}

/// O7: probes are told to leave the server out before it ends, while it goes on serving.
#[test]
fn health_probes_see_a_server_that_drains() {
    let mut server = serve(
        Tree::new(),
        "location = /ready { status health; } location = /live { status health live; } location / { return 204; }",
    );
    let mut client = server.connect();
    let mut probes = || {
        let ready = client.get("/ready");
        let text = ready.text();
        (ready.status, text, client.get("/live").status, client.get("/").status)
    };
    assert_eq!(probes(), (200, "ready\n".to_owned(), 200, 204));
    assert_eq!(ctl_ok(&server, &["drain"]), "draining\n");
    assert_eq!(probes(), (503, "draining\n".to_owned(), 200, 204));
    assert_eq!(ctl_ok(&server, &["drain", "--end"]), "ready\n");
    assert_eq!(probes(), (200, "ready\n".to_owned(), 200, 204));
    // A request that was on its way when the server was told to stop.
    let mut late = server.connect();
    late.send("GET /ready HTTP/1.1\r\nHost: x\r\n");
    eventually("half a head", LONG, || {
        ctl_ok(&server, &["sessions"]).contains(&late.local_address().to_string())
    });
    server.signal(Signal::QUIT);
    eventually("the drain", LONG, || server.log("error.log").contains("draining"));
    assert_eq!(late.send("\r\n").read_response().status, 503);
    drop((client, late));
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}
