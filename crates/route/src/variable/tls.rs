//! Variables about the encryption of a connection.

mod names;

use sekisho_config::TlsVariable as T;

use crate::route_state::{ClientVerdict, TlsFacts};

/// Writes one; all are empty where the connection is not encrypted.
pub(super) fn put(facts: Option<&TlsFacts>, variable: T, out: &mut Vec<u8>) {
    let Some(facts) = facts else { return };
    let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
    match variable {
        T::Alpn => return put(&facts.alpn),
        T::Cipher => return put(facts.cipher),
        T::Curve => return put(facts.curve),
        T::Ciphers | T::Curves => {
            match (&facts.offered, variable) {
                (Some(offered), T::Ciphers) => names::put_ciphers(&offered.ciphers, out),
                (Some(offered), _) => names::put_groups(&offered.groups, out),
                (None, _) => {}
            }
            return;
        }
        T::EarlyData => return put(if facts.is_early { "1" } else { "" }),
        T::SessionId => return put(&facts.session_id),
        T::Protocol => return put(facts.protocol),
        T::ServerName => return put(&facts.server_name),
        T::SessionReused => return put(if facts.is_resumed { "r" } else { "." }),
        _ => {}
    }
    let Some(client) = &facts.client else {
        if variable == T::ClientVerify {
            put("NONE");
        }
        return;
    };
    match variable {
        T::ClientCertificateRaw => put(&client.pem),
        // Each line but the first begins with a tab, so that it is allowed in a field.
        T::ClientCertificate => put(&client.pem.trim_end().replace('\n', "\n\t")),
        T::ClientCertificateEscaped => put(&escaped(&client.pem)),
        T::ClientFingerprint => put(&client.fingerprint),
        T::ClientIssuer => put(&client.issuer),
        T::ClientIssuerLegacy => put(&client.issuer_legacy),
        T::ClientSubjectLegacy => put(&client.subject_legacy),
        T::ClientSubject => put(&client.subject),
        T::ClientSerial => put(&client.serial),
        T::ClientStart => put(&client.from),
        T::ClientEnd => put(&client.to),
        T::ClientDaysLeft => put(&client.days_left.to_string()),
        T::ClientVerify => match &client.result {
            ClientVerdict::Valid => put("SUCCESS"),
            ClientVerdict::Unjudged(why) | ClientVerdict::Invalid(why) => {
                put("FAILED:");
                put(why);
            }
        },
        _ => {}
    }
}

/// Percent-encoded, as nginx has it: all but letters, digits and `-._~`.
fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            all.push('%');
            for digit in [byte >> 4, byte & 15] {
                all.extend(char::from_digit(digit.into(), 16).map(|it| it.to_ascii_uppercase()));
            }
        }
    }
    all
}
