//! From a configuration, wherever it comes from, to a site that can be served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sekisho_config::parse::Tree;
use sekisho_config::{AcmeStore, Config, CredentialSource, Memory, Options, Outcome, Source};
use sekisho_net::site::OpenError;

use crate::cli::{Flags, is_nginx};
use crate::cluster::{Membership, MembershipProblem};
use crate::control_plane::{Identities, IdentityProblem};
use crate::disk::Disk;
use crate::temp_folders::{self, Base};
use crate::{
    Problem, certificates, client_tls, path_access, sandbox, service_factory, upgrade,
    writable_programs,
};

/// Where the configuration is by default.
const SYSTEM_CONFIG: &str = "/etc/sekisho/sekisho.conf";
/// Where the system keeps what the server stores (`StateDirectory` of systemd).
const SYSTEM_STATE: &str = "/var/lib/sekisho";
/// Default paths when the program is called as `nginx`, by the names of nginx's own options.
pub(crate) const NGINX_PATHS: [(&str, &str); 2] =
    [("conf-path", "/etc/nginx/nginx.conf"), ("pid-path", "/run/nginx.pid")];
/// Below the prefix, as in nginx.
const PREFIX_CONFIG: &str = "conf/nginx.conf";

/// Where the configuration comes from; asked again at every reload.
#[derive(Debug)]
pub(crate) struct Plan {
    main_file: PathBuf,
    options: Options,
    early_log: Option<PathBuf>,
    /// The text of a built-in configuration.
    builtin: Option<String>,
}

impl Plan {
    /// The configuration that nginx's flags name.
    pub(crate) fn from_flags(flags: &Flags) -> Result<Self, Problem> {
        let here = std::env::current_dir()
            .map_err(|error| Problem::new(format_args!("no current directory: {error}")))?;
        let given_prefix = flags.prefix.as_ref().map(|prefix| here.join(prefix));
        let main_file = match (&flags.config, &given_prefix) {
            (Some(file), Some(prefix)) => prefix.join(file),
            (Some(file), None) => here.join(file),
            (None, Some(prefix)) => prefix.join(PREFIX_CONFIG),
            (None, None) if is_nginx() => PathBuf::from(NGINX_PATHS[0].1),
            (None, None) => PathBuf::from(SYSTEM_CONFIG),
        };
        let prefix = given_prefix
            .clone()
            .or_else(|| main_file.parent().map(Path::to_owned))
            .unwrap_or_else(|| here.clone());
        let mut options = Options::new(&prefix).with_default("error_log", &["stderr"]);
        options.globals.clone_from(&flags.globals);
        options.hostname = hostname();
        options.services = services();
        let mut early_log = None;
        if let Some(path) = flags.error_log.as_ref().filter(|path| path.as_os_str() != "stderr") {
            let path = prefix.join(path);
            options = options.with_default("error_log", &[text_of(&path)?]);
            early_log = Some(path);
        }
        // nginx writes below `logs` by default; here that folder must exist.
        let has_logs = prefix.join("logs").is_dir();
        let (access_log, pid) =
            if has_logs { ("logs/access.log", "logs/sekisho.pid") } else { ("off", "off") };
        if is_nginx() {
            options = options.with_default("daemon", &["on"]);
        }
        let pid = if is_nginx() { NGINX_PATHS[1].1 } else { pid };
        let options = options.with_default("access_log", &[access_log]).with_default("pid", &[pid]);
        let base = match &given_prefix {
            Some(prefix) => Base::Folder(prefix),
            None if is_nginx() => Base::Nginx,
            None if main_file == Path::new(SYSTEM_CONFIG) => Base::Folder(SYSTEM_STATE.as_ref()),
            None => Base::Existing(&prefix),
        };
        let options = temp_folders::with_defaults(options, base)?;
        Ok(Self { main_file, options, early_log, builtin: None })
    }

    /// A built-in configuration; relative paths start from `prefix`.
    pub(crate) fn builtin(text: String, prefix: PathBuf) -> Self {
        let main_file = prefix.join("built-in");
        let mut options = Options::new(prefix);
        options.hostname = hostname();
        options.services = services();
        Self { main_file, options, early_log: None, builtin: Some(text) }
    }

    /// The main file.
    pub(crate) fn main_file(&self) -> &Path {
        &self.main_file
    }

    /// How it is read.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The file of `-e`.
    pub(crate) fn early_log(&self) -> Option<&Path> {
        self.early_log.as_deref()
    }

    /// Reads and checks the configuration.
    pub(crate) fn read(&self) -> Outcome {
        let mut outcome = self.look();
        outcome.tree = Tree::default();
        outcome
    }

    /// The same with the directives that were read, for a caller that inspects the configuration and does not use
    /// it.
    pub(crate) fn look(&self) -> Outcome {
        let mut outcome = self.load();
        // Warnings about what was left out of a wrong text would be misleading.
        let is_warned_of = self.builtin.is_none() && outcome.is_right;
        if let Some(config) = outcome.inspected().filter(|_| is_warned_of) {
            let mut warnings = path_access::warnings(config, &outcome);
            warnings.extend(sandbox::warnings(config, &outcome));
            warnings.extend(writable_programs::warnings(config, &outcome));
            outcome.reports.extend(warnings);
        }
        check_logs(&mut outcome);
        check_tls(&mut outcome);
        check_identities(&mut outcome);
        check_cluster(&mut outcome);
        check_stores(&mut outcome);
        check_databases(&mut outcome);
        check_storages(&mut outcome);
        outcome
    }

    fn load(&self) -> Outcome {
        let memory;
        let source: &dyn Source = match &self.builtin {
            Some(text) => {
                memory = Memory::of(&self.main_file, text.as_bytes());
                &memory
            }
            None => &Disk,
        };
        sekisho_config::load(&self.main_file, &self.options, source)
    }

    /// The same for a caller that wants a configuration or nothing: reports go to stderr.
    pub(crate) fn read_or_report(&self) -> Result<Arc<Config>, Problem> {
        self.must_be_there()?;
        let outcome = self.read();
        report(&outcome);
        self.config_of(outcome)
    }

    /// The same for a caller that looks for a running server: warnings are not printed.
    pub(crate) fn read_to_find(&self) -> Result<Arc<Config>, Problem> {
        self.must_be_there()?;
        let outcome = self.load();
        if outcome.has_errors() {
            report(&outcome);
        }
        self.config_of(outcome)
    }

    fn must_be_there(&self) -> Result<(), Problem> {
        if self.builtin.is_none() {
            // Without the main file there is one error to report, and not two.
            Disk.read(&self.main_file).map_err(|why| {
                Problem::new(format_args!("cannot read {}: {why}", self.main_file.display()))
            })?;
        }
        Ok(())
    }

    fn config_of(&self, outcome: Outcome) -> Result<Arc<Config>, Problem> {
        outcome.config.map(Arc::new).ok_or_else(|| {
            let file = self.main_file.display();
            let mut text = format!("configuration file {file} failed");
            // In an upgrade the old process logs only this text, so it must have the first error.
            let first = outcome.reports.iter().find(|report| report.is_error());
            if let Some(report) = first.filter(|_| upgrade::predecessor().is_some()) {
                text = format!("{text}: {}", report.line());
            }
            Problem::new(text)
        })
    }
}

/// Reads what TLS needs: a configuration whose certificates cannot be used is not used (S4).
fn check_tls(outcome: &mut Outcome) {
    let problems = outcome.inspected().map(sekisho_net::tls::check).unwrap_or_default();
    for problem in problems {
        let message = problem.to_string();
        if problem.is_warning {
            let report = outcome.warning_about(&[problem.directive], &problem.path, message);
            outcome.reports.extend([report]);
        } else {
            outcome.refuse_for(&[problem.directive], &problem.path, message);
        }
    }
}

/// Looks whether the folders of the logs are there.
fn check_logs(outcome: &mut Outcome) {
    let Some(config) = outcome.inspected() else { return };
    for (path, message) in path_access::logs_without_folders(config) {
        outcome.refuse_for(&["error_log", "access_log", "cgi_stderr"], &path, message);
    }
}

/// Reads tokens, and looks up the users and groups that rules name.
fn check_identities(outcome: &mut Outcome) {
    let Some(config) = outcome.inspected() else { return };
    let (_, problems) = Identities::read(&config.main.endpoint);
    for IdentityProblem { directive, word, message, is_warning } in problems {
        if is_warning {
            let report = outcome.warning_about(&[directive], &word, message);
            outcome.reports.extend([report]);
        } else {
            outcome.refuse_for(&[directive], &word, message);
        }
    }
}

/// Reads what this node proves itself by in its cluster, and what it trusts.
fn check_cluster(outcome: &mut Outcome) {
    let Some(config) = outcome.inspected() else { return };
    let (_, problems) = Membership::read(config);
    for MembershipProblem { directive, word, message } in problems {
        outcome.refuse_for(&[directive], &word, message);
    }
}

/// Reads what stores are trusted by, and the key of `acme_store`.
fn check_stores(outcome: &mut Outcome) {
    let Some(config) = outcome.inspected() else { return };
    let http = &config.http;
    let zones = http.zones.iter().filter_map(|zone| zone.store.as_ref()).map(|store| &store.url);
    let zones = zones.map(|url| ("store=", url));
    let others = http.ticket_store.iter().chain(http.acme_store.iter().map(|store| &store.url));
    let all = zones.chain(others.map(|url| ("", url)));
    let mut problems: Vec<(PathBuf, String)> = all
        .filter_map(|(before, url)| {
            let (_, file) = url.split_once("?ca=").filter(|_| url.starts_with("rediss"))?;
            let why = client_tls::client_tls(Some(Path::new(file))).err()?;
            Some((format!("{before}{url}").into(), format!("a store's authorities: {why}")))
        })
        .collect();
    if let Some(AcmeStore { url, key: Some(key) }) = &http.acme_store
        && let Err(why) = certificates::check_key(key)
    {
        problems.push((url.into(), format!("the key of \"acme_store\": {why}")));
    }
    let directives =
        ["limit_req_zone", "limit_conn_zone", "ssl_session_ticket_store", "acme_store"];
    for (word, message) in problems {
        outcome.refuse_for(&directives, &word, message);
    }
}

/// Reads the databases of `geoip2`.
fn check_databases(outcome: &mut Outcome) {
    let blocks = outcome.inspected().into_iter().flat_map(Config::blocks);
    let problems: Vec<OpenError> =
        blocks.filter_map(|block| sekisho_net::site::databases(block).err()).collect();
    for problem in problems {
        if let OpenError::Database(path, _) = &problem {
            outcome.refuse_for(&["geoip2"], path, problem.to_string());
        }
    }
}

/// Reads the keys of each `storage`.
fn check_storages(outcome: &mut Outcome) {
    let storages = outcome.inspected().map(|config| config.http.storages.clone());
    let storages = storages.into_iter().flatten();
    let problems: Vec<(PathBuf, String)> = storages
        .filter_map(|storage| {
            let problem = sekisho_handler::storage::credentials_of(&storage).err()?;
            let place = match &storage.credentials {
                CredentialSource::File(path) => path.clone(),
                CredentialSource::Environment | CredentialSource::None => PathBuf::from("env"),
            };
            Some((place, problem))
        })
        .collect();
    for (place, problem) in problems {
        outcome.refuse_for(&["credentials"], &place, problem);
    }
}

/// Prints every error and warning.
pub(crate) fn report(outcome: &Outcome) {
    use std::io::{IsTerminal, Write};
    let stderr = std::io::stderr();
    let text = rendered(outcome, stderr.is_terminal());
    // If stderr cannot be written, that cannot be reported either.
    let _ = stderr.lock().write_all(text.as_bytes());
}

/// Every error and warning, as an operator reads them.
pub(crate) fn rendered(outcome: &Outcome, color: bool) -> String {
    outcome.reports.iter().map(|report| report.render(color) + "\n").collect()
}

/// What `$hostname` and `server_name $hostname` mean.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
}

pub(crate) fn text_of(path: &Path) -> Result<&str, Problem> {
    path.to_str().ok_or_else(|| Problem::new(format_args!("{}: not UTF-8", path.display())))
}

/// The names of the services that this program has for `service`.
fn services() -> Vec<String> {
    (service_factory().0)().iter().map(|(_, name)| name.to_owned()).collect()
}
