//! What a server opens when it starts, in this order: sockets, logs, the pid file, the control sockets. Then
//! it changes its user.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use sekisho_config::{Config, Level, Listen};
use sekisho_log::Logs;
use sekisho_net::listen::{BindError, Inherited};
use sekisho_net::{Groups, Site, Sockets, Zones};
use sekisho_parent::pid_file::PidFile;

use crate::control_plane::{self, Rules};
use crate::handover::Handover;
use crate::inherit::Shared;
use crate::local_socket::{LocalSockets, Purpose};
use crate::pid_file::is_running_server;
use crate::run::{machine, rules, worker_count};
use crate::{Problem, certificates, local_socket, privilege, service_manager, temp_folders, user};

/// How often, and at which interval, a bind to an address in use is retried.
const BIND_TRIES: u32 = 10;
const BIND_PAUSE: Duration = Duration::from_millis(100);

/// As many descriptors as we may have, or as many as the configuration says.
pub(crate) fn raise_descriptor_limit(wanted: Option<u64>) -> Result<(), Problem> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let next = match wanted {
        None => Rlimit { current: limit.maximum, maximum: limit.maximum },
        Some(wanted) => {
            let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
            Rlimit { current: Some(wanted), maximum }
        }
    };
    match rustix::process::setrlimit(Resource::Nofile, next) {
        Ok(()) => Ok(()),
        // The configuration asks for no limit: the present one is enough.
        Err(_) if wanted.is_none() => Ok(()),
        Err(error) => Err(Problem::new(format_args!("worker_rlimit_nofile: {error}"))),
    }
}

/// What a worker opens for itself, and one socket for each address that is listened on.
const WORKER_DESCRIPTORS: usize = 12;

/// Refuses a number of workers that cannot all be started: one line instead of one for each of them.
pub(crate) fn check_worker_count(config: &Config) -> Result<(), Problem> {
    let count = worker_count(config);
    let needed = count.saturating_mul(WORKER_DESCRIPTORS + config.listens().count());
    match rustix::process::getrlimit(Resource::Nofile).current {
        Some(limit) if needed as u64 > limit => Err(Problem::new(format_args!(
            "{count} workers need about {needed} file descriptors and the limit is {limit}: start fewer \
             (worker_processes, --workers) or raise the limit (ulimit -n)"
        ))),
        _ => Ok(()),
    }
}

/// The sockets that are open before we open any: from the process that we replace, or from a service manager.
pub(crate) fn inherited(
    from_predecessor: Vec<Inherited>,
    config: &Config,
) -> Result<(Sockets, Vec<String>), Problem> {
    let (inherited, complaints) = if from_predecessor.is_empty() {
        let mut listens: Vec<Listen> = config.listens().cloned().collect();
        listens.extend(control_plane::listens(&config.main.endpoint));
        service_manager::inherited(&listens)
            .map_err(|error| Problem::new(format_args!("LISTEN_FDS: {error}")))?
    } else {
        (from_predecessor, Vec::new())
    };
    let sockets = Sockets::inherit(inherited)
        .map_err(|error| Problem::new(format_args!("cannot use an inherited socket: {error}")))?;
    Ok((sockets, complaints))
}

/// Opens the sockets. A server that was killed has left them for a moment to a process that it was just
/// starting: the bind to an address in use is retried.
pub(crate) async fn open_sockets(
    inherited: &Sockets,
    listens: &[Listen],
    workers: usize,
) -> Result<Sockets, BindError> {
    for _ in 0..BIND_TRIES {
        match inherited.reopen(listens, workers) {
            Err(failed) if failed.is_in_use() => tokio::time::sleep(BIND_PAUSE).await,
            done => return done,
        }
    }
    inherited.reopen(listens, workers)
}

/// What is open beside the sockets.
pub(crate) struct Opened {
    pub(crate) site: Site,
    pub(crate) pid_file: Option<PidFile>,
    /// None where a parent hands over.
    pub(crate) handover: Option<io::Result<Handover>>,
    pub(crate) control_socket: io::Result<LocalSockets>,
    pub(crate) rules: Rules,
    /// What the log shall be told.
    pub(crate) notes: Vec<(Level, String)>,
}

/// Opens all but the sockets, and changes the user.
pub(crate) fn open_rest(
    config: &Arc<Config>,
    logs: &Arc<Logs>,
    (zones, groups): (&Zones, &Groups),
    shared: Shared,
) -> Result<Opened, Problem> {
    let rules = rules(config, None)?;
    let site =
        Site::new(Arc::clone(config), logs, zones, groups, machine()).map_err(Problem::new)?;
    let (pid_file, handover, control_socket) = match shared {
        Shared::OfParent(control) => (None, None, Ok(control)),
        Shared::OfPredecessor(pid_file) => {
            let pid_file = write_pid_file(config, pid_file)?;
            let handover = local_socket::open(Purpose::Handover).and_then(Handover::listen);
            (pid_file, Some(handover), local_socket::open(Purpose::Control))
        }
    };
    if let Some(identity) = user::identity(config)?.filter(|identity| identity.uid != 0) {
        logs.give_new_files_to(identity.uid, identity.gid);
    }
    certificates::prepare(config, user::identity(config)?.as_ref())?;
    make_cache_folders(config)?;
    let mut notes = temp_folders::prepare(config, user::identity(config)?.as_ref());
    notes.append(&mut privilege::give_up(config)?);
    privilege::without_rest(|| logs.start())
        .map_err(|error| Problem::new(format_args!("cannot start a thread: {error}")))?;
    Ok(Opened { site, pid_file, handover, control_socket, rules, notes })
}

/// Folders of caches are the server's own, and belong to its later user.
pub(crate) fn make_cache_folders(config: &Config) -> Result<(), Problem> {
    let owner = user::identity(config)?.map(|identity| (identity.uid, identity.gid));
    for cache in &config.http.caches {
        certificates::make_folder(&cache.path, owner).map_err(|error| {
            let path = cache.path.display();
            Problem::new(format_args!("cannot create the folder of a cache \"{path}\": {error}"))
        })?;
    }
    Ok(())
}

fn write_pid_file(
    config: &Config,
    shared: Option<(PathBuf, File)>,
) -> Result<Option<PidFile>, Problem> {
    let Some(path) = config.main.pid.as_deref() else { return Ok(None) };
    if let Some((_, file)) = shared.filter(|(other, _)| other == path)
        && let Ok(taken) = PidFile::take_over(path, file, is_running_server)
    {
        // It could not be put aside: the lock that is on it is ours by this descriptor alone, and our present
        // user might not be able to open it.
        return Ok(Some(taken));
    }
    PidFile::write(path, is_running_server).map(Some).map_err(Problem)
}
