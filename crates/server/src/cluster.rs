//! Several servers as one (`cluster`): each node announces itself at a NATS server, answers what another node is asked
//! about it, and asks others for its own operators. It is a thread beside the workers: no request waits for it, and
//! without NATS every node is controlled alone, as ever.
//!
//! What the nodes say to each other are the requests of the service `control` and their answers (`message`).

mod connection;
mod membership;
mod message;
mod peers;
mod view;

use std::sync::Arc;
use std::time::Instant;

use sekisho_endpoint::Code;
use sekisho_endpoint::control::NodeList;
use sekisho_net::Site;
use sekisho_net::worker::Shared;
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::sync::{oneshot, watch};

use crate::{Problem, background};

pub(crate) use membership::{Membership, MembershipProblem};

/// What an answer says at its end.
pub(crate) type Answer = Result<Vec<u8>, (Code, String)>;

/// What operators of this node ask of others.
#[derive(Debug)]
pub(crate) enum Question {
    /// Which nodes there are.
    Nodes(oneshot::Sender<Result<NodeList, (Code, String)>>),
    /// A request of the service `control` to another node.
    Control {
        /// The node.
        node: String,
        /// The operator.
        asker: String,
        /// The request.
        body: Vec<u8>,
        /// Where records and the answer go.
        parts: Sender<Part>,
    },
}

/// What comes back.
#[derive(Debug)]
pub(crate) enum Part {
    Record(Vec<u8>),
    Answer(Answer),
}

/// What the thread works with: the membership and the log of the configuration in use.
#[derive(Clone)]
struct Setting {
    /// None where there is no `cluster`, and when this process is about to end.
    membership: Option<Arc<Membership>>,
    site: Arc<Site>,
}

/// The thread. It ends with the process.
#[derive(Debug)]
pub(crate) struct Cluster {
    settings: Option<watch::Sender<Setting>>,
    questions: Option<UnboundedReceiver<Question>>,
    shared: Arc<Shared>,
    started: Instant,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Setting").field("membership", &self.membership).finish_non_exhaustive()
    }
}

impl Cluster {
    /// For these questions.
    pub(crate) fn new(
        questions: UnboundedReceiver<Question>,
        shared: &Arc<Shared>,
        started: Instant,
    ) -> Self {
        let shared = Arc::clone(shared);
        Self { settings: None, questions: Some(questions), shared, started }
    }

    /// Joins the cluster of this configuration; starts the thread with the first one that has one.
    pub(crate) fn take_up(
        &mut self,
        membership: Option<&Arc<Membership>>,
        site: &Arc<Site>,
    ) -> Result<(), Problem> {
        let setting = Setting { membership: membership.cloned(), site: Arc::clone(site) };
        if let Some(settings) = &self.settings {
            settings.send_replace(setting);
            return Ok(());
        }
        if setting.membership.is_none() {
            return Ok(());
        }
        let Some(questions) = self.questions.take() else { return Ok(()) };
        let (settings, changes) = watch::channel(setting);
        // The service `control` of this process, which is there before any cluster.
        let Some(calls) = self.shared.control_calls.get().cloned() else { return Ok(()) };
        let started = self.started;
        let work = move || view::run(changes, questions, calls, started);
        background::spawn("cluster", &self.shared, work)?;
        self.settings = Some(settings);
        Ok(())
    }

    /// This process is about to end, or another has taken over: others shall not ask it any more.
    pub(crate) fn leave(&self) {
        if let Some(settings) = &self.settings {
            settings.send_modify(|setting| setting.membership = None);
        }
    }
}
