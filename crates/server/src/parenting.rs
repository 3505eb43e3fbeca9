//! Becoming a parent (`sekisho-parent`): when, and with what.

use std::env;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use sekisho_config::{Config, Listen};
use sekisho_parent::{ManagedSockets, Setup};

use crate::cli::program_name;
use crate::daemon::WhenReady;
use crate::local_socket::{self, Purpose};
use crate::setup::Plan;
use crate::terminal::complain;
use crate::upgrade::{self, Program};
use crate::{Problem, control_plane, pid_file, service_manager};

/// Runs as the parent, where there is to be one; nothing where this process is to serve itself, or to report what is
/// wrong with the configuration.
pub(crate) fn run(
    plan: &Plan,
    config: Option<&Config>,
    when_ready: &mut WhenReady,
) -> Result<Option<ExitCode>, Problem> {
    if sekisho_parent::is_worker() {
        return Ok(None);
    }
    let is_successor = sekisho_parent::is_successor();
    if !is_successor && (upgrade::predecessor().is_some() || !config.is_some_and(wants_parent)) {
        return Ok(None);
    }
    let program = Program::this();
    let worker_name = OsString::from(format!("{}: worker process", program_name()));
    let control = local_socket::control_socket(local_socket::open(Purpose::Control));
    if let Some(complaint) = control.1 {
        complain(format_args!("{}: {complaint}\n", program_name()));
    }
    let (listeners, _file) =
        control.0.map(|sockets| (sockets.listeners, sockets.file)).unwrap_or_default();
    let setup = Setup {
        main_file: plan.main_file().to_owned(),
        options: plan.options().clone(),
        arguments: env::args_os().skip(1).collect(),
        worker_name,
        control: listeners.into_iter().map(OwnedFd::from).collect(),
        managed,
        successor: Box::new(move || program.command().map_err(|problem| problem.0)),
        is_server: pid_file::is_running_server,
        when_ready: when_ready.take().unwrap_or_else(|| Box::new(|| {})),
    };
    sekisho_parent::run(setup).map(Some).map_err(Problem)
}

/// Whether there is something that only a parent can do after the start: root starts a server of another user. Without
/// that, one process is enough, and a service manager starts it again.
fn wants_parent(config: &Config) -> bool {
    config.main.processes.parent.unwrap_or_else(|| {
        let user = sekisho_parent::worker_user(config);
        matches!(user, Ok(Some(user)) if user.uid != 0)
    })
}

/// The sockets that a service manager has opened for addresses of the configuration.
fn managed(config: &Config) -> Result<ManagedSockets, String> {
    let mut listens: Vec<Listen> = config.listens().cloned().collect();
    listens.extend(control_plane::listens(&config.main.endpoint));
    let found = service_manager::inherited(&listens);
    let (sockets, complaints) = found.map_err(|error| format!("LISTEN_FDS: {error}"))?;
    for complaint in complaints {
        complain(format_args!("{}: not used: {complaint}\n", program_name()));
    }
    Ok(sockets.into_iter().map(|inherited| (inherited.address, inherited.socket)).collect())
}
