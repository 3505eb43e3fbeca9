//! Certificates that are ordered and renewed by themselves, as in nginx's own module for it.

use super::{ACME, Context, HTTP, Row, SERVER, active, block, nothing, set, silent, warned};
use crate::level::{AcmeWish, Directive, Fault, Level, Scope};
use crate::model::{AcmeChallenge, AcmeKey, AcmeProfile, ExternalAccount, ExternalKey};

pub(super) const ROWS: &[Row] = &[
    block(
        "acme_issuer",
        HTTP,
        "name",
        Context::Acme,
        "A certificate authority that speaks ACME (RFC 8555), and our account with it",
    ),
    active("uri", ACME, "url", "", "The address of the authority's directory", |_, d, s| {
        let word = d.arg(0);
        let text = d.text(word)?;
        if !text.starts_with("https://") || text.len() <= "https://".len() {
            return Err(d.invalid(word, "must be an https:// URL"));
        }
        text.clone_into(&mut s.issuer.uri);
        Ok(())
    }),
    active(
        "account_key",
        ACME,
        "ecdsa:256|file",
        "",
        "The account's key: generated, or a file (PEM, PKCS #8, P-256)",
        |_, d, s| {
            let word = d.arg(0);
            let text = d.text(word)?;
            s.issuer.account_key = match text {
                "ecdsa" | "ecdsa:256" => None,
                _ if text.starts_with("ecdsa:") || text.starts_with("rsa") => {
                    return Err(d.not_built(word).help("account keys are ecdsa:256".to_owned()));
                }
                _ => Some(s.path_beside_main(&word.text)),
            };
            Ok(())
        },
    ),
    active(
        "challenge",
        ACME,
        "http-01|tls-alpn-01",
        "",
        "How control of a name is proved: by a file on port 80 (the default), or by a handshake on port 443",
        |_, d, s| {
            s.issuer.challenge = match &*d.arg(0).text {
                b"http" | b"http-01" => AcmeChallenge::Http01,
                b"tls-alpn" | b"tls-alpn-01" => AcmeChallenge::TlsAlpn01,
                _ => return Err(d.invalid(d.arg(0), "must be http-01 or tls-alpn-01")),
            };
            Ok(())
        },
    ),
    active(
        "contact",
        ACME,
        "url",
        "",
        "The contact address, such as `mailto:admin@example.org`",
        |_, d, s| {
            let text = d.text(d.arg(0))?;
            let is_url = text.contains(':');
            s.issuer.contacts.push(if is_url { text.to_owned() } else { format!("mailto:{text}") });
            Ok(())
        },
    )
    .repeated(),
    active(
        "external_account_key",
        ACME,
        "id file",
        "",
        "The external account to bind to, and its key in base64url: a file, or `data:KEY`",
        |_, d, s| {
            let id = d.text(d.arg(0))?.to_owned();
            let key = match d.text(d.arg(1))?.strip_prefix("data:") {
                Some(data) => ExternalKey::Data(data.to_owned()),
                None => ExternalKey::File(s.path_beside_main(&d.arg(1).text)),
            };
            s.issuer.external_account = Some(ExternalAccount { id, key });
            Ok(())
        },
    ),
    warned("preferred_chain", ACME, "name", "The authority's default chain is used"),
    active(
        "profile",
        ACME,
        "name [require]",
        "",
        "The profile of certificates to order, if the authority has it; with `require` it must have it",
        |_, d, s| {
            let is_required = match d.args().get(1) {
                None => false,
                Some(word) if &*word.text == b"require" => true,
                Some(word) => return Err(d.invalid(word, "must be \"require\"")),
            };
            let name = d.text(d.arg(0))?.to_owned();
            s.issuer.profile = Some(AcmeProfile { name, is_required });
            Ok(())
        },
    ),
    active(
        "ssl_trusted_certificate",
        ACME,
        "file",
        "",
        "Trusted authorities for the ACME server's own certificate (PEM); by default the system's list",
        |_, d, s| {
            s.issuer.trusted_certificate = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_verify",
        ACME,
        "on|off",
        "",
        "Whether the ACME server's own certificate is verified (on)",
        |_, d, s| set(&mut s.issuer.verifies, d.flag()),
    ),
    active(
        "state_path",
        ACME,
        "path|off",
        "",
        "The folder of account, keys and certificates (`acme_NAME` below the prefix)",
        |_, d, s| {
            let path = &d.arg(0).text;
            s.issuer.state_path = (**path != *b"off").then(|| s.path(path));
            Ok(())
        },
    ),
    active(
        "accept_terms_of_service",
        ACME,
        "",
        "",
        "Agrees to the authority's terms",
        |_, _, s| {
            s.issuer.accepts_terms = true;
            Ok(())
        },
    ),
    active(
        "acme_store",
        HTTP,
        "url [key=file]",
        "",
        "Where servers share accounts, certificates and the answers to challenges (ours), a Redis or Valkey as for `limit_req_zone`: one of them orders for all. `key` is a file of 32 random bytes or more, by which what lies there is encrypted",
        nothing,
    ),
    silent("acme_shared_zone", HTTP, "zone", "Workers always share certificates"),
    active(
        "acme_certificate",
        SERVER,
        "issuer [name] ...",
        "",
        "Orders a certificate for these names, or for those of `server_name`: `$acme_certificate`; `key=ecdsa:256|ecdsa:384|rsa:2048|rsa:3072|rsa:4096`",
        certificate,
    ),
];

fn certificate(level: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let issuer = d.text(d.arg(0))?.to_owned();
    let mut wish =
        AcmeWish { issuer, span: d.arg(0).span, names: Vec::new(), key: AcmeKey::default() };
    for word in &d.args()[1..] {
        let text = d.text(word)?;
        let Some(key) = text.strip_prefix("key=") else {
            wish.names.push(name(text).map_err(|why| d.invalid(word, why))?);
            continue;
        };
        wish.key = match key {
            "ecdsa" | "ecdsa:256" => AcmeKey::P256,
            "ecdsa:384" => AcmeKey::P384,
            "rsa" | "rsa:2048" => AcmeKey::Rsa2048,
            "rsa:3072" => AcmeKey::Rsa3072,
            "rsa:4096" => AcmeKey::Rsa4096,
            _ => return Err(d.invalid(word, "is not a supported kind of key")),
        };
    }
    level.own.acme = Some(wish);
    Ok(())
}

/// A name that can be ordered.
pub(crate) fn name(text: &str) -> Result<String, &'static str> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if text.starts_with("*.") {
        return Err("is a wildcard, which needs DNS-01; that is not supported yet");
    }
    if text.len() > 253 || !text.split('.').all(is_label) {
        return Err("is not a name that a certificate can be ordered for");
    }
    Ok(text.to_ascii_lowercase())
}
