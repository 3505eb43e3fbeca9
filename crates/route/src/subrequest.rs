//! Requests within a request: what they ask for, and what becomes of their answers.

use sekisho_config::{Assignee, LocationId};
use sekisho_http::{Method, Status};

use crate::route_state::RouteState;

/// What a request within a request is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubrequestTarget {
    /// Its path, decoded.
    pub path: Vec<u8>,
    /// Its arguments.
    pub query: Vec<u8>,
    /// Its method; GET for nearly all.
    pub method: Method,
    /// It is the next slice of the same resource, which begins here: it goes on where the request around it stands.
    pub slice_start: Option<u64>,
}

impl SubrequestTarget {
    /// GET for a path without arguments.
    pub fn get(path: &[u8]) -> Self {
        Self { path: path.to_vec(), query: Vec::new(), method: Method::Get, slice_start: None }
    }
}

/// What `auth_request` was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthAnswer {
    /// For which location, and after how many redirects: another one asks anew.
    asked_at: (LocationId, u8),
    /// The status.
    pub(crate) status: Status,
    /// The values of its `WWW-Authenticate`s.
    pub(crate) challenges: Vec<Vec<u8>>,
}

impl AuthAnswer {
    pub(crate) fn is_for(&self, location: LocationId, redirects: u8) -> bool {
        self.asked_at == (location, redirects)
    }
}

/// What `random_index` found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Picked {
    /// Nothing was looked for.
    #[default]
    NotAsked,
    /// There is no file.
    Nothing,
    /// This one.
    File(Vec<u8>),
}

impl RouteState {
    /// Keeps what `auth_request` was answered.
    pub fn note_auth(&mut self, status: Status, challenges: Vec<Vec<u8>>) {
        let asked_at = (self.location, self.redirects);
        self.auth = Some(Box::new(AuthAnswer { asked_at, status, challenges }));
    }

    /// Gives a variable its value.
    pub fn assign(&mut self, assignee: Assignee, value: &[u8]) {
        match assignee {
            Assignee::Variable(id) => self.assigned.set_at(id.0, value, self.captures.count()),
            Assignee::Args => value.clone_into(&mut self.query),
            Assignee::LimitRate => {
                let size = std::str::from_utf8(value).ok();
                let size = size.and_then(|text| sekisho_config::value::size(text).ok());
                self.limit_rate = size.or(self.limit_rate);
            }
        }
    }

    /// Takes over what a request within this one has set: both have the same variables, as in nginx.
    pub fn share_assigned(&mut self, inner: &Self) {
        self.assigned.clone_from(&inner.assigned);
    }
}
