//! Where files are and how they are opened.

use std::sync::Arc;
use std::time::Duration;

use super::{LEVELS, LEVELS_IF, LOCATION, Row, active, set, storage};
use crate::level::{CacheKind, Directive, Fault, Level, Scope};
use crate::model::{LocationMatch, Part, PathMapping, Symlinks, Template, Variable};
use crate::parse::Word;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "root",
        LEVELS_IF,
        "path",
        "html",
        "The folder to which the whole path is added, or `storage:NAME` for a `storage`",
        |l, d, s| {
            not_beside(l, d, "alias")?;
            l.settings.path_mapping = match storage::root(l, d, s)? {
                Some(place) => storage::mapping(place),
                None => PathMapping::Root(Arc::new(place(d, s, true)?)),
            };
            Ok(())
        },
    ),
    active("alias", LOCATION, "path", "", "The folder that replaces the location's prefix", alias),
    active(
        "index",
        LEVELS,
        "file ...",
        "index.html",
        "The files that are served for a folder: the first that exists",
        |l, d, s| {
            for word in d.args() {
                if word.text.is_empty() {
                    return Err(d.invalid(word, "is empty"));
                }
                let template = d.template(word, s)?;
                l.own.index.push(template);
            }
            Ok(())
        },
    )
    .repeated(),
    active(
        "disable_symlinks",
        LEVELS,
        "off|on|if_not_owner [from=part]",
        "off",
        "Whether symbolic links are refused",
        symlinks,
    ),
    active(
        "open_file_cache",
        LEVELS,
        "auto|off|max=number [inactive=time]",
        "auto",
        "Whether open files are cached; `auto` caches only files that are requested very often, and only for a moment (nginx: off)",
        file_cache,
    ),
    active(
        "open_file_cache_valid",
        LEVELS,
        "time",
        "60s",
        "How long a cached file is used without checking it",
        |l, d, _| set(&mut l.cache.valid, d.time(0)),
    ),
    active(
        "open_file_cache_min_uses",
        LEVELS,
        "number",
        "1",
        "How often a file must be requested to be cached",
        |l, d, _| set(&mut l.cache.min_uses, d.count(0).map(|count| count as u32)),
    ),
    active(
        "open_file_cache_errors",
        LEVELS,
        "on|off",
        "off",
        "Whether errors of opening files are cached, too",
        |l, d, _| set(&mut l.cache.errors, d.flag()),
    ),
    active(
        "sendfile",
        LEVELS_IF,
        "on|off",
        "on",
        "Whether the kernel copies files to the socket (nginx: off)",
        |l, d, _| set(&mut l.settings.sendfile, d.flag()),
    ),
    active(
        "aio",
        LEVELS_IF,
        "on|off|threads[=pool]",
        "off",
        "Whether all files are read by threads; files that are not in memory always are",
        |l, d, _| {
            let read = |text: &str| match text {
                "off" => Ok(false),
                "on" | "threads" => Ok(true),
                _ if text.starts_with("threads=") => Ok(true),
                _ => Err("must be \"on\", \"off\" or \"threads\""),
            };
            set(&mut l.settings.aio_threads, d.read(0, read))
        },
    ),
];

fn not_beside(l: &Level, d: &Directive<'_>, other: &str) -> Result<(), Fault> {
    if l.says(other) {
        let name = d.row.name;
        return Err(Fault::new(format!(
            "\"{name}\" directive is duplicate, \"{other}\" directive was specified earlier"
        )));
    }
    Ok(())
}

/// A path with variables, made absolute unless a variable begins it.
fn place(d: &Directive<'_>, s: &Scope<'_>, is_root: bool) -> Result<Template, Fault> {
    let word = d.arg(0);
    if word.text.is_empty() && !is_root {
        return Err(d.invalid(word, "is empty"));
    }
    // `root "";` is the prefix, as in nginx.
    let text: &[u8] = if word.text.is_empty() { b"." } else { &word.text };
    let mut template = d.template_of(word, text, s)?;
    // The prefix is put before what was read, and not read itself: a dollar sign in it is one.
    if let Some(Part::Literal(text)) = template.parts.first_mut() {
        while let Some(rest) = text.strip_prefix(b"./") {
            *text = rest.to_vec();
        }
        let is_here = text.is_empty() || **text == *b".";
        let joined = s.path(if is_here { b"" } else { text });
        *text = joined.into_os_string().into_encoded_bytes();
        if is_here && text.last() == Some(&b'/') && text.len() > 1 {
            text.pop();
        }
    }
    // What is added begins with a slash.
    let is_only = template.parts.len() == 1;
    if let Some(Part::Literal(text)) = template.parts.last_mut()
        && is_root
        && text.last() == Some(&b'/')
        && (text.len() > 1 || !is_only)
    {
        text.pop();
    }
    for (variable, name) in
        [(Variable::DocumentRoot, "document_root"), (Variable::RealpathRoot, "realpath_root")]
    {
        if template.parts.contains(&Part::Variable(variable)) {
            return Err(Fault::at(
                word,
                format!("the ${name} variable cannot be used in the \"{}\" directive", d.row.name),
            ));
        }
    }
    Ok(template)
}

fn alias(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    not_beside(l, d, "root")?;
    if matches!(l.matches, LocationMatch::Named(_)) {
        return Err(Fault::new("the \"alias\" directive cannot be used inside the named location"));
    }
    if let LocationMatch::Prefix { path, .. } = &l.matches {
        let word = d.arg(0);
        let (one, other) = (path.ends_with(b"/"), word.text.ends_with(b"/"));
        if one != other && !matches!(word.text.first(), Some(b'$')) {
            warn_of_slash(s, word, one);
        }
    }
    if d.arg(0).text.starts_with(b"storage:") {
        return Err(d.invalid(d.arg(0), "is not supported with a storage: use \"root\""));
    }
    l.storage = None;
    l.settings.path_mapping = PathMapping::Alias(Arc::new(place(d, s, false)?));
    Ok(())
}

fn warn_of_slash(s: &mut Scope<'_>, word: &Word, location_has_one: bool) {
    let (has, has_not) =
        if location_has_one { ("location", "alias") } else { ("alias", "location") };
    let report = crate::Report::warning(
        s.files,
        word.span,
        format!("the {has} ends with \"/\" and the {has_not} does not"),
    );
    s.reports
        .push(report.note("what follows the location's prefix is added to the alias as it is"));
}

fn symlinks(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let policy = match &*word.text {
        b"off" => Symlinks::Follow,
        b"on" => Symlinks::Deny,
        b"if_not_owner" => Symlinks::IfSameOwner,
        _ => return Err(d.invalid(word, "must be \"off\", \"on\" or \"if_not_owner\"")),
    };
    // Links are judged below the root: `from=$document_root` means just that; other values are not supported.
    if let Some(from) = d.args().get(1).filter(|from| &*from.text != b"from=$document_root") {
        return Err(d
            .not_built(from)
            .note("links are checked below the root: from=$document_root".to_owned()));
    }
    l.symlinks = (policy, d.args().len() > 1);
    Ok(())
}

fn file_cache(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut max = None;
    let mut inactive = Duration::from_mins(1);
    match d.args() {
        [word] if &*word.text == b"auto" => {
            l.cache.cache = CacheKind::Auto;
            return Ok(());
        }
        [word] if &*word.text == b"off" => {
            l.cache.cache = CacheKind::Off;
            return Ok(());
        }
        _ => {}
    }
    Fault::each(d.args(), |word| {
        let text = d.text(word)?;
        match text.split_once('=') {
            Some(("max", number)) => {
                let number =
                    value::number(number).ok().filter(|n| (1..=u64::from(u32::MAX)).contains(n));
                max = Some(
                    number.ok_or_else(|| d.invalid(word, "is not a number of files"))? as usize
                );
            }
            Some(("inactive", time)) => {
                inactive = value::time(time).map_err(|wrong| d.invalid(word, wrong))?;
            }
            _ => {
                return Err(Fault::at(
                    word,
                    format!("invalid \"open_file_cache\" parameter \"{}\"", word.shown()),
                ));
            }
        }
        Ok(())
    })?;
    let max =
        max.ok_or_else(|| Fault::new("\"open_file_cache\" must have the \"max\" parameter"))?;
    l.cache.cache = CacheKind::On(max, inactive);
    Ok(())
}
