//! An authority of a test's own: certificates for servers at 127.0.0.1 and for clients.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use sekisho_testkit::Tree;

/// Makes `NAME.pem`, the authority itself, and certificates with their keys by this one: `NAME-server.pem` for 127.0.0.1, and
/// `NAME-client.pem` with the subject `CN=CLIENT`.
pub(crate) fn authority(tree: &Tree, name: &str, client: &str) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let own = params.self_signed(&key).expect("signed");
    tree.file(&format!("{name}.pem"), own.pem());
    let issuer = Issuer::new(params, key);
    let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for (kind, common_name) in [("server", "server"), ("client", client)] {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        tree.file(&format!("{name}-{kind}.pem"), certificate.pem() + &key.serialize_pem());
    }
}
