//! Logs as the configuration has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Template;

/// `access_log`
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// Where to.
    pub target: AccessTarget,
    /// How.
    pub format: Arc<LogFormat>,
    /// `if=`
    pub condition: Option<Template>,
    /// `buffer=`
    pub buffer: Option<u64>,
    /// `flush=`
    pub flush: Option<Duration>,
    /// `gzip=`: the level.
    pub gzip: Option<u32>,
}

/// Where an access log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessTarget {
    /// Always to the same place.
    Fixed(LogTarget),
    /// To a file whose path has variables. It is opened for each line unless `open_log_file_cache` keeps it.
    Variable(Template),
}

/// `open_log_file_cache`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFileCache {
    /// `max=`
    pub max: usize,
    /// `inactive=`
    pub inactive: Duration,
    /// `valid=`
    pub valid: Duration,
    /// `min_uses=`
    pub min_uses: u32,
}

/// `log_format`
#[derive(Debug)]
pub struct LogFormat {
    /// Its name.
    pub name: String,
    /// `escape=`
    pub escape: Escape,
    /// The line, without its end.
    pub line: Template,
}

/// `escape=` of a `log_format`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Escape {
    /// `"`, `\` and bytes below 32 or above 126 as `\xXX`.
    Default,
    /// As JSON strings are.
    Json,
    /// Not at all.
    None,
}

/// Where a log goes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LogTarget {
    /// A file; relative paths have been joined to the prefix.
    File(PathBuf),
    /// `stderr`
    Stderr,
    /// `syslog:`
    Syslog(Syslog),
}

/// `syslog:server=…`
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Syslog {
    /// `server=`
    pub server: SyslogServer,
    /// `facility=`: its number.
    pub facility: u8,
    /// `severity=`, for lines of the access log.
    pub severity: Level,
    /// `tag=`
    pub tag: String,
    /// `nohostname`
    pub without_hostname: bool,
}

/// `server=`
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SyslogServer {
    /// `unix:path`
    Unix(PathBuf),
    /// `host:port`
    Host(String),
}

/// `error_log`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorLog {
    /// Where to.
    pub target: LogTarget,
    /// From which level on.
    pub level: Level,
}

/// Levels of the error log, the gravest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Level {
    Emerg,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

impl Level {
    /// Every level, the gravest first.
    pub const ALL: [Self; 8] = [
        Self::Emerg,
        Self::Alert,
        Self::Crit,
        Self::Error,
        Self::Warn,
        Self::Notice,
        Self::Info,
        Self::Debug,
    ];

    /// Its number in RFC 3164; `alert` is 1 there.
    pub const fn syslog_severity(self) -> u8 {
        self as u8
    }

    /// Its name in the configuration and the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Crit => "crit",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}
