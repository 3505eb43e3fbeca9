//! Memory that is shared with another process.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Memory that another process reads and writes at the same time: words, and nothing but atomic access to them.
pub struct SharedMemory {
    start: NonNull<AtomicU64>,
    words: usize,
}

impl SharedMemory {
    /// Maps the first bytes of a file in memory. It must be sealed against shrinking, or another process that
    /// has it could take the memory away (`SIGBUS`); and be so long.
    pub fn map(file: &impl AsFd, bytes: usize) -> io::Result<Self> {
        let unfit = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
        if bytes == 0 || !bytes.is_multiple_of(size_of::<AtomicU64>()) {
            return Err(unfit("not a number of words"));
        }
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open for as long as it is borrowed; this call has no further argument.
        let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(io::Error::last_os_error());
        }
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(unfit("the memory can be taken away"));
        }
        if file_bytes(fd)? < bytes as u64 {
            return Err(unfit("the memory is too small"));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice: it replaces nothing that is there. The file
        // has so many bytes and keeps them, as was just seen.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| unfit("mapped to nowhere"))?;
        Ok(Self { start, words: bytes / size_of::<AtomicU64>() })
    }

    /// Copies bytes into the memory, from the byte `at` on, as one instruction where the machine has it; whether it
    /// has. Nothing can be said about the order in which others see them.
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        let to = self.place(at, from.len());
        // SAFETY: the memory has so many bytes from `to` on, as was just looked up, and `from` is a slice.
        // They do not overlap: no code gets a plain slice of the mapping.
        unsafe { copy_bytes(from.as_ptr(), to, from.len()) }
    }

    /// Copies bytes out of the memory, from the byte `at` on, as one instruction where the machine has it; whether
    /// it has.
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let from = self.place(at, into.len());
        // SAFETY: the same, the other way round.
        unsafe { copy_bytes(from, into.as_mut_ptr(), into.len()) }
    }

    /// Where so many bytes begin; there are so many.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        let bytes = self.words * size_of::<AtomicU64>();
        assert!(at.checked_add(len).is_some_and(|end| end <= bytes), "within the memory");
        // SAFETY: `at` lies within the mapping, or just behind its end.
        unsafe { self.start.as_ptr().cast::<u8>().add(at) }
    }
}

/// Copies bytes of which another process may write some, or read some, at the same time. The compiler knows nothing
/// of what the instruction does but that it touches memory; so nothing is undefined, whatever is copied, as it would
/// be for an ordinary copy.
///
/// # Safety
/// So many bytes can be read from `from` and written to `to` by this process, and they do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: it reads and writes just these bytes, as the caller has promised; the direction flag is clear, as it is
    // in every function; the three registers are all that it changes.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        );
    }
    true
}

/// # Safety
/// Nothing is done here.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_bytes(_: *const u8, _: *mut u8, _: usize) -> bool {
    false
}

fn file_bytes(fd: libc::c_int) -> io::Result<u64> {
    // SAFETY: a `stat` is numbers only, of which all zero is one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `stat` into a local that is one.
    if unsafe { libc::fstat(fd, &raw mut stat) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

impl Deref for SharedMemory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped from here on, readable and writable, until `self` is dropped, which
        // outlives the borrow; a mapping begins at a page, so they are aligned; every pattern of bits is a
        // good `u64`. The other process may write them at any time: that is what atomics are for, they are
        // interior mutable, so nothing is assumed of their values from one load to the next. In this process
        // the mapping is reached only through this slice.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: exactly what was mapped, once; there is no reference into it any more, for each of them
        // borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
    }
}

// SAFETY: it owns its mapping, which is the same from every thread; what it gives out is `&[AtomicU64]`, which is
// both `Send` and `Sync`.
unsafe impl Send for SharedMemory {}
// SAFETY: the same.
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SharedMemory({} words)", self.words)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::atomic::Ordering;

    use super::*;

    fn file(bytes: i64, seals: libc::c_int) -> OwnedFd {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that ends with a zero; the new descriptor has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags)) };
        // SAFETY: the descriptor is open.
        let made = unsafe {
            libc::ftruncate(file.as_raw_fd(), bytes)
                | libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals)
        };
        assert_eq!(made, 0);
        file
    }

    #[test]
    fn two_mappings_of_one_file_are_the_same_memory() {
        // E7
        let file = file(8192, libc::F_SEAL_SHRINK);
        let one = SharedMemory::map(&file, 8192).expect("mapped");
        let other = SharedMemory::map(&file, 4096).expect("mapped");
        drop(file);
        assert_eq!((one.len(), other.len()), (1024, 512));
        one[511].store(7, Ordering::Relaxed);
        assert_eq!(other[511].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn bytes_are_copied_in_and_out_as_they_are() {
        // E7
        let file = file(4096, libc::F_SEAL_SHRINK);
        let memory = SharedMemory::map(&file, 4096).expect("mapped");
        let bytes: Vec<u8> = (0..1000).map(|byte| byte as u8).collect();
        if !memory.write(13, &bytes) {
            return;
        }
        let mut back = vec![0; 1000];
        assert!(memory.read(13, &mut back));
        assert_eq!(back, bytes);
        assert_eq!(memory[1].load(Ordering::Relaxed).to_le_bytes(), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert!(memory.read(4096, &mut []) && memory.write(3096, &bytes));
    }

    #[test]
    #[should_panic(expected = "within the memory")]
    fn nothing_is_copied_beyond_the_memory() {
        // E7
        let file = file(4096, libc::F_SEAL_SHRINK);
        SharedMemory::map(&file, 4096).expect("mapped").write(4090, &[0; 7]);
    }

    #[test]
    fn memory_that_can_go_or_is_not_there_is_refused() {
        // E7, V43
        let open = file(4096, 0);
        assert!(SharedMemory::map(&open, 4096).is_err(), "not sealed");
        let small = file(4095, libc::F_SEAL_SHRINK);
        assert!(SharedMemory::map(&small, 4096).is_err(), "too small");
        assert!(SharedMemory::map(&small, 0).is_err());
        assert!(SharedMemory::map(&small, 12).is_err());
        let (pipe, _) = io::pipe().expect("a pipe");
        assert!(SharedMemory::map(&pipe, 4096).is_err(), "not memory at all");
        let null = std::fs::File::open("/dev/zero").expect("there");
        assert!(SharedMemory::map(&null, 4096).is_err());
    }
}
