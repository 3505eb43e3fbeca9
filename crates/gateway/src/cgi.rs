//! CGI (RFC 3875): the environment and command line of a program, the head of its answer, and the
//! machine that decides when that head may leave, when the program has failed and when it must end.

mod cause;
mod environment;
mod head;
mod invocation;
mod program;

pub use cause::{Cause, HeadError};
pub(crate) use environment::http_variables;
pub use environment::{Authenticated, Environment, Facts, environment};
pub use head::{Fed, HeadReader, HeadRules, Kind, ResponseHead};
pub use invocation::{Invocation, invocation};
pub use program::{Ending, Exit, Fact, Length, Program, ProgramOrders, Release, Rules, Signal};
