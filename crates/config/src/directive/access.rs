//! Access: addresses, passwords, methods, referers and signed links.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::{
    Context, LEVELS, LEVELS_LIMIT_EXCEPT, LOCATION, Row, SERVER_LOCATION, active, block, set,
};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{AddressMatch, AddressRule, Part, UserFile};
use crate::names::{HostKey, host_key, regex_of};
use crate::parse::Word;
use crate::value;

pub(super) const ROWS: &[Row] = &[
    active(
        "allow",
        LEVELS_LIMIT_EXCEPT,
        "address|cidr|unix:|all",
        "",
        "Lets clients in; of `allow` and `deny` the first that matches decides",
        |l, d, s| rule(l, d, s, true),
    )
    .in_stream()
    .repeated(),
    active(
        "deny",
        LEVELS_LIMIT_EXCEPT,
        "address|cidr|unix:|all",
        "",
        "Keeps clients out (403)",
        |l, d, s| rule(l, d, s, false),
    )
    .in_stream()
    .repeated(),
    block(
        "limit_except",
        LOCATION,
        "method ...",
        Context::LimitExcept,
        "Restricts all other methods than these; GET implies HEAD. `return` does not apply to them",
    )
    .once(),
    active(
        "satisfy",
        LEVELS,
        "all|any",
        "all",
        "Whether address and password must both be accepted, or one of them",
        |l, d, _| {
            let word = d.arg(0);
            l.guards.is_any_enough = match &*word.text {
                b"all" => false,
                b"any" => true,
                _ => return Err(d.invalid(word, "must be \"all\" or \"any\"")),
            };
            Ok(())
        },
    ),
    active(
        "auth_basic",
        LEVELS_LIMIT_EXCEPT,
        "realm|off",
        "off",
        "Asks for user and password (401)",
        |l, d, s| {
            let word = d.arg(0);
            if word.text.iter().any(u8::is_ascii_control) {
                return Err(d.invalid(word, "contains a byte that a header field cannot have"));
            }
            let realm = d.template(word, s)?;
            l.guards.realm = (&*word.text != b"off").then(|| Arc::new(realm));
            Ok(())
        },
    ),
    active(
        "auth_basic_user_file",
        LEVELS_LIMIT_EXCEPT,
        "file",
        "",
        "The file of users and passwords: `user:hash` lines; a relative path starts at the main file's folder",
        |l, d, s| {
            l.guards.user_file = Some(Arc::new(user_file(d, s)?));
            Ok(())
        },
    ),
    active(
        "auth_delay",
        LEVELS,
        "time",
        "0s",
        "How long a refusal for a wrong password is delayed",
        |l, d, _| set(&mut l.guards.auth_delay, d.deadline(0)),
    ),
    active(
        "valid_referers",
        SERVER_LOCATION,
        "none|blocked|server_names|name|~regex ...",
        "",
        "The valid values of `Referer`: `$invalid_referer` is empty for them, otherwise 1",
        valid_referers,
    )
    .repeated(),
    active(
        "secure_link",
        LEVELS,
        "value",
        "",
        "A signature and, after a comma, its expiry: `$secure_link` is 1, 0 (expired) or empty (wrong)",
        |l, d, s| {
            not_beside_secret(l)?;
            l.guards.link_value = Some(Arc::new(d.template(d.arg(0), s)?));
            Ok(())
        },
    ),
    active(
        "secure_link_md5",
        LEVELS,
        "value",
        "",
        "The text whose MD5 is the signature of `secure_link`",
        |l, d, s| {
            not_beside_secret(l)?;
            l.guards.link_signed = Some(Arc::new(d.template(d.arg(0), s)?));
            Ok(())
        },
    ),
    active(
        "secure_link_secret",
        LOCATION,
        "word",
        "",
        "The secret of links like `/prefix/md5/link`: `$secure_link` is the link, or empty",
        |l, d, _| {
            if l.says("secure_link") || l.says("secure_link_md5") {
                return Err(mixed());
            }
            l.guards.link_value = None;
            l.guards.link_signed = None;
            l.guards.link_secret = Some(d.arg(0).text.to_vec().into());
            Ok(())
        },
    ),
];

fn rule(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>, allows: bool) -> Result<(), Fault> {
    let who = who(d, s, d.arg(0))?;
    l.guards.own.rules.push(AddressRule { allows, who });
    Ok(())
}

pub(super) fn who(
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    word: &Word,
) -> Result<AddressMatch, Fault> {
    let invalid = || {
        Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))
            .help("an address, a network like 10.0.0.0/8, \"unix:\" or \"all\"".to_owned())
    };
    let text = match d.text(word)? {
        "all" => return Ok(AddressMatch::All),
        "unix:" => return Ok(AddressMatch::Unix),
        text => text,
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(value::number(bits).map_err(|_| invalid())?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| invalid())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    if bits > most {
        return Err(invalid());
    }
    let (who, has_more) = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - bits as u32).unwrap_or(0);
            let bits = address.to_bits();
            (AddressMatch::V4 { address: bits & mask, mask }, bits & !mask != 0)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits as u32).unwrap_or(0);
            let all = address.to_bits();
            (mapped(all & mask, bits as u32, mask), all & !mask != 0)
        }
    };
    if has_more {
        s.warn(word.span, format!("low address bits of \"{}\" are meaningless", word.shown()));
    }
    Ok(who)
}

/// A network of IPv4 addresses that is written as one of IPv6 is what it means.
fn mapped(address: u128, bits: u32, mask: u128) -> AddressMatch {
    match (Ipv6Addr::from_bits(address).to_ipv4_mapped(), bits) {
        (Some(address), 96..) => AddressMatch::V4 { address: address.to_bits(), mask: mask as u32 },
        _ => AddressMatch::V6 { address, mask },
    }
}

/// A path with variables, made absolute now, or where a variable begins it, when its value is known.
fn user_file(d: &Directive<'_>, s: &Scope<'_>) -> Result<UserFile, Fault> {
    let word = d.arg(0);
    if word.text.is_empty() {
        return Err(d.invalid(word, "is empty"));
    }
    let mut path = d.template(word, s)?;
    // The folder is put before what was read, and not read itself: a dollar sign in it is one.
    if let Some(Part::Literal(text)) = path.parts.first_mut() {
        *text = s.path_beside_main(text).into_os_string().into_encoded_bytes();
    }
    let mut folder = s.path_beside_main(b"").into_os_string().into_encoded_bytes();
    if folder.last() != Some(&b'/') {
        folder.push(b'/');
    }
    Ok(UserFile { path, folder })
}

fn not_beside_secret(l: &mut Level) -> Result<(), Fault> {
    if l.says("secure_link_secret") {
        return Err(mixed());
    }
    l.guards.link_secret = None;
    Ok(())
}

fn mixed() -> Fault {
    Fault::new(
        "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"",
    )
}

fn valid_referers(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let referers = l.guards.own.referers.get_or_insert_default();
    for word in d.args() {
        match &*word.text {
            b"none" => referers.none = true,
            b"blocked" => referers.blocked = true,
            b"server_names" => referers.server_names = true,
            [b'~', source @ ..] => {
                if source.is_empty() {
                    return Err(Fault::at(word, "empty regex in \"~\""));
                }
                referers.patterns.push(regex_of(word, source, true)?);
            }
            text => {
                let (name, path) = match text.iter().position(|byte| *byte == b'/') {
                    Some(0) => {
                        return Err(Fault::at(
                            word,
                            format!("invalid referer \"{}\": it begins with a path", word.shown()),
                        ));
                    }
                    Some(slash) => text.split_at(slash),
                    None => (text, &[][..]),
                };
                let key = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
                let key = key.and_then(host_key).ok_or_else(|| {
                    Fault::at(word, format!("invalid referer or wildcard \"{}\"", word.shown()))
                })?;
                let path = path.to_vec();
                match key {
                    HostKey::Exact(name) => referers.exact.push((name.into_bytes(), path)),
                    HostKey::Leading(name) => referers.leading.push((name.into_bytes(), path)),
                    HostKey::Trailing(name) => referers.trailing.push((name.into_bytes(), path)),
                    HostKey::Both(name) => {
                        referers.leading.push((format!(".{name}").into_bytes(), path.clone()));
                        referers.exact.push((name.into_bytes(), path));
                    }
                }
            }
        }
    }
    // nginx's words.
    if referers.names_any() {
        return Ok(());
    }
    Err(Fault::new(
        "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive without any valid referer",
    ))
}
