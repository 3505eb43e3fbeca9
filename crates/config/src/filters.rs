//! What a level says about filters and requests within requests while it is being filled in, and how it is handed
//! down.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::model::{
    Addition, Assignee, AuthRequest, Filters, Mirrors, Settings, Ssi, Substitutions, Template,
    UserId, UserIdMode,
};

/// Filters before they are put together. Lists that a level says itself take the place of those it has inherited; all
/// else is inherited one by one.
#[derive(Clone, Debug, Default)]
pub struct FilterParts {
    /// `gunzip`
    pub gunzip: bool,
    /// `add_before_body` and its companions.
    pub addition: Addition,
    /// `sub_filter_once` and its companions.
    pub substitutions: Substitutions,
    /// `ssi`
    pub has_ssi: bool,
    /// Its companions.
    pub ssi: Ssi,
    /// `slice`
    pub slice: Option<NonZeroU64>,
    /// `userid` and its companions.
    pub user_id: UserId,
    /// `userid_path`
    pub user_id_path: Arc<str>,
    /// `userid_domain`
    pub user_id_domain: Option<Arc<str>>,
    /// `userid_flags`
    pub user_id_flags: Arc<str>,
    /// `auth_request`
    pub auth: Option<Arc<[u8]>>,
    auth_sets: Arc<[(Assignee, Template)]>,
    /// `mirror_request_body`
    pub mirrors_body: bool,
    mirrors: Arc<[Arc<[u8]>]>,
    /// What this level says itself.
    pub own: OwnFilters,
}

/// Lists that a level says itself.
#[derive(Clone, Debug, Default)]
pub struct OwnFilters {
    /// `sub_filter`
    pub pairs: Vec<(Template, Template)>,
    /// `auth_request_set`
    pub auth_sets: Vec<(Assignee, Template)>,
    /// `mirror`; empty for `mirror off`.
    pub mirrors: Option<Vec<Arc<[u8]>>>,
}

impl FilterParts {
    /// What a level within begins with.
    #[must_use]
    pub fn handed_down(&self) -> Self {
        Self { own: OwnFilters::default(), ..self.clone() }
    }

    /// Puts everything together.
    pub fn finish(&mut self, settings: &mut Settings) {
        let own = std::mem::take(&mut self.own);
        if !own.pairs.is_empty() {
            self.substitutions.pairs = own.pairs.into();
        }
        if !own.auth_sets.is_empty() {
            self.auth_sets = own.auth_sets.into();
        }
        if let Some(mirrors) = own.mirrors {
            self.mirrors = mirrors.into();
        }
        let filters = self.filters();
        if settings.filters.as_deref() != filters.as_ref() {
            settings.filters = filters.map(Arc::new);
        }
        settings.mirrors = (!self.mirrors.is_empty()).then(|| {
            let paths = Arc::clone(&self.mirrors);
            Arc::new(Mirrors { paths, with_body: self.mirrors_body })
        });
    }

    /// `auth_request`, with what is kept of it.
    pub fn auth_request(&self) -> Option<AuthRequest> {
        let path = Arc::clone(self.auth.as_ref()?);
        Some(AuthRequest { path, sets: Arc::clone(&self.auth_sets) })
    }

    fn filters(&self) -> Option<Filters> {
        let has_addition = self.addition.before.is_some() || self.addition.after.is_some();
        let has_pairs = !self.substitutions.pairs.is_empty();
        let has_user_id = self.user_id.mode != UserIdMode::Off;
        let filters = Filters {
            gunzip: self.gunzip,
            addition: has_addition.then(|| Arc::new(self.addition.clone())),
            substitutions: has_pairs.then(|| Arc::new(self.substitutions.clone())),
            ssi: self.has_ssi.then(|| Arc::new(self.ssi.clone())),
            slice: self.slice,
            user_id: has_user_id.then(|| Arc::new(self.user_id())),
        };
        (filters != Filters::default()).then_some(filters)
    }

    fn user_id(&self) -> UserId {
        let domain = self.user_id_domain.as_ref().map(|domain| format!("; domain={domain}"));
        let (path, flags) = (&self.user_id_path, &self.user_id_flags);
        let attributes = format!("{}; path={path}{flags}", domain.unwrap_or_default());
        UserId { attributes: attributes.into(), ..self.user_id.clone() }
    }
}
