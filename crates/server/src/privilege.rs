//! What the process may do: all that a start as root needs is done first, then everything that is not needed
//! later is given up, once and for all, and the kernel is asked whether it is gone (V45).
//!
//! What is kept: nothing, in the ordinary case. With a port below 1024, the main thread keeps the right to
//! listen there, for the next reload or upgrade; the workers and their programs do not have it. A server that
//! stays root (because it is configured so) keeps the capabilities about files, and no more.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};
use sekisho_config::{Config, Level, ListenAddress};

use crate::Problem;
use crate::user::{self, Identity};

/// The first port that every user may listen on.
const FIRST_FREE_PORT: u16 = 1024;
/// One more than the last capability there can be.
const CAPABILITIES_MAX: u32 = 64;
/// What a server that is root keeps: it serves the files of all users.
const OF_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::NET_BIND_SERVICE);
/// What it keeps beside that when it runs programs: they may change their user.
const OF_PROGRAMS_OF_ROOT: CapabilitySet =
    CapabilitySet::KILL.union(CapabilitySet::SETUID).union(CapabilitySet::SETGID);

/// Changes to the server's user and gives up capabilities that it does not need. Called when everything is
/// open, while there is one thread: later threads inherit it. Returns what is worth a line in the log.
pub(crate) fn give_up(config: &Config) -> Result<Vec<(Level, String)>, Problem> {
    let identity = user::identity(config)?;
    let mut notes = Vec::new();
    let is_root = identity.as_ref().is_some_and(|identity| identity.uid == 0);
    if is_root {
        notes
            .push((Level::Warn, "the server runs as root: name another user with \"user\"".into()));
    }
    if identity.is_none() {
        notes.extend(ignored_user(config));
    }
    let wanted = kept(config, is_root);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Problem::new(format_args!("cannot give up privileges: {what}: {error}"))
    };
    let have = rustix::thread::capabilities(None).map_err(|error| failed("asking", &error))?;
    let keep = wanted & have.permitted;
    if config.main.privilege.no_new_privs && have.effective.contains(CapabilitySet::SETPCAP) {
        bound(keep).map_err(|error| failed("the bounding set", &error))?;
    }
    if let Some(identity) = &identity {
        rustix::thread::set_keep_capabilities(!keep.is_empty())
            .map_err(|error| failed("keeping some", &error))?;
        become_somebody(identity)?;
    }
    limit_thread(keep, !is_root).map_err(|error| failed("capabilities", &error))?;
    rustix::thread::set_keep_capabilities(false).map_err(|error| failed("keeping none", &error))?;
    if config.main.privilege.no_new_privs {
        rustix::thread::set_no_new_privs(true).map_err(|error| failed("new ones", &error))?;
    }
    verify(identity.as_ref(), keep)?;
    Ok(notes)
}

/// Becomes the user of a worker process, with no capability at all: its parent opens what needs one.
pub(crate) fn become_worker(user: &sekisho_parent::WorkerUser) -> Result<(), Problem> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Problem::new(format_args!("cannot give up privileges: {what}: {error}"))
    };
    let none = CapabilitySet::empty();
    let have = rustix::thread::capabilities(None).map_err(|error| failed("asking", &error))?;
    if user.is_bound && have.effective.contains(CapabilitySet::SETPCAP) {
        bound(none).map_err(|error| failed("the bounding set", &error))?;
    }
    let name = format!("uid {}", user.uid);
    let (uid, gid, groups) = (user.uid, user.gid, user.groups.clone());
    let identity = Identity { name, uid, gid, groups };
    become_somebody(&identity)?;
    limit_thread(none, false).map_err(|error| failed("capabilities", &error))?;
    if user.is_bound {
        rustix::thread::set_no_new_privs(true).map_err(|error| failed("new ones", &error))?;
    }
    verify(Some(&identity), none)
}

/// What a worker has: of what a server that is not root keeps, nothing.
pub(crate) fn give_up_rest_in_thread() -> rustix::io::Result<()> {
    if user::is_root() { Ok(()) } else { limit_thread(CapabilitySet::empty(), false) }
}

/// Starts a thread that has nothing of what the main thread keeps: it is started by one that has given it up.
pub(crate) fn without_rest(start: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| {
        let limited = || give_up_rest_in_thread().map_err(io::Error::from).and_then(|()| start());
        let starting = std::thread::Builder::new().spawn_scoped(scope, limited)?;
        starting.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))
    })
}

/// What a reload cannot change, for the log: the server's user, and what it gave up when it started. It is an
/// error if programs would be run by root although the configuration names another user.
pub(crate) fn at_reload(config: &Config) -> Result<Vec<(Level, String)>, Problem> {
    let privilege = &config.main.privilege;
    let named = config.main.user.as_ref().map(|(name, _)| name.as_str());
    let mut notes = Vec::new();
    if user::is_root() {
        let has_programs = config.http.locations.iter().any(|it| it.settings.cgi.is_some());
        if has_programs && !privilege.programs_as_root {
            return Err(Problem::new(
                "programs would run as root: a change of \"user\" needs a restart",
            ));
        }
        if !user::would_be_root(named) {
            let text = "the server keeps running as root: a change of \"user\" needs a restart";
            notes.push((Level::Warn, text.to_owned()));
        }
    } else if let Some(name) = named.filter(|_| user::own_name(config).is_none()) {
        let text =
            format!("the server does not run as user \"{name}\": a change needs a restart by root");
        notes.push((Level::Warn, text));
    }
    if is_bound() != privilege.no_new_privs {
        let word = if is_bound() { "on" } else { "off" };
        let text = format!("no_new_privs stays {word}: a change needs a restart");
        notes.push((Level::Warn, text));
    }
    Ok(notes)
}

/// Whether we, and what we start, can never become more than we are.
pub(crate) fn is_bound() -> bool {
    rustix::thread::no_new_privs().unwrap_or(false)
}

/// What must not be given up.
fn kept(config: &Config, is_root: bool) -> CapabilitySet {
    if is_root {
        let programs = config.main.privilege.programs_as_root;
        return if programs { OF_ROOT | OF_PROGRAMS_OF_ROOT } else { OF_ROOT };
    }
    let servers = config.listens().map(|listen| &listen.address);
    let endpoint = config.main.endpoint.listens.iter().map(|(address, _)| address);
    let is_privileged = |address: &ListenAddress| match address {
        ListenAddress::Tcp(at) | ListenAddress::Udp(at) => {
            (1..FIRST_FREE_PORT).contains(&at.port())
        }
        ListenAddress::Unix(_) => false,
    };
    if servers.chain(endpoint).any(is_privileged) {
        CapabilitySet::NET_BIND_SERVICE
    } else {
        CapabilitySet::empty()
    }
}

/// No program that is started from here on can have more than this, whatever file capabilities it has.
fn bound(keep: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..CAPABILITIES_MAX {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if keep.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // The kernel knows no more of them.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// The calling thread keeps this. What it starts has it as well, where `hands_down`: the program that takes
/// our place at an upgrade.
fn limit_thread(keep: CapabilitySet, hands_down: bool) -> rustix::io::Result<()> {
    let inheritable = if hands_down { keep } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable };
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(None, sets)?;
    for one in inheritable.iter() {
        rustix::thread::configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

fn become_somebody(identity: &Identity) -> Result<(), Problem> {
    if identity.is_own() {
        // For example root after an upgrade, which may not even set its own ids again.
        return Ok(());
    }
    let became = sekisho_sys::become_account(identity.uid, identity.gid, &identity.groups);
    became
        .or_else(|error| {
            // Root of a namespace of its own may often not change its groups, and does not have to.
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            if is_denied && identity.has_own_ids() { Ok(()) } else { Err(error) }
        })
        .map_err(|error| {
            Problem::new(format_args!("cannot become user \"{}\": {error}", identity.name))
        })
}

/// It is not enough that the calls reported no error.
fn verify(identity: Option<&Identity>, keep: CapabilitySet) -> Result<(), Problem> {
    let have = rustix::thread::capabilities(None).map_err(Problem::new)?;
    if have.effective != keep || have.permitted != keep {
        return Err(Problem::new("dropped capabilities are still there"));
    }
    let is_other = identity.is_some_and(|identity| identity.uid != 0);
    if is_other && rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_ok() {
        return Err(Problem::new("root privileges were dropped and could be regained"));
    }
    Ok(())
}

/// nginx warns of the same; a process that has that user already (after an upgrade) need not.
fn ignored_user(config: &Config) -> Option<(Level, String)> {
    let (name, _) = config.main.user.as_ref()?;
    let own = rustix::process::geteuid().as_raw();
    let is_own = user::uid(name) == Some(own);
    let text = format!("\"user {name}\" is ignored: the server was not started by root");
    (!is_own).then_some((Level::Warn, text))
}
