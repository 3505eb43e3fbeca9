//! CGI programs: which files are run, how, and within which limits.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use super::{LEVELS, LEVELS_IF, Row, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    CgiExtension, CgiLimits, CgiPass, CgiStderr, Interpreter, Level as Severity, LocationMatch,
    LogTarget, Template,
};
use crate::parse::Word;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "cgi",
        LEVELS_IF,
        "on|off|pass [program] [argument] ...",
        "",
        "Whether every file is a CGI program; without it only `cgi_pass` and `cgi_extension` run programs, and `off` runs none; `pass` is another form of `cgi_pass`",
        switch,
    ),
    active(
        "cgi_pass",
        LEVELS_IF,
        "program|off [argument] ...",
        "",
        "One program for every path; `PATH_INFO` is what follows the location's prefix",
        |l, d, s| match d.args() {
            [word] if &*word.text == b"off" => {
                (l.cgi.pass, l.cgi.is_pass_own) = (None, true);
                Ok(())
            }
            _ if l.cgi.is_pass_own => Err(Fault::new("\"cgi pass\" is set here, too")),
            words => pass(l, d, s, words),
        },
    ),
    active(
        "cgi_extension",
        LEVELS,
        "extension [interpreter] [argument] ...",
        "",
        "Files with this extension are programs, run by the interpreter if there is one (ours)",
        extension,
    )
    .repeated(),
    active(
        "cgi_interpreter",
        LEVELS,
        "path|off [argument] ...",
        "off",
        "The interpreter of programs",
        |l, d, s| {
            let words = d.args();
            l.cgi.rest.interpreter = match words.first() {
                Some(first) if &*first.text == b"off" => only(d, 1).map(|()| None)?,
                _ => Some(interpreter(d, s, words)?),
            };
            Ok(())
        },
    ),
    active(
        "cgi_working_dir",
        LEVELS,
        "path|off",
        "off",
        "The working directory of programs; by default their own folder",
        |l, d, s| {
            l.cgi.rest.working_dir = match &*d.arg(0).text {
                b"off" => None,
                _ => Some(Arc::new(file(d, s, d.arg(0))?)),
            };
            Ok(())
        },
    ),
    active(
        "cgi_path",
        LEVELS,
        "path",
        "/usr/local/bin:/usr/bin:/bin",
        "The `PATH` of programs",
        |l, d, _| {
            not_variable(d, d.arg(0))?;
            l.cgi.rest.path = Arc::from(&*d.arg(0).text);
            Ok(())
        },
    ),
    active(
        "cgi_set_var",
        LEVELS_IF,
        "name value",
        "",
        "A variable for programs; it overrides others of the same name",
        variable,
    )
    .repeated(),
    active(
        "cgi_stderr",
        LEVELS,
        "on|off|level|stderr|path|file [path]",
        "on",
        "Where a program's standard error goes: the error log (`on` is `error`), nowhere, the server's own output, or a file",
        stderr,
    ),
    active(
        "cgi_body_only",
        LEVELS,
        "on|off",
        "off",
        "Whether programs print a body without a head",
        |l, d, _| set(&mut l.cgi.rest.body_only, d.flag()),
    ),
    active(
        "cgi_strict",
        LEVELS,
        "on|off",
        "on",
        "Whether a bad line in a program's head is an error (502); otherwise it is left out",
        |l, d, _| set(&mut l.cgi.rest.strict, d.flag()),
    ),
    active(
        "cgi_read_timeout",
        LEVELS,
        "time|off",
        "10s",
        "How long a program may be silent (504), or go on after its answer (ours)",
        |l, d, _| set(&mut l.cgi.rest.read_timeout, d.deadline(0)),
    ),
    active(
        "cgi_timeout",
        LEVELS,
        "time|off [kill]",
        "off",
        "How long a program may run (504), and how much later it is killed; with 0 and a time it is killed then",
        |l, d, _| {
            let kill = d.args().get(1).map(|_| d.time(1)).transpose()?;
            let later = kill.filter(|kill| !kill.is_zero());
            (l.cgi.rest.timeout, l.cgi.rest.timeout_kill) = match (d.deadline(0)?, later) {
                (None, Some(kill)) => (Some(kill), Some(Duration::ZERO)),
                (timeout, _) => (timeout, kill.filter(|_| timeout.is_some())),
            };
            Ok(())
        },
    ),
    active(
        "cgi_kill_grace",
        LEVELS,
        "time",
        "1s",
        "The time from TERM to KILL when a program is ended (ours)",
        |l, d, _| set(&mut l.cgi.rest.kill_grace, d.time(0)),
    ),
    active(
        "cgi_max_processes",
        LEVELS,
        "number",
        "128",
        "The maximum number of programs in the whole server (ours)",
        |l, d, _| set(&mut l.cgi.rest.max_processes, d.count(0)),
    ),
    active(
        "cgi_max_processes_per_address",
        LEVELS,
        "auto|number|off",
        "auto",
        "The maximum number of programs of one client address (an IPv6 /64 network counts as one); `auto` is a quarter of `cgi_max_processes` (ours)",
        |l, d, _| {
            l.cgi.max_per_address = match &*d.arg(0).text {
                b"auto" => None,
                b"off" => Some(usize::MAX),
                _ => Some(d.count(0)?),
            };
            Ok(())
        },
    ),
    active(
        "cgi_reserved_processes",
        LEVELS,
        "auto|number|off",
        "auto",
        "How many program slots are reserved for locations that run fewer programs than that, so that one location cannot take all; `auto` is an eighth of `cgi_max_processes` if several locations run programs (ours)",
        |l, d, _| {
            l.cgi.reserved = match &*d.arg(0).text {
                b"auto" => None,
                b"off" => Some(0),
                _ => Some(d.count(0)?),
            };
            Ok(())
        },
    ),
    active(
        "cgi_queue",
        LEVELS,
        "number [time|off]",
        "512 10s",
        "How many requests may wait for a program slot, and how long (503 beyond; ours)",
        |l, d, _| {
            let number = d.number(0)?;
            l.cgi.rest.queue = usize::try_from(number).unwrap_or(usize::MAX);
            if d.args().len() > 1 {
                l.cgi.rest.queue_timeout = d.deadline(1)?;
            }
            Ok(())
        },
    ),
    active(
        "cgi_request_buffering",
        LEVELS,
        "on|off",
        "on",
        "Whether a program starts when its request body is complete, so that slow clients occupy no program; `off` passes the body on as it arrives, if its length is known (ours)",
        |l, d, _| set(&mut l.cgi.rest.request_buffering, d.flag()),
    ),
    active(
        "cgi_pass_authorization",
        LEVELS,
        "on|off",
        "off",
        "Whether programs see `Authorization` (ours)",
        |l, d, _| set(&mut l.cgi.rest.pass_authorization, d.flag()),
    ),
    active(
        "cgi_head_max",
        LEVELS,
        "size",
        "64k",
        "How long a program's head may be (502 beyond; ours)",
        |l, d, _| set(&mut l.cgi.rest.head_bytes_max, d.small_size(0)),
    ),
    active(
        "cgi_x_accel_redirect",
        LEVELS,
        "on|off",
        "off",
        "Whether a program may hand over to another location, an `internal` one too, by `X-Accel-Redirect` (ours)",
        |l, d, _| set(&mut l.cgi.rest.x_accel_redirect, d.flag()),
    ),
    active(
        "cgi_leave_daemons",
        LEVELS,
        "on|off",
        "off",
        "Whether a process that has left its program's process group may live on after the request (ours)",
        |l, d, _| set(&mut l.cgi.rest.leaves_daemons, d.flag()),
    ),
    active(
        "cgi_limits",
        LEVELS,
        "off|memory=size|cpu=time|file=size|processes=number|files=number ...",
        "off",
        "Limits of each program: address space, processor time, size of a written file, processes of its user, open files (ours)",
        |l, d, _| set(&mut l.cgi.rest.limits, limits(d)),
    ),
];

/// Each word is one limit, once.
fn limits(d: &Directive<'_>) -> Result<CgiLimits, Fault> {
    let mut limits = CgiLimits::default();
    for word in d.args() {
        let text = d.text(word)?;
        if text == "off" && d.args().len() == 1 {
            return Ok(limits);
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let slot = match name {
            "memory" => &mut limits.memory_bytes,
            "cpu" => &mut limits.cpu_secs,
            "file" => &mut limits.file_bytes,
            "processes" => &mut limits.processes,
            "files" => &mut limits.descriptors,
            _ => return Err(d.invalid(word, LIMIT_FORM)),
        };
        if slot.is_some() {
            return Err(Fault::at(word, format!("duplicate limit \"{name}\"")));
        }
        let amount = match name {
            "memory" | "file" => value::size(value),
            // A part of a second is a whole one to the kernel.
            "cpu" => value::time(value).map(|time| time.as_millis().div_ceil(1000) as u64),
            _ => value::number(value),
        };
        let amount = amount.map_err(|wrong| d.invalid(word, wrong))?;
        if amount == 0 {
            return Err(d.invalid(word, "must not be zero"));
        }
        *slot = Some(amount);
    }
    Ok(limits)
}

const LIMIT_FORM: &str =
    "is not a limit: like memory=512m, cpu=30s, file=100m, processes=64 or files=256";

/// An inner level overrides what is inherited: `cgi on` overrides an outer `cgi_pass`.
fn switch(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    if let [word, words @ ..] = d.args()
        && &*word.text == b"pass"
    {
        if l.cgi.is_pass_own {
            return Err(Fault::at(word, "\"cgi_pass\" is set here, too"));
        }
        l.cgi.switch = None;
        if words.is_empty() {
            return Err(Fault::at(word, "\"cgi pass\" has no program"));
        }
        return pass(l, d, s, words);
    }
    only(d, 1)?;
    l.cgi.switch = Some(d.flag()?);
    if !l.cgi.is_pass_own {
        l.cgi.pass = None;
    }
    Ok(())
}

/// One program for everything: its file, and its arguments.
fn pass(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>, words: &[Word]) -> Result<(), Fault> {
    let Some((program, args)) = words.split_first() else { return Err(Fault::new("is empty")) };
    let prefix_bytes = match &l.matches {
        LocationMatch::Exact(path) => path.len(),
        LocationMatch::Prefix { path, .. } => path.strip_suffix(b"/").unwrap_or(path).len(),
        _ => 0,
    };
    let args = args.iter().map(|word| d.template(word, s)).collect::<Result<_, _>>()?;
    let program = Arc::new(file(d, s, program)?);
    l.cgi.pass = Some(CgiPass { program, args, prefix_bytes });
    l.cgi.is_pass_own = true;
    forget_off(l);
    Ok(())
}

fn extension(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let is_extension = word.text.len() > 1 && word.text.starts_with(b".");
    if !is_extension || word.text.contains(&b'/') {
        return Err(d.invalid(word, "is not an extension: like .cgi"));
    }
    let known = &mut l.own.cgi_extensions;
    if known.iter().any(|listed| listed.extension == word.text) {
        return Err(Fault::at(word, format!("duplicate extension \"{}\"", word.shown())));
    }
    let interpreter = match d.args().get(1..) {
        None | Some([]) => None,
        Some(words) => Some(interpreter(d, s, words)?),
    };
    // The longest comes first: it is the most specific.
    let at = known.partition_point(|listed| listed.extension.len() >= word.text.len());
    known.insert(at, CgiExtension { extension: word.text.clone(), interpreter });
    if !l.cgi.is_pass_own {
        l.cgi.pass = None;
    }
    forget_off(l);
    Ok(())
}

/// A `cgi off` further out does not hold where something is to be run.
fn forget_off(l: &mut Level) {
    if l.cgi.switch == Some(false) && !l.says("cgi") {
        l.cgi.switch = None;
    }
}

fn interpreter(
    d: &Directive<'_>,
    s: &Scope<'_>,
    words: &[Word],
) -> Result<Arc<Interpreter>, Fault> {
    let Some((program, args)) = words.split_first() else { return Err(Fault::new("is empty")) };
    if !program.text.contains(&b'/') && !program.text.starts_with(b"$") {
        return Err(d.invalid(program, "is not a path: like /usr/bin/python3"));
    }
    let args = args.iter().map(|word| d.template(word, s)).collect::<Result<_, _>>()?;
    Ok(Arc::new(Interpreter { program: file(d, s, program)?, args }))
}

/// A path with variables, made absolute unless a variable begins it.
fn file(d: &Directive<'_>, s: &Scope<'_>, word: &Word) -> Result<Template, Fault> {
    match word.text.first() {
        None => Err(d.invalid(word, "is empty")),
        Some(b'$') => d.template(word, s),
        Some(_) => {
            let text = s.path(&word.text).into_os_string();
            d.template_of(word, text.as_bytes(), s)
        }
    }
}

fn variable(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let name = d.text(d.arg(0))?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.bytes().all(is_name)
    {
        return Err(d.invalid(d.arg(0), "is not the name of a variable"));
    }
    if l.own.cgi_variables.iter().any(|(known, _)| known == name) {
        return Err(Fault::at(d.arg(0), format!("duplicate variable \"{name}\"")));
    }
    let value = d.template(d.arg(1), s)?;
    l.own.cgi_variables.push((name.to_owned(), value));
    Ok(())
}

fn stderr(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let to_file = |word: &Word| {
        not_variable(d, word)?;
        match &*word.text {
            b"" => Err(d.invalid(word, "is empty")),
            text => Ok(CgiStderr::To(LogTarget::File(s.path(text)))),
        }
    };
    if let (b"file", Some(path)) = (&*word.text, d.args().get(1)) {
        l.cgi.rest.stderr = to_file(path)?;
        return Ok(());
    }
    only(d, 1)?;
    let level = Severity::ALL.into_iter().find(|level| level.name().as_bytes() == &*word.text);
    l.cgi.rest.stderr = match (&*word.text, level) {
        (_, Some(level)) => CgiStderr::ErrorLog(level),
        (b"on", _) => CgiStderr::ErrorLog(Severity::Error),
        (b"off", _) => CgiStderr::Off,
        (b"stderr", _) => CgiStderr::To(LogTarget::Stderr),
        _ => to_file(word)?,
    };
    Ok(())
}

fn not_variable(d: &Directive<'_>, word: &Word) -> Result<(), Fault> {
    if word.text.contains(&b'$') {
        let name = d.row.name;
        return Err(Fault::at(word, format!("variables in \"{name}\" are not supported yet")));
    }
    if word.text.contains(&0) {
        return Err(d.invalid(word, "has a NUL in it"));
    }
    Ok(())
}

/// No further arguments.
fn only(d: &Directive<'_>, count: usize) -> Result<(), Fault> {
    match d.args().get(count) {
        None => Ok(()),
        Some(word) => Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))),
    }
}
