//! Cookies that tell clients apart (`userid`): which one came, and which one is set. Nothing is remembered: a new one
//! follows from the id of its request.

use sekisho_config::{Level, UserId, UserIdExpires, UserIdMode};
use sekisho_filter::time_format::{self, Zone};
use sekisho_filter::uid::{Seed, Uid};
use sekisho_http::Fields;

use crate::variable::Scope;

/// What the client has, and what it gets.
struct Cookies {
    got: Option<Uid>,
    set: Option<Uid>,
    is_reset_logged: bool,
}

impl Scope<'_> {
    fn user_id(&self) -> Option<&UserId> {
        self.settings().filters.as_deref()?.user_id.as_deref()
    }

    fn cookies(&self, rule: &UserId) -> Cookies {
        let value = self.cookie(rule.name.as_bytes());
        let found = value.and_then(|value| Uid::from_cookie(value, rule.mark));
        let got = found.map(|(uid, _)| uid);
        if rule.mode == UserIdMode::Log {
            return Cookies { got, set: None, is_reset_logged: false };
        }
        let mut reset = Vec::new();
        if let Some(template) = &rule.reset {
            self.nested(template, &mut reset);
        }
        let is_reset = !reset.is_empty() && reset != b"0";
        let set = match found {
            Some((_, true)) if !is_reset => None,
            // The same, with the mark that it lacks.
            Some((uid, false)) if !is_reset => Some(uid),
            _ => Some(self.new_uid(rule)),
        };
        Cookies { got, set, is_reset_logged: is_reset && reset == b"log" && got.is_some() }
    }

    fn new_uid(&self, rule: &UserId) -> Uid {
        let id = self.request.request_id.0;
        let seed = Seed {
            service: rule.service,
            local: self.request.connection.local.map(|local| local.ip()),
            unix_secs: self.request.wall.unix_secs,
            process: (id >> 64) as u32,
            sequence: id as u32,
        };
        match rule.mode {
            UserIdMode::V1 => Uid::new_v1(&seed),
            UserIdMode::Off | UserIdMode::On | UserIdMode::Log => Uid::new(&seed),
        }
    }

    /// `$uid_got`
    pub(crate) fn push_uid_got(&self, out: &mut Vec<u8>) {
        if let Some(rule) = self.user_id()
            && let Some(uid) = self.cookies(rule).got
        {
            out.extend_from_slice(&uid.text(rule.name.as_bytes()));
        }
    }

    /// `$uid_set`
    pub(crate) fn push_uid_set(&self, out: &mut Vec<u8>) {
        if let Some(rule) = self.user_id()
            && let Some(uid) = self.cookies(rule).set
        {
            out.extend_from_slice(&uid.text(rule.name.as_bytes()));
        }
    }

    /// `Set-Cookie`, and `P3P` where there is one.
    pub(crate) fn push_user_id(&self, out: &mut Fields) {
        let Some(rule) = self.user_id() else { return };
        let cookies = self.cookies(rule);
        if cookies.is_reset_logged
            && let Some(got) = cookies.got
        {
            let text = got.text(rule.name.as_bytes());
            let text = format!("userid cookie \"{}\" was reset", text.escape_ascii());
            self.route_state.log_entries.borrow_mut().add(Level::Notice, text);
        }
        let Some(uid) = cookies.set else { return };
        out.push_with("Set-Cookie", |value| {
            value.extend_from_slice(rule.name.as_bytes());
            value.push(b'=');
            value.extend_from_slice(&uid.cookie(rule.mark));
            match rule.expires {
                UserIdExpires::Off => {}
                UserIdExpires::Max => {
                    value.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT");
                }
                UserIdExpires::After(secs) => {
                    let at = self.request.wall.unix_secs.saturating_add_unsigned(secs);
                    value.extend_from_slice(b"; expires=");
                    time_format::write(at, Zone::Gmt, b"%a, %d-%b-%y %H:%M:%S GMT", value);
                }
            }
            value.extend_from_slice(rule.attributes.as_bytes());
        });
        if let Some(p3p) = &rule.p3p {
            out.push("P3P", p3p);
        }
    }
}
