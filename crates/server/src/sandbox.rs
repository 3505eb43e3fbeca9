//! The sandbox: the kernel (Landlock) keeps the workers within the places that the configuration names, whatever
//! a request, a link on the disk or a mistake of ours leads to (V45).
//!
//! A thread can only become narrower, so the main thread stays free, to read the next configuration and to
//! start the next program. Workers are started by a thread of their own that is limited first: so all of
//! them are in one domain. When the places change, there is a new domain and new workers, and the old ones
//! finish what they have.

mod links;
pub(crate) mod paths;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;
use sekisho_config::{Config, Level, Outcome, Report, Sandbox};
use sekisho_sys::{Right, Ruleset};

use crate::run::{Server, worker_count};
use crate::{Problem, privilege};
use paths::{Network, SandboxPaths};

/// How often the places are looked at, at the most.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// More links than this lead nowhere, as the kernel has it.
const LINKS_MAX: usize = 40;
/// A file that lies here is allowed alone, without its folder.
static TOO_WIDE: LazyLock<[&Path; 2]> = LazyLock::new(|| [Path::new("/"), Path::new("/etc")]);

/// Where workers may be, and the thread that starts them.
#[derive(Debug)]
pub(crate) struct Domain {
    paths: Vec<Opened>,
    /// What is allowed of TCP.
    network: Network,
    starter: mpsc::Sender<Start>,
}

/// A place as it was found.
#[derive(PartialEq, Eq, Debug)]
struct Opened {
    path: PathBuf,
    right: Right,
    /// Device and number: what the kernel has tied its rule to.
    identity: (u64, u64),
}

/// A place that cannot be opened, and why.
type Missing = (PathBuf, io::Error);

/// Something that a thread in the domain does: start another one.
type Start = Box<dyn FnOnce() + Send>;

/// How well the domain there is must fit to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// All that is wanted is allowed, and nothing else: another configuration.
    Exactly,
    /// All that is wanted is allowed: the same configuration, whose places may have become others.
    Covering,
}

/// The sandbox to use, and what is logged about it.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) domain: Option<Arc<Domain>>,
    pub(crate) notes: Vec<(Level, String)>,
}

/// The domain for a configuration: the one there is, if it will do.
pub(crate) fn choose(
    config: &Config,
    current: Option<&Arc<Domain>>,
    fit: Fit,
) -> Result<Choice, Problem> {
    let wished = config.main.privilege.sandbox;
    let paths = SandboxPaths::of(config);
    let mut notes = Vec::new();
    let reason = match (wished, paths.boundless) {
        (Sandbox::Off, _) => return Ok(Choice { domain: None, notes }),
        (Sandbox::Auto, _) if paths.has_programs => Some("programs are run".to_owned()),
        (Sandbox::Auto, Some(directive)) => {
            Some(format!("a path of \"{directive}\" begins with a variable"))
        }
        (Sandbox::Auto, None) if !privilege::is_bound() => Some("no_new_privs is off".to_owned()),
        _ => None,
    };
    if let Some(reason) = reason {
        notes.push((Level::Info, format!("no sandbox: {reason}")));
        return Ok(Choice { domain: None, notes });
    }
    if let Err(error) = sekisho_sys::landlock_version() {
        let text = format!(
            "no sandbox: Landlock cannot be used (Linux 5.19 and later have it; a filter of system calls must allow it): {error}"
        );
        if wished == Sandbox::On {
            return Err(Problem::new(text));
        }
        notes.push((Level::Notice, text));
        return Ok(Choice { domain: None, notes });
    }
    if !privilege::is_bound() {
        return Err(Problem::new(
            "\"sandbox on\" needs \"no_new_privs on\" from the start on: restart the server",
        ));
    }
    if let Some(directive) = paths.boundless {
        let text = format!(
            "a path of \"{directive}\" begins with a variable: only places that are named elsewhere are accessible"
        );
        notes.push((Level::Warn, text));
    }
    let (opened, missing) = open_all(&paths);
    if let Some(current) = current.filter(|it| it.will_do(&opened, &paths.network, fit)) {
        return Ok(Choice { domain: Some(Arc::clone(current)), notes });
    }
    for (path, error) in &missing {
        // For example a disk that is not mounted: the other paths are served.
        let level = if is_absence(error) { Level::Info } else { Level::Warn };
        notes.push((level, format!("sandbox: {} is left out: {error}", path.display())));
    }
    let domain = Domain::start(opened, paths.network)
        .map_err(|error| Problem::new(format_args!("no sandbox can be created: {error}")))?;
    notes.push((Level::Info, format!("sandbox: {} places", domain.paths.len())));
    for place in &domain.paths {
        let text = format!("sandbox: {} {}", word(place.right), place.path.display());
        notes.push((Level::Debug, text));
    }
    Ok(Choice { domain: Some(Arc::new(domain)), notes })
}

/// What may be done at a place.
fn word(right: Right) -> &'static str {
    match right {
        Right::Read => "read",
        Right::Run => "read and run",
        Right::Write => "read and write",
        Right::Use => "read, write and run",
    }
}

/// What makes the sandbox of a configuration none.
pub(crate) fn warnings(config: &Config, outcome: &Outcome) -> Vec<Report> {
    let paths = SandboxPaths::of(config);
    let is_wanted = match config.main.privilege.sandbox {
        Sandbox::Off => false,
        Sandbox::Auto => !paths.has_programs && paths.boundless.is_none(),
        Sandbox::On => true,
    };
    let everything = paths.everything.filter(|_| is_wanted);
    let report = |directive: &'static str| {
        let message = format!(
            "\"{directive}\" has a variable right after the first slash: the sandbox is the whole disk"
        );
        let help = "name the common folder, such as \"/srv/$host\"".to_owned();
        outcome.warning_about(&[directive], Path::new("/"), message).help(help)
    };
    everything.map(report).into_iter().collect()
}

impl Server {
    /// What was chosen holds from now on.
    pub(crate) fn take_choice(&mut self, choice: Choice) {
        for (level, note) in &choice.notes {
            self.log(*level, note);
        }
        self.workers.shared().is_kept.store(choice.domain.is_some(), Ordering::Relaxed);
        self.domain = choice.domain;
    }

    /// A file could not be had. If that is because a place is another one than it was (a folder that was replaced
    /// by a new one, or made since; a link that leads out of it), the workers get a new domain, and are new ones.
    pub(crate) fn check_sandbox_paths(&mut self) {
        let now = self.clock.now();
        let is_quiet = self.drain.manner().is_none() && self.upgrade.is_none();
        let Some(domain) = self.domain.clone().filter(|_| is_quiet) else { return };
        if let Some(again) = self.last_look.map(|last| last + LOOK_PERIOD)
            && !again.is_due(now)
        {
            self.next_look = Some(again);
            return;
        }
        self.last_look = Some(now);
        let served = choose(self.site.config(), Some(&domain), Fit::Covering).and_then(|choice| {
            if choice.domain.as_ref().is_some_and(|next| Arc::ptr_eq(next, &domain)) {
                // It covers what is there now as well.
                return Ok(false);
            }
            self.serve_within(choice, worker_count(self.site.config()))?;
            Ok(true)
        });
        match served {
            Ok(false) => {}
            Ok(true) => {
                self.log(Level::Notice, "a place has changed: the workers were replaced");
                self.tell_control_plane_of_workers();
            }
            Err(problem) => {
                self.log(Level::Error, &format!("the workers are not replaced: {problem}"));
            }
        }
    }
}

impl Domain {
    /// Makes the domain and starts the thread that starts the workers.
    fn start(opened: Vec<(Opened, File)>, network: Network) -> io::Result<Self> {
        let ruleset = Ruleset::new(network != Network::Free)?;
        if let Network::Ports(ports, binds) = &network {
            for port in ports {
                ruleset.allow_connect(*port)?;
            }
            if *binds {
                ruleset.allow_bind()?;
            }
        }
        let mut paths = Vec::with_capacity(opened.len());
        for (place, file) in opened {
            ruleset.allow(file.as_fd(), file.metadata()?.is_dir(), place.right)?;
            paths.push(place);
        }
        let (starter, inbox) = mpsc::channel::<Start>();
        let (limited, outcome) = mpsc::channel();
        let body = move || {
            let restricted = privilege::give_up_rest_in_thread()
                .map_err(io::Error::from)
                .and_then(|()| ruleset.restrict_thread());
            let is_limited = restricted.is_ok();
            drop(ruleset);
            // The starting thread waits for it.
            let _ = limited.send(restricted);
            if is_limited {
                for start in inbox {
                    start();
                }
            }
        };
        Builder::new().name("starter".into()).stack_size(128 << 10).spawn(body)?;
        outcome.recv().map_err(io::Error::other)??;
        Ok(Self { paths, network, starter })
    }

    /// How many places there are.
    pub(crate) fn place_count(&self) -> usize {
        self.paths.len()
    }

    /// Starts a thread in the domain.
    pub(crate) fn spawn(
        &self,
        thread: Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (started, outcome) = mpsc::channel();
        let start = Box::new(move || drop(started.send(thread.spawn(body))));
        self.starter.send(start).map_err(|_| io::Error::other("the starter is gone"))?;
        outcome.recv().map_err(io::Error::other)?
    }

    /// Whether everything that is wanted is allowed here; and, where it must fit, nothing else.
    fn will_do(&self, wanted: &[(Opened, File)], network: &Network, fit: Fit) -> bool {
        let allows = |has: &Opened, wanted: &Opened| {
            has.identity == wanted.identity && has.right.covers(wanted.right)
        };
        let is_covered =
            |(place, _): &(Opened, File)| self.paths.iter().any(|it| allows(it, place));
        let is_wanted = |place: &Opened| wanted.iter().any(|(it, _)| allows(it, place));
        let fits = self.network == *network && self.paths.iter().all(is_wanted);
        self.network.covers(network)
            && wanted.iter().all(is_covered)
            && (fit == Fit::Covering || fits)
    }
}

/// Opens the places that can be; the others come second.
fn open_all(paths: &SandboxPaths) -> (Vec<(Opened, File)>, Vec<Missing>) {
    let (mut opened, mut missing) = (Vec::new(), Vec::new());
    for (path, right) in &paths.all {
        match open(path, *right) {
            Ok(found) => opened.push(found),
            Err(error) => {
                missing.push((path.clone(), error));
                continue;
            }
        }
        for folder in link_targets(path) {
            opened.extend(open(&folder, *right));
        }
    }
    let targets = links::targets(paths.served.iter());
    opened.extend(targets.iter().filter_map(|target| open(target, Right::Read).ok()));
    (opened, missing)
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::NotFound | Kind::NotADirectory | Kind::PermissionDenied)
}

fn open(path: &Path, right: Right) -> io::Result<(Opened, File)> {
    let flags = OFlags::PATH.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    let identity = (about.dev(), about.ino());
    Ok((Opened { path: path.to_owned(), right, identity }, file))
}

/// Folders in which the next target of a link on the way to this place will lie: a deployment that puts
/// releases side by side in a folder, and a link beside that folder that points to the current one
/// (`current -> releases/42`). A link to a folder beside it (`site -> site-42`) would open all of the parent
/// folder.
fn link_targets(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = PathBuf::new();
    for component in path.components() {
        at.push(component);
        let is_link = fs::symlink_metadata(&at).is_ok_and(|about| about.is_symlink());
        let folder = at.parent().and_then(|parent| fs::canonicalize(parent).ok());
        if let (true, Some(folder), Ok(target)) = (is_link, folder, fs::canonicalize(&at))
            && folder.parent().is_some()
            && target.parent().is_some_and(|parent| parent != folder && parent.starts_with(&folder))
            && found.len() < LINKS_MAX
        {
            found.extend(target.parent().map(Path::to_owned));
        }
    }
    found
}
