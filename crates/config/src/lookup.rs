//! `geo` and `split_clients` blocks: variables that are looked up by an address or by a hash.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use foldhash::fast::RandomState;

use crate::level::{Directive, Fault, Scope};
use crate::model::{Geo, Networks, Split};
use crate::parse::{Node, Word};
use crate::report::Report;
use crate::texts::Texts;

/// First and last address, as numbers; whether it is of IPv6.
type Network = (bool, u128, u128);

/// Reads a `geo` whose name is known. Every entry that is wrong is reported.
pub(crate) fn geo(d: &Directive<'_>, s: &mut Scope<'_>, name: String) -> Result<Geo, Fault> {
    let address = match d.args() {
        [address, _] => Some(d.template(address, s)?),
        _ => None,
    };
    let mut parts = GeoParts::default();
    for entry in d.node.body.as_deref().unwrap_or_default() {
        if let Err(fault) = geo_entry(s, entry, &mut parts) {
            report(s, entry, fault);
        }
    }
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let ranges = parts.ranges.iter().map(|((is_v6, from), (to, v))| ((*is_v6, *from, *to), *v));
    for ((is_v6, from, to), value) in parts.known.drain().chain(ranges) {
        if is_v6 {
            v6.push((from, to, value));
        } else {
            v4.push((from as u32, to as u32, value));
        }
    }
    parts.values.seal();
    let (v4, v6, proxies) = (Networks::new(v4), Networks::new(v6), Networks::new(parts.proxies));
    Ok(Geo { name, address, v4, v6, values: parts.values, proxies, recursive: parts.recursive })
}

/// The last address of a range, and the number of its value.
type RangeEnd = (u128, u32);

/// What a `geo` says, as it is read.
#[derive(Default)]
struct GeoParts {
    known: HashMap<Network, u32, RandomState>,
    values: Texts,
    /// With `ranges`: by their beginnings, none overlapping another.
    ranges: BTreeMap<(bool, u128), RangeEnd>,
    is_ranges: bool,
    /// `proxy`, as addresses of IPv6.
    proxies: Vec<(u128, u128, u32)>,
    recursive: bool,
}

impl GeoParts {
    /// Takes a stretch out of the ranges; what lies beside it stays.
    fn cut(&mut self, (is_v6, from, to): Network) {
        let touched: Vec<_> = self
            .ranges
            .range((is_v6, 0)..=(is_v6, to))
            .rev()
            .take_while(|(_, (last, _))| *last >= from)
            .map(|(key, _)| *key)
            .collect();
        for key in touched {
            let Some((last, value)) = self.ranges.remove(&key) else { continue };
            if key.1 < from {
                self.ranges.insert(key, (from - 1, value));
            }
            if last > to {
                self.ranges.insert((is_v6, to + 1), (last, value));
            }
        }
    }
}

/// `192.0.2.1-192.0.2.9`
fn range(word: &Word) -> Result<Network, Fault> {
    let invalid = || Fault::at(word, format!("invalid range \"{}\"", word.shown()));
    let text = std::str::from_utf8(&word.text).map_err(|_| invalid())?;
    let (from, to) = text.split_once('-').ok_or_else(invalid)?;
    let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| invalid());
    let (from, to) = match (address(from)?, address(to)?) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (u128::from(u32::from(from)), u128::from(u32::from(to)))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            return in_order(true, from.into(), to.into(), invalid);
        }
        _ => return Err(invalid()),
    };
    in_order(false, from, to, invalid)
}

fn in_order(
    is_v6: bool,
    from: u128,
    to: u128,
    invalid: impl FnOnce() -> Fault,
) -> Result<Network, Fault> {
    if from <= to { Ok((is_v6, from, to)) } else { Err(invalid()) }
}

fn geo_entry(s: &mut Scope<'_>, entry: &Node, parts: &mut GeoParts) -> Result<(), Fault> {
    let GeoParts { known, values, .. } = parts;
    let name = &entry.name;
    if entry.body.is_some() {
        return Err(Fault::at(name, "a geo has no blocks within"));
    }
    match (&*name.text, entry.args.as_slice()) {
        (b"ranges", []) => {
            if !known.is_empty() {
                return Err(Fault::at(
                    name,
                    "the \"ranges\" directive must be the first directive inside \"geo\" block",
                ));
            }
            parts.is_ranges = true;
            Ok(())
        }
        (b"proxy_recursive", []) => {
            parts.recursive = true;
            Ok(())
        }
        (b"proxy", [word]) => {
            let (is_v6, from, to) = network(s, word)?;
            let mapped = if is_v6 { 0 } else { 0xffff_u128 << 32 };
            parts.proxies.push((mapped | from, mapped | to, 0));
            Ok(())
        }
        (b"default", [value]) => {
            let (value, _) = values.add(&value.text);
            for network in [(false, 0, u32::MAX.into()), (true, 0, u128::MAX)] {
                if known.insert(network, value).is_some() && !network.0 {
                    s.warn(name.span, "duplicate default: the last one counts");
                }
            }
            Ok(())
        }
        (b"delete", [word]) if parts.is_ranges => {
            let range = range(word)?;
            if parts.ranges.get(&(range.0, range.1)).is_none_or(|(to, _)| *to != range.2) {
                s.warn(word.span, format!("no address range \"{}\" to delete", word.shown()));
            }
            parts.cut(range);
            Ok(())
        }
        (_, [value]) if parts.is_ranges => {
            let range = range(name)?;
            // A later entry replaces an earlier one, as far as they overlap.
            parts.cut(range);
            let (value, _) = parts.values.add(&value.text);
            parts.ranges.insert((range.0, range.1), (range.2, value));
            Ok(())
        }
        (b"delete", [word]) => {
            let network = network(s, word)?;
            if known.remove(&network).is_none() {
                s.warn(word.span, format!("no network \"{}\" to delete", word.shown()));
            }
            Ok(())
        }
        (_, [value]) => {
            let network = network(s, name)?;
            if known.insert(network, values.add(&value.text).0).is_some() {
                s.warn(
                    name.span,
                    format!("duplicate network \"{}\": the last one counts", name.shown()),
                );
            }
            Ok(())
        }
        _ => Err(Fault::at(name, "invalid number of the geo parameters")
            .help("each line is a network, a value and \";\"".to_owned())),
    }
}

/// `192.0.2.0/24`, `192.0.2.1`, `2001:db8::/32`
fn network(s: &mut Scope<'_>, word: &Word) -> Result<Network, Fault> {
    let invalid = || Fault::at(word, format!("invalid network \"{}\"", word.shown()));
    let text = std::str::from_utf8(&word.text).map_err(|_| invalid())?;
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let (is_v6, address, width) = match address.parse().map_err(|_| invalid())? {
        IpAddr::V4(address) => (false, u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (true, u128::from(address), 128),
    };
    let bits = match bits {
        Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
            bits.parse().ok().filter(|bits| *bits <= width).ok_or_else(invalid)?
        }
        Some(_) => return Err(invalid()),
        None => width,
    };
    let host = 1_u128.checked_shl(width - bits).map_or(u128::MAX, |size| size - 1);
    if address & host != 0 {
        s.warn(word.span, format!("low address bits of {text} are meaningless"));
    }
    Ok((is_v6, address & !host, address | host))
}

/// Reads a `split_clients` whose name is known. Every entry that is wrong is reported.
pub(crate) fn split(d: &Directive<'_>, s: &mut Scope<'_>, name: String) -> Result<Split, Fault> {
    let source = d.template(d.arg(0), s)?;
    let (mut shares, mut sum, mut end) = (Vec::new(), 0, 0);
    for entry in d.node.body.as_deref().unwrap_or_default() {
        match share(entry) {
            Ok((None, value)) => {
                sum = WHOLE;
                shares.push((None, value));
            }
            Ok((Some(part), value)) => {
                sum += part;
                end += part * u64::from(u32::MAX) / WHOLE;
                shares.push((u32::try_from(end).ok(), value));
            }
            Err(fault) => report(s, entry, fault),
        }
        if sum > WHOLE {
            return Err(Fault::at(&entry.name, "percent total is greater than 100%"));
        }
    }
    Ok(Split { name, source, shares })
}

/// 100%, in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// A share in hundredths of a percent (`None` for the rest), and its value.
fn share(entry: &Node) -> Result<(Option<u64>, Box<[u8]>), Fault> {
    let name = &entry.name;
    let ([value], None) = (entry.args.as_slice(), &entry.body) else {
        return Err(Fault::at(name, "invalid number of parameters")
            .help("each line is a share, a value and \";\"".to_owned()));
    };
    if &*name.text == b"*" {
        return Ok((None, value.text.clone()));
    }
    let invalid = || Fault::at(name, format!("invalid percent value \"{}\"", name.shown()));
    let text = std::str::from_utf8(&name.text).ok().and_then(|text| text.strip_suffix('%'));
    let text = text.ok_or_else(invalid)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.len() > 3 || fraction.len() > 2 {
        return Err(invalid());
    }
    let part = format!("{whole}{fraction:0<2}").parse().ok().filter(|part| *part > 0);
    Ok((Some(part.ok_or_else(invalid)?), value.text.clone()))
}

fn report(s: &mut Scope<'_>, entry: &Node, fault: Fault) {
    let report = Report::error(s.files, fault.span.unwrap_or(entry.name.span), fault.message);
    s.reports.push(report.help(fault.help));
}
