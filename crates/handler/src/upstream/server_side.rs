//! The server's side of a session of `stream`: chooses a server of the group, connects to it, and then moves bytes or
//! datagrams without looking at them. The client's side is the connection's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, PassTo};
use sekisho_http::upstream::{Failure, Phase};
use sekisho_http::{Method as RequestMethod, Status};
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use sekisho_route::upstream_facts::{UpstreamFacts, UpstreamTry};
use sekisho_route::{Request, RouteState, Table};
use sekisho_upstream::balance::Change;
use sekisho_upstream::request::{Order, Rules, UpstreamRequest};

use super::Key;
use super::circle::Cause;
use super::dns::NoAddress;
use super::group::Group;
use super::plan::{Known as Places, NoPlan, Source, group_at};
use super::pool::Pools;
use super::resolve::Known;
use super::stream::{ConnectError, Connecting, Options, Stream, connect};
use super::tls::UpstreamTlsConfigs;
use super::words::Words;
use crate::cgi::HandlerContext;
use crate::task::UpstreamView;

/// What a session is made from.
#[derive(Debug)]
pub struct SessionCall<'a> {
    /// The table of the `stream` block.
    pub table: &'a Table,
    /// The session, as a request of its server.
    pub request: &'a Request<'a>,
    /// What was decided.
    pub route_state: &'a RouteState,
    /// The groups of the block.
    pub groups: &'a [Arc<Group>],
    /// How servers are spoken to by TLS.
    pub tls: &'a UpstreamTlsConfigs,
    /// What this worker keeps.
    pub pools: &'a Rc<Pools>,
    /// What the server is sent first, in the clear.
    pub preface: Vec<u8>,
}

/// Where it stands.
enum Stage {
    /// No server has been chosen.
    Ready,
    /// A connection is being made.
    Connecting(usize, Connecting),
    /// It is there.
    Connected(usize, Stream),
    /// It is over.
    Ended,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Connecting(..) => "Connecting",
            Self::Connected(..) => "Connected",
            Self::Ended => "Ended",
        })
    }
}

/// The server's side of a session.
#[derive(Debug)]
pub struct ServerSide {
    context: Rc<dyn HandlerContext>,
    pools: Rc<Pools>,
    group: Arc<Group>,
    machine: UpstreamRequest,
    options: Options,
    /// Servers of the group are names that are to be looked up first.
    resolving: Option<(Key, Moment)>,
    stage: Stage,
    /// Bytes that came from the server, and that it was sent.
    received: u64,
    sent: u64,
    is_answered: bool,
}

impl ServerSide {
    /// Begins; an error is the status of a session that is over.
    pub fn start(
        call: SessionCall<'_>,
        context: Rc<dyn HandlerContext>,
        now: Moment,
    ) -> Result<Self, Status> {
        let SessionCall { table, request, route_state, groups, tls, pools, preface } = call;
        let settings = &table.location(route_state.location).settings;
        let (Some(pass), Some(stream)) = (&settings.pass, &settings.stream) else {
            return Err(Status::INTERNAL_SERVER_ERROR);
        };
        let source = Source { table, request, route_state };
        let places = Places { groups, resolver: &settings.resolver };
        let (group, host) = find(&source, &pass.to, places).map_err(|NoPlan(_, why)| {
            context.report(Level::Error, format_args!("{why}"));
            Status::INTERNAL_SERVER_ERROR
        })?;
        let forward = &pass.forward;
        let secure = stream.is_upstream_tls.then(|| source.secure(tls, &forward.tls, &host));
        let secure = secure.transpose().map_err(|why| {
            context.report(Level::Error, format_args!("{why}"));
            Status::INTERNAL_SERVER_ERROR
        })?;
        let key = Key::new(&source, &group, now);
        let rules = Rules { next: forward.next_upstream, connect_timeout: forward.connect_timeout };
        let selection = key.select(&group);
        let bind = forward.bind.as_ref().and_then(|template| {
            let text = String::from_utf8(source.value(template)).ok()?;
            let address = text.parse().map(|ip| SocketAddr::new(ip, 0));
            address.or_else(|_| text.parse()).ok()
        });
        let is_udp = request.connection.is_udp;
        let resolving = group.names.is_some().then_some((key, now));
        Ok(Self {
            context,
            pools: Rc::clone(pools),
            group,
            // Nothing is sent before there is a connection: every server may be tried.
            machine: UpstreamRequest::new(rules, RequestMethod::Get, false, selection, now),
            options: Options {
                bind,
                keepalive: forward.socket_keepalive,
                secure,
                preface: if is_udp { Vec::new() } else { preface },
                is_udp,
                cause: Cause::of(request.connection),
            },
            resolving,
            stage: Stage::Ready,
            received: 0,
            sent: 0,
            is_answered: false,
        })
    }

    /// Waits for a connection to a server; an error is the status of a session that is over.
    pub fn poll_connect(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Result<(), Status>> {
        loop {
            match &mut self.stage {
                Stage::Connected(..) => return Poll::Ready(Ok(())),
                Stage::Ended => return Poll::Ready(Err(Status::BAD_GATEWAY)),
                Stage::Ready if self.resolving.is_some() => {
                    if self.resolve(cx, now).is_pending() {
                        return Poll::Pending;
                    }
                }
                Stage::Ready => {
                    let Self { machine, group, pools, .. } = self;
                    let order = machine.start(&group.balancer, now, || pools.random());
                    self.obey(order);
                }
                Stage::Connecting(peer, connecting) => match connecting.as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => {
                        let peer = *peer;
                        self.machine.connected(false, now);
                        if !self.options.is_udp {
                            // A session may last for hours: others need not wait for its end.
                            self.group.balancer.confirm(peer, now);
                        }
                        self.stage = Stage::Connected(peer, stream);
                    }
                    Poll::Ready(Err(ConnectError::Io(error))) => {
                        self.fail(Failure::NotConnected(error.raw_os_error()), now);
                    }
                    Poll::Ready(Err(ConnectError::Circle(why))) => {
                        let peer = *peer;
                        self.report(Level::Error, Some(peer), format_args!("{why}"));
                        self.fail(Failure::NotConnected(None), now);
                    }
                    Poll::Ready(Err(ConnectError::Tls(why))) => {
                        let peer = *peer;
                        let what = format_args!("upstream SSL certificate or handshake: {why}");
                        self.report(Level::Error, Some(peer), what);
                        self.fail(Failure::NotSecured, now);
                    }
                    Poll::Pending => {
                        let deadline = self.machine.next_deadline();
                        if !deadline.is_some_and(|deadline| deadline.at.is_due(now)) {
                            return Poll::Pending;
                        }
                        self.context.expired(DeadlineKind::UpstreamConnect);
                        self.fail(Failure::ConnectTimeout, now);
                    }
                },
            }
        }
    }

    fn resolve(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let Some((key, since)) = &self.resolving else { return Poll::Ready(()) };
        let Some(names) = &self.group.names else { return Poll::Ready(()) };
        let known = match names.poll(cx, now) {
            Poll::Ready(known) => known,
            Poll::Pending if !(*since + names.timeout()).is_due(now) => return Poll::Pending,
            Poll::Pending => Known::Nothing(self.group.name.to_string(), NoAddress::TimedOut),
        };
        match known {
            Known::Group(group) => {
                self.machine.choose_from(key.select(&group));
                self.group = group;
            }
            Known::Nothing(name, why) => {
                let what = format_args!("{name} could not be resolved ({why})");
                self.report(Level::Error, None, what);
                self.stage = Stage::Ended;
            }
        }
        self.resolving = None;
        Poll::Ready(())
    }

    fn obey(&mut self, order: Order) {
        if let Some((peer, Change::Disabled)) = self.machine.take_change() {
            let what = format_args!("upstream server temporarily disabled");
            self.report(Level::Warn, Some(peer), what);
        }
        match order {
            Order::Connect { peer, .. } => {
                self.stage = match self.group.addresses.get(peer) {
                    Some((address, _)) => {
                        let reactor = &self.pools.reactor;
                        let options = self.options.clone();
                        Stage::Connecting(peer, connect(reactor, address.clone(), options))
                    }
                    None => Stage::Ended,
                };
            }
            Order::Fail(failure) => {
                if failure == Failure::NoLive {
                    let words = Words(failure, Phase::Connecting);
                    self.report(Level::Error, None, format_args!("{words}"));
                }
                self.stage = Stage::Ended;
            }
            // No response is read or stored here.
            Order::Forward
            | Order::ServeStale(_)
            | Order::ServeRevalidated
            | Order::Cut(_)
            | Order::Nothing => {}
        }
    }

    fn fail(&mut self, failure: Failure, now: Moment) {
        let Stage::Connecting(peer, _) = &self.stage else { return };
        let words = Words(failure, Phase::Connecting);
        self.report(Level::Error, Some(*peer), format_args!("{words}"));
        let Self { machine, group, pools, .. } = self;
        let order = machine.failed(failure, false, &group.balancer, now, || pools.random());
        self.obey(order);
    }

    fn report(&self, level: Level, peer: Option<usize>, what: fmt::Arguments<'_>) {
        let peer = peer.and_then(|peer| self.group.addresses.get(peer));
        let name = peer.map_or(&self.group.name, |(_, name)| name);
        self.context.report_upstream(level, what, format_args!("{name}"));
    }

    fn stream(&mut self) -> io::Result<&mut Stream> {
        match &mut self.stage {
            Stage::Connected(_, stream) => Ok(stream),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Appends what the server has sent, as far as the spare capacity of `to` goes; 0 is the end. Of datagrams, one.
    pub fn read(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Vec<u8>,
        now: Moment,
    ) -> Poll<io::Result<usize>> {
        let read = self.stream()?.read(cx, to);
        self.note_received(&read, now);
        read
    }

    /// Sends what can leave now.
    pub fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream()?.write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.sent += count as u64;
        }
        written
    }

    /// Whether all that was taken has left.
    pub fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.flush(cx)
    }

    /// Tells the server that nothing follows.
    pub fn shut_down_write(&mut self) {
        if let Ok(stream) = self.stream() {
            stream.shut_down_write();
        }
    }

    /// Whether bytes may pass through the kernel alone.
    pub fn can_splice(&mut self) -> bool {
        self.stream().is_ok_and(|stream| stream.can_splice())
    }

    /// Moves bytes of the server into an empty pipe.
    pub fn splice_in(
        &mut self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
        now: Moment,
    ) -> Poll<io::Result<usize>> {
        let moved = self.stream()?.splice_in(cx, pipe, count);
        self.note_received(&moved, now);
        moved
    }

    /// Moves bytes from a pipe to the server.
    pub fn splice_out(
        &mut self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let moved = self.stream()?.splice_out(cx, pipe, count);
        if let Poll::Ready(Ok(count)) = moved {
            self.sent += count as u64;
        }
        moved
    }

    fn note_received(&mut self, read: &Poll<io::Result<usize>>, now: Moment) {
        let Poll::Ready(Ok(count)) = read else { return };
        self.received += *count as u64;
        if *count > 0 && !std::mem::replace(&mut self.is_answered, true) {
            let Self { machine, group, pools, .. } = self;
            machine.answered(Status::OK, &group.balancer, now, || pools.random());
        }
    }

    /// By when the connection must be there.
    pub fn next_deadline(&self) -> Option<Deadline> {
        match &self.stage {
            Stage::Connecting(..) => self.machine.next_deadline(),
            Stage::Ready => {
                let (_, since) = self.resolving.as_ref()?;
                let at = *since + self.group.names.as_ref()?.timeout();
                Some(Deadline { at, kind: DeadlineKind::UpstreamConnect })
            }
            Stage::Connected(..) | Stage::Ended => None,
        }
    }

    /// The session is over.
    pub fn end(&mut self, now: Moment) {
        self.machine.abandoned(&self.group.balancer, now);
        self.stage = Stage::Ended;
    }

    /// The session is over, and the server is to blame: it did not answer, or it could not be spoken to.
    pub fn blame(&mut self, failure: Failure, phase: Phase, now: Moment) {
        if let Stage::Connected(peer, _) = &self.stage {
            let words = Words(failure, phase);
            self.report(Level::Error, Some(*peer), format_args!("{words}"));
        }
        self.machine.broken(&self.group.balancer, now);
        if let Some((peer, Change::Disabled)) = self.machine.take_change() {
            let what = format_args!("upstream server temporarily disabled");
            self.report(Level::Warn, Some(peer), what);
        }
        self.stage = Stage::Ended;
    }

    /// The present server, as `ctl` shows it.
    pub fn view(&self, deadline: Option<Deadline>, now: Moment) -> Option<UpstreamView> {
        let (server, since) = match &self.stage {
            Stage::Connecting(peer, _) | Stage::Connected(peer, _) => {
                (&self.group.addresses.get(*peer)?.1, self.machine.tries().last()?.started)
            }
            Stage::Ready => (&self.group.name, self.resolving.as_ref()?.1),
            Stage::Ended => return None,
        };
        Some(UpstreamView {
            server: Arc::clone(server),
            attempt: self.machine.tries().len(),
            age: now.since(since),
            deadline,
        })
    }

    /// Which servers were tried, for the logs.
    pub fn describe(&self, facts: &mut UpstreamFacts) {
        facts.tries.clear();
        let last = self.machine.tries().len();
        for (at, one) in self.machine.tries().iter().enumerate() {
            let peer = one.peer.and_then(|peer| self.group.addresses.get(peer));
            let (received, sent) = if at + 1 == last { (self.received, self.sent) } else { (0, 0) };
            facts.tries.push(UpstreamTry {
                name: Arc::clone(peer.map_or(&self.group.name, |(_, name)| name)),
                status: one.status,
                connect_time: one.connect_time,
                header_time: one.header_time,
                response_time: one.response_time,
                received,
                body: received,
                sent,
                is_elsewhere: false,
            });
        }
    }
}

impl Drop for ServerSide {
    fn drop(&mut self) {
        let now = self.context.now();
        self.end(now);
    }
}

/// The group of a session, and the name that a certificate of its servers must have.
fn find(
    source: &Source<'_>,
    to: &PassTo,
    places: Places<'_>,
) -> Result<(Arc<Group>, Vec<u8>), NoPlan> {
    match to {
        PassTo::Named(to) => match places.groups.get(to.group.0 as usize) {
            Some(group) => Ok((Arc::clone(group), to.host.as_bytes().to_vec())),
            None => Err(NoPlan(Status::INTERNAL_SERVER_ERROR, "no such group".to_owned())),
        },
        PassTo::Computed(template) => {
            let address = source.value(template);
            let text = String::from_utf8_lossy(&address);
            Ok((group_at(&text, 0, places)?, address.clone()))
        }
    }
}
