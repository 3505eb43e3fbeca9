//! The error log: levels, and lines in nginx's form with the connection's number and the request's id.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use sekisho_config::Level;
use sekisho_http::date;

use crate::sink::Sink;

/// The wall clock at the moment of a line: seconds since 1970 and the local offset.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Seconds since 1970.
    pub unix_secs: i64,
    /// What the local time adds to UTC.
    pub utc_offset_secs: i32,
}

/// Writes error lines to the sinks of one context (`error_log` is allowed in every block).
#[derive(Clone, Debug, Default)]
pub struct ErrorLogger {
    sinks: Arc<[(Arc<Sink>, Level)]>,
    most: Option<Level>,
}

impl ErrorLogger {
    /// A logger for these sinks, each from its level on.
    pub fn new(sinks: Vec<(Arc<Sink>, Level)>) -> Self {
        let most = sinks.iter().map(|(_, level)| *level).max();
        Self { sinks: sinks.into(), most }
    }

    /// Whether a line of this level would be written at all: checked before it is composed.
    pub fn wants(&self, level: Level) -> bool {
        self.most.is_some_and(|most| level <= most)
    }

    /// Writes one line: `2026/11/15 10:00:00 [error] 12#3: *7 message`.
    pub fn write(
        &self,
        level: Level,
        stamp: Stamp,
        connection: Option<u64>,
        message: fmt::Arguments<'_>,
    ) {
        if !self.wants(level) {
            return;
        }
        let mut line = Vec::with_capacity(160);
        let at = date::civil(stamp.unix_secs + i64::from(stamp.utc_offset_secs));
        let pid = rustix::process::getpid().as_raw_nonzero();
        let _ = write!(
            line,
            "{:04}/{:02}/{:02} {:02}:{:02}:{:02} [{}] {pid}#0: ",
            at.year,
            at.month,
            at.day,
            at.hour,
            at.minute,
            at.second,
            level.name(),
        );
        if let Some(connection) = connection {
            let _ = write!(line, "*{connection} ");
        }
        let start = line.len();
        let _ = line.write_fmt(message);
        // One event is one line, whatever a client put into it (V27).
        for byte in &mut line[start..] {
            if *byte < 0x20 || *byte == 0x7f {
                *byte = b'?';
            }
        }
        line.push(b'\n');
        for (sink, most) in self.sinks.iter() {
            if level > *most {
                continue;
            }
            if sink.is_syslog() {
                let mut whole = Vec::with_capacity(line.len() + 64);
                sink.begin_line(Some(level), stamp, &mut whole);
                whole.extend_from_slice(&line);
                sink.line(&whole);
            } else {
                sink.line(&line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{Buffering, Logs};
    use sekisho_config::LogTarget;

    #[test]
    fn a_line_has_its_level_and_stays_one_line() {
        // O6, V27
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("error.log");
        let logs = Logs::new();
        let sink =
            logs.open(&LogTarget::File(path.clone()), Buffering::default()).expect("it opens");
        let logger = ErrorLogger::new(vec![(sink, Level::Error)]);
        let stamp = Stamp { unix_secs: 784_111_777, utc_offset_secs: 3600 };
        logger.write(Level::Error, stamp, Some(7), format_args!("a\nb \u{1} c"));
        logger.write(Level::Info, stamp, None, format_args!("not wanted"));
        logs.flush();
        let text = std::fs::read_to_string(&path).expect("the log");
        assert_eq!(text.lines().count(), 1);
        assert!(text.starts_with("1994/11/06 09:49:37 [error] "), "{text}");
        assert!(text.ends_with("#0: *7 a?b ? c\n"), "{text}");
    }
}
