//! What the machine has to say to a configuration that is right in itself: whether there is such a user, whether
//! it is root, and whether programs would run as root.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::model::{AddressMatch, Config, RealIp, Resolver, UpstreamPlace};
use crate::parse::{Node, Tree};
use crate::report::{Report, Reports, Span};
use crate::source::Source;

/// The user of a server that is started as root without `user`: nginx's choice, too.
pub const DEFAULT_USER: &str = "nobody";
/// Directives by which a program is run.
const RUNS: [&[u8]; 3] = [b"cgi", b"cgi_pass", b"cgi_extension"];

/// Reports what the machine has against it; whether it has nothing.
pub(crate) fn check(
    config: &Config,
    tree: &Tree,
    source: &dyn Source,
    reports: &mut Reports,
) -> bool {
    let mut found = Vec::new();
    let named = tree.nodes.iter().rfind(|node| &*node.name.text == b"user");
    if let (Some(node), Some((user, group))) = (named, &config.main.user) {
        let words = node.args.iter();
        let problems = [
            source.cannot_become(user),
            group.as_deref().and_then(|group| source.cannot_join(group)),
        ];
        for (word, problem) in words.zip(problems) {
            let report = |problem| Report::error(&tree.files, word.span, problem).of_machine();
            found.extend(problem.map(report));
        }
        if source.would_be_root(Some(user)) {
            let span = node.args.first().map(|word| word.span);
            let report = Report::warning(&tree.files, span, "the server will run as root");
            found.push(report.help("name a user with fewer privileges".to_owned()));
        }
    }
    let user = config.main.user.as_ref().map(|(user, _)| user.as_str());
    if let (None, Some(problem)) = (user, source.cannot_become(DEFAULT_USER)) {
        let report = Report::error(&tree.files, None, problem).of_machine();
        found.push(report.help("name the user of the server with \"user\"".to_owned()));
    }
    let has_programs = config.http.locations.iter().any(|it| it.settings.cgi.is_some());
    if has_programs && !config.main.privilege.programs_as_root && source.would_be_root(user) {
        let message = "programs would run as root";
        let help = "name another user with \"user\", or set \"cgi_allow_root on;\"";
        let span = first_run(&tree.nodes).map(|node| node.name.span);
        found.push(Report::error(&tree.files, span, message).help(help.to_owned()));
    }
    let is_fine = !found.iter().any(Report::is_error);
    for report in found {
        reports.push(report);
    }
    is_fine
}

/// Looks the hosts of all groups up. A host that is not found is an error, as in nginx; whether all were.
pub(crate) fn find_upstreams(
    config: &mut Config,
    tree: &Tree,
    source: &dyn Source,
    reports: &mut Reports,
) -> bool {
    let mut is_fine = true;
    let stream = config.stream.as_mut().and_then(Arc::get_mut);
    let stream = stream.into_iter().flat_map(|stream| &mut stream.http.upstreams);
    let groups = config.http.upstreams.iter_mut().chain(stream);
    for server in groups.flat_map(|group| &mut group.servers) {
        if server.is_resolved {
            continue;
        }
        let UpstreamPlace::Tcp(host, port) = &server.place else { continue };
        match source.addresses(host, *port) {
            Ok(addresses) if !addresses.is_empty() => server.addresses = addresses,
            failed => {
                is_fine = false;
                let place = format!("upstream \"{}\"", server.peer.server);
                reports.push(not_found(tree, server.span, &place, failed.err()));
            }
        }
    }
    is_fine
}

/// Looks the hosts of `set_real_ip_from` up. One that is not found is an error, as in nginx; whether all were.
pub(crate) fn find_proxies(
    config: &mut Config,
    tree: &Tree,
    source: &dyn Source,
    reports: &mut Reports,
) -> bool {
    let mut is_fine = true;
    let mut known: HashMap<Arc<str>, Vec<AddressMatch>> = HashMap::new();
    let stream = config.stream.as_mut().and_then(Arc::get_mut);
    let stream = stream.into_iter().flat_map(|stream| &mut stream.http.locations);
    for location in config.http.locations.iter_mut().chain(stream) {
        let Some(real_ip) = location.settings.real_ip.as_mut().filter(|it| !it.hosts.is_empty())
        else {
            continue;
        };
        let mut from = real_ip.from.to_vec();
        for (host, span) in &*real_ip.hosts {
            let found = known.entry(Arc::clone(host)).or_insert_with(|| {
                let found = source.addresses(host, 0);
                if !matches!(&found, Ok(found) if !found.is_empty()) {
                    is_fine = false;
                    let place = format!("set_real_ip_from \"{host}\"");
                    reports.push(not_found(tree, *span, &place, found.as_ref().err().cloned()));
                }
                let found = found.unwrap_or_default();
                found.iter().map(|address| AddressMatch::one(address.ip())).collect()
            });
            from.extend_from_slice(found);
        }
        *real_ip = Arc::new(RealIp { from: from.into(), ..RealIp::clone(real_ip) });
    }
    is_fine
}

/// Looks the hosts of `resolver` up. One that is not found is an error, as in nginx; whether all were.
pub(crate) fn find_resolvers(
    config: &mut Config,
    tree: &Tree,
    source: &dyn Source,
    reports: &mut Reports,
) -> bool {
    let mut is_fine = true;
    let mut known: HashMap<(Arc<str>, u16), Vec<SocketAddr>> = HashMap::new();
    let stream = config.stream.as_mut().and_then(Arc::get_mut).map(|stream| &mut stream.http);
    for http in std::iter::once(&mut config.http).chain(stream) {
        let levels = http.locations.iter_mut().map(|location| &mut location.settings.resolver);
        let groups = http.upstreams.iter_mut().map(|group| &mut group.resolver);
        for resolver in levels.chain(groups).filter(|it| !it.hosts.is_empty()) {
            let mut found = Resolver { hosts: Vec::new(), ..Resolver::clone(resolver) };
            for (host, port, span) in &resolver.hosts {
                let addresses = known.entry((Arc::clone(host), *port)).or_insert_with(|| {
                    let found = source.addresses(host, *port);
                    if !matches!(&found, Ok(found) if !found.is_empty()) {
                        is_fine = false;
                        let place = format!("resolver \"{host}\"");
                        reports.push(not_found(tree, *span, &place, found.as_ref().err().cloned()));
                    }
                    found.unwrap_or_default()
                });
                found.servers.extend_from_slice(addresses);
            }
            *resolver = Arc::new(found);
        }
    }
    is_fine
}

/// A host that is named there has no address, and why.
fn not_found(
    tree: &Tree,
    span: impl Into<Option<Span>>,
    place: &str,
    why: Option<String>,
) -> Report {
    let report = Report::error(&tree.files, span, format!("host not found in {place}"));
    why.into_iter().fold(report, Report::note).of_machine()
}

/// The first directive that has a program run. Blocks are nested within a bound.
fn first_run(nodes: &[Node]) -> Option<&Node> {
    nodes.iter().find_map(|node| {
        let is_run = RUNS.contains(&&*node.name.text)
            && node.args.first().is_some_and(|word| &*word.text != b"off");
        if is_run { Some(node) } else { first_run(node.body.as_deref()?) }
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::net::SocketAddr;
    use std::path::Path;

    use crate::{Memory, Options, Source, load};

    /// A machine with the users `root`, `nobody` and `www`, and the group `web`, asked by root.
    struct Asked(Memory);

    impl Source for Asked {
        fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
            self.0.read(path)
        }
        fn list(&self, path: &Path) -> Vec<OsString> {
            self.0.list(path)
        }
        fn cannot_become(&self, user: &str) -> Option<String> {
            (!["root", "www", "nobody"].contains(&user))
                .then(|| format!("there is no user \"{user}\""))
        }
        fn cannot_join(&self, group: &str) -> Option<String> {
            (group != "web").then(|| format!("there is no group \"{group}\""))
        }
        fn would_be_root(&self, user: Option<&str>) -> bool {
            user == Some("root")
        }
        fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
            let found = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().expect("an address"));
            match host {
                "proxy.test" => Ok(found.map(|ip| SocketAddr::new(ip, port)).to_vec()),
                _ => Err("no such host".to_owned()),
            }
        }
    }

    /// V45: each with its place in the file.
    #[test]
    fn users_that_are_not_there_and_programs_of_root_are_errors() {
        for (text, expected) in [
            ("user www web;", &[][..]),
            ("user www;", &[]),
            ("user ghost web;", &["/c:1: there is no user \"ghost\""]),
            (
                "user ghost\nnone;",
                &["/c:1: there is no user \"ghost\"", "/c:2: there is no group \"none\""],
            ),
            ("user root;", &[]),
            ("user www; http { server { cgi on; } }", &[]),
            ("user root; http { server { cgi off; } }", &[]),
            (
                "user root;\nhttp { server {\ncgi off; location / { cgi_pass /x; } } }",
                &["/c:3: programs would run as root"],
            ),
            ("user root; cgi_allow_root on; http { server { cgi on; } }", &[]),
        ] {
            let source = Asked(Memory::of("/c", text));
            let outcome = load(Path::new("/c"), &Options::new("/"), &source);
            let errors = outcome.reports.iter().filter(|report| report.is_error());
            let found: Vec<String> = errors.map(crate::Report::line).collect();
            assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
            for (line, expected) in found.iter().zip(expected) {
                let (place, message) = expected.split_once(": ").expect("a place");
                assert!(line.contains(message) && line.contains(place), "{line}");
            }
            assert_eq!(outcome.config.is_some(), expected.is_empty(), "{text}");
        }
    }

    #[test]
    fn proxies_may_be_named_by_their_host() {
        let text = |host| {
            format!(
                "http {{ set_real_ip_from {host}; set_real_ip_from 10.0.0.0/8;
                 server {{ location /a {{ set_real_ip_from 127.0.0.1; }} }} }}"
            )
        };
        let asked = |host| {
            let source = Asked(Memory::of("/c", text(host)));
            load(Path::new("/c"), &Options::new("/"), &source)
        };
        let config = asked("proxy.test").config.expect("a configuration");
        let trusts = |location: usize, address: &str| {
            let real_ip = config.http.locations[location].settings.real_ip.as_ref();
            real_ip.expect("proxies").trusts(Some(address.parse().expect("an address")))
        };
        for address in ["192.0.2.1", "2001:db8::1", "10.1.1.1"] {
            assert!(trusts(0, address) && !trusts(1, address), "{address}");
        }
        assert!(!trusts(0, "192.0.2.2") && trusts(1, "127.0.0.1"));
        let outcome = asked("ghost.test");
        let lines: Vec<String> = outcome.reports.iter().map(crate::Report::line).collect();
        assert!(outcome.config.is_none());
        assert!(
            lines[0].contains("host not found in set_real_ip_from \"ghost.test\""),
            "{lines:?}"
        );
    }

    /// V45
    #[test]
    fn a_server_that_will_be_root_is_warned_of_with_its_place() {
        for (text, is_warned) in [("\nuser root;", true), ("\nuser www;", false), ("", false)] {
            let source = Asked(Memory::of("/c", text));
            let outcome = load(Path::new("/c"), &Options::new("/"), &source);
            let mut found = outcome.reports.iter().map(crate::Report::line);
            let line = "[warn] the server will run as root in /c:2";
            assert_eq!(found.any(|found| found == line), is_warned, "{text}");
            assert!(outcome.config.is_some(), "a warning is no error");
        }
    }

    /// O12: a machine without the user that is nowhere named.
    #[test]
    fn the_user_that_is_not_named_must_be_there_too() {
        struct Bare(Memory);
        impl Source for Bare {
            fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
                self.0.read(path)
            }
            fn list(&self, path: &Path) -> Vec<OsString> {
                self.0.list(path)
            }
            fn cannot_become(&self, user: &str) -> Option<String> {
                (user != "www").then(|| format!("there is no user \"{user}\""))
            }
        }
        for (text, expected) in
            [("", Some("[emerg] there is no user \"nobody\"")), ("user www;", None)]
        {
            let outcome = load(Path::new("/c"), &Options::new("/"), &Bare(Memory::of("/c", text)));
            let errors = outcome.reports.iter().filter(|report| report.is_error());
            let found: Vec<String> = errors.map(crate::Report::line).collect();
            assert_eq!(found.first().map(String::as_str), expected);
            assert_eq!(outcome.config.is_none(), expected.is_some());
        }
    }

    #[test]
    fn dns_servers_may_be_named_by_their_host() {
        let asked = |host| {
            let text = format!(
                "http {{ resolver {host} 127.0.0.1; upstream u {{ zone z 64k; server x.test resolve; }}
                 server {{ location /a {{ resolver 10.0.0.1; }} }} }}"
            );
            load(Path::new("/c"), &Options::new("/"), &Asked(Memory::of("/c", text)))
        };
        let config = asked("proxy.test:5353").config.expect("a configuration");
        let shown = |resolver: &crate::model::Resolver| {
            resolver.servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        let named = "127.0.0.1:53 192.0.2.1:5353 [2001:db8::1]:5353";
        assert_eq!(shown(&config.http.locations[0].settings.resolver), named);
        assert_eq!(shown(&config.http.upstreams[0].resolver), named);
        assert_eq!(shown(&config.http.locations[1].settings.resolver), "10.0.0.1:53");
        let outcome = asked("ghost.test");
        let lines: Vec<String> = outcome.reports.iter().map(crate::Report::line).collect();
        assert!(outcome.config.is_none());
        assert!(lines[0].contains("host not found in resolver \"ghost.test\""), "{lines:?}");
    }
}
