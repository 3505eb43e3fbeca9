//! One level of the configuration while it is being filled in: main, `http`, a `server` or a `location`.
//! A level begins as what is inherited, its own directives are applied, then it is finished and handed
//! down. Also what an `apply` function sees: the directive and the scope around it.

mod blank;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use blank::blank_main;
use blank::blank_settings;

use crate::directive::storage::{Chosen, StorageParts};
use crate::directive::{Context, Row};
use crate::filters::FilterParts;
use crate::guards::Guards;
use crate::listen::ListenLine;
use crate::model::{
    AccessLog, AcmeIssuer, AcmeKey, AcmeStore, AddHeader, CachePath, Cgi, CgiExtension, CgiPass,
    Charsets, ErrorLog, ErrorPage, Family, FileCache, FileOps, Forward, HeadLimits, Http2, Http3,
    ListenAddress, LocationMatch, LogFormat, Main, MatchRules, Pass, PassTo, PathMapping, Programs,
    RealIp, RealIpSource, ServerName, Settings, Step, Storage, StoreFailure, StreamSettings,
    Symlinks, Template, Tls, Types, UpstreamGroup, Zone,
};
use crate::parse::{Node, Word};
use crate::report::{Report, Reports, SourceFile, Span};
use crate::source::path_of;
use crate::template::{Names, template};
use crate::{Options, value};

/// Why a directive cannot be applied.
#[derive(Debug)]
pub struct Fault {
    /// The word that is wrong; `None` for the name.
    pub span: Option<Span>,
    /// What is wrong.
    pub message: String,
    /// A further fact.
    pub note: Option<String>,
    /// What might help.
    pub help: Option<String>,
    /// What is wrong besides.
    pub more: Vec<Self>,
}

impl Fault {
    /// The directive as a whole is wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { span: None, message: message.into(), note: None, help: None, more: Vec::new() }
    }

    /// All of these are wrong, of which there is one at least.
    pub fn all(faults: impl IntoIterator<Item = Self>) -> Self {
        let mut faults = faults.into_iter();
        let first = faults.next().unwrap_or_else(|| Self::new("invalid parameters"));
        Self { more: faults.collect(), ..first }
    }

    /// Reads each of the words; all that are wrong are told.
    pub fn each<'w>(
        words: &'w [Word],
        read: impl FnMut(&'w Word) -> Result<(), Self>,
    ) -> Result<(), Self> {
        let mut wrong = words.iter().map(read).filter_map(Result::err).peekable();
        if wrong.peek().is_none() { Ok(()) } else { Err(Self::all(wrong)) }
    }

    /// This word is wrong.
    pub fn at(word: &Word, message: impl Into<String>) -> Self {
        Self { span: Some(word.span), ..Self::new(message) }
    }

    /// The same with a suggestion.
    #[must_use]
    pub fn help(self, help: impl Into<Option<String>>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// The same with a further fact.
    #[must_use]
    pub fn note(self, note: impl Into<Option<String>>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// A directive that is being applied.
#[derive(Clone, Copy, Debug)]
pub struct Directive<'a> {
    /// Its row.
    pub row: &'static Row,
    /// What was written.
    pub node: &'a Node,
    /// Whether it is the row's default and was not written at all.
    pub is_default: bool,
}

impl<'a> Directive<'a> {
    /// The arguments.
    pub fn args(&self) -> &'a [Word] {
        &self.node.args
    }

    /// An argument; the form of the row ensures that it exists; otherwise the directive's name is returned.
    pub fn arg(&self, at: usize) -> &'a Word {
        self.node.args.get(at).unwrap_or(&self.node.name)
    }

    /// Whether it is the first directive of its name at this level.
    pub fn is_first_of(&self, level: &Level) -> bool {
        level.seen.get(self.row.name).is_none_or(|first| *first == self.node.name.span)
    }

    /// `invalid value "x" in "name" directive: reason`
    pub fn invalid(&self, word: &Word, reason: &str) -> Fault {
        let name = self.row.name;
        Fault::at(
            word,
            format!("invalid value \"{}\" in \"{name}\" directive: it {reason}", word.shown()),
        )
    }

    /// What this word asks for is not there yet.
    pub fn not_built(&self, word: &Word) -> Fault {
        Fault::at(
            word,
            format!("\"{}\" of \"{}\" is not supported yet", word.shown(), self.row.name),
        )
    }

    /// An argument as text.
    pub fn text(&self, word: &'a Word) -> Result<&'a str, Fault> {
        std::str::from_utf8(&word.text).map_err(|_| self.invalid(word, "is not UTF-8"))
    }

    pub(crate) fn read<T>(
        &self,
        at: usize,
        read: fn(&str) -> Result<T, value::Wrong>,
    ) -> Result<T, Fault> {
        let word = self.arg(at);
        read(self.text(word)?).map_err(|wrong| self.invalid(word, wrong))
    }

    /// `on` or `off`
    pub fn flag(&self) -> Result<bool, Fault> {
        self.read(0, value::flag)
    }

    /// A number.
    pub fn number(&self, at: usize) -> Result<u64, Fault> {
        self.read(at, value::number)
    }

    /// A number from 1 on that fits.
    pub fn count(&self, at: usize) -> Result<usize, Fault> {
        let number = self.number(at)?;
        let count = usize::try_from(number)
            .ok()
            .filter(|count| *count > 0 && u32::try_from(*count).is_ok());
        count.ok_or_else(|| self.invalid(self.arg(at), "must be from 1 to 4294967295"))
    }

    /// A size.
    pub fn size(&self, at: usize) -> Result<u64, Fault> {
        self.read(at, value::size)
    }

    /// A size that memory is taken for.
    pub fn small_size(&self, at: usize) -> Result<usize, Fault> {
        const SMALL_MAX: u64 = 1 << 30;
        let size = self.size(at)?;
        let size = Some(size).filter(|size| (1..=SMALL_MAX).contains(size));
        size.map(|size| size as usize)
            .ok_or_else(|| self.invalid(self.arg(at), "must be from 1 to 1g"))
    }

    /// A length of time.
    pub fn time(&self, at: usize) -> Result<Duration, Fault> {
        self.read(at, value::time)
    }

    /// A length of time, or none (T2).
    pub fn deadline(&self, at: usize) -> Result<Option<Duration>, Fault> {
        self.read(at, value::deadline)
    }

    /// A value with variables.
    pub fn template(&self, word: &Word, scope: &Scope<'_>) -> Result<Template, Fault> {
        self.template_of(word, &word.text, scope)
    }

    /// A part of a word as a value with variables.
    pub fn template_of(
        &self,
        word: &Word,
        text: &[u8],
        scope: &Scope<'_>,
    ) -> Result<Template, Fault> {
        template(text, &scope.names).map_err(|bad| Fault::at(word, bad.message).help(bad.help))
    }
}

/// What there is around a directive.
#[derive(Debug)]
pub struct Scope<'a> {
    /// What the command line says.
    pub options: &'a Options,
    /// Where spans point.
    pub files: &'a [SourceFile],
    /// What has been found.
    pub reports: &'a mut Reports,
    /// Names that the configuration defines.
    pub names: Names,
    /// `log_format`s by name.
    pub formats: HashMap<String, Arc<LogFormat>>,
    /// Those that are wrong and have been reported.
    pub bad_formats: HashSet<String>,
    /// `limit_req_zone`s and `limit_conn_zone`s; a `ZoneId` is an index here.
    pub zones: Vec<Zone>,
    /// `limit_store_failure`, for the zones that come.
    pub store_failure: StoreFailure,
    /// `ssl_session_ticket_store`
    pub ticket_store: Option<String>,
    /// `acme_store`
    pub acme_store: Option<AcmeStore>,
    /// Groups of servers; an `UpstreamId` is an index here.
    pub upstreams: Vec<UpstreamGroup>,
    /// Folders of cached answers; a `CacheId` is an index here.
    pub caches: Vec<CachePath>,
    /// The names of charsets, and `charset_map`s.
    pub charsets: Charsets,
    /// The names of groups that have a `zone`.
    pub zoned: HashSet<String>,
    /// `match` blocks.
    pub matches: Vec<Arc<MatchRules>>,
    /// Settings of the process.
    pub main: Main,
    /// Where `listen`s of `endpoint` stand.
    pub endpoint_places: Vec<(ListenAddress, Span)>,
    /// Where the addresses of `http_addresses` stand.
    pub http_places: Vec<(ListenAddress, Span)>,
    /// Named locations that are referred to: where, which, and at what level.
    pub named_uses: Vec<NamedUse>,
    /// Names of ignored directives that have been warned about.
    pub warned: HashSet<&'static str>,
    /// The `acme_issuer` that is being read.
    pub issuer: AcmeIssuer,
    /// The `storage` that is being read.
    pub storage: StorageParts,
    /// Those that have been, by their names.
    pub storages: Vec<(String, Chosen)>,
}

/// A reference to a named location.
#[derive(Debug)]
pub struct NamedUse {
    /// The word.
    pub span: Span,
    /// `@name`
    pub name: String,
    /// The server that contains it; `None` at the level of `http`.
    pub server: Option<usize>,
}

impl Scope<'_> {
    /// Keeps a warning.
    pub fn warn(&mut self, span: Span, message: impl Into<String>) {
        self.reports.push(Report::warning(self.files, span, message));
    }

    /// A path, made absolute by the prefix.
    pub fn path(&self, text: &[u8]) -> PathBuf {
        self.options.prefix.join(path_of(text))
    }

    /// A path, made absolute by the folder of the main file, where nginx looks for what belongs to its
    /// configuration.
    pub fn path_beside_main(&self, text: &[u8]) -> PathBuf {
        let main = self.files.iter().find_map(|file| file.path.as_deref());
        let folder = main.and_then(Path::parent).unwrap_or(&self.options.prefix);
        folder.join(path_of(text))
    }
}

/// What a server has beside its settings, inherited from `http`.
#[derive(Clone, Copy, Debug)]
pub struct ServerParts {
    /// `merge_slashes`
    pub merge_slashes: bool,
    /// `large_client_header_buffers`: number and size.
    pub large_buffers: (usize, usize),
    /// `client_header_buffer_size`
    pub header_buffer: usize,
    /// `client_header_fields_max`
    pub fields_max: usize,
    /// `client_header_timeout`
    pub client_header_timeout: Option<Duration>,
    /// `underscores_in_headers`
    pub underscores_in_headers: bool,
    /// `ignore_invalid_headers`
    pub ignore_invalid_headers: bool,
    /// `http2` and what belongs to it.
    pub http2: Http2,
    /// `http3` and what belongs to it.
    pub http3: Http3,
}

impl ServerParts {
    /// The limits of a request head.
    pub fn head_limits(&self) -> HeadLimits {
        // A head that fits the first buffer needs no large one.
        let (number, size) = self.large_buffers;
        HeadLimits {
            line_bytes_max: size.max(self.header_buffer),
            field_bytes_max: size.max(self.header_buffer),
            head_bytes_max: number.saturating_mul(size).max(self.header_buffer),
            fields_max: self.fields_max,
        }
    }
}

/// What `open_file_cache` itself says.
#[derive(Clone, Copy, Debug)]
pub enum CacheKind {
    /// `auto`
    Auto,
    /// `off`
    Off,
    /// `max=` and `inactive=`
    On(usize, Duration),
}

/// `open_file_cache` and its companions before they are put together.
#[derive(Clone, Copy, Debug)]
pub struct CacheParts {
    /// `open_file_cache`
    pub cache: CacheKind,
    /// `open_file_cache_valid`
    pub valid: Duration,
    /// `open_file_cache_min_uses`
    pub min_uses: u32,
    /// `open_file_cache_errors`
    pub errors: bool,
}

impl CacheParts {
    fn put_together(self) -> FileCache {
        match self.cache {
            CacheKind::Auto => FileCache::Auto,
            CacheKind::Off => FileCache::Off,
            CacheKind::On(max, inactive) => FileCache::On {
                max,
                inactive,
                valid: self.valid,
                min_uses: self.min_uses,
                errors: self.errors,
            },
        }
    }
}

/// `cgi` and its companions before they are put together.
#[derive(Clone, Debug)]
pub struct CgiParts {
    /// `cgi`; `None` if it is not set: then only `cgi_pass` and `cgi_extension` run anything.
    pub switch: Option<bool>,
    /// `cgi_pass`
    pub pass: Option<CgiPass>,
    /// Whether this level itself says which, by `cgi_pass` or `cgi pass`.
    pub is_pass_own: bool,
    /// `cgi_max_processes_per_address`; `None` for `auto`, `usize::MAX` for `off`.
    pub max_per_address: Option<usize>,
    /// `cgi_reserved_processes`; `None` for `auto`.
    pub reserved: Option<usize>,
    /// All the rest.
    pub rest: Cgi,
}

impl CgiParts {
    fn put_together(&self) -> Option<Arc<Cgi>> {
        let programs = match (self.switch, &self.pass) {
            (Some(false), _) => return None,
            (_, Some(pass)) => Programs::One(pass.clone()),
            (Some(true), None) => Programs::All,
            (None, None) if self.rest.extensions.is_empty() => return None,
            (None, None) => Programs::ByExtension,
        };
        let max = self.rest.max_processes;
        // One address takes a quarter, and one location leaves an eighth to others, by default.
        let max_per_address = self.max_per_address.unwrap_or(max.div_ceil(4));
        let reserved = self.reserved.unwrap_or(max / 8).min(max - 1);
        Some(Arc::new(Cgi { programs, max_per_address, reserved, ..self.rest.clone() }))
    }
}

/// `dav_methods` and its companions before they are put together.
#[derive(Clone, Debug, Default)]
pub struct FileOpParts {
    /// What goes into the settings as it is.
    pub rest: FileOps,
    /// `upload_resumable`
    pub is_resumable: bool,
    /// `upload_resumable_expires`
    pub resumable_expires: Duration,
}

impl FileOpParts {
    fn put_together(&self) -> Option<Arc<FileOps>> {
        let is_webdav = !self.rest.ext_methods.is_empty();
        if self.rest.methods.is_empty() && self.rest.store.is_none() && !is_webdav {
            return None;
        }
        let resumable = self.is_resumable.then_some(self.resumable_expires);
        let resumable = resumable.filter(|_| self.rest.store.is_some());
        Some(Arc::new(FileOps { resumable, ..self.rest.clone() }))
    }
}

/// Settings of a level that are not inherited as they are.
#[derive(Debug, Default)]
pub struct Own {
    /// `index`
    pub index: Vec<Template>,
    /// `error_page`
    pub error_pages: Vec<ErrorPage>,
    /// `add_header`
    pub add_headers: Vec<AddHeader>,
    /// `add_trailer`
    pub add_trailers: Vec<AddHeader>,
    /// `cgi_extension`
    pub cgi_extensions: Vec<CgiExtension>,
    /// `cgi_set_var`
    pub cgi_variables: Vec<(String, Template)>,
    /// `access_log`
    pub access_logs: Vec<AccessLog>,
    /// `access_log off`
    pub access_log_off: bool,
    /// `error_log`
    pub error_logs: Vec<ErrorLog>,
    /// `types`
    pub types: Types,
    /// `server_name`
    pub server_names: Vec<(ServerName, Span)>,
    /// `listen`
    pub listens: Vec<(ListenLine, Option<Span>)>,
    /// `rewrite`, `set`, `if`, `break` and `return`
    pub steps: Vec<Step>,
    /// Lists of TLS that are set here and so replace inherited ones.
    pub tls_lists: HashSet<&'static str>,
    /// `acme_certificate`
    pub acme: Option<AcmeWish>,
}

/// `acme_certificate` before its issuer is looked up.
#[derive(Debug)]
pub struct AcmeWish {
    /// The issuer's name.
    pub issuer: String,
    /// Where that stands.
    pub span: Span,
    /// The names; none for those of the server.
    pub names: Vec<String>,
    /// `key=`
    pub key: AcmeKey,
}

/// `health_check` before its group and its `match` are looked up.
#[derive(Debug)]
pub struct HealthWish {
    /// When and how often.
    pub settings: sekisho_upstream::health::Settings,
    /// `persistent`
    pub is_persistent: bool,
    /// `uri`
    pub uri: Box<[u8]>,
    /// `port`
    pub port: Option<u16>,
    /// `match`
    pub rules: Option<Box<str>>,
    /// Where it stands.
    pub span: Span,
}

/// A level.
#[derive(Debug)]
pub struct Level {
    /// What kind.
    pub context: Context,
    /// How it matches, if it is a location.
    pub matches: LocationMatch,
    /// Which server it is in.
    pub server: Option<usize>,
    /// What holds.
    pub settings: Settings,
    /// What holds for a server.
    pub parts: ServerParts,
    /// What holds for the file cache.
    pub cache: CacheParts,
    /// `disable_symlinks`, and whether it has `from=$document_root`.
    pub symlinks: (Symlinks, bool),
    /// What holds for CGI programs.
    pub cgi: CgiParts,
    /// What holds for access, links and limits.
    pub guards: Guards,
    /// What holds for filters and requests within requests.
    pub filters: FilterParts,
    /// What holds for uploads and changes.
    pub file_ops: FileOpParts,
    /// How the addresses of clients behind proxies are found.
    pub real_ip: RealIp,
    /// What holds for TLS.
    pub tls: Arc<Tls>,
    /// What holds for requests that are passed on, by their protocol.
    pub forwards: [Arc<Forward>; Family::ALL.len()],
    /// Where requests are passed to.
    pub pass: Option<(Family, PassTo)>,
    /// `root storage:NAME`
    pub storage: Option<Arc<Storage>>,
    /// What holds in `stream`.
    pub stream: StreamSettings,
    /// `health_check`
    pub health: Option<HealthWish>,
    /// The group, within an `upstream`.
    pub group: Option<Box<UpstreamGroup>>,
    /// What it says itself.
    pub own: Own,
    /// The directives of this level, and their first positions.
    pub seen: HashMap<&'static str, Span>,
}

impl Level {
    /// Nothing at all: the ground on which the table's defaults are put.
    pub fn blank() -> Self {
        Self {
            context: Context::Main,
            matches: LocationMatch::Server,
            server: None,
            settings: blank_settings(),
            parts: ServerParts {
                merge_slashes: false,
                large_buffers: (0, 0),
                header_buffer: 0,
                fields_max: 0,
                client_header_timeout: None,
                underscores_in_headers: false,
                ignore_invalid_headers: false,
                http2: Http2 { is_on: false, streams_max: 0, preread_bytes: 0 },
                http3: Http3::default(),
            },
            cache: CacheParts {
                cache: CacheKind::Auto,
                valid: Duration::ZERO,
                min_uses: 0,
                errors: false,
            },
            symlinks: (Symlinks::Follow, false),
            cgi: CgiParts {
                switch: None,
                pass: None,
                is_pass_own: false,
                max_per_address: None,
                reserved: None,
                rest: Cgi::default(),
            },
            guards: Guards::blank(),
            filters: FilterParts::default(),
            file_ops: FileOpParts::default(),
            real_ip: RealIp::new(Arc::default(), RealIpSource::ProxyHeader, false),
            tls: Arc::default(),
            forwards: Family::ALL.map(|family| Arc::new(Forward::of(family))),
            pass: None,
            storage: None,
            stream: StreamSettings::default(),
            health: None,
            group: None,
            own: Own::default(),
            seen: HashMap::new(),
        }
    }

    /// A level within this one, which must be finished.
    #[must_use]
    pub fn child(&self, context: Context, matches: LocationMatch) -> Self {
        let mut settings = self.settings.clone();
        // These hold only at their own level: in nginx their modules have no merge function (`try_files`), do
        // not merge the member (`limit_except`, the script), or set a content handler, which is never
        // inherited (`stub_status`). Everything else, `internal` included, is inherited.
        settings.try_files = None;
        settings.status = None;
        settings.service = None;
        settings.rewriting.script = None;
        settings.limit_except = None;
        settings.pass = None;
        // In an `if` the content handler is that of the location around it.
        let pass = self.pass.clone().filter(|_| context == Context::LocationIf);
        Self {
            context,
            matches,
            server: self.server,
            settings,
            parts: self.parts,
            cache: self.cache,
            symlinks: self.symlinks,
            cgi: CgiParts { is_pass_own: false, ..self.cgi.clone() },
            guards: self.guards.handed_down(),
            filters: self.filters.handed_down(),
            file_ops: self.file_ops.clone(),
            real_ip: self.real_ip.clone(),
            tls: Arc::clone(&self.tls),
            forwards: self.forwards.clone(),
            pass,
            storage: self.storage.clone(),
            stream: self.stream.clone(),
            health: None,
            group: None,
            own: Own::default(),
            seen: HashMap::new(),
        }
    }

    /// What holds for requests that are passed on in this protocol.
    pub fn forward(&mut self, family: Family) -> &mut Forward {
        Arc::make_mut(&mut self.forwards[family as usize])
    }

    /// Whether a directive of this name stands here.
    pub fn says(&self, name: &str) -> bool {
        self.seen.contains_key(name)
    }

    /// Lists that were set here replace inherited ones, as in nginx.
    pub fn finish(&mut self) {
        let own = std::mem::take(&mut self.own);
        let settings = &mut self.settings;
        if self.seen.contains_key("index") {
            settings.index = own.index.into();
        }
        if self.seen.contains_key("error_page") {
            settings.error_pages = own.error_pages.into();
        }
        if self.seen.contains_key("add_header") {
            settings.add_headers = own.add_headers.into();
        }
        if self.seen.contains_key("add_trailer") {
            settings.add_trailers = own.add_trailers.into();
        }
        if self.seen.contains_key("access_log") {
            let logs = if own.access_log_off { Vec::new() } else { own.access_logs };
            settings.access_logs = logs.into();
        }
        if self.seen.contains_key("error_log") {
            settings.error_logs = own.error_logs.into();
        }
        if self.seen.contains_key("types") {
            settings.types = Arc::new(own.types);
        }
        if self.seen.contains_key("cgi_extension") {
            self.cgi.rest.extensions = own.cgi_extensions.into();
        }
        if self.seen.contains_key("cgi_set_var") {
            self.cgi.rest.variables = own.cgi_variables.into();
        }
        // An alias of a regular expression is the whole file name, and so is `$document_root`: from there on
        // nothing is left to judge.
        let is_file = matches!(self.matches, LocationMatch::Regex(_))
            && matches!(settings.path_mapping, PathMapping::Alias(_));
        settings.disable_symlinks = match self.symlinks {
            (_, true) if is_file => Symlinks::Follow,
            (policy, _) => policy,
        };
        settings.open_file_cache = self.cache.put_together();
        settings.cgi = self.cgi.put_together();
        self.filters.finish(settings);
        self.guards.finish(settings, self.filters.auth_request());
        settings.file_ops = self.file_ops.put_together();
        settings.pass = self.pass.clone().map(|(family, to)| {
            let location = match &self.matches {
                LocationMatch::Exact(path) | LocationMatch::Prefix { path, .. } => path.as_slice(),
                _ => &[],
            };
            let forward = Arc::clone(&self.forwards[family as usize]);
            Arc::new(Pass { family, to, location: location.into(), forward, storage: None })
        });
        if let (None, Some(storage)) = (&settings.pass, &self.storage) {
            let caching = &self.forwards[Family::Proxy as usize].caching;
            settings.pass = Some(Arc::new(Pass::to_storage(storage).cached_as(caching)));
        }
        settings.stream =
            (self.context == Context::StreamServer).then(|| Arc::new(self.stream.clone()));
        let has_proxies = !(self.real_ip.from.is_empty() && self.real_ip.hosts.is_empty());
        settings.real_ip = has_proxies.then(|| Arc::new(self.real_ip.clone()));
        self.own = Own {
            server_names: own.server_names,
            acme: own.acme,
            listens: own.listens,
            steps: own.steps,
            ..Own::default()
        };
    }
}
