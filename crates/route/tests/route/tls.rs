//! What a connection's encryption means for its requests.

use sekisho_config::{Tls, VerifyClient};
use sekisho_route::{ClientCertificate, ClientVerdict, TlsFacts};

use crate::support::{Asked, named_server, table};

fn shown(result: ClientVerdict) -> Box<ClientCertificate> {
    Box::new(ClientCertificate {
        result,
        subject: String::new(),
        issuer: String::new(),
        subject_legacy: String::new(),
        issuer_legacy: String::new(),
        serial: String::new(),
        fingerprint: String::new(),
        from: String::new(),
        to: String::new(),
        days_left: 1,
        pem: String::new(),
    })
}

/// S4: where a certificate is needed, the client has shown a good one to the server that is asked.
#[test]
fn a_certificate_counts_for_the_server_that_judged_it() {
    let with = |verify| Tls { verify, ..Tls::default() };
    let site = table(vec![
        named_server(&["open.test"], vec![]).tls(with(VerifyClient::Off)),
        named_server(&["must.test"], vec![]).tls(with(VerifyClient::On)),
        named_server(&["may.test"], vec![]).tls(with(VerifyClient::Optional)),
    ]);
    let valid = || Some(shown(ClientVerdict::Valid));
    let invalid = || Some(shown(ClientVerdict::Invalid("expired".to_owned())));
    let unjudged = || Some(shown(ClientVerdict::Unjudged("unknown".to_owned())));
    let rows = [
        // The name of the handshake, the host that is asked, the certificate, and the outcome.
        ("open.test", "open.test", None, "file /srv/a"),
        ("open.test", "open.test", invalid(), "file /srv/a"),
        ("must.test", "open.test", None, "file /srv/a"),
        ("must.test", "must.test", None, "error 400"),
        ("must.test", "must.test", invalid(), "error 400"),
        ("must.test", "must.test", valid(), "file /srv/a"),
        ("must.test", "must.test", unjudged(), "file /srv/a"),
        ("may.test", "may.test", None, "file /srv/a"),
        ("may.test", "may.test", invalid(), "error 400"),
        ("may.test", "may.test", valid(), "file /srv/a"),
        // Another server judged it, or none did.
        ("open.test", "must.test", valid(), "error 421"),
        ("may.test", "must.test", valid(), "error 421"),
        ("must.test", "may.test", None, "error 421"),
    ];
    for (name, host, client, outcome) in rows {
        let mut asked = Asked::with_fields("GET /a", &[("Host", host)], &["/srv/a"]);
        let facts = TlsFacts { server_name: name.to_owned(), client, ..TlsFacts::default() };
        asked.connection.is_tls = true;
        asked.connection.tls = Some(facts.into());
        assert_eq!(asked.decide(&site), outcome, "{name}, {host}");
    }
}

/// A request without TLS at a port with TLS is refused, whatever it asks for.
#[test]
fn a_clear_request_at_a_tls_port_is_refused() {
    let site = named_server(&[], vec![]).table();
    let mut asked = Asked::new("GET /a", &["/srv/a"]);
    asked.connection.is_clear_by_mistake = true;
    assert_eq!(asked.decide(&site), "error 400");
}
