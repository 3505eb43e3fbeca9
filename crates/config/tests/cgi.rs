//! What the CGI directives become: defaults, inheritance, precedence.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sekisho_config::{
    Cgi, CgiStderr, Config, Level, LocationMatch, LogTarget, Memory, Options, Programs, Template,
    load,
};

fn loaded(text: &str) -> Config {
    let source = Memory::of("/conf/main.conf", text);
    let outcome = load(Path::new("/conf/main.conf"), &Options::new("/prefix"), &source);
    let shown: String = outcome.reports.iter().map(|report| report.render(false)).collect();
    outcome.config.unwrap_or_else(|| panic!("{shown}"))
}

/// One of every directive.
fn all() -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/good/cgi.conf");
    loaded(&std::fs::read_to_string(path).expect("the file is there"))
}

/// What holds at a location, by its path or expression; the server itself for "".
fn at<'c>(config: &'c Config, name: &str) -> Option<&'c Cgi> {
    let locations = &config.http.locations;
    let is_it = |matches: &LocationMatch| match matches {
        LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => path == name.as_bytes(),
        LocationMatch::Regex(pattern) => pattern.source == name,
        LocationMatch::Named(named) => named == name,
        LocationMatch::Server => name.is_empty(),
        LocationMatch::If => false,
    };
    let found = locations.iter().find(|location| is_it(&location.matches));
    found.unwrap_or_else(|| panic!("no location {name}")).settings.cgi.as_deref()
}

fn programs(cgi: Option<&Cgi>) -> String {
    match cgi.map(|cgi| &cgi.programs) {
        None => "none".into(),
        Some(Programs::All) => "all".into(),
        Some(Programs::ByExtension) => "by extension".into(),
        Some(Programs::One(pass)) => match pass.program.as_literal() {
            Some(text) => format!("{} {}", text.escape_ascii(), pass.prefix_bytes),
            None => format!("variable {}", pass.prefix_bytes),
        },
    }
}

/// T4: the read deadline is 10 s; C8: no `Authorization`; V25: no hand-over.
#[test]
fn defaults_are_cautious() {
    let config = loaded("http { server { listen 80; cgi on; } }");
    let cgi = at(&config, "").expect("on");
    assert_eq!(programs(Some(cgi)), "all");
    assert_eq!(cgi.read_timeout, Some(Duration::from_secs(10)));
    assert_eq!((cgi.timeout, cgi.timeout_kill), (None, None));
    assert_eq!(cgi.kill_grace, Duration::from_secs(1));
    assert_eq!(&*cgi.path, b"/usr/local/bin:/usr/bin:/bin");
    assert_eq!((cgi.max_processes, cgi.queue), (128, 512));
    assert_eq!(cgi.queue_timeout, Some(Duration::from_secs(10)));
    assert_eq!(cgi.head_bytes_max, 65536);
    assert_eq!(cgi.stderr, CgiStderr::ErrorLog(Level::Error));
    assert!(cgi.request_buffering);
    assert!(cgi.strict && !cgi.body_only && !cgi.pass_authorization && !cgi.x_accel_redirect);
    assert!(cgi.extensions.is_empty() && cgi.variables.is_empty());
    assert!(cgi.interpreter.is_none() && cgi.working_dir.is_none());
    let config = loaded("http { cgi_read_timeout off; server { listen 80; } }");
    assert!(at(&config, "").is_none(), "nothing is run unless something says so");
}

#[test]
fn what_is_said_is_what_holds() {
    let config = all();
    let cgi = at(&config, "/cgi-bin/").expect("on");
    assert_eq!(cgi.read_timeout, Some(Duration::from_secs(30)));
    assert_eq!((cgi.timeout, cgi.timeout_kill), (None, None));
    assert_eq!(cgi.kill_grace, Duration::from_millis(500));
    assert_eq!((cgi.max_processes, cgi.queue), (16, 0));
    assert_eq!(cgi.queue_timeout, Some(Duration::from_secs(2)), "inherited");
    assert_eq!(cgi.head_bytes_max, 16384);
    assert_eq!(cgi.stderr, CgiStderr::To(LogTarget::File(PathBuf::from("/prefix/logs/cgi.log"))));
    assert!(!cgi.strict && cgi.body_only && cgi.pass_authorization && cgi.x_accel_redirect);
    let names: Vec<&str> = cgi.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A", "B"], "its own take the place of the inherited ones");
    assert_eq!(cgi.variables[1].1, Template::default());
    assert_eq!(cgi.working_dir.as_ref().map(|dir| dir.parts.len()), Some(2));
    let server = at(&config, "").expect("by extension");
    assert_eq!(server.timeout, Some(Duration::from_mins(1)));
    assert_eq!(server.timeout_kill, Some(Duration::from_secs(5)));
    assert_eq!(server.variables.len(), 1);
    assert_eq!(
        at(&config, "/plain/app/").map(|cgi| &cgi.stderr),
        Some(&CgiStderr::To(LogTarget::Stderr))
    );
}

/// An inner level overrides what is inherited.
#[test]
fn each_location_knows_what_it_runs() {
    let config = all();
    for (location, expected) in [
        ("", "by extension"),
        ("/cgi-bin/", "all"),
        ("/git/", "/usr/lib/git-core/git-http-backend 4"),
        (r"\.pack$", "/usr/lib/git-core/git-http-backend 4"),
        ("/git/files/", "all"),
        ("/git/static/", "none"),
        ("/app", "/prefix/app.cgi 4"),
        (r"^/u/(?<user>\w+)/", "variable 0"),
        ("/plain/", "none"),
        ("/plain/py/", "by extension"),
        ("/plain/app/", "/opt/app 10"),
    ] {
        assert_eq!(programs(at(&config, location)), expected, "{location}");
    }
    let both = loaded("http { server { listen 80; cgi_pass /a; cgi off; } }");
    assert_eq!(programs(at(&both, "")), "none", "off where it is said is off");
    let passed = loaded("http { server { listen 80; cgi_pass /a; cgi on; } }");
    assert_eq!(programs(at(&passed, "")), "/a 0");
    let ended = "http { cgi_pass /a; server { listen 80; cgi_pass off; } }";
    assert_eq!(programs(at(&loaded(ended), "")), "none");
}

/// C7, V40: an address has a quarter, and a location leaves an eighth to others.
#[test]
fn nobody_takes_all_places() {
    let shares = |text: &str, location: &str| {
        let config = loaded(&format!("http {{ server {{ listen 80; {text} }} }}"));
        at(&config, location).map(|cgi| (cgi.max_per_address, cgi.reserved))
    };
    for (text, expected) in [
        ("cgi on;", (32, 0)),
        ("cgi on; location /a { }", (32, 16)),
        ("cgi on; location /a { } cgi_max_processes 1;", (1, 0)),
        ("cgi on; location /a { } cgi_max_processes 10;", (3, 1)),
        ("cgi on; location /a { } cgi_reserved_processes 500;", (32, 127)),
        ("cgi on; location /a { } cgi_reserved_processes off;", (32, 0)),
        ("cgi on; cgi_max_processes_per_address 5;", (5, 0)),
        ("cgi on; cgi_max_processes_per_address off;", (usize::MAX, 0)),
    ] {
        assert_eq!(shares(text, ""), Some(expected), "{text}");
    }
    let inherited = "cgi on; cgi_max_processes_per_address 5; location /a { cgi_max_processes 8; }";
    assert_eq!(shares(inherited, "/a"), Some((5, 1)));
}

/// C8: which interpreter, by the longest extension.
#[test]
fn a_file_has_its_interpreter() {
    let config = all();
    let shown = |location: &str, file: &str| {
        let cgi = at(&config, location).expect("on");
        let Some(interpreter) = cgi.interpreter_of(file.as_bytes()) else { return String::new() };
        let words = std::iter::once(&interpreter.program).chain(&interpreter.args);
        let literal = |word: &Template| word.as_literal().map(|it| it.escape_ascii().to_string());
        words.filter_map(literal).collect::<Vec<_>>().join(" ")
    };
    for (location, file, expected) in [
        ("", "/srv/a.py", "/usr/bin/python3 -I"),
        ("", "/srv/a.cgi", ""),
        ("", "/srv/a.tar.cgi", "/bin/sh"),
        ("", "/srv/.py", ""),
        ("", "/srv/a.PY", ""),
        ("/cgi-bin/", "/srv/a", "/prefix/bin/run -x"),
        ("/cgi-bin/", "/srv/a.cgi", "/prefix/bin/run -x"),
        ("/cgi-bin/", "/srv/a.py", "/usr/bin/python3 -I"),
        ("/plain/py/", "/srv/a.py", ""),
    ] {
        assert_eq!(shown(location, file), expected, "{location} {file}");
    }
    let server = at(&config, "").expect("by extension");
    for (file, expected) in [
        ("/srv/a.py", true),
        ("/srv/a.cgi", true),
        ("/srv/a", false),
        ("/srv/.cgi", false),
        (".py", false),
    ] {
        assert_eq!(server.is_program(file.as_bytes()), expected, "{file}");
    }
    assert!(at(&config, "/cgi-bin/").expect("on").is_program(b"/srv/a"));
}

/// The forms of the nginx-cgi module.
#[test]
fn forms_of_the_nginx_cgi_module_mean_the_same() {
    let cgi = |text: &str| {
        let config = loaded(&format!("http {{ server {{ listen 80; {text} }} }}"));
        at(&config, "").expect("something is run").clone()
    };
    assert_eq!(programs(Some(&cgi("cgi pass /a;"))), "/a 0");
    assert_eq!(programs(Some(&cgi("cgi pass $document_root/a.sh;"))), "variable 0");
    for text in ["cgi pass /a 1 $uri;", "cgi_pass /a 1 $uri;"] {
        let Programs::One(pass) = cgi(text).programs else { panic!("{text}") };
        assert_eq!(pass.args.len(), 2, "{text}");
    }
    let seconds = |secs| Some(Duration::from_secs(secs));
    for (text, expected) in [
        ("cgi_timeout 0;", (None, None)),
        ("cgi_timeout 0 0;", (None, None)),
        ("cgi_timeout 5;", (seconds(5), None)),
        ("cgi_timeout 5 2;", (seconds(5), seconds(2))),
        // Killed at once, without being asked first.
        ("cgi_timeout 0 7;", (seconds(7), seconds(0))),
    ] {
        let cgi = cgi(&format!("cgi on; {text}"));
        assert_eq!((cgi.timeout, cgi.timeout_kill), expected, "{text}");
    }
    let file = |path: &str| CgiStderr::To(LogTarget::File(PathBuf::from(path)));
    for (text, expected) in [
        ("on", CgiStderr::ErrorLog(Level::Error)),
        ("warn", CgiStderr::ErrorLog(Level::Warn)),
        ("emerg", CgiStderr::ErrorLog(Level::Emerg)),
        ("off", CgiStderr::Off),
        ("stderr", CgiStderr::To(LogTarget::Stderr)),
        ("file /a/b", file("/a/b")),
        ("file warn", file("/prefix/warn")),
        ("/a/b", file("/a/b")),
    ] {
        assert_eq!(cgi(&format!("cgi on; cgi_stderr {text};")).stderr, expected, "{text}");
    }
    let interpreter = cgi("cgi on; cgi_interpreter $document_root/run URI=$uri -x;").interpreter;
    let interpreter = interpreter.expect("one");
    assert!(interpreter.program.as_literal().is_none() && interpreter.args.len() == 2);
}
