//! A file of users: lines of `user:password`, the password in one of the forms of [`Stored`].

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use super::form::Stored;
use crate::file_cache::Identity;

/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// A file that was changed so shortly before it was read may be changed again without its times telling.
const SETTLED_SECS: i64 = 2;

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    identity: Identity,
    read_secs: i64,
    by_name: HashMap<Vec<u8>, Stored>,
    /// The hash that is computed for an unknown user.
    stand_in: Option<Stored>,
}

/// What is known of a user.
pub(super) enum User<'a> {
    Known(&'a Stored),
    Unknown(&'a Stored),
    /// There are no users at all.
    Nobody,
}

impl Users {
    /// Reads a file.
    pub(super) fn read(path: &Path, wall_secs: i64) -> io::Result<Self> {
        let file = sekisho_openings::open(path)?;
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_size as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("a password file has at most 16 MiB"));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        Ok(Self::parse(&text, Identity::of(&stat), wall_secs))
    }

    fn parse(text: &[u8], identity: Identity, read_secs: i64) -> Self {
        let mut by_name = HashMap::new();
        let mut stand_in = None;
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut parts = line.split(|byte| *byte == b':');
            let (Some(name), Some(password)) = (parts.next(), parts.next()) else { continue };
            if line.first() == Some(&b'#') {
                continue;
            }
            let stored = Stored::parse(password);
            // The most common kind of file has one form; of others the slowest form is used.
            let is_slower = |other: &Stored| stored.slowness() > other.slowness();
            if stand_in.as_ref().is_none_or(is_slower) {
                stand_in = Some(stored.clone());
            }
            // The first line of a name is the one that counts, as in nginx.
            by_name.entry(name.to_vec()).or_insert(stored);
        }
        Self { identity, read_secs, by_name, stand_in }
    }

    /// Whether this is what the file holds now.
    pub(super) fn is_current(&self, identity: Identity, wall_secs: i64) -> bool {
        let is_settled = self.read_secs > self.identity.changed_secs().saturating_add(SETTLED_SECS);
        self.identity == identity && (is_settled || self.read_secs == wall_secs)
    }

    pub(super) fn find(&self, name: &[u8]) -> User<'_> {
        match (self.by_name.get(name), &self.stand_in) {
            (Some(stored), _) => User::Known(stored),
            (None, Some(stand_in)) => User::Unknown(stand_in),
            (None, None) => User::Nobody,
        }
    }
}

/// The lines of a file that are of no use, by their numbers, and why.
pub fn mistakes(text: &[u8]) -> Vec<(usize, &'static str)> {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let wrong = lines.filter_map(|(at, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.first() == Some(&b'#') {
            return None;
        }
        let mut parts = line.split(|byte| *byte == b':');
        let why = match (parts.next(), parts.next()) {
            (Some(b""), _) => "there is no name",
            (Some(_), Some(password)) => match Stored::parse(password).why_unusable()? {
                super::form::NOT_KNOWN => "the form of the password is unknown",
                super::form::TOO_COSTLY => "the password would take too long to check",
                _ => "the password is broken",
            },
            _ => "a line has the form NAME:PASSWORD",
        };
        Some((at + 1, why))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(changed: i64) -> Identity {
        let mut stat = rustix::fs::stat("/").expect("a root");
        stat.st_ctime = changed;
        Identity::of(&stat)
    }

    #[test]
    fn lines_of_no_use_are_found() {
        let text = b"# no\n\nann:{PLAIN}one:a comment\nno colon\n:{PLAIN}x\nbob:$9$x$y\r\n";
        let lines: Vec<usize> = mistakes(text).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 5, 6]);
    }

    fn users(text: &str) -> Users {
        Users::parse(text.as_bytes(), identity(100), 200)
    }

    #[test]
    fn lines_are_users_and_the_first_of_a_name_counts() {
        let users = users(
            "# ann:{PLAIN}no\nann:{PLAIN}one:a comment\r\nann:{PLAIN}two\n\nno colon\n:{PLAIN}empty",
        );
        let is = |name: &str, password: &str| match users.find(name.as_bytes()) {
            User::Known(stored) => stored.is(password.as_bytes()),
            User::Unknown(_) | User::Nobody => false,
        };
        assert!(is("ann", "one") && !is("ann", "two") && !is("ann", "one:a comment"));
        assert!(is("", "empty"));
        assert!(matches!(users.find(b"# ann"), User::Unknown(_)));
        assert!(matches!(users.find(b"no colon"), User::Unknown(_)));
    }

    #[test]
    fn a_file_without_users_knows_nobody() {
        assert!(matches!(users("").find(b"ann"), User::Nobody));
        assert!(matches!(users("# only a comment: yes\n").find(b""), User::Nobody));
    }

    #[test]
    fn an_unknown_user_is_measured_by_the_slowest_form() {
        let users =
            users("a:{PLAIN}x\nb:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n");
        let User::Unknown(stand_in) = users.find(b"nobody") else { panic!("a stand-in") };
        assert!(!stand_in.is_quick());
    }

    #[test]
    fn a_file_that_has_just_been_changed_is_trusted_for_a_second_at_the_most() {
        let users = |read_secs| Users::parse(b"", identity(100), read_secs);
        assert!(users(200).is_current(identity(100), 9999));
        assert!(!users(200).is_current(identity(101), 200), "another state");
        assert!(users(101).is_current(identity(100), 101));
        assert!(!users(101).is_current(identity(100), 102));
        assert!(users(103).is_current(identity(100), 9999));
    }
}
