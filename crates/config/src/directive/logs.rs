//! Access log and error log.

mod syslog;

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use super::{HTTP_STREAM, LEVELS, LEVELS_IF, MAIN_LEVELS, Row, active, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    AccessLog, AccessTarget, ErrorLog, Escape, Level as Severity, LogFileCache, LogFormat,
    LogTarget, Template,
};
use crate::parse::Word;
use crate::report::did_you_mean;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "log_format",
        HTTP_STREAM,
        "name [escape=default|json|none] string ...",
        "",
        "The format of access log lines; `combined` is built in",
        nothing,
    )
    .repeated(),
    active(
        "access_log",
        LEVELS_IF,
        "path|stderr|syslog:parameters|off [format] [buffer=size] [gzip[=level]] [flush=time] [if=condition]",
        "logs/access.log combined",
        "Where requests are logged",
        access_log,
    )
    .in_stream()
    .repeated(),
    active(
        "error_log",
        MAIN_LEVELS,
        "path|stderr|syslog:parameters [level]",
        "logs/error.log error",
        "The error log, and the lowest level that is logged",
        error_log,
    )
    .in_stream()
    .repeated(),
    active(
        "open_log_file_cache",
        LEVELS,
        "off|max=number [inactive=time] [min_uses=number] [valid=time]",
        "off",
        "How many files of an `access_log` with variables in its path stay open",
        log_file_cache,
    )
    .in_stream(),
    active(
        "log_not_found",
        LEVELS,
        "on|off",
        "on",
        "Whether missing files are logged as errors",
        |l, d, _| set(&mut l.settings.log_not_found, d.flag()),
    ),
];

/// nginx's own format.
pub(crate) const COMBINED: &str = r#"log_format combined '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"';"#;

/// Reads a `log_format`, which is known before anything else of `http`.
pub(crate) fn log_format(d: &Directive<'_>, s: &Scope<'_>) -> Result<LogFormat, Fault> {
    let name = d.text(d.arg(0))?.to_owned();
    let mut lines = d.args().get(1..).unwrap_or_default();
    let mut escape = Escape::Default;
    if let Some((word, rest)) = lines.split_first()
        && let Some(kind) = word.text.strip_prefix(b"escape=")
    {
        escape = match kind {
            b"default" => Escape::Default,
            b"json" => Escape::Json,
            b"none" => Escape::None,
            _ => {
                return Err(Fault::at(
                    word,
                    format!("unknown log format escaping \"{}\"", String::from_utf8_lossy(kind)),
                ));
            }
        };
        lines = rest;
    }
    if lines.is_empty() {
        return Err(Fault::new("invalid number of arguments in \"log_format\" directive"));
    }
    let mut line = Template::default();
    for word in lines {
        let part = d.template(word, s)?;
        for piece in part.parts {
            use crate::model::Part;
            match (line.parts.last_mut(), piece) {
                (Some(Part::Literal(last)), Part::Literal(text)) => last.extend(text),
                (_, piece) => line.parts.push(piece),
            }
        }
    }
    Ok(LogFormat { name, escape, line })
}

fn target(d: &Directive<'_>, s: &Scope<'_>, word: &Word) -> Result<LogTarget, Fault> {
    let text = &*word.text;
    if let Some(parameters) = text.strip_prefix(b"syslog:") {
        return syslog::read(d, s, word, parameters).map(LogTarget::Syslog);
    }
    if text.starts_with(b"memory:") {
        return Err(d.not_built(word));
    }
    match text {
        b"" => Err(d.invalid(word, "is empty")),
        b"stderr" => Ok(LogTarget::Stderr),
        _ => Ok(LogTarget::File(s.path(text))),
    }
}

/// Where an access log goes; a path with variables is made absolute by the prefix here.
fn access_target(d: &Directive<'_>, s: &Scope<'_>, word: &Word) -> Result<AccessTarget, Fault> {
    if !word.text.contains(&b'$') || word.text.starts_with(b"syslog:") {
        return target(d, s, word).map(AccessTarget::Fixed);
    }
    let path = s.path(&word.text).into_os_string().into_vec();
    let path = if word.text.starts_with(b"$") { &*word.text } else { &path };
    d.template_of(word, path, s).map(AccessTarget::Variable)
}

fn access_log(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    if &*d.arg(0).text == b"off" {
        if let Some(word) = d.args().get(1) {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
        l.own.access_log_off = true;
        return Ok(());
    }
    let target = access_target(d, s, d.arg(0))?;
    let name = d.args().get(1).map_or(Ok("combined"), |word| d.text(word))?;
    let Some(format) = s.formats.get(name).map(Arc::clone) else {
        if s.bad_formats.contains(name) {
            return Ok(());
        }
        let help = did_you_mean(name, s.formats.keys().map(String::as_str));
        return Err(Fault::at(d.arg(1), format!("unknown log format \"{name}\"")).help(help));
    };
    let (condition, buffer, flush, gzip) = (None, None, None, None);
    let mut log = AccessLog { target, format, condition, buffer, flush, gzip };
    for word in d.args().iter().skip(2) {
        parameter(&mut log, d, s, word)?;
    }
    let is_buffered = log.buffer.is_some() || log.gzip.is_some();
    if is_buffered {
        let what = match &log.target {
            AccessTarget::Variable(_) => Some("a path with variables"),
            AccessTarget::Fixed(LogTarget::Syslog(_)) => Some("syslog"),
            AccessTarget::Fixed(LogTarget::File(_) | LogTarget::Stderr) => None,
        };
        if let Some(what) = what {
            return Err(Fault::at(
                d.arg(0),
                format!("{what} cannot be used in buffered access_log"),
            ));
        }
    }
    if log.gzip.is_some() {
        log.buffer.get_or_insert(GZIP_BUFFER_BYTES);
    }
    if log.flush.is_some() && log.buffer.is_none() {
        return Err(Fault::new(format!(
            "no buffer is defined for access_log \"{}\"",
            d.arg(0).shown()
        )));
    }
    l.own.access_logs.push(log);
    Ok(())
}

/// The default buffer size of a compressed log.
const GZIP_BUFFER_BYTES: u64 = 64 << 10;

fn log_file_cache(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut cache = LogFileCache {
        max: 0,
        inactive: Duration::from_secs(10),
        valid: Duration::from_mins(1),
        min_uses: 1,
    };
    for word in d.args() {
        let text = d.text(word)?;
        let number = |text| value::number(text).map_err(|wrong| d.invalid(word, wrong));
        let time = |text| value::time(text).map_err(|wrong| d.invalid(word, wrong));
        match text.split_once('=') {
            None if text == "off" && d.args().len() == 1 => {
                l.settings.log_file_cache = None;
                return Ok(());
            }
            Some(("max", text)) => cache.max = number(text)?.min(1 << 16) as usize,
            Some(("inactive", text)) => cache.inactive = time(text)?,
            Some(("valid", text)) => cache.valid = time(text)?,
            Some(("min_uses", text)) => {
                cache.min_uses = number(text)?.min(u64::from(u32::MAX)) as u32;
            }
            _ => {
                return Err(Fault::at(
                    word,
                    format!("invalid \"open_log_file_cache\" parameter \"{}\"", word.shown()),
                ));
            }
        }
    }
    if cache.max == 0 {
        return Err(Fault::new("\"open_log_file_cache\" must have \"max\" parameter"));
    }
    l.settings.log_file_cache = Some(cache);
    Ok(())
}

fn parameter(
    log: &mut AccessLog,
    d: &Directive<'_>,
    s: &Scope<'_>,
    word: &Word,
) -> Result<(), Fault> {
    let text = d.text(word)?;
    match text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))) {
        ("buffer", Some(size)) => {
            let size = value::size(size).map_err(|wrong| d.invalid(word, wrong))?;
            log.buffer = Some(size).filter(|size| *size > 0);
        }
        ("flush", Some(time)) => {
            log.flush = value::deadline(time).map_err(|wrong| d.invalid(word, wrong))?;
        }
        ("if", Some(condition)) => {
            log.condition = Some(d.template_of(word, condition.as_bytes(), s)?);
        }
        ("gzip", None) => log.gzip = Some(1),
        ("gzip", Some(level)) => {
            let level = value::number(level).ok().filter(|level| (1..=9).contains(level));
            log.gzip =
                Some(level.ok_or_else(|| d.invalid(word, "is not a level from 1 to 9"))? as u32);
        }
        _ => return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))),
    }
    Ok(())
}

fn error_log(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    if d.arg(0).text.contains(&b'$') {
        s.warn(
            d.arg(0).span,
            "variables have no meaning in \"error_log\": this is the name of a file",
        );
    }
    let target = target(d, s, d.arg(0))?;
    let level = match d.args().get(1) {
        None => Severity::Error,
        Some(word) => {
            let name = d.text(word)?;
            let level = Severity::ALL.into_iter().find(|level| level.name() == name);
            let help = did_you_mean(name, Severity::ALL.into_iter().map(Severity::name));
            level.ok_or_else(|| {
                Fault::at(word, format!("invalid log level \"{name}\"")).help(help)
            })?
        }
    };
    if &*d.arg(0).text == b"off" {
        s.warn(
            d.arg(0).span,
            "\"off\" is the name of a file here: the error log cannot be switched off",
        );
    }
    l.own.error_logs.push(ErrorLog { target, level });
    Ok(())
}
