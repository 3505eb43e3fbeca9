//! Servers, locations, and what is answered.

use std::sync::Arc;

use sekisho_http::{Method, Status as Code};

use super::{
    Context, HTTP, HTTP_SERVER, LEVELS, LEVELS_IF, LOCATION, Row, SERVER, SERVER_LOCATION, active,
    block, set,
};
use crate::level::{Directive, Fault, Level, NamedUse, Scope};
use crate::listen::listen;
use crate::model::{
    ErrorPage, ErrorStatus, ErrorTarget, Fallback, Part, Template, TryFile, TryFiles, Variable,
};
use crate::names::server_name;
use crate::parse::Word;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    block("server", HTTP, "", Context::Server, "A virtual server"),
    active(
        "listen",
        SERVER,
        "address [option] ...",
        "*:80",
        "An address to listen on, with socket options",
        |l, d, _| {
            let args: Vec<&[u8]> = d.args().iter().map(|word| &*word.text).collect();
            let line = listen(&args).map_err(|wrong| {
                Fault::all(
                    wrong.into_iter().map(|(at, reason)| listen_fault(d.arg(at), at, reason)),
                )
            })?;
            let span = (!d.is_default).then(|| d.arg(0).span);
            l.own.listens.push((line, span));
            Ok(())
        },
    )
    .repeated(),
    active(
        "server_name",
        SERVER,
        "name ...",
        "",
        "Names of the server: exact, `*.x`, `.x`, `x.*`, `~regex`",
        |l, d, s| d.args().iter().try_for_each(|word| server_name(l, d, s, word)),
    )
    .repeated(),
    block(
        "location",
        SERVER_LOCATION,
        "[=|~|~*|^~] uri|@name",
        Context::Location,
        "Settings for some of the paths",
    ),
    active(
        "allow_methods",
        LEVELS,
        "method ...",
        "",
        "The allowed methods; others get 405. GET does not imply HEAD (ours)",
        |l, d, _| {
            l.settings.allow_methods = Some(methods(d, false)?);
            Ok(())
        },
    ),
    active(
        "error_page",
        LEVELS_IF,
        "code ... [=[code]] uri|@name",
        "",
        "What to answer instead of an error",
        error_page,
    )
    .repeated(),
    active(
        "recursive_error_pages",
        LEVELS,
        "on|off",
        "off",
        "Whether an error page may cause another error page",
        |l, d, _| set(&mut l.settings.recursive_error_pages, d.flag()),
    ),
    active(
        "try_files",
        SERVER_LOCATION,
        "file ... uri|@name|=code",
        "",
        "Uses the first file that exists, or else the last argument",
        try_files,
    ),
    active(
        "internal",
        LOCATION,
        "",
        "",
        "Reached by internal redirects only; others get 404",
        |l, _, _| {
            l.settings.internal = true;
            Ok(())
        },
    ),
    active(
        "absolute_redirect",
        LEVELS,
        "on|off",
        "on",
        "Whether redirects contain scheme and host",
        |l, d, _| set(&mut l.settings.absolute_redirect, d.flag()),
    ),
    active(
        "server_name_in_redirect",
        LEVELS,
        "on|off",
        "off",
        "Whether redirects use the first `server_name` instead of `Host`",
        |l, d, _| set(&mut l.settings.server_name_in_redirect, d.flag()),
    ),
    active(
        "port_in_redirect",
        LEVELS,
        "on|off",
        "on",
        "Whether redirects name the port",
        |l, d, _| set(&mut l.settings.port_in_redirect, d.flag()),
    ),
    active(
        "merge_slashes",
        HTTP_SERVER,
        "on|off",
        "on",
        "Whether `//` in a path counts as `/`",
        |l, d, _| set(&mut l.parts.merge_slashes, d.flag()),
    ),
];

fn listen_fault(word: &Word, at: usize, reason: String) -> Fault {
    match at {
        0 => {
            Fault::at(word, format!("{reason} in \"{}\" of the \"listen\" directive", word.shown()))
        }
        _ => Fault::at(word, reason),
    }
}

/// The methods that a directive names.
pub(crate) fn methods(d: &Directive<'_>, get_implies_head: bool) -> Result<Arc<[Method]>, Fault> {
    let mut methods = Vec::new();
    for word in d.args() {
        let method = Method::from_bytes(&word.text);
        if method == Method::Other {
            return Err(Fault::at(word, format!("invalid method \"{}\"", word.shown())));
        }
        let implied = (get_implies_head && method == Method::Get).then_some(Method::Head);
        for method in [Some(method), implied].into_iter().flatten() {
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
    }
    Ok(methods.into())
}

fn error_page(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let Some((target, before)) = d.args().split_last() else { return Err(Fault::new("no target")) };
    let (status, codes) = match before.split_last() {
        Some((word, rest)) if word.text.starts_with(b"=") => (error_status(word)?, rest),
        _ => (ErrorStatus::Keep, before),
    };
    if codes.is_empty() {
        return Err(Fault::new("invalid number of arguments in \"error_page\" directive").note(
            "at least one code, then optionally \"=\" or \"=code\", then the page".to_owned(),
        ));
    }
    let codes: Vec<u16> = codes.iter().map(|word| error_code(d, word)).collect::<Result<_, _>>()?;
    let target = error_target(l, d, s, target)?;
    l.own.error_pages.push(ErrorPage { codes, status, target });
    Ok(())
}

fn error_status(word: &Word) -> Result<ErrorStatus, Fault> {
    let code = word.text.strip_prefix(b"=").unwrap_or_default();
    if code.is_empty() {
        return Ok(ErrorStatus::FromTarget);
    }
    let code = std::str::from_utf8(code).ok().and_then(|code| value::number(code).ok());
    let status = code.and_then(|code| u16::try_from(code).ok()).and_then(Code::new);
    let status = status.filter(|status| status.code() >= 200);
    status
        .map(ErrorStatus::Fixed)
        .ok_or_else(|| Fault::at(word, format!("invalid value \"{}\"", word.shown())))
}

fn error_code(d: &Directive<'_>, word: &Word) -> Result<u16, Fault> {
    let code = std::str::from_utf8(&word.text).ok().and_then(|code| value::number(code).ok());
    match code {
        Some(499) => Err(d.invalid(word, "never reaches a client")),
        Some(code @ 300..=599) => Ok(code as u16),
        _ => Err(d.invalid(word, "must be between 300 and 599")),
    }
}

fn error_target(
    l: &Level,
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    word: &Word,
) -> Result<ErrorTarget, Fault> {
    if let Some(name) = named(l, d, s, word)? {
        return Ok(ErrorTarget::Named(name));
    }
    let template = d.template(word, s)?;
    let is_redirect = match template.parts.first() {
        Some(Part::Literal(text)) => !text.starts_with(b"/"),
        Some(Part::Variable(variable)) => *variable == Variable::Scheme,
        None => return Err(d.invalid(word, "is empty")),
    };
    Ok(if is_redirect { ErrorTarget::Redirect(template) } else { ErrorTarget::Uri(template) })
}

/// `@name`, noted so that it can be looked for when all locations are known.
fn named(
    l: &Level,
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    word: &Word,
) -> Result<Option<String>, Fault> {
    if !word.text.starts_with(b"@") {
        return Ok(None);
    }
    let name =
        std::str::from_utf8(&word.text).map_err(|_| d.invalid(word, "is not UTF-8"))?.to_owned();
    s.named_uses.push(NamedUse { span: word.span, name: name.clone(), server: l.server });
    Ok(Some(name))
}

fn try_files(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let Some((last, files)) = d.args().split_last() else { return Err(Fault::new("no fallback")) };
    let candidates = files.iter().map(|word| {
        // The slash says that a directory is meant; "/" alone is the root itself.
        let without = word.text.strip_suffix(b"/").filter(|rest| !rest.is_empty());
        let path = d.template_of(word, without.unwrap_or(&word.text), s)?;
        Ok(TryFile { path, is_dir: word.text.ends_with(b"/") })
    });
    let candidates = candidates.collect::<Result<_, _>>()?;
    let fallback = if let Some(code) = last.text.strip_prefix(b"=") {
        let code = std::str::from_utf8(code).ok().and_then(|code| value::number(code).ok());
        let status = code.and_then(|code| u16::try_from(code).ok()).and_then(Code::new);
        let status = status.filter(|status| status.code() >= 200);
        Fallback::Status(
            status.ok_or_else(|| Fault::at(last, format!("invalid code \"{}\"", last.shown())))?,
        )
    } else if let Some(name) = named(l, d, s, last)? {
        Fallback::Named(name)
    } else {
        let template = d.template(last, s)?;
        warn_of_loop(&template, s, last);
        Fallback::Uri(template)
    };
    l.settings.try_files = Some(Arc::new(TryFiles { candidates, fallback }));
    Ok(())
}

/// `try_files $uri $uri/;` ends where it began.
fn warn_of_loop(template: &Template, s: &mut Scope<'_>, word: &Word) {
    if matches!(template.parts.first(), Some(Part::Variable(Variable::Uri))) {
        let report = crate::Report::warning(
            s.files,
            word.span,
            format!(
                "the last argument of \"try_files\" is not tried as a file: \"{}\" is the address to continue with",
                word.shown()
            ),
        );
        s.reports.push(report.help("end with \"=404\"".to_owned()));
    }
}
