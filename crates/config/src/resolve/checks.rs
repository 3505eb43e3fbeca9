//! What is checked beside a directive itself: `health_check` (whose servers, and whether they can be), and where a directive
//! may stand.

use std::sync::Arc;

use super::Walk;
use crate::directive::{Context, Contexts, health};
use crate::level::Level;
use crate::model::{Family, HealthCheck, PassTo};
use crate::report::{Report, did_you_mean};

impl Walk<'_> {
    /// Looks at a location that is finished.
    pub(super) fn health_check(&mut self, level: &mut Level) {
        let Some(wish) = level.health.take() else { return };
        let span = wish.span;
        let Some((Family::Proxy, PassTo::Named(to))) = &level.pass else {
            let message = "\"health_check\" needs a \"proxy_pass\" without variables here";
            return self.error(span, message);
        };
        let Some(group) = self.scope.upstreams.get(to.group.0 as usize) else { return };
        let name = group.name.clone();
        if !group.is_declared {
            let message = format!("\"health_check\" needs an \"upstream\": \"{name}\" is none");
            return self.error(span, message);
        }
        if !self.scope.zoned.contains(&name) {
            let message = format!("no shared memory zone in upstream \"{name}\"");
            let report = Report::error(self.scope.files, span, message);
            let help = "say \"zone name size;\" in it: its state is shared by all workers";
            return self.scope.reports.push(report.help(help.to_owned()));
        }
        let wanted = wish.rules.as_deref();
        let found = wanted.map_or_else(
            || Some(Arc::default()),
            |wanted| health::find(&self.scope.matches, wanted),
        );
        let Some(rules) = found else {
            let wanted = wanted.unwrap_or_default();
            let known = self.scope.matches.iter().map(|rules| &*rules.name);
            let help = did_you_mean(wanted, known);
            let message = format!("there is no \"match\" \"{wanted}\"");
            let report = Report::error(self.scope.files, span, message);
            return self.scope.reports.push(report.help(help));
        };
        self.http.health_checks.push(HealthCheck {
            group: to.group,
            settings: wish.settings,
            is_persistent: wish.is_persistent,
            uri: wish.uri,
            port: wish.port,
            rules,
            is_tls: to.is_tls,
            host: to.host.clone(),
            forward: Arc::clone(&level.forwards[Family::Proxy as usize]),
        });
    }
}

/// What is said of a directive that may not stand in this context.
pub(super) fn misplaced(name: &str, allowed: Contexts, context: Context) -> (String, String) {
    let message = format!("\"{name}\" directive is not allowed here");
    let note = format!("allowed in: {}; this is: {}", allowed.names(), context.name());
    (message, note)
}
