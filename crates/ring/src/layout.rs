//! Where things lie in the memory of a session: one page that says where the sides are, then the ring from
//! client to server, then the ring back. `docs/protocol.md` has the same in bytes.

use crate::copy::WORD;

/// Where the rings' bytes begin.
pub const HEAD_BYTES: usize = 4096;
/// What one ring has of the head.
pub const CONTROL_BYTES: usize = 1024;
/// The smallest ring.
pub const RING_BYTES_MIN: usize = 4096;
/// The largest ring.
pub const RING_BYTES_MAX: usize = 1 << 28;

/// Words of a control block. Those of each side are on cache lines of their own, so that the sides invalidate
/// each other's lines no more than they must.
pub(crate) const TAIL: usize = 0;
pub(crate) const ENDED: usize = 1;
pub(crate) const HEAD: usize = 128 / WORD;
pub(crate) const READER_WAITS: usize = 256 / WORD;
pub(crate) const WRITER_WAITS: usize = 384 / WORD;

/// Where one ring lies, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingLayout {
    /// Its control block; a multiple of eight.
    pub control: usize,
    /// Its bytes; a multiple of eight.
    pub data: usize,
    /// How many they are: a power of two, at least eight.
    pub bytes: usize,
}

/// The two rings of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rings {
    /// From client to server.
    pub request: RingLayout,
    /// From server to client.
    pub answer: RingLayout,
}

impl Rings {
    /// Rings of these sizes; `None` where they will not do.
    pub fn new(request_bytes: usize, answer_bytes: usize) -> Option<Self> {
        let is_good = |bytes: usize| {
            bytes.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes)
        };
        let request = RingLayout { control: 0, data: HEAD_BYTES, bytes: request_bytes };
        let answer = RingLayout {
            control: CONTROL_BYTES,
            data: HEAD_BYTES.checked_add(request_bytes)?,
            bytes: answer_bytes,
        };
        (is_good(request_bytes) && is_good(answer_bytes)).then_some(Self { request, answer })
    }

    /// The bytes of all.
    pub const fn memory_bytes(&self) -> usize {
        HEAD_BYTES + self.request.bytes + self.answer.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_lie_behind_each_other_and_odd_sizes_are_refused() {
        let rings = Rings::new(4096, 8192).expect("good sizes");
        assert_eq!(rings.request, RingLayout { control: 0, data: 4096, bytes: 4096 });
        assert_eq!(rings.answer, RingLayout { control: 1024, data: 8192, bytes: 8192 });
        assert_eq!(rings.memory_bytes(), 16384);
        for (one, other) in
            [(0, 4096), (4096, 5000), (2048, 4096), (4096, usize::MAX), (1 << 29, 4096)]
        {
            assert_eq!(Rings::new(one, other), None, "{one} and {other}");
        }
    }

    #[test]
    fn the_document_has_the_same_places() {
        let document = include_str!("../../../docs/protocol.md");
        for (name, word) in [
            ("tail", TAIL),
            ("ended", ENDED),
            ("head", HEAD),
            ("reader waits", READER_WAITS),
            ("writer waits", WRITER_WAITS),
        ] {
            let row = format!("| {} | 8 | {name} |", word * WORD);
            assert!(document.contains(&row), "docs/protocol.md has no row {row}");
        }
    }
}
