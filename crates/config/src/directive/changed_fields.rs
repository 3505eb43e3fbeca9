//! `more_set_headers` and `more_clear_headers`, as the module headers-more has them: fields of any answer are replaced
//! or taken away.

use std::sync::Arc;

use super::{LEVELS_IF, Row, active};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{ChangedField, Template};
use crate::parse::Word;

/// These frame the message.
const FRAMING: [&str; 6] =
    ["connection", "content-length", "transfer-encoding", "date", "trailer", "upgrade"];

pub(super) const ROWS: &[Row] = &[
    active(
        "more_set_headers",
        LEVELS_IF,
        "field:value ...",
        "",
        "Fields that take the place of those of the same name, in answers of any status; one without a value is taken away. Those of the level around it come first. `-s \"404 500\"` and `-t \"text/html\"` name the statuses and types that it is for",
        |l, d, s| change(l, d, s, true),
    )
    .repeated(),
    active(
        "more_clear_headers",
        LEVELS_IF,
        "field ...",
        "",
        "Fields that are taken away from answers; a name may end with `*`. More as in `more_set_headers`",
        |l, d, s| change(l, d, s, false),
    )
    .repeated(),
];

fn change(l: &mut Level, d: &Directive<'_>, s: &Scope<'_>, may_set: bool) -> Result<(), Fault> {
    let (mut statuses, mut types, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    let mut words = d.args().iter();
    while let Some(word) = words.next() {
        match &*word.text {
            b"-s" | b"-t" => {
                let list = words.next().ok_or_else(|| Fault::at(word, "a value must follow"))?;
                let list_words = d.text(list)?.split_ascii_whitespace();
                if &*word.text == b"-t" {
                    types.extend(list_words.map(|name| Box::from(name.to_ascii_lowercase())));
                    continue;
                }
                for code in list_words {
                    let code = code.parse::<u16>().ok().filter(|code| (100..600).contains(code));
                    statuses.push(code.ok_or_else(|| d.invalid(list, "is no list of statuses"))?);
                }
            }
            _ => fields.push(word),
        }
    }
    if fields.is_empty() {
        return Err(Fault::new("no field is named"));
    }
    let (statuses, types): (Arc<[u16]>, Arc<[Box<str>]>) = (statuses.into(), types.into());
    let mut all = l.settings.changed_fields.to_vec();
    for word in fields {
        let (name, value) = field(d, s, word, may_set)?;
        let (statuses, types) = (Arc::clone(&statuses), Arc::clone(&types));
        all.push(ChangedField { name, value, statuses, types });
    }
    l.settings.changed_fields = all.into();
    Ok(())
}

/// `Name: value`, `Name:`, `Name`
fn field(
    d: &Directive<'_>,
    s: &Scope<'_>,
    word: &Word,
    may_set: bool,
) -> Result<(Box<str>, Option<Template>), Fault> {
    let text = d.text(word)?;
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let (name, value) = (name.trim(), value.trim());
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&b);
    let stem = if may_set { name } else { name.strip_suffix('*').unwrap_or(name) };
    if name.is_empty() || !stem.bytes().all(is_token) {
        return Err(d.invalid(word, "is not the name of a header field"));
    }
    if FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Err(d.invalid(word, "is written by the server itself"));
    }
    if value.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(d.invalid(word, "contains a byte that a header field cannot have"));
    }
    let value = Some(value).filter(|value| may_set && !value.is_empty());
    let value = value.map(|value| d.template_of(word, value.as_bytes(), s)).transpose()?;
    Ok((name.into(), value))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Memory, Options, load};

    fn outcome(text: &str) -> Result<String, String> {
        let text =
            format!("http {{ more_set_headers 'X: outer'; server {{ location / {{ {text} }} }} }}");
        let outcome = load(Path::new("/c"), &Options::new("/"), &Memory::of("/c", &*text));
        let shown: String = outcome.reports.iter().map(crate::Report::line).collect();
        let config = outcome.config.ok_or(shown)?;
        let fields = &config.http.locations.last().expect("a location").settings.changed_fields;
        let one = |field: &crate::ChangedField| {
            let value = field.value.as_ref().map(|it| it.as_literal().is_some());
            format!("{} {value:?} {:?} {:?}", field.name, field.statuses, field.types)
        };
        Ok(fields.iter().map(one).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn lists_go_on_where_the_level_around_ends() {
        for (text, expected) in [
            ("", ""),
            ("more_set_headers 'A : b' \"C:$uri\";", ", A Some(true) [] [], C Some(false) [] []"),
            ("more_set_headers 'Server:';", ", Server None [] []"),
            (
                "more_clear_headers Server 'X-*' 'Y: ';",
                ", Server None [] [], X-* None [] [], Y None [] []",
            ),
            (
                "more_set_headers -s '404 500' -t Text/HTML 'A: b';",
                ", A Some(true) [404, 500] [\"text/html\"]",
            ),
        ] {
            assert_eq!(outcome(text), Ok(format!("X Some(true) [] []{expected}")), "{text}");
        }
        for (text, wrong) in [
            ("more_set_headers -s x 'A: b';", "is no list of statuses"),
            ("more_set_headers -s;", "a value must follow"),
            ("more_set_headers -t text/html;", "no field is named"),
            ("more_set_headers 'A b: c';", "is not the name of a header field"),
            ("more_set_headers 'A*: c';", "is not the name of a header field"),
            ("more_set_headers 'Content-Length: 3';", "is written by the server itself"),
            ("more_clear_headers Date;", "is written by the server itself"),
        ] {
            assert!(outcome(text).is_err_and(|said| said.contains(wrong)), "{text}");
        }
    }
}
