//! An authority of a test's own: certificates for servers at 127.0.0.1 and for clients.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use sekisho_testkit::Tree;

/// Makes `NAME.pem`, the authority itself, and certificates with their keys by this one: `NAME-server.pem` for 127.0.0.1, and
/// `NAME-client.pem` with the subject `CN=CLIENT`. `NAME.crl` revokes nothing, `NAME-client.crl` the certificate of the client.
pub(crate) fn authority(tree: &Tree, name: &str, client: &str) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let own = params.self_signed(&key).expect("signed");
    tree.file(&format!("{name}.pem"), own.pem());
    let issuer = Issuer::new(params, key);
    let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for (serial, kind, common_name) in [(1, "server", "server"), (2, "client", client)] {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.extended_key_usages = usages.to_vec();
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        tree.file(&format!("{name}-{kind}.pem"), certificate.pem() + &key.serialize_pem());
    }
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(2),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    for (kind, revoked_certs) in [("", Vec::new()), ("-client", vec![revoked])] {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).expect("signed").pem().expect("PEM");
        tree.file(&format!("{name}{kind}.crl"), list);
    }
}
