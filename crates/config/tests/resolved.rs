//! What a configuration becomes: defaults, inheritance, addresses, locations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sekisho_config::{
    AccessTarget, Config, ErrorStatus, ErrorTarget, Expires, Fallback, FileCache, HeadLimits,
    IfModifiedSince, Level, ListenAddress, Location, LocationMatch, LogTarget, Memory, Options,
    Part, PathMapping, Return, ServerId, ServerName, ServerTokens, Settings, Step, Symlinks,
    Template, Variable, Workers, load,
};
use sekisho_http::Method;

fn loaded_with(text: &str, options: &Options) -> Config {
    let outcome = load(Path::new("/conf/main.conf"), options, &Memory::of("/conf/main.conf", text));
    let shown: String = outcome.reports.iter().map(|report| report.render(false)).collect();
    outcome.config.unwrap_or_else(|| panic!("{shown}"))
}

fn loaded(text: &str) -> Config {
    loaded_with(text, &Options::new("/prefix"))
}

fn lines(text: &str, options: &Options) -> Vec<String> {
    let outcome = load(Path::new("/conf/main.conf"), options, &Memory::of("/conf/main.conf", text));
    outcome.reports.iter().map(sekisho_config::Report::line).collect()
}

fn server_settings(config: &Config, server: usize) -> &Settings {
    &config.http.locations[config.http.servers[server].root.0 as usize].settings
}

fn location<'c>(config: &'c Config, name: &str) -> &'c Location {
    let is_it = |location: &&Location| match &location.matches {
        LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => path == name.as_bytes(),
        LocationMatch::Regex(pattern) => pattern.source == name,
        LocationMatch::Named(named) => named == name,
        LocationMatch::Server | LocationMatch::If => false,
    };
    config.http.locations.iter().find(is_it).unwrap_or_else(|| panic!("no location {name}"))
}

/// What a script that only answers answers with.
fn answer(settings: &Settings) -> &Return {
    match settings.rewriting.script.as_deref().map(|script| script.steps.as_slice()) {
        Some([Step::Return(answer)]) => answer,
        other => panic!("no return: {other:?}"),
    }
}

fn text(template: &Template) -> String {
    template
        .parts
        .iter()
        .map(|part| match part {
            Part::Literal(text) => String::from_utf8_lossy(text).into_owned(),
            Part::Variable(variable) => format!("<{variable:?}>"),
        })
        .collect()
}

fn place(settings: &Settings) -> String {
    match &settings.path_mapping {
        PathMapping::Root(path) => format!("root {}", text(path)),
        PathMapping::Alias(path) => format!("alias {}", text(path)),
        PathMapping::AliasOfParent { alias, prefix_bytes } => {
            format!("alias {} for {prefix_bytes}", text(alias))
        }
    }
}

fn full() -> Config {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/good");
    let mut memory = Memory::default();
    for name in ["full.conf", "inc/a.map", "inc/types.conf"] {
        memory
            .files
            .insert(Path::new("/conf").join(name), std::fs::read(folder.join(name)).unwrap());
    }
    load(Path::new("/conf/full.conf"), &Options::new("/prefix"), &memory).config.expect("it loads")
}

const TEN: Option<Duration> = Some(Duration::from_secs(10));

/// T4: defaults are nginx's.
#[test]
fn deadlines_have_the_defaults_of_nginx() {
    let config = loaded("http { server { listen 80; } }");
    let settings = server_settings(&config, 0);
    let minute = Some(Duration::from_mins(1));
    assert_eq!(config.http.servers[0].client_header_timeout, minute);
    assert_eq!(settings.client_body_timeout, minute);
    assert_eq!(settings.client_body_min_rate, None);
    assert_eq!(settings.client_body_buffer_size, 16384);
    assert_eq!(settings.keepalive_timeout, Some(Duration::from_secs(75)));
    assert_eq!(settings.send_timeout, minute);
    assert_eq!(settings.lingering_timeout, TEN);
    // A stop has an end; sessions of a former configuration have none unless it is set (O3).
    assert_eq!(
        (config.main.worker_shutdown_timeout, config.main.former_sessions_timeout),
        (TEN, None)
    );
    let config = loaded("worker_shutdown_timeout 10s; http { server { listen 80; } }");
    assert_eq!(
        (config.main.worker_shutdown_timeout, config.main.former_sessions_timeout),
        (TEN, TEN)
    );
}

/// T2: `0` or `off` in the configuration means none.
#[test]
fn zero_and_off_switch_a_deadline_off() {
    for none in ["0", "off", "0ms"] {
        let names = [
            "client_header_timeout",
            "client_body_timeout",
            "keepalive_timeout",
            "send_timeout",
            "lingering_timeout",
        ];
        let directives = names.map(|name| format!("{name} {none}; ")).concat();
        let config = loaded(&format!(
            "worker_shutdown_timeout {none}; http {{ {directives} server {{ listen 80; }} }}"
        ));
        let settings = server_settings(&config, 0);
        assert_eq!(config.http.servers[0].client_header_timeout, None);
        assert_eq!(settings.client_body_timeout, None);
        assert_eq!(settings.keepalive_timeout, None);
        assert_eq!(settings.send_timeout, None);
        assert_eq!(settings.lingering_timeout, None);
        assert_eq!(config.main.worker_shutdown_timeout, None);
    }
}

/// H10: limits, each a directive, with defaults.
#[test]
fn limits_have_defaults_and_directives() {
    let config = loaded("http { server { listen 80; } }");
    let expected = HeadLimits {
        line_bytes_max: 8192,
        field_bytes_max: 8192,
        head_bytes_max: 32768,
        fields_max: 100,
    };
    assert_eq!(config.http.servers[0].head_limits, expected);
    assert_eq!(server_settings(&config, 0).client_max_body_size, Some(1 << 20));
    assert_eq!(server_settings(&config, 0).client_body_discard_max, 64 << 20);
    assert_eq!(server_settings(&config, 0).keepalive_requests, 1000);
    assert_eq!(config.main.worker_connections, 65_536);
    let config = loaded("http { client_header_buffer_size 64k; server { listen 80; } }");
    let expected = HeadLimits {
        line_bytes_max: 65536,
        field_bytes_max: 65536,
        head_bytes_max: 65536,
        fields_max: 100,
    };
    assert_eq!(config.http.servers[0].head_limits, expected);
    let config = full();
    let expected = HeadLimits {
        line_bytes_max: 16384,
        field_bytes_max: 16384,
        head_bytes_max: 131_072,
        fields_max: 50,
    };
    assert_eq!(config.http.servers[0].head_limits, expected);
    assert_eq!(server_settings(&config, 0).keepalive_requests, 10);
    assert_eq!(location(&config, "/form").settings.client_max_body_size, None);
}

#[test]
fn what_is_not_said_is_by_default() {
    let config = loaded("http { server { } }");
    let settings = server_settings(&config, 0);
    assert_eq!(config.http.listens[0].address, ListenAddress::Tcp("0.0.0.0:80".parse().unwrap()));
    assert_eq!(place(settings), "root /prefix/html");
    assert_eq!(settings.index.iter().map(text).collect::<Vec<_>>(), ["index.html"]);
    assert_eq!(&*settings.default_type, "text/plain");
    for (extension, media) in [
        ("html", "text/html"),
        ("gif", "image/gif"),
        ("jpg", "image/jpeg"),
        ("woff2", "font/woff2"),
    ] {
        assert_eq!(&*settings.types.by_extension[extension.as_bytes()], media);
    }
    assert_eq!(
        settings.access_logs[0].target,
        AccessTarget::Fixed(LogTarget::File(PathBuf::from("/prefix/logs/access.log")))
    );
    assert_eq!(settings.access_logs[0].format.name, "combined");
    let error_log = &settings.error_logs[0];
    assert_eq!(error_log.target, LogTarget::File(PathBuf::from("/prefix/logs/error.log")));
    assert_eq!(error_log.level, Level::Error);
    assert_eq!(config.main.error_logs, settings.error_logs.to_vec());
    assert_eq!(config.main.worker_processes, Workers::Auto);
    assert_eq!(config.main.pid.as_deref(), Some(Path::new("/prefix/logs/sekisho.pid")));
    assert!(
        settings.etag
            && settings.absolute_redirect
            && settings.port_in_redirect
            && settings.tcp_nodelay
    );
    assert!(
        settings.log_not_found && settings.sendfile && !settings.autoindex && !settings.half_close
    );
    assert_eq!(settings.open_file_cache, FileCache::Auto);
    assert_eq!(settings.server_tokens, ServerTokens::On);
    assert_eq!(settings.lingering_time, Some(Duration::from_secs(30)));
    assert!(
        settings.charset.is_none()
            && settings.max_ranges.is_none()
            && settings.allow_methods.is_none()
    );
    assert!(config.http.servers[0].merge_slashes && config.http.servers[0].ignore_invalid_headers);
}

/// O1: `-g`, `-e` and `-p` mean what they mean in nginx; no configuration is needed to have one.
#[test]
fn the_command_line_sets_globals_and_defaults() {
    let options = Options {
        globals: Some("worker_processes 3; daemon off;".to_owned()),
        ..Options::new("/elsewhere")
    }
    .with_default("error_log", &["stderr"])
    .with_default("listen", &["127.0.0.1:8000"])
    .with_default("pid", &["off"]);
    let config =
        loaded_with("http { server { root a b; } }".replace("a b", "www").as_str(), &options);
    assert_eq!(config.main.worker_processes, Workers::Count(3));
    assert!(config.main.pid.is_none());
    assert_eq!(config.main.error_logs[0].target, LogTarget::Stderr);
    assert_eq!(
        config.http.listens[0].address,
        ListenAddress::Tcp("127.0.0.1:8000".parse().unwrap())
    );
    assert_eq!(place(server_settings(&config, 0)), "root /elsewhere/www");
    // nginx: a directive of the file cannot be repeated with -g.
    assert_eq!(
        lines("daemon off;", &options),
        ["[emerg] \"daemon\" directive is duplicate in /conf/main.conf:1"]
    );
    let options = Options { globals: Some("sendfil on;".to_owned()), ..Options::new("/") };
    assert_eq!(lines("", &options), ["[emerg] unknown directive \"sendfil\" in command line:1"]);
    let options = Options::new("/").with_default("error_log", &["x", "loud"]);
    assert_eq!(lines("", &options), ["[emerg] invalid log level \"loud\""]);
    let nothing = load(Path::new("none.conf"), &Options::new("/p"), &Memory::default());
    assert_eq!(nothing.reports[0].line(), "[emerg] cannot read \"/p/none.conf\": no such file");
}

#[test]
fn lists_that_are_said_replace_what_is_inherited() {
    let config = loaded(
        "http { add_header A 1; add_header B 2; error_page 404 /a; index a b; access_log x; access_log y; error_log e;
            server { listen 80; server_name a;
                location /same { }
                location /own { add_header C 3; error_page 500 /b; index c; access_log off; error_log stderr debug; types { a/b c; }
                    location /own/deep { access_log z; } } }
            add_header D 4; }",
    );
    let headers = |name: &str| {
        let names =
            location(&config, name).settings.add_headers.iter().map(|header| header.name.clone());
        names.collect::<Vec<_>>()
    };
    // A directive after a server block holds in that server all the same.
    assert_eq!(headers("/same"), ["A", "B", "D"]);
    assert_eq!(headers("/own"), ["C"]);
    assert_eq!(headers("/own/deep"), ["C"]);
    let same = &location(&config, "/same").settings;
    assert_eq!(
        (same.error_pages[0].codes.as_slice(), same.index.len(), same.access_logs.len()),
        (&[404][..], 2, 2)
    );
    let own = &location(&config, "/own").settings;
    assert_eq!(
        (own.error_pages[0].codes.as_slice(), own.index.len(), own.access_logs.len()),
        (&[500][..], 1, 0)
    );
    assert_eq!((own.types.by_extension.len(), own.error_logs[0].level), (1, Level::Debug));
    assert_eq!(location(&config, "/own/deep").settings.access_logs.len(), 1);
}

#[test]
fn what_a_location_says_for_itself_is_not_handed_down() {
    let config = loaded(
        "http { server { listen 80; location /a { internal; return 204; try_files $uri =404; limit_except GET { deny all; }
            location /a/b { } } } }",
    );
    let outer = &location(&config, "/a").settings;
    assert!(outer.internal && outer.rewriting.script.is_some() && outer.try_files.is_some());
    let limit = outer.limit_except.as_deref().unwrap();
    assert_eq!(*limit.methods, [Method::Get, Method::Head]);
    assert!(limit.access.is_some() && outer.access.is_none());
    let inner = &location(&config, "/a/b").settings;
    // `internal` is: a nested location is no way around it.
    assert!(
        inner.internal
            && inner.rewriting.script.is_none()
            && inner.try_files.is_none()
            && inner.limit_except.is_none()
    );
}

#[test]
fn servers_share_addresses_and_one_is_the_default() {
    let config = loaded(
        "http {
            server { listen 80; server_name a; }
            server { listen 80 default_server; listen 81; server_name b; }
            server { listen *:80 backlog=7; listen unix:/s; server_name c; return 404; } }",
    );
    let seen: Vec<_> = config
        .http
        .listens
        .iter()
        .map(|listen| {
            (
                listen.servers.iter().map(|id| id.0).collect::<Vec<_>>(),
                listen.default_server,
                listen.options.backlog,
            )
        })
        .collect();
    let expected = [
        (vec![0, 1, 2], ServerId(1), Some(7)),
        (vec![1], ServerId(1), None),
        (vec![2], ServerId(2), None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(config.http.listens[2].address, ListenAddress::Unix(PathBuf::from("/s")));
    assert_eq!(answer(server_settings(&config, 2)).code, 404);
}

#[test]
fn server_names_have_four_kinds() {
    let config = full();
    let shown: Vec<String> = config.http.servers[0]
        .names
        .iter()
        .map(|name| match name {
            ServerName::Exact(name) => format!("={name}"),
            ServerName::LeadingWildcard(name) => format!("*{name}"),
            ServerName::TrailingWildcard(name) => format!("{name}*"),
            ServerName::Regex(pattern) => format!("~{}", pattern.source),
        })
        .collect();
    let expected = [
        "=example.org",
        "=example.net",
        "*.example.net",
        "*.example.com",
        "www.example.*",
        r"~^(?<user>[a-z]+)\.example\.dev$",
        "=",
    ];
    assert_eq!(shown, expected);
    let options = Options { hostname: "Box".to_owned(), ..Options::new("/") };
    let config = loaded_with("http { server { listen 80; server_name $hostname; } }", &options);
    assert!(matches!(&config.http.servers[0].names[0], ServerName::Exact(name) if name == "box"));
}

#[test]
fn an_alias_reaches_the_locations_within() {
    let config = full();
    assert_eq!(place(server_settings(&config, 0)), "root /srv/<Map(MapId(1))>");
    assert_eq!(place(&location(&config, "/static/").settings), "alias /srv/files/");
    assert_eq!(place(&location(&config, "/static/deep/").settings), "alias /srv/files/deep/");
    assert_eq!(place(&location(&config, r"\.png$").settings), "alias /srv/files/ for 8");
    let config = loaded(
        "http { server { root /r/; listen 80; location / { } location /x { root $uri; } } }",
    );
    assert_eq!(place(&location(&config, "/").settings), "root /r");
    assert_eq!(place(&location(&config, "/x").settings), "root <Uri>");
}

#[test]
fn answers_are_typed() {
    let config = full();
    let app = &location(&config, "@app").settings;
    assert!(
        matches!((&app.error_pages[0].status, &app.error_pages[0].target), (ErrorStatus::FromTarget, ErrorTarget::Named(name)) if name == "@app")
    );
    assert!(
        matches!(&app.error_pages[1].target, ErrorTarget::Redirect(to) if text(to) == "http://example.org/denied")
    );
    assert_eq!(app.disable_symlinks, Symlinks::IfSameOwner);
    let pages = &server_settings(&config, 0).error_pages;
    assert!(matches!(&pages[1].status, ErrorStatus::Fixed(status) if status.code() == 200));
    assert!(matches!(&pages[1].target, ErrorTarget::Uri(to) if text(to) == "/50x.html"));
    let tries = location(&config, "/").settings.try_files.clone().unwrap();
    let shown: Vec<_> =
        tries.candidates.iter().map(|file| (text(&file.path), file.is_dir)).collect();
    assert_eq!(
        shown,
        [
            ("<Uri>".to_owned(), false),
            ("<Uri>".to_owned(), true),
            ("/index.html".to_owned(), false)
        ]
    );
    assert!(matches!(&tries.fallback, Fallback::Named(name) if name == "@app"));
    let found = answer(&location(&config, r"^/u/(?<id>\d+)$").settings);
    assert_eq!(found.code, 301);
    let expected =
        "https://<Host>/users/<NamedCapture(\"id\")>?u=<NamedCapture(\"user\")>&n=<Capture(1)>";
    assert_eq!(text(found.text.as_ref().unwrap()), expected);
    let config = loaded("http { server { listen 80; return https://example.org$uri; } }");
    assert_eq!(answer(server_settings(&config, 0)).code, 302);
}

#[test]
fn heads_and_caches_are_typed() {
    let config = full();
    let expires = |name: &str| location(&config, name).settings.expires.clone();
    assert!(matches!(expires("/static/"), Expires::After(2_592_000)));
    assert!(matches!(expires(r"\.png$"), Expires::Modified(3600)));
    assert!(matches!(expires("/form"), Expires::Daily(55_800)));
    assert!(matches!(expires("/old"), Expires::Epoch));
    assert!(matches!(expires("/far"), Expires::Max));
    assert!(matches!(expires("/neg"), Expires::After(-1)));
    let form = &location(&config, "/form").settings;
    let limit = form.limit_except.as_deref().unwrap();
    assert_eq!(*limit.methods, [Method::Get, Method::Head]);
    // H12: GET does not imply HEAD there.
    assert_eq!(form.allow_methods.as_deref(), Some(&[Method::Get, Method::Post][..]));
    assert_eq!((form.max_ranges, form.if_modified_since), (Some(0), IfModifiedSince::Before));
    assert!(
        form.half_close
            && form.server_tokens == ServerTokens::Off
            && form.keepalive_timeout.is_none()
    );
    let settings = server_settings(&config, 0);
    assert_eq!(settings.keepalive_header, Some(Duration::from_secs(50)));
    let expected = FileCache::On {
        max: 1000,
        inactive: Duration::from_secs(20),
        valid: Duration::from_secs(30),
        min_uses: 2,
        errors: true,
    };
    assert_eq!(settings.open_file_cache, expected);
    assert_eq!(settings.types.by_extension.len(), 2);
    assert!(location(&config, "/static/deep/").settings.add_headers[0].always);
}

#[test]
fn maps_and_formats_are_known_before_they_are_used() {
    let config = full();
    let [kind, tenant] = config.http.maps.as_slice() else { panic!("two maps") };
    assert_eq!(
        (kind.name.as_str(), text(&kind.source).as_str(), text(&kind.default).as_str()),
        ("kind", "<Uri>", "page")
    );
    let mut keys: Vec<_> = kind.exact.keys().map(|key| String::from_utf8_lossy(key)).collect();
    keys.sort();
    assert_eq!(keys, ["/extra", "/login", "default"]);
    let is_match = |pattern: &sekisho_config::Pattern| {
        pattern.regex.matches(b"/a.PNG") == sekisho_config::Matched::Yes
    };
    assert!(kind.patterns.as_slice().iter().all(|(pattern, _)| is_match(pattern)));
    assert!(tenant.hostnames && tenant.exact.get(b"example.org").is_some());
    assert_eq!(
        tenant.leading.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect::<Vec<_>>(),
        [".example.com", ".example.org"]
    );
    assert_eq!(tenant.trailing[0].0, b"www.example.");
    let log = &server_settings(&config, 0).access_logs[0];
    assert_eq!(text(&log.format.line), "<RemoteAddr> \"<Request>\" <Status>");
    assert_eq!((log.buffer, log.flush), (Some(32768), Some(Duration::from_secs(5))));
    assert!(matches!(log.condition.as_ref().unwrap().parts[0], Part::Variable(Variable::Map(_))));
    assert_eq!(server_settings(&config, 1).error_logs[0].level, Level::Info);
    assert_eq!(config.main.error_logs.len(), 2);
}

#[test]
fn a_relative_root_begins_at_the_prefix_whatever_that_is_called() {
    // O1
    let text = "http { server { listen 80; root .; location /a { root ./b/; } location /c { root c/$host; } } }";
    let options = Options::new("/srv/$money and \u{e9}");
    let outcome = load("/c".as_ref(), &options, &Memory::of("/c", text));
    let config = outcome.config.expect("a configuration");
    let root = |index: usize| match &config.http.locations[index].settings.path_mapping {
        PathMapping::Root(template) => template.parts.clone(),
        other => panic!("{other:?}"),
    };
    let literal = |text: &str| Part::Literal(text.as_bytes().to_vec());
    let mut roots: Vec<_> = (0..config.http.locations.len()).map(root).collect();
    roots.sort_by_key(|parts| format!("{parts:?}"));
    assert!(roots.contains(&vec![literal("/srv/$money and \u{e9}")]), "{roots:?}");
    assert!(roots.contains(&vec![literal("/srv/$money and \u{e9}/b")]), "{roots:?}");
    let last = vec![literal("/srv/$money and \u{e9}/c/"), Part::Variable(Variable::Host)];
    assert!(roots.contains(&last), "{roots:?}");
}

#[test]
fn ssl_on_encrypts_the_addresses_whose_default_server_says_so() {
    let certificate = "ssl_certificate /a.pem; ssl_certificate_key /a.key;";
    for (text, expected) in [
        ("server { listen 81; ssl on; C }", "81 true"),
        ("ssl on; C server { listen 81; } server { listen 82; ssl off; }", "81 true, 82 false"),
        ("server { listen 81; } server { listen 81; listen 82; ssl on; C }", "81 false, 82 true"),
        ("server { listen 81; } server { listen 81 default_server; ssl on; C }", "81 true"),
    ] {
        let text = format!("http {{ {} }}", text.replace('C', certificate));
        let config = loaded(&text);
        let found = config.http.listens.iter().map(|listen| match &listen.address {
            ListenAddress::Tcp(address) => format!("{} {}", address.port(), listen.options.tls),
            other => format!("{other:?}"),
        });
        assert_eq!(found.collect::<Vec<_>>().join(", "), expected, "{text}");
    }
    let found = lines("http { server { listen 81; ssl on; } }", &Options::new("/prefix"));
    assert!(found.iter().any(|line| line.contains("\"ssl\" directive is deprecated")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("no \"ssl_certificate\"")), "{found:?}");
}
