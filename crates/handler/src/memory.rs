//! How much memory the process may have, whether most of it is in use, and what kinds of work may take of it
//! (X8, ADR 0056). At the limit of a control group the kernel kills a process with all its clients. So the
//! server refuses work before: new connections, and costly requests on every connection.
//!
//! There is one of this for the process, because the limit is the process's. Its files are opened by
//! [`set_up`], before the workers are kept in their sandbox.

mod group;
mod watch;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use sekisho_lifecycle::Budget;
use tokio::sync::Notify;

use group::{Group, groups};
pub use watch::HeapWatch;

/// From this part of the limit on, new connections and costly work are refused: the rest is for work that has
/// begun.
const SHORT_PERCENT: u64 = 85;
/// From this part on every new request is refused.
const CRITICAL_PERCENT: u64 = 95;
/// So much of the limit makes the memory of the group ours to answer for. Where it is mostly that of other processes,
/// refusing work here frees little of it: then only the last of it counts.
const OWN_PART: u64 = 8;
/// A look is trusted for so long, and for so many questions.
const LOOK_MILLIS: u64 = 20;
const LOOK_EVERY: u64 = 16;
/// While memory is short, free pages are given back at most this often, and for at most a fiftieth of the time.
const TRIM_MILLIS: u64 = 100;
const TRIM_PART: u64 = 50;
/// What the heap keeps for later is given back when it is this much, and no thread has looked just before.
const WORTH_BYTES: u64 = 8 << 20;
const WORTH_MILLIS: u64 = 2500;

/// The part of the limit that one kind of work may take, and the most where the limit is high or there is none.
const BUDGET_PART: u64 = 8;
const BUDGET_BYTES_MIN: u64 = 1 << 20;
const COMPRESSION_BYTES_MAX: u64 = 256 << 20;
const LISTING_BYTES_MAX: u64 = 64 << 20;
const NATIVE_BYTES_MAX: u64 = 256 << 20;
const UPLOAD_BYTES_MAX: u64 = 1 << 30;
/// Caches that are there for speed alone have less.
const CACHE_PART: u64 = 64;

/// What holds for the process.
static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::of_this_process);

/// Opens the files that it looks at. To be called before threads are kept in a sandbox.
pub fn set_up() {
    LazyLock::force(&MEMORY);
}

/// Whether most of the memory that the process may have is in use. Cheap: mostly what was seen a moment ago.
/// A caller that gets `true` refuses the work, so this counts a refusal.
pub fn is_short() -> bool {
    let is_short = MEMORY.counted_shortage() >= Shortage::Short;
    if is_short {
        MEMORY.refusals.fetch_add(1, Ordering::Relaxed);
    }
    is_short
}

/// The same for a caller that refuses nothing.
pub fn is_still_short() -> bool {
    MEMORY.shortage() >= Shortage::Short
}

/// Waits until memory becomes short. One task of the process does.
pub async fn shortage_began() {
    MEMORY.began.notified().await;
}

/// How often memory became short.
pub fn shortages() -> u64 {
    MEMORY.shortages.load(Ordering::Relaxed)
}

/// How often work was refused because of it.
pub fn refusals() -> u64 {
    MEMORY.refusals.load(Ordering::Relaxed)
}

/// Whether so little is left that every request that has only begun must go. Cheaper still: by time alone.
pub fn is_critical() -> bool {
    MEMORY.shortage() == Shortage::Critical
}

/// The limit, where there is one.
pub fn limit_bytes() -> Option<u64> {
    MEMORY.limit
}

/// What encoders of answers may take together.
pub fn compression() -> &'static Arc<Budget> {
    &MEMORY.compression
}

/// What large listings and archives may take together.
pub fn listings() -> &'static Arc<Budget> {
    &MEMORY.listings
}

/// What uploads to object storage may take together.
pub fn uploads() -> &'static Arc<Budget> {
    &MEMORY.uploads
}

/// What native sessions may take together for what waits.
pub fn native() -> &'static Arc<Budget> {
    &MEMORY.native
}

/// What a cache of a worker may take, where it would take so much without a limit.
pub fn cache_bytes(without_limit: u64) -> u64 {
    MEMORY.limit.map_or(without_limit, |limit| without_limit.min(limit / CACHE_PART))
}

/// Gives memory that the heap keeps for later back to the system, if that is much. It may take milliseconds.
fn trim() {
    MEMORY.trim_if_worth();
}

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Shortage {
    Nothing = 0,
    Short = 1,
    Critical = 2,
}

/// The limits, what was last seen, and the budgets.
#[derive(Debug)]
struct Memory {
    /// The lowest limit.
    limit: Option<u64>,
    groups: Vec<Group>,
    /// Where the kernel says what of our memory is resident.
    resident: Option<File>,
    asked: AtomicU64,
    looked_at: AtomicU64,
    is_looking: AtomicBool,
    /// A [`Shortage`].
    shortage: AtomicU8,
    /// How often memory became short, what is notified of it, and how often work was refused.
    shortages: AtomicU64,
    began: Notify,
    refusals: AtomicU64,
    /// When free pages may be given back next.
    trim_at: AtomicU64,
    trimmed_at: AtomicU64,
    compression: Arc<Budget>,
    listings: Arc<Budget>,
    native: Arc<Budget>,
    uploads: Arc<Budget>,
}

impl Memory {
    fn of_this_process() -> Self {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut groups = groups(&text, |path| std::fs::read_to_string(path).ok());
        groups.extend(injected_limit().map(Group::without_files));
        let physical = {
            let info = rustix::system::sysinfo();
            info.totalram as u64 * u64::from(info.mem_unit)
        };
        Self::new(groups, physical)
    }

    fn new(groups: Vec<Group>, physical: u64) -> Self {
        let limit = groups.iter().map(Group::limit).min();
        let basis = limit.unwrap_or(u64::MAX).min(physical);
        let budget = |max: u64| {
            let bytes = (basis / BUDGET_PART).clamp(BUDGET_BYTES_MIN, max);
            Budget::new(usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        Self {
            limit,
            groups,
            resident: File::open("/proc/self/statm").ok(),
            asked: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            is_looking: AtomicBool::new(false),
            shortage: AtomicU8::new(0),
            shortages: AtomicU64::new(0),
            began: Notify::new(),
            refusals: AtomicU64::new(0),
            trim_at: AtomicU64::new(0),
            trimmed_at: AtomicU64::new(0),
            compression: budget(COMPRESSION_BYTES_MAX),
            listings: budget(LISTING_BYTES_MAX),
            native: budget(NATIVE_BYTES_MAX),
            uploads: budget(UPLOAD_BYTES_MAX),
        }
    }

    /// The same for work that takes memory: after so much of it there is a look, however little time has passed.
    fn counted_shortage(&self) -> Shortage {
        if self.groups.is_empty() {
            return Shortage::Nothing;
        }
        if self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            self.looked_at.store(0, Ordering::Relaxed);
        }
        self.shortage()
    }

    fn shortage(&self) -> Shortage {
        if self.groups.is_empty() {
            return Shortage::Nothing;
        }
        let now = millis();
        let is_stale = now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_MILLIS;
        // One thread looks; the others go by what was seen last.
        if is_stale && !self.is_looking.swap(true, Ordering::Acquire) {
            self.look_and_trim(now);
            self.looked_at.store(now, Ordering::Relaxed);
            self.is_looking.store(false, Ordering::Release);
        }
        match self.shortage.load(Ordering::Relaxed) {
            0 => Shortage::Nothing,
            1 => Shortage::Short,
            _ => Shortage::Critical,
        }
    }

    /// What is in use counts, not what the heap keeps for later: that goes back first.
    fn look_and_trim(&self, now: u64) {
        let mut shortage = self.look();
        if shortage > Shortage::Nothing && now >= self.trim_at.load(Ordering::Relaxed) {
            sekisho_sys::give_back_memory();
            let took = millis().saturating_sub(now);
            self.trim_at.store(now + TRIM_MILLIS.max(took * TRIM_PART), Ordering::Relaxed);
            shortage = self.look();
        }
        let before = self.shortage.swap(shortage as u8, Ordering::Relaxed);
        if before == Shortage::Nothing as u8 && shortage > Shortage::Nothing {
            self.shortages.fetch_add(1, Ordering::Relaxed);
            self.began.notify_one();
        }
    }

    fn look(&self) -> Shortage {
        let own = self.anonymous_bytes().unwrap_or(0);
        let of = |group: &Group| judge(group.limit(), own, group.used_bytes());
        self.groups.iter().map(of).max().unwrap_or(Shortage::Nothing)
    }

    /// What of our memory is resident and has no file behind it, from which it could be read again.
    fn anonymous_bytes(&self) -> Option<u64> {
        let mut line = [0; 128];
        let count = self.resident.as_ref()?.read_at(&mut line, 0).ok()?;
        // The whole size, what of it is resident, and what of that is shared with files, in pages.
        let text = std::str::from_utf8(line.get(..count)?).ok()?;
        let mut pages = text.split(' ').skip(1).map(|pages| pages.parse::<u64>().ok());
        let (resident, shared) = (pages.next()??, pages.next()??);
        let page = sekisho_sys::page_bytes();
        Some(resident.saturating_sub(shared) * page)
    }

    fn trim_if_worth(&self) {
        let now = millis();
        let last = self.trimmed_at.swap(now, Ordering::Relaxed);
        // Another thread has just done it.
        if now.saturating_sub(last) < WORTH_MILLIS {
            return;
        }
        let Some(anonymous) = self.anonymous_bytes() else { return };
        // To ask the heap takes longer than to ask the kernel.
        if anonymous < WORTH_BYTES {
            return;
        }
        let Some((used, _)) = sekisho_sys::heap() else { return };
        if anonymous.saturating_sub(used) >= WORTH_BYTES {
            sekisho_sys::give_back_memory();
        }
    }
}

/// What it means that we hold so much, and the group as a whole so much.
fn judge(limit: u64, own: u64, group: Option<u64>) -> Shortage {
    let of = |used: u64| match used / (limit / 100).max(1) {
        ..SHORT_PERCENT => Shortage::Nothing,
        SHORT_PERCENT..CRITICAL_PERCENT => Shortage::Short,
        CRITICAL_PERCENT.. => Shortage::Critical,
    };
    let of_group = match group.map_or(Shortage::Nothing, of) {
        shortage if own >= limit / OWN_PART => shortage,
        Shortage::Critical => Shortage::Short,
        _ => Shortage::Nothing,
    };
    of(own).max(of_group)
}

/// Milliseconds since the first call: how old a look is. No request's time depends on it.
#[expect(clippy::disallowed_methods, reason = "asked from any thread, where no worker's clock is")]
fn millis() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Far from zero, which means never.
    START.elapsed().as_millis() as u64 + 1_000_000
}

/// A limit for tests that cannot make a control group. Only a build with debug assertions has it.
#[cfg(debug_assertions)]
fn injected_limit() -> Option<u64> {
    std::env::var("SEKISHO_INJECT_FAULTS_MEMORY").ok()?.parse().ok()
}

#[cfg(not(debug_assertions))]
const fn injected_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// X8: work is refused when the process would be killed, not when only other processes use the memory.
    #[test]
    fn most_of_the_limit_is_too_much_whoever_has_it() {
        use Shortage::{Critical, Nothing, Short};
        for (own, group, expected) in [
            (10, None, Nothing),
            (84, None, Nothing),
            (86, None, Short),
            (96, None, Critical),
            (50, Some(84), Nothing),
            // The kernel's memory for us is in the group, but not resident in the process.
            (50, Some(86), Short),
            (50, Some(96), Critical),
            (2, Some(86), Nothing),
            (2, Some(96), Short),
        ] {
            let shortage = judge(100 * MIB, own * MIB, group.map(|used: u64| used * MIB));
            assert_eq!(shortage, expected, "{own} {group:?}");
        }
    }

    /// X8
    #[test]
    fn work_is_refused_when_most_of_it_is_in_use() {
        let of = |limit: Option<u64>| {
            Memory::new(limit.map(Group::without_files).into_iter().collect(), u64::MAX)
        };
        let used = of(None).anonymous_bytes().expect("a process has memory");
        assert!(used > 0);
        for (limit, is_short) in [(None, false), (Some(used * 100), false), (Some(used / 2), true)]
        {
            let memory = of(limit);
            let seen = |_| (memory.counted_shortage() >= Shortage::Short) == is_short;
            assert!((0..LOOK_EVERY * 2).all(seen), "{limit:?}");
        }
    }

    /// X8: what kinds of work may take is a part of what there is.
    #[test]
    fn budgets_are_parts_of_the_limit() {
        let of = |limit: Option<u64>, physical: u64| {
            let memory =
                Memory::new(limit.map(Group::without_files).into_iter().collect(), physical * MIB);
            let bytes = |budget: &Budget| budget.limit() as u64 / MIB;
            (bytes(&memory.compression), bytes(&memory.listings), bytes(&memory.native))
        };
        assert_eq!(of(Some(64 * MIB), 8192), (8, 8, 8));
        assert_eq!(of(Some(4 * MIB), 8192), (1, 1, 1));
        assert_eq!(of(None, 512), (64, 64, 64));
        assert_eq!(of(None, 65_536), (256, 64, 256));
    }
}
