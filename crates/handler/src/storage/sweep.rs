//! Uploads that nobody completes: a server that was killed leaves them in the store, where they cost and are not seen. They
//! are removed when they have had no new part for long enough. Uploads of other servers look the same, so the time decides.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use sekisho_config::Level;
use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_storage::{Upload, uploads};

use super::tus::all_parts;
use super::upload::abort;
use super::work::{Work, spawn};
use super::{Client, Question};

/// A store is looked at no more often, however many uploads there are.
const PERIOD_MIN: Duration = Duration::from_secs(10);
const PERIOD_MAX: Duration = Duration::from_hours(1);
/// How many places are remembered.
const SEEN_MAX: usize = 4096;

/// The uploads that this process works on.
static RUNNING: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// An upload that is not abandoned, however old it is, as long as this is there.
#[derive(Debug)]
pub(super) struct InUse(String);

impl InUse {
    /// `None` if another request works on it already.
    pub(super) fn begin(id: &str) -> Option<Self> {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(id.to_owned()).then(|| Self(id.to_owned()))
    }

    fn has(id: &str) -> bool {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// When each store was looked at last, by this process.
static SEEN: LazyLock<Mutex<HashMap<String, Moment>>> = LazyLock::new(Mutex::default);

/// Looks for abandoned uploads, unless that was done a while ago. An upload by parts calls this: where there are none, there
/// are none to be swept.
pub(super) fn visit(client: &Rc<Client>) {
    let Some(age) = client.storage.abandoned else { return };
    if is_due(client, "", age) {
        spawn(run(Rc::clone(client), age));
    }
}

/// Whether a part of a store was not looked at for a while; then it is from now on.
pub(super) fn is_due(client: &Client, what: &str, age: Duration) -> bool {
    let now = client.context().now();
    let place = &client.storage.place;
    let name = format!("{}{}/{} {what}", place.host, place.base, place.prefix);
    let period = age.clamp(PERIOD_MIN, PERIOD_MAX);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.get(&name).is_some_and(|at| !(*at + period).is_due(now)) {
        return false;
    }
    // What is named by clients must not fill the memory.
    if seen.len() >= SEEN_MAX {
        seen.clear();
    }
    seen.insert(name, now);
    true
}

async fn run(client: Rc<Client>, age: Duration) {
    let work = Work::new(client);
    // What went wrong has been reported, and is tried again with a later upload.
    let _ = work.alone(sweep(&work, age)).await;
}

async fn sweep(work: &Work, age: Duration) -> Result<(), Status> {
    let place = &work.client.storage.place;
    let Some(draft) = place.uploads() else { return Ok(()) };
    let answer = work.succeed(Question::new(draft)).await?;
    // A thousand at a time; more are found the next time.
    let Some((found, _)) = uploads(&answer.body) else { return Err(unread(work)) };
    let limit = work.client.context().wall_secs().saturating_sub_unsigned(age.as_secs());
    for upload in found.iter().filter(|upload| upload.begun <= limit) {
        // Some stores list what does not begin with the prefix.
        if place.path(&upload.key).is_none()
            || InUse::has(&upload.id)
            || last_part(work, upload).await? > limit
        {
            continue;
        }
        abort(work, upload.key.as_bytes(), &upload.id).await?;
        let (name, key) = (&work.client.storage.name, &upload.key);
        work.client.context().report(
            Level::Notice,
            format_args!(
                "storage \"{name}\": an abandoned upload of \"{}\" was removed",
                key.escape_debug()
            ),
        );
    }
    Ok(())
}

fn unread(work: &Work) -> Status {
    let name = &work.client.storage.name;
    let message = format_args!("storage \"{name}\": the list of uploads cannot be read");
    work.client.context().report(Level::Error, message);
    Status::BAD_GATEWAY
}

/// When the last part of an upload came, in Unix seconds.
async fn last_part(work: &Work, upload: &Upload) -> Result<i64, Status> {
    let parts = all_parts(work, upload.key.as_bytes(), &upload.id).await?;
    Ok(parts.iter().map(|part| part.modified).fold(upload.begun, i64::max))
}
