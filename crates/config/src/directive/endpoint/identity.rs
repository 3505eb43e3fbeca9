//! Which clients may begin sessions, and which callers may call which services.

use std::net::IpAddr;

use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{IdentityRule, Permit};
use crate::parse::Word;
use crate::report::did_you_mean;
use crate::value;

/// `allow_identity`
pub(super) fn allow(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    for word in d.args() {
        let rule = rule(d, word)?;
        s.main.endpoint.allowed.push(rule);
    }
    Ok(())
}

/// `permit`
pub(super) fn permit(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let service = d.text(d.arg(0))?;
    let known =
        ["control", "http"].into_iter().chain(s.options.services.iter().map(String::as_str));
    if !known.clone().any(|name| name == service) {
        let fault = d.invalid(d.arg(0), "is not a service of this program");
        return Err(fault.help(did_you_mean(service, known)));
    }
    let mut who = &d.args()[1..];
    let mut reads_only = false;
    let access = who.first().map(|word| &*word.text);
    match (service, access) {
        ("control", Some(b"read" | b"full")) => {
            reads_only = access == Some(b"read");
            who = &who[1..];
        }
        ("control", _) => {
            let fault = d.invalid(d.arg(1), "must be \"read\" or \"full\" for \"control\"");
            return Err(fault);
        }
        (_, Some(b"read" | b"full")) => {
            return Err(d.invalid(d.arg(1), "is for \"control\" alone"));
        }
        _ => {}
    }
    if who.is_empty() {
        return Err(Fault::at(d.arg(0), "no callers are named"));
    }
    let who: Result<Vec<_>, _> = who.iter().map(|word| rule(d, word)).collect();
    let permit = Permit { service: service.to_owned(), reads_only, who: who? };
    s.main.endpoint.permits.push(permit);
    Ok(())
}

fn rule(d: &Directive<'_>, word: &Word) -> Result<IdentityRule, Fault> {
    let text = d.text(word)?;
    let kinds = ["unix", "group", "token", "user", "certificate", "address"];
    match text {
        "all" => return Ok(IdentityRule::All),
        "anonymous" => return Ok(IdentityRule::Anonymous),
        "identified" => return Ok(IdentityRule::Identified),
        _ => {}
    }
    let unknown = || {
        let known = ["all", "anonymous", "identified"].into_iter().chain(kinds);
        let kind = text.split(':').next().unwrap_or(text);
        d.invalid(word, "names no callers").help(did_you_mean(kind, known))
    };
    let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
    if name.is_empty() {
        return Err(d.invalid(word, "has no name"));
    }
    let owned = || name.to_owned();
    Ok(match kind {
        "unix" => match value::number(name).ok().map(u32::try_from) {
            Some(Ok(uid)) => IdentityRule::UnixUid(uid),
            Some(Err(_)) => return Err(d.invalid(word, "is not the number of a user")),
            None => IdentityRule::UnixUser(owned()),
        },
        "group" => IdentityRule::UnixGroup(owned()),
        "token" => IdentityRule::Token(owned()),
        "user" => IdentityRule::User(owned()),
        "certificate" => IdentityRule::Certificate(owned()),
        "address" => network(name).ok_or_else(|| d.invalid(word, "is no address or network"))?,
        _ => return Err(unknown()),
    })
}

fn network(text: &str) -> Option<IdentityRule> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(value::number(bits).ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| u8::try_from(bits).ok())?;
    (bits <= most).then_some(IdentityRule::Network(address, bits))
}
