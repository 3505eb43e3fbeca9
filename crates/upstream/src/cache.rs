//! Which answers are kept, for how long, under which name, and when they may be given (U5): RFC 9111 with
//! nginx's directives. Times are Unix seconds, as entries outlive the process; files are the shell's.

pub mod control;
pub mod entry;
pub mod freshness;
pub mod index;
pub mod key;
pub mod purges;
pub mod selection;
pub mod store;

pub use control::CacheControl;
pub use entry::{Damaged, Entry};
pub use freshness::{CacheStatus, Lifetime, StaleCause, UseStale, may_serve_stale};
pub use index::Index;
pub use key::{Key, entry_path};
pub use purges::{PurgeSerial, Purges};
pub use selection::{Selection, select};
pub use store::{Candidate, Ignored, NotStored, StoreRules, may_store};
