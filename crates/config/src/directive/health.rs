//! `health_check` and `match`: active checks of the servers of a group.

use std::sync::Arc;

use sekisho_upstream::health::{HeaderRule, Settings};

use super::{Body, HTTP, LOCATION, Row, active, nothing};
use crate::level::{Directive, Fault, HealthWish, Level, Scope};
use crate::model::MatchRules;
use crate::names::regex_of;
use crate::parse::{Node, Word};
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "health_check",
        LOCATION,
        "[parameter] ...",
        "",
        "Checks the servers of the group that `proxy_pass` names: `interval=5s`, `jitter=0`, `fails=1`, `passes=1`, `uri=/`, `port=`, `match=`, `mandatory`, `persistent`",
        health_check,
    ),
    active(
        "match",
        HTTP,
        "name",
        "",
        "What an answer to a check must be: `status`, `header`, `body`",
        nothing,
    )
    .with_body(Body::Entries)
    .repeated(),
];

fn health_check(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut wish = HealthWish {
        settings: Settings::default(),
        is_persistent: false,
        uri: b"/"[..].into(),
        port: None,
        rules: None,
        span: d.node.name.span,
    };
    for word in d.args() {
        let text = d.text(word)?;
        let invalid = || Fault::at(word, format!("invalid parameter \"{text}\""));
        let (name, said) = text.split_once('=').unwrap_or((text, ""));
        let time = || value::time(said).map_err(|_| invalid());
        let count = || {
            let number = value::number(said).ok().and_then(|number| u32::try_from(number).ok());
            number.filter(|number| *number > 0).ok_or_else(invalid)
        };
        match name {
            "interval" => {
                wish.settings.interval = time()?;
                if wish.settings.interval.is_zero() {
                    return Err(invalid());
                }
            }
            "jitter" => wish.settings.jitter = time()?,
            "fails" => wish.settings.fails = count()?,
            "passes" => wish.settings.passes = count()?,
            "uri" if said.starts_with('/') && said.bytes().all(|byte| byte.is_ascii_graphic()) => {
                wish.uri = said.as_bytes().into();
            }
            "port" => {
                wish.port = Some(u16::try_from(count()?).map_err(|_| invalid())?);
            }
            "match" if !said.is_empty() => wish.rules = Some(said.into()),
            "mandatory" if said.is_empty() => wish.settings.is_mandatory = true,
            "persistent" if said.is_empty() && wish.settings.is_mandatory => {
                wish.is_persistent = true;
            }
            "type" | "keepalive_time" | "shuffle" => return Err(d.not_built(word)),
            _ => return Err(invalid()),
        }
    }
    l.health = Some(wish);
    Ok(())
}

/// Reads a `match` block.
pub(crate) fn rules(d: &Directive<'_>) -> Result<MatchRules, Fault> {
    let mut rules = MatchRules { name: d.text(d.arg(0))?.into(), ..MatchRules::default() };
    for entry in d.node.body.as_deref().unwrap_or_default() {
        rule(d, entry, &mut rules)?;
    }
    if rules.head.statuses.is_empty() {
        // Only what is said counts.
        rules.head.statuses.push((100, 599));
    }
    Ok(rules)
}

fn rule(d: &Directive<'_>, entry: &Node, rules: &mut MatchRules) -> Result<(), Fault> {
    let name = &entry.name;
    let invalid = |word: &Word| Fault::at(word, format!("invalid parameter \"{}\"", word.shown()));
    let text = |word: &Word| -> Result<Box<str>, Fault> {
        std::str::from_utf8(&word.text).map(Into::into).map_err(|_| invalid(word))
    };
    let operators: Vec<&[u8]> = entry.args.iter().map(|word| &*word.text).collect();
    match (&*name.text, operators.as_slice()) {
        (b"status", [first, ..]) => {
            let is_negated = *first == b"!";
            rules.head.is_status_negated = is_negated;
            for word in &entry.args[usize::from(is_negated)..] {
                let said = d.text(word)?;
                let (from, to) = said.split_once('-').unwrap_or((said, said));
                let code =
                    |text: &str| text.parse::<u16>().ok().filter(|it| (100..=599).contains(it));
                let range = code(from).zip(code(to)).filter(|(from, to)| from <= to);
                rules.head.statuses.push(range.ok_or_else(|| invalid(word))?);
            }
        }
        (b"header", [b"!", _]) => {
            rules.head.headers.push(HeaderRule::Absent(text(&entry.args[1])?));
        }
        (b"header", [_]) => rules.head.headers.push(HeaderRule::Present(text(&entry.args[0])?)),
        (b"header", [_, operator, _]) => {
            let (field, value) = (text(&entry.args[0])?, &entry.args[2]);
            match *operator {
                b"=" => rules.head.headers.push(HeaderRule::Is(field, text(value)?)),
                b"!=" => rules.head.headers.push(HeaderRule::IsNot(field, text(value)?)),
                b"~" | b"!~" => {
                    let pattern = regex_of(value, &value.text, false)?;
                    rules.header_patterns.push((field, pattern, *operator == b"!~"));
                }
                _ => return Err(invalid(&entry.args[1])),
            }
        }
        (b"body", [operator @ (b"~" | b"!~"), _]) => {
            let value = &entry.args[1];
            let pattern = regex_of(value, &value.text, false)?;
            rules.body_patterns.push((pattern, *operator == b"!~"));
        }
        _ => {
            let help = "one of \"status\", \"header\", \"body\"".to_owned();
            return Err(Fault::at(name, format!("invalid rule \"{}\"", name.shown())).help(help));
        }
    }
    Ok(())
}

/// The block of this name.
pub(crate) fn find(all: &[Arc<MatchRules>], name: &str) -> Option<Arc<MatchRules>> {
    all.iter().find(|rules| *rules.name == *name).map(Arc::clone)
}
