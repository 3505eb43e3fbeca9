//! Clients come back to the server that they were sent to (`sticky`).

use std::sync::Arc;

use sekisho_config::{Sticky as Config, UpstreamVariable};
use sekisho_http::upstream::ResponseHead;
use sekisho_http::{Fields, date};
use sekisho_lifecycle::Moment;
use sekisho_upstream::PeerSettings;
use sekisho_upstream::balance::learn::Sessions;
use sekisho_upstream::balance::sticky::{Expires, cookie, route_of, set_cookie};

use super::plan::Source;

/// What binds the clients of a group to its servers.
#[derive(Clone, Debug)]
pub(super) struct Sticky {
    config: Config,
    /// Those that servers have made.
    sessions: Option<Arc<Sessions>>,
}

impl Sticky {
    pub(super) fn new(config: &Config) -> Self {
        let sessions = match config {
            Config::Learn { bytes, timeout, .. } => Some(Arc::new(Sessions::new(*bytes, *timeout))),
            Config::Cookie(_) | Config::Route(_) => None,
        };
        Self { config: config.clone(), sessions }
    }

    /// Whether what it knows is of use under the same configuration.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// The route that a request came with; empty where it came with none.
    pub(super) fn route(&self, source: &Source<'_>, now: Moment) -> Vec<u8> {
        let head = source.request.head;
        match &self.config {
            Config::Cookie(settings) => {
                let fields = head.values_like(None, b"cookie");
                cookie(fields, settings.name.as_bytes()).unwrap_or_default().to_vec()
            }
            Config::Route(templates) => {
                let mut values = templates.iter().map(|template| source.value(template));
                values.find(|value| !value.is_empty()).unwrap_or_default()
            }
            Config::Learn { lookup, .. } => {
                let Some(sessions) = &self.sessions else { return Vec::new() };
                let mut values = lookup.iter().map(|template| source.value(template));
                values.find_map(|session| sessions.find(&session, now)).unwrap_or_default()
            }
        }
    }

    /// A server has answered a request that came with this route: its client is bound to it.
    pub(super) fn answered(
        &self,
        had: &[u8],
        peer: &PeerSettings,
        answer: &ResponseHead,
        out: &mut Fields,
        now: Moment,
        wall_secs: i64,
    ) {
        match &self.config {
            Config::Cookie(settings) => {
                let until = match settings.expires {
                    Some(Expires::Seconds(seconds)) => {
                        let mut text = Vec::new();
                        date::write(wall_secs.saturating_add(i64::from(seconds)), &mut text);
                        String::from_utf8(text).ok()
                    }
                    _ => None,
                };
                let had = Some(had).filter(|had| !had.is_empty());
                if let Some(value) = set_cookie(settings, had, peer, until.as_deref()) {
                    out.push("Set-Cookie", &value);
                }
            }
            Config::Route(_) => {}
            Config::Learn { create, .. } => {
                let Some(sessions) = &self.sessions else { return };
                for variable in create {
                    let session = match variable {
                        UpstreamVariable::Cookie(name) => {
                            let made = answer.fields.all(b"set-cookie");
                            let first = made.map(|value| {
                                value.split(|byte| *byte == b';').next().unwrap_or_default()
                            });
                            cookie(first, name.as_bytes())
                        }
                        UpstreamVariable::Http(name) => answer.fields.get(name),
                        _ => None,
                    };
                    if let Some(session) = session {
                        sessions.learn(session, &route_of(peer), now);
                    }
                }
            }
        }
    }
}
