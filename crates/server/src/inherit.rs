//! What a new server has from the process that started it.

use std::fs::File;
use std::path::PathBuf;

use sekisho_config::{Config, Level};
use sekisho_net::Sockets;
use sekisho_net::quic_process::ProcessLink;

use crate::local_socket::LocalSockets;
use crate::upgrade::Inheritance;
use crate::{Problem, opening, parent_link};

/// What it need not open itself.
pub(crate) enum Shared {
    /// The control socket: the parent has the pid file, and hands over.
    OfParent(LocalSockets),
    /// The pid file, where it could not be put aside.
    OfPredecessor(Option<(PathBuf, File)>),
}

/// What a server takes over from the process that started it: its parent, or the one that it replaces.
pub(crate) struct Inherit {
    pub(crate) predecessor: Option<u32>,
    pub(crate) is_drained: bool,
    pub(crate) inherited: Sockets,
    pub(crate) shared: Shared,
    pub(crate) quic_links: Vec<ProcessLink>,
    pub(crate) complaints: Vec<String>,
    pub(crate) notes: Vec<(Level, String)>,
}

impl Inherit {
    /// Takes it.
    pub(crate) fn take(
        of_parent: Option<parent_link::Start>,
        config: &Config,
    ) -> Result<Self, Problem> {
        if let Some(start) = of_parent {
            let none = Sockets::default();
            let inherited = none.with_given(&none, start.sockets, start.failed);
            return Ok(Self {
                predecessor: None,
                is_drained: start.is_drained,
                inherited: inherited.map_err(Problem::new)?,
                shared: Shared::OfParent(start.control),
                quic_links: start.quic_links,
                complaints: Vec::new(),
                notes: start.notes,
            });
        }
        let inheritance = Inheritance::take()?;
        let predecessor = inheritance.as_ref().map(Inheritance::from);
        let is_drained = inheritance.as_ref().is_some_and(Inheritance::is_drained);
        let offer = inheritance.map(|inheritance| inheritance.offer).unwrap_or_default();
        let (inherited, complaints) = opening::inherited(offer.sockets, config)?;
        let (shared, notes) = (Shared::OfPredecessor(offer.pid_file), Vec::new());
        let quic_links = offer.quic_links;
        Ok(Self { predecessor, is_drained, inherited, shared, quic_links, complaints, notes })
    }
}
