//! Who may do what, as a configuration says it: tokens, rules about identities, and which users may control the server.
//! Names of users and groups are looked up, and files of tokens read, when a configuration comes into use.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use sekisho_config::{Admin, Endpoint, IdentityRule};
use sekisho_endpoint::{ControlAccess, IdentityMatch, Permissions};
use sekisho_net::native::Tokens;

use crate::{Problem, user};

/// The shortest token: less can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// The longest: what a greeting has room for.
const TOKEN_BYTES_MAX: usize = 2048;
/// The longest name, as for all names in a greeting.
const NAME_BYTES_MAX: usize = 128;
/// Every credential is compared with all of them.
const TOKENS_MAX: usize = 4096;
/// The name of the token of `credential_file`.
const OPERATOR: &str = "operator";

/// Who may do what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identities {
    pub(crate) tokens: Tokens,
    pub(crate) permissions: Permissions,
    /// Which clients may begin a session; none is all.
    pub(crate) allowed: Vec<IdentityMatch>,
}

/// A word of the configuration that cannot be used, and why.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct IdentityProblem {
    /// The directive.
    pub(crate) directive: &'static str,
    /// The word.
    pub(crate) word: PathBuf,
    /// What is wrong.
    pub(crate) message: String,
}

impl From<IdentityProblem> for Problem {
    fn from(problem: IdentityProblem) -> Self {
        Self::new(format_args!("{}: {}", problem.directive, problem.message))
    }
}

impl Identities {
    /// Those of a configuration.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, IdentityProblem> {
        let mut permissions = Permissions::default();
        for admin in &endpoint.admins {
            let who = match admin {
                Admin::Uid(uid) => vec![IdentityMatch::Unix(*uid)],
                Admin::User(name) => vec![of_user("admin", "", name)?],
                Admin::Group(name) => of_group("admin", "", name)?,
            };
            permissions.permit_control(ControlAccess::Full, who);
        }
        let mut tokens = Vec::new();
        if let Some(path) = &endpoint.credential_file {
            tokens.push((OPERATOR.to_owned(), read_credential(path)?));
            let operator = IdentityMatch::Token(OPERATOR.into());
            permissions.permit_control(ControlAccess::Full, [operator]);
        }
        if let Some(path) = &endpoint.token_file {
            read_tokens(path, &mut tokens, endpoint.credential_file.is_some())?;
        }
        for permit in &endpoint.permits {
            let who = matches("permit", &permit.who)?;
            if permit.service == "control" {
                let access =
                    if permit.reads_only { ControlAccess::Read } else { ControlAccess::Full };
                permissions.permit_control(access, who);
            } else {
                permissions.permit(&permit.service, who);
            }
        }
        let allowed = matches("allow_identity", &endpoint.allowed)?;
        Ok(Self { tokens: Tokens::new(tokens), permissions, allowed })
    }
}

fn matches(
    directive: &'static str,
    rules: &[IdentityRule],
) -> Result<Vec<IdentityMatch>, IdentityProblem> {
    let mut all = Vec::new();
    for rule in rules {
        all.push(match rule {
            IdentityRule::All => IdentityMatch::All,
            IdentityRule::Anonymous => IdentityMatch::Anonymous,
            IdentityRule::Identified => IdentityMatch::Identified,
            IdentityRule::UnixUid(uid) => IdentityMatch::Unix(*uid),
            IdentityRule::UnixUser(name) => of_user(directive, "unix:", name)?,
            IdentityRule::UnixGroup(name) => {
                all.extend(of_group(directive, "group:", name)?);
                continue;
            }
            IdentityRule::Token(name) => IdentityMatch::Token(name.as_str().into()),
            IdentityRule::User(name) => IdentityMatch::User(name.as_str().into()),
            IdentityRule::Certificate(name) => IdentityMatch::Certificate(name.as_str().into()),
            IdentityRule::Network(address, bits) => IdentityMatch::Network(*address, *bits),
        });
    }
    Ok(all)
}

fn of_user(
    directive: &'static str,
    kind: &str,
    name: &str,
) -> Result<IdentityMatch, IdentityProblem> {
    let unknown = || IdentityProblem {
        directive,
        word: format!("{kind}{name}").into(),
        message: format!("user \"{name}\" is not in /etc/passwd"),
    };
    user::uid(name).map(IdentityMatch::Unix).ok_or_else(unknown)
}

fn of_group(
    directive: &'static str,
    kind: &str,
    name: &str,
) -> Result<Vec<IdentityMatch>, IdentityProblem> {
    let unknown = || IdentityProblem {
        directive,
        word: format!("{kind}{name}").into(),
        message: format!("group \"{name}\" is not in /etc/group"),
    };
    let members = user::members(name).ok_or_else(unknown)?;
    Ok(members.into_iter().map(IdentityMatch::Unix).collect())
}

fn read(directive: &'static str, path: &Path) -> Result<Vec<u8>, IdentityProblem> {
    std::fs::read(path).map_err(|error| problem(directive, path, &error))
}

fn problem(directive: &'static str, path: &Path, why: &dyn Display) -> IdentityProblem {
    let message = format!("{}: {why}", path.display());
    IdentityProblem { directive, word: path.to_owned(), message }
}

fn check_length(token: &[u8]) -> Result<(), String> {
    if (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Ok(());
    }
    Err(format!("a credential has from {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes"))
}

fn read_credential(path: &Path) -> Result<Vec<u8>, IdentityProblem> {
    const DIRECTIVE: &str = "credential_file";
    let credential = read(DIRECTIVE, path)?.trim_ascii().to_vec();
    check_length(&credential).map_err(|why| problem(DIRECTIVE, path, &why))?;
    Ok(credential)
}

/// `NAME:TOKEN` in each line, but for empty lines and comments. A name may have several tokens, so that one can be
/// replaced by another while both are in use.
fn read_tokens(
    path: &Path,
    tokens: &mut Vec<(String, Vec<u8>)>,
    has_operator: bool,
) -> Result<(), IdentityProblem> {
    const DIRECTIVE: &str = "token_file";
    let text = read(DIRECTIVE, path)?;
    parse_tokens(&text, tokens, has_operator)
        .map_err(|(line, why)| problem(DIRECTIVE, path, &format_args!("line {line}: {why}")))
}

fn parse_tokens(
    text: &[u8],
    tokens: &mut Vec<(String, Vec<u8>)>,
    has_operator: bool,
) -> Result<(), (usize, String)> {
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |why: &str| (at + 1, why.to_owned());
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(|| wrong("a line has the form NAME:TOKEN"))?;
        let name =
            std::str::from_utf8(&line[..colon]).map_err(|_| wrong("the name is not UTF-8"))?;
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.chars().any(|it| it.is_control() || it.is_whitespace());
        if !is_name {
            return Err(wrong("this name will not do"));
        }
        if has_operator && name == OPERATOR {
            return Err(wrong("this is the name of the token of \"credential_file\""));
        }
        let token = line[colon + 1..].to_vec();
        check_length(&token).map_err(|why| wrong(&why))?;
        if tokens.iter().any(|(_, other)| *other == token) {
            return Err(wrong("this token is there twice"));
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(wrong("there are too many tokens"));
        }
        tokens.push((name.to_owned(), token));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_line_by_line_and_never_shown() {
        // E2, E13
        let mut tokens = Vec::new();
        let text =
            "# tokens\n\n ci:0123456789abcdef \r\nci:fedcba9876543210\nbackup:a:b:c:d:e:f:g:h:i\n";
        parse_tokens(text.as_bytes(), &mut tokens, true).expect("in order");
        let names: Vec<&str> = tokens.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ci", "ci", "backup"]);
        assert_eq!(tokens[2].1, b"a:b:c:d:e:f:g:h:i");
        for (text, line) in [
            ("ci", 1),
            ("\nci:short", 2),
            (":0123456789abcdef", 1),
            ("a b:0123456789abcdef", 1),
            ("operator:0123456789abcdef", 1),
            ("a:0123456789abcdef\nb:0123456789abcdef", 2),
        ] {
            let error = parse_tokens(text.as_bytes(), &mut Vec::new(), true).expect_err("refused");
            assert_eq!(error.0, line, "{text}");
            assert!(!error.1.contains("0123456789abcdef"), "{error:?}");
        }
        let own = "operator:0123456789abcdef";
        assert!(parse_tokens(own.as_bytes(), &mut Vec::new(), false).is_ok());
    }
}
