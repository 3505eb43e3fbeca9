//! Which places a configuration names, and what its workers must be able to do there. Nothing is looked at on
//! the disk: that is done when the places are opened.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sekisho_config::{
    Access, AccessTarget, Cgi, CgiStderr, Config, Location, LocationMatch, LogTarget, Part, Pass,
    PassTo, PathMapping, Pem, Programs, Template, UpstreamPlace, Variable, is_in_storage,
};
use sekisho_sys::Right;

use super::TOO_WIDE;

/// Where the time of the machine comes from, which logs and listings show.
const CLOCKS: [&str; 2] = ["/etc/localtime", "/usr/share/zoneinfo"];
/// What nearly every program needs to begin at all.
const RUNTIME: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/// What of `/etc` is about the machine and not about a service.
const MACHINE: [&str; 17] = [
    "/proc",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/perl",
    "/etc/php",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
];
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// What workers may do with TCP, beside serving connections of the open listeners.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Network {
    /// Unknown: programs are run, or variables choose the server that requests are passed to.
    Free,
    /// Nothing but connect to these ports; `bool`: from an address that the configuration names.
    Ports(BTreeSet<u16>, bool),
    /// Nothing.
    #[default]
    Quiet,
}

impl Network {
    fn of(config: &Config) -> Self {
        let locations = || config.blocks().flat_map(|block| &block.http.locations);
        let passes = || locations().filter_map(|it| it.settings.pass.as_deref());
        let is_computed = |pass: &Pass| matches!(pass.to, PassTo::Computed(_));
        if locations().any(|it| it.settings.cgi.is_some()) || passes().any(is_computed) {
            return Self::Free;
        }
        let groups = || config.blocks().flat_map(|block| &block.http.upstreams);
        let servers = || groups().flat_map(|group| &group.servers);
        let resolved = servers().filter(|it| it.is_resolved);
        let resolved = resolved.filter_map(|it| match it.place {
            UpstreamPlace::Tcp(_, port) => Some(port),
            UpstreamPlace::Unix(_) => None,
        });
        // An answer that is too long for a datagram is asked for by TCP.
        let groups = groups().filter(|group| group.servers.iter().any(|it| it.is_resolved));
        let dns = groups.flat_map(|group| &group.resolver.servers);
        let ports = servers().flat_map(|it| &it.addresses).chain(dns).map(SocketAddr::port);
        let checks = config.http.health_checks.iter().filter_map(|check| check.port);
        let ports: BTreeSet<u16> = ports.chain(resolved).chain(checks).collect();
        let binds = passes().any(|pass| pass.forward.bind.is_some());
        if ports.is_empty() { Self::Quiet } else { Self::Ports(ports, binds) }
    }

    /// Whether all that is wanted is allowed.
    pub(crate) fn covers(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Free, _) | (_, Self::Quiet) => true,
            (Self::Ports(own, binds), Self::Ports(ports, binds_too)) => {
                ports.is_subset(own) && (*binds || !binds_too)
            }
            (_, Self::Free) | (Self::Quiet, Self::Ports(..)) => false,
        }
    }
}

/// The places, and what may be done there.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct SandboxPaths {
    pub(crate) all: BTreeMap<PathBuf, Right>,
    /// Folders that are served: `root` and `alias`.
    pub(crate) served: BTreeSet<PathBuf>,
    /// Where a path begins with a variable, so that it may lead anywhere: the directive.
    pub(crate) boundless: Option<&'static str>,
    /// Where a path has a variable right behind its first slash, so that all of the disk is a place: the directive.
    pub(crate) everything: Option<&'static str>,
    /// Whether programs are run.
    pub(crate) has_programs: bool,
    /// What is allowed of TCP.
    pub(crate) network: Network,
}

impl SandboxPaths {
    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let mut paths = Self::default();
        let programs = config.http.locations.iter().any(|it| it.settings.cgi.is_some());
        paths.has_programs = programs;
        for location in &config.http.locations {
            paths.add_location(location);
        }
        let of_stream = config.stream.iter().flat_map(|stream| &stream.http.locations);
        for log in of_stream.flat_map(|location| location.settings.access_logs.iter()) {
            if let AccessTarget::Variable(path) = &log.target {
                paths.add_ground(path, ground(path, None), "access_log", Right::Write);
            }
        }
        for block in config.blocks() {
            let served = block.http.servers.iter().map(|server| &server.tls);
            let own = served.flat_map(|tls| tls.certificates.iter().chain(&tls.keys));
            own.for_each(|pem| paths.add_pem(pem, "ssl_certificate"));
            let passes = block.http.locations.iter().filter_map(|it| it.settings.pass.as_deref());
            let tls = passes.map(|pass| &pass.forward.tls);
            let clients = tls.flat_map(|tls| tls.certificate.iter().chain(&tls.key));
            clients.for_each(|pem| paths.add_pem(pem, "proxy_ssl_certificate"));
        }
        paths.network = Network::of(config);
        if !programs && config.http.locations.iter().any(|it| it.settings.pass.is_some()) {
            // Bodies that do not fit in memory are kept there on their way.
            paths.add(std::env::temp_dir(), Right::Write);
        }
        if let Some(file) = &config.main.endpoint.password_file {
            // It is replaced by another one when it changes.
            paths.add(folder_around(file), Right::Read);
        }
        for cache in &config.http.caches {
            paths.add(&cache.path, Right::Write);
        }
        for clock in CLOCKS {
            paths.add(clock, Right::Read);
        }
        let privilege = &config.main.privilege;
        let (read, write) =
            if programs { (Right::Run, Right::Use) } else { (Right::Read, Right::Write) };
        let named = privilege.read.iter().map(|path| (path, read));
        for (path, right) in named.chain(privilege.write.iter().map(|path| (path, write))) {
            paths.add(path, right);
        }
        if programs {
            let runtime = RUNTIME.iter().map(|path| (path, Right::Run));
            let machine = MACHINE.iter().map(|path| (path, Right::Read));
            let devices = DEVICES.iter().map(|path| (path, Right::Use));
            for (path, right) in runtime.chain(machine).chain(devices) {
                paths.add(path, right);
            }
            // Bodies whose length is not known are gathered there, and programs expect it.
            paths.add(std::env::temp_dir(), Right::Use);
        }
        paths
    }

    fn add(&mut self, path: impl Into<PathBuf>, right: Right) {
        self.all
            .entry(path.into())
            .and_modify(|known| {
                if !known.covers(right) {
                    // Neither of the two that do not cover each other is enough: both are in the largest.
                    *known = if right.covers(*known) { right } else { Right::Use };
                }
            })
            .or_insert(right);
    }

    /// A place that a template leads to, if it is known where that is.
    fn add_ground(
        &mut self,
        template: &Template,
        ground: Option<PathBuf>,
        directive: &'static str,
        right: Right,
    ) {
        let is_everything = template.as_literal().is_none()
            && ground.as_deref().is_some_and(|ground| ground == Path::new("/"));
        if is_everything {
            self.everything = Some(directive);
        }
        match ground {
            Some(ground) => self.add(ground, right),
            None => self.boundless = Some(directive),
        }
    }

    fn add_location(&mut self, location: &Location) {
        let settings = &location.settings;
        let (template, directive) = match &settings.path_mapping {
            PathMapping::Root(root) => (root, "root"),
            PathMapping::Alias(alias) | PathMapping::AliasOfParent { alias, .. } => {
                (alias, "alias")
            }
        };
        let own = ground(template, None);
        let changes = settings.file_ops.as_deref().filter(|file_ops| file_ops.changes_own_folder());
        let right = match (changes, &settings.cgi) {
            (Some(_), Some(_)) => Right::Use,
            (Some(_), None) => Right::Write,
            (None, Some(_)) => Right::Run,
            (None, None) => Right::Read,
        };
        if !settings.path_mapping.is_storage() {
            self.served.extend(own.clone());
            self.add_ground(template, own.clone(), directive, right);
        }
        if let Some(store) =
            settings.file_ops.as_deref().and_then(|file_ops| file_ops.store.as_ref())
            && !is_in_storage(store)
        {
            self.add_ground(store, ground(store, own.as_deref()), "upload_store", Right::Write);
        }
        let except = settings.limit_except.as_ref().and_then(|except| except.access.as_ref());
        for access in settings.access.iter().chain(except) {
            self.add_passwords(access);
        }
        for log in settings.access_logs.iter() {
            // Fixed ones are open before; `USR1` opens them again outside.
            if let AccessTarget::Variable(path) = &log.target {
                self.add_ground(path, ground(path, own.as_deref()), "access_log", Right::Write);
            }
        }
        if let Some(cgi) = &settings.cgi {
            self.add_programs(cgi, own.as_deref());
        }
        for folder in settings.temp_folders() {
            self.add(&*folder.path, Right::Write);
        }
    }

    /// A certificate that variables choose is read by the workers. What a `map` says may be anywhere; other values are
    /// taken to be names in the folder.
    fn add_pem(&mut self, pem: &Pem, directive: &'static str) {
        let Pem::Computed { value, folder } = pem else { return };
        let ground = match value.parts.as_slice() {
            [Part::Literal(text), ..] if text.starts_with(b"data:") => return,
            [Part::Literal(text), ..] => {
                let end = text.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                Some(folder.join(OsStr::from_bytes(&text[..end])))
            }
            [Part::Variable(Variable::Map(_) | Variable::Assigned(_)), ..] => None,
            _ => Some(folder.clone()),
        };
        self.add_ground(value, ground, directive, Right::Read);
    }

    /// A file of passwords is replaced by another one when it changes: its folder is what stays.
    fn add_passwords(&mut self, access: &Arc<Access>) {
        let Some(rule) = &access.password else { return };
        let path = match ground(&rule.file.path, None) {
            Some(path) if path.is_absolute() => Some(path),
            Some(path) => Some(Path::new(OsStr::from_bytes(&rule.file.folder)).join(path)),
            None => None,
        };
        let is_whole = rule.file.path.as_literal().is_some();
        let folder = path.map(|path| if is_whole { folder_around(&path).to_owned() } else { path });
        self.add_ground(&rule.file.path, folder, "auth_basic_user_file", Right::Read);
    }

    fn add_programs(&mut self, cgi: &Cgi, own: Option<&Path>) {
        if let Programs::One(pass) = &cgi.programs {
            let program = ground(&pass.program, own);
            let folder = program.map(|path| path.parent().map_or(path.clone(), Path::to_owned));
            self.add_ground(&pass.program, folder, "cgi_pass", Right::Run);
        }
        let listed = cgi.extensions.iter().filter_map(|it| it.interpreter.as_ref());
        for interpreter in listed.chain(&cgi.interpreter) {
            let path = ground(&interpreter.program, own);
            let is_whole = interpreter.program.as_literal().is_some();
            let folder = path.map(|path| match path.parent().filter(|_| is_whole) {
                Some(folder) => folder.to_owned(),
                None => path,
            });
            self.add_ground(&interpreter.program, folder, "cgi_interpreter", Right::Run);
        }
        if let Some(dir) = &cgi.working_dir {
            self.add_ground(dir, ground(dir, own), "cgi_working_dir", Right::Run);
        }
        if let CgiStderr::To(LogTarget::File(path)) = &cgi.stderr {
            self.add(folder_around(path), Right::Write);
        }
    }
}

/// The folder that a file lies in, which stays when the file is replaced; the file alone where that is too much.
fn folder_around(path: &Path) -> &Path {
    path.parent().filter(|folder| !TOO_WIDE.contains(folder)).unwrap_or(path)
}

/// What is served and stored, as far as the configuration names it without variables; and whether files are
/// written there.
pub(crate) fn served(config: &Config) -> BTreeMap<PathBuf, bool> {
    let mut all = BTreeMap::new();
    let mut add = |path: PathBuf, is_changed: bool| *all.entry(path).or_default() |= is_changed;
    for location in &config.http.locations {
        let settings = &location.settings;
        let (PathMapping::Root(template)
        | PathMapping::Alias(template)
        | PathMapping::AliasOfParent { alias: template, .. }) = &settings.path_mapping;
        if let Some(own) = ground(template, None)
            && !settings.path_mapping.is_storage()
        {
            add(own, false);
        }
        if let Some(access) = &settings.access {
            let file = access.password.as_ref().map(|rule| &rule.file);
            let named = file.and_then(|file| Some((file, path(&file.path)?)));
            if let Some((file, path)) = named {
                add(Path::new(OsStr::from_bytes(&file.folder)).join(path), false);
            }
        }
        let Some(file_ops) = settings.file_ops.as_deref() else { continue };
        let store = file_ops.store.as_ref().filter(|store| !is_in_storage(store));
        let store_path = store.and_then(path);
        let is_beneath = file_ops.changes_own_folder() || (store.is_some() && store_path.is_none());
        let is_beneath = is_beneath && !settings.path_mapping.is_storage();
        if let Some(folder) = folder_of(location).filter(|_| is_beneath) {
            add(folder, true);
        }
        if let Some(store) = store_path {
            add(store, true);
        }
    }
    all
}

/// Where the files of a location lie, if that is one folder.
fn folder_of(location: &Location) -> Option<PathBuf> {
    match (&location.settings.path_mapping, &location.matches) {
        (PathMapping::Root(root), LocationMatch::Server) => path(root),
        (PathMapping::Root(root), LocationMatch::Prefix { path: below, .. }) => {
            let below = below.strip_prefix(b"/").unwrap_or(below);
            Some(path(root)?.join(OsStr::from_bytes(below)))
        }
        (PathMapping::Alias(alias), LocationMatch::Prefix { .. }) => path(alias),
        _ => None,
    }
}

/// The path that a template is, where it has no variables.
fn path(template: &Template) -> Option<PathBuf> {
    template.as_literal().map(|text| PathBuf::from(OsStr::from_bytes(text)))
}

/// The folder that contains everything that a template can lead to; `None` if that may be anywhere. `own` is
/// the folder of the location's own files.
fn ground(template: &Template, own: Option<&Path>) -> Option<PathBuf> {
    match template.parts.as_slice() {
        [Part::Literal(text)] => Some(PathBuf::from(OsStr::from_bytes(text))),
        [Part::Literal(text), ..] => {
            let end = text.iter().rposition(|byte| *byte == b'/')?;
            Some(PathBuf::from(OsStr::from_bytes(&text[..=end])))
        }
        [Part::Variable(Variable::DocumentRoot | Variable::RequestFilename), ..] => {
            own.map(Path::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sekisho_config::{Memory, Options, load};

    use super::*;

    fn paths(text: &str) -> SandboxPaths {
        let source = Memory::of("/c", text);
        let outcome = load(Path::new("/c"), &Options::new("/p"), &source);
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports));
        SandboxPaths::of(&config)
    }

    /// The places of a server with these lines, without those that every one has.
    fn named(lines: &str) -> (Vec<(String, Right)>, Option<&'static str>) {
        let found = paths(&format!("http {{ server {{ {lines} }} }}"));
        let every = paths("http { server { root /r; } }");
        let others = found.all.iter().filter(|(path, _)| {
            !every.all.contains_key(*path) || path.as_path() == Path::new("/r")
        });
        let mut others: Vec<(String, Right)> =
            others.map(|(path, right)| (path.display().to_string(), *right)).collect();
        others.sort_unstable();
        (others, found.boundless)
    }

    /// V45: what is not named is not among them.
    #[test]
    fn the_places_are_those_that_the_configuration_names() {
        use Right::{Read, Use, Write};
        for (lines, expected) in [
            ("root /r;", &[("/r", Read)][..]),
            ("root html;", &[("/p/html", Read)]),
            ("root /r; location /a/ { alias /b/c/; }", &[("/b/c/", Read), ("/r", Read)]),
            ("root /r/$host/www;", &[("/r/", Read)]),
            ("root /r; location ~ /u/(.+) { alias /home/$1; }", &[("/home/", Read), ("/r", Read)]),
            ("root /r; location /up/ { dav_methods PUT; }", &[("/r", Write)]),
            ("root /r; upload_store /in/$arg_a;", &[("/in/", Write), ("/r", Read)]),
            ("root /r; upload_store $request_filename;", &[("/r", Write)]),
            (
                "root /r; auth_basic x; auth_basic_user_file /etc/web/users;",
                &[("/etc/web", Read), ("/r", Read)],
            ),
            (
                "root /r; auth_basic x; auth_basic_user_file /etc/users;",
                &[("/etc/users", Read), ("/r", Read)],
            ),
        ] {
            let (found, boundless) = named(lines);
            let expected: Vec<(String, Right)> =
                expected.iter().map(|(path, right)| ((*path).to_owned(), *right)).collect();
            assert_eq!((found, boundless), (expected, None), "{lines}");
        }
        let (found, _) = named("root /r; cgi on; dav_methods PUT; cgi_stderr /log/x;");
        assert!(found.contains(&("/r".to_owned(), Use)), "{found:?}");
        assert!(found.contains(&("/log".to_owned(), Write)), "{found:?}");
        assert!(found.contains(&("/usr".to_owned(), Right::Run)), "{found:?}");
    }

    #[test]
    fn a_path_that_begins_with_a_variable_has_no_bound() {
        let found = paths("http { map $host $r { default /a; } server { root $r; } }");
        assert_eq!(found.boundless, Some("root"));
        assert!(!found.has_programs);
    }

    /// V45
    #[test]
    fn a_variable_behind_the_first_slash_makes_a_place_of_everything() {
        for (lines, expected) in [
            ("root /$host;", Some("root")),
            ("root /r; location ~ /(.+) { alias /x$1/; }", Some("alias")),
            ("root /r/$host;", None),
            ("root /;", None),
        ] {
            let found = paths(&format!("http {{ server {{ {lines} }} }}"));
            assert_eq!(found.everything, expected, "{lines}");
        }
    }

    /// V45: workers connect to the ports of the configured servers, and to no others.
    #[test]
    fn connecting_is_allowed_to_configured_ports_only() {
        let network = |inner: &str| {
            let text = format!(
                "http {{ upstream g {{ server 10.0.0.1:81; server unix:/s; }} server {{ {inner} }} }}"
            );
            paths(&text).network
        };
        let ports = |ports: &[u16], binds| Network::Ports(ports.iter().copied().collect(), binds);
        let both = network(
            "location / { proxy_pass http://g; } location /b { proxy_pass http://10.0.0.2:82; }",
        );
        assert_eq!(both, ports(&[81, 82], false));
        assert_eq!(
            network("location / { proxy_pass http://g; proxy_bind 10.0.0.9; }"),
            ports(&[81], true)
        );
        assert_eq!(network("location / { proxy_pass http://$host; }"), Network::Free);
        assert_eq!(paths("http { server { } }").network, Network::Quiet);
        let resolved = "http { resolver 10.0.0.9; upstream n { server a.example:84 resolve; }
             server { location / { proxy_pass http://n; } } }";
        assert_eq!(paths(resolved).network, ports(&[53, 84], false));
        assert!(both.covers(&ports(&[81], false)) && !both.covers(&ports(&[83], false)));
        assert!(!both.covers(&Network::Free) && Network::Free.covers(&both));
    }
}
