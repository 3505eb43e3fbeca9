//! What is to be logged about a decision: collected here and written by the shell.

use sekisho_config::{AssignedId, Level};

/// A line for the error log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its level.
    pub level: Level,
    /// What it says; never more than one line.
    pub text: String,
}

/// How many remarks one request may cause.
const LOG_ENTRIES_MAX: usize = 1000;

/// The remarks of an exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogEntries {
    lines: Vec<LogEntry>,
    /// Variables whose use without a value has been remarked on.
    unset: Vec<AssignedId>,
}

impl LogEntries {
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.unset.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn add(&mut self, level: Level, text: String) {
        if self.lines.len() < LOG_ENTRIES_MAX {
            self.lines.push(LogEntry { level, text });
        }
    }

    /// A variable is used that no `set` has reached: logged once for each.
    pub(crate) fn unset(&mut self, id: AssignedId, name: &str) {
        if !self.unset.contains(&id) {
            self.unset.push(id);
            self.add(Level::Warn, format!("using uninitialized \"{name}\" variable"));
        }
    }
}
