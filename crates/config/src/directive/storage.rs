//! `storage`: object storage that serves and stores like a folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Version;
use sekisho_storage::{PART_BYTES_MIN, Place, Service};
use sekisho_upstream::cache::store::ValidFor;
use sekisho_upstream::cache::{StoreRules, UseStale};
use sekisho_upstream::fields::Visible;
use sekisho_upstream::retry::{Condition, NextUpstream};

use super::forward::destination;
use super::{Context, HTTP, Row, STORAGE, active, block};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    CacheChoice, CacheId, Caching, CredentialSource, Family, Forward, Part, PathMapping, Storage,
    Template, UpstreamTls,
};
use crate::parse::Word;
use crate::report::did_you_mean;

/// A part larger than this would have to be kept in memory.
const PART_BYTES_MAX: u64 = 1 << 30;
/// Connections to a store that a worker keeps.
const KEEPALIVE: usize = 32;
/// The system's list of certificate authorities.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What a `root` in object storage begins with.
const SCHEME: &str = "storage:";
const NOTHING_ELSE: &str = "must be a host and a port, and nothing else";

pub(super) const ROWS: &[Row] = &[
    block(
        "storage",
        HTTP,
        "name",
        Context::Storage,
        "Object storage, for `root storage:NAME` and `upload_store storage:NAME`",
    ),
    active(
        "url",
        STORAGE,
        "url",
        "",
        "The bucket and what its keys begin with: `s3://bucket/prefix`, `gs://bucket/prefix` (with the keys that Google gives for interoperability), `az://container/prefix` (Azure), or `file:///folder`",
        |_, d, s| {
            // Whatever is wrong with it, there is one.
            s.storage.has_url = true;
            s.storage.url = Some(url(d)?);
            Ok(())
        },
    ),
    active(
        "region",
        STORAGE,
        "name",
        "",
        "Where the bucket is (`us-east-1`); not for Azure",
        |_, d, s| {
            let word = d.arg(0);
            let text = d.text(word)?;
            if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                return Err(d.invalid(word, "is not the name of a region"));
            }
            s.storage.region = Some((text.to_owned(), word.clone()));
            Ok(())
        },
    ),
    active(
        "endpoint",
        STORAGE,
        "url",
        "",
        "The server that has the bucket, if it is not Amazon's or Google's own: `http://` or `https://`, host and port; for Azure the account's, such as `https://ACCOUNT.blob.core.windows.net`",
        |_, d, s| {
            let word = d.arg(0);
            s.storage.has_endpoint = true;
            s.storage.endpoint = Some((endpoint(d, word)?, word.clone()));
            Ok(())
        },
    ),
    active(
        "credentials",
        STORAGE,
        "file|env|none",
        "",
        "What requests are signed with: a file with `aws_access_key_id = …` and `aws_secret_access_key = …` (for Azure `azure_storage_account` and `azure_storage_key`, or `azure_storage_sas_token`), the variables of the environment with these names in capitals, or nothing (none)",
        |_, d, s| {
            s.storage.credentials = match &*d.arg(0).text {
                b"none" => CredentialSource::None,
                b"env" => CredentialSource::Environment,
                text => CredentialSource::File(s.path_beside_main(text)),
            };
            Ok(())
        },
    ),
    active(
        "timeout",
        STORAGE,
        "time",
        "",
        "How long the store may take to accept a connection, to take more of a request and to send more of an answer (60s)",
        |_, d, s| {
            s.storage.timeout = Some(d.time(0)?);
            Ok(())
        },
    ),
    active(
        "cache",
        STORAGE,
        "zone|off [time]",
        "",
        "A cache of `proxy_cache_path` for objects: within the time (1m) they are given without asking the store, later the store is asked whether they have changed",
        cache,
    ),
    active(
        "part_size",
        STORAGE,
        "size",
        "",
        "Uploads that are larger are sent in parts of this size (8m); so much memory an upload needs",
        |_, d, s| {
            let size = d.size(0)?;
            if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&size) {
                return Err(d.invalid(d.arg(0), "must be from 5m to 1g"));
            }
            s.storage.part_bytes = Some(size);
            Ok(())
        },
    ),
    active(
        "abandoned",
        STORAGE,
        "time|off",
        "",
        "Uploads that have had no new part for this time are removed from the store (24h); Azure does that by itself after a week",
        |_, d, s| {
            s.storage.abandoned = match &*d.arg(0).text {
                b"off" => None,
                _ => Some(d.time(0)?),
            };
            Ok(())
        },
    ),
    active(
        "ssl_trusted_certificate",
        STORAGE,
        "file",
        "",
        "Trusted authorities for the store's certificate (PEM); by default the system's list",
        |_, d, s| {
            s.storage.trusted = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_verify",
        STORAGE,
        "on|off",
        "",
        "Whether the store's certificate is verified (on)",
        |_, d, s| {
            s.storage.verifies = d.flag()?;
            Ok(())
        },
    ),
];

/// A `storage` while it is being read.
#[derive(Debug)]
pub struct StorageParts {
    has_url: bool,
    has_endpoint: bool,
    url: Option<Url>,
    region: Option<(String, Word)>,
    endpoint: Option<(Endpoint, Word)>,
    credentials: CredentialSource,
    timeout: Option<Duration>,
    cache: Option<(CacheId, Duration)>,
    part_bytes: Option<u64>,
    abandoned: Option<Duration>,
    trusted: Option<PathBuf>,
    verifies: bool,
}

impl Default for StorageParts {
    fn default() -> Self {
        Self {
            has_url: false,
            has_endpoint: false,
            url: None,
            region: None,
            endpoint: None,
            credentials: CredentialSource::None,
            timeout: None,
            cache: None,
            part_bytes: None,
            abandoned: Some(Duration::from_hours(24)),
            trusted: None,
            verifies: true,
        }
    }
}

#[derive(Clone, Debug)]
enum Url {
    Bucket { kind: Kind, bucket: String, prefix: String },
    Folder(PathBuf),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    S3,
    Google,
    Azure,
}

#[derive(Clone, Debug)]
struct Endpoint {
    address: String,
    /// What follows the address: nothing, or it begins with a slash.
    path: String,
    is_tls: bool,
}

/// What a `storage` is.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// Objects of a store.
    Objects(Arc<Storage>),
    /// A folder of this machine.
    Folder(PathBuf),
}

fn url(d: &Directive<'_>) -> Result<Url, Fault> {
    const SCHEMES: &str = "must begin with s3://, gs://, az:// or file:///";
    let word = d.arg(0);
    let text = d.text(word)?;
    let (scheme, rest) = text.split_once("://").ok_or_else(|| d.invalid(word, SCHEMES))?;
    let kind = match scheme {
        "s3" => Kind::S3,
        "gs" => Kind::Google,
        "az" | "azure" => Kind::Azure,
        "file" if rest.starts_with('/') => return Ok(Url::Folder(rest.into())),
        _ => return Err(d.invalid(word, SCHEMES)),
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    // Azure has containers of its own, such as `$web`.
    let own = if kind == Kind::Azure { bucket.strip_prefix('$') } else { None };
    let name = own.unwrap_or(bucket);
    if name.is_empty() || !name.bytes().all(is_name) {
        let what = if kind == Kind::Azure { "a container" } else { "a bucket" };
        return Err(d.invalid(word, &format!("has no name of {what}")));
    }
    let mut prefix = prefix.trim_matches('/').to_owned();
    if !prefix.is_empty() {
        prefix.push('/');
    }
    Ok(Url::Bucket { kind, bucket: bucket.to_owned(), prefix })
}

fn endpoint(d: &Directive<'_>, word: &Word) -> Result<Endpoint, Fault> {
    let text = d.text(word)?;
    let (rest, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return Err(d.invalid(word, "must begin with http:// or https://")),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    if address.is_empty()
        || address.contains(['?', '#', '@'])
        || address.starts_with("unix:")
        || !path.bytes().all(is_plain)
    {
        return Err(d.invalid(word, NOTHING_ELSE));
    }
    Ok(Endpoint { address: address.to_owned(), path: path.to_owned(), is_tls })
}

fn cache(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    const VALID: Duration = Duration::from_mins(1);
    let word = d.arg(0);
    let name = d.text(word)?;
    if name == "off" {
        s.storage.cache = None;
        return Ok(());
    }
    let is_it =
        |cache: &crate::model::CachePath| cache.name == name && cache.family == Family::Proxy;
    let Some(at) = s.caches.iter().position(is_it) else {
        let message = format!("there is no \"proxy_cache_path\" with keys_zone \"{name}\"");
        return Err(Fault::at(word, message));
    };
    let valid = if d.args().len() > 1 { d.time(1)? } else { VALID };
    if valid < Duration::from_secs(1) {
        return Err(d.invalid(d.arg(1), "must be at least 1s"));
    }
    s.storage.cache = Some((CacheId(at as u32), valid));
    Ok(())
}

impl StorageParts {
    /// Puts a block together that has been read.
    pub fn finish(self, http: &Level, name: &Word, s: &mut Scope<'_>) -> Result<Chosen, Fault> {
        let (kind, bucket, prefix) = match &self.url {
            // It was reported; what names this storage is not wrong for it.
            None if self.has_url => return Ok(Chosen::Folder(PathBuf::new())),
            None => return Err(Fault::at(name, "no \"url\" in this \"storage\"")),
            Some(Url::Folder(folder)) => return Ok(Chosen::Folder(folder.clone())),
            Some(Url::Bucket { kind, bucket, prefix }) => (*kind, bucket, prefix),
        };
        let region = match (&self.region, kind) {
            (Some((_, word)), Kind::Azure) => {
                return Err(Fault::at(word, "\"region\" has no meaning for Azure storage"));
            }
            (Some((region, _)), _) => region.as_str(),
            (None, Kind::S3) => "us-east-1",
            (None, Kind::Google) => "auto",
            (None, Kind::Azure) => "",
        };
        let (at, word, base) = match &self.endpoint {
            Some((at, word)) if kind != Kind::Azure && !at.path.is_empty() => {
                return Err(Fault::at(word, format!("this \"endpoint\" {NOTHING_ELSE}")));
            }
            Some((at, word)) => (at.clone(), word, format!("{}/{bucket}", at.path)),
            None if self.has_endpoint => return Ok(Chosen::Folder(PathBuf::new())),
            None => {
                let (address, base) = usual_place(kind, bucket, region).ok_or_else(|| {
                    let help = "an account has its own: https://ACCOUNT.blob.core.windows.net";
                    let fault = Fault::at(name, "no \"endpoint\" in this \"storage\" of Azure");
                    fault.help(help.to_owned())
                })?;
                (Endpoint { address, path: String::new(), is_tls: true }, name, base)
            }
        };
        let port = if at.is_tls { 443 } else { 80 };
        let to = destination(s, word, &at.address, at.is_tls, Some(port))?;
        if let Some(group) = s.upstreams.get_mut(to.group.0 as usize)
            && !group.is_declared
        {
            group.keepalive.connections = KEEPALIVE;
            // There is one server, and its failures are told with each request.
            for server in &mut group.servers {
                server.peer.max_fails = 0;
            }
        }
        let service = if kind == Kind::Azure { Service::Azure } else { Service::S3 };
        let place = Place {
            service,
            is_tls: at.is_tls,
            host: at.address.as_str().into(),
            base: base.into(),
            bucket: bucket.as_str().into(),
            prefix: prefix.as_str().into(),
            region: region.into(),
        };
        let forward = Arc::new(self.forward(http));
        Ok(Chosen::Objects(Arc::new(Storage {
            name: name.shown(),
            id: s.storages.iter().filter(|(_, it)| matches!(it, Chosen::Objects(_))).count(),
            place,
            to,
            forward,
            credentials: self.credentials,
            part_bytes: self.part_bytes.unwrap_or(8 << 20),
            abandoned: self.abandoned,
        })))
    }

    /// How the store is spoken to: as a server of `proxy_pass`, without what is about other servers' pages.
    fn forward(&self, http: &Level) -> Forward {
        let timeout = Some(self.timeout.unwrap_or(Duration::from_mins(1)));
        let caching = match self.cache {
            None => Caching::default(),
            Some((id, valid)) => {
                let secs = u32::try_from(valid.as_secs()).unwrap_or(u32::MAX);
                let valid = vec![(ValidFor::Status(200), secs)];
                Caching {
                    cache: Some(CacheChoice::Named(id)),
                    rules: Arc::new(StoreRules { valid, ..StoreRules::default() }),
                    lock: true,
                    lock_timeout: Duration::from_secs(5),
                    lock_age: Duration::from_secs(5),
                    revalidate: true,
                    convert_head: true,
                    use_stale: UseStale::default(),
                    ..Caching::default()
                }
            }
        };
        Forward {
            connect_timeout: timeout,
            send_timeout: timeout,
            read_timeout: timeout,
            next_upstream: NextUpstream::new([
                Condition::Error,
                Condition::Timeout,
                Condition::Http500,
                Condition::Http502,
                Condition::Http503,
                Condition::Http504,
            ]),
            buffering: true,
            request_buffering: true,
            visible: Arc::new(Visible::default()),
            caching: Arc::new(caching),
            socket_keepalive: true,
            http_version: Version::Http11,
            tls: Arc::new(UpstreamTls {
                sends_name: true,
                verify: self.verifies,
                trusted: self
                    .verifies
                    .then(|| self.trusted.clone().unwrap_or_else(|| SYSTEM_AUTHORITIES.into())),
                reuses_sessions: true,
                ..UpstreamTls::default()
            }),
            ..(*http.forwards[Family::Proxy as usize]).clone()
        }
        .without_rewriting()
    }
}

impl Forward {
    /// Nothing of what is passed or answered is changed.
    fn without_rewriting(self) -> Self {
        Self {
            method: None,
            set_body: None,
            set_headers: Arc::default(),
            redirects: Arc::default(),
            cookie_domains: Arc::default(),
            cookie_paths: Arc::default(),
            cookie_flags: Arc::default(),
            bind: None,
            read_rate: 0,
            force_ranges: false,
            intercept_errors: false,
            ignore_client_abort: false,
            pass_trailers: false,
            ..self
        }
    }
}

/// The host of a bucket where no `endpoint` is said, and what goes before its keys; `None` where there is none.
fn usual_place(kind: Kind, bucket: &str, region: &str) -> Option<(String, String)> {
    match kind {
        Kind::Azure => None,
        Kind::Google => Some(("storage.googleapis.com".to_owned(), format!("/{bucket}"))),
        // A certificate for `*.s3…` is none for a name with more dots.
        Kind::S3 if bucket.contains(['.', '_']) => {
            Some((format!("s3.{region}.amazonaws.com"), format!("/{bucket}")))
        }
        Kind::S3 => Some((format!("{bucket}.s3.{region}.amazonaws.com"), String::new())),
    }
}

/// The `storage` that a value names, if it names one.
pub(super) fn named(
    d: &Directive<'_>,
    word: &Word,
    s: &Scope<'_>,
) -> Result<Option<Chosen>, Fault> {
    let Some(name) = word.text.strip_prefix(SCHEME.as_bytes()) else { return Ok(None) };
    let name = std::str::from_utf8(name).map_err(|_| d.invalid(word, "is not UTF-8"))?;
    let known = |(known, _): &&(String, Chosen)| known == name;
    if let Some((_, chosen)) = s.storages.iter().find(known) {
        return Ok(Some(chosen.clone()));
    }
    let help = did_you_mean(name, s.storages.iter().map(|(name, _)| name.as_str()));
    Err(Fault::at(word, format!("there is no \"storage\" \"{name}\"")).help(help))
}

/// `root storage:NAME`; `None` where it is a plain folder.
pub(super) fn root(
    l: &mut Level,
    d: &Directive<'_>,
    s: &Scope<'_>,
) -> Result<Option<Template>, Fault> {
    let word = d.arg(0);
    if l.context == Context::Http && word.text.starts_with(SCHEME.as_bytes()) {
        return Err(Fault::at(word, "\"root storage:\" is for servers and locations"));
    }
    let text = match named(d, word, s)? {
        None => {
            l.storage = None;
            return Ok(None);
        }
        Some(Chosen::Folder(folder)) => {
            l.storage = None;
            folder.into_os_string().into_encoded_bytes()
        }
        Some(Chosen::Objects(storage)) => {
            let text = storage.root();
            l.storage = Some(storage);
            text.into_bytes()
        }
    };
    let text = text.strip_suffix(b"/").map_or(text.clone(), <[u8]>::to_vec);
    Ok(Some(Template { parts: vec![Part::Literal(text)] }))
}

/// Whether a value names a `storage`.
pub(super) fn is_named(word: &Word) -> bool {
    word.text.starts_with(SCHEME.as_bytes())
}

/// `upload_store storage:NAME[/folder]`: where that is, and the storage if it is no folder.
pub(super) fn store(
    d: &Directive<'_>,
    word: &Word,
    s: &Scope<'_>,
) -> Result<(Template, Option<Arc<Storage>>), Fault> {
    let text = d.text(word)?;
    let end = text.find('/').unwrap_or(text.len());
    let (name, below) = text.split_at(end);
    if below.contains('$') {
        return Err(d.invalid(word, "has variables, which are not supported with a storage"));
    }
    let is_plain = !below.split('/').any(|part| matches!(part, "." | ".."));
    if !is_plain {
        return Err(d.invalid(word, "has dots in its path"));
    }
    let named = Word { text: name.as_bytes().into(), ..word.clone() };
    let (root, storage) = match named_storage(d, &named, s)? {
        Chosen::Folder(folder) => (folder.into_os_string().into_encoded_bytes(), None),
        Chosen::Objects(storage) => (storage.root().into_bytes(), Some(storage)),
    };
    let text = [root.as_slice(), below.trim_end_matches('/').as_bytes()].concat();
    Ok((Template { parts: vec![Part::Literal(text)] }, storage))
}

fn named_storage(d: &Directive<'_>, word: &Word, s: &Scope<'_>) -> Result<Chosen, Fault> {
    named(d, word, s)?.ok_or_else(|| d.invalid(word, "names no storage"))
}

/// What a location with this root says of it, in [`PathMapping`].
pub(super) fn mapping(template: Template) -> PathMapping {
    PathMapping::Root(Arc::new(template))
}

#[cfg(test)]
mod tests {
    use sekisho_storage::Service;

    use crate::model::{Config, CredentialSource, PathMapping};
    use crate::source::Memory;
    use crate::{Options, load};

    fn loaded(http: &str) -> Result<Config, String> {
        let text = format!("http {{ {http} }}");
        let outcome =
            load("/c.conf".as_ref(), &Options::new("/"), &Memory::of("/c.conf", text.as_str()));
        let said: String = outcome.reports.iter().map(|report| report.render(false)).collect();
        outcome.config.ok_or(said)
    }

    const AT: &str = "endpoint http://127.0.0.1:9;";

    #[test]
    fn a_storage_is_a_bucket_at_a_server() {
        let config = loaded(
            "storage a { url s3://bucket/x/y/; endpoint https://127.0.0.1:9; region eu-1; credentials env; }
             storage f { url file:///srv/f/; }
             server { listen 80; root storage:a; location /f { root storage:f; } location /p { proxy_pass http://127.0.0.1:8; }
                 location /s { upload_store storage:a/in; } }",
        )
        .expect("sound");
        let [storage] = &config.http.storages[..] else { panic!("one of them is a folder") };
        assert_eq!(&*storage.place.prefix, "x/y/");
        assert_eq!((&*storage.place.base, &*storage.place.host), ("/bucket", "127.0.0.1:9"));
        assert_eq!((&*storage.place.region, storage.to.is_tls), ("eu-1", true));
        assert_eq!(storage.credentials, CredentialSource::Environment);
        assert!(storage.forward.tls.verify && storage.forward.tls.trusted.is_some());
        let has = |path: &str| {
            let locations = config.http.locations.iter();
            let mut found = locations.filter(|it| {
                matches!(&it.matches, crate::LocationMatch::Prefix { path: own, .. } if own == path.as_bytes())
            });
            let settings = &found.next().expect("the location").settings;
            let pass = settings.pass.as_ref();
            (pass.is_some_and(|pass| pass.storage.is_some()), settings)
        };
        assert!(!has("/f").0 && !has("/p").0);
        assert!(has("/s").0, "a root is inherited");
        let PathMapping::Root(root) = &has("/f").1.path_mapping else { panic!("a root") };
        assert_eq!(root.as_literal(), Some(&b"/srv/f"[..]));
        let file_ops = has("/s").1.file_ops.as_deref().expect("uploads");
        assert!(file_ops.storage.is_some());
    }

    #[test]
    fn names_of_buckets_are_hosts_at_amazon_where_they_can_be() {
        use super::Kind;
        for (kind, bucket, host, base) in [
            (Kind::S3, "bucket", "bucket.s3.eu-1.amazonaws.com", ""),
            (Kind::S3, "a.b", "s3.eu-1.amazonaws.com", "/a.b"),
            (Kind::Google, "bucket", "storage.googleapis.com", "/bucket"),
        ] {
            let expected = Some((host.to_owned(), base.to_owned()));
            assert_eq!(super::usual_place(kind, bucket, "eu-1"), expected, "{bucket}");
        }
    }

    #[test]
    fn a_container_of_azure_lies_below_its_endpoint() {
        for (block, base) in [
            ("url az://c/x; endpoint https://127.0.0.1:9;", "/c"),
            ("url azure://c; endpoint http://127.0.0.1:9/account/;", "/account/c"),
            ("url 'az://$web'; endpoint http://127.0.0.1:9/account;", "/account/$web"),
        ] {
            let config = loaded(&format!("storage a {{ {block} }} server {{ root storage:a; }}"));
            let config = config.expect("sound");
            let place = &config.http.storages[0].place;
            assert_eq!((place.service, &*place.base), (Service::Azure, base), "{block}");
            assert_eq!((&*place.host, place.is_tls), ("127.0.0.1:9", block.contains("https")));
        }
    }

    #[test]
    fn mistakes_are_told_and_what_a_store_cannot_do_is_refused() {
        let here = |block: &str, location: &str| {
            loaded(&format!(
                "storage a {{ {block} }} server {{ listen 80; location / {{ {location} }} }}"
            ))
        };
        for (block, expected) in [
            ("", "no \"url\" in this \"storage\""),
            ("url http://x;", "must begin with s3://, gs://, az:// or file:///"),
            ("url s3:///x;", "has no name of a bucket"),
            ("url az:///y;", "has no name of a container"),
            ("url az://x; region eu;", "\"region\" has no meaning for Azure storage"),
            ("url az://x; endpoint http://h/a?b;", "a host and a port, and nothing else"),
            ("url s3://bucket; endpoint 127.0.0.1;", "must begin with http:// or https://"),
            (
                "url s3://bucket; endpoint http://127.0.0.1/x;",
                "a host and a port, and nothing else",
            ),
            ("url s3://bucket; part_size 1m;", "must be from 5m to 1g"),
            (
                "url s3://bucket; cache none;",
                "there is no \"proxy_cache_path\" with keys_zone \"none\"",
            ),
            ("url s3://bucket; region a/b;", "is not the name of a region"),
        ] {
            let at = if block.contains("endpoint") { "" } else { AT };
            let said = here(&format!("{at} {block}"), "").expect_err(block);
            assert!(said.contains(expected), "{block}: {said}");
        }
        let said = here("url az://x;", "").expect_err("no endpoint");
        assert!(said.contains("no \"endpoint\"") && said.contains("core.windows.net"), "{said}");
        let sound = format!("url s3://bucket; {AT}");
        for (location, expected) in [
            ("root storage:b;", "there is no \"storage\" \"b\""),
            ("alias storage:a;", "is not supported with a storage"),
            ("upload_store storage:a/$arg_x;", "has variables"),
            ("upload_store storage:a/../x;", "has dots"),
            ("root storage:a; cgi on;", "\"cgi\" is not supported with a storage root"),
            (
                "root storage:a; gzip_static on;",
                "\"gzip_static\" is not supported with a storage root",
            ),
            ("root storage:a; random_index on;", "\"random_index\" is not supported"),
            (
                "root storage:a; dav_ext_methods PROPFIND LOCK UNLOCK;",
                "\"dav_ext_methods\" is not supported",
            ),
            ("root storage:a; dav_ext_methods PROPPATCH;", "PROPFIND and OPTIONS are"),
            (
                "root storage:a; autoindex on; autoindex_archive zip;",
                "\"autoindex_archive\" is not supported",
            ),
            (
                "root storage:a; autoindex on; autoindex_search on;",
                "\"autoindex_search\" is not supported",
            ),
            (
                "root storage:a; if (-f $request_filename) { return 200; }",
                "is not supported with a storage root",
            ),
        ] {
            let said = here(&sound, location).expect_err(location);
            assert!(said.contains(expected), "{location}: {said}");
        }
        here(&sound, "root storage:a; dav_ext_methods PROPFIND OPTIONS;").expect("sound");
        let said =
            loaded(&format!("storage a {{ {sound} }} root storage:a; server {{ listen 80; }}"));
        assert!(said.expect_err("http").contains("is for servers and locations"));
        let twice = loaded(&format!("storage a {{ {sound} }} storage a {{ {sound} }}"));
        assert!(twice.expect_err("twice").contains("duplicate \"storage\""));
    }
}
