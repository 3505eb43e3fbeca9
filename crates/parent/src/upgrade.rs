//! The upgrade of the binary (`USR2`): the old parent starts the program that is now at its path, and gives it its
//! sockets and the state of the worker process. The new parent says whether it serves.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::RecvFlags;

use crate::delivery::{Delivery, Order, is_child, take_stdin};
use crate::sockets::Held;
use crate::wire::{self, Packet};

/// Names the old parent in the environment of a new one.
const SUCCESSOR_OF: &str = "SEKISHO_SUCCESSOR_OF";
/// How long the worker process may take to leave its state, and the new parent until it serves.
pub(crate) const STATE_LIMIT: Duration = Duration::from_secs(1);
const READY_LIMIT: Duration = Duration::from_secs(10);

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
        state: Option<&OwnedFd>,
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
        if let Some(state) = state {
            packets.push(Packet::new("state", "", Some(state.try_clone()?)));
        }
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
    pub(crate) state: Option<File>,
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
        Ok(Some(Self { link, held, state: delivery.state }))
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
