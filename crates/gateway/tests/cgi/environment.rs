//! What a program gets: variables, arguments, folder.

use std::path::Path;
use std::sync::Arc;

use sekisho_config::{Memory, Options, Settings};
use sekisho_gateway::cgi::{
    Authenticated, Cause, Environment, Facts, Invocation, environment, invocation,
};
use sekisho_http::{Head, Version};
use sekisho_route::{
    AccessChecks, Action, ConnectionFacts, Files, Handover, Look, Request, RequestIdSeed,
    RouteState, Table, WallTime,
};

fn table(directives: &str) -> Table {
    let text = format!("events {{}} http {{ server {{ listen 8080; root /srv; {directives} }} }}");
    let source = Memory::of("/etc/sekisho.conf", text);
    let outcome = sekisho_config::load(Path::new("/etc/sekisho.conf"), &Options::new("/"), &source);
    Table::new(Arc::new(outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports))))
}

/// A file system of these regular files.
struct List(&'static [&'static str]);

impl AccessChecks for List {}

impl Files for List {
    type File = ();

    fn look(&mut self, path: &[u8], _: usize, _: &Settings) -> Look<()> {
        let path = std::str::from_utf8(path).expect("a path");
        let folder = format!("{}/", path.trim_end_matches('/'));
        if self.0.contains(&path) {
            Look::File(())
        } else if self.0.iter().any(|file| file.starts_with(&folder)) {
            Look::Directory
        } else {
            Look::Missing
        }
    }
}

const FILES: List = List(&["/srv/cgi/a.cgi", "/srv/b.py", "/opt/app"]);

struct Asked {
    head: Head,
    connection: ConnectionFacts,
    route_state: RouteState,
}

impl Asked {
    fn new(line: &str, fields: &[(&str, &str)]) -> Self {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let mut head = Head::default();
        head.begin(method.as_bytes(), target.as_bytes(), Version::Http11);
        for (name, value) in fields {
            head.push(name.as_bytes(), value.as_bytes());
        }
        let connection = ConnectionFacts {
            id: 7,
            remote: Some(([192, 0, 2, 1], 4711).into()),
            local: Some(([127, 0, 0, 1], 8080).into()),
            requests: 1,
            is_tls: false,
            tls: None,
            proxied: None,
            is_clear_by_mistake: false,
            ..ConnectionFacts::default()
        };
        Self { head, connection, route_state: RouteState::default() }
    }

    fn decide(&mut self, table: &Table) {
        let Self { head, connection, route_state } = self;
        let request = request(head, connection);
        let action = table.decide(&request, route_state, &mut { FILES });
        assert_eq!(action, Action::Cgi);
    }

    fn environment(&self, table: &Table, body_bytes: Option<u64>) -> Environment {
        self.environment_of(table, body_bytes, None)
    }

    fn environment_of(
        &self,
        table: &Table,
        body_bytes: Option<u64>,
        user: Option<Authenticated<'_>>,
    ) -> Environment {
        let request = request(&self.head, &self.connection);
        let mut out = Environment::default();
        let route_state = &self.route_state;
        let facts = Facts {
            table,
            request: &request,
            route_state,
            has_body: body_bytes.is_some(),
            body_bytes,
            software: "sekisho/1",
            user,
        };
        environment(&facts, &mut out);
        out
    }

    fn invocation(&self, table: &Table) -> Invocation {
        invocation(table, &request(&self.head, &self.connection), &self.route_state).expect("cgi")
    }
}

fn request<'a>(head: &'a Head, connection: &'a ConnectionFacts) -> Request<'a> {
    let (wall, request_id) = (WallTime::default(), RequestIdSeed(1));
    Request::new(head, 0, connection, wall, request_id)
}

fn sorted(environment: &Environment) -> Vec<String> {
    let mut all: Vec<String> =
        environment.iter().map(|one| one.to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// C8: RFC 3875 in full, and nothing that was not asked for.
#[test]
fn the_environment_is_complete_and_built_from_nothing() {
    let table = table("location /cgi/ { cgi on; }");
    let mut asked = Asked::new(
        "POST /cgi/a.cgi/x%20y/z?q=1&r=-s",
        &[("Host", "Example.org:8080"), ("Content-Type", "text/plain"), ("Content-Length", "3")],
    );
    asked.decide(&table);
    let user = Authenticated { scheme: "Basic", user: b"kim" };
    let environment = asked.environment_of(&table, Some(3), Some(user));
    let expected = [
        "AUTH_TYPE=Basic",
        "CONTENT_LENGTH=3",
        "CONTENT_TYPE=text/plain",
        "DOCUMENT_ROOT=/srv",
        "DOCUMENT_URI=/cgi/a.cgi/x y/z",
        "GATEWAY_INTERFACE=CGI/1.1",
        "HTTP_HOST=Example.org:8080",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PATH_INFO=/x y/z",
        "PATH_TRANSLATED=/srv/x y/z",
        "QUERY_STRING=q=1&r=-s",
        "REDIRECT_STATUS=200",
        "REMOTE_ADDR=192.0.2.1",
        "REMOTE_HOST=192.0.2.1",
        "REMOTE_PORT=4711",
        "REMOTE_USER=kim",
        "REQUEST_METHOD=POST",
        "REQUEST_SCHEME=http",
        "REQUEST_URI=/cgi/a.cgi/x%20y/z?q=1&r=-s",
        "SCRIPT_FILENAME=/srv/cgi/a.cgi",
        "SCRIPT_NAME=/cgi/a.cgi",
        "SERVER_ADDR=127.0.0.1",
        "SERVER_NAME=example.org",
        "SERVER_PORT=8080",
        "SERVER_PROTOCOL=HTTP/1.1",
        "SERVER_SOFTWARE=sekisho/1",
    ];
    assert_eq!(sorted(&environment), expected);
    assert_eq!(environment.starts().len(), expected.len());
    assert_eq!(environment.bytes().split(|byte| *byte == 0).count(), expected.len() + 1);
}

/// C8, V22: no `Proxy` (httpoxy), no name with `_` or anything else that is no variable, no `Authorization`
/// unless wanted; one variable for each name.
#[test]
fn fields_become_variables_within_limits() {
    let fields = [
        ("Host", "example.org"),
        ("Proxy", "http://evil.example/"),
        ("proxy", "http://evil.example/"),
        ("X_Forwarded_For", "192.0.2.9"),
        ("X-Forwarded-For", "192.0.2.2"),
        ("x-forwarded-FOR", "192.0.2.3"),
        ("Cookie", "a=1"),
        ("cookie", "b=2"),
        ("Authorization", "Basic a2ltOng="),
        ("Proxy-Authorization", "Basic a2ltOng="),
        ("Content-Length", "3"),
        ("Content_Length", "4"),
        ("Content-Type", "text/plain"),
        ("Connection", "close"),
        ("Transfer-Encoding", "chunked"),
        ("Expect", "100-continue"),
        ("X.Y", "1"),
        ("User-Agent", "() { :; }; x"),
    ];
    let table = table(
        "location /cgi/ { cgi on; } location /cgi/a.cgi/in { cgi on; cgi_pass_authorization on; }",
    );
    let mut asked = Asked::new("GET /cgi/a.cgi", &fields);
    asked.decide(&table);
    let environment = asked.environment(&table, None);
    let of_fields: Vec<String> =
        sorted(&environment).into_iter().filter(|one| one.starts_with("HTTP")).collect();
    let expected = [
        "HTTP_COOKIE=a=1; b=2",
        "HTTP_HOST=example.org",
        "HTTP_USER_AGENT=() { :; }; x",
        "HTTP_X_FORWARDED_FOR=192.0.2.2, 192.0.2.3",
    ];
    assert_eq!(of_fields, expected);
    for absent in
        ["CONTENT_LENGTH", "CONTENT_TYPE", "REMOTE_USER", "AUTH_TYPE", "PATH_INFO", "HTTPS"]
    {
        assert_eq!(environment.get(absent), None, "{absent}");
    }
    assert_eq!(environment.get("QUERY_STRING"), Some(&b""[..]));

    let mut asked = Asked::new("GET /cgi/a.cgi/in", &fields);
    asked.decide(&table);
    let environment = asked.environment(&table, None);
    assert_eq!(environment.get("HTTP_AUTHORIZATION"), Some(&b"Basic a2ltOng="[..]));
    // A name that a client claims is not verified.
    assert_eq!(environment.get("REMOTE_USER"), None);
}

/// C8: the operator's variables win.
#[test]
fn configured_variables_take_the_place_of_others() {
    let table = table(
        "location /cgi/ { cgi on; cgi_path /bin; cgi_set_var PATH_INFO '<$uri>'; cgi_set_var APP $host; \
         cgi_set_var HTTP_HOST fixed; }",
    );
    let mut asked = Asked::new("GET /cgi/a.cgi/i", &[("Host", "h")]);
    asked.decide(&table);
    let environment = asked.environment(&table, None);
    let all = sorted(&environment);
    for (name, value) in
        [("PATH_INFO", "</cgi/a.cgi/i>"), ("APP", "h"), ("HTTP_HOST", "fixed"), ("PATH", "/bin")]
    {
        assert_eq!(environment.get(name), Some(value.as_bytes()), "{name}");
        let with_name = |one: &&String| one.starts_with(&format!("{name}="));
        assert_eq!(all.iter().filter(with_name).count(), 1, "{name}");
    }
}

/// C8: working directory and arguments; nothing of the query is an argument (V23).
#[test]
fn the_command_line_comes_from_the_configuration_alone() {
    let rows: [(&str, &str, &[&str], &str); 5] = [
        ("cgi on;", "/cgi/a.cgi?-s+-d", &["/srv/cgi/a.cgi"], "/srv/cgi"),
        (
            "cgi on; cgi_interpreter /bin/sh -e;",
            "/cgi/a.cgi",
            &["/bin/sh", "-e", "/srv/cgi/a.cgi"],
            "/srv/cgi",
        ),
        (
            "cgi_extension .py /usr/bin/python3 -I;",
            "/b.py/x",
            &["/usr/bin/python3", "-I", "/srv/b.py"],
            "/srv",
        ),
        ("cgi_pass /opt/app;", "/any/where", &["/opt/app"], "/opt"),
        ("cgi_pass /opt/app; cgi_working_dir /var/$host;", "/", &["/opt/app"], "/var/h"),
    ];
    for (directives, target, args, directory) in rows {
        let table = table(directives);
        let mut asked = Asked::new(&format!("GET {target}"), &[("Host", "h")]);
        asked.decide(&table);
        let invocation = asked.invocation(&table);
        let expected: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        assert_eq!(invocation.args, expected, "{directives}");
        assert_eq!(invocation.program, expected[0], "{directives}");
        assert_eq!(invocation.directory, directory.as_bytes(), "{directives}");
        assert_eq!(invocation.is_interpreted, args.len() > 1, "{directives}");
    }
}

/// C8, V23: the configuration may pass on what a request says, and a request cannot make an option or another path of
/// it.
#[test]
fn what_a_request_says_is_never_an_option() {
    let rows: [(&str, &str, Option<&[&str]>); 9] = [
        ("cgi_pass /opt/app 1 -x $arg_a;", "/?a=b", Some(&["/opt/app", "1", "-x", "b"])),
        ("cgi pass /opt/app $uri;", "/x/y", Some(&["/opt/app", "/x/y"])),
        ("cgi_pass /opt/app $arg_a;", "/?a=--help", None),
        ("cgi_pass /opt/app --name=$arg_a;", "/?a=-", Some(&["/opt/app", "--name=-"])),
        ("cgi_pass /opt/app $arg_a;", "/", Some(&["/opt/app", ""])),
        (
            "cgi on; cgi_interpreter /usr/bin/env URI=$uri;",
            "/cgi/a.cgi",
            Some(&["/usr/bin/env", "URI=/cgi/a.cgi", "/srv/cgi/a.cgi"]),
        ),
        ("cgi on; cgi_interpreter /usr/bin/env $arg_a;", "/cgi/a.cgi?a=-S", None),
        ("cgi on; cgi_interpreter /opt/$arg_a;", "/cgi/a.cgi?a=../bin/sh", None),
        (
            "cgi on; cgi_interpreter /opt/$arg_a;",
            "/cgi/a.cgi?a=run",
            Some(&["/opt/run", "/srv/cgi/a.cgi"]),
        ),
    ];
    for (directives, target, expected) in rows {
        let table = table(directives);
        let mut asked = Asked::new(&format!("GET {target}"), &[("Host", "h")]);
        asked.decide(&table);
        let request = request(&asked.head, &asked.connection);
        let made = invocation(&table, &request, &asked.route_state).map(|made| made.args);
        let expected =
            expected.map(|args| args.iter().map(|arg| arg.as_bytes().to_vec()).collect());
        assert_eq!(made, expected.ok_or(Cause::BadArgument), "{directives} {target}");
    }
}

/// C9: after a local redirect the method is GET and there is no body.
#[test]
fn a_local_redirect_is_told_as_a_get() {
    let table = table("location / { cgi on; }");
    let mut asked = Asked::new("POST /cgi/a.cgi?old", &[("Host", "h"), ("Content-Type", "a/b")]);
    asked.decide(&table);
    let Asked { head, connection, route_state } = &mut asked;
    let target = b"/b.py/%41?new=1";
    let request = request(head, connection);
    let action =
        table
            .redirect_internally(Handover::Location, target, &request, route_state, &mut { FILES });
    assert_eq!(action, Action::Cgi);
    let environment = asked.environment(&table, None);
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", "/b.py"),
        ("PATH_INFO", "/A"),
        ("QUERY_STRING", "new=1"),
        ("REQUEST_URI", "/cgi/a.cgi?old"),
    ] {
        assert_eq!(environment.get(name), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(environment.get("CONTENT_TYPE"), None);
}

/// A Unix socket has no port, a server without a name and host its address.
#[test]
fn what_a_connection_lacks_is_stood_in_for() {
    let table = table("cgi_pass /opt/app;");
    let mut asked = Asked::new("GET /", &[]);
    asked.head.begin(b"GET", b"/", Version::Http10);
    asked.connection =
        ConnectionFacts { remote: None, local: None, is_tls: true, ..asked.connection };
    asked.decide(&table);
    let environment = asked.environment(&table, None);
    for (name, value) in [
        ("SERVER_PORT", "443"),
        ("HTTPS", "on"),
        ("REMOTE_ADDR", "unix:"),
        ("SERVER_NAME", "unix:"),
        ("SERVER_PROTOCOL", "HTTP/1.0"),
    ] {
        assert_eq!(environment.get(name), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(environment.get("REMOTE_PORT"), None);
}
