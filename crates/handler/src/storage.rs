//! Object storage as a root and as a store: what is asked of it, and what becomes of its answers. Every request is an
//! upstream request (`upstream::own`); which one it is and what its answer says is decided by the pure crate `storage`.
//! Nothing that a store says about itself is shown to clients.

mod ask;
mod change;
mod list;
mod look;
mod post;
mod propfind;
mod read;
mod sweep;
mod tus;
mod upload;
mod work;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{CredentialSource, Level, Pass, Storage};
use sekisho_http::{Fields, Method, Status};
use sekisho_lifecycle::Moment;
use sekisho_storage::{Draft, Refusal, sign};

use crate::cgi::HandlerContext;
use crate::task::Task;
use crate::upstream::{CacheQuery, Call, OwnRequest, Sender, Sign};
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
    let service = storage.place.service;
    let found = match &storage.credentials {
        CredentialSource::None => return Ok(None),
        CredentialSource::Environment => {
            let variable = |name: &str| std::env::var(name.to_ascii_uppercase()).ok();
            let found = Credentials::of(service, &variable);
            found.map_err(|wrong| why(format!("the environment {}", in_capitals(wrong))))?
        }
        CredentialSource::File(path) => {
            let shown = path.display();
            let text = sekisho_openings::read_text(path)
                .map_err(|error| why(format!("{shown} cannot be read: {error}")))?;
            Credentials::parse(service, &text).map_err(|wrong| why(format!("{shown} {wrong}")))?
        }
    };
    Ok(Some(Arc::new(found)))
}

/// Names of values as they are written in the environment.
fn in_capitals(text: &str) -> String {
    let word = |word: &str| {
        if word.contains('_') { word.to_ascii_uppercase() } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
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

    /// Begins to send a request; it is signed when a server is asked.
    fn begin(self: &Rc<Self>, question: &Question, now: Moment) -> Box<dyn Task> {
        let Question { draft, body, is_repeatable, cached, .. } = question;
        let request = OwnRequest {
            method: Method::from_bytes(draft.method.as_bytes()),
            target: draft.signed_target(self.credentials.as_deref()),
            fields: draft.fields.clone(),
            body: body.clone(),
            is_repeatable: *is_repeatable,
            signer: Rc::new(Signing {
                client: Rc::clone(self),
                draft: draft.clone(),
                body_bytes: body.as_ref().map_or(0, |body| body.len() as u64),
            }),
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
            let Refusal { status, code, message, .. } = refusal;
            let why = match (code.as_str(), message.as_str()) {
                ("", "") => "and does not say why".to_owned(),
                (code, message) => format!("{code} {message}"),
            };
            let (name, target) = (&self.storage.name, draft.target());
            self.context().report(
                Level::Error,
                format_args!(
                    "storage \"{name}\" refused {} {}: {status} {}",
                    draft.method,
                    target.escape_ascii(),
                    why.trim()
                ),
            );
        }
        answer
    }
}

/// How a request is signed.
#[derive(Debug)]
struct Signing {
    client: Rc<Client>,
    draft: Draft,
    body_bytes: u64,
}

impl Sign for Signing {
    fn sign(&self, fields: &mut Fields) {
        let Client { storage, credentials, .. } = &*self.client;
        let now = self.client.context().wall_secs();
        let keys = credentials.as_deref();
        sign(&self.draft, &storage.place, keys, self.body_bytes, now, fields);
    }
}

/// What is asked of a store; it can be asked again.
#[derive(Clone, Debug)]
struct Question {
    draft: Draft,
    body: Option<Arc<Vec<u8>>>,
    /// Whether asking twice does no harm.
    is_repeatable: bool,
    /// How long an answer may be that is read as a whole.
    answer_bytes_max: usize,
    cached: Option<CacheQuery>,
    /// It is asked only after this time.
    pause: Duration,
}

impl Question {
    fn new(draft: Draft) -> Self {
        Self {
            draft,
            body: None,
            is_repeatable: true,
            answer_bytes_max: ask::BODY_BYTES_MAX,
            cached: None,
            pause: Duration::ZERO,
        }
    }
}
