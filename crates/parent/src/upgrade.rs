//! The upgrade of the binary (`USR2`): the old parent starts the program that is now at its path, and gives it its
//! sockets and the state of the worker process. The new parent says whether it serves.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::RecvFlags;

use crate::delivery::{Delivery, Order, QUIC_LINK, is_child, take_stdin};
use crate::sockets::Held;
use crate::wire::{self, Packet};

/// Names the old parent in the environment of a new one.
const SUCCESSOR_OF: &str = "SEKISHO_SUCCESSOR_OF";
/// How long the worker process may take to leave its state, and the new parent until it serves.
pub(crate) const STATE_LIMIT: Duration = Duration::from_secs(1);
const READY_LIMIT: Duration = Duration::from_secs(10);

/// No more links are kept for a worker process.
const QUIC_LINKS_MAX: usize = 16;

/// What a worker process leaves for the next one. It is passed on, and not read here.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    pub(crate) file: Option<OwnedFd>,
    /// Links for datagrams of QUIC connections.
    pub(crate) quic_links: Vec<(u8, OwnedFd)>,
}

impl WorkerState {
    /// Keeps a link.
    pub(crate) fn take_link(&mut self, process: &[u8], link: OwnedFd) {
        let process = std::str::from_utf8(process).ok().and_then(|text| text.parse().ok());
        if let Some(process) = process.filter(|_| self.quic_links.len() < QUIC_LINKS_MAX) {
            self.quic_links.push((process, link));
        }
    }

    /// The packets that give it to a process.
    pub(crate) fn packets(&self) -> io::Result<Vec<Packet>> {
        let mut packets = Vec::new();
        for (process, link) in &self.quic_links {
            packets.push(Packet::new(QUIC_LINK, process.to_string(), Some(link.try_clone()?)));
        }
        if let Some(file) = &self.file {
            packets.push(Packet::new("state", "", Some(file.try_clone()?)));
        }
        Ok(packets)
    }
}

/// Whether this process was started to take over from a parent.
pub fn is_successor() -> bool {
    is_child(SUCCESSOR_OF)
}

/// A new parent that does not serve yet.
#[derive(Debug)]
pub(crate) struct Upgrade {
    pub(crate) child: Child,
    pub(crate) link: OwnedFd,
    pub(crate) ready_by: Duration,
}

impl Upgrade {
    /// Starts the new parent and gives it everything.
    pub(crate) fn start(
        mut program: Command,
        held: &[Held],
        state: &WorkerState,
        now: Duration,
    ) -> io::Result<Self> {
        let (link, theirs) = wire::pair()?;
        program.env(SUCCESSOR_OF, std::process::id().to_string());
        let child = program.stdin(Stdio::from(theirs)).spawn()?;
        let upgrade = Self { child, link, ready_by: now + READY_LIMIT };
        let mut packets = Vec::new();
        for held in held {
            packets.extend(held.packets()?);
        }
        packets.extend(state.packets()?);
        packets.push(Packet::new("start", "", None));
        // A program that does not read, such as one that is no server, is given up later.
        let _ = packets.iter().try_for_each(|packet| packet.send(&upgrade.link));
        Ok(upgrade)
    }

    /// What the new parent says: nothing yet, that it serves, or why it will not.
    pub(crate) fn outcome(&mut self, now: Duration) -> Option<Result<(), String>> {
        match wire::receive(&self.link, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) if packet.text == b"ready" => return Some(Ok(())),
            Ok(Some(packet)) => {
                let why = String::from_utf8_lossy(packet.split().1).into_owned();
                return Some(Err(format!("the new process says: {why}")));
            }
            _ => {}
        }
        match self.child.try_wait() {
            Ok(Some(status)) => Some(Err(format!("the new process ended: {status}"))),
            Err(error) => Some(Err(format!("cannot wait for the new process: {error}"))),
            Ok(None) if now >= self.ready_by => {
                Some(Err(format!("the new process was not ready within {READY_LIMIT:?}")))
            }
            Ok(None) => None,
        }
    }

    /// Ends the new parent, which ends its worker process.
    pub(crate) fn give_up(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a new parent has from the old one.
#[derive(Debug)]
pub(crate) struct Predecessor {
    link: OwnedFd,
    pub(crate) held: Vec<Held>,
    pub(crate) state: WorkerState,
}

impl Predecessor {
    /// Takes everything over, where this process was started for it.
    pub(crate) fn take() -> io::Result<Option<Self>> {
        if !is_successor() {
            return Ok(None);
        }
        let link = take_stdin()?;
        let mut delivery = Delivery::default();
        loop {
            let packet = wire::receive(&link, RecvFlags::empty())?;
            if delivery.take(packet.ok_or(io::ErrorKind::UnexpectedEof)?) == Some(Order::Start) {
                break;
            }
        }
        let mut held: Vec<Held> = Vec::new();
        for given in delivery.sockets {
            match held.iter_mut().find(|held| held.address == given.address) {
                Some(known) => known.sockets.push(given.socket),
                None => held.push(Held {
                    address: given.address,
                    sockets: vec![given.socket],
                    is_managers: given.is_managers,
                }),
            }
        }
        let file = delivery.state.map(OwnedFd::from);
        Ok(Some(Self { link, held, state: WorkerState { file, quic_links: delivery.quic_links } }))
    }

    /// Says that this process serves, or why it will not.
    pub(crate) fn report(&self, outcome: Result<(), &str>) {
        let text = match outcome {
            Ok(()) => "ready".to_owned(),
            Err(why) => format!("failed {why}"),
        };
        let _ = wire::send(&self.link, text.as_bytes(), None);
    }
}
