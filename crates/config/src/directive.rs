//! The one table of directives. It drives parsing, checking, defaults, inheritance and the reference:
//! what is not in it does not exist, and what it says of a default is what is applied.

mod access;
pub(crate) mod acme;
pub(crate) mod answers;
pub(crate) mod cache;
mod cgi;
mod changed_fields;
mod cluster;
mod compression;
mod endpoint;
mod file_ops;
mod files;
mod filters;
mod forward;
mod gateway;
mod heads;
pub(crate) mod health;
mod http2;
mod http3;
pub(crate) mod limits;
mod listing;
pub(crate) mod logs;
mod manners;
mod not_built;
mod privilege;
mod process;
pub mod proxy;
mod real_ip;
mod resolver;
pub(crate) mod rewrite;
mod status;
mod sticky;
pub(crate) mod storage;
mod stream;
mod tls;
mod unneeded;
mod upstream;
mod upstream_tls;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::level::{Directive, Fault, Level, Scope};
use crate::model::TempFolder;

/// A kind of block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Outside every block.
    Main,
    /// `events`
    Events,
    /// `endpoint`
    Endpoint,
    /// `cluster`
    Cluster,
    /// `acme_issuer`
    Acme,
    /// `storage`
    Storage,
    /// `http`
    Http,
    /// `server`
    Server,
    /// `upstream`
    Upstream,
    /// `location`
    Location,
    /// `limit_except`
    LimitExcept,
    /// `if` within a `server`
    ServerIf,
    /// `if` within a `location`
    LocationIf,
    /// `stream`
    Stream,
    /// `server` within `stream`
    StreamServer,
    /// `upstream` within `stream`
    StreamUpstream,
}

impl Context {
    /// Every kind, the outermost first.
    pub const ALL: [Self; 16] = [
        Self::Main,
        Self::Events,
        Self::Endpoint,
        Self::Cluster,
        Self::Acme,
        Self::Http,
        Self::Storage,
        Self::Upstream,
        Self::Server,
        Self::ServerIf,
        Self::Location,
        Self::LocationIf,
        Self::LimitExcept,
        Self::Stream,
        Self::StreamUpstream,
        Self::StreamServer,
    ];

    /// As the block is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Events => "events",
            Self::Endpoint => "endpoint",
            Self::Cluster => "cluster",
            Self::Acme => "acme_issuer",
            Self::Storage => "storage",
            Self::Http => "http",
            Self::Server => "server",
            Self::Upstream => "upstream",
            Self::Location => "location",
            Self::LimitExcept => "limit_except",
            Self::ServerIf => "if in server",
            Self::LocationIf => "if in location",
            Self::Stream => "stream",
            Self::StreamServer => "server in stream",
            Self::StreamUpstream => "upstream in stream",
        }
    }
}

/// A set of contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contexts(u16);

impl Contexts {
    const fn of(contexts: &[Context]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < contexts.len() {
            bits |= 1 << contexts[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// These and those.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this context is one of them.
    pub const fn contains(self, context: Context) -> bool {
        self.0 & (1 << context as u8) != 0
    }

    /// `http, server, location`
    pub fn names(self) -> String {
        let names: Vec<_> = Context::ALL
            .into_iter()
            .filter(|context| self.contains(*context))
            .map(Context::name)
            .collect();
        names.join(", ")
    }
}

const MAIN: Contexts = Contexts::of(&[Context::Main]);
const EVENTS: Contexts = Contexts::of(&[Context::Events]);
const ENDPOINT: Contexts = Contexts::of(&[Context::Endpoint]);
const CLUSTER: Contexts = Contexts::of(&[Context::Cluster]);
const ACME: Contexts = Contexts::of(&[Context::Acme]);
const STORAGE: Contexts = Contexts::of(&[Context::Storage]);
const HTTP: Contexts = Contexts::of(&[Context::Http]);
const SERVER: Contexts = Contexts::of(&[Context::Server]);
const LOCATION: Contexts = Contexts::of(&[Context::Location]);
const UPSTREAM: Contexts = Contexts::of(&[Context::Upstream]);
const STREAM: Contexts = Contexts::of(&[Context::Stream]);
const STREAM_SERVER: Contexts = Contexts::of(&[Context::StreamServer]);
/// Where most settings of `stream` may stand.
const STREAM_LEVELS: Contexts = Contexts::of(&[Context::Stream, Context::StreamServer]);
/// Both kinds of groups.
const UPSTREAMS: Contexts = Contexts::of(&[Context::Upstream, Context::StreamUpstream]);
/// What a block of servers defines for all of them.
const HTTP_STREAM: Contexts = Contexts::of(&[Context::Http, Context::Stream]);
/// Where requests are passed to another server.
/// Where requests may be passed on.
const PASSES: Contexts =
    Contexts::of(&[Context::Location, Context::LocationIf, Context::LimitExcept]);
const HTTP_SERVER: Contexts = Contexts::of(&[Context::Http, Context::Server]);
const SERVER_LOCATION: Contexts = Contexts::of(&[Context::Server, Context::Location]);
const EVERYWHERE: Contexts = Contexts::of(&Context::ALL);
/// Where most settings may stand.
const LEVELS: Contexts = Contexts::of(&[Context::Http, Context::Server, Context::Location]);
/// The same and `if` in a location.
const LEVELS_IF: Contexts =
    Contexts::of(&[Context::Http, Context::Server, Context::Location, Context::LocationIf]);
/// Where scripts may stand.
const SCRIPTS: Contexts =
    Contexts::of(&[Context::Server, Context::ServerIf, Context::Location, Context::LocationIf]);
const LEVELS_LIMIT_EXCEPT: Contexts =
    Contexts::of(&[Context::Http, Context::Server, Context::Location, Context::LimitExcept]);
const MAIN_LEVELS: Contexts =
    Contexts::of(&[Context::Main, Context::Http, Context::Server, Context::Location]);

/// Whether a directive ends with `;` or has a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// `;`
    None,
    /// A block of directives.
    Block(Context),
    /// A block whose lines are not directives.
    Entries,
}

/// What becomes of a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It works.
    Active,
    /// Accepted; it would change nothing here.
    Silent,
    /// Accepted with a warning: ignoring it is harmless.
    Warned,
    /// An error: ignoring it would change what the configuration means.
    NotBuilt,
}

/// Puts a directive into effect.
pub type Apply = fn(&mut Level, &Directive<'_>, &mut Scope<'_>) -> Result<(), Fault>;

/// One directive.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub contexts: Contexts,
    /// Its arguments: `word`, `[optional]`, and `...` where the word before may be repeated.
    pub form: &'static str,
    /// The default value; empty if there is none.
    pub default: &'static str,
    /// One line for the reference.
    pub doc: &'static str,
    /// What becomes of it.
    pub status: Status,
    /// Whether it has a block.
    pub body: Body,
    /// Whether it may occur more than once in a block.
    pub repeats: bool,
    /// Puts it into effect.
    pub apply: Apply,
}

impl Row {
    /// Whether so many arguments are right.
    pub fn takes(&self, count: usize) -> bool {
        let (mut least, mut most) = (0, 0);
        for word in self.form.split_ascii_whitespace() {
            match word {
                "..." => most = usize::MAX,
                _ if word.starts_with('[') => most = most.saturating_add(1),
                _ => (least, most) = (least + 1, most.saturating_add(1)),
            }
        }
        (least..=most).contains(&count)
    }

    const fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }

    const fn once(self) -> Self {
        Self { repeats: false, ..self }
    }

    /// The same, and in `stream` and its servers too.
    const fn in_stream(self) -> Self {
        Self { contexts: self.contexts.and(STREAM_LEVELS), ..self }
    }

    const fn with_body(self, body: Body) -> Self {
        Self { body, ..self }
    }
}

/// Every row, grouped as the reference shows them.
pub const GROUPS: &[(&str, &[Row])] = &[
    ("Process", process::ROWS),
    ("Privileges", privilege::ROWS),
    ("Servers, locations and answers", answers::ROWS),
    ("Rewriting", rewrite::ROWS),
    ("Files", files::ROWS),
    ("Object storage", storage::ROWS),
    ("Listings", listing::ROWS),
    ("Uploads and changes", file_ops::ROWS),
    ("CGI programs", cgi::ROWS),
    ("Groups of servers", upstream::ROWS),
    ("Clients that come back", sticky::ROWS),
    ("Checks of servers", health::ROWS),
    ("Names", resolver::ROWS),
    ("Proxying", proxy::ROWS),
    ("Proxying: servers and time", forward::PROXY),
    ("Proxying: buffers", forward::PROXY_BUFFERS),
    ("Proxying: TLS to servers", upstream_tls::PROXY),
    ("Proxying: caches", cache::PROXY),
    ("Proxying: caches and HEAD", cache::CONVERT_HEAD),
    ("FastCGI", gateway::FASTCGI),
    ("FastCGI: servers and time", forward::FASTCGI),
    ("FastCGI: buffers", forward::FASTCGI_BUFFERS),
    ("FastCGI: caches", cache::FASTCGI),
    ("SCGI", gateway::SCGI),
    ("SCGI: servers and time", forward::SCGI),
    ("SCGI: buffers", forward::SCGI_BUFFERS),
    ("SCGI: caches", cache::SCGI),
    ("uwsgi", gateway::UWSGI),
    ("uwsgi: servers and time", forward::UWSGI),
    ("uwsgi: buffers", forward::UWSGI_BUFFERS),
    ("uwsgi: TLS to servers", upstream_tls::UWSGI),
    ("uwsgi: caches", cache::UWSGI),
    ("gRPC", proxy::GRPC),
    ("gRPC: servers and time", forward::GRPC),
    ("gRPC: TLS to servers", upstream_tls::GRPC),
    ("TCP and UDP", stream::ROWS),
    ("Access", access::ROWS),
    ("Clients behind proxies", real_ip::ROWS),
    ("Rates and places", limits::ROWS),
    ("Response heads", heads::ROWS),
    ("Response heads: changes", changed_fields::ROWS),
    ("Compression", compression::ROWS),
    ("Requests within a request", filters::SUBREQUESTS),
    ("Filters of bodies", filters::BODIES),
    ("Cookies that tell clients apart", filters::USERID),
    ("Connections, bodies and deadlines", manners::ROWS),
    ("TLS", tls::ROWS),
    ("Automatic certificates", acme::ROWS),
    ("HTTP/2", http2::ROWS),
    ("HTTP/3", http3::ROWS),
    ("Logs", logs::ROWS),
    ("Status pages", status::ROWS),
    ("The native endpoint", endpoint::ROWS),
    ("Several servers as one", cluster::ROWS),
    ("Accepted without effect", unneeded::ROWS),
    ("Not built yet", not_built::ROWS),
];

static BY_NAME: LazyLock<HashMap<&'static str, Vec<&'static Row>>> = LazyLock::new(|| {
    let mut map: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows() {
        map.entry(row.name).or_default().push(row);
    }
    map
});

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|(_, rows)| rows.iter())
}

/// The rows of this name: none if it is unknown, more than one if it means different things in
/// different contexts.
pub fn by_name(name: &[u8]) -> &'static [&'static Row] {
    let name = std::str::from_utf8(name).ok();
    name.and_then(|name| BY_NAME.get(name)).map(Vec::as_slice).unwrap_or_default()
}

const fn active(
    name: &'static str,
    contexts: Contexts,
    form: &'static str,
    default: &'static str,
    doc: &'static str,
    apply: Apply,
) -> Row {
    let (status, body, repeats) = (Status::Active, Body::None, false);
    Row { name, contexts, form, default, doc, status, body, repeats, apply }
}

/// A block whose meaning is in the walk over the tree, not in its row.
const fn block(
    name: &'static str,
    contexts: Contexts,
    form: &'static str,
    inside: Context,
    doc: &'static str,
) -> Row {
    active(name, contexts, form, "", doc, nothing).with_body(Body::Block(inside)).repeated()
}

/// A folder for temporary files, by its first argument.
fn temp_folder(directive: &Directive<'_>, scope: &Scope<'_>) -> TempFolder {
    let path = scope.path(&directive.arg(0).text).into();
    TempFolder { path, is_default: directive.is_default }
}

const fn silent(
    name: &'static str,
    contexts: Contexts,
    form: &'static str,
    doc: &'static str,
) -> Row {
    Row { status: Status::Silent, repeats: true, ..active(name, contexts, form, "", doc, nothing) }
}

const fn warned(
    name: &'static str,
    contexts: Contexts,
    form: &'static str,
    doc: &'static str,
) -> Row {
    Row { status: Status::Warned, ..silent(name, contexts, form, doc) }
}

const fn not_built(name: &'static str, doc: &'static str) -> Row {
    Row { status: Status::NotBuilt, ..silent(name, MAIN_LEVELS, "[argument] ...", doc) }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every apply function")]
fn nothing(_: &mut Level, _: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    Ok(())
}

/// Puts a value where it belongs, if it is one.
fn set<T>(slot: &mut T, value: Result<T, Fault>) -> Result<(), Fault> {
    *slot = value?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_says_how_many_arguments_there_are() {
        let row = |form| active("x", MAIN, form, "", "", nothing);
        for (form, count, expected) in [
            ("", 0, true),
            ("", 1, false),
            ("on|off", 1, true),
            ("on|off", 2, false),
            ("time [header]", 1, true),
            ("time [header]", 2, true),
            ("time [header]", 3, false),
            ("file ... fallback", 1, false),
            ("file ... fallback", 9, true),
            ("[argument] ...", 0, true),
            ("[argument] ...", 9, true),
        ] {
            assert_eq!(row(form).takes(count), expected, "{form} {count}");
        }
    }

    #[test]
    fn no_directive_stands_twice_for_one_context() {
        for rows in BY_NAME.values() {
            for (at, row) in rows.iter().enumerate() {
                for other in &rows[at + 1..] {
                    assert_eq!(row.contexts.0 & other.contexts.0, 0, "{}", row.name);
                }
            }
        }
    }

    #[test]
    fn every_row_is_described() {
        for row in rows() {
            assert!(!row.doc.is_empty() && !row.doc.ends_with('.'), "{}", row.name);
        }
    }
}
