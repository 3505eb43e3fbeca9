//! Certificates that change by themselves: one thread beside the workers orders and renews them (`acme`), and fetches
//! OCSP responses (`ocsp`). Workers only look at what there is.

mod acme;
mod ocsp;
mod schedule;
mod seal;
mod shared;
mod state;
mod web;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sekisho_config::{AcmeCertificate, Config, Level};
use sekisho_net::Site;
use sekisho_net::tls::Staple;
use sekisho_net::tls::acme::identity;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::shared::Shared;
pub(crate) use self::state::make_folder;
use crate::Problem;
use crate::background::{Background, Context, Work};
use crate::user::Identity;

/// Whether the key of `acme_store` can be used.
pub(crate) fn check_key(path: &Path) -> Result<(), String> {
    seal::Seal::read(path).map(drop)
}

/// The thread that sees to certificates: an order that is cut off with the process is made anew. After a change of
/// the configuration, what has failed is tried again at once.
pub(crate) type Certificates = Background<Upkeep>;

/// Orders, and OCSP responses.
#[derive(Debug)]
pub(crate) struct Upkeep;

impl Work for Upkeep {
    const NAME: &'static str = "certificates";

    fn is_needed(site: &Site) -> bool {
        !orders(site.config()).is_empty() || !site.staples().is_empty()
    }

    async fn run(context: Context) {
        run(context).await;
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

/// Has a task for each certificate that is ordered and for each OCSP response, for as long as it is wanted.
async fn run(mut context: Context) {
    let mut stapling: Vec<(Arc<Staple>, JoinHandle<()>)> = Vec::new();
    let turns = Arc::new(Semaphore::new(ocsp::REQUESTS_MAX));
    let mut running: HashMap<String, (AcmeCertificate, JoinHandle<()>)> = HashMap::new();
    let mut accounts = Arc::new(acme::Accounts::default());
    let mut sharing: Option<(Arc<Shared>, JoinHandle<()>)> = None;
    loop {
        let site = Arc::clone(&context.sites.borrow_and_update());
        let mut wanted: Vec<AcmeCertificate> = orders(site.config()).into_iter().cloned().collect();
        let staples = site.staples();
        let store = site.config().http.acme_store.clone();
        drop(site);
        let is_other = sharing.as_ref().map(|(shared, _)| &shared.configured) != store.as_ref();
        if is_other {
            for (_, task) in running.drain().map(|(_, one)| one) {
                task.abort();
            }
            if let Some((_, follower)) = sharing.take() {
                follower.abort();
            }
            accounts = Arc::default();
        }
        if let Some(store) = store.filter(|_| sharing.is_none() && !wanted.is_empty()) {
            match Shared::new(&store, context.clone()) {
                Ok(shared) => {
                    let shared = Arc::new(shared);
                    let follower = tokio::spawn(Arc::clone(&shared).follow());
                    sharing = Some((shared, follower));
                }
                Err(why) => {
                    // Without the key nothing in the store can be read; each server alone would order too much.
                    let message = format!("no certificate is ordered: \"acme_store\": {why}");
                    context.log(Level::Error, &message);
                    wanted.clear();
                }
            }
        }
        let shared = sharing.as_ref().map(|(shared, _)| Arc::clone(shared));
        if let Some(shared) = &shared {
            shared.want(&wanted);
            if !is_other {
                shared.try_again(&wanted).await;
            }
        }
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
                let (accounts, shared) = (Arc::clone(&accounts), shared.clone());
                let keeping = acme::keep(one.clone(), accounts, shared, context.clone());
                (one, tokio::spawn(keeping))
            });
        }
        if context.sites.changed().await.is_err() {
            return;
        }
    }
}
