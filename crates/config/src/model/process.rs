//! The processes and threads of a server.

/// `daemon` and `master_process`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Processes {
    /// `daemon`: the command ends when the server serves.
    pub daemon: bool,
    /// `master_process`: a parent beside the worker process; `None` for one where root starts a server of another user.
    pub parent: Option<bool>,
}

/// How many workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    /// One for each core.
    Auto,
    /// This number.
    Count(usize),
}
