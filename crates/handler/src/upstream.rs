//! Other servers: passes a request to one of a group, by HTTP, FastCGI, SCGI, uwsgi or gRPC, and gives its answer back. The
//! machines that decide are pure (`upstream::request`, the engines of `http1::client`, `http2::client` and `gateway`); here are
//! sockets, buffers and what is kept for later. One task for all protocols.

mod alone;
mod answer;
mod body;
mod cache;
mod circle;
mod dns;
mod engine;
mod exchange;
mod group;
mod health;
mod own;
mod plan;
mod pool;
mod resolve;
mod server_side;
mod spool;
mod sticky;
mod stream;
mod task;
mod tls;
mod words;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{Family, Level, Pass, Resolver, UpstreamTls};
use sekisho_http::upstream::RequestBody as Length;
use sekisho_http::{Fields, Known, Status, Version};
use sekisho_lifecycle::Moment;
use sekisho_route::{Request, RouteState, Table};
use sekisho_storage::Credentials;
use sekisho_upstream::Method;
use sekisho_upstream::balance::Selection;
use sekisho_upstream::balance::sticky::peer_of;
use sekisho_upstream::request::{Rules, UpstreamRequest};

use crate::cgi::HandlerContext;
use crate::memory;
use crate::request_body::{Gathered, RequestBody};
use crate::task::Task;
use answer::Changes;
use body::Body;
pub use cache::{Cache, Caches, Purge};
use circle::Cause;
pub use group::{Group, Groups};
pub use health::{CheckContext, Checks};
pub(crate) use own::{CacheQuery, OwnRequest, Sender, Sign};
use plan::{NoPlan, Source};
use pool::Permit;
pub use pool::Pools;
pub use sekisho_upstream::balance::{Snapshot, Unavailable};
pub use server_side::{ServerSide, SessionCall};
use sticky::Binding;
use task::{Stage, UpstreamTask};
use tls::Secure;
pub use tls::{AnyCertificate, UpstreamTlsConfigs, UpstreamTlsProblem};

/// The addresses of a name, as a `resolver` says.
pub async fn addresses_of(resolver: &Resolver, name: &str) -> Result<Vec<IpAddr>, String> {
    let found = dns::look_up(resolver, name).await;
    found.map(|found| found.addresses).map_err(|why| format!("{name} has no address ({why})"))
}

/// What a server is asked for.
#[derive(Debug)]
pub struct Call<'a> {
    /// The routing table.
    pub table: &'a Table,
    /// The request.
    pub request: &'a Request<'a>,
    /// What was decided.
    pub route_state: &'a RouteState,
    /// The groups of the configuration.
    pub groups: &'a [Arc<Group>],
    /// The caches of the configuration.
    pub caches: &'a [Arc<Cache>],
    /// How servers are spoken to by TLS.
    pub tls: &'a UpstreamTlsConfigs,
    /// What this worker keeps.
    pub pools: &'a Rc<Pools>,
    /// The keys of each `storage`.
    pub credentials: &'a [Option<Arc<Credentials>>],
    /// Whether body bytes follow, and how many, if that is known.
    pub has_body: bool,
    /// The declared length of the body.
    pub body_bytes: Option<u64>,
    /// The body, where all of it was read before.
    pub gathered: Option<&'a RefCell<Option<Gathered>>>,
}

/// Starts to pass the request on, unless a cache has the response in memory; an error is the status to answer with, and its
/// fields have been appended to `fields`.
pub fn start(
    call: &Call<'_>,
    context: Rc<dyn HandlerContext>,
    fields: &mut Fields,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let Call { table, request, route_state, .. } = *call;
    let settings = &table.location(route_state.location).settings;
    let Some(pass) = &settings.pass else { return Err(Status::INTERNAL_SERVER_ERROR) };
    let source = Source { table, request, route_state };
    let cache = cache::cache_of(call, &source).map_err(|why| {
        context.report(Level::Error, format_args!("{why}"));
        Status::INTERNAL_SERVER_ERROR
    })?;
    let lookup = cache.and_then(|cache| cache::Lookup::new(call, &source, cache, pass));
    let hit = lookup.as_ref().and_then(|lookup| lookup.hit(call, &source, &context, now));
    if let Some(hit) = hit {
        return Ok(Box::new(hit));
    }
    let permit = if memory::is_short_to_pass_on() { None } else { call.pools.permit() };
    let Some(permit) = permit else {
        context.report(Level::Info, format_args!("not passed on: memory is short"));
        fields.push("Retry-After", "1");
        return Err(Status::SERVICE_UNAVAILABLE);
    };
    pass_on(call, &source, pass, (lookup, permit), context, now)
}

/// Makes the request to the server.
fn pass_on(
    call: &Call<'_>,
    source: &Source<'_>,
    pass: &Arc<Pass>,
    (lookup, permit): (Option<cache::Lookup<'_>>, Permit),
    context: Rc<dyn HandlerContext>,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let Call { table, request, route_state, .. } = *call;
    let settings = &table.location(route_state.location).settings;
    let pass = Arc::clone(pass);
    let forward = &pass.forward;
    let (group, mut plan) =
        source.plan(&pass, call.groups, call.pools).map_err(|NoPlan(status, why)| {
            context.report(Level::Error, format_args!("{why}"));
            status
        })?;
    let question = lookup.map(|lookup| lookup.question(call, source, &mut plan));
    let secure = plan.is_tls.then(|| source.secure(call.tls, &forward.tls, &plan.host));
    let secure = secure.transpose().map_err(|why| {
        context.report(Level::Error, format_args!("{why}"));
        Status::INTERNAL_SERVER_ERROR
    })?;
    let secure = secure.map(|secure| Secure { is_http2: forward.is_http2(), ..secure });
    let key = Key::new(source, &group, now);
    let selection = key.select(&group);
    let is_passed = forward.pass_request_body && forward.set_body.is_none();
    let has_body = call.has_body && call.gathered.is_none();
    let gathered = call.gathered.filter(|_| call.has_body && is_passed).and_then(RefCell::take);
    // What cannot say that a length is unknown must know it.
    let may_stream = call.body_bytes.is_some()
        || match pass.family {
            Family::Proxy => forward.http_version != Version::Http10,
            Family::FastCgi | Family::Grpc => true,
            Family::Scgi | Family::Uwsgi => false,
        };
    let is_streamed = has_body && is_passed && !forward.request_buffering && may_stream;
    // A body that is not passed on may be for what answers instead.
    let is_gathered = has_body && !is_streamed && (is_passed || forward.request_buffering);
    let rules = Rules { next: forward.next_upstream, connect_timeout: forward.connect_timeout };
    // A call that its server did not take is made again, if its messages are remembered.
    let is_lost = is_streamed && pass.family != Family::Grpc;
    let machine = UpstreamRequest::new(rules, route_state.method, is_lost, selection, now);
    let body = match (&forward.set_body, gathered) {
        (Some(template), _) => Body::Memory(Arc::new(source.value(template)), None),
        (None, Some(gathered)) => Body::from(gathered),
        (None, None) if is_streamed => {
            Body::Stream(call.body_bytes.map_or(Length::Unknown, Length::Known))
        }
        // Some servers want a length of each POST, and get the client's.
        (None, None) if !call.has_body && is_passed && is_said_empty(request) => Body::empty(),
        (None, None) => Body::None,
    };
    let changes = Changes::new(source, forward).map(Rc::new);
    let gathering = || Stage::Gathering(Box::new(RequestBody::of(settings, call.body_bytes)));
    let stage = if is_gathered { gathering() } else { Stage::Ready };
    let binding = key.binding.clone();
    let resolving = group.names.is_some().then_some((key, now));
    let bind = forward.bind.as_ref().and_then(|template| source.address(template));
    let family = (pass.family, forward.is_http2());
    let manner = manner(family, secure.as_ref().map(|it| (&*forward.tls, it)), bind);
    let is_steadfast = forward.ignore_client_abort;
    let cached = question.map(|question| {
        let view = cache::View {
            pass: Arc::clone(&pass),
            origin: plan.origin.clone(),
            changes: changes.clone(),
            error_pages: Arc::clone(&settings.error_pages),
            status: route_state.status,
            is_head: route_state.method == sekisho_http::Method::Head,
        };
        (question, Rc::clone(&context), view)
    });
    let task = Box::new(UpstreamTask::new(task::Parts {
        bind,
        cause: Cause::of(request.connection),
        manner,
        secure,
        context,
        pools: Rc::clone(call.pools),
        permit: Some(permit),
        group,
        pass,
        plan,
        machine,
        body,
        unsent: Body::None,
        body_memory: settings.client_body_buffer_size,
        changes,
        error_pages: Arc::clone(&settings.error_pages),
        status: route_state.status,
        is_head: route_state.method == sekisho_http::Method::Head,
        resolving,
        binding,
        stage,
        has_body_ended: !call.has_body || call.gathered.is_some(),
        keeping: None,
    }));
    Ok(match cached {
        Some((question, context, view)) => {
            Box::new(cache::CachedTask::new(question, context, view, task))
        }
        None if is_steadfast => Box::new(alone::Steadfast::new(task)),
        None => task,
    })
}

/// Whether the client has said that its body is empty.
fn is_said_empty(request: &Request<'_>) -> bool {
    let length = request.head.known(Known::ContentLength);
    length.is_some_and(|length| !length.is_empty() && length.iter().all(|digit| *digit == b'0'))
}

/// By what a server is chosen.
#[derive(Debug)]
struct Key {
    by: By,
    /// What binds the client to a server.
    binding: Option<Rc<Binding>>,
}

#[derive(Debug)]
enum By {
    Client(Option<IpAddr>),
    Text(Vec<u8>),
}

impl Key {
    fn new(source: &Source<'_>, group: &Group, now: Moment) -> Self {
        let Source { request, route_state, .. } = *source;
        let by = match (group.method, &group.key) {
            (Method::IpHash, _) => {
                By::Client(route_state.client(request.connection).map(|client| client.ip()))
            }
            (_, Some(key)) => By::Text(source.value(key)),
            (_, None) => By::Text(Vec::new()),
        };
        let binding = group.sticky.as_ref().map(|sticky| Rc::new(sticky.binding(source, now)));
        Self { by, binding }
    }

    fn select(&self, group: &Group) -> Selection {
        let mut selection = match &self.by {
            By::Client(client) => group.balancer.begin_for(*client),
            By::Text(text) => group.balancer.begin(text),
        };
        if let Some(binding) = &self.binding {
            selection.bind(peer_of(&group.balancer, &binding.route));
        }
        selection
    }
}

/// A number that is the same for connections that may serve each other's requests.
fn manner(
    family: (Family, bool),
    tls: Option<(&UpstreamTls, &Secure)>,
    bind: Option<SocketAddr>,
) -> u64 {
    if tls.is_none() && bind.is_none() {
        return (family.0 as u64) << 1 | u64::from(family.1);
    }
    let tls = tls.map(|(settings, secure)| (settings, &secure.name, secure.own.as_deref()));
    let mut hasher = DefaultHasher::new();
    (family, tls, bind).hash(&mut hasher);
    // Those of one family without anything particular have the smallest numbers.
    hasher.finish() | 1 << 63
}
