//! Access: `allow` and `deny`, `auth_basic`, and how `satisfy` combines them. Checked anew after every
//! internal redirect, as in nginx: a file that is denied by its own path is denied by another.

use std::mem;

use sekisho_config::{Access, Level, PasswordRule, Settings};
use sekisho_http::{Known, Status};

use super::{Decision, Next};
use crate::access_checks::{Password, Wait};
use crate::action::{Action, Files};
use crate::credentials;

/// How often a request may wait for a password: this bounds the waits for a file that changes all the time.
const WAITS_MAX: u8 = 8;

/// What was found about a password.
enum PasswordCheck {
    /// None is asked for.
    No,
    Right,
    /// None, or a wrong one.
    Refused,
    /// It could not be found out.
    Fail(Status),
    /// It takes its time.
    Later,
}

impl<F: Files> Decision<'_, F> {
    /// The access checks of the request's location, in nginx's order: rates, connections, addresses,
    /// passwords. Then the steps after them.
    pub(super) fn at_access_checks(&mut self) -> Next<F::File> {
        self.find_client(self.route_state.location, Some(self.request.head));
        let settings = self.settings();
        if let Some(status) = self.route_state.access_progress.refusal.take() {
            return Next::Fail(status);
        }
        if let Some(limits) = settings.limits.as_deref()
            && let Some(next) = self.limits(limits)
        {
            return next;
        }
        if self.route_state.is_subrequest {
            // Who asks has been let in already, and the request around it decides what is asked for.
            return self.behind_access_checks();
        }
        let access = match settings.limit_except.as_deref() {
            Some(limit) if !limit.methods.contains(&self.meant_method()) => limit.access.as_deref(),
            _ => settings.access.as_deref(),
        };
        match access.and_then(|access| self.access(access)) {
            Some(next) => next,
            None => self.behind_access_checks(),
        }
    }

    /// Whether `limit_except` applies to this method: then the location's `return` does not, as in nginx.
    pub(super) fn is_limited(&self, settings: &Settings) -> bool {
        let limit = settings.limit_except.as_deref();
        limit.is_some_and(|limit| !limit.methods.contains(&self.meant_method()))
    }

    /// `None` lets the request pass.
    fn access(&mut self, access: &Access) -> Option<Next<F::File>> {
        let client = self.route_state.client(self.request.connection).map(|client| client.ip());
        let rule = access.rules.iter().find(|rule| rule.who.is_meant(client));
        // What one check refuses another may allow, where any is enough.
        let mut refused = None;
        match (rule.map(|rule| rule.allows), access.is_any_enough) {
            (Some(true), true) => return self.let_in(),
            (Some(false), false) => return Some(self.forbid()),
            (Some(false), true) => refused = Some(Status::FORBIDDEN),
            (Some(true), false) | (None, _) => {}
        }
        if let Some(rule) = &access.password {
            match self.ask_password(rule) {
                PasswordCheck::No => {}
                PasswordCheck::Right if access.is_any_enough => return self.let_in(),
                PasswordCheck::Right => self.route_state.access_progress.is_challenged = false,
                PasswordCheck::Refused if access.is_any_enough && access.auth_request.is_some() => {
                    refused = Some(Status::UNAUTHORIZED);
                }
                PasswordCheck::Refused => return Some(self.refuse(Status::UNAUTHORIZED, access)),
                PasswordCheck::Fail(status) => return Some(Next::Fail(status)),
                PasswordCheck::Later => return Some(self.wait_for_password()),
            }
        }
        if access.auth_request.is_some() {
            match self.asked_elsewhere() {
                None => return Some(Next::Done(Action::Wait(Wait::Auth))),
                Some(Ok(())) if access.is_any_enough => return self.let_in(),
                Some(Ok(())) => {}
                Some(Err(status @ (Status::UNAUTHORIZED | Status::FORBIDDEN)))
                    if access.is_any_enough =>
                {
                    refused = refused.filter(|it| *it == Status::UNAUTHORIZED).or(Some(status));
                }
                Some(Err(status)) => return Some(self.refuse(status, access)),
            }
        }
        match refused {
            None => None,
            Some(Status::FORBIDDEN) => Some(self.forbid()),
            Some(status) => Some(self.refuse(status, access)),
        }
    }

    fn let_in(&mut self) -> Option<Next<F::File>> {
        self.route_state.access_progress.is_challenged = false;
        if let Some(auth) = &mut self.route_state.auth {
            auth.challenges.clear();
        }
        None
    }

    fn refuse(&mut self, status: Status, access: &Access) -> Next<F::File> {
        match access.delay.filter(|_| status == Status::UNAUTHORIZED) {
            Some(delay) => {
                let message = format_args!("delaying unauthorized request");
                self.files.report(self.route_state.location, Level::Info, message);
                self.route_state.access_progress.refusal = Some(status);
                Next::Done(Action::Wait(Wait::For(delay)))
            }
            None => Next::Fail(status),
        }
    }

    fn wait_for_password(&mut self) -> Next<F::File> {
        let waits = &mut self.route_state.access_progress.waits;
        *waits = waits.saturating_add(1);
        if *waits > WAITS_MAX {
            Next::Fail(Status::INTERNAL_SERVER_ERROR)
        } else {
            Next::Done(Action::Wait(Wait::Password))
        }
    }

    /// What `auth_request` came to; `None` where it has not been asked for this location.
    fn asked_elsewhere(&mut self) -> Option<Result<(), Status>> {
        let (location, redirects) = (self.route_state.location, self.route_state.redirects);
        let answer = self.route_state.auth.as_deref()?;
        if !answer.is_for(location, redirects) {
            return None;
        }
        match answer.status {
            status if (200..300).contains(&status.code()) => Some(Ok(())),
            status @ (Status::UNAUTHORIZED | Status::FORBIDDEN) => Some(Err(status)),
            status => {
                let code = status.code();
                let message = format_args!("auth request unexpected status: {code}");
                self.files.report(location, Level::Error, message);
                Some(Err(Status::INTERNAL_SERVER_ERROR))
            }
        }
    }

    fn forbid(&mut self) -> Next<F::File> {
        let message = format_args!("access forbidden by rule");
        self.files.report(self.route_state.location, Level::Error, message);
        Next::Fail(Status::FORBIDDEN)
    }

    fn ask_password(&mut self, rule: &PasswordRule) -> PasswordCheck {
        let mut value = mem::take(&mut self.route_state.value);
        self.expand(&rule.realm, &mut value);
        let is_off = value == b"off";
        if !is_off {
            value.clone_into(&mut self.route_state.access_progress.realm);
        }
        self.route_state.value = value;
        if is_off {
            return PasswordCheck::No;
        }
        let asked = self.check_credentials(rule);
        let access_progress = &mut self.route_state.access_progress;
        access_progress.is_challenged |= matches!(asked, PasswordCheck::Refused);
        access_progress.is_verified = matches!(asked, PasswordCheck::Right);
        asked
    }

    fn check_credentials(&mut self, rule: &PasswordRule) -> PasswordCheck {
        let location = self.route_state.location;
        let field = self.request.head.known(Known::Authorization).unwrap_or_default();
        // Only a request with a password pays for its copy.
        let mut plain = Vec::new();
        let Some(colon) = credentials::decode(field, &mut plain) else {
            let message = format_args!("no user/password was provided for basic authentication");
            self.files.report(location, Level::Info, message);
            return PasswordCheck::Refused;
        };
        let (user, password) = (&plain[..colon], &plain[colon + 1..]);
        let mut file = mem::take(&mut self.route_state.value);
        self.expand(&rule.file.path, &mut file);
        if file.first() != Some(&b'/') {
            file.splice(..0, rule.file.folder.iter().copied());
        }
        let result = self.files.password(location, &file, user, password);
        let shown = user.escape_ascii();
        let asked = match result {
            Password::Right => {
                user.clone_into(&mut self.route_state.access_progress.user);
                PasswordCheck::Right
            }
            Password::Later => PasswordCheck::Later,
            Password::NoFile => PasswordCheck::Fail(Status::FORBIDDEN),
            Password::Failed => PasswordCheck::Fail(Status::INTERNAL_SERVER_ERROR),
            Password::Wrong => {
                let message = format_args!("user \"{shown}\": password mismatch");
                self.files.report_user(location, message);
                PasswordCheck::Refused
            }
            Password::Unknown => {
                let file = file.escape_ascii();
                let message = format_args!("user \"{shown}\" was not found in \"{file}\"");
                self.files.report_user(location, message);
                PasswordCheck::Refused
            }
        };
        self.route_state.value = file;
        asked
    }
}
