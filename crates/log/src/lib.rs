//! Where log lines go (O6). A request never waits for a log: lines of the access log come together in the worker's
//! own buffers, go into a bounded queue from there, and one thread writes them; what does not fit is dropped and
//! counted. Formats are decided elsewhere.
#![forbid(unsafe_code)]

mod buffers;
mod destination;
mod error_log;
mod sink;
mod syslog;
mod wakeup;

pub use buffers::LineBuffers;
pub use error_log::{ErrorLogger, Stamp};
pub use sink::{Buffering, Logs, Sink, lines_dropped};
