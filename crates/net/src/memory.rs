//! How much memory we may have, and whether that is nearly all in use. Whoever reaches the limit of a control
//! group is killed, with everybody who is there; so newcomers are refused before (X8).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Newcomers are refused from this part of the limit on: the rest is for those who are here.
const SHORT_PERCENT: u64 = 85;
/// How many newcomers come between two looks.
const LOOK_EVERY: u64 = 16;
/// A limit beyond this is none: the kernel's word for "no limit" is a number, too.
const LIMIT_MAX: u64 = 1 << 46;

/// The limit, and what was last seen.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: Option<u64>,
    /// Where the kernel says what is in use. Opened before the workers are kept in their sandbox.
    usage: Option<File>,
    newcomers: AtomicU64,
    is_short: AtomicBool,
}

impl Default for Memory {
    fn default() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::limited_to(limit_of(&groups, |path| std::fs::read_to_string(path).ok()))
    }
}

impl Memory {
    fn limited_to(limit: Option<u64>) -> Self {
        let usage = limit.and_then(|_| File::open("/proc/self/statm").ok());
        Self { limit, usage, newcomers: AtomicU64::new(0), is_short: AtomicBool::new(false) }
    }

    /// Whether there is too little for one more; to be asked once for each.
    pub(crate) fn is_short(&self) -> bool {
        let Some(limit) = self.limit else { return false };
        if self.newcomers.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            let is_short =
                self.resident_bytes().is_some_and(|bytes| bytes >= limit / 100 * SHORT_PERCENT);
            self.is_short.store(is_short, Ordering::Relaxed);
        }
        self.is_short.load(Ordering::Relaxed)
    }

    /// What is in use.
    fn resident_bytes(&self) -> Option<u64> {
        let mut line = [0; 128];
        let count = self.usage.as_ref()?.read_at(&mut line, 0).ok()?;
        // The whole size comes first, then what of it is resident, both in pages.
        let text = std::str::from_utf8(line.get(..count)?).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}

/// The lowest limit of the control groups that we are in, of both kinds.
fn limit_of(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mounts, name): (&[&str], _) = if controllers.is_empty() {
            (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes")
        } else {
            continue;
        };
        for mount in mounts {
            // The limits of those above hold as well; in a container the path may be the host's.
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let text = read(&Path::new(mount).join(group).join(name));
                let limit = text.and_then(|text| text.trim().parse::<u64>().ok());
                if let Some(limit) = limit.filter(|limit| *limit < LIMIT_MAX) {
                    lowest = Some(lowest.map_or(limit, |other| other.min(limit)));
                }
            }
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X8
    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "2000000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        for (groups, limit) in [
            ("0::/a/b\n", Some(1_000_000)),
            ("4:memory:/c\n", Some(2_000_000)),
            ("4:cpu,memory:/c\n0::/\n", Some(2_000_000)),
            ("4:memory:/other\n", None),
            ("3:cpu:/a\nnonsense\n", None),
        ] {
            assert_eq!(limit_of(groups, read), limit, "{groups}");
        }
    }

    /// X8
    #[test]
    fn newcomers_are_refused_when_most_of_it_is_in_use() {
        let used = Memory::limited_to(Some(1)).resident_bytes().expect("a process has memory");
        assert!(used > 0);
        for (limit, is_short) in [(None, false), (Some(used * 100), false), (Some(used / 2), true)]
        {
            let memory = Memory::limited_to(limit);
            assert!((0..LOOK_EVERY * 2).all(|_| memory.is_short() == is_short), "{limit:?}");
        }
    }
}
