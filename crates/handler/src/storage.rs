//! Object storage as a root and as a store: what is asked of it, and what becomes of its answers. Every request is an
//! upstream request (`upstream::own`); which one it is and what its answer says is decided by the pure crate `storage`.
//! Nothing that a store says about itself is shown to clients.

mod ask;
mod change;
mod list;
mod look;
mod post;
mod read;
mod sweep;
mod tus;
mod upload;
mod work;

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{CredentialSource, Level, Pass, Storage};
use sekisho_http::{Fields, Method, Status};
use sekisho_lifecycle::Moment;
use sekisho_storage::{Draft, Refusal, sign};

use crate::cgi::HandlerContext;
use crate::task::Task;
use crate::upstream::{CacheQuery, Call, OwnRequest, Sender};
pub use change::operate;
pub use list::list;
pub use look::look;
pub use read::read;
pub use sekisho_storage::Credentials;

/// Reads the keys of every `storage`; an error says which cannot be had. It has nothing of a key in it.
pub fn credentials(storages: &[Arc<Storage>]) -> Result<Vec<Option<Arc<Credentials>>>, String> {
    storages.iter().map(|storage| credentials_of(storage)).collect()
}

/// Reads the keys of one.
pub fn credentials_of(storage: &Storage) -> Result<Option<Arc<Credentials>>, String> {
    let why = |what: String| format!("credentials of storage \"{}\": {what}", storage.name);
    let variable = |name: &str| std::env::var(name).ok();
    let found = match &storage.credentials {
        CredentialSource::None => return Ok(None),
        CredentialSource::Environment => {
            let found = Credentials::new(
                variable("AWS_ACCESS_KEY_ID"),
                variable("AWS_SECRET_ACCESS_KEY"),
                variable("AWS_SESSION_TOKEN"),
            );
            let missing = "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set";
            found.ok_or_else(|| why(missing.to_owned()))?
        }
        CredentialSource::File(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| why(format!("{shown} cannot be read: {error}")))?;
            Credentials::parse(&text).map_err(|wrong| why(format!("{shown} {wrong}")))?
        }
    };
    Ok(Some(Arc::new(found)))
}

/// One `storage`, for the requests of one client.
#[derive(Debug)]
struct Client {
    sender: Sender,
    storage: Arc<Storage>,
    credentials: Option<Arc<Credentials>>,
}

impl Client {
    /// The storage that is the root of the request's location.
    fn of_root(call: &Call<'_>, context: Rc<dyn HandlerContext>) -> Result<Rc<Self>, Status> {
        let settings = &call.table.location(call.route_state.location).settings;
        let pass = settings.pass.as_ref().ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let storage = pass.storage.as_ref().ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let credentials = call.credentials.get(storage.id).cloned().flatten();
        let sender = Sender::new(call, pass, context)?;
        Ok(Rc::new(Self { sender, storage: Arc::clone(storage), credentials }))
    }

    /// The storage that the bodies of POST requests are put into.
    fn of_store(
        call: &Call<'_>,
        storage: &Arc<Storage>,
        context: Rc<dyn HandlerContext>,
    ) -> Result<Rc<Self>, Status> {
        let pass = Arc::new(Pass::to_storage(storage));
        let credentials = call.credentials.get(storage.id).cloned().flatten();
        let sender = Sender::new(call, &pass, context)?;
        Ok(Rc::new(Self { sender, storage: Arc::clone(storage), credentials }))
    }

    fn context(&self) -> &dyn HandlerContext {
        &*self.sender.context
    }

    /// The key of the request's file.
    fn key(&self, file: &[u8], root_bytes: usize) -> Vec<u8> {
        self.storage.place.key(file.get(root_bytes..).unwrap_or_default())
    }

    /// What an object is called in the cache: it is the same for all servers, and another one in another bucket.
    fn cache_key(&self, key: &[u8]) -> Vec<u8> {
        let place = &self.storage.place;
        [b"s3://", place.host.as_bytes(), b"/", place.bucket.as_bytes(), b"/", key].concat()
    }

    /// Signs a request and begins to send it.
    fn begin(&self, question: &Question, now: Moment) -> Box<dyn Task> {
        let Question { draft, fields, body, is_repeatable, cached, .. } = question;
        let mut fields = fields.clone();
        let (place, keys) = (&self.storage.place, self.credentials.as_deref());
        sign(draft, place, keys, self.context().wall_secs(), &mut fields);
        let request = OwnRequest {
            method: Method::from_bytes(draft.method.as_bytes()),
            target: draft.target(),
            fields,
            body: body.clone(),
            is_repeatable: *is_repeatable,
        };
        match cached {
            Some(query) => self.sender.send_cached(&request, query, now),
            None => self.sender.send(&request, now),
        }
    }

    /// The status for a client after the store has refused; an operator is told the cause.
    fn refused(&self, draft: &Draft, refusal: &Refusal) -> Status {
        let answer = refusal.answer();
        if refusal.is_trouble() {
            let Refusal { status, code, message } = refusal;
            let (name, target) = (&self.storage.name, draft.target());
            self.context().report(
                Level::Error,
                format_args!(
                    "storage \"{name}\" refused {} {}: {status} {code} {message}",
                    draft.method,
                    target.escape_ascii()
                ),
            );
        }
        answer
    }
}

/// What is asked of a store; it can be asked again.
#[derive(Clone, Debug)]
struct Question {
    draft: Draft,
    fields: Fields,
    body: Option<Arc<Vec<u8>>>,
    /// Whether asking twice does no harm.
    is_repeatable: bool,
    /// How long an answer may be that is read as a whole.
    answer_bytes_max: usize,
    cached: Option<CacheQuery>,
}

impl Question {
    fn new(draft: Draft) -> Self {
        Self {
            draft,
            fields: Fields::default(),
            body: None,
            is_repeatable: true,
            answer_bytes_max: ask::BODY_BYTES_MAX,
            cached: None,
        }
    }
}
