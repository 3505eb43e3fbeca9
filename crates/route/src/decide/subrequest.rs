//! Requests within a request, and what else the way to an answer waits for.

use sekisho_http::Status;

use super::{Decision, Next};
use crate::access_checks::Wait;
use crate::action::{Action, Files};
use crate::route_state::{Request, RouteState};
use crate::subrequest::{Picked, SubrequestTarget};
use crate::table::Table;

impl Table {
    /// The whole decision for a request within another one, whose route state is `outer`: the same server, the same
    /// client, the same variables. As in nginx access is not checked, `internal` locations are open, and all else
    /// is as for any request. Whatever the route state held is gone.
    pub fn decide_subrequest<F: Files>(
        &self,
        target: &SubrequestTarget,
        outer: &RouteState,
        request: &Request<'_>,
        route_state: &mut RouteState,
        files: &mut F,
    ) -> Action<F::File> {
        route_state.clear();
        route_state.server = outer.server;
        route_state.is_routed = outer.is_routed;
        if !route_state.is_routed {
            return Action::Error(Status::INTERNAL_SERVER_ERROR);
        }
        route_state.location = self.server(outer.server).root;
        route_state.host.clone_from(&outer.host);
        route_state.real_address = outer.real_address;
        route_state.assigned.clone_from(&outer.assigned);
        route_state.captures.clone_from(&outer.captures);
        route_state.access_progress.clone_from(&outer.access_progress);
        route_state.decided = Some(request.request_id);
        route_state.method = target.method;
        route_state.path.clone_from(&target.path);
        route_state.query.clone_from(&target.query);
        route_state.is_internal = true;
        route_state.is_moved = true;
        route_state.is_subrequest = true;
        let mut decision = Decision { table: self, request, route_state, files };
        let first = match target.slice_start {
            None => Next::Path,
            Some(start) => {
                decision.route_state.location = outer.location;
                decision.route_state.is_moved = outer.is_moved;
                decision.route_state.slice_start.set(Some(start));
                decision.content()
            }
        };
        decision.run(first)
    }
}

impl<F: Files> Decision<'_, F> {
    /// Copies of the request are for other locations, too.
    pub(super) fn note_mirrors(&mut self) {
        if self.settings().mirrors.is_some() && !self.route_state.is_subrequest {
            self.route_state.mirrored.push(self.route_state.location);
        }
    }

    /// `random_index`; `None` where there is no file.
    pub(super) fn random_file(&mut self) -> Option<Next<F::File>> {
        match std::mem::take(&mut self.route_state.picked) {
            Picked::NotAsked => Some(Next::Done(Action::Wait(Wait::RandomFile))),
            Picked::Nothing => None,
            Picked::File(name) => Some(match self.count_redirect() {
                Ok(()) => {
                    self.route_state.path.extend_from_slice(&name);
                    self.route_state.is_moved = true;
                    Next::Path
                }
                Err(next) => next,
            }),
        }
    }
}
