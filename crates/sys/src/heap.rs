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

/// Gives pages that the allocator keeps for later back to the system, where the C library can.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number, locks each arena while it works on it, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
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
