//! Standard output and standard error, either of which may be closed or full at any time. The macros of the standard
//! library panic then.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use crate::Problem;

/// What a server has to say. It serves on, whether somebody reads it or not.
pub(crate) fn tell(text: impl Display) {
    let mut out = io::stdout().lock();
    // In one piece, so that a reader of one line has all.
    let _ = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush());
}

/// What a short command was asked for. A reader that has gone has read enough.
pub(crate) fn print(text: impl Display) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Problem::new(format_args!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// What goes to standard error. If that cannot be written, it cannot be reported either.
pub(crate) fn complain(text: impl Display) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}
