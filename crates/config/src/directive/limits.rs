//! How fast and how much at once: `limit_req`, `limit_conn` and the zones they count in.

use sekisho_http::Status as Code;

use super::{HTTP, HTTP_STREAM, LEVELS, Row, active, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    AcmeStore, ConnectionLimit, Level as Severity, Rate, RateLimit, StoreFailure, Zone, ZoneId,
    ZoneKind, ZoneStore,
};
use crate::parse::Word;
use crate::report::did_you_mean;
use crate::value;

/// nginx's least size of a zone.
const ZONE_BYTES_MIN: u64 = 32 << 10;
/// A larger zone is a mistake.
const ZONE_BYTES_MAX: u64 = 64 << 30;
/// Counts are in thousandths of a request.
const MILLI: u64 = 1000;

pub(super) const ROWS: &[Row] = &[
    active(
        "limit_req_zone",
        HTTP,
        "key zone=name:size rate=number(r/s|r/m) [sync] [store=url]",
        "",
        "A zone that counts rates for each value of the key; about 8,000 keys per megabyte. With `store` (ours), all servers that name the same Redis or Valkey count together",
        nothing,
    )
    .repeated(),
    active(
        "limit_store_failure",
        HTTP,
        "local|allow|deny",
        "local",
        "What counts while the store of a zone is away (ours): this server's own count, nothing, or every request is refused",
        nothing,
    ),
    active(
        "limit_req",
        LEVELS,
        "zone=name [burst=number] [nodelay|delay=number]",
        "",
        "Limits the rate of requests: excess requests wait, those beyond the burst are refused",
        limit_req,
    )
    .repeated(),
    active(
        "limit_req_status",
        LEVELS,
        "code",
        "503",
        "The status for refused requests",
        |l, d, _| set(&mut l.guards.rate_bound.status, status(d)),
    ),
    active(
        "limit_req_log_level",
        LEVELS,
        "info|notice|warn|error",
        "error",
        "How refusals are logged; delays are one level lower",
        |l, d, _| set(&mut l.guards.rate_bound.level, log_level(d)),
    ),
    active(
        "limit_req_dry_run",
        LEVELS,
        "on|off",
        "off",
        "Whether rates are only counted and not limited",
        |l, d, _| set(&mut l.guards.rate_bound.is_dry_run, d.flag()),
    ),
    active(
        "limit_conn_zone",
        HTTP_STREAM,
        "key zone=name:size [store=url]",
        "",
        "A zone that counts running requests for each value of the key; about 8,000 keys per megabyte. `store` (ours) as for `limit_req_zone`",
        nothing,
    )
    .repeated(),
    active(
        "limit_conn",
        LEVELS,
        "zone number",
        "",
        "The maximum number of running requests of one key",
        limit_conn,
    )
    .in_stream()
    .repeated(),
    active("limit_conn_status", LEVELS, "code", "503", "The status for refused requests", |l, d, _| {
        set(&mut l.guards.connection_bound.status, status(d))
    }),
    active(
        "limit_conn_log_level",
        LEVELS,
        "info|notice|warn|error",
        "error",
        "How refusals are logged",
        |l, d, _| set(&mut l.guards.connection_bound.level, log_level(d)),
    )
    .in_stream(),
    active(
        "limit_conn_dry_run",
        LEVELS,
        "on|off",
        "off",
        "Whether requests are only counted and not refused",
        |l, d, _| set(&mut l.guards.connection_bound.is_dry_run, d.flag()),
    )
    .in_stream(),
];

/// What is known before anything else of `http`, in this order.
pub(crate) const FIRST: [&str; 5] = [
    "limit_store_failure",
    "ssl_session_ticket_store",
    "acme_store",
    "limit_req_zone",
    "limit_conn_zone",
];

/// Reads what is known before anything else of `http`: zones and stores.
pub(crate) fn read(d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    match d.row.name {
        "limit_store_failure" => store_failure(d, s),
        "ssl_session_ticket_store" => ticket_store(d, s),
        "acme_store" => acme_store(d, s),
        _ => zone(d, s),
    }
}

/// Reads `limit_req_zone` or `limit_conn_zone`.
fn zone(d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let is_rate = d.row.name == "limit_req_zone";
    let key = d.template(d.arg(0), s)?;
    let mut place = None;
    let mut rate = Rate { requests: 1, secs: 1 };
    let mut store = None;
    let read = Fault::each(&d.args()[1..], |word| {
        match d.text(word)?.split_once('=') {
            Some(("zone", text)) => place = Some((word, name_and_size(word, text)?)),
            Some(("rate", text)) if is_rate => rate = read_rate(word, text)?,
            Some(("store", _)) if s.names.is_stream => {
                return Err(Fault::at(word, "\"store\" is not supported in \"stream\""));
            }
            Some(("store", url)) => {
                let failure = s.store_failure;
                store = Some(ZoneStore { url: store_url(word, url)?.to_owned(), failure });
            }
            // nginx's commercial way to share a zone; `store` is ours.
            None if is_rate && &*word.text == b"sync" => {}
            _ => return Err(invalid_parameter(word)),
        }
        Ok(())
    });
    let Some((word, (name, bytes))) = place else {
        read?;
        return Err(Fault::new(format!("\"{}\" must have \"zone\" parameter", d.row.name)));
    };
    if s.zones.iter().any(|zone| zone.name == name) {
        read?;
        return Err(Fault::at(word, format!("zone \"{name}\" is defined already")));
    }
    let kind = if is_rate { ZoneKind::Rate(rate) } else { ZoneKind::Connections };
    // Also one with a mistake: what uses it is not wrong.
    s.zones.push(Zone { name, key, bytes, kind, store });
    read
}

/// Reads `limit_store_failure`, which is known before the zones.
fn store_failure(d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    s.store_failure = match &*d.arg(0).text {
        b"local" => StoreFailure::Local,
        b"allow" => StoreFailure::Allow,
        b"deny" => StoreFailure::Deny,
        _ => return Err(d.invalid(d.arg(0), "must be \"local\", \"allow\" or \"deny\"")),
    };
    Ok(())
}

/// Reads `ssl_session_ticket_store`.
fn ticket_store(d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    s.ticket_store = Some(store_url(word, d.text(word)?)?.to_owned());
    Ok(())
}

/// Reads `acme_store`.
fn acme_store(d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let url = store_url(word, d.text(word)?)?.to_owned();
    let key = match d.args().get(1) {
        None => None,
        Some(word) => match d.text(word)?.strip_prefix("key=").filter(|path| !path.is_empty()) {
            Some(path) => Some(s.path_beside_main(path.as_bytes())),
            None => return Err(invalid_parameter(word)),
        },
    };
    s.acme_store = Some(AcmeStore { url, key });
    Ok(())
}

/// The schemes of stores.
const SCHEMES: [&str; 7] = [
    "redis://",
    "rediss://",
    "redis+unix://",
    "redis-cluster://",
    "rediss-cluster://",
    "redis-sentinel://",
    "rediss-sentinel://",
];

fn store_url<'t>(word: &Word, url: &'t str) -> Result<&'t str, Fault> {
    let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
    let wrong = |why: &str| {
        Fault::at(word, format!("invalid store \"{url}\": {why}")).help(
            "forms: redis://HOST:PORT/DB, rediss://HOST:PORT/DB?ca=/FILE, redis+unix:///PATH, redis-cluster://HOST:PORT,HOST:PORT, \
             redis-sentinel://HOST:PORT,HOST:PORT/NAME, and by TLS rediss-cluster://…?ca=/FILE, rediss-sentinel://…?ca=/FILE"
                .to_owned(),
        )
    };
    let rest = rest.ok_or_else(|| wrong("its scheme is unknown"))?;
    if rest.is_empty() {
        return Err(wrong("there is no host"));
    }
    if let Some((_, query)) = rest.split_once('?')
        && url.starts_with("rediss")
        && !query.strip_prefix("ca=").is_some_and(|path| path.starts_with('/'))
    {
        return Err(wrong("behind \"?\" stands \"ca=\" and an absolute path"));
    }
    let is_sentinel = url.split("://").next().is_some_and(|scheme| scheme.ends_with("sentinel"));
    let places = rest.split('?').next().unwrap_or(rest);
    if is_sentinel && places.split_once('/').is_none_or(|(_, name)| name.is_empty()) {
        return Err(wrong("the name of the monitored server is missing"));
    }
    if url.starts_with("redis+unix://") {
        return Ok(url);
    }
    let places = places.rsplit_once('@').map_or(places, |(_, places)| places);
    let (hosts, behind) = places.split_once('/').unwrap_or((places, ""));
    for host in hosts.split(',') {
        let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(wrong("there is no host"));
        }
        if port.is_some_and(|port| port.parse().unwrap_or(0u16) == 0) {
            return Err(wrong("a port is from 1 to 65535"));
        }
    }
    let has_number = url.starts_with("redis://") || url.starts_with("rediss://");
    if has_number && !behind.is_empty() && behind.parse::<u32>().is_err() {
        return Err(wrong("behind the host stands the number of a database"));
    }
    Ok(url)
}

fn name_and_size(word: &Word, text: &str) -> Result<(String, u64), Fault> {
    let Some((name, size)) = text.split_once(':').filter(|(name, _)| !name.is_empty()) else {
        return Err(Fault::at(word, format!("invalid zone size \"{}\"", word.shown()))
            .help("its form is: zone=name:size".to_owned()));
    };
    let bytes = value::size(size)
        .map_err(|_| Fault::at(word, format!("invalid zone size \"{}\"", word.shown())))?;
    if bytes < ZONE_BYTES_MIN {
        return Err(Fault::at(word, format!("zone \"{}\" is too small", word.shown()))
            .note("32k is the least".to_owned()));
    }
    if bytes > ZONE_BYTES_MAX {
        return Err(Fault::at(word, format!("zone \"{}\" is too large", word.shown())));
    }
    Ok((name.to_owned(), bytes))
}

fn read_rate(word: &Word, text: &str) -> Result<Rate, Fault> {
    let invalid = || {
        Fault::at(word, format!("invalid rate \"{}\"", word.shown()))
            .help("like rate=10r/s or rate=30r/m".to_owned())
    };
    let (number, secs) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => return Err(invalid()),
    };
    let requests = value::number(number).ok().and_then(|number| u32::try_from(number).ok());
    let requests = requests.filter(|requests| *requests > 0).ok_or_else(invalid)?;
    Ok(Rate { requests, secs })
}

fn limit_req(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let mut found = None;
    let mut burst = 0;
    let mut delay_from = Some(0);
    Fault::each(d.args(), |word| {
        match d.text(word)?.split_once('=') {
            Some(("zone", name)) => found = Some((word, find(s, word, name)?)),
            Some(("burst", number)) => burst = count(word, "burst", number)?,
            Some(("delay", number)) => delay_from = Some(count(word, "delay", number)?),
            None if &*word.text == b"nodelay" => delay_from = None,
            _ => return Err(invalid_parameter(word)),
        }
        Ok(())
    })?;
    let Some((word, zone)) = found else {
        return Err(Fault::new("\"limit_req\" must have \"zone\" parameter"));
    };
    let ZoneKind::Rate(rate) = s.zones[zone.0 as usize].kind else {
        return Err(other_use(word, "limit_req", "limit_conn_zone"));
    };
    let rates = &mut l.guards.own.rates;
    if rates.iter().any(|limit| limit.zone == zone) {
        return Err(Fault::new("this zone has a \"limit_req\" here already"));
    }
    rates.push(RateLimit { zone, rate, burst, delay_from });
    Ok(())
}

/// A number of requests, in thousandths.
fn count(word: &Word, name: &str, number: &str) -> Result<u64, Fault> {
    let number = value::number(number).ok().filter(|number| u32::try_from(*number).is_ok());
    let number = number.filter(|number| *number > 0 || name == "delay");
    number
        .map(|number| number * MILLI)
        .ok_or_else(|| Fault::at(word, format!("invalid {name} value \"{}\"", word.shown())))
}

fn limit_conn(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let name = d.text(word)?;
    let zone = find(s, word, name)?;
    if s.zones[zone.0 as usize].kind != ZoneKind::Connections {
        return Err(other_use(word, "limit_conn", "limit_req_zone"));
    }
    let most = d.number(1).ok().filter(|number| (1..=65535).contains(number));
    let Some(max) = most else {
        let number = d.arg(1);
        return Err(Fault::at(
            number,
            format!("invalid number of connections \"{}\"", number.shown()),
        )
        .note("from 1 to 65535".to_owned()));
    };
    let connections = &mut l.guards.own.connections;
    if connections.iter().any(|limit| limit.zone == zone) {
        return Err(Fault::new("this zone has a \"limit_conn\" here already"));
    }
    connections.push(ConnectionLimit { zone, max: max as u32 });
    Ok(())
}

fn find(s: &Scope<'_>, word: &Word, name: &str) -> Result<ZoneId, Fault> {
    let at = s.zones.iter().position(|zone| zone.name == name);
    at.map(|at| ZoneId(at as u32)).ok_or_else(|| {
        let help = did_you_mean(name, s.zones.iter().map(|zone| zone.name.as_str()));
        Fault::at(word, format!("zone \"{name}\" is not defined")).help(help)
    })
}

fn other_use(word: &Word, directive: &str, made_by: &str) -> Fault {
    Fault::at(word, format!("this zone is not for \"{directive}\": \"{made_by}\" made it"))
}

fn invalid_parameter(word: &Word) -> Fault {
    Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))
}

fn status(d: &Directive<'_>) -> Result<Code, Fault> {
    let code = d.number(0).ok().filter(|code| (400..=599).contains(code));
    code.and_then(|code| Code::new(code as u16))
        .ok_or_else(|| d.invalid(d.arg(0), "must be between 400 and 599"))
}

fn log_level(d: &Directive<'_>) -> Result<Severity, Fault> {
    let name = d.text(d.arg(0))?;
    let offered = [Severity::Info, Severity::Notice, Severity::Warn, Severity::Error];
    offered
        .into_iter()
        .find(|level| level.name() == name)
        .ok_or_else(|| d.invalid(d.arg(0), "must be \"info\", \"notice\", \"warn\" or \"error\""))
}
