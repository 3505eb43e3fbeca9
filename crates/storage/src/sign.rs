//! Signatures of requests: version 4 of AWS, which other stores take as well (Google's by its keys for
//! interoperability). Bodies are not part of a signature: TLS protects them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sekisho_http::date::civil;
use sekisho_http::{Fields, hex};
use sha2::{Digest as _, Sha256};

use crate::{Credentials, Draft, Place, Service, azure};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Adds `Host`, and what proves that a request is ours, to its fields; without credentials it is anonymous. All other
/// fields must be there before, but for those of framing.
pub fn sign(
    draft: &Draft,
    place: &Place,
    credentials: Option<&Credentials>,
    body_bytes: u64,
    unix_secs: i64,
    fields: &mut Fields,
) {
    fields.push("Host", place.host.as_bytes());
    if place.service == Service::Azure {
        return azure::sign(draft, credentials, body_bytes, unix_secs, fields);
    }
    let Some(Credentials::Aws { access_key, secret_key, session_token }) = credentials else {
        return;
    };
    let at = civil(unix_secs);
    let day = format!("{:04}{:02}{:02}", at.year, at.month, at.day);
    let stamp = format!("{day}T{:02}{:02}{:02}Z", at.hour, at.minute, at.second);
    fields.push("x-amz-content-sha256", UNSIGNED);
    fields.push("x-amz-date", stamp.as_bytes());
    if let Some(token) = session_token {
        fields.push("x-amz-security-token", token.as_bytes());
    }
    let signed = lines(fields, |name| name == b"host" || name.starts_with(b"x-amz-"));
    let names: Vec<&[u8]> =
        signed.iter().filter_map(|line| line.split(|byte| *byte == b':').next()).collect();
    let names = String::from_utf8_lossy(&names.join(&b';')).into_owned();
    let mut canonical = Vec::new();
    for line in [draft.method.as_bytes(), &draft.path, &draft.encoded_query()] {
        canonical.extend_from_slice(line);
        canonical.push(b'\n');
    }
    for line in &signed {
        canonical.extend_from_slice(line);
        canonical.push(b'\n');
    }
    canonical.extend_from_slice(format!("\n{names}\n{UNSIGNED}").as_bytes());
    let scope = format!("{day}/{}/s3/aws4_request", place.region);
    let digest = hex::text(&Sha256::digest(&canonical));
    let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{digest}");
    let signature = hex::text(&hmac(&signing_key(secret_key, place, &day), text.as_bytes()));
    let value = format!(
        "{ALGORITHM} Credential={access_key}/{scope},SignedHeaders={names},Signature={signature}"
    );
    fields.push("Authorization", value);
}

/// The fields that are signed, each as a line with its name in small letters, in their order.
pub(crate) fn lines(fields: &Fields, is_signed: fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let line = |(name, value): (&[u8], &[u8])| {
        let name = name.to_ascii_lowercase();
        is_signed(&name).then(|| [&name, b":".as_slice(), value.trim_ascii()].concat())
    };
    let mut lines: Vec<Vec<u8>> = fields.iter().filter_map(line).collect();
    lines.sort();
    lines
}

fn signing_key(secret_key: &str, place: &Place, day: &str) -> Vec<u8> {
    let secret = format!("AWS4{secret_key}");
    let words: [&str; 4] = [day, &place.region, "s3", "aws4_request"];
    words.iter().fold(secret.into_bytes(), |key, word| hmac(&key, word.as_bytes()))
}

pub(crate) fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            service: Service::S3,
            is_tls: true,
            host: "examplebucket.s3.amazonaws.com".into(),
            base: "".into(),
            bucket: "examplebucket".into(),
            prefix: "".into(),
            region: "us-east-1".into(),
        }
    }

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn credentials() -> Credentials {
        Credentials::Aws {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: SECRET.to_owned(),
            session_token: None,
        }
    }

    /// The key of the example in AWS's own documentation of version 4.
    #[test]
    fn the_signing_key_is_that_of_the_documentation() {
        let place = Place { region: "us-east-1".into(), ..place() };
        let mut key = signing_key(SECRET, &place, "20130524");
        let text = "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n\
                    7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972";
        key = hmac(&key, text.as_bytes());
        assert_eq!(
            hex::text(&key),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn what_begins_with_x_amz_is_signed_and_nothing_secret_is_said() {
        let place = place();
        let draft = place.object("PUT", b"a");
        let mut fields = Fields::default();
        fields.push("x-amz-copy-source", "/b/c");
        fields.push("Content-Type", "text/plain");
        sign(&draft, &place, Some(&credentials()), 0, 1_369_353_600, &mut fields);
        let said = String::from_utf8_lossy(fields.get("authorization").expect("signed"));
        assert!(
            said.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-copy-source;x-amz-date,"),
            "{said}"
        );
        assert!(
            said.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request")
        );
        assert!(!said.contains("wJalr"));
        assert_eq!(fields.get("x-amz-date"), Some(&b"20130524T000000Z"[..]));
        let mut anonymous = Fields::default();
        sign(&draft, &place, None, 0, 0, &mut anonymous);
        assert_eq!(anonymous.len(), 1);
    }
}
