//! The control groups that the process is in, those that limit its memory: what they may have and what they use.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A limit beyond this is none: the kernel reports "no limit" as a number, too.
const LIMIT_MAX: u64 = 1 << 46;
/// Longer than any `memory.stat`.
const STAT_BYTES: usize = 8192;

/// The two kinds of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    const fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    const fn usage_file(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// The lines of `memory.stat`: cached file pages that were not used lately, that were, and mapped ones.
    const fn file_lines(self) -> [&'static str; 3] {
        match self {
            Self::One => ["total_inactive_file", "total_active_file", "total_mapped_file"],
            Self::Two => ["inactive_file", "active_file", "file_mapped"],
        }
    }
}

/// A group with a limit.
#[derive(Debug)]
pub(super) struct Group {
    limit: u64,
    /// What it uses, and what that consists of; opened once.
    files: Option<(Version, File, File)>,
}

impl Group {
    /// A limit without a group.
    pub(super) const fn without_files(limit: u64) -> Self {
        Self { limit, files: None }
    }

    fn open(version: Version, limit: u64, folder: &Path) -> Self {
        let open = |name: &str| File::open(folder.join(name)).ok();
        let files = open(version.usage_file()).zip(open("memory.stat"));
        Self { limit, files: files.map(|(usage, stat)| (version, usage, stat)) }
    }

    /// What it may use.
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// What it uses and cannot do without: also the kernel's memory, for sockets, files and page tables.
    pub(super) fn used_bytes(&self) -> Option<u64> {
        let (version, usage, stat) = self.files.as_ref()?;
        let mut text = [0; STAT_BYTES];
        let used: u64 = read(usage, &mut text)?.trim().parse().ok()?;
        if used < self.limit / 2 {
            // So little is used that the exact figure, which is slower to read, is not needed.
            return Some(used);
        }
        let dispensable = read(stat, &mut text).map_or(0, |stat| dispensable_bytes(*version, stat));
        Some(used.saturating_sub(dispensable))
    }
}

fn read<'t>(file: &File, text: &'t mut [u8]) -> Option<&'t str> {
    let count = file.read_at(text, 0).ok()?;
    std::str::from_utf8(text.get(..count)?).ok()
}

/// Pages of files that the kernel drops before it kills a process: the page cache, also the part of it that
/// was used lately, or a group that serves the same files again and again would seem full for good. Not
/// mapped files: our own program is one.
fn dispensable_bytes(version: Version, stat: &str) -> u64 {
    let [inactive, active, mapped] = version.file_lines().map(|name| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0_u64)
    });
    inactive + active.saturating_sub(mapped)
}

/// The groups that we are in and that have a limit, of both kinds.
pub(super) fn groups(text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<Group> {
    let found = limits(text, read).into_iter();
    found.map(|(version, limit, folder)| Group::open(version, limit, &folder)).collect()
}

fn limits(text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<(Version, u64, PathBuf)> {
    let mut found: Vec<(Version, u64, PathBuf)> = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mounts, version): (&[&str], _) = if controllers.is_empty() {
            (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], Version::Two)
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (&["/sys/fs/cgroup/memory"], Version::One)
        } else {
            continue;
        };
        for mount in mounts {
            // The limits of those above hold as well; in a container the path may be the host's.
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let folder = Path::new(mount).join(group);
                let limit = read(&folder.join(version.limit_file()));
                let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
                if let Some(limit) = limit.filter(|limit| *limit < LIMIT_MAX) {
                    found.push((version, limit, folder));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X8
    #[test]
    fn every_group_with_a_limit_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "2000000\n"),
            ("/sys/fs/cgroup/memory/c/d/memory.limit_in_bytes", "3000000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        for (groups, expected) in [
            ("0::/a/b\n", &[(1_000_000, "/sys/fs/cgroup/a")][..]),
            ("4:memory:/c\n", &[(2_000_000, "/sys/fs/cgroup/memory/c")]),
            (
                "4:memory:/c/d\n0::/\n",
                &[(3_000_000, "/sys/fs/cgroup/memory/c/d"), (2_000_000, "/sys/fs/cgroup/memory/c")],
            ),
            ("4:memory:/other\n", &[]),
            ("3:cpu:/a\nnonsense\n", &[]),
        ] {
            let found = limits(groups, read);
            let found: Vec<_> = found
                .iter()
                .map(|(_, limit, folder)| (*limit, folder.to_str().expect("text")))
                .collect();
            assert_eq!(found, expected, "{groups}");
        }
    }

    /// X8: the page cache does not count, mapped files do.
    #[test]
    fn what_the_kernel_drops_is_not_in_use() {
        let two = "anon 100\nfile 50\nfile_mapped 5\ninactive_file 30\nactive_file 20\nslab 7\n";
        assert_eq!(dispensable_bytes(Version::Two, two), 45);
        let one = "mapped_file 1\ntotal_mapped_file 9\ninactive_file 2\ntotal_inactive_file 30\n\
                   total_active_file 4\n";
        assert_eq!(dispensable_bytes(Version::One, one), 30);
        assert_eq!(dispensable_bytes(Version::Two, "nonsense\ninactive_filed 3\n"), 0);
    }
}
