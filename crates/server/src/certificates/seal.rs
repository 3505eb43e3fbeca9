//! What lies in a store may be sealed with a key that the servers have in a file (AES-256-GCM): whoever reads the store
//! reads no private key, and what is written under one name cannot be passed off under another.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};

/// A shorter key could be guessed.
const KEY_BYTES_MIN: usize = 32;

/// A key.
pub(super) struct Seal(RandomizedNonceKey);

impl Seal {
    /// Reads the key's file: 32 random bytes or more, in any form.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = sekisho_openings::read(path)
            .map_err(|error| format!("\"{shown}\" cannot be read: {error}"))?;
        Self::new(&text).ok_or_else(|| format!("\"{shown}\" has fewer than {KEY_BYTES_MIN} bytes"))
    }

    fn new(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        if text.len() < KEY_BYTES_MIN {
            return None;
        }
        RandomizedNonceKey::new(&AES_256_GCM, digest(&SHA256, text).as_ref()).ok().map(Self)
    }

    /// Seals a text under a name.
    pub(super) fn close(&self, name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
        let mut sealed = text.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(name), &mut sealed);
        let nonce = nonce.map_err(|_| "it cannot be sealed".to_owned())?;
        Ok([&nonce.as_ref()[..], &sealed].concat())
    }

    /// The text, if it was sealed with this key and under this name.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.0.open_in_place(nonce, Aad::from(name), &mut text).ok()?.len();
        text.truncate(len);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_with_its_key_and_under_its_name_alone() {
        let (one, other) = ([b'a'; 32], [b'b'; 32]);
        let seal = Seal::new(&one).expect("a key");
        let sealed = seal.close("name", b"secret").expect("sealed");
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"));
        assert_eq!(seal.open("name", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(seal.open("other", &sealed), None);
        assert_eq!(Seal::new(&other).expect("a key").open("name", &sealed), None);
        let mut changed = sealed;
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        assert_eq!(seal.open("name", &changed), None);
        assert_eq!(seal.open("name", b"short"), None);
        assert!(Seal::new(b"too short").is_none());
    }
}
