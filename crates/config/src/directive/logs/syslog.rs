//! `syslog:server=address[,facility=…][,severity=…][,tag=…][,nohostname]` of both logs.

use crate::level::{Directive, Fault, Scope};
use crate::model::{Level as Severity, Syslog, SyslogServer};
use crate::parse::Word;

/// The facilities by their numbers (RFC 3164 §4.1.1, with nginx's names).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
const LOCAL7: u8 = 23;
const PORT: &str = "514";
/// So long a tag may be (RFC 3164 §4.1.3).
const TAG_BYTES_MAX: usize = 32;

/// Reads what follows `syslog:`.
pub(super) fn read(
    d: &Directive<'_>,
    s: &Scope<'_>,
    word: &Word,
    parameters: &[u8],
) -> Result<Syslog, Fault> {
    let fault = |text: String| Fault::at(word, text);
    let parameters = std::str::from_utf8(parameters).map_err(|_| d.invalid(word, "is no text"))?;
    let (mut server, mut facility, mut severity) = (None, LOCAL7, Severity::Info);
    let (mut tag, mut without_hostname) = ("nginx", false);
    for parameter in parameters.split(',') {
        match parameter.split_once('=') {
            Some(("server", address)) if !address.is_empty() => {
                if server.replace(address).is_some() {
                    return Err(fault("duplicate syslog \"server\"".into()));
                }
            }
            Some(("facility", name)) => {
                let at = FACILITIES.iter().position(|known| *known == name);
                let unknown = || fault(format!("unknown syslog facility \"{name}\""));
                facility = at.ok_or_else(unknown)? as u8;
            }
            Some(("severity", name)) => {
                let level = Severity::ALL.into_iter().find(|level| level.name() == name);
                let unknown = || fault(format!("unknown syslog severity \"{name}\""));
                severity = level.ok_or_else(unknown)?;
            }
            Some(("tag", name)) => {
                let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                if name.is_empty() || name.len() > TAG_BYTES_MAX || !name.bytes().all(is_tag) {
                    let rule = "syslog \"tag\" only allows alphanumeric characters and underscore";
                    return Err(fault(format!("{rule}, at most {TAG_BYTES_MAX}")));
                }
                tag = name;
            }
            None if parameter == "nohostname" => without_hostname = true,
            _ => return Err(fault(format!("unknown syslog parameter \"{parameter}\""))),
        }
    }
    let server = server.ok_or_else(|| fault("no syslog server specified".into()))?;
    let server = match server.strip_prefix("unix:") {
        Some(path) => SyslogServer::Unix(s.path(path.as_bytes())),
        None => SyslogServer::Host(with_port(server)),
    };
    Ok(Syslog { server, facility, severity, tag: tag.to_owned(), without_hostname })
}

/// A host with its port, 514 by default.
fn with_port(server: &str) -> String {
    let has_port = match server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, rest)) => rest.starts_with(':'),
        None => server.contains(':'),
    };
    if has_port { server.to_owned() } else { format!("{server}:{PORT}") }
}
