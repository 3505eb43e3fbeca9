//! What the allocator of the C library says of itself.

/// Bytes that the program has from the allocator, and bytes that the allocator keeps for later; `None` where
/// the C library does not tell.
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

/// What the end of a thread's own heap may keep for later, in bytes: the C library's first choice. It raises it by
/// itself when large pieces are freed, up to megabytes for each thread.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_AT_THE_END: libc::c_int = 128 << 10;
/// A piece of this size is enough for the C library to look at that end when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const NUDGE_BYTES: usize = 64 << 10;

/// Gives pages that the allocator keeps for later back to the system, where the C library can. The calling thread
/// is the one whose heap was large.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the first two take numbers, lock each arena while they work on it, and touch nothing that is in use; what
    // is freed was allocated right before, and `free` takes a null pointer, too.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_THE_END);
        // This gives back free pages in the middle of every heap, but the end of the main one only.
        libc::malloc_trim(0);
        libc::free(libc::malloc(NUDGE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_seen() {
        let Some((before, _)) = heap() else { return };
        let large = vec![1_u8; 8 << 20];
        let (after, _) = heap().expect("it was told before");
        assert!(after >= before + (8 << 20), "{before} {after}");
        drop(large);
        give_back();
        assert!(heap().is_some_and(|(now, _)| now < after));
    }
}
