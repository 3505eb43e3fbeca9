//! What a client sends, appended to what is to be sent.

use std::io::Write as _;

/// What a client says of itself.
#[derive(Clone, Copy, Default)]
pub struct Connect<'a> {
    /// What it is called in the server's lists.
    pub name: &'a str,
    /// The version of the program.
    pub version: &'a str,
    /// The user.
    pub user: Option<&'a str>,
    /// The user's password.
    pub password: Option<&'a str>,
    /// A token instead of both.
    pub token: Option<&'a str>,
    /// The statement of an account.
    pub jwt: Option<&'a str>,
    /// The public key of a client that proves itself by one.
    pub key: Option<&'a str>,
    /// The server's nonce, signed with it; base64 for URLs, without padding.
    pub signature: Option<&'a str>,
    /// Whether this goes over TLS.
    pub is_tls: bool,
}

impl std::fmt::Debug for Connect<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connect").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `CONNECT`: the first thing that a client says.
pub fn connect(out: &mut Vec<u8>, of: Connect<'_>) {
    let mut options = serde_json::json!({
        "verbose": false,
        "pedantic": false,
        "tls_required": of.is_tls,
        "lang": "rust",
        "name": of.name,
        "version": of.version,
        "protocol": 1,
        "echo": true,
        "headers": true,
        "no_responders": true,
    });
    let texts = [
        ("user", of.user),
        ("pass", of.password),
        ("auth_token", of.token),
        ("jwt", of.jwt),
        ("nkey", of.key),
        ("sig", of.signature),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            options[name] = text.into();
        }
    }
    write(out, format_args!("CONNECT {options}\r\n"));
}

/// `SUB`: messages of this subject are wanted. Of the members of a group one gets each.
pub fn subscribe(out: &mut Vec<u8>, subject: &str, group: Option<&str>, number: u64) {
    match group {
        Some(group) => write(out, format_args!("SUB {subject} {group} {number}\r\n")),
        None => write(out, format_args!("SUB {subject} {number}\r\n")),
    }
}

/// `UNSUB`: no more are wanted.
pub fn unsubscribe(out: &mut Vec<u8>, number: u64) {
    write(out, format_args!("UNSUB {number}\r\n"));
}

/// `PUB`: a message.
pub fn publish(out: &mut Vec<u8>, subject: &str, reply: Option<&str>, payload: &[u8]) {
    let (reply, blank) = reply.map_or(("", ""), |reply| (reply, " "));
    write(out, format_args!("PUB {subject} {reply}{blank}{}\r\n", payload.len()));
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// `PING`: is the server there?
pub fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PING\r\n");
}

/// `PONG`: the client is.
pub fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PONG\r\n");
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_the_protocol_has_them() {
        let mut out = Vec::new();
        subscribe(&mut out, "a.b", None, 1);
        subscribe(&mut out, "a.c", Some("g"), 2);
        unsubscribe(&mut out, 1);
        publish(&mut out, "a", None, b"xy");
        publish(&mut out, "a", Some("r"), b"");
        ping(&mut out);
        pong(&mut out);
        let expected = "SUB a.b 1\r\nSUB a.c g 2\r\nUNSUB 1\r\nPUB a 2\r\nxy\r\nPUB a r 0\r\n\r\nPING\r\nPONG\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn secrets_are_sent_and_not_shown() {
        let mut out = Vec::new();
        let of = Connect {
            name: "edge a",
            user: Some("u\"x"),
            password: Some("p"),
            ..Connect::default()
        };
        connect(&mut out, of);
        let line = String::from_utf8_lossy(&out);
        let json: serde_json::Value = serde_json::from_str(&line[8..]).expect("JSON");
        assert_eq!((&json["user"], &json["pass"]), (&"u\"x".into(), &"p".into()));
        assert!(json.get("sig").is_none());
        assert!(!format!("{of:?}").contains("u\"x"));
    }
}
