//! The environment of a program (RFC 3875 §4.1, C8): built from nothing. What a client sends can only
//! become a variable whose name begins with `HTTP_`, and never one that changes what a program does of
//! itself.

use std::ffi::CStr;

use sekisho_config::{Cgi, Variable};
use sekisho_http::{Head, Known};
use sekisho_route::{Request, RouteState, Table, expand, push_variable};

/// Fields that become no variable: what `Proxy` would do (httpoxy), what has a variable of its own, and
/// what is between the client and this server alone.
const NOT_PASSED_ON: [&str; 11] = [
    "proxy",
    "content-length",
    "content-type",
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Variables as `execve` wants them: `NAME=value`, each ended by NUL. Used again, its storage stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment {
    bytes: Vec<u8>,
    /// Where each begins.
    starts: Vec<usize>,
}

impl Environment {
    /// All variables one behind the other, each ended by NUL.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each begins in [`Environment::bytes`].
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Each `NAME=value`.
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.starts
            .iter()
            .filter_map(|start| CStr::from_bytes_until_nul(&self.bytes[*start..]).ok())
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find_map(|one| one.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    /// An empty one with room for what is usual.
    pub fn with_room() -> Self {
        Self { bytes: Vec::with_capacity(2048), starts: Vec::with_capacity(48) }
    }

    /// Adds a variable that is the server's own.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.push(name.as_bytes(), |out| out.extend_from_slice(value));
    }

    /// Says how long the body is, once that is known: for a body that had to be gathered first (C7).
    pub fn set_content_length(&mut self, bytes: u64) {
        // What the configuration says stays.
        if self.get("CONTENT_LENGTH").is_some() {
            return;
        }
        self.add("CONTENT_LENGTH", itoa::Buffer::new().format(bytes).as_bytes());
    }

    /// Adds a variable whose value `write` appends. One with a NUL in it is left out.
    fn push(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.push(b'=');
        write(&mut self.bytes);
        if memchr::memchr(0, &self.bytes[start..]).is_some() {
            self.bytes.truncate(start);
            return;
        }
        self.bytes.push(0);
        self.starts.push(start);
    }
}

/// The user of a request, if verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authenticated<'a> {
    /// `AUTH_TYPE`, such as `Basic`.
    pub scheme: &'a str,
    /// `REMOTE_USER`
    pub user: &'a [u8],
}

/// What the environment is made of.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The routing table.
    pub table: &'a Table,
    /// The request.
    pub request: &'a Request<'a>,
    /// What was decided: an [`Action::Cgi`](sekisho_route::Action::Cgi).
    pub route_state: &'a RouteState,
    /// Whether the program gets a body.
    pub has_body: bool,
    /// How long it is, where that is known already.
    pub body_bytes: Option<u64>,
    /// `SERVER_SOFTWARE`
    pub software: &'a str,
    /// The user, if this server itself has verified it: a name that a client merely claims is none.
    pub user: Option<Authenticated<'a>>,
}

/// Writes the environment for a program over what `out` holds.
pub fn environment(facts: &Facts<'_>, out: &mut Environment) {
    out.clear();
    let cgi = facts.table.location(facts.route_state.location).settings.cgi.as_deref();
    let mut writer = Writer { facts, cgi, out };
    writer.server();
    writer.request();
    writer.program();
    writer.fields();
    writer.configured();
}

struct Writer<'a> {
    facts: &'a Facts<'a>,
    cgi: Option<&'a Cgi>,
    out: &'a mut Environment,
}

impl Writer<'_> {
    fn server(&mut self) {
        self.text("GATEWAY_INTERFACE", b"CGI/1.1");
        self.text("SERVER_SOFTWARE", self.facts.software.as_bytes());
        let version = self.facts.request.head.version();
        self.text("SERVER_PROTOCOL", version.as_str().as_bytes());
        let connection = self.facts.request.connection;
        self.variable("SERVER_ADDR", &Variable::ServerAddr);
        match connection.local {
            Some(_) => self.variable("SERVER_PORT", &Variable::ServerPort),
            // A Unix socket has none; the variable must be there.
            None => self.text("SERVER_PORT", if connection.is_tls { b"443" } else { b"80" }),
        }
        // The host that was asked for, which has been checked; else what the configuration calls it.
        if !self.facts.route_state.host.is_empty() {
            self.text("SERVER_NAME", &self.facts.route_state.host);
        } else if self.facts.table.server(self.facts.route_state.server).names.is_empty() {
            self.variable("SERVER_NAME", &Variable::ServerAddr);
        } else {
            self.variable("SERVER_NAME", &Variable::ServerName);
        }
        self.variable("REQUEST_SCHEME", &Variable::Scheme);
        if connection.is_tls {
            self.text("HTTPS", b"on");
        }
        if let Some(cgi) = self.cgi {
            self.text("PATH", &cgi.path);
        }
    }

    fn request(&mut self) {
        let Facts { request, route_state, has_body, body_bytes, user, .. } = *self.facts;
        self.variable("REMOTE_ADDR", &Variable::RemoteAddr);
        // No name is looked up; RFC 3875 §4.1.9 allows the address instead.
        self.variable("REMOTE_HOST", &Variable::RemoteAddr);
        if route_state.client(request.connection).is_some_and(|client| client.port() > 0) {
            self.variable("REMOTE_PORT", &Variable::RemotePort);
        }
        self.variable("REQUEST_METHOD", &Variable::RequestMethod);
        self.variable("REQUEST_URI", &Variable::RequestUri);
        self.variable("DOCUMENT_URI", &Variable::DocumentUri);
        self.text("QUERY_STRING", &route_state.query);
        if let Some(user) = user {
            self.text("AUTH_TYPE", user.scheme.as_bytes());
            self.text("REMOTE_USER", user.user);
        }
        if let Some(bytes) = body_bytes {
            self.text("CONTENT_LENGTH", itoa::Buffer::new().format(bytes).as_bytes());
        }
        if has_body && let Some(media_type) = request.head.known(Known::ContentType) {
            self.text("CONTENT_TYPE", media_type);
        }
    }

    fn program(&mut self) {
        let route_state = self.facts.route_state;
        self.text("SCRIPT_FILENAME", &route_state.file);
        self.text("SCRIPT_NAME", route_state.script_name());
        self.variable("DOCUMENT_ROOT", &Variable::DocumentRoot);
        let info = route_state.path_info();
        if !info.is_empty() {
            self.text("PATH_INFO", info);
            let Facts { table, request, route_state, .. } = *self.facts;
            self.write("PATH_TRANSLATED", |out| {
                push_variable(&Variable::DocumentRoot, table, request, route_state, out);
                if out.last() == Some(&b'/') {
                    out.pop();
                }
                out.extend_from_slice(info);
            });
        }
        // php-cgi runs nothing without it.
        self.text("REDIRECT_STATUS", b"200");
    }

    /// `HTTP_*`: the fields of the request, those of one name together.
    fn fields(&mut self) {
        let head = self.facts.request.head;
        let is_authorized = self.cgi.is_some_and(|cgi| cgi.pass_authorization);
        http_variables(head, is_authorized, |name, values| {
            self.write_named(name, |out| values.write(out));
        });
    }

    /// `cgi_set_var`
    fn configured(&mut self) {
        let Facts { table, request, route_state, .. } = *self.facts;
        let Some(cgi) = self.cgi else { return };
        for (name, value) in cgi.variables.iter() {
            self.out.push(name.as_bytes(), |out| {
                expand(value, table, request, route_state, None, out);
            });
        }
    }

    fn text(&mut self, name: &str, value: &[u8]) {
        self.write(name, |out| out.extend_from_slice(value));
    }

    fn variable(&mut self, name: &str, variable: &Variable) {
        let Facts { table, request, route_state, .. } = *self.facts;
        self.write(name, |out| push_variable(variable, table, request, route_state, out));
    }

    fn write(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.write_named(name.as_bytes(), write);
    }

    /// Adds a variable unless the configuration has one of that name.
    fn write_named(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let is_configured =
            |cgi: &Cgi| cgi.variables.iter().any(|(known, _)| known.as_bytes() == name);
        if !self.cgi.is_some_and(is_configured) {
            self.out.push(name, write);
        }
    }
}

/// The values of one field, which may have come more than once.
pub(crate) struct Values<'a> {
    fields: &'a [(&'a [u8], &'a [u8])],
    separator: &'a [u8],
}

impl Values<'_> {
    /// Appends them, as one value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (at, (_, value)) in self.fields.iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(self.separator);
            }
            out.extend_from_slice(value);
        }
    }
}

/// `HTTP_*`: gives each field of a request that becomes a variable to `take`, those of one name together.
pub(crate) fn http_variables(
    head: &Head,
    is_authorized: bool,
    mut take: impl FnMut(&[u8], Values<'_>),
) {
    let mut fields: Vec<(&[u8], &[u8])> =
        head.fields().filter(|(name, _)| is_passed_on(name, is_authorized)).collect();
    fields.sort_by(|(one, _), (other, _)| {
        let lower = u8::to_ascii_lowercase;
        one.iter().map(lower).cmp(other.iter().map(lower))
    });
    let mut variable = Vec::new();
    for group in fields.chunk_by(|a, b| a.0.eq_ignore_ascii_case(b.0)) {
        let name = group[0].0;
        variable.clear();
        variable.extend_from_slice(b"HTTP_");
        // Only letters, digits and `-` are left, so no two names become one.
        let upper = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        variable.extend(name.iter().map(upper));
        let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
        take(&variable, Values { fields: group, separator });
    }
}

/// Whether a field becomes a variable. A name with anything but letters, digits and `-` does not: `_`
/// would be taken for `-`, and the rest is no name for a variable.
fn is_passed_on(name: &[u8], is_authorized: bool) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && !NOT_PASSED_ON.iter().any(|known| is(known))
        && (is_authorized || !(is("authorization") || is("proxy-authorization")))
}
