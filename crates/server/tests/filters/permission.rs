//! `auth_request`: another location says who is let in.

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, serve, site};

/// A server that knows one token, and says whose it is.
fn authority() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            assert!(body.is_empty(), "permission is asked without the body: {head}");
            // HTTP/2 has names in lower case.
            let head = head.replace("x-token", "X-Token");
            if head.contains("X-Token: right") {
                connection.answer("204 No Content", "X-User: ann\r\nX-Group: staff\r\n", "");
            } else if head.contains("X-Token: odd") {
                connection.answer("404 Not Found", "", "?");
            } else if head.contains("X-Token: stranger") {
                connection.answer("403 Forbidden", "", "no");
            } else {
                let fields = "WWW-Authenticate: Bearer realm=\"a\"\r\nWWW-Authenticate: Basic realm=\"b\"\r\n";
                connection.answer("401 Unauthorized", fields, "who are you?");
            }
        }
    })
}

/// The recipe of docs/proxy.md.
fn guarded(authority: &Backend, application: &Backend) -> Server {
    let (authority, application) = (authority.address(), application.address());
    let config = site(&format!(
        "location /app/ {{
             auth_request /_auth;
             auth_request_set $user $upstream_http_x_user;
             proxy_set_header X-User $user;
             add_header X-Seen $user always;
             proxy_pass http://{application};
         }}
         location = /_auth {{
             internal;
             proxy_pass http://{authority};
             proxy_pass_request_body off;
             proxy_set_header Content-Length \"\";
             proxy_set_header X-Original-URI $request_uri;
             proxy_set_header X-Original-Method $request_method;
         }}"
    ));
    Server::start(BINARY, &config)
}

fn application() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let user = head.lines().find(|line| line.starts_with("X-User:")).unwrap_or("nobody");
            let user = user.to_owned();
            connection.answer("200 OK", "", format!("{user} {}", body.len()));
        }
    })
}

#[test]
fn a_server_says_who_is_let_in_and_the_application_is_told_who_it_is() {
    let (authority, application) = (authority(), application());
    let server = guarded(&authority, &application);
    let mut client = server.connect();
    let refused = client.get("/app/x");
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.fields_named("www-authenticate"),
        ["Bearer realm=\"a\"", "Basic realm=\"b\""]
    );
    assert_eq!(client.request("GET", "/app/x", "X-Token: stranger\r\n").status, 403);
    assert_eq!(client.request("GET", "/app/x", "X-Token: odd\r\n").status, 500);
    assert!(application.heads().is_empty(), "nobody was let in");
    let answer = client.request("GET", "/app/x?y", "X-Token: right\r\n");
    assert_eq!((answer.status, answer.text()), (200, "X-User: ann 0".to_owned()));
    assert_eq!(answer.field("x-seen"), Some("ann"));
    // A body is for the application alone, whatever its length.
    for bytes in [1, 100_000] {
        let body = vec![b'b'; bytes];
        let answer = client.request_with_body("POST", "/app/x", "X-Token: right\r\n", &body);
        assert_eq!((answer.status, answer.text()), (200, format!("X-User: ann {bytes}")));
    }
    let asked = authority.heads();
    let last = asked.last().expect("it was asked");
    assert!(last.starts_with("GET /_auth HTTP/"), "{last}");
    assert!(last.contains("X-Original-URI: /app/x\r\n"), "{last}");
    assert!(last.contains("X-Original-Method: POST\r\n"), "{last}");
    assert!(!last.to_lowercase().contains("content-length: 1"), "{last}");
    assert!(server.log("error.log").contains("auth request unexpected status: 404"));
    // Nobody reaches the location from outside.
    assert_eq!(client.get("/_auth").status, 404);
}

#[test]
fn permission_is_asked_for_over_http2_too() {
    let (authority, application) = (authority(), application());
    let (to, app) = (authority.address(), application.address());
    let config = site(&format!(
        "http2 on; location / {{ auth_request /_auth; proxy_pass http://{app}; }}
         location = /_auth {{ proxy_pass http://{to}; }}"
    ));
    let server = Server::start(BINARY, &config);
    let curl = |token: &str| {
        let field = format!("X-Token: {token}");
        let url = server.url("/");
        let arguments = [
            "-s",
            "--http2-prior-knowledge",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &field,
            &url,
        ];
        sekisho_testkit::run("curl", &arguments, crate::common::LONG).stdout
    };
    assert_eq!(curl("right"), "200");
    assert_eq!(curl("wrong"), "401");
}

#[test]
fn permission_counts_with_addresses_and_passwords_as_satisfy_says() {
    let tree = Tree::new();
    tree.file("root/a", "a");
    tree.file("users", "ann:{PLAIN}secret\n");
    let server = serve(
        tree,
        "auth_basic_user_file {dir}/users;
         location /any/ { alias {root}/; satisfy any; deny all; auth_basic x; auth_request /_auth; }
         location /all/ { alias {root}/; satisfy all; allow all; auth_basic x; auth_request /_auth; }
         location = /_auth { internal; if ($http_x_token = right) { return 204; } return 403; }",
    );
    let mut client = server.connect();
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let both = format!("{ann}X-Token: right\r\n");
    for (path, fields, status) in [
        ("/any/a", "", 401),
        ("/any/a", ann, 200),
        ("/any/a", "X-Token: right\r\n", 200),
        ("/all/a", "X-Token: right\r\n", 401),
        ("/all/a", ann, 403),
        ("/all/a", &both, 200),
    ] {
        assert_eq!(client.request("GET", path, fields).status, status, "{path} {fields}");
    }
    assert_eq!(
        client.request("GET", "/any/a", "X-Token: right\r\n").field("www-authenticate"),
        None
    );
}

/// As in nginx, what the authority says stays where an `error_page` gives another status; what let somebody in does not.
#[test]
fn a_challenge_stays_with_the_page_for_401() {
    let authority = authority();
    let to = authority.address();
    let tree = Tree::new();
    tree.file("root/index.html", "in");
    tree.file("root/login.html", "page");
    let server = serve(
        tree,
        &format!(
            "location / {{ auth_request /_auth; error_page 401 = @login; error_page 403 500 = @login; }}
             location /page {{ auth_request /_auth; error_page 401 /login.html; }}
             location /login.html {{ }}
             location @login {{ return 302 /login; }}
             location = /_auth {{ internal; proxy_pass http://{to}; }}"
        ),
    );
    let mut client = server.connect();
    let challenges = &["Bearer realm=\"a\"", "Basic realm=\"b\""][..];
    let rows = [
        ("/", "", 302, challenges),
        ("/page", "", 401, challenges),
        ("/", "X-Token: stranger\r\n", 302, &[]),
        ("/", "X-Token: right\r\n", 200, &[]),
    ];
    for (path, fields, status, expected) in rows {
        let response = client.request("GET", path, fields);
        assert_eq!(response.status, status, "{path} {fields}");
        assert_eq!(response.fields_named("www-authenticate"), expected, "{path} {fields}");
    }
}

/// C6: who goes is not asked about any more.
#[test]
fn a_client_that_goes_takes_the_question_with_it() {
    let (told, gone) = std::sync::mpsc::channel();
    let authority = Backend::start(move |connection| {
        connection.request();
        let _ = told.send("asked");
        while connection.more().is_some() {}
        let _ = told.send("gone");
    });
    let config = site(&format!(
        "location / {{ auth_request /_auth; }} location = /_auth {{ proxy_pass http://{}; }}",
        authority.address()
    ));
    let server = Server::start(BINARY, &config);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(gone.recv_timeout(crate::common::LONG), Ok("asked"));
    drop(client);
    assert_eq!(gone.recv_timeout(crate::common::LONG), Ok("gone"));
}
