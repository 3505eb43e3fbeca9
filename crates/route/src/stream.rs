//! Sessions of `stream`: what is decided of a connection, or of a client's datagrams, before they are passed on. A
//! session is to its server what a request is to `http`: the same variables, access checks and logs.

mod client_hello;

use std::mem;

use sekisho_config::{Limits, StreamSettings};
use sekisho_http::Status;

use crate::access_checks::{LimitStatus, Taken};
use crate::real_ip;
use crate::route_state::{Request, RouteState};
use crate::table::Table;
use crate::variable::expand;

pub use client_hello::{ClientHello, Hello};

/// Longer keys are not limited (nginx's bound).
const KEY_MAX: usize = 255;

/// What `limit_conn` says of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limited {
    /// It may go on.
    No,
    /// The limit with this index refuses it, and whether that counts.
    By(usize, bool),
    /// The zone of that limit has no room, and whether that counts.
    NoRoom(usize, bool),
}

impl Table {
    /// Chooses the server of a session: that of this name, as a handshake asks for it, or the default one.
    pub fn choose_stream_server(
        &self,
        listen: usize,
        name: &[u8],
        route_state: &mut RouteState,
    ) -> Result<(), Status> {
        let name = name.to_ascii_lowercase();
        let found = self.find_named(listen, &name, &mut route_state.captures);
        let server = found.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        route_state.server = server;
        route_state.location = self.server(server).root;
        Ok(())
    }

    /// What the server of a session does.
    pub fn stream_settings(&self, route_state: &RouteState) -> Option<&StreamSettings> {
        self.location(route_state.location).settings.stream.as_deref()
    }

    /// Finds out who the client is where a balancer has said so (`set_real_ip_from`).
    pub fn find_stream_client(&self, request: &Request<'_>, route_state: &mut RouteState) {
        let settings = &self.location(route_state.location).settings;
        let real_ip = settings.real_ip.as_deref();
        route_state.real_address =
            real_ip.and_then(|real_ip| real_ip::find(real_ip, request.connection, None));
    }

    /// Whether `allow` and `deny` keep the client out.
    pub fn denies_stream_client(&self, request: &Request<'_>, route_state: &RouteState) -> bool {
        let settings = &self.location(route_state.location).settings;
        let client = route_state.client(request.connection).map(|client| client.ip());
        let rules = settings.access.as_deref().map_or(&[][..], |access| &access.rules);
        rules.iter().find(|rule| rule.who.is_meant(client)).is_some_and(|rule| !rule.allows)
    }

    /// Takes a place in each zone of `limit_conn`; `take` does so for the limit with this index.
    pub fn limit_session(
        &self,
        limits: &Limits,
        request: &Request<'_>,
        route_state: &mut RouteState,
        mut take: impl FnMut(usize, &[u8]) -> Taken,
    ) -> Limited {
        let is_dry_run = limits.connection_bound.is_dry_run;
        for (at, limit) in limits.connections.iter().enumerate() {
            let Some(zone) = self.config().http.zones.get(limit.zone.0 as usize) else { continue };
            let mut key = mem::take(&mut route_state.value);
            key.clear();
            expand(&zone.key, self, request, route_state, None, &mut key);
            let taken = (1..=KEY_MAX).contains(&key.len()).then(|| take(at, &key));
            route_state.value = key;
            let limited = match taken {
                None => continue,
                Some(Taken::Yes) => {
                    route_state.access_progress.connections = Some(LimitStatus::Passed);
                    continue;
                }
                Some(Taken::No) => Limited::By(at, !is_dry_run),
                Some(Taken::NoRoom) => Limited::NoRoom(at, !is_dry_run),
            };
            let status =
                if is_dry_run { LimitStatus::RejectedDryRun } else { LimitStatus::Rejected };
            route_state.access_progress.connections = Some(status);
            return limited;
        }
        Limited::No
    }

    /// Runs the `set`s of the server.
    pub fn assign_in_stream(&self, request: &Request<'_>, route_state: &mut RouteState) {
        let Some(settings) = self.location(route_state.location).settings.stream.clone() else {
            return;
        };
        for (id, template) in &settings.assignments {
            let mut value = mem::take(&mut route_state.value);
            value.clear();
            expand(template, self, request, route_state, None, &mut value);
            route_state.assigned.set(id.0, &value);
            route_state.value = value;
        }
    }
}
