//! How much memory the process may have, whether most of it is in use, and the one budget of all memory that peers can
//! make it hold (X8, O9, ADR 0056, ADR 0093). At the limit of a control group the kernel kills a process with all its
//! clients. So the server refuses work before: new connections, and costly requests on every connection; and a request
//! that was admitted grows only within the share of its [`Class`].
//!
//! There is one of this for the process, because the limit is the process's. Its files are opened by
//! [`set_up`], before the workers are kept in their sandbox.

mod class;
mod group;
mod watch;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use sekisho_lifecycle::{Budget, Share};
use tokio::sync::Notify;

pub use class::Class;
use class::Classes;
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
/// A look is trusted for this time, and until this much may have been taken since: this part of the limit at most.
const LOOK_MILLIS: u64 = 20;
const LOOK_BYTES_MAX: u64 = 1 << 20;
const LOOK_PART: u64 = 64;
/// What a connection or costly work is expected to take.
const WORK_BYTES: u64 = 64 << 10;
/// What a request that is passed on takes from the budget while it is in work: its state, and a response of the least size.
pub const PASSED_ON_BYTES: usize = 16 << 10;
/// So little is not counted in the budget: most requests and handshakes hold no more.
pub const UNCOUNTED_BYTES: usize = 4 << 10;
/// What a response may hold where its share of the budget is used up.
pub const RESPONSE_BYTES_MIN: usize = 8 << 10;
/// While memory is short, free pages are given back at most this often, and for at most a fiftieth of a processor's time.
const TRIM_MILLIS: u64 = 100;
const TRIM_PART: u64 = 50;
/// What the heap keeps for later is given back when it is this much, and no thread has looked just before.
const WORTH_BYTES: u64 = 8 << 20;
const WORTH_MILLIS: u64 = 2500;

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
    MEMORY.refuses(WORK_BYTES)
}

/// The same for a request that is passed on to a server.
pub fn is_short_to_pass_on() -> bool {
    MEMORY.refuses(PASSED_ON_BYTES as u64)
}

/// The same for a caller that refuses nothing.
pub fn is_still_short() -> bool {
    MEMORY.shortage() >= Shortage::Short
}

/// Waits until memory becomes short, or nearly used up. One task of the process does.
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

/// The same as of the last look, which was a moment ago.
pub fn was_critical() -> bool {
    MEMORY.shortage.load(Ordering::Relaxed) == Shortage::Critical as u8
}

/// The limit, where there is one.
pub fn limit_bytes() -> Option<u64> {
    MEMORY.limit
}

/// The number of looks at which so little was left. Each is a reason to shed connections.
pub fn critical_looks() -> u64 {
    MEMORY.critical_looks.load(Ordering::Relaxed)
}

/// The share of a class in the budget.
#[inline]
pub fn budget(class: Class) -> &'static Arc<Budget> {
    MEMORY.classes.of(class)
}

/// Every share by name, that of all classes first.
pub fn budgets() -> impl Iterator<Item = (&'static str, &'static Budget)> {
    let each = Class::ALL.iter().map(|class| (class.name(), &**budget(*class)));
    std::iter::once(("all", &*MEMORY.classes.whole)).chain(each)
}

/// Whether the share of a class is used up: what can do with less memory then does.
#[inline]
pub fn is_full(class: Class) -> bool {
    budget(class).is_full()
}

/// Counts memory that is in use, unless it is little. Returns `false` where it has grown although the share of its class
/// is used up.
pub fn hold(share: &mut Option<Share>, class: Class, bytes: usize) -> bool {
    // A response may hold its least size in any case: most requests touch no counter that the workers share.
    let uncounted = if class == Class::Responses { RESPONSE_BYTES_MIN } else { UNCOUNTED_BYTES };
    if bytes <= uncounted {
        *share = None;
        return true;
    }
    let budget = budget(class);
    if share.as_ref().is_some_and(|share| !share.is_of(budget)) {
        *share = None;
    }
    share.get_or_insert_with(|| budget.empty_share()).hold(bytes)
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
    /// What may have been taken by work that was admitted, in bytes.
    admitted: AtomicU64,
    looked_at: AtomicU64,
    /// What was taken of the budget then.
    taken: AtomicUsize,
    /// A look is trusted until this much has been taken.
    look_bytes: u64,
    is_looking: AtomicBool,
    /// A [`Shortage`].
    shortage: AtomicU8,
    /// How often memory became short, what is notified of it, and how often work was refused.
    shortages: AtomicU64,
    began: Notify,
    refusals: AtomicU64,
    critical_looks: AtomicU64,
    /// When free pages may be given back next.
    trim_at: AtomicU64,
    trimmed_at: AtomicU64,
    classes: Classes,
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
        Self {
            limit,
            groups,
            resident: File::open("/proc/self/statm").ok(),
            admitted: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            taken: AtomicUsize::new(0),
            look_bytes: (basis / LOOK_PART).clamp(1, LOOK_BYTES_MAX),
            is_looking: AtomicBool::new(false),
            shortage: AtomicU8::new(0),
            shortages: AtomicU64::new(0),
            began: Notify::new(),
            refusals: AtomicU64::new(0),
            critical_looks: AtomicU64::new(0),
            trim_at: AtomicU64::new(0),
            trimmed_at: AtomicU64::new(0),
            classes: Classes::new(basis),
        }
    }

    fn refuses(&self, bytes: u64) -> bool {
        let is_short = self.shortage_for(bytes) >= Shortage::Short;
        if is_short {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        is_short
    }

    /// How short memory is, for work that may take this much. After a number of bytes there is a look, however little time
    /// has passed.
    fn shortage_for(&self, bytes: u64) -> Shortage {
        if self.groups.is_empty() {
            return Shortage::Nothing;
        }
        let before = self.admitted.fetch_add(bytes, Ordering::Relaxed);
        if before / self.look_bytes != before.wrapping_add(bytes) / self.look_bytes {
            self.looked_at.store(0, Ordering::Relaxed);
        }
        self.shortage()
    }

    fn shortage(&self) -> Shortage {
        if self.groups.is_empty() {
            return Shortage::Nothing;
        }
        let now = millis();
        let grown = self.classes.whole.taken().abs_diff(self.taken.load(Ordering::Relaxed));
        let is_stale = now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_MILLIS
            || grown as u64 >= self.look_bytes;
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
        self.taken.store(self.classes.whole.taken(), Ordering::Relaxed);
        let mut shortage = self.look();
        if shortage > Shortage::Nothing && now >= self.trim_at.load(Ordering::Relaxed) {
            let before = processor_millis();
            sekisho_sys::give_back_memory();
            let took = processor_millis().saturating_sub(before);
            self.trim_at.store(now + TRIM_MILLIS.max(took * TRIM_PART), Ordering::Relaxed);
            shortage = self.look();
        }
        let before = self.shortage.swap(shortage as u8, Ordering::Relaxed);
        if before == Shortage::Nothing as u8 && shortage > Shortage::Nothing {
            self.shortages.fetch_add(1, Ordering::Relaxed);
        }
        if shortage == Shortage::Critical {
            self.critical_looks.fetch_add(1, Ordering::Relaxed);
        }
        if shortage as u8 > before {
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

/// Processor time of this thread. On a busy machine it waits for a processor for much longer than it works, and what it
/// waits must not keep memory from being given back.
fn processor_millis() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1000 + time.tv_nsec.cast_unsigned() / 1_000_000
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
            let seen = |_| (memory.shortage_for(WORK_BYTES) >= Shortage::Short) == is_short;
            assert!((0..32).all(seen), "{limit:?}");
        }
    }
}
