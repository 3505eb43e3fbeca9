//! `sticky`: clients come back to the server that they were sent to.

use std::time::Duration;

use sekisho_upstream::balance::sticky::{CookieSettings, Expires};

use super::{Row, UPSTREAM, active};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Part, Sticky, UpstreamVariable, Variable};
use crate::parse::Word;
use crate::value;

pub(super) const ROWS: &[Row] = &[active(
    "sticky",
    UPSTREAM,
    "cookie|route|learn parameter ...",
    "",
    "Clients come back to their server: by a `cookie NAME` that is set for them (`expires=`, `domain=`, `path=`, `httponly`, `secure`, `samesite=`), by a `route $variable …` that names it, or by sessions that servers make (`learn create=$upstream_cookie_x lookup=$cookie_x zone=name:size timeout=10m`)",
    sticky,
)];

fn sticky(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let words = d.args().get(1..).unwrap_or_default();
    let sticky = match &*d.arg(0).text {
        b"cookie" => Sticky::Cookie(cookie(d, words)?),
        b"route" => {
            let all: Result<Vec<_>, Fault> = words.iter().map(|word| d.template(word, s)).collect();
            Sticky::Route(all?)
        }
        b"learn" => learn(d, words, s)?,
        _ => {
            return Err(d.invalid(d.arg(0), "must be \"cookie\", \"route\" or \"learn\""));
        }
    };
    if let Some(group) = &mut l.group {
        group.sticky = Some(sticky);
    }
    Ok(())
}

fn invalid(word: &Word) -> Fault {
    Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))
}

fn cookie(d: &Directive<'_>, words: &[Word]) -> Result<CookieSettings, Fault> {
    let Some((name, rest)) = words.split_first() else {
        return Err(Fault::new("\"sticky cookie\" needs the name of a cookie"));
    };
    let mut cookie = CookieSettings { name: d.text(name)?.into(), ..CookieSettings::default() };
    for word in rest {
        let text = d.text(word)?;
        match text.split_once('=').unwrap_or((text, "")) {
            ("expires", "max") => cookie.expires = Some(Expires::Max),
            ("expires", said) => {
                let time = value::time(said).map_err(|_| invalid(word))?;
                let seconds = u32::try_from(time.as_secs()).map_err(|_| invalid(word))?;
                cookie.expires = Some(Expires::Seconds(seconds));
            }
            ("domain", said) if !said.is_empty() => cookie.domain = Some(said.into()),
            ("path", said) if !said.is_empty() => cookie.path = Some(said.into()),
            ("httponly", "") => cookie.is_http_only = true,
            ("secure", "") => cookie.is_secure = true,
            ("samesite", said @ ("strict" | "lax" | "none")) => {
                cookie.same_site = Some(said.into());
            }
            _ => return Err(invalid(word)),
        }
    }
    Ok(cookie)
}

fn learn(d: &Directive<'_>, words: &[Word], s: &Scope<'_>) -> Result<Sticky, Fault> {
    let (mut create, mut lookup, mut bytes) = (Vec::new(), Vec::new(), None);
    let mut timeout = Duration::from_mins(10);
    for word in words {
        let text = d.text(word)?;
        let (name, said) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "create" => {
                let template = d.template_of(word, said.as_bytes(), s)?;
                let [
                    Part::Variable(Variable::Upstream(
                        variable @ (UpstreamVariable::Cookie(_) | UpstreamVariable::Http(_)),
                    )),
                ] = template.parts.as_slice()
                else {
                    let help = "$upstream_cookie_NAME or $upstream_http_NAME".to_owned();
                    return Err(invalid(word).help(help));
                };
                create.push(variable.clone());
            }
            "lookup" => lookup.push(d.template_of(word, said.as_bytes(), s)?),
            "zone" => {
                let size = said.split_once(':').and_then(|(_, size)| value::size(size).ok());
                bytes = Some(size.filter(|size| *size >= 8192).ok_or_else(|| invalid(word))?);
            }
            "timeout" => timeout = value::time(said).map_err(|_| invalid(word))?,
            // A session is learned when the head of an answer is there in any case.
            "header" if said.is_empty() => {}
            "sync" => return Err(d.not_built(word)),
            _ => return Err(invalid(word)),
        }
    }
    let Some(bytes) = bytes else {
        return Err(Fault::new("\"sticky learn\" must have \"zone\" parameter"));
    };
    if create.is_empty() || lookup.is_empty() {
        return Err(Fault::new("\"sticky learn\" must have \"create\" and \"lookup\" parameters"));
    }
    Ok(Sticky::Learn { create, lookup, bytes, timeout })
}
