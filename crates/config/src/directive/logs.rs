//! Access log and error log.

use std::sync::Arc;

use super::{HTTP, LEVELS, LEVELS_IF, MAIN_LEVELS, Row, active, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    AccessLog, ErrorLog, Escape, Level as Severity, LogFormat, LogTarget, Template,
};
use crate::parse::Word;
use crate::report::did_you_mean;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "log_format",
        HTTP,
        "name [escape=default|json|none] string ...",
        "",
        "The line of an access log; `combined` is built in",
        nothing,
    )
    .repeated(),
    active(
        "access_log",
        LEVELS_IF,
        "path|stderr|off [format] [buffer=size] [flush=time] [if=condition]",
        "logs/access.log combined",
        "Where requests are logged",
        access_log,
    )
    .repeated(),
    active(
        "error_log",
        MAIN_LEVELS,
        "path|stderr [level]",
        "logs/error.log error",
        "Where trouble is logged, from which level on",
        error_log,
    )
    .repeated(),
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
    if text.starts_with(b"syslog:") || text.starts_with(b"memory:") {
        return Err(d.not_built(word));
    }
    if text.contains(&b'$') {
        return Err(Fault::at(
            word,
            format!("variables in the path of \"{}\" are not supported yet", d.row.name),
        ));
    }
    match text {
        b"" => Err(d.invalid(word, "is empty")),
        b"stderr" => Ok(LogTarget::Stderr),
        _ => Ok(LogTarget::File(s.path(text))),
    }
}

fn access_log(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    if &*d.arg(0).text == b"off" {
        if let Some(word) = d.args().get(1) {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
        l.own.access_log_off = true;
        return Ok(());
    }
    let target = target(d, s, d.arg(0))?;
    let name = d.args().get(1).map_or(Ok("combined"), |word| d.text(word))?;
    let Some(format) = s.formats.get(name).map(Arc::clone) else {
        if s.bad_formats.contains(name) {
            return Ok(());
        }
        let help = did_you_mean(name, s.formats.keys().map(String::as_str));
        return Err(Fault::at(d.arg(1), format!("unknown log format \"{name}\"")).help(help));
    };
    let mut log = AccessLog { target, format, condition: None, buffer: None, flush: None };
    for word in d.args().iter().skip(2) {
        parameter(&mut log, d, s, word)?;
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
        ("gzip", _) => return Err(d.not_built(word)),
        _ => return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))),
    }
    Ok(())
}

fn error_log(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
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
