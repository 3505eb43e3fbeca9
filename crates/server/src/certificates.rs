//! Certificates that change by themselves: one thread beside the workers orders and renews them (`acme`), and fetches
//! OCSP responses (`ocsp`). Workers only look at what there is.

mod acme;
mod ocsp;
mod schedule;
mod state;
mod web;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sekisho_config::{AcmeCertificate, Config, Level};
use sekisho_net::tls::Staple;
use sekisho_net::tls::acme::identity;
use sekisho_net::{Clock, Site};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub(crate) use self::state::make_folder;
pub(crate) use self::web::roots;
use crate::user::Identity;
use crate::{Problem, privilege};

/// The thread that sees to certificates. It ends with the process: an order that is cut off is made anew.
#[derive(Debug)]
pub(crate) struct Certificates {
    sites: watch::Sender<Arc<Site>>,
    started: Instant,
    is_running: bool,
}

impl Certificates {
    /// Starts the thread, where the configuration has anything for it to do.
    pub(crate) fn start(site: &Arc<Site>, started: Instant) -> Result<Self, Problem> {
        let (sites, _) = watch::channel(Arc::clone(site));
        let mut all = Self { sites, started, is_running: false };
        all.run_if_needed()?;
        Ok(all)
    }

    /// Takes up another configuration. What has failed is tried again at once.
    pub(crate) fn take_up(&mut self, site: &Arc<Site>) -> Result<(), Problem> {
        self.sites.send_replace(Arc::clone(site));
        self.run_if_needed()
    }

    fn run_if_needed(&mut self) -> Result<(), Problem> {
        let has_nothing_to_do = {
            let site = self.sites.borrow();
            orders(site.config()).is_empty() && site.staples().is_empty()
        };
        if self.is_running || has_nothing_to_do {
            return Ok(());
        }
        let context = Context { sites: self.sites.subscribe(), started: self.started };
        let body = move || {
            if privilege::give_up_rest_in_thread().is_err() {
                return;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(run(context));
            }
        };
        let thread = std::thread::Builder::new().name("certificates".to_owned()).spawn(body);
        thread.map_err(|error| Problem::new(format_args!("cannot start a thread: {error}")))?;
        self.is_running = true;
        Ok(())
    }
}

/// Makes the folders for issued certificates, before the server changes its user.
pub(crate) fn prepare(config: &Config, identity: Option<&Identity>) -> Result<(), Problem> {
    for wanted in orders(config) {
        if let Some(folder) = &wanted.issuer.state_path {
            let owner = identity.map(|identity| (identity.uid, identity.gid));
            make_folder(folder, owner).map_err(|error| {
                let path = folder.display();
                Problem::new(format_args!("cannot make the \"state_path\" \"{path}\": {error}"))
            })?;
        }
    }
    Ok(())
}

/// Writes a file that only its owner may read, atomically.
pub(crate) fn write_state(path: &Path, content: &[u8]) -> io::Result<()> {
    state::write(path, content)
}

/// Everything that is to be ordered, each once.
fn orders(config: &Config) -> Vec<&AcmeCertificate> {
    let mut all: Vec<&AcmeCertificate> = Vec::new();
    for wanted in config.http.servers.iter().filter_map(|server| server.acme.as_deref()) {
        if !all.contains(&wanted) {
            all.push(wanted);
        }
    }
    all
}

/// What every order knows.
#[derive(Clone)]
struct Context {
    sites: watch::Receiver<Arc<Site>>,
    started: Instant,
}

impl Context {
    fn log(&self, level: Level, message: &str) {
        let clock = Clock::new(self.started);
        let stamp = clock.stamp(clock.now());
        self.sites.borrow().log.write(level, stamp, None, format_args!("{message}"));
    }
}

/// Has a task for each certificate that is ordered and for each OCSP response, for as long as it is wanted.
async fn run(mut context: Context) {
    let mut stapling: Vec<(Arc<Staple>, JoinHandle<()>)> = Vec::new();
    let turns = Arc::new(Semaphore::new(ocsp::REQUESTS_MAX));
    let mut running: HashMap<String, (AcmeCertificate, JoinHandle<()>)> = HashMap::new();
    let accounts = Arc::new(acme::Accounts::default());
    loop {
        let site = Arc::clone(&context.sites.borrow_and_update());
        let wanted: Vec<AcmeCertificate> = orders(site.config()).into_iter().cloned().collect();
        let staples = site.staples();
        drop(site);
        stapling.retain(|(known, task)| {
            let is_wanted = staples.iter().any(|wanted| Arc::ptr_eq(wanted, known));
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for one in staples {
            if !stapling.iter().any(|(known, _)| Arc::ptr_eq(known, &one)) {
                let keeping = ocsp::keep(Arc::clone(&one), Arc::clone(&turns), context.clone());
                stapling.push((one, tokio::spawn(keeping)));
            }
        }
        running.retain(|_, (known, task)| {
            let is_wanted = wanted.contains(known);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for one in wanted {
            running.entry(identity(&one)).or_insert_with(|| {
                let keeping = acme::keep(one.clone(), Arc::clone(&accounts), context.clone());
                (one, tokio::spawn(keeping))
            });
        }
        if context.sites.changed().await.is_err() {
            return;
        }
    }
}
