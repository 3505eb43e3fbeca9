//! What the kernel says about a process: descriptors, memory, processor time, children, listeners.
//! Reads `/proc` and nothing else.

use std::fs;

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// How much memory of a process is resident.
pub fn rss_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    rss_from_status(&status).unwrap_or(0)
}

/// How much processor time a process has used, in the kernel's ticks (100 to the second).
pub fn cpu_ticks(pid: u32) -> u64 {
    stat(pid).map_or(0, |stat| stat.cpu_ticks)
}

/// The child processes of this one, zombies included.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process| stat(*process).is_some_and(|stat| stat.parent == pid))
        .collect()
}

/// The worker process of a server that has a parent; the server's only process otherwise.
pub fn worker_of(pid: u32) -> u32 {
    let is_worker = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b": worker process"))
    };
    children(pid).into_iter().find(is_worker).unwrap_or(pid)
}

/// Whether a process exists, zombies included.
pub fn exists(pid: u32) -> bool {
    stat(pid).is_some()
}

/// Whether a process listens on this TCP port. Makes no connection, so no server counts a session.
pub fn is_listening(port: u16) -> bool {
    !listening_sockets(port).is_empty()
}

/// Whether this process listens on the port, or this test or something that either has started. Another test on the
/// same machine may have the port for a moment, and resets a client that connects to it then.
pub fn is_listening_for_us(pid: u32, port: u16) -> bool {
    let sockets = listening_sockets(port);
    let has = |process: u32| holds_one_of(process, &sockets);
    !sockets.is_empty()
        && (has(pid) || has(std::process::id()) || descendants(std::process::id()).any(has))
}

/// Whether a process has one of these sockets; one that cannot be looked at may.
fn holds_one_of(pid: u32, sockets: &[String]) -> bool {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(descriptors) => descriptors.flatten().any(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            sockets.iter().any(|socket| target.as_os_str() == &**socket)
        }),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// The descendants of a process.
fn descendants(pid: u32) -> impl Iterator<Item = u32> {
    let mut left = children(pid);
    std::iter::from_fn(move || {
        let next = left.pop()?;
        left.extend(children(next));
        Some(next)
    })
}

/// Whether every thread of a process sleeps: nothing that it was given to do is still to be done. One that waits for a
/// CPU does not sleep, however busy the machine is.
pub fn is_idle(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let line = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        line.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['S', 'Z', 'T', 't']))
    })
}

/// The sockets that listen on this port, as links of `/proc/PID/fd` name them.
fn listening_sockets(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| listeners_in(table, port)).collect()
}

#[derive(PartialEq, Eq, Debug)]
struct Stat {
    parent: u32,
    cpu_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a program may hold blanks and brackets; what follows the last bracket is regular.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Behind the name: state, parent, … and utime and stime as the fields 14 and 15 of the line.
    Some(Stat { parent: number(1)? as u32, cpu_ticks: number(11)? + number(12)? })
}

fn rss_from_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn listeners_in(table: &str, port: u16) -> impl Iterator<Item = String> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, hex) = fields.get(1)?.rsplit_once(':')?;
        let is_meant = u16::from_str_radix(hex, 16) == Ok(port) && *fields.get(3)? == LISTEN;
        let inode = fields.get(9)?;
        is_meant.then(|| format!("socket:[{inode}]"))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process;

    use super::*;

    #[test]
    fn a_stat_line_is_read_from_behind_the_name() {
        let line = "42 (a (b) c) S 7 42 42 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 100 1 1";
        assert_eq!(parse_stat(line), Some(Stat { parent: 7, cpu_ticks: 42 }));
    }

    #[test]
    fn a_process_that_sleeps_is_idle_and_one_that_computes_is_not() {
        assert!(!is_idle(process::id()), "this thread runs");
        let mut child = process::Command::new("sleep").arg("60").spawn().expect("sleep is there");
        assert!(crate::wait_for(std::time::Duration::from_secs(10), || is_idle(child.id())));
        let _ = child.kill();
        let _ = child.wait();
    }

    #[test]
    fn resident_memory_is_told_in_bytes() {
        assert_eq!(rss_from_status("VmPeak:\t  9 kB\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert!(rss_bytes(process::id()) > 0);
    }

    #[test]
    fn a_listener_is_seen_without_connecting_to_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        assert!(is_listening(port));
        assert!(is_listening_for_us(process::id(), port));
        let sockets = listening_sockets(port);
        assert!(holds_one_of(process::id(), &sockets) && !holds_one_of(1, &sockets));
        drop(listener);
        // A child that another test is starting has a copy until it runs its program.
        assert!(crate::wait_for(std::time::Duration::from_secs(10), || !is_listening(port)));
    }

    #[test]
    fn this_process_is_there_and_has_descriptors() {
        assert!(exists(process::id()));
        assert!(descriptors(process::id()) >= 3);
    }
}
