//! The allocator of the C library: how it is set up, what it says of itself, and how it gives memory back
//! (ADR 0056).

/// From this size on a piece of memory is mapped by itself and goes back to the system when it is freed. Fixed: the C
/// library would raise it to the size of whatever is freed, up to 32 MiB, and keep pieces of that size for good.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 256 << 10;
/// What the end of a heap may keep for later. Fixed as well, for the same reason.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_AT_THE_END: libc::c_int = 512 << 10;
/// A piece of this size is enough for the C library to look at the end of a heap when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const NUDGE_BYTES: usize = 64 << 10;
/// Heaps beside one for each processor: the main thread's, and one more for threads that come and go.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MORE_HEAPS: usize = 2;

/// Sets the allocator up. To be called first of all, while there is one thread.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let heaps = libc::c_int::try_from(processors + MORE_HEAPS).unwrap_or(libc::c_int::MAX);
        // SAFETY: it takes two numbers and is called before there are other threads. Where it refuses, the C library
        // goes on as it would without it.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_THE_END);
            libc::mallopt(libc::M_ARENA_MAX, heaps);
        }
    }
}

/// Bytes that the program has from the allocator, and bytes that the allocator keeps for later (some of which it may
/// have given back to the system); `None` if the C library does not report it.
pub fn heap() -> Option<(u64, u64)> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes no arguments, locks each arena while it looks at it, and returns plain numbers.
        let told = unsafe { libc::mallinfo2() };
        // `hblkhd` is what was mapped for large pieces, beside the arenas.
        Some(((told.uordblks + told.hblkhd) as u64, told.fordblks as u64))
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// How many bytes a page has.
pub fn page_bytes() -> u64 {
    // SAFETY: it takes a number and returns one.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Gives pages that the allocator keeps for later back to the system, where the C library can: those of every
/// thread's heap.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the first takes a number, locks each arena while it works on it, and touches nothing that is in use; what
    // is freed was allocated right before, and `free` takes a null pointer, too.
    unsafe {
        // This gives back free pages in the middle of every heap, but the end of the main one only. The ends of
        // the others are given back when something next to them is freed; that of this thread's now.
        libc::malloc_trim(0);
        libc::free(libc::malloc(NUDGE_BYTES));
    }
}

/// Forgets the pages of code that were used so far, for a process that now waits: they are read again from the file
/// when they are needed.
pub fn forget_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some("r-xp")) = (words.next(), words.next()) else { continue };
        if !words.nth(3).is_some_and(|path| path.starts_with('/')) {
            continue;
        }
        let ends = range.split_once('-').and_then(|(start, end)| {
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        let Some((start, end)) = ends.filter(|(start, end)| start < end) else { continue };
        // SAFETY: the range is a mapping of a file that was never writable, so nothing in it differs from the file; the
        // kernel reads the pages again, as it did before.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}
