//! How servers and locations are named: `server_name`, and the words behind `location`.

use std::fmt;
use std::sync::Arc;

use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{LocationMatch, Pattern, ServerName};
use crate::parse::{Node, Word};
use crate::pattern::{BadPattern, listed_pattern, pattern};

/// A compiled expression from a word, or part of one.
pub(crate) fn regex_of(
    word: &Word,
    source: &[u8],
    ignore_case: bool,
) -> Result<Arc<Pattern>, Fault> {
    regex_by(word, source, ignore_case, pattern)
}

/// The same for one of a list that may be long.
pub(crate) fn listed_regex_of(
    word: &Word,
    source: &[u8],
    ignore_case: bool,
) -> Result<Arc<Pattern>, Fault> {
    regex_by(word, source, ignore_case, listed_pattern)
}

fn regex_by(
    word: &Word,
    source: &[u8],
    ignore_case: bool,
    make: fn(&str, bool) -> Result<Arc<Pattern>, BadPattern>,
) -> Result<Arc<Pattern>, Fault> {
    let text = std::str::from_utf8(source)
        .map_err(|_| Fault::at(word, "a regular expression must be UTF-8"))?;
    make(text, ignore_case).map_err(|bad| {
        let shown: String = text.chars().take(100).collect();
        Fault::at(word, format!("invalid regular expression \"{shown}\": {}", bad.reason))
    })
}

/// As the configuration writes it.
impl fmt::Display for LocationMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => write!(f, "= {}", String::from_utf8_lossy(path)),
            Self::Prefix { path, is_final } => {
                let mark = if *is_final { "^~ " } else { "" };
                write!(f, "{mark}{}", String::from_utf8_lossy(path))
            }
            Self::Regex(pattern) => write!(f, "~ {}", pattern.source),
            Self::Named(name) => f.write_str(name),
            Self::Server => f.write_str("(server)"),
            Self::If => f.write_str("(if)"),
        }
    }
}

/// A key that may be a wildcard name; `None` if it is none.
pub(crate) enum HostKey {
    /// No wildcard in it.
    Exact(String),
    /// `*.x`, as `.x`.
    Leading(String),
    /// `.x`: the name `x` and all below it.
    Both(String),
    /// `x.*`, as `x.`.
    Trailing(String),
}

/// Reads a host name with wildcards, in lower case.
pub(crate) fn host_key(text: &str) -> Option<HostKey> {
    let text = text.to_ascii_lowercase();
    if let Some(rest) = text.strip_prefix("*.") {
        return (!rest.is_empty() && !rest.contains('*'))
            .then(|| HostKey::Leading(format!(".{rest}")));
    }
    if let Some(rest) = text.strip_prefix('.') {
        return (!rest.is_empty() && !rest.contains('*')).then(|| HostKey::Both(rest.to_owned()));
    }
    if let Some(rest) = text.strip_suffix(".*") {
        return (!rest.is_empty() && !rest.contains('*'))
            .then(|| HostKey::Trailing(format!("{rest}.")));
    }
    (!text.contains('*')).then_some(HostKey::Exact(text))
}

/// Adds one `server_name`.
pub(crate) fn server_name(
    l: &mut Level,
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    word: &Word,
) -> Result<(), Fault> {
    let mut add = |name| l.own.server_names.push((name, word.span));
    if let Some(source) = word.text.strip_prefix(b"~") {
        if source.is_empty() {
            return Err(Fault::at(word, "empty regex in server name \"~\""));
        }
        // Host names have no case.
        add(ServerName::Regex(listed_regex_of(word, source, true)?));
        return Ok(());
    }
    let text = d.text(word)?;
    if text == "$hostname" {
        add(ServerName::Exact(s.options.hostname.to_ascii_lowercase()));
        return Ok(());
    }
    if text.contains(['/', '$', ' ']) {
        s.warn(word.span, format!("server name \"{}\" has suspicious symbols", word.shown()));
    }
    match host_key(text) {
        Some(HostKey::Exact(name)) => add(ServerName::Exact(name)),
        Some(HostKey::Leading(name)) => add(ServerName::LeadingWildcard(name)),
        Some(HostKey::Trailing(name)) => add(ServerName::TrailingWildcard(name)),
        Some(HostKey::Both(name)) => {
            // The name itself comes first: it is `$server_name`, as in nginx.
            add(ServerName::Exact(name.clone()));
            add(ServerName::LeadingWildcard(format!(".{name}")));
        }
        None => {
            return Err(Fault::at(
                word,
                format!("invalid server name or wildcard \"{}\"", word.shown()),
            ));
        }
    }
    Ok(())
}

/// Reads the words behind `location`.
pub(crate) fn location_match(node: &Node) -> Result<LocationMatch, Fault> {
    let prefix = |path: &[u8], is_final| LocationMatch::Prefix { path: path.to_vec(), is_final };
    match node.args.as_slice() {
        [modifier, word] => match &*modifier.text {
            b"=" => Ok(LocationMatch::Exact(word.text.to_vec())),
            b"^~" => Ok(prefix(&word.text, true)),
            b"~" => Ok(LocationMatch::Regex(listed_regex_of(word, &word.text, false)?)),
            b"~*" => Ok(LocationMatch::Regex(listed_regex_of(word, &word.text, true)?)),
            _ => Err(Fault::at(
                modifier,
                format!("invalid location modifier \"{}\"", modifier.shown()),
            )
            .help("one of \"=\", \"~\", \"~*\", \"^~\"".to_owned())),
        },
        // The modifier may touch the path.
        [word] => match &*word.text {
            [b'=', path @ ..] => Ok(LocationMatch::Exact(path.to_vec())),
            [b'^', b'~', path @ ..] => Ok(prefix(path, true)),
            [b'~', b'*', source @ ..] => {
                Ok(LocationMatch::Regex(listed_regex_of(word, source, true)?))
            }
            [b'~', source @ ..] => Ok(LocationMatch::Regex(listed_regex_of(word, source, false)?)),
            [b'@', ..] => {
                let name = std::str::from_utf8(&word.text)
                    .map_err(|_| Fault::at(word, "the name of a location must be UTF-8"))?;
                Ok(LocationMatch::Named(name.to_owned()))
            }
            path => Ok(prefix(path, false)),
        },
        _ => Err(Fault::new("invalid number of arguments in \"location\" directive")),
    }
}

/// As a location is called in messages.
pub(crate) fn shown(matches: &LocationMatch) -> String {
    match matches {
        LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => {
            String::from_utf8_lossy(path).chars().take(100).collect()
        }
        LocationMatch::Regex(pattern) => pattern.source.chars().take(100).collect(),
        LocationMatch::Named(name) => name.clone(),
        LocationMatch::Server | LocationMatch::If => "/".to_owned(),
    }
}
