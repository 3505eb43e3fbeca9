//! Active checks of servers (`health_check`). Every worker has a timer for them, and the first worker makes a check
//! that is due: each is made once for the whole server, whichever workers there are. What was found is kept by the
//! group, which all workers share.

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use sekisho_config::{Family, HealthCheck, Level, MatchRules, Matched, Pattern, Template};
use sekisho_http::upstream::{Event, Request, ResponseHead};
use sekisho_http::{Fields, Version};
use sekisho_lifecycle::Moment;
use sekisho_upstream::health::{Health, Verdict};
use tokio::time::timeout;

use super::answer::EXHAUSTED;
use super::body::Body;
use super::engine::engine;
use super::exchange::{Exchange, Happened};
use super::group::{Address, Group};
use super::pool::Pools;
use super::stream::{ConnectError, Options, connect};
use super::tls::{Secure, UpstreamTlsConfigs};

/// No answer to a check is looked at beyond this.
const BODY_BYTES_MAX: usize = 256 << 10;
/// While all checks run, it is looked again so soon.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Where no timeout is configured, a check has one all the same.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The checks of a site.
#[derive(Debug)]
pub struct Checks(Vec<GroupChecks>);

/// The checks that one `health_check` asks for.
#[derive(Debug)]
struct GroupChecks {
    config: HealthCheck,
    group: Arc<Group>,
    secure: Option<Secure>,
    /// By server.
    state: Mutex<Vec<Health>>,
}

/// What checks need of the worker around them.
pub trait CheckContext: fmt::Debug {
    /// The time.
    fn now(&self) -> Moment;
    /// Writes a line into the error log.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
    /// What this worker keeps.
    fn pools(&self) -> &Rc<Pools>;
}

impl Checks {
    /// Those of a configuration. The first of each are due at once.
    pub fn new(wanted: &[HealthCheck], groups: &[Arc<Group>], tls: &UpstreamTlsConfigs) -> Self {
        let one = |config: &HealthCheck| {
            let group = Arc::clone(groups.get(config.group.0 as usize)?);
            let secure = if config.is_tls {
                let ready = tls.get(&config.forward.tls)?;
                // There is no request: variables have no value.
                let literal = |it: &Template| it.as_literal().unwrap_or_default().to_vec();
                let (settings, host) = (&config.forward.tls, config.host.as_bytes());
                let secure = Secure::new(ready, settings, host, Duration::ZERO, literal).ok()?;
                Some(Secure { is_http2: config.forward.is_http2(), ..secure })
            } else {
                None
            };
            let state = Mutex::new(first_state(config, &group));
            Some(GroupChecks { config: config.clone(), group, secure, state })
        };
        Self(wanted.iter().filter_map(one).collect())
    }

    /// Whether there is anything to check.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn next(&self) -> Option<Moment> {
        let of =
            |checks: &GroupChecks| checks.lock().iter().filter_map(Health::next_deadline).min();
        self.0.iter().filter_map(of).min()
    }

    /// Makes checks for as long as the site is served.
    pub async fn run(self: Arc<Self>, context: Rc<dyn CheckContext>) {
        loop {
            let now = context.now();
            for (at, checks) in self.0.iter().enumerate() {
                for peer in 0..checks.group.addresses.len() {
                    let is_due = checks.lock().get_mut(peer).is_some_and(|it| it.begin(now));
                    if is_due {
                        let run = Running { checks: Arc::clone(&self), at, peer, is_over: false };
                        tokio::task::spawn_local(run.check(Rc::clone(&context)));
                    }
                }
            }
            let now = context.now();
            let wait = self.next().map_or(LOOK_AGAIN, |next| next.since(now));
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}

/// What is thought of the servers before the first check.
fn first_state(config: &HealthCheck, group: &Group) -> Vec<Health> {
    let is_unknown =
        config.settings.is_mandatory && !(config.is_persistent && group.is_inherited());
    let of = |peer: usize| {
        if is_unknown {
            group.balancer.set_health(peer, Verdict::Unhealthy, Moment::ZERO);
        }
        Health::with_verdict(config.settings, group.balancer.health(peer), Moment::ZERO)
    };
    (0..group.addresses.len()).map(of).collect()
}

impl GroupChecks {
    fn lock(&self) -> MutexGuard<'_, Vec<Health>> {
        // Nothing that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a server; an error says what was done when it failed.
    async fn ask(&self, peer: usize, context: &dyn CheckContext) -> Result<(), String> {
        let Some((address, _)) = self.group.addresses.get(peer) else { return Ok(()) };
        let forward = &self.config.forward;
        let mut address = address.clone();
        if let (Address::Tcp(address), Some(port)) = (&mut address, self.config.port) {
            address.set_port(port);
        }
        let options = Options {
            keepalive: forward.socket_keepalive,
            secure: self.secure.clone(),
            ..Options::default()
        };
        let patience = forward.connect_timeout.unwrap_or(TIMEOUT);
        let stream =
            match timeout(patience, connect(&context.pools().reactor, address, options)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(ConnectError::Io(error))) => return Err(format!("connecting ({error})")),
                Ok(Err(ConnectError::Circle(why))) => return Err(format!("connecting ({why})")),
                Ok(Err(ConnectError::Tls(why))) => return Err(format!("SSL handshaking ({why})")),
                Err(_) => return Err("connecting (timed out)".to_owned()),
            };
        let work = context.pools().borrow_work();
        let engine = engine(Family::Proxy, forward, self.secure.is_some());
        let exchange = Exchange::connected(stream, engine, work, context.now());
        let patience = forward.read_timeout.unwrap_or(TIMEOUT);
        match timeout(patience, self.exchange(exchange, context)).await {
            Ok(done) => done,
            Err(_) => Err("reading the answer (timed out)".to_owned()),
        }
    }

    async fn exchange(
        &self,
        mut exchange: Exchange,
        context: &dyn CheckContext,
    ) -> Result<(), String> {
        let mut pairs = Fields::default();
        let set = &self.config.forward.set_headers;
        for (name, value) in set.iter() {
            // There is no request whose variables could be meant.
            if let Some(value) = value.as_literal().filter(|value| !value.is_empty()) {
                pairs.push(name.as_bytes(), value);
            }
        }
        if pairs.get("host").is_none() {
            pairs.push(b"Host", self.config.host.as_bytes());
        }
        let request = Request {
            method: b"GET",
            target: &self.config.uri,
            version: Version::Http11,
            pairs: &pairs,
            body: Body::None.length(),
            keeps_alive: false,
        };
        if let Err(fault) = exchange.start(&request, context.now()) {
            return Err(format!("making the request ({})", fault.message()));
        }
        let rules = &*self.config.rules;
        let mut body = Vec::new();
        let done = poll_fn(|cx| {
            loop {
                if let Err(error) = exchange.send(cx, &Body::None, context.now()) {
                    return Poll::Ready(Err(format!("sending the request ({error})")));
                }
                let happened = match exchange.receive(
                    cx,
                    context.pools(),
                    (&mut body, usize::MAX),
                    context.now(),
                ) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(format!("reading the answer ({error})")));
                    }
                    Poll::Ready(Ok(happened)) => happened,
                };
                let Happened::Event(event) = happened else {
                    if body.len() > BODY_BYTES_MAX {
                        return Poll::Ready(judge_body(rules, &body));
                    }
                    continue;
                };
                match event {
                    Event::Head => {
                        if let Err(why) = judge_head(rules, &exchange.work.scratch.head) {
                            return Poll::Ready(Err(why));
                        }
                        if rules.body_patterns.is_empty() {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Event::Body(span) => {
                        body.extend_from_slice(exchange.span(span));
                        if body.len() > BODY_BYTES_MAX {
                            return Poll::Ready(judge_body(rules, &body));
                        }
                    }
                    Event::End => return Poll::Ready(judge_body(rules, &body)),
                    Event::Failed(failure) => {
                        return Poll::Ready(Err(format!("reading the answer ({failure})")));
                    }
                    Event::Informational | Event::Stderr(_) | Event::Upgraded => {}
                }
            }
        });
        let done = done.await;
        context.pools().give_back(exchange.work);
        done
    }
}

fn judge_head(rules: &MatchRules, head: &ResponseHead) -> Result<(), String> {
    if !rules.head.passes(head) {
        return Err(format!("checking status code and fields (status {})", head.status.code()));
    }
    for (name, pattern, is_negated) in &rules.header_patterns {
        let mut values = head.fields.all(name.as_bytes());
        let found = values.try_fold(false, |found, value| Ok(found || matches(pattern, value)?));
        match found {
            Ok(is_found) if is_found != *is_negated => {}
            Ok(_) => return Err(format!("checking the field \"{name}\"")),
            Err(Exhausted) => return Err(format!("checking the field \"{name}\" ({EXHAUSTED})")),
        }
    }
    Ok(())
}

fn judge_body(rules: &MatchRules, body: &[u8]) -> Result<(), String> {
    let body = &body[..body.len().min(BODY_BYTES_MAX)];
    for (pattern, is_negated) in &rules.body_patterns {
        match matches(pattern, body) {
            Ok(is_found) if is_found != *is_negated => {}
            Ok(_) => return Err("checking the body".to_owned()),
            Err(Exhausted) => return Err(format!("checking the body ({EXHAUSTED})")),
        }
    }
    Ok(())
}

/// An expression could not be decided within its bound: the check fails, whether it is negated or not.
struct Exhausted;

fn matches(pattern: &Pattern, text: &[u8]) -> Result<bool, Exhausted> {
    match pattern.regex.matches(text) {
        Matched::Yes => Ok(true),
        Matched::No => Ok(false),
        Matched::Exhausted => Err(Exhausted),
    }
}

/// A check that runs. Where it is dropped before its end, it is made again.
struct Running {
    checks: Arc<Checks>,
    at: usize,
    peer: usize,
    is_over: bool,
}

impl Running {
    async fn check(mut self, context: Rc<dyn CheckContext>) {
        let checks = Arc::clone(&self.checks);
        let Some(own) = checks.0.get(self.at) else { return };
        let found = own.ask(self.peer, &*context).await;
        self.is_over = true;
        let (now, random) = (context.now(), context.pools().random());
        let change =
            own.lock().get_mut(self.peer).and_then(|it| it.ended(found.is_ok(), random, now));
        let Some(verdict) = change else { return };
        own.group.balancer.set_health(self.peer, verdict, now);
        let name = own.group.addresses.get(self.peer).map_or("", |(_, name)| name);
        let (rules, group) = (&own.config.rules.name, &own.group.name);
        match found {
            Ok(()) => context.report(
                Level::Notice,
                format_args!("peer is healthy, health check \"{rules}\" of peer {name} in upstream \"{group}\""),
            ),
            Err(why) => context.report(
                Level::Warn,
                format_args!("peer is unhealthy while {why}, health check \"{rules}\" of peer {name} in upstream \"{group}\""),
            ),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(own) = self.checks.0.get(self.at).filter(|_| !self.is_over)
            && let Some(health) = own.lock().get_mut(self.peer)
        {
            health.abandoned(Moment::ZERO);
        }
    }
}
