//! Where log lines go (O6). A request never waits for a log: lines are put into a bounded queue and one
//! thread writes them; what does not fit is dropped and counted. Formats are decided elsewhere.
#![forbid(unsafe_code)]

mod error_log;
mod guard;
mod sink;

pub use error_log::{ErrorLogger, Stamp};
pub use guard::{is_own_output, open_guarded};
pub use sink::{Logs, Sink, lines_dropped};
