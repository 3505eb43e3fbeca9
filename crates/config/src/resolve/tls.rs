//! Whether what a server says about TLS goes together.

use super::Walk;
use crate::level::{Level, Own};
use crate::model::VerifyClient;
use crate::parse::Node;
use crate::report::Report;

impl Walk<'_> {
    /// Looks at a server whose level is finished.
    pub(super) fn check_tls(&mut self, level: &Level, own: &Own, node: &Node) {
        let tls = &level.tls;
        let said = |name: &str| level.seen.get(name).copied().unwrap_or(node.name.span);
        let first = own.listens.iter().find(|(line, _)| line.options.tls);
        if let Some((_, span)) = first
            && tls.certificates.is_empty()
            && !tls.rejects
        {
            let message = "no \"ssl_certificate\" is defined for the \"listen … ssl\" directive";
            let span = span.unwrap_or(node.name.span);
            let help = "name a certificate and its key, or say \"ssl_reject_handshake on\"";
            let report = Report::error(self.scope.files, span, message);
            self.scope.reports.push(report.help(help.to_owned()));
        }
        if let Some(certificate) = tls.certificates.get(tls.keys.len()) {
            let message = format!(
                "no \"ssl_certificate_key\" is defined for certificate \"{}\"",
                certificate.display()
            );
            self.error(said("ssl_certificate"), message);
        }
        if let Some(key) = tls.keys.get(tls.certificates.len()) {
            let message =
                format!("no \"ssl_certificate\" is defined for key \"{}\"", key.display());
            self.error(said("ssl_certificate_key"), message);
        }
        let needs_authority = matches!(tls.verify, VerifyClient::On | VerifyClient::Optional);
        let has_authority = tls.client_certificate.is_some() || tls.trusted_certificate.is_some();
        if needs_authority && !has_authority {
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
}
