//! Whether the server can reach what its configuration names, as its later user: what it serves, its logs,
//! its programs, and the configuration itself. A folder that only its owner may enter is the usual cause of
//! an unexplained 403: it is reported at a start, at a reload and by `-t`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sekisho_config::{AccessTarget, Cgi, CgiStderr, Config, LogTarget, Outcome, Programs, Report};

use crate::parent_link;
use crate::sandbox::paths;
use crate::user::{self, Identity};

/// So many are reported; the others are likely the same.
const TOLD_MAX: usize = 10;
const HELP: &str = "set \"user\" to a user who can, or change owner or permissions (chown, chmod)";

/// What a path is needed for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    /// To be served.
    Serve,
    /// To be changed: files come and go there.
    Change,
    /// To be written to: temporary files.
    Temporary,
    /// To be written to, again and again: a log.
    Log,
    /// To be run.
    Run,
    /// To be read again at a reload: a file of the configuration.
    Reload,
    /// The same: a certificate or a key.
    Certificate,
    /// The same: tokens of native clients.
    Token,
    /// To be read when it changes: passwords of native clients.
    Password,
}

impl Need {
    /// What comes of an obstacle.
    fn outcome(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Serve | Self::Change => format!("requests for \"{path}\" will fail"),
            Self::Log => "the log cannot be opened again".to_owned(),
            Self::Run | Self::Temporary => "requests that need it will fail".to_owned(),
            Self::Reload | Self::Certificate | Self::Token => "a reload will fail".to_owned(),
            Self::Password => "no password can be checked".to_owned(),
        }
    }

    /// The directives that name such a path.
    const fn directives(self) -> &'static [&'static str] {
        match self {
            Self::Serve | Self::Change => {
                &["root", "alias", "upload_store", "auth_basic_user_file", "cgi_pass"]
            }
            Self::Temporary => &[
                "client_body_temp_path",
                "proxy_temp_path",
                "fastcgi_temp_path",
                "scgi_temp_path",
                "uwsgi_temp_path",
            ],
            Self::Log => &["error_log", "access_log", "cgi_stderr"],
            Self::Run => &["cgi_pass", "cgi_interpreter", "cgi_extension"],
            Self::Reload => &[],
            Self::Token => &["token_file", "credential_file"],
            Self::Password => &["password_file"],
            Self::Certificate => &[
                "ssl_certificate",
                "ssl_certificate_key",
                "ssl_client_certificate",
                "ssl_trusted_certificate",
                "ssl_crl",
                "ssl_session_ticket_key",
                "ssl_stapling_file",
            ],
        }
    }

    fn warning(self, outcome: &Outcome, path: &Path, message: String) -> Report {
        match self {
            Self::Reload => outcome.warning_about_file(path, message),
            _ => outcome.warning_about(self.directives(), path, message),
        }
    }
}

/// What is needed.
type Wanted = BTreeSet<(Need, PathBuf)>;

/// The obstacles, and the first path that is not reached because of each.
type Obstacles = BTreeMap<String, (Need, PathBuf)>;

/// What the server will not be able to reach.
pub(crate) fn warnings(config: &Config, outcome: &Outcome) -> Vec<Report> {
    let mut wanted = wanted(config, outcome);
    let mut reports = missing_programs(&wanted, outcome);
    reports.extend(missing_folders(&wanted, outcome));
    reports.extend(impossible_folders(&wanted, outcome));
    // A user that cannot be found is an error elsewhere.
    let Ok(identity) = user::identity(config) else { return reports };
    let is_other = identity.as_ref().is_some_and(|identity| identity.uid != 0);
    let has_parent = is_other && config.main.processes.parent != Some(false);
    if has_parent || parent_link::link().is_some() {
        // The parent opens the rest.
        use Need as N;
        let is_opened_by_worker =
            |need: N| matches!(need, N::Serve | N::Change | N::Temporary | N::Run);
        wanted.retain(|(need, _)| is_opened_by_worker(*need));
    }
    let (who, found) = match identity {
        Some(identity) if identity.uid == 0 => return reports,
        Some(identity) => {
            // Only root can tell a missing file from one that another user cannot see.
            wanted.retain(|(_, path)| fs::metadata(path).is_ok());
            (format!("user \"{}\"", identity.name), obstacles_of(&identity, &wanted))
        }
        None => match (user::own_name(config), &config.main.user) {
            (Some(name), _) => (format!("user \"{name}\""), obstacles(&wanted)),
            (None, None) => ("the server".to_owned(), obstacles(&wanted)),
            // The server will run as another user, which may see more than we do.
            (None, Some(_)) => return reports,
        },
    };
    let report = |(obstacle, (need, path)): (String, (Need, PathBuf))| {
        let message = format!("{who} {obstacle}: {}", need.outcome(&path));
        need.warning(outcome, &path, message).help(HELP.to_owned())
    };
    reports.extend(found.into_iter().take(TOLD_MAX).map(report));
    reports
}

/// The files of all logs that are named without variables.
fn logs(config: &Config) -> Vec<&Path> {
    let mut targets: Vec<&LogTarget> = config.main.error_logs.iter().map(|it| &it.target).collect();
    let locations = config.blocks().flat_map(|block| &block.http.locations);
    for settings in locations.map(|it| &it.settings) {
        targets.extend(settings.error_logs.iter().map(|it| &it.target));
        targets.extend(settings.access_logs.iter().filter_map(|it| match &it.target {
            AccessTarget::Fixed(target) => Some(target),
            AccessTarget::Variable(_) => None,
        }));
        if let Some(CgiStderr::To(target)) = settings.cgi.as_ref().map(|cgi| &cgi.stderr) {
            targets.push(target);
        }
    }
    let files = targets.into_iter().filter_map(|target| match target {
        LogTarget::File(path) => Some(path.as_path()),
        LogTarget::Stderr | LogTarget::Syslog(_) => None,
    });
    files.filter(|path| !sekisho_openings::is_own_output(path)).collect()
}

/// The logs whose folders do not exist, with what is wrong: the server could not start.
pub(crate) fn logs_without_folders(config: &Config) -> Vec<(PathBuf, String)> {
    let mut missing: Vec<(PathBuf, String)> = Vec::new();
    for path in logs(config) {
        let Some(folder) = path.parent() else { continue };
        let is_missing =
            fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if is_missing {
            let (log, folder) = (path.display(), folder.display());
            let text = format!(
                "the log {log} cannot be opened: its folder does not exist; create it with `mkdir -p {folder}`"
            );
            missing.push((path.to_owned(), text));
        }
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// All needed paths, as far as the configuration names them without variables.
fn wanted(config: &Config, outcome: &Outcome) -> Wanted {
    let served = paths::served(config).into_iter();
    let mut all: Wanted = served
        .map(|(path, is_changed)| (if is_changed { Need::Change } else { Need::Serve }, path))
        .collect();
    for path in logs(config) {
        // A missing one is made by the user that starts the server, and given to the server's user.
        let is_there = fs::symlink_metadata(path).is_ok();
        let path = path.parent().filter(|_| !is_there).unwrap_or(path);
        all.insert((Need::Log, path.to_owned()));
    }
    // Those that are missing are made at the start.
    let folders = config.http.locations.iter().flat_map(|it| it.settings.temp_folders());
    let folders = folders.filter(|folder| !folder.is_default);
    all.extend(folders.map(|folder| (Need::Temporary, folder.path.to_path_buf())));
    for cgi in config.http.locations.iter().filter_map(|it| it.settings.cgi.as_deref()) {
        all.extend(programs(cgi));
    }
    all.extend(outcome.files.iter().map(|(path, _)| (Need::Reload, path.clone())));
    let servers = config.blocks().flat_map(|block| &block.http.servers);
    let certificates = servers.flat_map(|server| server.tls.files());
    all.extend(certificates.map(|path| (Need::Certificate, path.clone())));
    let endpoint = &config.main.endpoint;
    let certificates = endpoint.tls.iter().flat_map(|tls| tls.files());
    all.extend(certificates.map(|path| (Need::Certificate, path.clone())));
    let tokens = endpoint.token_file.iter().chain(&endpoint.credential_file);
    all.extend(tokens.map(|path| (Need::Token, path.clone())));
    all.extend(endpoint.password_file.iter().map(|path| (Need::Password, path.clone())));
    all
}

/// The programs that are named: what is run by another one need only be read.
fn programs(cgi: &Cgi) -> Wanted {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let listed = cgi.extensions.iter().filter_map(|it| it.interpreter.as_ref());
    let interpreters = listed.chain(&cgi.interpreter);
    let known = interpreters.filter_map(|it| it.program.as_literal());
    let mut all: Wanted = known.map(|program| (Need::Run, path(program))).collect();
    if let Programs::One(pass) = &cgi.programs
        && let Some(program) = pass.program.as_literal()
    {
        let own = cgi.extension_of(program).and_then(|it| it.interpreter.as_ref());
        let is_read = own.is_some() || cgi.interpreter.is_some();
        all.insert((if is_read { Need::Serve } else { Need::Run }, path(program)));
    }
    all
}

/// Programs that do not exist.
fn missing_programs(wanted: &Wanted, outcome: &Outcome) -> Vec<Report> {
    let is_missing =
        |path: &Path| fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let missing = wanted.iter().filter(|(need, path)| *need == Need::Run && is_missing(path));
    let report = |(need, path): &(Need, PathBuf)| {
        let message =
            format!("\"{}\" does not exist: requests that need it will fail", path.display());
        need.warning(outcome, path, message)
    };
    missing.take(TOLD_MAX).map(report).collect()
}

/// Folders that are served and do not exist.
fn missing_folders(wanted: &Wanted, outcome: &Outcome) -> Vec<Report> {
    let is_missing =
        |path: &Path| fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let is_served = |need: Need| matches!(need, Need::Serve | Need::Change);
    let missing = wanted.iter().filter(|(need, path)| {
        is_served(*need) && is_missing(path) && outcome.is_named(need.directives(), path)
    });
    let report = |(need, path): &(Need, PathBuf)| {
        let message = format!("\"{0}\" does not exist: {1}", path.display(), need.outcome(path));
        need.warning(outcome, path, message)
    };
    missing.take(TOLD_MAX).map(report).collect()
}

/// Folders for temporary files that cannot be made, as something else is in their way.
fn impossible_folders(wanted: &Wanted, outcome: &Outcome) -> Vec<Report> {
    let folders = wanted.iter().filter(|(need, _)| *need == Need::Temporary);
    let impossible = folders.filter_map(|(need, path)| {
        let there = path.ancestors().find(|above| fs::symlink_metadata(above).is_ok())?;
        let is_folder = fs::metadata(there).is_ok_and(|meta| meta.is_dir());
        (!is_folder).then_some((*need, path, there))
    });
    let report = |(need, path, there): (Need, &PathBuf, &Path)| {
        let (shown, there, then) = (path.display(), there.display(), need.outcome(path));
        let message = format!("\"{shown}\" cannot be made, \"{there}\" is no folder: {then}");
        need.warning(outcome, path, message)
    };
    impossible.take(TOLD_MAX).map(report).collect()
}

/// The obstacles for another user. A thread that changes to that user looks for them: only the kernel knows
/// all of the rules. The thread changes its user, not the process.
fn obstacles_of(identity: &Identity, wanted: &Wanted) -> Obstacles {
    let look = || -> rustix::io::Result<Obstacles> {
        let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(obstacles(wanted))
    };
    let found = std::thread::scope(|scope| {
        let looking = std::thread::Builder::new().spawn_scoped(scope, look).ok()?;
        looking.join().ok()?.ok()
    });
    // If we cannot change to that user, the start reports that.
    found.unwrap_or_default()
}

/// What stands in our way.
fn obstacles(wanted: &Wanted) -> Obstacles {
    let mut all = Obstacles::new();
    for (need, path) in wanted {
        if let Some(obstacle) = obstacle(path, *need) {
            all.entry(obstacle).or_insert_with(|| (*need, path.clone()));
        }
    }
    all
}

/// The obstacle on the way to a path, from the top. A missing file is no obstacle.
fn obstacle(path: &Path, need: Need) -> Option<String> {
    let is_denied = |path: &Path, access: Access| {
        rustix::fs::accessat(CWD, path, access, AtFlags::empty()) == Err(Errno::ACCESS)
    };
    let steps: Vec<&Path> = path.ancestors().collect();
    for step in steps.into_iter().rev() {
        let is_folder = fs::metadata(step).ok()?.is_dir();
        if is_folder && is_denied(step, Access::EXEC_OK) {
            return Some(format!("cannot enter \"{}\"", step.display()));
        }
        let (access, word) = match need {
            Need::Log => (Access::WRITE_OK, "write to"),
            Need::Run => (Access::EXEC_OK, "run"),
            _ => (Access::READ_OK, "read"),
        };
        if !is_folder && is_denied(step, access) {
            return Some(format!("cannot {word} \"{}\"", step.display()));
        }
    }
    let is_changed = matches!(need, Need::Change | Need::Temporary);
    let is_shut = is_changed && is_denied(path, Access::WRITE_OK);
    is_shut.then(|| format!("cannot write into \"{}\"", path.display()))
}
