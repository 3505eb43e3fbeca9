//! Keys of an account. They are never shown: not by `Debug`, and no request but its signature has anything of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Service;

/// What requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Keys of AWS, and of what speaks like it.
    Aws {
        /// Its name; it is no secret.
        access_key: String,
        /// The secret.
        secret_key: String,
        /// What comes with temporary keys.
        session_token: Option<String>,
    },
    /// The key of an account of Azure.
    SharedKey {
        /// The account's name; it is no secret.
        account: String,
        /// The secret.
        key: Vec<u8>,
    },
    /// A shared access signature of Azure: a query that goes with every request.
    SharedAccess(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a file as the command line tool of S3 has it: `aws_access_key_id = …` and so on; sections but the first
    /// and `[default]` are left out. The error never has anything of the file in it.
    pub fn parse(service: Service, text: &str) -> Result<Self, &'static str> {
        let mut values: Vec<(&str, &str)> = Vec::new();
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
            let name = match name.trim() {
                "access_key" => "aws_access_key_id",
                "secret_key" => "aws_secret_access_key",
                "session_token" => "aws_session_token",
                name => name,
            };
            if is_ours {
                values.push((name, value.trim()));
            }
        }
        // The last one counts.
        let value = |name: &str| values.iter().rfind(|(own, _)| *own == name);
        Self::of(service, &|name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    /// Of values by their names; an error where one is missing, or could not stand in a request.
    pub fn of(
        service: Service,
        value: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, &'static str> {
        let is_good =
            |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let value = |name| value(name).filter(is_good);
        match service {
            Service::S3 => match (value("aws_access_key_id"), value("aws_secret_access_key")) {
                (Some(access_key), Some(secret_key)) => {
                    let session_token = value("aws_session_token");
                    Ok(Self::Aws { access_key, secret_key, session_token })
                }
                _ => Err("needs aws_access_key_id and aws_secret_access_key"),
            },
            Service::Azure => {
                if let Some(token) = value("azure_storage_sas_token") {
                    let token = token.strip_prefix('?').unwrap_or(&token);
                    let is_token = token.contains("sig=") && !token.contains('#');
                    let made = is_token.then(|| Self::SharedAccess(token.to_owned()));
                    return made.ok_or("has an azure_storage_sas_token without sig=");
                }
                match (value("azure_storage_account"), value("azure_storage_key")) {
                    (Some(account), Some(key)) => match STANDARD.decode(key) {
                        Ok(key) => Ok(Self::SharedKey { account, key }),
                        Err(_) => Err("has an azure_storage_key that is not base64"),
                    },
                    _ => Err(
                        "needs azure_storage_account and azure_storage_key, or azure_storage_sas_token",
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_read_and_never_shown() {
        let text = "# mine\n[default]\naws_access_key_id = AK\naws_secret_access_key=SK\n\n[other]\naws_access_key_id = NO\n";
        let read = Credentials::parse(Service::S3, text).expect("good");
        let (access_key, secret_key) = ("AK".to_owned(), "SK".to_owned());
        assert!(!format!("{read:?}").contains("SK"));
        assert_eq!(read, Credentials::Aws { access_key, secret_key, session_token: None });
        for (text, expected) in [
            ("", "needs aws_access_key_id and aws_secret_access_key"),
            ("aws_access_key_id = AK", "needs aws_access_key_id and aws_secret_access_key"),
            ("AK:SK", "has a line that is not \"name = value\""),
            (
                "aws_access_key_id = A\naws_secret_access_key = a b",
                "needs aws_access_key_id and aws_secret_access_key",
            ),
        ] {
            assert_eq!(Credentials::parse(Service::S3, text), Err(expected), "{text}");
        }
    }

    #[test]
    fn azure_has_the_key_of_an_account_or_a_token() {
        let account = "azure_storage_account = me\n";
        let key = Credentials::SharedKey { account: "me".to_owned(), key: b"key".to_vec() };
        let token = Credentials::SharedAccess("sv=1&sig=x%3D".to_owned());
        let missing =
            "needs azure_storage_account and azure_storage_key, or azure_storage_sas_token";
        for (text, expected) in [
            (format!("{account}azure_storage_key = a2V5"), Ok(key)),
            ("azure_storage_sas_token = ?sv=1&sig=x%3D".to_owned(), Ok(token)),
            (
                "azure_storage_sas_token = sv=1".to_owned(),
                Err("has an azure_storage_sas_token without sig="),
            ),
            (
                format!("{account}azure_storage_key = a2V5!"),
                Err("has an azure_storage_key that is not base64"),
            ),
            (account.to_owned(), Err(missing)),
        ] {
            assert_eq!(Credentials::parse(Service::Azure, &text), expected, "{text}");
        }
    }
}
