//! Caches of answers: `proxy_cache` and its companions, and the same for `fastcgi_*`, `scgi_*` and `uwsgi_*`.

use std::sync::Arc;

use sekisho_http::Method;
use sekisho_upstream::cache::index::Settings;
use sekisho_upstream::cache::store::ValidFor;
use sekisho_upstream::cache::{StoreRules, UseStale};
use sekisho_upstream::retry::Condition;

use super::{HTTP, LEVELS, Row, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{CacheChoice, CacheId, CachePath, Caching, Family, Template};
use crate::parse::Word;
use crate::value;

/// The least that a `keys_zone` may be: two pages, as in nginx.
const ZONE_BYTES_MIN: u64 = 8 * 1024;
const ZONE_BYTES_MAX: u64 = 64 << 30;

macro_rules! rows {
    ($prefix:literal, $family:expr, $key:literal) => {
        &[
            active(
                concat!($prefix, "_cache_path"),
                HTTP,
                "path [levels=levels] keys_zone=name:size [max_size=size] [min_free=size] [inactive=time] [use_temp_path=on|off] [parameter] ...",
                "",
                "A folder of cached answers. Temporary files are always written there, whatever `use_temp_path` says",
                |_, _, _| Ok(()),
            )
            .repeated(),
            active(
                concat!($prefix, "_cache"),
                LEVELS,
                "zone|off",
                "off",
                "The cache for answers; variables may say which one",
                |l, d, s| {
                    caching(l, $family).cache = find(d, s, $family)?;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_cache_key"),
                LEVELS,
                "string",
                $key,
                "The key of an answer in the cache",
                |l, d, s| {
                    caching(l, $family).key = d.template(d.arg(0), s)?;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_cache_valid"),
                LEVELS,
                "code|time ...",
                "",
                "How long answers with these codes (`any` for all) are fresh if they do not say so themselves: the time comes last; without codes it applies to 200, 301 and 302",
                |l, d, _| {
                    let is_first = d.is_first_of(l);
                    valid(rules(l, $family), is_first, d)
                },
            )
            .repeated(),
            active(
                concat!($prefix, "_cache_min_uses"),
                LEVELS,
                "number",
                "1",
                "After how many requests an answer is cached",
                |l, d, _| {
                    let uses = u32::try_from(d.count(0)?).unwrap_or(u32::MAX);
                    rules(l, $family).min_uses = uses;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_cache_methods"),
                LEVELS,
                "GET|HEAD|POST ...",
                "GET HEAD",
                "Methods whose answers are cached; GET and HEAD always are",
                |l, d, _| methods(rules(l, $family), d),
            ),
            active(
                concat!($prefix, "_cache_max_range_offset"),
                LEVELS,
                "number",
                "",
                "A range that begins behind this offset and is not cached is passed to the server, and its answer is not cached",
                |l, d, _| {
                    caching(l, $family).range_offset_max = Some(d.size(0)?);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_cache_bypass"),
                LEVELS,
                "string ...",
                "",
                "The cache is not used if one of these is neither empty nor \"0\"",
                |l, d, s| set(&mut caching(l, $family).bypass, conditions(d, s)),
            ),
            active(
                concat!($prefix, "_no_cache"),
                LEVELS,
                "string ...",
                "",
                "Answers are not cached if one of these is neither empty nor \"0\"",
                |l, d, s| set(&mut caching(l, $family).no_cache, conditions(d, s)),
            ),
            active(
                concat!($prefix, "_cache_use_stale"),
                LEVELS,
                "condition ...",
                "off",
                "When a stale answer is used: `error`, `timeout`, `invalid_header`, `updating`, `http_500` …, `off`",
                |l, d, _| set(&mut caching(l, $family).use_stale, use_stale(d)),
            ),
            active(
                concat!($prefix, "_cache_lock"),
                LEVELS,
                "on|off",
                "off",
                "Whether only one of several requests for a missing entry is passed on",
                |l, d, _| set(&mut caching(l, $family).lock, d.flag()),
            ),
            active(
                concat!($prefix, "_cache_lock_timeout"),
                LEVELS,
                "time",
                "5s",
                "How long the others wait before they are passed on, too; their answers are not cached",
                |l, d, _| set(&mut caching(l, $family).lock_timeout, d.time(0)),
            ),
            active(
                concat!($prefix, "_cache_lock_age"),
                LEVELS,
                "time",
                "5s",
                "After what time without an answer another one of them is passed on",
                |l, d, _| set(&mut caching(l, $family).lock_age, d.time(0)),
            ),
            active(
                concat!($prefix, "_cache_revalidate"),
                LEVELS,
                "on|off",
                "off",
                "Whether stale answers are revalidated with `If-Modified-Since` and `If-None-Match`",
                |l, d, _| set(&mut caching(l, $family).revalidate, d.flag()),
            ),
            active(
                concat!($prefix, "_cache_background_update"),
                LEVELS,
                "on|off",
                "off",
                "Whether a stale answer is updated in the background while it is used",
                |l, d, _| set(&mut caching(l, $family).background_update, d.flag()),
            ),
        ]
    };
}

pub(super) const PROXY: &[Row] = rows!("proxy", Family::Proxy, "$scheme$proxy_host$request_uri");
pub(super) const FASTCGI: &[Row] = rows!("fastcgi", Family::FastCgi, "$scheme$host$request_uri");
pub(super) const SCGI: &[Row] = rows!("scgi", Family::Scgi, "$scheme$host$request_uri");
pub(super) const UWSGI: &[Row] = rows!("uwsgi", Family::Uwsgi, "$scheme$host$request_uri");
pub(super) const CONVERT_HEAD: &[Row] = &[active(
    "proxy_cache_convert_head",
    LEVELS,
    "on|off",
    "on",
    "Whether HEAD is passed on as GET, so that its answer can be cached",
    |l, d, _| set(&mut caching(l, Family::Proxy).convert_head, d.flag()),
)];

/// Those that name a folder; they are known before anything else of `http`.
pub(crate) const PATHS: [(&str, Family); 4] = [
    ("proxy_cache_path", Family::Proxy),
    ("fastcgi_cache_path", Family::FastCgi),
    ("scgi_cache_path", Family::Scgi),
    ("uwsgi_cache_path", Family::Uwsgi),
];

fn caching(l: &mut Level, family: Family) -> &mut Caching {
    Arc::make_mut(&mut l.forward(family).caching)
}

pub(super) fn rules(l: &mut Level, family: Family) -> &mut StoreRules {
    Arc::make_mut(&mut caching(l, family).rules)
}

fn invalid(word: &Word) -> Fault {
    Fault::at(word, format!("invalid value \"{}\"", word.shown()))
}

/// Reads one of [`PATHS`].
pub(crate) fn path(d: &Directive<'_>, family: Family, s: &mut Scope<'_>) -> Result<(), Fault> {
    let path = s.path(&d.arg(0).text);
    let mut levels = Vec::new();
    let mut zone = None;
    let (mut bytes_max, mut inactive, mut free_min) = (None, None, None);
    Fault::each(&d.args()[1..], |word| {
        let wrong = |_| invalid(word);
        match d.text(word)?.split_once('=') {
            Some(("levels", text)) => levels = read_levels(word, text)?,
            Some(("keys_zone", text)) => zone = Some((word, read_zone(word, text)?)),
            Some(("max_size", text)) => bytes_max = Some(value::size(text).map_err(wrong)?),
            Some(("min_free", text)) => free_min = Some(value::size(text).map_err(wrong)?),
            Some(("inactive", text)) => inactive = Some(value::time(text).map_err(wrong)?),
            Some(("use_temp_path", text)) => {
                value::flag(text).map_err(wrong)?;
            }
            // How nginx's helper processes share their time; here a thread does their work at once.
            Some((
                "loader_files" | "loader_sleep" | "loader_threshold" | "manager_files"
                | "manager_sleep" | "manager_threshold",
                _,
            )) => {}
            Some(("purger" | "purger_files" | "purger_sleep" | "purger_threshold", _)) => {
                return Err(d.not_built(word));
            }
            _ => return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown()))),
        }
        Ok(())
    })?;
    let Some((word, (name, bytes))) = zone else {
        return Err(Fault::new(format!("\"{}\" must have \"keys_zone\" parameter", d.row.name)));
    };
    if s.caches.iter().any(|cache| cache.name == name) {
        return Err(Fault::at(word, format!("cache zone \"{name}\" is defined already")));
    }
    if s.caches.iter().any(|cache| cache.path == path) {
        return Err(Fault::at(d.arg(0), "another cache is in this folder already"));
    }
    let mut settings = Settings::new(bytes);
    settings.bytes_max = bytes_max;
    settings.inactive = inactive.unwrap_or(settings.inactive);
    s.caches.push(CachePath { family, name, path, levels, settings, free_min });
    Ok(())
}

/// `levels=1:2`: at most three, of one or two digits each.
fn read_levels(word: &Word, text: &str) -> Result<Vec<u8>, Fault> {
    let level = |text: &str| match text {
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err(Fault::at(word, format!("invalid \"levels\" \"{}\"", word.shown()))),
    };
    let levels = text.split(':').map(level).collect::<Result<Vec<_>, _>>()?;
    if levels.len() > 3 {
        return Err(Fault::at(word, format!("invalid \"levels\" \"{}\"", word.shown())));
    }
    Ok(levels)
}

fn read_zone(word: &Word, text: &str) -> Result<(String, u64), Fault> {
    let wrong = || {
        Fault::at(word, format!("invalid keys zone size \"{}\"", word.shown()))
            .help("its form is: keys_zone=name:size".to_owned())
    };
    let (name, size) =
        text.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let bytes = value::size(size).map_err(|_| wrong())?;
    if !(ZONE_BYTES_MIN..=ZONE_BYTES_MAX).contains(&bytes) {
        return Err(wrong());
    }
    Ok((name.to_owned(), bytes))
}

fn find(d: &Directive<'_>, s: &Scope<'_>, family: Family) -> Result<Option<CacheChoice>, Fault> {
    let word = d.arg(0);
    let name = d.text(word)?;
    if name == "off" {
        return Ok(None);
    }
    if name.contains('$') {
        return Ok(Some(CacheChoice::Computed(d.template(word, s)?)));
    }
    let Some(at) = s.caches.iter().position(|cache| cache.name == name) else {
        let directive = d.row.name;
        return Err(Fault::at(word, format!("\"{directive}\" zone \"{name}\" is unknown")));
    };
    if s.caches[at].family != family {
        let message = format!("cache zone \"{name}\" is declared for a different use");
        return Err(Fault::at(word, message));
    }
    Ok(Some(CacheChoice::Named(CacheId(at as u32))))
}

fn valid(rules: &mut StoreRules, is_first: bool, d: &Directive<'_>) -> Result<(), Fault> {
    if is_first {
        rules.valid.clear();
    }
    let Some((last, codes)) = d.args().split_last() else { return Ok(()) };
    let time = value::time(d.text(last)?)
        .map_err(|_| Fault::at(last, format!("invalid time value \"{}\"", last.shown())))?;
    let secs = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    if codes.is_empty() {
        rules.valid.extend([200, 301, 302].map(|code| (ValidFor::Status(code), secs)));
    }
    for word in codes {
        let of = match d.text(word)? {
            "any" => ValidFor::Any,
            text => match text.parse() {
                Ok(code @ 100..=599) => ValidFor::Status(code),
                _ => return Err(Fault::at(word, format!("invalid status \"{}\"", word.shown()))),
            },
        };
        rules.valid.push((of, secs));
    }
    Ok(())
}

fn methods(rules: &mut StoreRules, d: &Directive<'_>) -> Result<(), Fault> {
    rules.methods.clear();
    for word in d.args() {
        rules.methods.push(match &*word.text {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            _ => return Err(invalid(word)),
        });
    }
    Ok(())
}

fn conditions(d: &Directive<'_>, s: &Scope<'_>) -> Result<Arc<[Template]>, Fault> {
    d.args().iter().map(|word| d.template(word, s)).collect()
}

fn use_stale(d: &Directive<'_>) -> Result<UseStale, Fault> {
    let mut conditions = Vec::new();
    let (mut while_updating, mut is_off) = (false, false);
    for word in d.args() {
        let found = Condition::ALL.iter().find(|one| one.name().as_bytes() == &*word.text);
        match (&*word.text, found) {
            (_, Some(condition)) => conditions.push(*condition),
            (b"updating", None) => while_updating = true,
            (b"off", None) => is_off = true,
            _ => return Err(invalid(word)),
        }
    }
    Ok(if is_off { UseStale::default() } else { UseStale::new(conditions, while_updating) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Config, Memory, Options, load};

    fn loaded(path: &str, body: &str) -> Result<Config, String> {
        let text = format!(
            "http {{ {path} server {{ listen 80; location / {{ proxy_pass http://127.0.0.1:1; {body} }} }} }}"
        );
        let source = Memory::of("/c.conf", text.as_str());
        let outcome = load("/c.conf".as_ref(), &Options::new("/"), &source);
        let said: String = outcome.reports.iter().map(|report| report.render(false)).collect();
        outcome.config.ok_or(said)
    }

    #[test]
    fn a_cache_has_a_folder_and_bounds() {
        let path = "proxy_cache_path /x levels=1:2 keys_zone=a:1m max_size=1k inactive=2m use_temp_path=off;";
        let config =
            loaded(path, "proxy_cache a; proxy_cache_valid 5; proxy_cache_valid 404 any 1m;");
        let config = config.expect("it is right");
        let cache = &config.http.caches[0];
        assert_eq!((cache.name.as_str(), cache.levels.as_slice()), ("a", &[1, 2][..]));
        assert_eq!(cache.settings.bytes_max, Some(1024));
        assert_eq!(
            (cache.settings.keys_max, cache.settings.inactive),
            (8192, Duration::from_mins(2))
        );
        let passes = config.http.locations.iter().filter_map(|it| it.settings.pass.as_deref());
        let caching = passes.map(|pass| &pass.forward.caching).next().expect("it passes requests");
        assert_eq!(caching.cache, Some(CacheChoice::Named(CacheId(0))));
        let of = ValidFor::Status;
        let valid = [(of(200), 5), (of(301), 5), (of(302), 5), (of(404), 60), (ValidFor::Any, 60)];
        assert_eq!(caching.rules.valid, valid);
        assert!(caching.convert_head && !caching.lock);
        assert_eq!(caching.lock_timeout, Duration::from_secs(5));
    }

    #[test]
    fn a_cache_takes_any_number_of_parameters() {
        for name in ["proxy_cache_path", "fastcgi_cache_path", "scgi_cache_path"] {
            let path = format!(
                "{name} /x levels=1:2 keys_zone=a:1m max_size=1g min_free=1m inactive=2m use_temp_path=off \
                 loader_files=10 loader_sleep=50ms loader_threshold=200ms manager_files=10 manager_sleep=50ms;"
            );
            let config = loaded(&path, "").expect("it is right");
            assert_eq!(config.http.caches[0].free_min, Some(1 << 20), "{name}");
        }
    }

    #[test]
    fn mistakes_are_found() {
        const PATH: &str = "proxy_cache_path /x keys_zone=a:1m;";
        for (path, body, expected) in [
            ("", "proxy_cache a;", "zone \"a\" is unknown"),
            (PATH, "proxy_cache $host;", ""),
            ("scgi_cache_path /x keys_zone=a:1m;", "proxy_cache a;", "for a different use"),
            ("proxy_cache_path /x levels=1;", "", "must have \"keys_zone\""),
            ("proxy_cache_path /x keys_zone=a;", "", "invalid keys zone size"),
            ("proxy_cache_path /x keys_zone=a:1k;", "", "invalid keys zone size"),
            ("proxy_cache_path /x keys_zone=a:1m levels=3;", "", "invalid \"levels\""),
            ("proxy_cache_path /x keys_zone=a:1m levels=1:1:1:1;", "", "invalid \"levels\""),
            ("proxy_cache_path /x keys_zone=a:1m odd=1;", "", "invalid parameter"),
            ("proxy_cache_path /x keys_zone=a:1m purger=on;", "", "is not supported yet"),
            ("proxy_cache_path /x keys_zone=a:1m min_free=x;", "", "invalid value \"min_free=x\""),
            (
                "proxy_cache_path /x keys_zone=a:1m; proxy_cache_path /y keys_zone=a:1m;",
                "",
                "is defined already",
            ),
            (
                "proxy_cache_path /x keys_zone=a:1m; proxy_cache_path /x keys_zone=b:1m;",
                "",
                "in this folder already",
            ),
            (PATH, "proxy_cache_valid 200;", ""),
            (PATH, "proxy_cache_valid 99 1m;", "invalid status"),
            (PATH, "proxy_cache_valid 200 soon;", "invalid time value"),
            (PATH, "proxy_cache_methods PUT;", "invalid value"),
            (PATH, "proxy_cache_use_stale sometimes;", "invalid value"),
        ] {
            match loaded(path, body) {
                Ok(_) => assert!(expected.is_empty(), "{path} {body} is accepted"),
                Err(said) => assert!(
                    !expected.is_empty() && said.contains(expected),
                    "{path} {body}: {said}"
                ),
            }
        }
    }
}
