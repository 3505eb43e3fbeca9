//! A credentials file (`nsc` makes them): a token that says who the client is, and the seed of the key that proves it.

use std::fmt;

/// The length of the key that signs (Ed25519).
pub const SEED_BYTES: usize = 32;

/// The kinds of keys, by their first bits.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

/// What a client proves itself by. The seed is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The signed statement of an account; a bare key has none.
    pub token: Option<String>,
    /// The private key.
    pub seed: [u8; SEED_BYTES],
}

/// What is wrong with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CredentialsError {
    /// There is no seed in it.
    NoSeed,
    /// The seed is not one of a user, or it is damaged.
    BadSeed,
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoSeed => "there is no user's seed (SU…) in it",
            Self::BadSeed => "its seed is damaged",
        })
    }
}

impl std::error::Error for CredentialsError {}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a credentials file, or a file with nothing but the seed.
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let lines = text.lines().map(str::trim);
        let mut words = lines.filter(|line| !line.is_empty() && !line.starts_with('-'));
        let seed = words.clone().find(|line| line.starts_with("SU") && !line.contains(' '));
        let token = words.find(|line| line.starts_with("ey") && !line.contains(' '));
        let seed = read_seed(seed.ok_or(CredentialsError::NoSeed)?);
        let seed = seed.ok_or(CredentialsError::BadSeed)?;
        Ok(Self { token: token.map(str::to_owned), seed })
    }
}

fn read_seed(text: &str) -> Option<[u8; SEED_BYTES]> {
    let bytes = from_base32(text)?;
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(2)?)?;
    let [first, second, seed @ ..] = content else { return None };
    // The kind is spread over both bytes.
    let is_users = first & 0xf8 == SEED && ((first & 7) << 5) | (second >> 3) == USER;
    (is_users && sum == crc16(content).to_le_bytes()).then(|| seed.try_into().ok())?
}

/// A user's public key, as servers know it.
pub fn public_key(key: &[u8; SEED_BYTES]) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
    to_base32(&bytes)
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn to_base32(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(ALPHABET[(held >> bits) as usize & 31]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        out.push(char::from(ALPHABET[(held << (5 - bits)) as usize & 31]));
    }
    out
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut held, mut bits) = (0_u32, 0);
    for byte in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte)?;
        held = (held << 5) | value as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
        }
        held &= (1 << bits) - 1;
    }
    (held == 0).then_some(out)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |sum: u16, _| if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
    bytes.iter().fold(0, |sum, byte| (0..8).fold(sum ^ (u16::from(*byte) << 8), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair of the library `nkeys`' own documentation.
    const SEED_TEXT: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

    #[test]
    fn a_file_with_token_and_seed_is_read() {
        let file = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0eXAi.eyJ.x\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\
             NKEY Seed printed below can be used to sign.\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED_TEXT}\n------END USER NKEY SEED------\n"
        );
        let of = Credentials::parse(&file).expect("credentials");
        assert_eq!(of.token.as_deref(), Some("eyJ0eXAi.eyJ.x"));
        let bare = Credentials::parse(SEED_TEXT).expect("credentials");
        assert_eq!((bare.token, bare.seed), (None, of.seed));
        assert!(!format!("{:?}", Credentials::parse(&file)).contains("SUAC"));
    }

    #[test]
    fn a_damaged_or_foreign_seed_is_refused() {
        assert_eq!(Credentials::parse("").unwrap_err(), CredentialsError::NoSeed);
        for at in 2..SEED_TEXT.len() {
            let mut text = SEED_TEXT.to_owned();
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            text.replace_range(at..=at, other);
            assert_eq!(Credentials::parse(&text).unwrap_err(), CredentialsError::BadSeed, "{text}");
        }
    }

    #[test]
    fn base32_comes_back() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).map(|n| n ^ 0xa5).collect();
            assert_eq!(from_base32(&to_base32(&bytes)), Some(bytes));
        }
        assert!(public_key(&[7; 32]).starts_with('U'));
    }
}
