//! Scripts: `rewrite`, `set`, `if`, `break`, `return`; and the blocks that define variables.

use std::sync::Arc;

use sekisho_http::Status as Code;

use super::{
    Body, Context, Contexts, HTTP_STREAM, Row, SCRIPTS, SERVER_LOCATION, active, block, nothing,
    set,
};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    Assignee, Branch, Condition, FileTest, Replacement, Return, Rewrite, Step, Then, Variable,
};
use crate::names::regex_of;
use crate::parse::Word;
use crate::template::{is_name, is_taken, variable};
use crate::value;

const EVERY_LEVEL: Contexts = Contexts::of(&[
    Context::Http,
    Context::Server,
    Context::ServerIf,
    Context::Location,
    Context::LocationIf,
]);

pub(super) const ROWS: &[Row] = &[
    active(
        "rewrite",
        SCRIPTS,
        "regex replacement [last|break|redirect|permanent]",
        "",
        "Changes the path, or redirects the client, if the path matches",
        |l, d, s| step(l, Step::Rewrite(rewrite(d, s)?)),
    )
    .repeated(),
    active("set", SCRIPTS, "$variable value", "", "Sets a variable", |l, d, s| {
        let assignee = assignee(d, s)?;
        step(l, Step::Set(assignee, d.template(d.arg(1), s)?))
    })
    .repeated(),
    Row {
        apply: branch,
        ..block(
            "if",
            SERVER_LOCATION,
            "(condition) ...",
            Context::LocationIf,
            "Directives under a condition: `$variable`, `=`, `!=`, `~`, `~*`, `!~`, `!~*`, `-f`, `-d`, `-e`, `-x`",
        )
    },
    active(
        "break",
        SCRIPTS,
        "",
        "",
        "Ends rewriting; no other location is searched for",
        |l, _, _| step(l, Step::Break),
    )
    .repeated(),
    active(
        "return",
        SCRIPTS,
        "code|url [text|url]",
        "",
        "Answers at once; 444 closes without an answer",
        |l, d, s| {
            let answer = returns(d, s)?;
            // What follows is never run.
            if let Some(Step::Return(_)) = l.own.steps.last() {
                s.warn(d.node.name.span, "this \"return\" is never reached");
            }
            step(l, Step::Return(answer))
        },
    )
    .repeated(),
    active(
        "rewrite_log",
        EVERY_LEVEL,
        "on|off",
        "off",
        "Whether each step of rewriting is logged, as a notice",
        |l, d, _| set(&mut l.settings.rewriting.log, d.flag()),
    ),
    active(
        "uninitialized_variable_warn",
        EVERY_LEVEL,
        "on|off",
        "on",
        "Whether the use of a variable that no `set` has reached is logged",
        |l, d, _| set(&mut l.settings.rewriting.warns_of_unset, d.flag()),
    ),
    active(
        "map",
        HTTP_STREAM,
        "value $variable",
        "",
        "A variable whose value depends on another",
        nothing,
    )
    .with_body(Body::Entries)
    .repeated(),
    active(
        "geo",
        HTTP_STREAM,
        "[$address] $variable",
        "",
        "A variable that depends on the client's address: networks, `default`, `delete`, `include`",
        nothing,
    )
    .with_body(Body::Entries)
    .repeated(),
    active(
        "split_clients",
        HTTP_STREAM,
        "string $variable",
        "",
        "A variable that has each of its values for a share of the strings, such as `20%`; `*` for the rest",
        nothing,
    )
    .with_body(Body::Entries)
    .repeated(),
];

#[expect(clippy::unnecessary_wraps, reason = "the end of every apply function here")]
fn step(l: &mut Level, step: Step) -> Result<(), Fault> {
    l.own.steps.push(step);
    Ok(())
}

fn rewrite(d: &Directive<'_>, s: &Scope<'_>) -> Result<Rewrite, Fault> {
    let word = d.arg(1);
    if word.text.is_empty() {
        return Err(Fault::at(word, "empty replacement"));
    }
    let pattern = regex_of(d.arg(0), &d.arg(0).text, false)?;
    // The last "?" drops the arguments of the request.
    let without = word.text.strip_suffix(b"?");
    let text = without.unwrap_or(&word.text);
    let is_address = begins_an_address(text);
    let (status, then) = match d.args().get(2).map(|flag| (flag, &*flag.text)) {
        None => (is_address.then_some(Code::FOUND), Then::GoOn),
        Some((_, b"last")) => (is_address.then_some(Code::FOUND), Then::Search),
        Some((_, b"break")) => (is_address.then_some(Code::FOUND), Then::Stay),
        Some((_, b"redirect")) => (Some(Code::FOUND), Then::Search),
        Some((_, b"permanent")) => (Some(Code::MOVED_PERMANENTLY), Then::Search),
        Some((flag, _)) => {
            return Err(Fault::at(flag, format!("invalid parameter \"{}\"", flag.shown()))
                .help("one of \"last\", \"break\", \"redirect\", \"permanent\"".to_owned()));
        }
    };
    let mark = text.iter().position(|byte| *byte == b'?');
    let replacement = match (status, mark) {
        (Some(status), mark) => Replacement::Address {
            address: d.template_of(word, text, s)?,
            has_args: mark.is_some(),
            status,
        },
        (None, Some(mark)) => Replacement::Path {
            path: d.template_of(word, &text[..mark], s)?,
            args: Some(d.template_of(word, &text[mark + 1..], s)?),
            then,
        },
        (None, None) => Replacement::Path { path: d.template_of(word, text, s)?, args: None, then },
    };
    Ok(Rewrite { pattern, replacement, keeps_args: without.is_none() })
}

fn begins_an_address(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|start| text.starts_with(start))
}

pub(super) fn assignee(d: &Directive<'_>, s: &Scope<'_>) -> Result<Assignee, Fault> {
    let word = d.arg(0);
    let invalid = || Fault::at(word, format!("invalid variable name \"{}\"", word.shown()));
    let text = d.text(word)?;
    let Some(name) = text.strip_prefix('$') else {
        return Err(invalid().help(format!("a variable begins with \"$\": \"${text}\"")));
    };
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "args" => return Ok(Assignee::Args),
        "limit_rate" => return Ok(Assignee::LimitRate),
        _ => {}
    }
    if is_taken(&name, s.names.is_stream) {
        return Err(Fault::at(word, format!("the duplicate \"{name}\" variable"))
            .note("the server itself gives this variable its value".to_owned()));
    }
    // Every name that can be one has been collected before.
    s.names.assigned.get(&name).map(|id| Assignee::Variable(*id)).ok_or_else(invalid)
}

/// The variable that a `set` makes, if it makes one.
pub(crate) fn assigned_name(word: &Word, is_stream: bool) -> Option<String> {
    let name = std::str::from_utf8(&word.text).ok()?.strip_prefix('$')?.to_ascii_lowercase();
    let is_own = is_name(&name) && !is_taken(&name, is_stream) && name != "limit_rate";
    is_own.then_some(name)
}

fn branch(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let (condition, result) = match condition(d, s) {
        Ok(condition) => (condition, Ok(())),
        // What stands within is judged all the same.
        Err(fault) => (Condition::Is(Variable::Capture(0)), Err(fault)),
    };
    l.own.steps.push(Step::If(Branch { condition, location: None, steps: Vec::new() }));
    result
}

/// A word of a condition, without the parenthesis that touches it.
type Piece<'a> = (&'a Word, &'a [u8]);

fn condition(d: &Directive<'_>, s: &Scope<'_>) -> Result<Condition, Fault> {
    let pieces = pieces(d.args())?;
    let [first, rest @ ..] = pieces.as_slice() else { return Err(invalid((d.arg(0), b")"))) };
    if first.1.len() > 1 && first.1.starts_with(b"$") {
        return match rest {
            [] => Ok(Condition::Is(tested(*first, s)?)),
            [operator, value] => compared(d, s, tested(*first, s)?, *operator, *value),
            _ => Err(invalid(*first)),
        };
    }
    let (is_negated, letter) = match first.1 {
        [b'-', letter] => (false, letter),
        [b'!', b'-', letter] => (true, letter),
        _ => return Err(invalid(*first)),
    };
    let test = match letter {
        b'f' => FileTest::File,
        b'd' => FileTest::Directory,
        b'e' => FileTest::Exists,
        b'x' => FileTest::Executable,
        _ => return Err(invalid(*first)),
    };
    let [path] = rest else { return Err(invalid(*first)) };
    Ok(Condition::File { test, path: d.template_of(path.0, path.1, s)?, is_negated })
}

/// The words between the parentheses, which may touch them or stand alone.
fn pieces(words: &[Word]) -> Result<Vec<Piece<'_>>, Fault> {
    let mut pieces: Vec<Piece<'_>> = words.iter().map(|word| (word, &*word.text)).collect();
    let Some(first) = pieces.first_mut() else { return Ok(pieces) };
    first.1 = first.1.strip_prefix(b"(").ok_or_else(|| invalid(*first))?;
    if first.1.is_empty() {
        pieces.remove(0);
    }
    let Some(last) = pieces.last_mut() else { return Ok(pieces) };
    last.1 = last.1.strip_suffix(b")").ok_or_else(|| invalid(*last))?;
    if last.1.is_empty() {
        pieces.pop();
    }
    Ok(pieces)
}

fn invalid((word, text): Piece<'_>) -> Fault {
    let shown: String = String::from_utf8_lossy(text).chars().take(100).collect();
    Fault::at(word, format!("invalid condition \"{shown}\""))
}

/// The variable that a condition begins with: one name, nothing around it.
fn tested((word, text): Piece<'_>, s: &Scope<'_>) -> Result<Variable, Fault> {
    let name = String::from_utf8_lossy(text.get(1..).unwrap_or_default());
    // All of it is the name here: `if ($arg_go-get)`.
    let is_given = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (name.starts_with("arg_") || name.starts_with("cookie_")) && name.bytes().all(is_given) {
        return variable(&name, &s.names)
            .map_err(|bad| Fault::at(word, bad.message).help(bad.help));
    }
    if !is_name(&name) {
        let fault = Fault::at(word, format!("unknown \"{name}\" variable"));
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        return Err(fault.help(Some(if is_number {
            "give it a name first: \"set $name $1;\"".to_owned()
        } else {
            "a single variable must have blanks around it".to_owned()
        })));
    }
    variable(&name, &s.names).map_err(|bad| Fault::at(word, bad.message).help(bad.help))
}

fn compared(
    d: &Directive<'_>,
    s: &Scope<'_>,
    variable: Variable,
    operator: Piece<'_>,
    (word, text): Piece<'_>,
) -> Result<Condition, Fault> {
    let (is_negated, rest) = match operator.1 {
        [b'!', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let regex = |ignore_case| {
        let pattern = regex_of(word, text, ignore_case)?;
        Ok(Condition::Matches { variable: variable.clone(), pattern, is_negated })
    };
    match rest {
        b"=" => {
            let value = d.template_of(word, text, s)?;
            Ok(Condition::Equals { variable, value, is_negated })
        }
        b"~" => regex(false),
        b"~*" => regex(true),
        _ => {
            let shown = String::from_utf8_lossy(operator.1);
            let fault = Fault::at(operator.0, format!("unexpected \"{shown}\" in condition"));
            Err(fault.help((rest == b"==").then(|| "equality is \"=\"".to_owned())))
        }
    }
}

fn returns(d: &Directive<'_>, s: &Scope<'_>) -> Result<Return, Fault> {
    let word = d.arg(0);
    let invalid = || Fault::at(word, format!("invalid return code \"{}\"", word.shown()));
    let number = std::str::from_utf8(&word.text).ok().map(value::number);
    match number {
        Some(Ok(code)) => {
            let code = u16::try_from(code)
                .ok()
                .filter(|code| (100..=999).contains(code))
                .ok_or_else(invalid)?;
            let text = d.args().get(1).map(|word| d.template(word, s)).transpose()?;
            Ok(Return { code, text: text.map(Arc::new) })
        }
        _ if d.args().len() == 1 && begins_an_address(&word.text) => {
            Ok(Return { code: 302, text: Some(Arc::new(d.template(word, s)?)) })
        }
        _ if word.text.starts_with(b"/") => {
            Err(invalid().help(format!("write the code too: return 302 {}", word.shown())))
        }
        _ => Err(invalid()),
    }
}
