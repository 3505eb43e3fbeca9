//! System calls that fail or are slow, by strace.

use std::fs::{self, File};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

use crate::{Server, Signal, wait_for};

/// Attaching takes no longer, on a loaded machine too.
const LIMIT: Duration = Duration::from_mins(1);

/// Calls of the server that fail, or are slow, as long as this is there.
#[derive(Debug)]
pub struct Injected(Child);

impl Injected {
    /// `change` is what strace does with the calls; `None` if that is not allowed.
    pub fn into(server: &Server, calls: &str, change: &str) -> Option<Self> {
        Self::all(server, &[(calls, change)])
    }

    /// The same for several calls.
    pub fn all(server: &Server, changes: &[(&str, &str)]) -> Option<Self> {
        let log = server.tree().path("strace");
        let _ = fs::remove_file(&log);
        let calls: Vec<&str> = changes.iter().map(|(calls, _)| *calls).collect();
        let injections = changes
            .iter()
            .flat_map(|(calls, change)| ["-e".to_owned(), format!("inject={calls}:{change}")]);
        let mut child = Command::new("strace")
            .args([
                "-f",
                "-p",
                &server.id().to_string(),
                "-e",
                &format!("trace={}", calls.join(",")),
            ])
            .args(injections)
            .arg("-o")
            .arg(&log)
            .stderr(File::create(server.tree().path("strace.err")).expect("a file"))
            .spawn()
            .ok()?;
        let is_attached =
            || server.tree().text("strace.err").contains("attached") && is_traced(server.id());
        let mut has_ended = false;
        let is_there = wait_for(LIMIT, || {
            has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            has_ended || is_attached()
        });
        if has_ended || !is_there {
            println!("skipped: strace may not trace: {}", server.tree().text("strace.err"));
            child.kill().ok();
            child.wait().ok();
            return None;
        }
        Some(Self(child))
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        // It lets its process go on this signal, and dies.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        self.0.wait().ok();
    }
}

/// Whether all threads of a process are traced.
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        !status.contains("TracerPid:\t0\n")
    })
}
