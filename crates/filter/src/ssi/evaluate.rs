//! The commands of a page put into effect, one after another.

use std::collections::HashMap;

use sekisho_config::pattern::group_names;
use sekisho_config::{Matched, Pattern};

use super::parse::{Command, Event, Parser};
use super::value::{Encoding, encode, fill};

/// How many conditions may stand in each other.
const NESTED_MAX: usize = 64;
/// How many variables and blocks the pages of one request may set, and how many bytes both may have in all.
const NAMES_MAX: usize = 1000;
const NAMED_BYTES_MAX: usize = 1 << 20;
/// What is said where a command fails, and how dates look, unless the page says otherwise.
const ERROR_TEXT: &[u8] = b"[an error occurred while processing the directive]";
const TIME_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

/// What a page may ask of its request.
pub trait Environment {
    /// The value of a variable of the server's; `None` where it has none.
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>>;
    /// The time in this form: in the server's zone, or in UTC.
    fn date(&self, format: &[u8], is_local: bool) -> Vec<u8>;
}

/// What all pages of one request share, as in nginx: variables, blocks, and what the last expression found.
#[derive(Debug, Default)]
pub struct Shared {
    variables: HashMap<Vec<u8>, Vec<u8>>,
    blocks: HashMap<Vec<u8>, Vec<u8>>,
    captures: HashMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Shared {
    /// Sets a variable; whether there was room.
    pub fn set(&mut self, name: &[u8], value: Vec<u8>) -> bool {
        let Self { variables, bytes, .. } = self;
        keep(variables, bytes, name, value)
    }

    /// A block.
    pub fn block(&self, name: &[u8]) -> Option<&[u8]> {
        self.blocks.get(&name.to_ascii_lowercase()).map(|block| &**block)
    }
}

fn keep(
    map: &mut HashMap<Vec<u8>, Vec<u8>>,
    bytes: &mut usize,
    name: &[u8],
    value: Vec<u8>,
) -> bool {
    let name = name.to_ascii_lowercase();
    let before = map.get(&name).map_or(0, Vec::len);
    let after = *bytes - before + value.len();
    let is_new = before == 0 && !map.contains_key(&name);
    if after > NAMED_BYTES_MAX || (is_new && map.len() >= NAMES_MAX) {
        return false;
    }
    *bytes = after;
    map.insert(name, value);
    true
}

/// A resource to include.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Include {
    /// Its path and arguments; relative to that of the page where it does not begin with a slash.
    pub target: Vec<u8>,
    /// Nothing more of the page is looked at before it is complete.
    pub waits: bool,
    /// Its body becomes the value of this variable.
    pub set: Option<Vec<u8>>,
    /// What stands there where it is empty or fails.
    pub stub: Option<Vec<u8>>,
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Text for the client.
    Text(Vec<u8>),
    /// A resource to include.
    Include(Include),
    /// A command failed: a line for the error log.
    Wrong(String),
}

/// A condition that is open.
#[derive(Debug)]
struct Condition {
    /// One of its branches has been chosen.
    is_chosen: bool,
    /// The present one is.
    is_on: bool,
}

/// One page.
#[derive(Debug)]
pub struct Page {
    parser: Parser,
    conditions: Vec<Condition>,
    /// The block that is being read, and its content.
    block: Option<(Vec<u8>, Vec<u8>)>,
    error_text: Vec<u8>,
    time_format: Vec<u8>,
    /// `ssi_silent_errors`
    is_silent: bool,
    /// A text for the client that comes after something else.
    later: Option<Step>,
}

impl Page {
    /// Nothing has come yet. `value_bytes_max` is `ssi_value_length`.
    pub fn new(value_bytes_max: usize, is_silent: bool) -> Self {
        Self {
            parser: Parser::new(value_bytes_max),
            conditions: Vec::new(),
            block: None,
            error_text: ERROR_TEXT.to_vec(),
            time_format: TIME_FORMAT.to_vec(),
            is_silent,
            later: None,
        }
    }

    /// A page of this text alone, with the manners of this one.
    #[must_use]
    pub fn within(&self, text: &[u8], value_bytes_max: usize) -> Self {
        let mut page = Self::new(value_bytes_max, self.is_silent);
        page.error_text.clone_from(&self.error_text);
        page.time_format.clone_from(&self.time_format);
        page.push(text);
        page.end();
        page
    }

    /// What is said where a command fails.
    pub fn error_text(&self) -> &[u8] {
        &self.error_text
    }

    /// Takes a piece of it.
    pub fn push(&mut self, bytes: &[u8]) {
        self.parser.push(bytes);
    }

    /// No more comes.
    pub const fn end(&mut self) {
        self.parser.end();
    }

    /// How much of it is held.
    pub const fn held_bytes(&self) -> usize {
        self.parser.held_bytes()
    }

    /// What comes next; `None` where more has to come, or nothing is left. After an [`Include`] that waits, or sets a
    /// variable, it is not to be asked before that is complete.
    pub fn next_step(
        &mut self,
        shared: &mut Shared,
        environment: &dyn Environment,
    ) -> Option<Step> {
        if let Some(step) = self.later.take() {
            return Some(step);
        }
        loop {
            let event = self.parser.next_event()?;
            if let Some(step) = self.event(event, shared, environment) {
                return Some(step);
            }
        }
    }

    fn is_on(&self) -> bool {
        self.conditions.last().is_none_or(|condition| condition.is_on)
    }

    fn event(
        &mut self,
        event: Event,
        shared: &mut Shared,
        environment: &dyn Environment,
    ) -> Option<Step> {
        match event {
            Event::Text(_) if !self.is_on() => None,
            Event::Text(text) => match &mut self.block {
                Some((_, content)) => {
                    extend(content, &text);
                    None
                }
                None => Some(Step::Text(text)),
            },
            Event::Invalid(_) if !self.is_on() || self.block.is_some() => None,
            Event::Invalid(text) => {
                Some(self.wrong(format!("invalid SSI command: \"{}\"", text.escape_ascii())))
            }
            Event::Command(command) => self.command(&command, shared, environment),
        }
    }

    /// Says that a command failed, in the log and, unless it is to be silent, in the page.
    fn wrong(&mut self, why: String) -> Step {
        if !self.is_silent && !self.error_text.is_empty() {
            self.later = Some(Step::Text(self.error_text.clone()));
        }
        Step::Wrong(why)
    }

    fn command(
        &mut self,
        command: &Command,
        shared: &mut Shared,
        environment: &dyn Environment,
    ) -> Option<Step> {
        let name = command.name.to_ascii_lowercase();
        if let Some((_, content)) = &mut self.block {
            if name != b"endblock" {
                // It is looked at where the block is used.
                extend(content, &command.raw);
                return None;
            }
            let (name, content) = self.block.take()?;
            let Shared { blocks, bytes, .. } = shared;
            let is_kept = keep(blocks, bytes, &name, content);
            return (!is_kept).then(|| self.wrong("too much in SSI blocks".to_owned()));
        }
        match &*name {
            b"if" | b"elif" | b"else" | b"endif" => {
                return self.conditional(&name, command, shared, environment);
            }
            _ if !self.is_on() => return None,
            _ => {}
        }
        let scope = Scope { shared, environment, time_format: &self.time_format };
        let done = match &*name {
            b"include" => scope.include(command).map(|include| Some(Step::Include(include))),
            b"echo" => scope.echo(command).map(|text| Some(Step::Text(text))),
            b"set" => scope.assignment(command).and_then(|(name, value)| {
                let is_kept = shared.set(&name, value);
                if is_kept { Ok(None) } else { Err("too much in SSI variables".to_owned()) }
            }),
            b"config" => {
                let value =
                    |name| command.parameter(name).map(|value| scope.fill(value)).transpose();
                match (value("timefmt"), value("errmsg")) {
                    (Ok(format), Ok(text)) => {
                        self.time_format = format.unwrap_or_else(|| self.time_format.clone());
                        self.error_text = text.unwrap_or_else(|| self.error_text.clone());
                        Ok(None)
                    }
                    (Err(why), _) | (_, Err(why)) => Err(why),
                }
            }
            b"block" => match command.parameter("name") {
                Some(name) => {
                    self.block = Some((name.to_vec(), Vec::new()));
                    Ok(None)
                }
                None => Err(lacks("name", command)),
            },
            _ => Err(format!("invalid SSI command: \"{}\"", command.name.escape_ascii())),
        };
        match done {
            Ok(Some(Step::Text(text))) if text.is_empty() => None,
            Ok(step) => step,
            Err(why) => Some(self.wrong(why)),
        }
    }

    fn conditional(
        &mut self,
        name: &[u8],
        command: &Command,
        shared: &mut Shared,
        environment: &dyn Environment,
    ) -> Option<Step> {
        // A branch counts only where what is around it does.
        let depth = self.conditions.len();
        let around = if name == b"if" { depth } else { depth.saturating_sub(1) };
        let is_around = self.conditions[..around].iter().all(|condition| condition.is_on);
        let mut test = |is_needed: bool| -> Result<bool, String> {
            if !is_needed {
                return Ok(false);
            }
            let expression = command.parameter("expr").ok_or_else(|| lacks("expr", command))?;
            test(expression, shared, environment, &self.time_format)
        };
        let result = match name {
            b"if" if depth >= NESTED_MAX => Err("too many nested SSI conditions".to_owned()),
            b"if" => {
                let result = test(is_around);
                // As in nginx, one that cannot be decided is none, and hides nothing.
                if let Ok(is_on) = result {
                    self.conditions.push(Condition { is_chosen: is_on, is_on });
                }
                result
            }
            _ if self.conditions.is_empty() => {
                let name = command.name.escape_ascii();
                Err(format!("invalid context of SSI command: \"{name}\""))
            }
            b"endif" => {
                self.conditions.pop();
                return None;
            }
            _ => {
                let is_chosen = self.conditions.last().map(|condition| condition.is_chosen)?;
                let result = if name == b"else" {
                    Ok(is_around && !is_chosen)
                } else {
                    test(is_around && !is_chosen)
                };
                if let Some(condition) = self.conditions.last_mut() {
                    condition.is_on = *result.as_ref().unwrap_or(&false);
                    condition.is_chosen |= condition.is_on;
                }
                result
            }
        };
        result.err().map(|why| self.wrong(why))
    }
}

fn extend(content: &mut Vec<u8>, text: &[u8]) {
    if content.len() + text.len() <= NAMED_BYTES_MAX {
        content.extend_from_slice(text);
    }
}

fn lacks(parameter: &str, command: &Command) -> String {
    let name = command.name.escape_ascii();
    format!("mandatory \"{parameter}\" parameter is absent in \"{name}\" SSI command")
}

/// What values are made of.
struct Scope<'a> {
    shared: &'a Shared,
    environment: &'a dyn Environment,
    time_format: &'a [u8],
}

impl Scope<'_> {
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        let Shared { variables, captures, .. } = self.shared;
        if let Some(value) = variables.get(name).or_else(|| captures.get(name)) {
            return Some(value.clone());
        }
        match name {
            b"date_local" => Some(self.environment.date(self.time_format, true)),
            b"date_gmt" => Some(self.environment.date(self.time_format, false)),
            _ => self.environment.variable(name),
        }
    }

    fn fill(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        fill(text, |name| self.variable(name))
            .ok_or_else(|| format!("invalid variable name in \"{}\"", text.escape_ascii()))
    }

    fn include(&self, command: &Command) -> Result<Include, String> {
        let target = match (command.parameter("virtual"), command.parameter("file")) {
            (Some(_), Some(_)) => {
                return Err("inclusion may be either virtual or file".to_owned());
            }
            (Some(target), None) | (None, Some(target)) => self.fill(target)?,
            (None, None) => return Err("no parameter in \"include\" SSI command".to_owned()),
        };
        let set = command.parameter("set").map(<[u8]>::to_vec);
        let stub = command.parameter("stub").map(<[u8]>::to_vec);
        if set.is_some() && stub.is_some() {
            return Err("\"set\" and \"stub\" cannot be used together in \"include\" SSI command"
                .to_owned());
        }
        let waits = match command.parameter("wait") {
            None => false,
            Some(value) if value.eq_ignore_ascii_case(b"no") => false,
            Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
            Some(value) => {
                return Err(format!(
                    "invalid value \"{}\" in the \"wait\" parameter",
                    value.escape_ascii()
                ));
            }
        };
        Ok(Include { target, waits, set, stub })
    }

    fn echo(&self, command: &Command) -> Result<Vec<u8>, String> {
        let name = command.parameter("var").ok_or_else(|| lacks("var", command))?;
        let encoding = match command.parameter("encoding") {
            Some(b"none") => Encoding::None,
            Some(b"url") => Encoding::Url,
            // As in nginx, one that is not known is as good as none.
            _ => Encoding::Entity,
        };
        let value = match (self.variable(&name.to_ascii_lowercase()), command.parameter("default"))
        {
            (Some(value), _) => value,
            // As it stands, as in nginx.
            (None, Some(otherwise)) => return Ok(otherwise.to_vec()),
            (None, None) => b"(none)".to_vec(),
        };
        let mut out = Vec::with_capacity(value.len());
        encode(&value, encoding, &mut out);
        Ok(out)
    }

    fn assignment(&self, command: &Command) -> Result<(Vec<u8>, Vec<u8>), String> {
        let name = command.parameter("var").ok_or_else(|| lacks("var", command))?;
        let value = command.parameter("value").ok_or_else(|| lacks("value", command))?;
        Ok((name.to_ascii_lowercase(), self.fill(value)?))
    }
}

/// `$name`, `text = text`, `text != text`, `text = /expression/`, `text != /expression/`.
fn test(
    expression: &[u8],
    shared: &mut Shared,
    environment: &dyn Environment,
    time_format: &[u8],
) -> Result<bool, String> {
    let invalid = || format!("invalid expression in \"{}\"", expression.escape_ascii());
    let is_left = |byte: &u8| byte.is_ascii_alphanumeric() || b"${}_\"'".contains(byte);
    let end = expression.iter().position(|byte| !is_left(byte)).unwrap_or(expression.len());
    let scope = Scope { shared, environment, time_format };
    let left = scope.fill(&expression[..end])?;
    let rest = expression[end..].trim_ascii_start();
    let (is_negative, right) = match rest {
        [] => return Ok(!left.is_empty()),
        [b'=', right @ ..] => (false, right),
        [b'!', b'=', right @ ..] => (true, right),
        _ => return Err(invalid()),
    };
    let right = right.trim_ascii_start();
    let is_equal = match right {
        [b'/', inner @ .., b'/'] => {
            let source = std::str::from_utf8(inner).map_err(|_| invalid())?;
            let pattern = Pattern::new(source, false).map_err(|bad| {
                format!("invalid expression in \"{}\": {}", source.escape_debug(), bad.reason)
            })?;
            matched(&pattern, &left, shared).ok_or_else(invalid)?
        }
        [b'/', ..] => return Err(invalid()),
        right => scope.fill(right)? == left,
    };
    Ok(is_equal != is_negative)
}

/// Whether an expression matches; what its groups found becomes variables. `None` where that takes too many steps.
fn matched(pattern: &Pattern, text: &[u8], shared: &mut Shared) -> Option<bool> {
    let mut groups = Vec::new();
    match pattern.regex.captures(text, &mut groups) {
        Matched::Yes => {}
        Matched::No => return Some(false),
        Matched::Exhausted => return None,
    }
    shared.captures.clear();
    for (at, group) in groups.iter().enumerate() {
        let value = group.clone().and_then(|range| text.get(range)).unwrap_or_default();
        shared.captures.insert((at + 1).to_string().into_bytes(), value.to_vec());
    }
    for name in group_names(&pattern.source) {
        if let Some(group) = pattern.regex.group(name).and_then(|at| groups.get(at)) {
            let value = group.clone().and_then(|range| text.get(range)).unwrap_or_default();
            shared.captures.insert(name.to_ascii_lowercase().into_bytes(), value.to_vec());
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given;

    impl Environment for Given {
        fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
            match name {
                b"yes" => Some(b"1".to_vec()),
                b"word" => Some(b"<Word>".to_vec()),
                b"empty" => Some(Vec::new()),
                _ => None,
            }
        }

        fn date(&self, format: &[u8], is_local: bool) -> Vec<u8> {
            [if is_local { &b"L"[..] } else { b"G" }, format].concat()
        }
    }

    fn page(text: &str) -> String {
        let mut results = Vec::new();
        for cut in [1, 3, 7, 1000] {
            let (mut page, mut shared, mut out) =
                (Page::new(256, false), Shared::default(), String::new());
            let mut note = |page: &mut Page| {
                while let Some(step) = page.next_step(&mut shared, &Given) {
                    match step {
                        Step::Text(text) => out += &String::from_utf8_lossy(&text),
                        Step::Wrong(_) => out += "!",
                        Step::Include(it) => {
                            let target = String::from_utf8_lossy(&it.target).into_owned();
                            let stub =
                                it.stub.and_then(|stub| shared.block(&stub).map(<[u8]>::to_vec));
                            let stub = stub.map(|it| String::from_utf8_lossy(&it).into_owned());
                            let wait = if it.waits { " waits" } else { "" };
                            out += &["[", &target, wait, &stub.unwrap_or_default(), "]"].concat();
                        }
                    }
                }
            };
            for piece in text.as_bytes().chunks(cut) {
                page.push(piece);
                note(&mut page);
            }
            page.end();
            note(&mut page);
            results.push(out);
        }
        assert!(results.iter().all(|one| *one == results[0]), "{text}: {results:?}");
        results.remove(0)
    }

    const ERROR: &str = "![an error occurred while processing the directive]";

    #[test]
    fn commands_are_put_into_effect() {
        let chain =
            "<!--#if expr=\"A\" -->IF<!--#elif expr='B' -->ELIF<!--#else -->ELSE<!--#endif -->";
        let chain = |a: &str, b: &str| chain.replace('A', a).replacen('B', b, 1);
        let table: &[(String, String)] = &[
            ("x<!--#echo var=\"word\" -->x".into(), "x&lt;Word&gt;x".into()),
            ("<!--#echo var=\"WORD\" encoding=\"none\" -->".into(), "<Word>".into()),
            ("<!--#echo var='nothing' -->".into(), "(none)".into()),
            ("<!--#echo var='nothing' default='a $yes' -->".into(), "a $yes".into()),
            ("<!--#echo var='empty' -->".into(), String::new()),
            ("<!--#set var='a' value='b$yes' --><!--#echo var='A' -->".into(), "b1".into()),
            ("<!--#config timefmt='%H' --><!--#echo var='date_gmt' -->".into(), "G%H".into()),
            ("<!--#config errmsg='oh' --><!--#nonsense -->".into(), "!oh".into()),
            ("<!--#nonsense -->".into(), ERROR.into()),
            ("<!--#echo -->".into(), ERROR.into()),
            ("<!--#echo var='yes' encoding='x' -->".into(), "1".into()),
            ("<!--#include virtual='/a?$yes' wait='yes' -->".into(), "[/a?1 waits]".into()),
            ("<!--#include file='a' virtual='b' -->".into(), ERROR.into()),
            ("<!--#block name='one' -->B<!--#echo var='yes' --><!--#endblock -->x<!--#include virtual='/x' stub='one' -->".into(),
             "x[/xB<!--#echo var='yes' -->]".into()),
            (chain("$yes", "$yes"), "IF".into()),
            (chain("$none", "$yes"), "ELIF".into()),
            (chain("$none", "$empty"), "ELSE".into()),
            (chain("$word = <Word>", ""), "IF".into()),
            (chain("$word != <Word>", "$yes"), "ELIF".into()),
            (chain("a != $word", ""), "IF".into()),
            (chain("$word = /^<(W)(?P<o>o)/", ""), "IF".into()),
            (chain("$word = /x/", "$word != /x/"), "ELIF".into()),
            ("<!--#if expr='$word = /^<(W)(?P<o>o)/' --><!--#echo var='1' --><!--#echo var='o' --><!--#endif -->".into(), "Wo".into()),
            ("<!--#if expr='$word ~ x' -->a<!--#endif -->b".into(), format!("{ERROR}a{ERROR}b")),
            ("<!--#if expr='$word = /x' -->a<!--#endif -->b".into(), format!("{ERROR}a{ERROR}b")),
            ("<!--#if expr='$none' --><!--#nonsense --><!--#set var='x' value='y' -->a<!--#endif --><!--#echo var='x' -->".into(), "(none)".into()),
            (format!("<!--#if expr='$none' -->{0}<!--#else -->{0}<!--#endif -->", chain("$none", "$yes")), "ELIF".into()),
            (format!("<!--#if expr='$yes' -->{0}<!--#else -->{0}<!--#endif -->", chain("$none", "$none")), "ELSE".into()),
            ("<!--#endif -->x<!--#else -->y".into(), format!("{ERROR}x{ERROR}y")),
        ];
        for (text, expected) in table {
            assert_eq!(page(text), *expected, "{text}");
        }
    }

    #[test]
    fn what_pages_set_is_bounded() {
        let mut shared = Shared::default();
        assert!(shared.set(b"a", vec![0; NAMED_BYTES_MAX]));
        assert!(!shared.set(b"b", vec![0]));
        assert!(shared.set(b"A", vec![0]) && shared.set(b"b", vec![0]));
        let deep = "<!--#if expr='$yes' -->".repeat(NESTED_MAX + 1);
        assert!(page(&deep).starts_with('!'));
    }
}
