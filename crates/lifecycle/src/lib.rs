//! How sessions and requests live and die. Knows no protocol, owns no socket, task, file or clock:
//! facts and the current time go in, orders and deadlines come out. The program around it, which has them, is called
//! the shell.
#![forbid(unsafe_code)]

pub mod budget;
pub mod cancel;
pub mod deadline;
pub mod drain;
pub mod engine;
pub mod request;
pub mod session;
pub mod stay;
mod table;
pub mod time;

pub use budget::{Budget, Share};
pub use cancel::{Cancel, Cause};
pub use deadline::{Deadline, DeadlineKind};
pub use drain::Drain;
pub use engine::{CloseReason, Engine, Stage, Step};
pub use request::Request;
pub use session::{Manner, Session};
pub use stay::{RequestId, Stay};
pub use table::RequestTable;
pub use time::Moment;
