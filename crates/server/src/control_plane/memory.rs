//! What the server holds in memory, by kind (O7): asked of the workers, the endpoints and the logs, and put
//! beside what the allocator and the kernel say, so that memory without an explanation can be seen.

use std::fs;

use sekisho_endpoint::Budget;
use sekisho_endpoint::control::{Memory, MemoryEntry, MemoryShare};
use sekisho_handler::memory;

use super::host::Host;

/// Asks all of them.
pub(super) async fn gather(host: &Host) -> Memory {
    let (workers, silent_workers) = host.worker_registry.memory_usage().await;
    let mut held: Vec<MemoryEntry> = Vec::new();
    for of in workers.into_iter().flat_map(|(_, held)| held) {
        add(&mut held, of.kind, (of.count, of.bytes));
    }
    if let Some(endpoint) = host.endpoint() {
        add(&mut held, "native sessions", endpoint.memory_usage());
        add(&mut held, "native buffers kept", endpoint.buffer_memory_usage());
    }
    add(&mut held, "log buffers", host.logs.memory_usage());
    add(&mut held, "configuration", (1, host.configuration_bytes() as usize));
    let (heap_bytes, heap_free_bytes) = sekisho_sys::heap().unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let of = |name| status_bytes(&status, name);
    Memory {
        held,
        heap_bytes,
        heap_free_bytes,
        resident_bytes: of("VmRSS:"),
        resident_anonymous_bytes: of("RssAnon:"),
        resident_file_bytes: of("RssFile:"),
        resident_shared_bytes: of("RssShmem:"),
        shared: Some(shared(&maps)),
        silent_workers,
        budget: budget(),
    }
}

/// The budget of memory that peers can make the server hold (O9).
pub(super) fn budget() -> Vec<MemoryShare> {
    let share = |(class, budget): (&'static str, &Budget)| {
        let (taken_bytes, limit_bytes) = (budget.taken() as u64, budget.limit() as u64);
        MemoryShare { class: class.to_owned(), taken_bytes, limit_bytes }
    };
    memory::budgets().map(share).collect()
}

/// Adds to what is known of this kind.
fn add(held: &mut Vec<MemoryEntry>, kind: &str, (count, bytes): (usize, usize)) {
    let (count, bytes) = (count as u64, bytes as u64);
    match held.iter_mut().find(|of| of.kind == kind) {
        Some(of) => (of.count, of.bytes) = (of.count + count, of.bytes + bytes),
        None => held.push(MemoryEntry { kind: kind.to_owned(), count, bytes }),
    }
}

/// A line of `/proc/self/status`, which the kernel writes in KiB.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    kib * 1024
}

/// Memory that we share with clients, by its name in `/proc/self/maps`.
fn shared(maps: &str) -> MemoryEntry {
    let mut shared = MemoryEntry { kind: "shared memory".to_owned(), count: 0, bytes: 0 };
    for line in maps.lines().filter(|line| line.contains("/memfd:sekisho")) {
        let (range, _) = line.split_once(' ').unwrap_or_default();
        let (from, to) = range.split_once('-').unwrap_or_default();
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        shared.count += 1;
        shared.bytes += number(to).saturating_sub(number(from));
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_in_bytes() {
        let status = "VmHWM:\t   9 kB\nVmRSS:\t   12 kB\nRssAnon:\t    5 kB\n";
        assert_eq!(
            (status_bytes(status, "VmRSS:"), status_bytes(status, "RssAnon:")),
            (12288, 5120)
        );
        assert_eq!(status_bytes(status, "RssShmem:"), 0);
        let maps = "7f0000000000-7f0000003000 rw-s 00000000 00:01 7 /memfd:sekisho (deleted)\n\
                    7f0000010000-7f0000011000 rw-p 00000000 00:00 0\nnonsense /memfd:sekisho\n";
        let shared = shared(maps);
        assert_eq!((shared.count, shared.bytes), (2, 0x3000));
    }

    #[test]
    fn what_is_of_one_kind_is_added_up() {
        let mut held = Vec::new();
        add(&mut held, "a", (1, 10));
        add(&mut held, "b", (2, 20));
        add(&mut held, "a", (3, 30));
        assert_eq!((held.len(), held[0].count, held[0].bytes), (2, 4, 40));
    }
}
