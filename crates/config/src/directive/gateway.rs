//! `fastcgi_pass`, `scgi_pass`, `uwsgi_pass`: requests are passed on with parameters.

use std::sync::Arc;

use super::forward::pass;
use super::{LEVELS, LOCATION_IF, Row, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Family, Param};
use crate::names::regex_of;

macro_rules! param {
    ($name:literal, $family:expr) => {
        active(
            $name,
            LEVELS,
            "name value [if_not_empty]",
            "",
            "A parameter for the application; with `if_not_empty` only if its value is not empty",
            |l, d, s| param(l, d, s, $family),
        )
        .repeated()
    };
}

macro_rules! pass {
    ($name:literal, $family:expr) => {
        active(
            $name,
            LOCATION_IF,
            "address",
            "",
            "Passes requests to an application or a group: host and port, or `unix:` and a path",
            |l, d, s| pass(l, d, s, $family),
        )
    };
}

pub(super) const FASTCGI: &[Row] = &[
    pass!("fastcgi_pass", Family::FastCgi),
    param!("fastcgi_param", Family::FastCgi),
    active(
        "fastcgi_index",
        LEVELS,
        "name",
        "",
        "The name that is appended to a path that ends with a slash, in `$fastcgi_script_name`",
        |l, d, _| {
            l.forward(Family::FastCgi).index = Arc::from(&*d.arg(0).text);
            Ok(())
        },
    ),
    active(
        "fastcgi_split_path_info",
        LEVELS,
        "expression",
        "",
        "Where `$fastcgi_script_name` ends and `$fastcgi_path_info` begins: two groups",
        |l, d, _| {
            let pattern = regex_of(d.arg(0), &d.arg(0).text, false)?;
            if pattern.regex.captures_len() < 3 {
                return Err(d.invalid(d.arg(0), "needs two groups"));
            }
            l.forward(Family::FastCgi).split_path_info = Some(pattern);
            Ok(())
        },
    ),
    active(
        "fastcgi_catch_stderr",
        LEVELS,
        "text",
        "",
        "Text in what an application says for the error log that makes its answer an error (502)",
        |l, d, _| {
            let is_first = d.is_first_of(l);
            let texts = &mut l.forward(Family::FastCgi).caught;
            let before = if is_first { &[] } else { &**texts };
            *texts = before.iter().cloned().chain([Box::from(&*d.arg(0).text)]).collect();
            Ok(())
        },
    )
    .repeated(),
    active(
        "fastcgi_keep_conn",
        LEVELS,
        "on|off",
        "off",
        "Whether connections to applications are kept (`keepalive` of the group says how many)",
        |l, d, _| set(&mut l.forward(Family::FastCgi).keep_conn, d.flag()),
    ),
];

pub(super) const SCGI: &[Row] =
    &[pass!("scgi_pass", Family::Scgi), param!("scgi_param", Family::Scgi)];

pub(super) const UWSGI: &[Row] = &[
    pass!("uwsgi_pass", Family::Uwsgi),
    param!("uwsgi_param", Family::Uwsgi),
    active(
        "uwsgi_modifier1",
        LEVELS,
        "number",
        "0",
        "The first modifier of uwsgi packets",
        |l, d, _| set(&mut l.forward(Family::Uwsgi).modifiers.0, modifier(d)),
    ),
    active(
        "uwsgi_modifier2",
        LEVELS,
        "number",
        "0",
        "The second modifier of uwsgi packets",
        |l, d, _| set(&mut l.forward(Family::Uwsgi).modifiers.1, modifier(d)),
    ),
];

fn modifier(d: &Directive<'_>) -> Result<u8, Fault> {
    u8::try_from(d.number(0)?).map_err(|_| d.invalid(d.arg(0), "must be from 0 to 255"))
}

fn param(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>, family: Family) -> Result<(), Fault> {
    let is_optional = match d.args().get(2) {
        None => false,
        Some(word) if &*word.text == b"if_not_empty" => true,
        Some(word) => {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
    };
    let name = d.text(d.arg(0))?.into();
    let value = d.template(d.arg(1), s)?;
    let is_first = d.is_first_of(l);
    let params = &mut l.forward(family).params;
    let before = if is_first { &[] } else { &**params };
    let param = Param { name, value, is_optional };
    *params = before.iter().cloned().chain([param]).collect();
    Ok(())
}
