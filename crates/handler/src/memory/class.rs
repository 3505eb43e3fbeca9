//! The classes of memory that a peer can make the server hold (O9): each has a share of the one budget.

use std::array;
use std::sync::Arc;

use sekisho_lifecycle::Budget;

/// The part of the limit that all classes may take together. The rest is for the program itself, the kernel's memory for
/// sockets and files, and what the allocator cannot use.
const WHOLE_PART: u64 = 2;
/// No class has less than this, however low the limit is.
const BYTES_MIN: u64 = 1 << 20;

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:literal $part:literal $max:expr;)*) => {
        /// A class of memory.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Class { $($(#[doc = $doc])+ $variant,)* }

        impl Class {
            /// Every class.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Its name in metrics and in `ctl`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its share: this part of the limit, and at most so many bytes.
            const fn share(self) -> (u64, u64) {
                match self { $(Self::$variant => ($part, $max),)* }
            }
        }
    };
}

classes! {
    /// Unfinished TLS handshakes.
    Handshakes "handshakes" 8 256 << 20;
    /// Header blocks that are incomplete.
    HeaderBlocks "header_blocks" 8 256 << 20;
    /// Request bodies on their way to a program or a server.
    RequestBodies "request_bodies" 8 1 << 30;
    /// Responses that wait in a connection until the client takes them.
    Responses "responses" 4 4 << 30;
    /// Requests that are passed on, and responses that are read ahead of a slow client (`proxy_buffers`).
    ProxyBuffers "proxy_buffers" 4 4 << 30;
    /// Responses that wait for a filter to change them.
    Filters "filters" 8 1 << 30;
    /// Encoders of responses.
    Compression "compression" 8 256 << 20;
    /// Large listings and archives.
    Listings "listings" 8 64 << 20;
    /// Uploads to object storage.
    Uploads "uploads" 8 1 << 30;
    /// Requests and responses of native sessions.
    Native "native" 8 256 << 20;
}

/// One budget, and the share of each class.
#[derive(Debug)]
pub(super) struct Classes {
    pub(super) whole: Arc<Budget>,
    parts: [Arc<Budget>; Class::ALL.len()],
}

impl Classes {
    /// Of a process that may have this many bytes.
    pub(super) fn new(limit: u64) -> Self {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let whole = Budget::new(bytes((limit / WHOLE_PART).max(4 * BYTES_MIN)));
        let parts = array::from_fn(|at| {
            let (part, max) = Class::ALL[at].share();
            Budget::part_of(&whole, bytes((limit / part).clamp(BYTES_MIN, max)))
        });
        Self { whole, parts }
    }

    pub(super) const fn of(&self, class: Class) -> &Arc<Budget> {
        &self.parts[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// O9
    #[test]
    fn shares_are_parts_of_the_limit() {
        let of = |limit: u64| {
            let classes = Classes::new(limit * MIB);
            let bytes = |budget: &Budget| budget.limit() as u64 / MIB;
            let of = |class| bytes(classes.of(class));
            let (compression, listings) = (of(Class::Compression), of(Class::Listings));
            (bytes(&classes.whole), of(Class::Responses), compression, listings)
        };
        assert_eq!(of(64), (32, 16, 8, 8));
        assert_eq!(of(4), (4, 1, 1, 1));
        assert_eq!(of(512), (256, 128, 64, 64));
        assert_eq!(of(65_536), (32_768, 4096, 256, 64));
    }

    /// O9: no class has what all have together.
    #[test]
    fn one_class_leaves_memory_for_the_others() {
        for limit in [16 * MIB, 64 * MIB, 1 << 40] {
            let classes = Classes::new(limit);
            for class in Class::ALL {
                assert!(classes.of(class).limit() <= classes.whole.limit() / 2, "{}", class.name());
            }
        }
    }
}
