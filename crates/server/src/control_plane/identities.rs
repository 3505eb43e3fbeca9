//! Who may do what, as a configuration says it: tokens, rules about identities, and which users may control the server.
//! Names of users and groups are looked up, and files of tokens read, when a configuration comes into use.

use std::path::{Path, PathBuf};

use sekisho_config::{Admin, Endpoint, IdentityRule};
use sekisho_endpoint::{ControlAccess, IdentityMatch, Permissions};
use sekisho_handler::password;
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
/// So many lines of a file are said to be wrong.
const LINES_MAX: usize = 20;
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
    /// Whether it may be meant.
    pub(crate) is_warning: bool,
}

impl From<IdentityProblem> for Problem {
    fn from(problem: IdentityProblem) -> Self {
        Self::new(format_args!("{}: {}", problem.directive, problem.message))
    }
}

impl Identities {
    /// Those of a configuration.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, IdentityProblem> {
        let (identities, problems) = Self::read(endpoint);
        match problems.into_iter().find(|problem| !problem.is_warning) {
            Some(problem) => Err(problem),
            None => Ok(identities),
        }
    }

    /// The same with all that is wrong, and likely wrong, with them.
    pub(crate) fn read(endpoint: &Endpoint) -> (Self, Vec<IdentityProblem>) {
        let mut reading = Reading::default();
        let mut permissions = Permissions::default();
        for admin in &endpoint.admins {
            let who = match admin {
                Admin::Uid(uid) => vec![IdentityMatch::Unix(*uid)],
                Admin::User(name) => reading.user("admin", "", name),
                Admin::Group(name) => reading.group("admin", "", name),
            };
            permissions.permit_control(ControlAccess::Full, who);
        }
        if let Some(path) = &endpoint.credential_file {
            reading.credential(path);
            let operator = IdentityMatch::Token(OPERATOR.into());
            permissions.permit_control(ControlAccess::Full, [operator]);
        }
        if let Some(path) = &endpoint.token_file {
            reading.token_file(path, endpoint.credential_file.is_some());
        }
        if let Some(path) = &endpoint.password_file {
            reading.password_file(path);
        }
        for permit in &endpoint.permits {
            let who = reading.matches("permit", &permit.who, endpoint);
            if permit.service == "control" {
                let access =
                    if permit.reads_only { ControlAccess::Read } else { ControlAccess::Full };
                permissions.permit_control(access, who);
            } else {
                permissions.permit(&permit.service, who);
            }
        }
        let allowed = reading.matches("allow_identity", &endpoint.allowed, endpoint);
        let Reading { tokens, problems } = reading;
        (Self { tokens: Tokens::new(tokens), permissions, allowed }, problems)
    }
}

/// What has been read, and what was wrong with it.
#[derive(Default)]
struct Reading {
    tokens: Vec<(String, Vec<u8>)>,
    problems: Vec<IdentityProblem>,
}

impl Reading {
    fn wrong(&mut self, directive: &'static str, word: impl Into<PathBuf>, message: String) {
        let word = word.into();
        self.problems.push(IdentityProblem { directive, word, message, is_warning: false });
    }

    fn warn(&mut self, directive: &'static str, word: impl Into<PathBuf>, message: String) {
        let word = word.into();
        self.problems.push(IdentityProblem { directive, word, message, is_warning: true });
    }

    fn matches(
        &mut self,
        directive: &'static str,
        rules: &[IdentityRule],
        endpoint: &Endpoint,
    ) -> Vec<IdentityMatch> {
        let mut all = Vec::new();
        for rule in rules {
            all.push(match rule {
                IdentityRule::All => IdentityMatch::All,
                IdentityRule::Anonymous => IdentityMatch::Anonymous,
                IdentityRule::Identified => IdentityMatch::Identified,
                IdentityRule::UnixUid(uid) => IdentityMatch::Unix(*uid),
                IdentityRule::UnixUser(name) => {
                    all.extend(self.user(directive, "unix:", name));
                    continue;
                }
                IdentityRule::UnixGroup(name) => {
                    all.extend(self.group(directive, "group:", name));
                    continue;
                }
                IdentityRule::Token(name) => {
                    if !self.tokens.iter().any(|(known, _)| known == name) {
                        let why = match endpoint.token_file {
                            Some(_) => format!("no token is called \"{name}\""),
                            None => {
                                format!("no token is called \"{name}\": there is no \"token_file\"")
                            }
                        };
                        self.warn(directive, format!("token:{name}"), why);
                    }
                    IdentityMatch::Token(name.as_str().into())
                }
                IdentityRule::User(name) => {
                    if endpoint.password_file.is_none() {
                        let why = format!(
                            "user \"{name}\" has no password: there is no \"password_file\""
                        );
                        self.warn(directive, format!("user:{name}"), why);
                    }
                    IdentityMatch::User(name.as_str().into())
                }
                IdentityRule::Certificate(name) => IdentityMatch::Certificate(name.as_str().into()),
                IdentityRule::Network(address, bits) => IdentityMatch::Network(*address, *bits),
            });
        }
        all
    }

    fn user(&mut self, directive: &'static str, kind: &str, name: &str) -> Vec<IdentityMatch> {
        let uid = user::uid(name);
        if uid.is_none() {
            let message = format!("user \"{name}\" is not in /etc/passwd");
            self.wrong(directive, format!("{kind}{name}"), message);
        }
        uid.map(IdentityMatch::Unix).into_iter().collect()
    }

    fn group(&mut self, directive: &'static str, kind: &str, name: &str) -> Vec<IdentityMatch> {
        let members = user::members(name);
        if members.is_none() {
            let message = format!("group \"{name}\" is not in /etc/group");
            self.wrong(directive, format!("{kind}{name}"), message);
        }
        members.into_iter().flatten().map(IdentityMatch::Unix).collect()
    }

    /// The content of a file.
    fn file(&mut self, directive: &'static str, path: &Path) -> Option<Vec<u8>> {
        match sekisho_openings::read(path) {
            Ok(text) => Some(text),
            Err(error) => {
                self.wrong(directive, path, format!("{}: {error}", path.display()));
                None
            }
        }
    }

    fn credential(&mut self, path: &Path) {
        const DIRECTIVE: &str = "credential_file";
        let Some(text) = self.file(DIRECTIVE, path) else { return };
        let credential = text.trim_ascii().to_vec();
        match check_length(&credential) {
            Ok(()) => self.tokens.push((OPERATOR.to_owned(), credential)),
            Err(why) => self.wrong(DIRECTIVE, path, format!("{}: {why}", path.display())),
        }
    }

    /// `NAME:TOKEN` in each line, but for empty lines and comments. A name may have several tokens, so that one can
    /// be replaced by another while both are in use.
    fn token_file(&mut self, path: &Path, has_operator: bool) {
        const DIRECTIVE: &str = "token_file";
        let Some(text) = self.file(DIRECTIVE, path) else { return };
        let before = self.tokens.len();
        let wrong = parse_tokens(&text, &mut self.tokens, has_operator);
        if wrong.is_empty() && self.tokens.len() == before {
            self.warn(DIRECTIVE, path, format!("{}: there is no token in it", path.display()));
        }
        for (line, why) in wrong {
            self.wrong(DIRECTIVE, path, format!("{}: line {line}: {why}", path.display()));
        }
    }

    /// It is read when it is needed and whenever it has changed: one that is not there may come, and a line that is
    /// wrong keeps its user out and no other.
    fn password_file(&mut self, path: &Path) {
        const DIRECTIVE: &str = "password_file";
        let text = match sekisho_openings::read(path) {
            Ok(text) => text,
            Err(error) => {
                return self.warn(DIRECTIVE, path, format!("{}: {error}", path.display()));
            }
        };
        for (line, why) in password::mistakes(&text).into_iter().take(LINES_MAX) {
            self.warn(DIRECTIVE, path, format!("{}: line {line}: {why}", path.display()));
        }
    }
}

fn check_length(token: &[u8]) -> Result<(), String> {
    if (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Ok(());
    }
    Err(format!("a credential has from {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes"))
}

/// Returns the lines that cannot be used, up to a bound, and why.
fn parse_tokens(
    text: &[u8],
    tokens: &mut Vec<(String, Vec<u8>)>,
    has_operator: bool,
) -> Vec<(usize, String)> {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let wrong = lines.filter_map(|(at, line)| {
        let why = parse_token(line.trim_ascii(), tokens, has_operator).err()?;
        Some((at + 1, why))
    });
    wrong.take(LINES_MAX).collect()
}

fn parse_token(
    line: &[u8],
    tokens: &mut Vec<(String, Vec<u8>)>,
    has_operator: bool,
) -> Result<(), String> {
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(());
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or("a line has the form NAME:TOKEN")?;
    let name = std::str::from_utf8(&line[..colon]).map_err(|_| "the name is not UTF-8")?;
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.chars().any(|it| it.is_control() || it.is_whitespace());
    if !is_name {
        return Err("this name will not do".to_owned());
    }
    if has_operator && name == OPERATOR {
        return Err("this is the name of the token of \"credential_file\"".to_owned());
    }
    let token = line[colon + 1..].to_vec();
    check_length(&token)?;
    if tokens.iter().any(|(_, other)| *other == token) {
        return Err("this token is there twice".to_owned());
    }
    if tokens.len() >= TOKENS_MAX {
        return Err("there are too many tokens".to_owned());
    }
    tokens.push((name.to_owned(), token));
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
        assert_eq!(parse_tokens(text.as_bytes(), &mut tokens, true), []);
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
            let wrong = parse_tokens(text.as_bytes(), &mut Vec::new(), true);
            let [(at, why)] = &wrong[..] else { panic!("{text}: {wrong:?}") };
            assert_eq!(*at, line, "{text}");
            assert!(!why.contains("0123456789abcdef"), "{why}");
        }
        let own = "operator:0123456789abcdef";
        assert_eq!(parse_tokens(own.as_bytes(), &mut Vec::new(), false), []);
        // Every line that is wrong is named.
        let wrong = parse_tokens(b"ci\nci:short\nb:0123456789abcdef\n:x", &mut Vec::new(), true);
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 4]);
    }
}
