//! The forms in which a password may be stored, and whether one that is offered is the one. Comparisons take
//! the same time wherever the difference is.

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use yescrypt::password_hash::PasswordVerifier;

use super::md5_crypt::md5_crypt;

/// Bounds of what a hash may cost: one that takes minutes would delay all others.
const BCRYPT_COST_MAX: u32 = 16;
const SHA_ROUNDS_MAX: u32 = 1_000_000;
const YESCRYPT_BYTES_MAX: u64 = 128 << 20;
/// Parameters with a time of their own are longer.
const YESCRYPT_TEXT_MAX: usize = 6;

/// A password as it is stored.
#[derive(Clone)]
pub struct Stored {
    text: Box<[u8]>,
    form: Form,
}

#[derive(Clone)]
enum Form {
    /// `{PLAIN}`
    Plain,
    /// `{SHA}`: SHA-1 in base64.
    Sha([u8; 20]),
    /// `{SSHA}`: SHA-1 of password and salt, and the salt.
    SaltedSha([u8; 20], Box<[u8]>),
    /// `$1$` or `$apr1$`: the magic word, the salt, the digits.
    Md5(&'static [u8], Box<[u8]>, [u8; 22]),
    /// `$2a$`, `$2b$`, `$2y$`, with its cost
    Bcrypt(Box<str>, u32),
    /// `$5$`, `$6$`, with its rounds
    ShaCrypt(Box<str>, u32),
    /// `$y$`, with its memory
    Yescrypt(Box<str>, u64),
    /// None of these, and why not.
    Unusable(&'static str),
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").finish_non_exhaustive()
    }
}

impl Stored {
    /// Reads a form.
    pub fn parse(text: &[u8]) -> Self {
        Self { text: text.into(), form: Form::parse(text) }
    }

    /// As it is stored.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Why it cannot be used, if it cannot.
    pub fn why_unusable(&self) -> Option<&'static str> {
        match self.form {
            Form::Unusable(why) => Some(why),
            _ => None,
        }
    }

    /// Whether comparing takes negligible time.
    pub fn is_quick(&self) -> bool {
        self.slowness() == 0
    }

    /// About how many microseconds comparing takes.
    pub(super) fn slowness(&self) -> u64 {
        match &self.form {
            Form::Plain | Form::Sha(_) | Form::SaltedSha(..) | Form::Unusable(_) => 0,
            Form::Md5(..) => 200,
            Form::Bcrypt(_, cost) => 50 << cost,
            Form::ShaCrypt(_, rounds) => u64::from(*rounds) / 2,
            Form::Yescrypt(_, bytes) => bytes / 1000,
        }
    }

    /// Whether this is the password. May take its time.
    pub fn is(&self, password: &[u8]) -> bool {
        let same = |one: &[u8], other: &[u8]| bool::from(one.ct_eq(other));
        match &self.form {
            Form::Plain => {
                // Of equal length both are once hashed.
                let stored = self.text.get(PLAIN.len()..).unwrap_or_default();
                same(&Sha1::digest(stored), &Sha1::digest(password)) && stored == password
            }
            Form::Sha(digest) => same(&Sha1::digest(password), digest),
            Form::SaltedSha(digest, salt) => {
                let made = Sha1::new().chain_update(password).chain_update(salt).finalize();
                same(&made, digest)
            }
            Form::Md5(magic, salt, digits) => same(&md5_crypt(password, magic, salt), digits),
            Form::Bcrypt(text, _) => bcrypt::verify(password, text).unwrap_or(false),
            Form::ShaCrypt(text, _) => {
                sha_crypt::ShaCrypt::default().verify_password(password, &**text).is_ok()
            }
            Form::Yescrypt(text, _) => {
                yescrypt::Yescrypt::default().verify_password(password, &**text).is_ok()
            }
            Form::Unusable(_) => false,
        }
    }
}

const PLAIN: &[u8] = b"{PLAIN}";
pub(super) const NOT_KNOWN: &str = "has an unknown form";
const BROKEN: &str = "is broken";
pub(super) const TOO_COSTLY: &str = "would take too long to check";

impl Form {
    fn parse(text: &[u8]) -> Self {
        let parsed = if text.starts_with(PLAIN) {
            Some(Self::Plain)
        } else if let Some(rest) = text.strip_prefix(b"{SHA}") {
            base64(rest).and_then(|digest| Some(Self::Sha(digest.try_into().ok()?)))
        } else if let Some(rest) = text.strip_prefix(b"{SSHA}") {
            base64(rest).and_then(|bytes| {
                let (digest, salt) = bytes.split_first_chunk()?;
                Some(Self::SaltedSha(*digest, salt.into()))
            })
        } else if let Some(rest) = text.strip_prefix(b"$apr1$") {
            md5(b"$apr1$", rest)
        } else if let Some(rest) = text.strip_prefix(b"$1$") {
            md5(b"$1$", rest)
        } else if [&b"$2a$"[..], b"$2b$", b"$2y$"].iter().any(|id| text.starts_with(id)) {
            bcrypt(text)
        } else if text.starts_with(b"$5$") || text.starts_with(b"$6$") {
            sha(text)
        } else if text.starts_with(b"$y$") {
            yescrypt(text)
        } else {
            Some(Self::Unusable(NOT_KNOWN))
        };
        parsed.unwrap_or(Self::Unusable(BROKEN))
    }
}

fn md5(magic: &'static [u8], rest: &[u8]) -> Option<Form> {
    let dollar = rest.iter().position(|byte| *byte == b'$')?;
    let digits = rest[dollar + 1..].try_into().ok()?;
    Some(Form::Md5(magic, rest[..dollar].into(), digits))
}

fn bcrypt(text: &[u8]) -> Option<Form> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 60)?;
    let cost: u32 = text.get(4..6)?.parse().ok()?;
    Some(match cost {
        4..=BCRYPT_COST_MAX => Form::Bcrypt(text.into(), cost),
        _ => Form::Unusable(TOO_COSTLY),
    })
}

fn sha(text: &[u8]) -> Option<Form> {
    let text = std::str::from_utf8(text).ok()?;
    let rounds = match text[3..].strip_prefix("rounds=") {
        Some(rest) => rest.split_once('$')?.0.parse().ok()?,
        None => sha_crypt::Params::RECOMMENDED_ROUNDS,
    };
    Some(match rounds {
        0..=SHA_ROUNDS_MAX => Form::ShaCrypt(text.into(), rounds),
        _ => Form::Unusable(TOO_COSTLY),
    })
}

fn yescrypt(text: &[u8]) -> Option<Form> {
    let text = std::str::from_utf8(text).ok()?;
    let (params, _) = text[3..].split_once('$')?;
    let read: yescrypt::Params = params.parse().ok()?;
    let bytes = read.n().checked_mul(128)?.checked_mul(u64::from(read.r()))?;
    let is_bounded =
        bytes <= YESCRYPT_BYTES_MAX && read.p() <= 4 && params.len() <= YESCRYPT_TEXT_MAX;
    Some(if is_bounded { Form::Yescrypt(text.into(), bytes) } else { Form::Unusable(TOO_COSTLY) })
}

/// Ordinary base64; padding may be left out.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    sekisho_route::decode_base64(text, &sekisho_route::STANDARD_BASE64, &mut out)?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each made by the program that makes such things: `htpasswd`, `openssl passwd`, crypt(3).
    const LONG: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const MADE: [(&str, &str); 24] = [
        ("secret", "{PLAIN}secret"),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0"),
        ("secret", "$apr1$oskykXLA$ZsFdD1UvX0o3KU/J9.qbg1"),
        ("secret", "$apr1$abc$PZF73YJz5hJ9yyI.7OP.R."),
        ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
        ("secret", "$2y$05$y7wA8OD9ISXrBZCgA34PhOT35iBSo1Px5803tONQl5sdBo5cg314y"),
        ("secret", "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$5$n/BlHtUEXvjGYA4k$ke/zeJBeLDfkh1lVB03.eTm2tezyHDyYbr4vnTgcrT/"),
        ("secret", "$5$rounds=1500$salt$omFLfjeIh8jPlPqbbp3l/xH/iya9aqBKqyCwBI9t4hA"),
        (
            "secret",
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
        ),
        (
            "secret",
            "$6$rounds=1500$a.b/c$D9X0DAIMEfWvmnHR6WSkCg5xdigVsi4WpQBP2Y0LsuuvBVbfYz.6ilOZQqdUhr/1qlS2wEObgYWqIUdywokMM.",
        ),
        ("secret", "$y$j9T$abcdefghijklmnop$3dL1LkYnZM.OVXuVdnnaKVDlLYT92dRwOzDZ5XiVCe."),
        ("", "$1$ab$rn6aQS/o7141mj179E/zA."),
        ("", "$5$salt$HrcUzzoef72uxM/YhTU5BAi419Fblqlq//zyM.rIOG0"),
        ("", "$y$j75$abcdefgh$dnXG1KuMBmwYrnuKh9nriQRakI62k6mwFrGgxhxYD/2"),
        ("xxxxxxxxxxxxxxxxx", "$1$ab$S5Xv7CkuFJMGc8C6OmsTo."),
        ("xxxxxxxxxxxxxxxxx", "$5$salt$9Gtof/instKVt9QoorBlW/fmK47LYj9ZWdEQ/QtBw72"),
        ("p\u{e4}ss", "$1$ab$HKU0BHffVFSU9ZlG98TKC/"),
        ("p\u{e4}ss", "$5$salt$QByXslDdYOD6rDYIa654cr1CJoe8aDZCu0FJ3tbotd2"),
        (LONG, "$1$ab$sstJ9HUkMZJmyargd7ozB1"),
        (LONG, "$apr1$zz$cFTwcq7mSH/QvWzHElgn1/"),
        (LONG, "$5$salt$HDhkswkvfFbVZXRe.IfKF2qvuU5iSRCuLTfy8e45lnC"),
    ];

    #[test]
    fn every_form_knows_its_password_and_no_other() {
        for (password, text) in MADE {
            let stored = Stored::parse(text.as_bytes());
            assert_eq!(stored.why_unusable(), None, "{text}");
            assert!(stored.is(password.as_bytes()), "{text}");
            for other in [format!("{password}x"), "Secret".to_owned(), "secre".to_owned()] {
                assert!(!stored.is(other.as_bytes()), "{text} {other}");
            }
        }
    }

    #[test]
    fn what_cannot_be_used_says_why_and_lets_nobody_in() {
        for (text, why) in [
            ("", NOT_KNOWN),
            ("secret", NOT_KNOWN),
            ("mCUZeMXtBQf46", NOT_KNOWN),
            ("{MD5}x", NOT_KNOWN),
            ("$7$x", NOT_KNOWN),
            ("{SHA}", BROKEN),
            ("{SHA}!", BROKEN),
            ("{SSHA}AAAA", BROKEN),
            ("$1$salt", BROKEN),
            ("$apr1$abc$short", BROKEN),
            ("$2y$05$short", BROKEN),
            ("$2y$31$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", TOO_COSTLY),
            ("$5$rounds=999999999$salt$x", TOO_COSTLY),
            ("$5$rounds=x$salt$x", BROKEN),
            ("$y$", BROKEN),
            ("$y$jZZ$abc$x", TOO_COSTLY),
        ] {
            let stored = Stored::parse(text.as_bytes());
            assert_eq!(stored.why_unusable(), Some(why), "{text}");
            for password in ["", "secret", text] {
                assert!(!stored.is(password.as_bytes()), "{text}");
            }
        }
    }

    #[test]
    fn a_broken_hash_behind_a_good_beginning_is_no_ones() {
        for text in ["$5$salt$", "$6$salt$!!", "$5$", "$y$j9T$abc$", "$1$$1234567890123456789012"] {
            assert!(!Stored::parse(text.as_bytes()).is(b""), "{text}");
            assert!(!Stored::parse(text.as_bytes()).is(b"secret"), "{text}");
        }
    }
}
