//! Which browsers a connection is not kept for (`keepalive_disable`), found as nginx finds them.

use sekisho_config::KeepaliveDisable;
use sekisho_http::{Head, Known};

/// Whether the connection is not kept behind this request.
pub(crate) fn ends_connection(head: &Head, disable: KeepaliveDisable) -> bool {
    disable.is_for(head.method()) && is_one_of(head, disable)
}

/// Whether the client is one of those browsers.
fn is_one_of(head: &Head, disable: KeepaliveDisable) -> bool {
    let Some(agent) = head.known(Known::UserAgent) else { return false };
    let has = |text: &[u8]| agent.windows(text.len()).any(|window| window == text);
    (disable.msie6 && is_old_msie(agent)) || (disable.safari && has(b"Safari/") && has(b"Mac OS X"))
}

/// Internet Explorer 4 to 6, but not 6 of Windows XP SP2 (`SV1`).
fn is_old_msie(agent: &[u8]) -> bool {
    const NAME: &[u8] = b"MSIE ";
    let Some(at) = agent.windows(NAME.len()).position(|window| window == NAME) else {
        return false;
    };
    let version = &agent[at + NAME.len()..];
    match version {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', rest @ ..] => !rest.windows(3).any(|window| window == b"SV1"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sekisho_http::Version;

    use super::*;

    #[test]
    fn old_browsers_are_known_by_their_names() {
        let found = |agent: &str| {
            let mut head = Head::default();
            head.begin(b"POST", b"/", Version::Http11);
            head.push(b"User-Agent", agent.as_bytes());
            let one = |msie6, safari| is_one_of(&head, KeepaliveDisable { msie6, safari });
            (one(true, false), one(false, true))
        };
        assert_eq!(found("Mozilla/4.0 (compatible; MSIE 5.0)"), (true, false));
        assert_eq!(found("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"), (true, false));
        assert_eq!(
            found("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"),
            (false, false)
        );
        assert_eq!(found("MSIE 7.0"), (false, false));
        assert_eq!(found("Mozilla/5.0 (Macintosh; Mac OS X) Safari/7534.48.3"), (false, true));
        assert_eq!(found(""), (false, false));
    }
}
