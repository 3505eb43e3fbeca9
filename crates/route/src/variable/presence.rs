//! Which variables are there although they are empty: a log writes `-` only for those that are not.

use sekisho_config::{UpstreamVariable, Variable};
use sekisho_http::{Fields, Known};

use super::{Scope, argument};

impl Scope<'_> {
    /// Whether a variable whose value has turned out to be empty is there all the same, as nginx sees it.
    pub(crate) fn is_there_empty(&self, variable: &Variable) -> bool {
        use Variable as V;
        let (head, route_state) = (self.request.head, self.route_state);
        let sent = self.sent.copied().unwrap_or_default();
        match variable {
            V::Geo(_)
            | V::Host
            | V::Http2
            | V::Http3
            | V::Https
            | V::InvalidReferer
            | V::IsArgs
            | V::Map(_)
            | V::RemotePort
            | V::RealipRemotePort
            | V::ServerName
            | V::ServerPort
            | V::Split(_)
            | V::Upstream(UpstreamVariable::FastCgiPathInfo) => true,
            V::Arg(name) => argument(&route_state.query, name.as_bytes()).is_some(),
            // An error page has none, a `rewrite` empties those of the client.
            V::Args | V::QueryString => !route_state.is_error_page && has_query(head.target()),
            V::Assigned(id) => self.is_assigned(id.0),
            V::ContentLength => head.known(Known::ContentLength).is_some(),
            V::ContentType => head.values_like(None, b"content-type").next().is_some(),
            V::Cookie(name) => self.cookie(name.as_bytes()).is_some(),
            V::NamedCapture(name) => {
                let out = &mut Vec::new();
                self.captures.push_named(0, name, out)
                    || route_state.captures.push_named(0, name, out)
            }
            V::SentHttp(name) => has(sent.fields, name),
            V::SentTrailer(name) => sent.trailers.is_some_and(|trailers| has(trailers, name)),
            V::Upstream(UpstreamVariable::Http(name)) => has(&route_state.upstream.fields, name),
            _ => false,
        }
    }

    /// A variable of the configuration's own has a value, or would have got one from a `set`.
    fn is_assigned(&self, id: u32) -> bool {
        let known = self.table.config().http.assigned.get(id as usize);
        let otherwise = known.and_then(|known| known.otherwise.as_ref());
        self.route_state.assigned.value(id).is_some()
            || otherwise.is_none_or(|otherwise| self.is_there_empty(otherwise))
    }
}

fn has_query(target: &[u8]) -> bool {
    target.split(|byte| *byte == b'?').nth(1).is_some_and(|query| !query.is_empty())
}

fn has(fields: &Fields, name: &str) -> bool {
    fields.all(name.as_bytes()).next().is_some()
}
