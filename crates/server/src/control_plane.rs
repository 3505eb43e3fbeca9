//! The control plane: one thread that serves the server's own control socket, an abstract Unix socket named `sekisho/<pid>` with a file beside it
//! (`local_socket.rs`) that every server has. From
//! here every session of every protocol is seen and controlled: the workers are asked by their order channels,
//! what concerns the whole server is asked of the main thread.
//!
//! It is a thread of its own so that it answers when the workers are busy, full or gone.

mod control;
mod host;
mod identities;
mod memory;
mod memory_guard;
mod metrics;
mod nodes;
mod overview;
mod rules;
mod status;
mod worker_registry;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sekisho_config::{Endpoint, Listen, ServerId};
use sekisho_lifecycle::Manner;
use sekisho_log::Logs;
use sekisho_net::worker::Shared;
use sekisho_net::{Site, WorkerCommand};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::cluster::Cluster;
use crate::local_socket::{LocalSockets, SocketFile};
use crate::reload::ReloadResult;
use crate::{Problem, privilege};

pub(crate) use identities::{Identities, IdentityProblem};
pub(crate) use rules::Rules;

/// How long the thread may take to end its sessions when the process ends.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

/// The commands of the main thread to the control plane.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Serve operators under these rules from now on, and write into this site's log.
    Serve(Box<Rules>, Arc<Site>),
    /// The workers; the first ones, so many, serve, and the others finish their sessions.
    Workers(Vec<(String, UnboundedSender<WorkerCommand>)>, usize),
    /// The server is about to end. An operator may stay.
    ShutDown,
    /// The process ends: every session ends.
    End,
}

/// What an operator asks of the whole server through the control plane.
#[derive(Debug)]
pub(crate) enum ServerRequest {
    /// Read the configuration again.
    Reload(oneshot::Sender<ReloadResult>),
    /// Open the log files again.
    Reopen(oneshot::Sender<ReloadResult>),
    /// Have the program that is now at this one's path take over; answered when it serves, or with the
    /// reason why it does not.
    Upgrade(oneshot::Sender<Result<(), String>>),
    /// End.
    Stop(Manner, oneshot::Sender<()>),
    /// The thread has ended.
    Ended,
}

/// The control plane, seen from the main thread.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    commands: UnboundedSender<ControlCommand>,
    requests: UnboundedReceiver<ServerRequest>,
    thread: Option<JoinHandle<()>>,
    /// The control socket's, for as long as it is listened on.
    _file: Option<SocketFile>,
}

/// The addresses of the block as sockets are opened for.
pub(crate) fn listens(endpoint: &Endpoint) -> Vec<Listen> {
    let listen = |(address, options): &(_, sekisho_config::ListenOptions)| Listen {
        address: Clone::clone(address),
        default_server: ServerId(0),
        servers: Vec::new(),
        options: options.clone(),
    };
    endpoint.listens.iter().map(listen).collect()
}

impl ControlPlane {
    /// Starts the thread. What it asks of other nodes goes to the cluster.
    pub(crate) fn start(
        control_socket: Option<LocalSockets>,
        started: Instant,
        shared: Arc<Shared>,
        logs: Arc<Logs>,
    ) -> Result<(Self, Cluster), Problem> {
        let (commands, inbox) = unbounded_channel();
        let (outbox, requests) = unbounded_channel();
        let exit_notifier = ExitNotifier(outbox.clone());
        let (ask, questions) = unbounded_channel();
        let (to_control, calls) = unbounded_channel();
        // There is one control plane in a process.
        let _ = shared.status.set(ask);
        let _ = shared.control_calls.set(to_control);
        let (to_cluster, asked) = unbounded_channel();
        let cluster = Cluster::new(asked, &shared, started);
        let (listeners, file) = control_socket
            .map_or_else(Default::default, |sockets| (sockets.listeners, sockets.file));
        let watched = shared.watched_threads.add("control", &shared.wake_alarm);
        let body = move || {
            let _exit_notifier = exit_notifier;
            if privilege::give_up_rest_in_thread().is_err() {
                // A control plane with more rights than intended must not serve; in practice this does not
                // fail.
                return;
            }
            host::run(
                (listeners, watched),
                started,
                (shared, logs),
                (inbox, questions, calls),
                (outbox, to_cluster),
            );
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(body).map_err(
            |error| Problem::new(format_args!("cannot start the control plane: {error}")),
        )?;
        Ok((Self { commands, requests, thread: Some(thread), _file: file }, cluster))
    }

    /// Sends it a command. A control plane that has ended gets none; its end is noticed elsewhere.
    pub(crate) fn tell(&self, command: ControlCommand) {
        let _ = self.commands.send(command);
    }

    /// The next word from it.
    pub(crate) async fn next(&mut self) -> ServerRequest {
        match self.requests.recv().await {
            Some(request_of) => request_of,
            None => std::future::pending().await,
        }
    }

    /// Ends every session and waits for that, but not for ever.
    pub(crate) fn end(&mut self) {
        self.tell(ControlCommand::End);
        let Some(thread) = self.thread.take() else { return };
        let (done, ended) = std::sync::mpsc::channel();
        let waiter = std::thread::Builder::new().spawn(move || {
            // One that panicked has said so on stderr.
            let _ = thread.join();
            let _ = done.send(());
        });
        if waiter.is_ok() {
            let _ = ended.recv_timeout(GOODBYE_LIMIT);
        }
    }
}

/// Tells of the thread's end, however it comes.
struct ExitNotifier(UnboundedSender<ServerRequest>);

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        let _ = self.0.send(ServerRequest::Ended);
    }
}
