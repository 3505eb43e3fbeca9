//! Keys of an account. They are never shown: not by `Debug`, and no request but its signature has anything of them.

use std::fmt;

/// What requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its name; it is no secret.
    pub access_key: String,
    /// The secret.
    pub secret_key: String,
    /// What comes with temporary keys.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a file as the command line tool of S3 has it: `aws_access_key_id = …` and so on; sections but the first
    /// and `[default]` are left out. The error never has anything of the file in it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (mut access, mut secret, mut token) = (None, None, None);
        let mut is_ours = true;
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                is_ours = section.trim_end_matches(']').trim() == "default";
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err("has a line that is not \"name = value\"");
            };
            let value = value.trim().to_owned();
            match name.trim() {
                _ if !is_ours => {}
                "aws_access_key_id" | "access_key" => access = Some(value),
                "aws_secret_access_key" | "secret_key" => secret = Some(value),
                "aws_session_token" | "session_token" => token = Some(value),
                _ => {}
            }
        }
        let made = Self::new(access, secret, token);
        made.ok_or("needs aws_access_key_id and aws_secret_access_key")
    }

    /// Of what is known; `None` where a key is missing, or could not stand in a request.
    pub fn new(
        access: Option<String>,
        secret: Option<String>,
        token: Option<String>,
    ) -> Option<Self> {
        let is_good =
            |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let access_key = access.filter(is_good)?;
        let secret_key = secret.filter(is_good)?;
        Some(Self { access_key, secret_key, session_token: token.filter(is_good) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_read_and_never_shown() {
        let text = "# mine\n[default]\naws_access_key_id = AK\naws_secret_access_key=SK\n\n[other]\naws_access_key_id = NO\n";
        let read = Credentials::parse(text).expect("good");
        assert_eq!((&*read.access_key, &*read.secret_key), ("AK", "SK"));
        assert_eq!(read.session_token, None);
        assert!(!format!("{read:?}").contains("SK"));
        for (text, expected) in [
            ("", "needs aws_access_key_id and aws_secret_access_key"),
            ("aws_access_key_id = AK", "needs aws_access_key_id and aws_secret_access_key"),
            ("AK:SK", "has a line that is not \"name = value\""),
            (
                "aws_access_key_id = A\naws_secret_access_key = a b",
                "needs aws_access_key_id and aws_secret_access_key",
            ),
        ] {
            assert_eq!(Credentials::parse(text), Err(expected), "{text}");
        }
    }
}
