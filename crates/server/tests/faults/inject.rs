//! Calls of a running server that fail: strace changes the result of the k-th call of each thread, and the
//! call is not made. Whatever the kernel itself would never answer does not count.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sekisho_testkit::{Server, Signal, Tree, wait_for};

use crate::common::LONG;

/// Calls that fail, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// What it is called in the report.
    pub(crate) name: &'static str,
    /// The calls, as strace wants them.
    pub(crate) calls: &'static str,
    /// With which errors.
    pub(crate) errors: &'static [&'static str],
    /// Whether processes that the server starts are meant, too.
    pub(crate) in_children: bool,
}

const fn kind(name: &'static str, calls: &'static str, errors: &'static [&'static str]) -> Kind {
    Kind { name, calls, errors, in_children: false }
}

/// All of them. A socket, a pipe and a file differ in what can happen to them; an error that cannot is a
/// stricter test and no wrong one.
pub(crate) const KINDS: &[Kind] = &[
    kind("accept", "accept4", &["EMFILE", "ENFILE", "ENOMEM", "ECONNABORTED"]),
    kind("open", "open,openat,openat2", &["EMFILE", "ENFILE", "EIO", "ENOMEM"]),
    kind("read", "read,pread64,preadv", &["EIO", "EINTR"]),
    kind("receive", "recvfrom,recvmsg", &["ECONNRESET", "ENOMEM", "EINTR"]),
    kind("write", "write,pwrite64,writev", &["ENOSPC", "EIO", "EINTR"]),
    kind("send", "sendto,sendmsg", &["EPIPE", "ECONNRESET", "ENOMEM", "EINTR"]),
    kind("sendfile", "sendfile", &["EIO", "EPIPE", "ENOMEM", "EINTR"]),
    kind("splice", "splice", &["EIO", "ENOSPC", "ENOMEM", "EINTR"]),
    Kind { in_children: true, ..kind("spawn", "vfork,clone,clone3", &["EAGAIN", "ENOMEM"]) },
    Kind { in_children: true, ..kind("exec", "execve", &["ENOMEM", "EIO", "EACCES", "ETXTBSY"]) },
    kind("rename", "rename,renameat,renameat2,linkat,link", &["EIO", "ENOSPC", "EDQUOT"]),
    kind("remove", "unlink,unlinkat,rmdir", &["EIO", "ENOSPC"]),
    kind("make", "mkdirat,mkdir,symlinkat", &["EIO", "ENOSPC"]),
    kind("sync", "fsync,fdatasync,syncfs", &["EIO", "ENOSPC"]),
    kind("size", "ftruncate,fallocate,copy_file_range,ioctl", &["EIO", "ENOSPC"]),
    kind("dress", "fchmod,fchmodat,utimensat,fsetxattr,flock", &["EIO", "ENOLCK"]),
    kind("stat", "statx,stat,lstat,fstat,newfstatat,readlink,readlinkat", &["EIO", "ENOMEM"]),
    kind("list", "getdents64", &["EIO", "ENOMEM"]),
    kind("map", "mmap", &["ENOMEM"]),
    kind("memfd", "memfd_create", &["EMFILE", "ENOMEM"]),
    kind("epoll", "epoll_ctl", &["ENOMEM", "ENOSPC"]),
    kind("pipe", "pipe2", &["EMFILE", "ENFILE"]),
    kind(
        "event",
        "eventfd2,timerfd_create,epoll_create1,signalfd4",
        &["EMFILE", "ENFILE", "ENOMEM"],
    ),
    kind("socket", "socket,socketpair,bind,listen,connect", &["EMFILE", "ENFILE", "ENOMEM"]),
    kind("option", "setsockopt,getsockopt,getsockname", &["ENOMEM", "ENOBUFS"]),
    kind("copy", "dup,dup2,dup3,fcntl", &["EMFILE"]),
    kind("pidfd", "pidfd_open,pidfd_send_signal", &["EMFILE", "ENOMEM"]),
    kind("shut", "shutdown", &["ENOTCONN"]),
];

/// The k-th call of a kind, and its error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: &'static Kind,
    pub(crate) error: &'static str,
    pub(crate) at: u32,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} number {} fails with {}", self.kind.name, self.at, self.error)
    }
}

impl Fault {
    /// The arguments for strace.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let Self { kind, error, at } = self;
        // `?`: a call that this machine does not have is ignored.
        let calls: Vec<_> = kind.calls.split(',').map(|call| format!("?{call}")).collect();
        let calls = calls.join(",");
        let inject = format!("inject={calls}:error={error}:when={at}");
        ["-e".to_owned(), format!("trace={calls}"), "-e".to_owned(), inject]
    }
}

/// What a fault has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    /// So many calls failed (one of each thread).
    Calls(Vec<String>),
    /// There was no such call.
    None,
    /// It met a call that cannot fail like this.
    Impossible,
}

/// Reads strace's word.
pub(crate) fn hit(log: &Path) -> Hit {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // If calls of several threads overlap, a call is in two lines.
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let (thread, rest) = line.split_once(' ').unwrap_or_default();
        if let Some(call) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, call);
        } else if line.contains("(INJECTED)") {
            let call = begun.get(thread).filter(|_| rest.contains(" resumed>"));
            calls.push(format!("{thread} {} {rest}", call.unwrap_or(&"")));
        }
    }
    if calls.is_empty() {
        Hit::None
    } else if calls.iter().any(|call| is_impossible(call)) {
        Hit::Impossible
    } else {
        Hit::Calls(calls)
    }
}

/// The kernel has no such answer: waking a thread never fails, nor does writing into a pipe with a reader
/// (and without one, that is no error: C7), nor does closing a descriptor, nor does what only reads a flag or
/// a number. EAGAIN is not among the errors at all: a caller that gets it without reason waits for ever.
fn is_impossible(call: &str) -> bool {
    let has = |part: &str| call.contains(part);
    let is_wake = (has(" write(") || has(" read(")) && has("[eventfd]");
    let is_pipe = has(" write(") && has("<pipe:");
    let is_flag = has(" fcntl(") && !has("F_DUPFD");
    let is_plain_ioctl = has(" ioctl(") && !has("FICLONE");
    // A thread's or a program's own memory in its first moments, before any of our code runs.
    is_wake || is_pipe || has("EPOLL_CTL_DEL") || is_flag || is_plain_ioctl
}

/// A fault that waits for its call in a running server, until this is dropped.
#[derive(Debug)]
pub(crate) struct Injected {
    strace: Child,
    log: PathBuf,
}

impl Injected {
    /// `None` where tracing is not allowed.
    pub(crate) fn into(server: &Server, fault: &Fault) -> Option<Self> {
        Self::attach(server.id(), server.tree(), fault.arguments(), fault.kind.in_children)
    }

    /// The same, for new threads and processes, too.
    pub(crate) fn with_children(pid: u32, tree: &Tree, fault: &Fault) -> Option<Self> {
        Self::attach(pid, tree, fault.arguments(), true)
    }

    /// Each of these calls takes so much longer, in whatever thread: a slow disk.
    pub(crate) fn delay(server: &Server, calls: &str, by: Duration) -> Option<Self> {
        let calls: Vec<_> = calls.split(',').map(|call| format!("?{call}")).collect();
        let calls = calls.join(",");
        let inject = format!("inject={calls}:delay_enter={}", by.as_micros());
        let arguments = ["-e".to_owned(), format!("trace={calls}"), "-e".to_owned(), inject];
        Self::attach(server.id(), server.tree(), arguments, true)
    }

    fn attach(pid: u32, tree: &Tree, arguments: [String; 4], in_children: bool) -> Option<Self> {
        let (log, said) = (tree.path("strace"), tree.path("strace.err"));
        let _ = fs::remove_file(&log);
        let mut command = Command::new("strace");
        if in_children {
            command.args(["-f", "-p", &pid.to_string()]);
        } else {
            let threads: Vec<_> = threads(pid).iter().map(u32::to_string).collect();
            command.args(["-p", &threads.join(",")]);
        }
        command.args(["-y", "-s", "8"]).args(arguments).arg("-o").arg(&log);
        let said_file = File::create(&said).expect("a file");
        let mut strace = command.stderr(said_file).spawn().ok()?;
        let mut has_ended = false;
        let is_there = wait_for(LONG, || {
            has_ended = strace.try_wait().is_ok_and(|status| status.is_some());
            has_ended || (is_traced(pid) && !tree.text("strace.err").is_empty())
        });
        if has_ended || !is_there {
            strace.kill().ok();
            strace.wait().ok();
            println!("skipped: strace may not trace: {}", tree.text("strace.err"));
            return None;
        }
        Some(Self { strace, log })
    }

    /// Where strace writes what it did.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Lets the server go on alone, and says what happened.
    pub(crate) fn end(self) -> Hit {
        let log = self.log.clone();
        drop(self);
        hit(&log)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        // It lets its process go on this signal, and dies.
        let _ = kill_process(Pid::from_child(&self.strace), Signal::INT);
        let is_over = || self.strace.try_wait().is_ok_and(|status| status.is_some());
        if !wait_for(LONG / 60, is_over) {
            // It waits for one that has ended.
            self.strace.kill().ok();
            self.strace.wait().ok();
        }
    }
}

fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Whether all threads of a process are traced.
fn is_traced(pid: u32) -> bool {
    let is_traced = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
        status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
    };
    let threads = threads(pid);
    !threads.is_empty() && threads.iter().all(is_traced)
}
