//! A server that may have so much memory and no more: in a control group of its own, or by an injected limit.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sekisho_testkit::{Client, Server, Stopwatch, Tree, wait_for};

use crate::common::{BINARY, LONG};

/// How soon after a peak all clients are served again: what is promised, and what a machine that is busy with
/// something else may take for it (the files of thousands of uploads are closed one by one).
const RECOVERY: Duration = Duration::from_secs(5);
const RECOVERY_BUSY: Duration = Duration::from_secs(30);

/// What limits the server's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The kernel: beyond it the server is killed.
    Group,
    /// Only the server itself, by an injected limit. For machines where no group can be made.
    Told,
}

impl Form {
    /// What the server may have. Where the kernel does not kill it, smaller peaks show the same.
    pub(crate) const fn limit_bytes(self) -> u64 {
        match self {
            Self::Group => 64 << 20,
            Self::Told => 24 << 20,
        }
    }
}

pub(crate) struct Limited {
    pub(crate) server: Server,
    _group: Option<Group>,
}

impl Limited {
    /// `None` where no group can be made.
    pub(crate) fn start(form: Form, tree: Tree, config: &str) -> Option<Self> {
        let group = match form {
            Form::Group => Some(Group::limited_to(form.limit_bytes())?),
            Form::Told => None,
        };
        let enter = match &group {
            Some(group) => format!("echo $$ >{}", group.procs()),
            None => format!("export SEKISHO_INJECT_FAULTS_MEMORY={}", form.limit_bytes()),
        };
        tree.script("wrapper", &format!("#!/bin/sh\n{enter}\nexec {BINARY} \"$@\"\n"));
        let binary = tree.path("wrapper").display().to_string();
        // Debug lines of thousands of connections are not what is looked at here.
        let config = config
            .replace("error.log debug", "error.log warn")
            .replace("events {}", "events { worker_connections 20000; }")
            // Clients are slow here on purpose, and the machine may be slow as well.
            .replace("http {", "http { send_timeout 10m; keepalive_timeout 10m;");
        Some(Self { server: Server::start_in(tree, &binary, &config), _group: group })
    }

    /// The status that a new client gets, if any.
    pub(crate) fn newcomer(&self) -> Option<u16> {
        let mut client = Client::connect(self.server.address()).with_patience(LONG);
        client.try_send("GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
        client.try_read_response(false).ok().map(|response| response.status)
    }

    /// The peak is over: it has survived, and new clients are served soon.
    #[track_caller]
    pub(crate) fn recovers(&mut self, kind: &str) {
        assert!(self.server.is_running(), "{kind}: it was killed");
        let watch = Stopwatch::start();
        let is_strict = std::env::var_os("SEKISHO_STRICT").is_some();
        let within = if is_strict { RECOVERY } else { RECOVERY_BUSY };
        let is_back = wait_for(within, || self.newcomer() == Some(200));
        let (took, resident) = (watch.elapsed(), self.server.rss_bytes() >> 20);
        assert!(
            is_back,
            "{kind}: no client is served {took:?} after the peak, {resident} MiB resident"
        );
        println!("{kind}: served again after {took:?}, {resident} MiB resident");
        assert!(self.server.is_running(), "{kind}: it was killed");
    }
}

/// A control group of our own.
struct Group(PathBuf);

impl Group {
    /// `None` where we may not make one.
    fn limited_to(bytes: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        for (place, file) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let name = format!("{place}/sekisho-test-{}-{number}", std::process::id());
            let group = Self(name.into());
            let is_there = fs::create_dir(&group.0).is_ok();
            if is_there && fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        println!("skipped: no control group can be made here");
        None
    }

    fn procs(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty once its process has been waited for.
        let _ = wait_for(LONG, || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}
