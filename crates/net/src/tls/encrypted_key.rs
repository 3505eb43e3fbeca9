//! Keys that are encrypted (PKCS #8, RFC 5958) and their passwords (`ssl_password_file`).

use std::path::Path;

use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::TlsProblem;
use super::load::{problem, read as read_file};

const KEY: &str = "ssl_certificate_key";
const PASSWORDS: &str = "ssl_password_file";

/// Decrypts the key of a file with the first password that fits, as nginx does.
pub(super) fn read(
    path: &Path,
    text: &[u8],
    passwords: Option<&Path>,
) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    let wrong = |message: &str| problem(KEY, path, message);
    let text = std::str::from_utf8(text).map_err(|_| wrong("is not PEM"))?;
    let (label, document) = SecretDocument::from_pem(text).map_err(|_| {
        let how = "convert it with: openssl pkcs8 -topk8 -in KEY -out NEW";
        problem(KEY, path, format_args!("is encrypted in a form that is not supported; {how}"))
    })?;
    if label != "ENCRYPTED PRIVATE KEY" {
        return Err(wrong("is encrypted in a form that is not supported"));
    }
    let Some(file) = passwords else {
        return Err(wrong("is encrypted: set its password with \"ssl_password_file\""));
    };
    let key = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| problem(KEY, path, format_args!("is not an encrypted key: {error}")))?;
    for password in lines(&read_file(PASSWORDS, file)?) {
        if let Ok(plain) = key.decrypt(password) {
            let der = PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec());
            return Ok(PrivateKeyDer::Pkcs8(der));
        }
    }
    let file = file.display();
    Err(problem(KEY, path, format_args!("cannot be decrypted with any password in \"{file}\"")))
}

/// One password in a line; a line may end as on Windows.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_password() {
        let found: Vec<&[u8]> = lines(b"one\r\n\ntwo words\nlast").collect();
        assert_eq!(found, [&b"one"[..], b"two words", b"last"]);
    }
}
