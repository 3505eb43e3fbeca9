//! What a worker process gets from its parent: descriptors and orders; and the few words that it can say back.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::RecvFlags;
use sekisho_config::{Level, ListenAddress};
use sekisho_openings::Given;

use crate::wire::{self, Packet};

/// Names the parent in the environment of a worker process.
pub(crate) const WORKER_OF: &str = "SEKISHO_WORKER_OF";

/// The word before the number of a process, in packets with a link for its QUIC connections.
pub(crate) const QUIC_LINK: &str = "quic-link";

/// The user that a worker process becomes before anything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerUser {
    /// Its number.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
    /// Whether the process can never gain rights (`no_new_privs`).
    pub is_bound: bool,
}

impl WorkerUser {
    pub(crate) fn text(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        format!("{} {} {} {}", self.uid, self.gid, u8::from(self.is_bound), groups.join(","))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let mut number = || words.next()?.parse::<u32>().ok();
        let (uid, gid, is_bound) = (number()?, number()?, number()? == 1);
        let groups = words.next().unwrap_or_default().split(',').filter(|it| !it.is_empty());
        let groups = groups.map(|it| it.parse().ok()).collect::<Option<_>>()?;
        Some(Self { uid, gid, groups, is_bound })
    }
}

/// A listening socket that the parent has bound, or was given by a service manager.
#[derive(Debug)]
pub struct GivenSocket {
    /// Where it is bound.
    pub address: ListenAddress,
    /// The descriptor.
    pub socket: OwnedFd,
    /// Whether it listens already, with the options of a service manager.
    pub is_managers: bool,
}

/// What came before an order.
#[derive(Debug, Default)]
pub struct Delivery {
    /// At a start: the user to become; none to stay what it is.
    pub user: Option<WorkerUser>,
    /// Files, logs and texts of the configuration.
    pub given: Given,
    /// Sockets that are new.
    pub sockets: Vec<GivenSocket>,
    /// Addresses that could not be bound.
    pub failed: Vec<(ListenAddress, io::Error)>,
    /// The listeners of the control socket.
    pub control: Vec<OwnedFd>,
    /// What the worker process before this one left for the next.
    pub state: Option<File>,
    /// Links for datagrams of QUIC connections of earlier processes, which are known by a number.
    pub quic_links: Vec<(u8, OwnedFd)>,
    /// For the error log.
    pub notes: Vec<(Level, String)>,
}

/// An order of the parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start with the delivery.
    Start,
    /// Use the delivery as the new configuration, and report the verdict. All requests up to this number are served
    /// by it.
    Reload(u64),
    /// Use the logs of the delivery.
    Reopen,
    /// Write the notes of the delivery to the log.
    Note,
    /// Send the state for the next process.
    State,
    /// End when running requests have finished.
    Quit,
    /// End now.
    Stop,
    /// The process with this number serves instead: end when running requests have finished.
    Replaced(u32),
    /// No other process takes over, and why.
    UpgradeFailed(String),
    /// The parent is gone.
    Orphaned,
}

impl Delivery {
    /// Adds a packet; returns the order if it was one.
    pub fn take(&mut self, packet: Packet) -> Option<Order> {
        let (word, rest) = packet.split();
        let text = || String::from_utf8_lossy(rest).into_owned();
        let order = match word {
            b"user" => {
                self.user = WorkerUser::parse(rest);
                return None;
            }
            b"note" => {
                self.notes.push((Level::Notice, text()));
                return Some(Order::Note);
            }
            b"alert" => {
                self.notes.push((Level::Alert, text()));
                return Some(Order::Note);
            }
            b"refused" => {
                let mut parts = rest.splitn(2, |byte| *byte == 0);
                let path = wire::path(parts.next().unwrap_or_default());
                let why = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                self.given.refused.insert(path, why);
                return None;
            }
            b"cannot-listen" => {
                let mut parts = rest.splitn(2, |byte| *byte == b' ');
                let number = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
                let mut parts = parts.next()?.splitn(2, |byte| *byte == 0);
                let address = wire::parse_address(parts.next()?)?;
                let error = match number {
                    0 => io::Error::other(String::from_utf8_lossy(parts.next()?).into_owned()),
                    number => io::Error::from_raw_os_error(number),
                };
                self.failed.push((address, error));
                return None;
            }
            b"start" => Order::Start,
            b"reload" => Order::Reload(text().parse().unwrap_or(0)),
            b"reopen" => Order::Reopen,
            b"state?" => Order::State,
            b"quit" => Order::Quit,
            b"stop" => Order::Stop,
            b"replaced" => Order::Replaced(text().parse().unwrap_or(0)),
            b"upgrade-failed" => Order::UpgradeFailed(text()),
            _ => {
                let (word, rest) = (word.to_vec(), rest.to_vec());
                self.take_descriptor(&word, &rest, packet.fd?);
                return None;
            }
        };
        Some(order)
    }

    fn take_descriptor(&mut self, word: &[u8], rest: &[u8], fd: OwnedFd) {
        let path = || wire::path(rest);
        match word {
            b"config" => drop(self.given.configs.insert(path(), fd.into())),
            b"file" => drop(self.given.files.insert(path(), fd.into())),
            b"log" => drop(self.given.logs.insert(path(), fd.into())),
            b"listen" | b"managed" => {
                let is_managers = word == b"managed";
                let socket = |address| GivenSocket { address, socket: fd, is_managers };
                self.sockets.extend(wire::parse_address(rest).map(socket));
            }
            b"control" => self.control.push(fd),
            b"state" => self.state = Some(fd.into()),
            b"quic-link" => {
                let process = std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok());
                self.quic_links.extend(process.map(|process| (process, fd)));
            }
            // A parent of another version: a worker process is started from the parent's own file.
            _ => {}
        }
    }
}

/// What a worker process can say. There is no word for "open this".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Say<'a> {
    /// It serves; a line for the service manager.
    Ready(&'a str),
    /// Whether the reload was good; a line for the service manager.
    Verdict(bool, &'a str),
    /// An operator asks for a reload at the control socket.
    Reload,
    /// An operator asks for the logs to be reopened.
    Reopen,
    /// An operator asks for an upgrade of the binary.
    Upgrade,
    /// It is about to end: its sockets are not used any more.
    Stopping,
    /// It cannot serve, and why, for the log of a process that it was to replace.
    Failed(&'a str),
}

/// The worker process's end of the connection.
#[derive(Debug)]
pub struct Link {
    /// The descriptor.
    pub socket: OwnedFd,
}

impl Link {
    /// Takes the connection over from standard input, where this process was started by a parent.
    pub fn take() -> io::Result<Option<Self>> {
        if !is_worker() {
            return Ok(None);
        }
        take_stdin().map(|socket| Some(Self { socket }))
    }

    /// Waits for the first order.
    pub fn receive_start(&self) -> io::Result<Delivery> {
        let mut delivery = Delivery::default();
        loop {
            match wire::receive(&self.socket, RecvFlags::empty())? {
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(packet) => {
                    if delivery.take(packet) == Some(Order::Start) {
                        return Ok(delivery);
                    }
                }
            }
        }
    }

    /// The next packet; `None` at the end of the parent. Does not wait.
    pub fn try_receive(&self) -> io::Result<Option<Packet>> {
        wire::receive(&self.socket, RecvFlags::DONTWAIT)
    }

    /// Says something. A parent that is gone is noticed elsewhere.
    pub fn say(&self, what: &Say<'_>) {
        let text = match what {
            Say::Ready(status) => format!("ready {status}"),
            Say::Verdict(true, status) => format!("good {status}"),
            Say::Verdict(false, status) => format!("bad {status}"),
            Say::Reload => "reload".to_owned(),
            Say::Reopen => "reopen".to_owned(),
            Say::Upgrade => "upgrade".to_owned(),
            Say::Stopping => "stopping".to_owned(),
            Say::Failed(why) => format!("failed {why}"),
        };
        let _ = wire::send(&self.socket, text.as_bytes(), None);
    }

    /// Leaves the state for the next process. The parent keeps the descriptors and does not read them.
    pub fn leave_state(&self, state: &File, quic_links: &[(u8, OwnedFd)]) {
        for (process, link) in quic_links {
            let text = format!("{QUIC_LINK} {process}");
            let _ = wire::send(&self.socket, text.as_bytes(), Some(link.as_fd()));
        }
        // The last packet: the upgrade goes on when it has come.
        let _ = wire::send(&self.socket, b"state", Some(state.as_fd()));
    }
}

/// Whether this process is a worker process.
pub fn is_worker() -> bool {
    is_child(WORKER_OF)
}

/// Whether the parent of this process has started it for a purpose. A variable that was left over names another one.
pub(crate) fn is_child(variable: &str) -> bool {
    let named = std::env::var(variable).ok().and_then(|text| text.parse::<i32>().ok());
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    named.is_some() && named == parent
}

/// Standard input as a descriptor of its own; `/dev/null` takes its place.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}
