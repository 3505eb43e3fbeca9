//! Access and limits: addresses, passwords, signed links, rates and connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::{Method, Status};

use super::{AuthRequest, Level, LocationId, Pattern, Template};

/// Which clients are admitted: `allow`, `deny`, `auth_basic` and their companions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// `allow` and `deny`, in their order: the first that matches decides.
    pub rules: Arc<[AddressRule]>,
    /// `auth_basic` with its `auth_basic_user_file`.
    pub password: Option<PasswordRule>,
    /// `auth_request`
    pub auth_request: Option<Arc<AuthRequest>>,
    /// `satisfy any`: one of them is enough.
    pub is_any_enough: bool,
    /// `auth_delay`: how long a refusal for a missing or wrong password waits.
    pub delay: Option<Duration>,
}

/// `allow` or `deny`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRule {
    /// Whether it lets in.
    pub allows: bool,
    /// The addresses.
    pub who: AddressMatch,
}

/// The addresses of an [`AddressRule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressMatch {
    /// `all`
    All,
    /// `unix:`: clients of Unix sockets.
    Unix,
    /// The IPv4 addresses that agree with `address` where `mask` has ones.
    V4 {
        /// The address, its masked bits only.
        address: u32,
        /// The mask.
        mask: u32,
    },
    /// The same for IPv6.
    V6 {
        /// The address, its masked bits only.
        address: u128,
        /// The mask.
        mask: u128,
    },
}

impl AddressMatch {
    /// This address and no other.
    pub fn one(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4 { address: address.to_bits(), mask: u32::MAX },
            IpAddr::V6(address) => Self::V6 { address: address.to_bits(), mask: u128::MAX },
        }
    }

    /// Whether a client is meant; `None` is one of a Unix socket. An IPv4 address that comes as an IPv6 one
    /// is an IPv4 address.
    pub fn is_meant(self, client: Option<IpAddr>) -> bool {
        match (self, client.map(|client| client.to_canonical())) {
            (Self::All, _) | (Self::Unix, None) => true,
            (Self::V4 { address, mask }, Some(IpAddr::V4(client))) => {
                client.to_bits() & mask == address
            }
            (Self::V6 { address, mask }, Some(IpAddr::V6(client))) => {
                client.to_bits() & mask == address
            }
            _ => false,
        }
    }
}

/// `auth_basic` where it asks for a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PasswordRule {
    /// The realm; if its value is `off`, no password is asked for.
    pub realm: Arc<Template>,
    /// `auth_basic_user_file`
    pub file: Arc<UserFile>,
}

/// `auth_basic_user_file`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserFile {
    /// The path; absolute unless a variable begins it.
    pub path: Template,
    /// Where it begins if it turns out to be relative; ends with a slash.
    pub folder: Vec<u8>,
}

/// `limit_except`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitExcept {
    /// The methods for which the location's own access holds.
    pub methods: Arc<[Method]>,
    /// What holds for all others.
    pub access: Option<Arc<Access>>,
    /// Where their requests are passed on, if the block says so itself.
    pub passes: Option<LocationId>,
}

/// What `$invalid_referer` and `$secure_link` are made of.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// `valid_referers`
    pub referers: Option<Arc<Referers>>,
    /// `secure_link` and its companions.
    pub signature: Option<Signature>,
}

/// `valid_referers`
#[derive(Clone, Debug, Default)]
pub struct Referers {
    /// `none`: no `Referer` is fine.
    pub none: bool,
    /// `blocked`: so is one that is no http or https address.
    pub blocked: bool,
    /// `server_names`: those of the server.
    pub server_names: bool,
    /// Host names in lower case, each with the beginning of the path that is asked for.
    pub exact: Vec<(Vec<u8>, Vec<u8>)>,
    /// `*.example.org` as `.example.org`, longest first.
    pub leading: Vec<(Vec<u8>, Vec<u8>)>,
    /// `www.example.*` as `www.example.`, longest first.
    pub trailing: Vec<(Vec<u8>, Vec<u8>)>,
    /// `~…`: for what follows the scheme.
    pub patterns: Vec<Arc<Pattern>>,
}

impl Referers {
    /// The same with the longest wildcards first.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        for names in [&mut self.leading, &mut self.trailing] {
            names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        }
        self
    }

    /// Whether it names any host, so that there is something to compare a `Referer` with.
    pub fn names_any(&self) -> bool {
        self.server_names
            || !self.patterns.is_empty()
            || [&self.exact, &self.leading, &self.trailing].iter().any(|names| !names.is_empty())
    }
}

/// How a link is signed.
#[derive(Clone, Debug)]
pub enum Signature {
    /// `secure_link` and `secure_link_md5`
    Value {
        /// Signature and, after a comma, the time until which it holds.
        value: Arc<Template>,
        /// What the signature is the MD5 of.
        signed: Arc<Template>,
    },
    /// `secure_link_secret`
    Secret(Arc<[u8]>),
}

/// An index into [`Http::zones`](super::Http::zones).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u32);

/// `limit_req_zone` or `limit_conn_zone`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// The key; a request whose key is empty is not limited.
    pub key: Template,
    /// How large it may become.
    pub bytes: u64,
    /// What is counted.
    pub kind: ZoneKind,
    /// Where several servers count together, if they do.
    pub store: Option<ZoneStore>,
}

/// `store=` of a zone, with `limit_store_failure`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneStore {
    /// Where it is.
    pub url: String,
    /// What counts while it is away.
    pub failure: StoreFailure,
}

/// `limit_store_failure`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreFailure {
    /// This server's own count.
    #[default]
    Local,
    /// Nothing: requests pass.
    Allow,
    /// Requests are refused.
    Deny,
}

/// What a [`Zone`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Requests in a time.
    Rate(Rate),
    /// Requests that are being worked on.
    Connections,
}

/// So many requests in so many seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How many requests; at least one.
    pub requests: u32,
    /// In how many seconds; at least one.
    pub secs: u32,
}

/// How fast, and how much at once: `limit_req`, `limit_conn` and their companions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `limit_req`
    pub rates: Arc<[RateLimit]>,
    /// What is done at its bound.
    pub rate_bound: Bound,
    /// `limit_conn`
    pub connections: Arc<[ConnectionLimit]>,
    /// What is done at its bound.
    pub connection_bound: Bound,
}

/// What is done at a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// `limit_req_status`, `limit_conn_status`
    pub status: Status,
    /// `limit_req_log_level`, `limit_conn_log_level`
    pub level: Level,
    /// `limit_req_dry_run`, `limit_conn_dry_run`: it is only logged.
    pub is_dry_run: bool,
}

/// One `limit_req`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Where it is counted.
    pub zone: ZoneId,
    /// The zone's.
    pub rate: Rate,
    /// `burst=`, in thousandths of a request.
    pub burst: u64,
    /// `delay=`, in thousandths of a request: from where on requests wait. `None` for `nodelay`.
    pub delay_from: Option<u64>,
}

/// One `limit_conn`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimit {
    /// Where it is counted.
    pub zone: ZoneId,
    /// How many at once.
    pub max: u32,
}
