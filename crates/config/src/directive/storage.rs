//! `storage`: object storage that serves and stores like a folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Version;
use sekisho_storage::{PART_BYTES_MIN, Place};
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
        "The bucket and what its keys begin with: `s3://bucket/prefix`, `gs://bucket/prefix` (with the keys that Google gives for interoperability), or `file:///folder`",
        |_, d, s| {
            s.storage.url = Some(url(d)?);
            Ok(())
        },
    ),
    active("region", STORAGE, "name", "", "Where the bucket is (`us-east-1`)", |_, d, s| {
        let word = d.arg(0);
        let text = d.text(word)?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(d.invalid(word, "is not the name of a region"));
        }
        s.storage.region = Some(text.to_owned());
        Ok(())
    }),
    active(
        "endpoint",
        STORAGE,
        "url",
        "",
        "The server that has the bucket, if it is not Amazon's or Google's own: `http://` or `https://`, host and port",
        |_, d, s| {
            let word = d.arg(0);
            s.storage.endpoint = Some((endpoint(d, word)?, word.clone()));
            Ok(())
        },
    ),
    active(
        "credentials",
        STORAGE,
        "file|env|none",
        "",
        "What requests are signed with: a file with `aws_access_key_id = …` and `aws_secret_access_key = …`, the variables of the environment with these names in capitals, or nothing (none)",
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
        "Uploads that have had no new part for this time are removed from the store (24h)",
        |_, d, s| {
            s.storage.abandoned = match &*d.arg(0).text {
                b"off" => Some(None),
                _ => Some(Some(d.time(0)?)),
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
    url: Option<Url>,
    region: Option<String>,
    endpoint: Option<(Endpoint, Word)>,
    credentials: CredentialSource,
    timeout: Option<Duration>,
    cache: Option<(CacheId, Duration)>,
    part_bytes: Option<u64>,
    abandoned: Option<Option<Duration>>,
    trusted: Option<PathBuf>,
    verifies: bool,
}

impl Default for StorageParts {
    fn default() -> Self {
        Self {
            url: None,
            region: None,
            endpoint: None,
            credentials: CredentialSource::None,
            timeout: None,
            cache: None,
            part_bytes: None,
            abandoned: None,
            trusted: None,
            verifies: true,
        }
    }
}

#[derive(Clone, Debug)]
enum Url {
    Bucket { is_google: bool, bucket: String, prefix: String },
    Folder(PathBuf),
}

#[derive(Clone, Debug)]
struct Endpoint {
    address: String,
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
    let word = d.arg(0);
    let text = d.text(word)?;
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(d.invalid(word, "must begin with s3://, gs:// or file:///"));
    };
    match scheme {
        "s3" | "gs" => {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let is_name =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if bucket.is_empty() || !bucket.bytes().all(is_name) {
                return Err(d.invalid(word, "has no name of a bucket"));
            }
            let mut prefix = prefix.trim_matches('/').to_owned();
            if !prefix.is_empty() {
                prefix.push('/');
            }
            let is_google = scheme == "gs";
            Ok(Url::Bucket { is_google, bucket: bucket.to_owned(), prefix })
        }
        "file" if rest.starts_with('/') => Ok(Url::Folder(rest.into())),
        "az" => Err(Fault::at(word, "Azure storage is not supported yet")
            .help("s3://, gs:// and file:/// are".to_owned())),
        _ => Err(d.invalid(word, "must begin with s3://, gs:// or file:///")),
    }
}

fn endpoint(d: &Directive<'_>, word: &Word) -> Result<Endpoint, Fault> {
    let text = d.text(word)?;
    let (rest, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return Err(d.invalid(word, "must begin with http:// or https://")),
    };
    let address = rest.strip_suffix('/').unwrap_or(rest);
    if address.is_empty() || address.contains(['/', '?', '#', '@']) || address.starts_with("unix:")
    {
        return Err(d.invalid(word, "must be a host and a port, and nothing else"));
    }
    Ok(Endpoint { address: address.to_owned(), is_tls })
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
        let (is_google, bucket, prefix) = match &self.url {
            None => return Err(Fault::at(name, "no \"url\" in this \"storage\"")),
            Some(Url::Folder(folder)) => return Ok(Chosen::Folder(folder.clone())),
            Some(Url::Bucket { is_google, bucket, prefix }) => (*is_google, bucket, prefix),
        };
        let default = if is_google { "auto" } else { "us-east-1" };
        let region = self.region.clone().unwrap_or_else(|| default.to_owned());
        // A certificate for `*.s3…` is none for a name with more dots.
        let is_host = !is_google && !bucket.contains(['.', '_']);
        let (at, word, base) = match &self.endpoint {
            Some((endpoint, word)) => (endpoint.clone(), word, format!("/{bucket}")),
            None => {
                let (address, base) = match (is_google, is_host) {
                    (true, _) => ("storage.googleapis.com".to_owned(), format!("/{bucket}")),
                    (_, true) => (format!("{bucket}.s3.{region}.amazonaws.com"), String::new()),
                    (_, false) => (format!("s3.{region}.amazonaws.com"), format!("/{bucket}")),
                };
                (Endpoint { address, is_tls: true }, name, base)
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
        let place = Place {
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
            abandoned: self.abandoned.unwrap_or(Some(Duration::from_hours(24))),
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

/// The `storage` that a value names, if it names one.
pub(super) fn named(
    d: &Directive<'_>,
    word: &Word,
    s: &Scope<'_>,
) -> Result<Option<Chosen>, Fault> {
    let Some(name) = word.text.strip_prefix(SCHEME.as_bytes()) else { return Ok(None) };
    let name = std::str::from_utf8(name).map_err(|_| d.invalid(word, "is not UTF-8"))?;
    let known = |(known, _): &&(String, Chosen)| known == name;
    match s.storages.iter().find(known) {
        Some((_, chosen)) => Ok(Some(chosen.clone())),
        None => {
            let help = did_you_mean(name, s.storages.iter().map(|(name, _)| name.as_str()));
            Err(Fault::at(word, format!("there is no \"storage\" \"{name}\"")).help(help))
        }
    }
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
            let text = format!("{}{}", PathMapping::STORAGE, storage.name);
            l.storage = Some(storage);
            text.into_bytes()
        }
    };
    let text = text.strip_suffix(b"/").map_or(text.clone(), <[u8]>::to_vec);
    Ok(Some(Template { parts: vec![Part::Literal(text)] }))
}

/// What a location with this root says of it, in [`PathMapping`].
pub(super) fn mapping(template: Template) -> PathMapping {
    PathMapping::Root(Arc::new(template))
}
