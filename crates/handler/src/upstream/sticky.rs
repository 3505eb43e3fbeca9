//! Clients come back to the server that they were sent to (`sticky`).

use std::sync::Arc;

use sekisho_config::{Sticky as Config, Template, UpstreamVariable};
use sekisho_http::upstream::ResponseHead;
use sekisho_http::{Fields, date};
use sekisho_lifecycle::Moment;
use sekisho_upstream::PeerSettings;
use sekisho_upstream::balance::learn::Sessions;
use sekisho_upstream::balance::sticky::{CookieSettings, Expires, cookie, route_of, set_cookie};

use super::plan::Source;

/// What binds the client of one request.
#[derive(Debug, Default)]
pub(super) struct Binding {
    /// The server that it was sent to before; empty where it was to none.
    pub(super) route: Vec<u8>,
    /// The cookie that is set for it.
    cookie: Option<CookieSettings>,
}

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
            Config::Cookie { .. } | Config::Route(_) => None,
        };
        Self { config: config.clone(), sessions }
    }

    /// Whether what it knows is of use under the same configuration.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// What binds the client of a request.
    pub(super) fn binding(&self, source: &Source<'_>, now: Moment) -> Binding {
        let cookie = match &self.config {
            Config::Cookie { settings, domain, same_site } => {
                let mut settings = settings.clone();
                let value = |template: &Template| {
                    let text = String::from_utf8_lossy(&source.value(template)).into_owned();
                    Some(text.into_boxed_str()).filter(|text| !text.is_empty())
                };
                if let Some(template) = domain {
                    // A semicolon would begin another attribute.
                    settings.domain = value(template).filter(|text| !text.contains(';'));
                }
                if let Some(template) = same_site {
                    // Anything else would be no attribute.
                    let text = value(template);
                    settings.same_site =
                        text.filter(|text| matches!(&**text, "strict" | "lax" | "none"));
                }
                Some(settings)
            }
            Config::Route(_) | Config::Learn { .. } => None,
        };
        Binding { route: self.route(source, now), cookie }
    }

    /// The route that a request came with; empty where it came with none.
    fn route(&self, source: &Source<'_>, now: Moment) -> Vec<u8> {
        let head = source.request.head;
        match &self.config {
            Config::Cookie { settings, .. } => {
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

    /// A server has answered a request of this client, who is bound to it.
    pub(super) fn answered(
        &self,
        binding: &Binding,
        peer: &PeerSettings,
        answer: &ResponseHead,
        out: &mut Fields,
        (now, wall_secs): (Moment, i64),
    ) {
        match &self.config {
            Config::Cookie { .. } => {
                let Some(settings) = &binding.cookie else { return };
                let until = match settings.expires {
                    Some(Expires::Seconds(seconds)) => {
                        let mut text = Vec::new();
                        date::write(wall_secs.saturating_add(i64::from(seconds)), &mut text);
                        String::from_utf8(text).ok()
                    }
                    _ => None,
                };
                out.push("Set-Cookie", set_cookie(settings, peer, until.as_deref()));
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
