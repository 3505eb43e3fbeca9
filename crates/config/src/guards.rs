//! The access, link and limit settings of a level while it is being filled in, and how they are inherited.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Status;

use crate::model::{
    Access, AddressRule, AuthRequest, Bound, ConnectionLimit, Level as Severity, Limits, Links,
    PasswordRule, RateLimit, Referers, Settings, Signature, Template, UserFile,
};

/// Access, links and limits before they are put together. Lists of a level replace inherited ones; all else
/// is inherited one by one.
#[derive(Clone, Debug)]
pub struct Guards {
    rules: Arc<[AddressRule]>,
    /// `auth_basic`; `None` for `off`.
    pub realm: Option<Arc<Template>>,
    /// `auth_basic_user_file`
    pub user_file: Option<Arc<UserFile>>,
    /// `satisfy any`
    pub is_any_enough: bool,
    /// `auth_delay`
    pub auth_delay: Option<Duration>,
    referers: Option<Arc<Referers>>,
    /// `secure_link`
    pub link_value: Option<Arc<Template>>,
    /// `secure_link_md5`
    pub link_signed: Option<Arc<Template>>,
    /// `secure_link_secret`
    pub link_secret: Option<Arc<[u8]>>,
    rates: Arc<[RateLimit]>,
    /// What `limit_req` does at its bound.
    pub rate_bound: Bound,
    connections: Arc<[ConnectionLimit]>,
    /// What `limit_conn` does at its bound.
    pub connection_bound: Bound,
    /// What this level says itself.
    pub own: OwnGuards,
}

/// Lists that a level says itself.
#[derive(Clone, Debug, Default)]
pub struct OwnGuards {
    /// `allow`, `deny`
    pub rules: Vec<AddressRule>,
    /// `valid_referers`
    pub referers: Option<Referers>,
    /// `limit_req`
    pub rates: Vec<RateLimit>,
    /// `limit_conn`
    pub connections: Vec<ConnectionLimit>,
}

impl Guards {
    /// Nothing is guarded.
    pub fn blank() -> Self {
        let bound = Bound {
            status: Status::SERVICE_UNAVAILABLE,
            level: Severity::Error,
            is_dry_run: false,
        };
        Self {
            rules: Arc::default(),
            realm: None,
            user_file: None,
            is_any_enough: false,
            auth_delay: None,
            referers: None,
            link_value: None,
            link_signed: None,
            link_secret: None,
            rates: Arc::default(),
            rate_bound: bound,
            connections: Arc::default(),
            connection_bound: bound,
            own: OwnGuards::default(),
        }
    }

    /// What a level within begins with.
    #[must_use]
    pub fn handed_down(&self) -> Self {
        Self { own: OwnGuards::default(), ..self.clone() }
    }

    /// Puts everything together.
    pub fn finish(&mut self, settings: &mut Settings, auth_request: Option<AuthRequest>) {
        let own = std::mem::take(&mut self.own);
        if !own.rules.is_empty() {
            self.rules = own.rules.into();
        }
        if let Some(referers) = own.referers {
            self.referers = Some(Arc::new(referers.sorted()));
        }
        if !own.rates.is_empty() {
            self.rates = own.rates.into();
        }
        if !own.connections.is_empty() {
            self.connections = own.connections.into();
        }
        share(&mut settings.access, self.access(auth_request));
        settings.links = self.links().map(Arc::new);
        share(&mut settings.limits, self.limits());
    }

    fn access(&self, auth_request: Option<AuthRequest>) -> Option<Access> {
        let realm = self.realm.as_ref().zip(self.user_file.as_ref());
        let password = realm
            .map(|(realm, file)| PasswordRule { realm: Arc::clone(realm), file: Arc::clone(file) });
        let is_any = !self.rules.is_empty() || password.is_some() || auth_request.is_some();
        is_any.then(|| Access {
            rules: Arc::clone(&self.rules),
            password,
            auth_request: auth_request.map(Arc::new),
            is_any_enough: self.is_any_enough,
            delay: self.auth_delay,
        })
    }

    fn links(&self) -> Option<Links> {
        let signature = match (&self.link_value, &self.link_signed, &self.link_secret) {
            (Some(value), Some(signed), _) => {
                Some(Signature::Value { value: Arc::clone(value), signed: Arc::clone(signed) })
            }
            (None, None, Some(secret)) => Some(Signature::Secret(Arc::clone(secret))),
            _ => None,
        };
        let is_any = self.referers.is_some() || signature.is_some();
        is_any.then(|| Links { referers: self.referers.clone(), signature })
    }

    fn limits(&self) -> Option<Limits> {
        (!self.rates.is_empty() || !self.connections.is_empty()).then(|| Limits {
            rates: Arc::clone(&self.rates),
            rate_bound: self.rate_bound,
            connections: Arc::clone(&self.connections),
            connection_bound: self.connection_bound,
        })
    }
}

/// Keeps what was inherited where nothing is different.
fn share<T: PartialEq>(slot: &mut Option<Arc<T>>, value: Option<T>) {
    if slot.as_deref() != value.as_ref() {
        *slot = value.map(Arc::new);
    }
}
