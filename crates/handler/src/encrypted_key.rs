//! Keys that are encrypted (PKCS #8, RFC 5958) and their passwords: `ssl_password_file` and its companions.

use std::fmt;

use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Why a key cannot be decrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotDecrypted {
    /// It is not PEM.
    NotPem,
    /// It is in an old form.
    Form,
    /// No passwords are known.
    NoPasswords,
    /// It is not an encrypted key.
    Invalid(String),
    /// None of the passwords is the right one.
    NoneFits,
}

impl fmt::Display for NotDecrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPem => f.write_str("is not PEM"),
            Self::Form => f.write_str(
                "is encrypted in a form that is not supported; convert it with: openssl pkcs8 -topk8 -in KEY -out NEW",
            ),
            Self::NoPasswords => f.write_str("is encrypted, and no file names its password"),
            Self::Invalid(why) => write!(f, "is not an encrypted key: {why}"),
            Self::NoneFits => f.write_str("cannot be decrypted with any of the passwords"),
        }
    }
}

/// Whether a file holds an encrypted key.
pub fn is_encrypted(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"ENCRYPTED").is_some()
}

/// Decrypts the key of a file with the first password that fits, as nginx does.
pub fn decrypt(
    text: &[u8],
    passwords: Option<&[u8]>,
) -> Result<PrivateKeyDer<'static>, NotDecrypted> {
    let text = std::str::from_utf8(text).map_err(|_| NotDecrypted::NotPem)?;
    let (label, document) = SecretDocument::from_pem(text).map_err(|_| NotDecrypted::Form)?;
    if label != "ENCRYPTED PRIVATE KEY" {
        return Err(NotDecrypted::Form);
    }
    let passwords = passwords.ok_or(NotDecrypted::NoPasswords)?;
    let key = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| NotDecrypted::Invalid(error.to_string()))?;
    for password in lines(passwords) {
        if let Ok(plain) = key.decrypt(password) {
            let der = PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec());
            return Ok(PrivateKeyDer::Pkcs8(der));
        }
    }
    Err(NotDecrypted::NoneFits)
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
