//! What a session goes through before anything is passed on, in nginx's order: the PROXY header, who the client is,
//! limits, access, the handshake, the first message of a handshake that is passed on; then the server is asked.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sekisho_config::{Bytes, Level, VerifyClient};
use sekisho_handler::upstream::{ServerSide, SessionCall};
use sekisho_http::Status;
use sekisho_http::proxy_header::{self, ProxyAddresses};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Moment};
use sekisho_route::stream::{Hello, Limited};
use sekisho_route::{ClientVerdict, expand};

use super::{Over, Stage, StreamSession};
use crate::transport::Secured;

impl StreamSession {
    /// As far as it goes without waiting.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Over> {
        loop {
            let step = match self.stage {
                Stage::ProxyHeader => ready!(self.take_proxy_header(now)),
                Stage::Handshake => ready!(self.shake_hands(now)),
                Stage::Preread => ready!(self.preread(now)),
                Stage::Connecting => ready!(self.connect(cx, now)),
                Stage::Answering => return self.answer(now),
                Stage::Relaying => return self.relay(cx, now),
            };
            if let Err(over) = step {
                return Poll::Ready(over);
            }
        }
    }

    fn enter(&mut self, stage: Stage, timeout: Option<Duration>, kind: DeadlineKind, now: Moment) {
        self.stage = stage;
        self.stage_deadline = timeout.map(|timeout| Deadline { at: now + timeout, kind });
    }

    /// The server that a name stands for says from now on what holds.
    fn choose_server(&mut self, name: &[u8]) -> Result<(), Over> {
        let failed = Over::new(Status::INTERNAL_SERVER_ERROR, CloseReason::ByConfiguration);
        let table = self.bound_site.site.table();
        table
            .choose_stream_server(self.listen, name, &mut self.route)
            .map_err(|status| Over::new(status, CloseReason::ByConfiguration))?;
        let settings = table.location(self.route.location).settings.stream.as_ref();
        self.settings = Arc::clone(settings.ok_or(failed)?);
        self.client.limit_datagrams(self.settings.requests_max);
        Ok(())
    }

    fn take_proxy_header(&mut self, now: Moment) -> Poll<Result<(), Over>> {
        if self.stage_deadline.is_none() {
            self.choose_server(b"")?;
            let timeout = self.settings.proxy_header_timeout;
            self.enter(Stage::ProxyHeader, timeout, DeadlineKind::Header, now);
        }
        if self.client.awaits_proxy_header() {
            match ready!(self.client.read_proxy_header()) {
                Ok(header) => self.facts.proxied = Some(Arc::new(header)),
                Err(error) => {
                    let is_gone = error.kind() == std::io::ErrorKind::UnexpectedEof;
                    let level = if is_gone { Level::Info } else { Level::Error };
                    self.report(level, format_args!("no PROXY header: {error}"), now);
                    let over = Over::new(Status::BAD_REQUEST, CloseReason::NotAdmitted);
                    return Poll::Ready(Err(over));
                }
            }
        }
        Poll::Ready(self.admit(now))
    }

    /// Who the client is, and whether it may come in.
    fn admit(&mut self, now: Moment) -> Result<(), Over> {
        self.with_request(now, |bound_site, request, route| {
            bound_site.site.table().find_stream_client(request, route);
        });
        self.limit(now)?;
        let is_denied = self.with_request(now, |bound_site, request, route| {
            bound_site.site.table().denies_stream_client(request, route)
        });
        if is_denied {
            self.report(Level::Error, format_args!("access forbidden by rule"), now);
            return Err(Over::new(Status::FORBIDDEN, CloseReason::NotAdmitted));
        }
        let timeout = self.settings.handshake_timeout;
        self.enter(Stage::Handshake, timeout, DeadlineKind::Handshake, now);
        Ok(())
    }

    /// `limit_conn`
    fn limit(&mut self, now: Moment) -> Result<(), Over> {
        let site = Arc::clone(&self.bound_site.site);
        let Some(limits) = site.location(self.route.location).settings.limits.clone() else {
            return Ok(());
        };
        let mut permits = Vec::new();
        let limited = self.with_request(now, |bound_site, request, route| {
            bound_site.site.table().limit_session(&limits, request, route, |at, key| {
                let limit = &limits.connections[at];
                let Some(zone) = site.zones().get(limit.zone.0 as usize) else {
                    return sekisho_route::Taken::Yes;
                };
                match zone.acquire_permit(limit, key) {
                    Ok(permit) => {
                        permits.push(permit);
                        sekisho_route::Taken::Yes
                    }
                    Err(taken) => taken,
                }
            })
        });
        let zone = |at: usize| {
            let id = limits.connections.get(at).map_or(usize::MAX, |limit| limit.zone.0 as usize);
            site.config().http.zones.get(id).map_or("", |zone| zone.name.as_str())
        };
        let counts = match limited {
            Limited::No => {
                self.permits = permits;
                return Ok(());
            }
            Limited::By(at, counts) => {
                let dry_run = if counts { "" } else { ", dry run," };
                let name = zone(at);
                let level = limits.connection_bound.level;
                let message = format_args!("limiting connections{dry_run} by zone \"{name}\"");
                self.report(level, message, now);
                counts
            }
            Limited::NoRoom(at, counts) => {
                let name = zone(at);
                let message = format_args!("no room for a key in zone \"{name}\"");
                self.report(Level::Alert, message, now);
                counts
            }
        };
        if counts {
            return Err(Over::new(Status::SERVICE_UNAVAILABLE, CloseReason::NotAdmitted));
        }
        Ok(())
    }

    fn shake_hands(&mut self, now: Moment) -> Poll<Result<(), Over>> {
        let failed = Over::new(Status::INTERNAL_SERVER_ERROR, CloseReason::NotAdmitted);
        if let Secured::NotYet = self.client.secured() {
            // What comes behind the handshake is the first that is passed on.
            let read = self.read_client(self.settings.buffer_bytes);
            if let Poll::Ready(Err(error)) = &read {
                self.report(Level::Info, format_args!("TLS handshake failed: {error}"), now);
                return Poll::Ready(Err(failed));
            }
            if let (Poll::Pending, Secured::NotYet) = (read, self.client.secured()) {
                return Poll::Pending;
            }
        }
        match self.client.secured() {
            Secured::No => {}
            Secured::NotYet => {
                let over = Over::new(Status::INTERNAL_SERVER_ERROR, CloseReason::PeerClosedEarly);
                return Poll::Ready(Err(over));
            }
            Secured::NotThoughItShould => {
                let message = format_args!("the client speaks in the clear where TLS is spoken");
                self.report(Level::Info, message, now);
                return Poll::Ready(Err(failed));
            }
            Secured::By(facts) => {
                let facts = Arc::clone(facts);
                let refused = match &facts.client {
                    Some(client) => matches!(client.result, ClientVerdict::Invalid(_)),
                    None => false,
                };
                let (name, is_missing) = (facts.server_name.clone(), facts.client.is_none());
                (self.facts.is_tls, self.facts.tls) = (true, Some(facts));
                self.choose_server(name.as_bytes())?;
                let table = self.bound_site.site.table();
                let needs = table.server(self.route.server).tls.verify == VerifyClient::On;
                if refused || (needs && is_missing) {
                    let what = if refused {
                        "client SSL certificate verify error"
                    } else {
                        "client sent no required SSL certificate"
                    };
                    self.report(Level::Info, format_args!("{what}"), now);
                    return Poll::Ready(Err(failed));
                }
            }
        }
        let timeout = self.settings.preread_timeout;
        self.enter(Stage::Preread, timeout, DeadlineKind::Header, now);
        Poll::Ready(Ok(()))
    }

    /// `ssl_preread`
    fn preread(&mut self, now: Moment) -> Poll<Result<(), Over>> {
        if self.settings.prereads_tls && !self.facts.is_udp {
            let room = self.settings.preread_bytes;
            loop {
                match Hello::read(&self.up.buffer) {
                    Hello::Other => break,
                    Hello::Complete(hello) => {
                        let name = hello.server_name.clone();
                        self.route.client_hello = Some(Box::new(hello));
                        if !name.is_empty() {
                            self.choose_server(&name)?;
                        }
                        break;
                    }
                    Hello::NotYet if self.up.buffer.len() >= room => {
                        let message = format_args!("preread buffer full");
                        self.report(Level::Error, message, now);
                        let over = Over::new(Status::BAD_REQUEST, CloseReason::OutOfSync);
                        return Poll::Ready(Err(over));
                    }
                    Hello::NotYet => {}
                }
                match ready!(self.read_client(room)) {
                    Ok(0) | Err(_) => {
                        let over = Over::new(Status::OK, CloseReason::PeerClosedEarly);
                        return Poll::Ready(Err(over));
                    }
                    Ok(_) => {}
                }
            }
        }
        Poll::Ready(self.begin_content(now))
    }

    /// What the session is for: a value, or a server.
    fn begin_content(&mut self, now: Moment) -> Result<(), Over> {
        let settings = Arc::clone(&self.settings);
        self.with_request(now, |bound_site, request, route| {
            bound_site.site.table().assign_in_stream(request, route);
        });
        self.active = now;
        if let Some(template) = &settings.returns {
            let mut value = Vec::new();
            self.with_request(now, |bound_site, request, route| {
                let table = bound_site.site.table();
                expand(template, table, request, route, None, &mut value);
            });
            if self.route.is_undecided() {
                return Err(self.undecided(now));
            }
            self.down.buffer = value;
            self.stage = Stage::Answering;
            return Ok(());
        }
        self.up.rate = self.rate(&settings.upload_rate, now);
        self.down.rate = self.rate(&settings.download_rate, now);
        let preface = if settings.sends_proxy_header {
            let ends = self.route.client(&self.facts).zip(self.facts.local);
            let ends = ends.map(|(source, destination)| ProxyAddresses { source, destination });
            proxy_header::write(ends).into_bytes()
        } else {
            Vec::new()
        };
        let (context, worker) = (self.context(), std::rc::Rc::clone(&self.worker));
        let server = self.with_request(now, |bound_site, request, route| {
            let site = &bound_site.site;
            let call = SessionCall {
                table: site.table(),
                request,
                route_state: route,
                groups: site.groups(),
                tls: site.upstream_tls(),
                pools: &worker.upstreams,
                preface,
            };
            ServerSide::start(call, context, now)
        });
        match server {
            Ok(_) if self.route.is_undecided() => Err(self.undecided(now)),
            Ok(server) => {
                self.server = Some(Box::new(server));
                self.enter(Stage::Connecting, None, DeadlineKind::UpstreamConnect, now);
                Ok(())
            }
            Err(status) => Err(Over::new(status, CloseReason::ByConfiguration)),
        }
    }

    /// An expression ran out of steps: the session ends.
    fn undecided(&mut self, now: Moment) -> Over {
        for entry in self.route.take_log_entries() {
            self.report(entry.level, format_args!("{}", entry.text), now);
        }
        Over::new(Status::INTERNAL_SERVER_ERROR, CloseReason::ByConfiguration)
    }

    fn rate(&mut self, rate: &Bytes, now: Moment) -> u64 {
        match rate {
            Bytes::Fixed(bytes) => *bytes,
            Bytes::By(template) => {
                let mut value = Vec::new();
                self.with_request(now, |bound_site, request, route| {
                    let table = bound_site.site.table();
                    expand(template, table, request, route, None, &mut value);
                });
                let text = std::str::from_utf8(&value).unwrap_or_default();
                sekisho_config::value::size(text).unwrap_or(0)
            }
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Result<(), Over>> {
        let Some(server) = &mut self.server else {
            let over = Over::new(Status::INTERNAL_SERVER_ERROR, CloseReason::ByConfiguration);
            return Poll::Ready(Err(over));
        };
        match server.poll_connect(cx, now) {
            Poll::Ready(Ok(())) => {
                (self.stage, self.stage_deadline) = (Stage::Relaying, None);
                (self.active, self.up.since, self.down.since) = (now, now, now);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(status)) => {
                Poll::Ready(Err(Over::new(status, CloseReason::NotAdmitted)))
            }
            Poll::Pending => {
                // A client that goes is not waited for.
                let is_over = !self.facts.is_udp
                    && self.up.buffer.len() < self.settings.buffer_bytes
                    && matches!(self.read_client(self.settings.buffer_bytes), Poll::Ready(Err(_)));
                if is_over || (self.up.has_ended && self.up.buffer.is_empty()) {
                    let over = Over::new(Status::OK, CloseReason::PeerClosedEarly);
                    return Poll::Ready(Err(over));
                }
                Poll::Pending
            }
        }
    }
}
