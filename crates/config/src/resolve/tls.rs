//! Whether the TLS settings of a server are consistent.

use std::sync::Arc;

use super::Walk;
use crate::directive::{Context, acme};
use crate::level::{AcmeWish, Level, Own};
use crate::model::{AcmeCertificate, AcmeIssuer, LocationMatch, Pem, ServerName, VerifyClient};
use crate::parse::Node;
use crate::report::{Report, did_you_mean};

impl Walk<'_> {
    /// `acme_issuer`
    pub(super) fn issuer(&mut self, http: &Level, node: &Node) {
        let word = node.args.first().unwrap_or(&node.name);
        let name = word.shown();
        let state_path = Some(self.scope.path(format!("acme_{name}").as_bytes()));
        self.scope.issuer =
            AcmeIssuer { name, state_path, verifies: true, ..AcmeIssuer::default() };
        let mut level = http.child(Context::Acme, LocationMatch::Server);
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        let issuer = std::mem::take(&mut self.scope.issuer);
        if issuer.uri.is_empty() {
            self.error(node.name.span, "no \"uri\" in this \"acme_issuer\"");
        }
        if self.issuers.iter().any(|other| other.name == issuer.name) {
            self.error(word.span, format!("duplicate \"acme_issuer\" \"{}\"", issuer.name));
        }
        self.issuers.push(Arc::new(issuer));
    }

    /// What a server orders, if it does.
    pub(super) fn acme_certificate(&mut self, own: &Own) -> Option<Arc<AcmeCertificate>> {
        let AcmeWish { issuer, span, names, key } = own.acme.as_ref()?;
        let known = self.issuers.iter().find(|known| known.name == *issuer);
        let Some(issuer) = known.map(Arc::clone) else {
            let known = self.issuers.iter().map(|known| known.name.as_str());
            let help = did_you_mean(issuer, known);
            let message = format!("there is no \"acme_issuer\" \"{issuer}\"");
            let report = Report::error(self.scope.files, *span, message);
            self.scope.reports.push(report.help(help));
            return None;
        };
        let mut names = names.clone();
        if names.is_empty() {
            for (name, at) in &own.server_names {
                let found = match name {
                    ServerName::Exact(name) => acme::name(name),
                    ServerName::LeadingWildcard(_) => acme::name("*."),
                    _ => Err("is not a name that a certificate can be ordered for"),
                };
                match found {
                    Ok(name) => names.push(name),
                    Err(why) => self.error(*at, format!("this name {why}")),
                }
            }
        }
        if names.is_empty() {
            let help = "name it in \"acme_certificate\" or \"server_name\"".to_owned();
            let message = "\"acme_certificate\" has no name to order for";
            let report = Report::error(self.scope.files, *span, message);
            self.scope.reports.push(report.help(help));
            return None;
        }
        Some(Arc::new(AcmeCertificate { issuer, names, key: *key }))
    }

    /// Looks at a server whose level is finished.
    pub(super) fn check_tls(&mut self, level: &Level, own: &Own, node: &Node) {
        let tls = &level.tls;
        let said = |name: &str| level.seen.get(name).copied().unwrap_or(node.name.span);
        if tls.uses_acme.0 != tls.uses_acme.1 {
            let message = "\"$acme_certificate\" and \"$acme_certificate_key\" go together";
            self.error(said("ssl_certificate"), message);
        } else if tls.uses_acme.0 && own.acme.is_none() {
            let message = "\"$acme_certificate\" needs \"acme_certificate\" in this server";
            self.error(said("ssl_certificate"), message);
        }
        if let Some(certificate) = tls.certificates.get(tls.keys.len()) {
            let message = format!(
                "no \"ssl_certificate_key\" is defined for certificate \"{}\"",
                certificate.shown().display()
            );
            self.error(said("ssl_certificate"), message);
        }
        if let Some(key) = tls.keys.get(tls.certificates.len()) {
            let message =
                format!("no \"ssl_certificate\" is defined for key \"{}\"", key.shown().display());
            self.error(said("ssl_certificate_key"), message);
        }
        let needs_authority = matches!(tls.verify, VerifyClient::On | VerifyClient::Optional);
        let has_authority = tls.client_certificate.is_some() || tls.trusted_certificate.is_some();
        if needs_authority && !has_authority && !tls.is_bare() {
            self.error(
                said("ssl_verify_client"),
                "no \"ssl_client_certificate\" for \"ssl_verify_client\"",
            );
        }
        let has_suites = tls.ciphers.as_ref().is_none_or(|ciphers| !ciphers.is_empty());
        if !tls.versions.tls13 && !has_suites {
            self.error(said("ssl_ciphers"), "no cipher suite is left");
        }
    }

    /// Looks at the endpoint, whose level is filled.
    pub(super) fn endpoint_tls(&mut self, level: &mut Level, node: &Node) {
        let own = std::mem::take(&mut level.own);
        self.check_tls(level, &own, node);
        if !self.scope.main.endpoint.listens.iter().any(|(_, options)| options.tls) {
            return;
        }
        let tls = &level.tls;
        let span = level.seen.get("ssl_certificate").or(level.seen.get("listen")).copied();
        let span = span.unwrap_or(node.name.span);
        if tls.certificates.is_empty() {
            let message = "no \"ssl_certificate\" is defined for the \"listen … ssl\" directive";
            self.error(span, message);
        } else if tls.certificates.iter().chain(&tls.keys).any(Pem::is_computed) {
            self.error(span, "a certificate of the endpoint has no variables");
        }
        self.scope.main.endpoint.tls = Some(Arc::clone(&level.tls));
    }
}
