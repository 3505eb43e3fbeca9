//! The routing table: a configuration with what makes looking things up in it quick. Built once,
//! immutable, shared by all workers.

use std::collections::HashMap;
use std::sync::Arc;

use sekisho_config::{Config, Location, LocationId, LocationMatch, Server, ServerId};
use sekisho_http::{Head, Known, Status, target};

use crate::address_database::AddressDatabase;
use crate::capture::Captures;
use crate::location::{self, Level};
use crate::path_mapping::{self, AliasFrom};
use crate::route_state::RouteState;
use crate::server_name::ServerNames;

/// The routing table of a configuration.
#[derive(Debug)]
pub struct Table {
    config: Arc<Config>,
    machine: Machine,
    /// Of `geoip2`.
    databases: Vec<Arc<AddressDatabase>>,
    /// By listen address.
    names: Vec<ServerNames>,
    /// By location.
    levels: Vec<Level>,
    /// By location.
    aliases: Vec<AliasFrom>,
    /// By server.
    named: Vec<HashMap<Box<str>, LocationId>>,
}

/// What is known about the machine and the process, for `$hostname` and `$pid`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// `$hostname`
    pub hostname: String,
    /// `$pid`
    pub pid: u32,
}

impl Table {
    /// The table of a configuration.
    pub fn new(config: Arc<Config>) -> Self {
        let http = &config.http;
        let names = http.listens.iter().map(|listen| ServerNames::new(http, listen)).collect();
        let mut levels: Vec<Level> = http
            .locations
            .iter()
            .map(|location| Level::new(&http.locations, &location.locations))
            .collect();
        let mut named_locations = Vec::with_capacity(http.servers.len());
        for server in &http.servers {
            if let Some(level) = levels.get_mut(server.root.0 as usize) {
                *level = Level::new(&http.locations, &server.locations);
            }
            named_locations.push(named_of(&http.locations, server));
        }
        let aliases = AliasFrom::of_all(http);
        let (machine, databases) = (Machine::default(), Vec::new());
        Self { machine, databases, names, levels, aliases, named: named_locations, config }
    }

    /// The same table with the databases that the configuration names, in their order.
    #[must_use]
    pub fn with_databases(mut self, databases: Vec<Arc<AddressDatabase>>) -> Self {
        self.databases = databases;
        self
    }

    /// The databases of `geoip2`.
    pub(crate) fn databases(&self) -> &[Arc<AddressDatabase>] {
        &self.databases
    }

    /// The same table, knowing the machine it is used on.
    #[must_use]
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A location. The id must be of this table's configuration, as those in a routed exchange are.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.config.http.locations[id.0 as usize]
    }

    /// A server. The id must be of this table's configuration, as those in a routed exchange are.
    pub fn server(&self, id: ServerId) -> &Server {
        &self.config.http.servers[id.0 as usize]
    }

    /// Which server: by the authority of an absolute target or by `Host`, among those at this listen
    /// address; its default one otherwise. Clears the exchange and fills in host, server and method;
    /// the location is the server's own for now. An invalid host is an error (400), with the default
    /// server chosen.
    pub fn choose_server(
        &self,
        listen: usize,
        head: &Head,
        route_state: &mut RouteState,
    ) -> Result<(), Status> {
        route_state.clear();
        route_state.method = head.method();
        let names = self.names.get(listen).ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let authority = target::split_authority(head.target()).map(|(authority, _)| authority);
        let result = match authority.or_else(|| head.known(Known::Host)) {
            Some(value) => target::host(value, &mut route_state.host),
            None => Ok(()),
        };
        route_state.server = match result {
            Ok(()) => names.find(&route_state.host, &mut route_state.captures),
            Err(_) => names.default_server(),
        };
        let http = &self.config.http;
        let server = http.servers.get(route_state.server.0 as usize);
        route_state.location = server.ok_or(Status::INTERNAL_SERVER_ERROR)?.root;
        if http.locations.get(route_state.location.0 as usize).is_none() {
            return Err(Status::INTERNAL_SERVER_ERROR);
        }
        route_state.is_routed = true;
        result.map_err(|_| Status::BAD_REQUEST)
    }

    /// Which server has this name at a listen address; its default one where none has. For a name that was
    /// asked for before any request (SNI).
    pub fn server_named(&self, listen: usize, name: &[u8]) -> Option<ServerId> {
        self.find_named(listen, &name.to_ascii_lowercase(), &mut Captures::default())
    }

    /// The same for a name in lower case, with what its expression has captured.
    pub(crate) fn find_named(
        &self,
        listen: usize,
        name: &[u8],
        captures: &mut Captures,
    ) -> Option<ServerId> {
        Some(self.names.get(listen)?.find(name, captures))
    }

    /// Drops fields with odd names by the settings of the request's server (`ignore_invalid_headers`,
    /// `underscores_in_headers`): to be called before anything reads the fields of a head that was received.
    pub fn drop_fields(&self, listen: usize, head: &mut Head) {
        if !head.has_odd_names() {
            return;
        }
        let mut route_state = RouteState::default();
        let _ = self.choose_server(listen, head, &mut route_state);
        let Some(server) = self.config.http.servers.get(route_state.server.0 as usize) else {
            return;
        };
        if server.ignore_invalid_headers {
            head.drop_odd_names(server.underscores_in_headers);
        }
    }

    /// Which location of a server answers for a path that a client asks for.
    pub fn location_of(&self, server: ServerId, path: &[u8]) -> LocationId {
        self.find_location(server, path, &mut Captures::default())
    }

    /// Whether a server may have other locations for paths below a folder than for the folder: a prefix or
    /// an exact path that is longer, or any regular expression.
    pub(crate) fn may_have_locations_below(&self, server: ServerId, folder: &[u8]) -> bool {
        let of_server = |location: &&Location| location.server == server;
        self.config().http.locations.iter().filter(of_server).any(|location| {
            match &location.matches {
                LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => {
                    path.len() > folder.len() && path.starts_with(folder)
                }
                LocationMatch::Regex(_) => true,
                LocationMatch::Named(_) | LocationMatch::Server | LocationMatch::If => false,
            }
        })
    }

    pub(crate) fn find_location(
        &self,
        server: ServerId,
        path: &[u8],
        captures: &mut Captures,
    ) -> LocationId {
        location::find(&self.levels, self.server(server).root, path, captures)
    }

    pub(crate) fn named_location(&self, server: ServerId, name: &str) -> Option<LocationId> {
        self.named.get(server.0 as usize)?.get(name).copied()
    }

    pub(crate) fn alias_from(&self, id: LocationId) -> AliasFrom {
        self.aliases.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Whether anything is run before a location, or its server, is used.
    pub(crate) fn has_script(&self, id: LocationId) -> bool {
        let location = self.location(id);
        let server = self.location(self.server(location.server).root);
        [location, server].iter().any(|one| one.settings.rewriting.script.is_some())
    }

    /// Whether this path is the very one that the location is called by.
    pub(crate) fn is_path_of(&self, id: LocationId, path: &[u8]) -> bool {
        match &self.location(id).matches {
            LocationMatch::Exact(own) | LocationMatch::Prefix { path: own, .. } => own == path,
            _ => false,
        }
    }

    /// Whether the folder of a location's files does not depend on variables.
    pub(crate) fn is_place_fixed(&self, id: LocationId) -> bool {
        path_mapping::template_of(&self.location(id).settings.path_mapping).as_literal().is_some()
    }
}

fn named_of(locations: &[Location], server: &Server) -> HashMap<Box<str>, LocationId> {
    let ids = server.locations.iter();
    ids.filter_map(|&id| match &locations.get(id.0 as usize)?.matches {
        LocationMatch::Named(name) => Some((name.as_str().into(), id)),
        _ => None,
    })
    .collect()
}
