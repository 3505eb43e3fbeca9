//! What the CGI scenarios share: a server with programs, and the question whether anything of theirs is
//! left behind.

use std::fs;
use std::time::Duration;

use sekisho_testkit::{Server, Tree, process, run, wait_for};

use crate::common::{BINARY, LONG, serve};

/// Everything a row may leave behind must be gone by then, on a loaded machine too.
const CLEAN_LIMIT: Duration = Duration::from_mins(1);
/// A variable in the environment of each program, by which it and its children are known.
const MARK: &str = "TEST_MARK";

/// A server whose programs lie in `root/cgi-bin`.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) server: Server,
    mark: String,
    /// How many descriptors the server has when nothing happens.
    descriptors: usize,
}

impl Site {
    /// Starts a server; `body` is put into its block, beside a location of programs. All clients have one
    /// address, which may take all process slots.
    #[track_caller]
    pub(crate) fn start(tree: Tree, body: &str) -> Self {
        let mark = format!("{MARK}={}", tree.dir().display());
        tree.file("root/ok.txt", "ok");
        tree.script("root/cgi-bin/warm.cgi", "#!/bin/sh\nprintf 'X: 1\\n\\n'\n");
        let body = format!(
            "cgi_set_var {MARK} {{dir}};\ncgi_max_processes_per_address off;\ncgi_reserved_processes off;\nlocation /cgi-bin/ {{ cgi on; }}\nlocation / {{ }}\n{body}"
        );
        let server = serve(tree, &body);
        // The first of each kind opens what stays open.
        for target in ["/ok.txt", "/cgi-bin/warm.cgi"] {
            assert_eq!(server.connect().get(target).status, 200, "{}", server.log("error.log"));
        }
        let mut site = Self { server, mark, descriptors: usize::MAX };
        let mut last = 0;
        let is_calm = wait_for(CLEAN_LIMIT, || {
            let now = site.server.fds();
            let is_same = std::mem::replace(&mut last, now) == now;
            is_same && site.left().is_none()
        });
        assert!(is_calm, "{:?}", site.left());
        site.descriptors = site.server.fds();
        site
    }

    /// Waits until no process, no dead process and no descriptor is left; fails the test if one stays.
    #[track_caller]
    pub(crate) fn assert_clean(&self, after: &str) {
        if !wait_for(CLEAN_LIMIT, || self.left().is_none()) {
            let log = self.server.log("error.log");
            panic!("left behind by {after}: {:?}\n{log}", self.left());
        }
    }

    /// What is left behind.
    pub(crate) fn left(&self) -> Option<String> {
        let children = self.server.children();
        let marked = self.processes();
        let descriptors = self.server.fds();
        let is_clean = children.is_empty() && marked.is_empty() && descriptors <= self.descriptors;
        (!is_clean).then(|| {
            format!(
                "children {children:?}, programs {marked:?}, {descriptors} descriptors instead of {}",
                self.descriptors
            )
        })
    }

    /// All living processes that were started for this server's requests, wherever they have gone.
    pub(crate) fn processes(&self) -> Vec<u32> {
        marked_processes(&self.mark)
    }
}

/// All living processes with this in their environment.
pub(crate) fn marked_processes(mark: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        })
        .filter(|pid| process::exists(*pid))
        .collect()
}

/// The sessions of HTTP clients, as `ctl` lists them.
pub(crate) fn sessions(site: &Site) -> Vec<serde_json::Value> {
    let pid = site.server.id().to_string();
    let listed = run(BINARY, &["ctl", "--pid", &pid, "sessions", "--json"], LONG);
    let all: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let sessions = all["sessions"].as_array().expect("a list").iter();
    sessions.filter(|one| one["protocol"] == "http1").cloned().collect()
}

/// How many requests are being worked on, or wait.
pub(crate) fn in_work(site: &Site) -> usize {
    sessions(site).iter().filter(|one| one["state"] == "p_1").count()
}

/// A script for the shell.
pub(crate) fn sh(text: &str) -> String {
    format!("#!/bin/sh\n{text}\n")
}

/// Whether the long forms are wanted.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0")
}
