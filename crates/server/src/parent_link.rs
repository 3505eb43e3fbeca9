//! The worker process's side of the parent (`sekisho-parent`): what it got at the start, and the orders that follow.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use sekisho_config::{Level, ListenAddress};
use sekisho_lifecycle::Manner;
use sekisho_lifecycle::drain::{Fact, Order as DrainOrder};
use sekisho_net::listen::{Holder, Inherited};
use sekisho_net::quic_process::{self, ProcessLink};
use sekisho_parent::{Delivery, GivenSocket, Link, Order, Say};
use tokio::io::Interest;

use crate::local_socket::LocalSockets;
use crate::reload::ReloadResult;
use crate::run::Server;
use crate::upgrade::Asked;
use crate::{Problem, privilege};

/// There is one parent of a process.
static LINK: OnceLock<Link> = OnceLock::new();

/// How long running requests may take to finish when nobody looks after this process any more.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);
/// The state of the process before this one has at most so many bytes.
const STATE_BYTES_MAX: u64 = 1 << 20;
const DRAINED: &str = "drained\n";

/// The connection to the parent, where there is one.
pub(crate) fn link() -> Option<&'static Link> {
    LINK.get()
}

/// The process that operators know the server by: its number is in the pid file.
pub(crate) fn main_pid() -> u32 {
    let parent = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    link().and_then(|_| parent()).unwrap_or_else(std::process::id)
}

/// Tells the parent that we cannot serve, and why.
pub(crate) fn tell_failure(problem: &Problem) {
    if let Some(link) = link() {
        link.say(&Say::Failed(&problem.0));
    }
}

/// What the parent gave us to start with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) sockets: Vec<Inherited>,
    pub(crate) failed: Vec<(ListenAddress, io::Error)>,
    pub(crate) control: LocalSockets,
    pub(crate) quic_links: Vec<ProcessLink>,
    pub(crate) notes: Vec<(Level, String)>,
    pub(crate) is_drained: bool,
}

/// Where a parent has started this process: takes what it gives, and becomes its user before anything is read.
pub(crate) fn start() -> Result<Option<Start>, Problem> {
    let failed = |error: io::Error| Problem::new(format_args!("the parent process: {error}"));
    let Some(link) = Link::take().map_err(failed)? else { return Ok(None) };
    name_like_parent();
    let link = LINK.get_or_init(|| link);
    let delivery = link.receive_start().map_err(failed)?;
    if let Some(user) = delivery.user.as_ref().filter(|user| user.uid != 0) {
        privilege::become_worker(user)?;
    }
    sekisho_openings::replace(Some(delivery.given));
    let listeners: Vec<UnixListener> = delivery.control.into_iter().map(Into::into).collect();
    let mut state = String::new();
    let is_file = |file: &File| file.metadata().is_ok_and(|about| about.is_file());
    if let Some(mut file) = delivery.state.filter(is_file) {
        // Without it clients shake hands anew.
        let _ = io::Seek::rewind(&mut file)
            .and_then(|()| file.take(STATE_BYTES_MAX).read_to_string(&mut state));
    }
    let is_drained = state.starts_with(DRAINED);
    sekisho_net::tls::take_over_ticket_secrets(state.strip_prefix(DRAINED).unwrap_or(&state));
    Ok(Some(Start {
        sockets: delivery.sockets.into_iter().map(inherited).collect(),
        failed: delivery.failed,
        control: LocalSockets { listeners, file: None, complaint: None },
        quic_links: delivery.quic_links.into_iter().map(quic_link).collect(),
        notes: delivery.notes,
        is_drained,
    }))
}

/// A program that is started as `/proc/self/exe` would be called `exe` in lists of processes.
fn name_like_parent() {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    if let Ok(name) = std::ffi::CString::new(name.trim_end()) {
        let _ = rustix::thread::set_name(&name);
    }
}

pub(crate) fn inherited(given: GivenSocket) -> Inherited {
    let holder = if given.is_managers { Holder::Manager } else { Holder::Parent };
    Inherited { address: given.address, socket: given.socket, holder }
}

fn quic_link((process, socket): (u8, OwnedFd)) -> ProcessLink {
    ProcessLink { process, socket }
}

/// Orders of the parent, and who waits for what it does.
#[derive(Debug)]
pub(crate) struct Orders {
    /// The runtime's type for datagrams is used only to wait.
    socket: Option<tokio::net::UnixDatagram>,
    delivery: Delivery,
    /// Operators that asked for a reload, by the number of their request.
    pub(crate) reloads: Vec<(u64, tokio::sync::oneshot::Sender<ReloadResult>)>,
    /// Operators that wait for the logs to be opened again.
    pub(crate) reopenings: Vec<tokio::sync::oneshot::Sender<ReloadResult>>,
    asked: u64,
    /// Operators that asked for an upgrade.
    pub(crate) upgrades: Vec<Asked>,
}

impl Orders {
    /// The orders to this process. Called inside of a runtime.
    pub(crate) fn of_parent() -> Result<Self, Problem> {
        let register = |link: &Link| -> io::Result<tokio::net::UnixDatagram> {
            let socket: OwnedFd = link.socket.try_clone()?;
            let socket = UnixDatagram::from(socket);
            socket.set_nonblocking(true)?;
            tokio::net::UnixDatagram::from_std(socket)
        };
        let socket = link().map(register).transpose();
        let socket =
            socket.map_err(|error| Problem::new(format_args!("the parent process: {error}")))?;
        let (reloads, reopenings, upgrades) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { socket, delivery: Delivery::default(), reloads, reopenings, asked: 0, upgrades })
    }

    /// The next order; never where there is no parent.
    pub(crate) async fn next(&mut self) -> (Order, Delivery) {
        let (Some(link), Some(socket)) = (link(), &self.socket) else {
            return std::future::pending().await;
        };
        loop {
            let packet = socket.async_io(Interest::READABLE, || link.try_receive()).await;
            let Ok(Some(packet)) = packet else {
                // It says nothing more.
                self.socket = None;
                return (Order::Orphaned, Delivery::default());
            };
            if let Some(order) = self.delivery.take(packet) {
                return (order, std::mem::take(&mut self.delivery));
            }
        }
    }

    /// Asks the parent for a reload, for an operator that waits for the result.
    pub(crate) fn ask_for_reload(
        &mut self,
        link: &Link,
        answer: Option<tokio::sync::oneshot::Sender<ReloadResult>>,
    ) {
        self.asked += 1;
        self.reloads.extend(answer.map(|answer| (self.asked, answer)));
        link.say(&Say::Reload);
    }
}

impl Server {
    /// Does what the parent orders.
    pub(crate) async fn obey(&mut self, order: Order, delivery: Delivery) -> DrainOrder {
        match order {
            Order::Start => {}
            Order::Note => {
                for (level, text) in &delivery.notes {
                    self.log(*level, text);
                }
            }
            Order::Reload(number) => self.reload_as_ordered(number, delivery).await,
            Order::Reopen => {
                let mut given = sekisho_openings::replace(None).unwrap_or_default();
                given.logs = delivery.given.logs;
                given.refused.extend(delivery.given.refused);
                let reopened: Vec<_> = given.logs.keys().cloned().collect();
                given.refused.retain(|path, _| !reopened.contains(path));
                sekisho_openings::replace(Some(given));
                self.reopen_logs();
            }
            Order::State => self.leave_state(),
            Order::Quit => return self.end(Manner::Graceful),
            Order::Stop => return self.end(Manner::Forceful),
            Order::Replaced(by) => {
                for asked in self.orders.upgrades.drain(..) {
                    let _ = asked.send(Ok(()));
                }
                return self.drain_for(by);
            }
            Order::UpgradeFailed(why) => {
                self.log(Level::Emerg, &format!("upgrade failed, this process continues: {why}"));
                for asked in self.orders.upgrades.drain(..) {
                    let _ = asked.send(Err(why.clone()));
                }
            }
            Order::Orphaned => {
                self.drain.set_grace(Some(ORPHAN_LIMIT));
                // The sockets may be those of a process that still serves: they stay as they are.
                self.is_replaced = true;
                self.log(Level::Alert, "the parent process has ended: this process ends, too");
                return self.tell_drain(Fact::Asked(Manner::Graceful));
            }
        }
        DrainOrder::Nothing
    }

    async fn reload_as_ordered(&mut self, number: u64, delivery: Delivery) {
        let before = sekisho_openings::replace(Some(delivery.given));
        let sockets = delivery.sockets.into_iter().map(inherited).collect();
        self.given_sockets = Some((sockets, delivery.failed));
        let result = self.reload().await;
        self.given_sockets = None;
        if !result.is_good {
            // What the configuration in use names is not in the new set.
            sekisho_openings::replace(before);
        }
        if let Some(link) = link() {
            let status = self.status();
            let failed = format!("{status}; the last reload failed");
            let status = if result.is_good { &status } else { &failed };
            link.say(&Say::Verdict(result.is_good, status));
        }
        let served = self.orders.reloads.extract_if(.., |(of, _)| *of <= number);
        for (_, answer) in served.collect::<Vec<_>>() {
            let _ = answer.send(result.clone());
        }
    }

    /// Leaves what the next process needs: whether an operator drains this server, the secrets of TLS tickets, and links
    /// for datagrams of QUIC connections.
    fn leave_state(&self) {
        let is_drained = self.workers.shared().is_drained.load(Ordering::Relaxed);
        let secrets = sekisho_net::tls::hand_over_ticket_secrets();
        let write = || -> io::Result<File> {
            let mut file = File::from(rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC)?);
            file.write_all(if is_drained { DRAINED.as_bytes() } else { b"" })?;
            file.write_all(secrets.as_bytes())?;
            Ok(file)
        };
        let links = quic_process::hand_over(&self.workers.shared()).unwrap_or_else(|error| {
            self.log(Level::Error, &format!("no links for QUIC connections: {error}"));
            Vec::new()
        });
        let links: Vec<_> = links.into_iter().map(|link| (link.process, link.socket)).collect();
        match (write(), link()) {
            (Ok(file), Some(link)) => link.leave_state(&file, &links),
            (Err(error), _) => {
                self.log(Level::Warn, &format!("the state cannot be handed over: {error}"));
            }
            (Ok(_), None) => {}
        }
    }
}
