//! Encrypted keys of servers and their passwords (`ssl_password_file`).

use std::path::Path;

use rustls::pki_types::PrivateKeyDer;
use sekisho_handler::encrypted_key::{NotDecrypted, decrypt};

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
    let file = passwords.map(|file| read_file(PASSWORDS, file)).transpose()?;
    decrypt(text, file.as_deref()).map_err(|why| match (why, passwords) {
        (NotDecrypted::NoPasswords, _) => {
            problem(KEY, path, "is encrypted: set its password with \"ssl_password_file\"")
        }
        (NotDecrypted::NoneFits, Some(file)) => {
            let file = file.display();
            problem(KEY, path, format_args!("cannot be decrypted with any password in \"{file}\""))
        }
        (why, _) => problem(KEY, path, why),
    })
}
