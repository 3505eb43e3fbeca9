//! The peer's name and its protocol version. Only the form of the message is checked here: whether the peer
//! is admitted is the shell's decision.

use std::fmt;

use crate::code::Code;
use crate::message::Hello;

/// A version of the protocol: minor versions understand each other, major ones do not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Changes when an older peer could misunderstand.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

impl Version {
    /// The newest minor version that both sides know.
    pub const fn common_minor(self, other: u32) -> u32 {
        if other < self.minor { other } else { self.minor }
    }
}

/// The version that is spoken here.
pub const VERSION: Version = Version { major: 1, minor: 1 };

/// How long a label, the name of an application and that of a user may be, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// How long a credential may be.
pub const CREDENTIAL_BYTES_MAX: usize = 2048;

/// A handshake that is in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// What the session is to be called; may be empty.
    pub label: String,
    /// Which program it is; may be empty.
    pub application: String,
    /// Whose password the credential is; empty where it is a token.
    pub user: String,
    /// What the peer shows for itself: a token, or the password of `user`; may be empty.
    pub credential: Secret,
    /// Whether it asks for the admin slot.
    pub wants_admin: bool,
    /// The newest minor version that both know.
    pub minor: u32,
    /// The client's wishes: see [`Agreed`](crate::policy::Agreed).
    pub frame_bytes_max: u32,
    /// The same.
    pub channel_bytes: u32,
    /// After so long without a byte from it the client wants to be asked whether it is there; zero for never.
    pub keepalive_millis: u32,
    /// The client takes all that it gave credit for: a channel's end needs no word from it.
    pub drains_at_end: bool,
}

/// Bytes that are compared and never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// These bytes.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The same, to compare them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_empty() { "no secret" } else { "a secret" })
    }
}

/// Why a handshake is not in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// Another major version: refused with the one that would do.
    Version,
    /// A name is too long, or has bytes that would spoil a list or a log.
    Name,
    /// The credential is too long.
    Credential,
}

impl Misfit {
    /// The code and text for the peer.
    pub const fn answer(self) -> (Code, &'static str) {
        match self {
            Self::Version => (Code::UnsupportedOperation, "this version is not spoken here"),
            Self::Name => (Code::InvalidRequest, "a label, application or user that will not do"),
            Self::Credential => (Code::InvalidRequest, "the credential is too long"),
        }
    }
}

/// Reads the first message.
pub fn read(hello: Hello) -> Result<Greeting, Misfit> {
    if hello.major != VERSION.major {
        return Err(Misfit::Version);
    }
    let names = [&hello.label, &hello.application, &hello.user];
    if !names.into_iter().all(|name| is_name(name)) {
        return Err(Misfit::Name);
    }
    if hello.credential.len() > CREDENTIAL_BYTES_MAX {
        return Err(Misfit::Credential);
    }
    Ok(Greeting {
        label: hello.label,
        application: hello.application,
        user: hello.user,
        credential: Secret::new(hello.credential),
        wants_admin: hello.admin,
        minor: VERSION.common_minor(hello.minor),
        frame_bytes_max: hello.frame_bytes_max,
        channel_bytes: hello.channel_bytes,
        keepalive_millis: hello.keepalive_millis,
        drains_at_end: hello.drains_at_end,
    })
}

/// A label beginning with a colon would look like a session's number.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.starts_with(':') && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(change: impl FnOnce(&mut Hello)) -> Hello {
        let mut hello = Hello { major: VERSION.major, minor: VERSION.minor, ..Hello::default() };
        change(&mut hello);
        hello
    }

    #[test]
    fn a_newer_minor_version_is_met_at_ours_and_a_newer_major_one_is_refused() {
        // E3
        let newer = read(hello(|hello| hello.minor = 7)).map(|greeting| greeting.minor);
        assert_eq!(newer, Ok(VERSION.minor));
        let older = read(hello(|hello| hello.minor = 0)).map(|greeting| greeting.minor);
        assert_eq!(older, Ok(0));
        for major in [0, VERSION.major + 1, u32::MAX] {
            assert_eq!(read(hello(|hello| hello.major = major)), Err(Misfit::Version));
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        // E2
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in [long.as_str(), "a\nb", "\u{0}", ":7", "\u{85}"] {
            assert_eq!(read(hello(|hello| hello.label = bad.into())), Err(Misfit::Name));
            assert_eq!(read(hello(|hello| hello.application = bad.into())), Err(Misfit::Name));
            assert_eq!(read(hello(|hello| hello.user = bad.into())), Err(Misfit::Name));
        }
        for good in ["", "ctl", "名前", &long[1..]] {
            assert!(read(hello(|hello| hello.label = good.into())).is_ok());
        }
        let credential = vec![0; CREDENTIAL_BYTES_MAX + 1];
        assert_eq!(read(hello(|hello| hello.credential = credential)), Err(Misfit::Credential));
    }

    #[test]
    fn a_credential_is_never_shown() {
        // E2
        let hello = hello(|hello| {
            hello.user = "ann".into();
            hello.credential = b"correct horse".to_vec();
        });
        let greeting = read(hello.clone()).expect("in order");
        assert_eq!(
            (greeting.user.as_str(), greeting.credential.bytes()),
            ("ann", &b"correct horse"[..])
        );
        for shown in [format!("{hello:?}"), format!("{greeting:?}")] {
            assert!(shown.contains("ann"), "{shown}");
            let digits = format!("{:?}", &b"correct"[..]);
            assert!(!shown.contains("correct") && !shown.contains(&digits[1..20]), "{shown}");
        }
    }
}
