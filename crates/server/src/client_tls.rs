//! TLS of the server's own connections to authorities and stores.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// A client that trusts the authorities of a file, or the system's.
pub(crate) fn client_tls(file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let config = builder()?.with_root_certificates(roots(file)?).with_no_client_auth();
    Ok(Arc::new(config))
}

/// A client whose verification is yet to be said.
pub(crate) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

/// The authorities that are trusted: those of a file, or the system's.
fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = "install ca-certificates, or name a file";
            return Err(format!("the system trusts no certificate authority: {why}"));
        }
        return Ok(roots);
    };
    let shown = file.display();
    let text = sekisho_openings::read(file)
        .map_err(|error| format!("\"{shown}\" cannot be read: {error}"))?;
    for one in CertificateDer::pem_slice_iter(&text) {
        let one = one.map_err(|error| format!("\"{shown}\" is not PEM: {error}"))?;
        roots.add(one).map_err(|error| format!("\"{shown}\" cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err(format!("\"{shown}\" has no certificate in it"));
    }
    Ok(roots)
}
