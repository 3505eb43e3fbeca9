//! What a line of the error log says about the request that it is about, in nginx's order, so that programs that read
//! nginx's logs read ours: client, server, request, upstream, host, referrer. The id of the request comes last.

use std::fmt;
use std::net::SocketAddr;

use sekisho_config::{Server, ServerName};
use sekisho_http::{Head, Known, Version};
use sekisho_route::RequestIdSeed;

/// The client's address.
pub(crate) struct Client(pub(crate) Option<SocketAddr>);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "client: {}", address.ip()),
            None => f.write_str("client: unix:"),
        }
    }
}

/// The whole of it.
pub(crate) struct ErrorContext<'a> {
    pub(crate) client: Option<SocketAddr>,
    pub(crate) server: &'a Server,
    pub(crate) request: RequestText<'a>,
    pub(crate) upstream: Option<fmt::Arguments<'a>>,
    /// `None` where a line has to end as nginx's does.
    pub(crate) id: Option<RequestIdSeed>,
}

impl fmt::Display for ErrorContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestText { method, target, version, host, referrer } = self.request;
        write!(f, "{}, server: ", Client(self.client))?;
        write_name(self.server.names.first(), f)?;
        if !method.is_empty() {
            let (method, target) = (method.escape_ascii(), target.escape_ascii());
            write!(f, ", request: \"{method} {target} {}\"", version.as_str())?;
        } else if !target.is_empty() {
            write!(f, ", request: \"{}\"", target.escape_ascii())?;
        }
        if let Some(upstream) = self.upstream {
            write!(f, ", upstream: \"{upstream}\"")?;
        }
        if let Some(host) = host {
            write!(f, ", host: \"{}\"", host.escape_ascii())?;
        }
        if let Some(referrer) = referrer {
            write!(f, ", referrer: \"{}\"", referrer.escape_ascii())?;
        }
        match self.id {
            Some(RequestIdSeed(id)) => write!(f, ", request id: {id:032x}"),
            None => Ok(()),
        }
    }
}

/// The name of a server as the configuration has it; nothing where it has none.
fn write_name(name: Option<&ServerName>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match name {
        None => Ok(()),
        Some(ServerName::Exact(name)) => f.write_str(name),
        Some(ServerName::LeadingWildcard(name)) => write!(f, "*{name}"),
        Some(ServerName::TrailingWildcard(name)) => write!(f, "{name}*"),
        Some(ServerName::Regex(pattern)) => write!(f, "~{}", pattern.source),
    }
}

/// What of a request such a line shows.
#[derive(Clone, Copy)]
pub(crate) struct RequestText<'a> {
    /// Empty where the request line could not be read: then `target` is what came.
    method: &'a [u8],
    target: &'a [u8],
    version: Version,
    host: Option<&'a [u8]>,
    referrer: Option<&'a [u8]>,
}

impl<'a> RequestText<'a> {
    pub(crate) fn of(head: &'a Head) -> Self {
        let method = head.method_name();
        Self {
            method,
            target: if method.is_empty() { head.unreadable() } else { head.target() },
            version: head.version(),
            host: head.known(Known::Host),
            referrer: head.values_like(None, b"referer").next(),
        }
    }
}

/// An error of the system as nginx writes it: `2: No such file or directory`.
pub(crate) struct SystemError(pub(crate) rustix::io::Errno);

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.0.raw_os_error();
        let text = std::io::Error::from(self.0).to_string();
        let words = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
        write!(f, "{code}: {words}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_has_its_number_first() {
        let shown = SystemError(rustix::io::Errno::NOENT).to_string();
        assert_eq!(shown, "2: No such file or directory");
    }
}
