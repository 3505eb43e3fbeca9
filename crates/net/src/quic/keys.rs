//! Keys of QUIC that outlive connections and processes: a process that takes over gets the secret, so that tokens and
//! stateless resets of its predecessor hold (Q2). With `quic_host_key` they hold over a restart as well.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::{hkdf, hmac};
use rustls::crypto::aws_lc_rs as provider;
use sekisho_http::hex;

const SECRET_BYTES: usize = 32;
/// What begins the line of the secret in the text for the next process.
const WORD: &str = "quic";

struct Secret {
    bytes: [u8; SECRET_BYTES],
    /// Tells the connection ids of this process from those of its predecessor.
    process: u8,
}

static SECRET: Mutex<Option<Secret>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Secret) -> T) -> T {
    let mut secret = SECRET.lock().unwrap_or_else(PoisonError::into_inner);
    act(secret.get_or_insert_with(|| {
        let mut bytes = [0; SECRET_BYTES];
        // Without random numbers no handshake would succeed either.
        let _ = provider::default_provider().secure_random.fill(&mut bytes);
        let process = bytes[0];
        Secret { bytes, process }
    }))
}

/// The key of stateless resets, from the secret of `quic_host_key` or our own.
pub(super) fn reset_key(host_key: Option<&[u8]>) -> hmac::Key {
    let purpose = hmac::Key::new(hmac::HMAC_SHA256, b"quic reset");
    with(|secret| {
        let derived = hmac::sign(&purpose, host_key.unwrap_or(&secret.bytes));
        hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
    })
}

/// The key of address tokens, from the same.
pub(super) fn token_key(host_key: Option<&[u8]>) -> hkdf::Prk {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"quic token");
    with(|secret| salt.extract(host_key.unwrap_or(&secret.bytes)))
}

/// The byte in connection ids that names this process.
pub(super) fn process() -> u8 {
    with(|secret| secret.process)
}

/// The secret as a line for the process that takes over.
pub(crate) fn hand_over() -> String {
    with(|secret| format!("{WORD} {} {}\n", secret.process, hex::text(&secret.bytes)))
}

/// Takes the secret of the process that this one replaces, if the line is one.
pub(crate) fn take_over(line: &str) -> Option<()> {
    let (process, bytes) = line.strip_prefix(WORD)?.trim().split_once(' ')?;
    let bytes: [u8; SECRET_BYTES] = hex::bytes(bytes.as_bytes())?.try_into().ok()?;
    let process = process.parse::<u8>().ok()?.wrapping_add(1);
    with(|secret| *secret = Secret { bytes, process });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_goes_to_the_next_process() {
        // Q2: the keys stay, the byte that names the process does not.
        let before = process();
        let line = hand_over();
        assert_eq!(take_over(&line), Some(()));
        assert_eq!(process(), before.wrapping_add(1));
        assert_eq!(hand_over().split(' ').nth(2), line.split(' ').nth(2));
        for bad in ["", "quic", "quic 1", "quic 300 00", "12 00ff"] {
            assert_eq!(take_over(bad), None, "{bad}");
        }
    }
}
