//! The head of a program's answer.

use sekisho_gateway::cgi::{Fed, HeadError, HeadReader, HeadRules, Kind, ResponseHead};

const STRICT: HeadRules = HeadRules { bytes_max: 65536, is_strict: true, takes_accel: false };
const LAX: HeadRules = HeadRules { is_strict: false, ..STRICT };

/// The head in `text` and the body behind it.
fn read(rules: HeadRules, text: &str) -> Result<Option<(ResponseHead, String)>, HeadError> {
    match HeadReader::new(rules).feed(text.as_bytes())? {
        Fed::More => Ok(None),
        Fed::Head { head, taken } => Ok(Some((head, text[taken..].to_owned()))),
    }
}

fn head(rules: HeadRules, text: &str) -> ResponseHead {
    read(rules, text).expect("a good head").expect("a whole head").0
}

/// `200 [Content-Type: a/b|…] length kind`
fn shown(head: &ResponseHead) -> String {
    let fields = String::from_utf8_lossy(head.fields.as_lines()).replace("\r\n", "|");
    let length = head.content_length.map(|length| format!(" {length}")).unwrap_or_default();
    let kind = match &head.kind {
        Kind::Document => String::new(),
        Kind::ClientRedirect => " redirect".into(),
        Kind::LocalRedirect(target) => format!(" local {}", target.escape_ascii()),
        Kind::Accel(target) => format!(" accel {}", target.escape_ascii()),
    };
    format!("{} {fields}{length}{kind}", head.status)
}

/// C9: `Status`, `Location`, line ends, hop-by-hop fields.
#[test]
fn good_heads_are_understood() {
    let table = [
        ("Content-Type: a/b\n\n", "200 Content-Type: a/b|"),
        ("Content-Type: a/b\r\n\r\n", "200 Content-Type: a/b|"),
        ("Content-Type: a/b\r\n\n", "200 Content-Type: a/b|"),
        ("content-type:a/b\n\n", "200 content-type: a/b|"),
        ("Content-Type: \t a/b \t\n\n", "200 Content-Type: a/b|"),
        ("Status: 404 Not Found\nX: 1\n\n", "404 X: 1|"),
        ("STATUS: 404\n\n", "404 "),
        ("Status: 599 odd\n\n", "599 "),
        ("X:\n\n", "200 X: |"),
        ("Set-Cookie: a\nSet-Cookie: b\n\n", "200 Set-Cookie: a|Set-Cookie: b|"),
        ("X: caf\u{e9}\n\n", "200 X: caf\u{e9}|"),
        ("Content-Length: 12\nX: 1\n\n", "200 X: 1| 12"),
        ("Content-Length: 12\nContent-Length: 12\n\n", "200  12"),
        // Redirects (RFC 3875 §6.2.2 to 6.2.4).
        ("Location: /a?b\n\n", "200  local /a?b"),
        ("Location: /a\nX: 1\nStatus: 200 OK\n\n", "200 X: 1| local /a"),
        ("Location: /\n\n", "200  local /"),
        ("Location: http://h/a\n\n", "302 Location: http://h/a| redirect"),
        ("Location: //h/a\n\n", "302 Location: //h/a| redirect"),
        (
            "Location: http://h/\nContent-Type: a/b\n\n",
            "302 Content-Type: a/b|Location: http://h/|",
        ),
        ("Status: 303 x\nLocation: /a\n\n", "303 Location: /a|"),
        ("Status: 201 x\nLocation: /a\n\n", "201 Location: /a|"),
        // Of the connection, or the server's own.
        (
            "Connection: keep-alive, x-hop\nX-Hop: 1\nX: 2\nKeep-Alive: 1\nTransfer-Encoding: chunked\n\
             TE: x\nTrailer: x\nUpgrade: x\nDate: x\nServer: x\nProxy-Connection: x\n\n",
            "200 X: 2|",
        ),
        // Never passed on, not even when not heeded.
        (
            "X-Accel-Redirect: /secret\nX-Accel-Buffering: no\nX-Accel-: 1\nX-Sendfile: /etc/passwd\nX: 1\n\n",
            "200 X: 1|",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(shown(&head(STRICT, text)), expected, "{text:?}");
        assert_eq!(shown(&head(LAX, text)), expected, "{text:?} lax");
    }
}

/// C9, C2, V24: what cannot be sent, or is not a head, is refused for a reason; without `cgi_strict` the line
/// is left out, and nothing of it passes.
#[test]
fn bad_lines_are_refused_or_left_out() {
    use HeadError as E;
    let table = [
        ("no colon\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("HTTP/1.1 200 OK\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("timeout\n\n", E::BadLine, "200 "),
        (": value\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("Na me: v\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("Name : v\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("X: 1\n folded: 2\n\n", E::BadLine, "200 X: 1|"),
        ("N\u{e9}: v\nX: 1\n\n", E::BadLine, "200 X: 1|"),
        ("Bad: a\rSet-Cookie: b\nX: 1\n\n", E::ControlByte, "200 X: 1|"),
        ("Bad: a\0b\nX: 1\n\n", E::ControlByte, "200 X: 1|"),
        ("Bad: a\u{7f}b\nX: 1\n\n", E::ControlByte, "200 X: 1|"),
        ("Bad: \x1b[0m\nX: 1\n\n", E::ControlByte, "200 X: 1|"),
        ("Location: /a\rb\nX: 1\n\n", E::ControlByte, "200 X: 1|"),
        ("Status: OK\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: 99\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: 100 Continue\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: 600\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: 2000\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: +20\nX: 1\n\n", E::BadStatus, "200 X: 1|"),
        ("Status: 404\nStatus: 200\n\n", E::BadStatus, "404 "),
        ("Content-Length: -1\nX: 1\n\n", E::BadLength, "200 X: 1|"),
        ("Content-Length: 1, 1\nX: 1\n\n", E::BadLength, "200 X: 1|"),
        ("Content-Length: 0x1\nX: 1\n\n", E::BadLength, "200 X: 1|"),
        ("Content-Length: 18446744073709551616\nX: 1\n\n", E::BadLength, "200 X: 1|"),
        ("Content-Length: 1\nContent-Length: 2\n\n", E::BadLength, "200  1"),
        ("Location:\nX: 1\n\n", E::BadLocation, "200 X: 1|"),
        ("Location: /a\nLocation: /b\n\n", E::BadLocation, "200  local /a"),
        ("\nbody", E::Empty, "200 "),
        ("\r\n", E::Empty, "200 "),
    ];
    for (text, error, lax) in table {
        assert_eq!(read(STRICT, text), Err(error), "{text:?}");
        assert_eq!(shown(&head(LAX, text)), lax, "{text:?} lax");
    }
}

/// C9: the block is limited, at its exact length, with and without strictness.
#[test]
fn a_head_is_as_long_as_it_may_be_and_no_longer() {
    let text = "X: 12345\r\n\r\n";
    for (bytes_max, is_good) in [(text.len(), true), (text.len() - 1, false), (3, false)] {
        for is_strict in [true, false] {
            let rules = HeadRules { bytes_max, is_strict, takes_accel: false };
            let outcome = read(rules, &format!("{text}and a body that does not count"));
            assert_eq!(outcome.is_ok(), is_good, "{bytes_max}");
            if !is_good {
                assert_eq!(outcome, Err(HeadError::TooLarge));
            }
        }
    }
    let mut reader = HeadReader::new(HeadRules { bytes_max: 100, ..STRICT });
    let fed = (0..101).map(|_| reader.feed(b"x")).find(Result::is_err);
    assert_eq!(fed, Some(Err(HeadError::TooLarge)), "a line without an end");
}

/// C9: many names in `Connection` are no way to make work.
#[test]
fn a_connection_field_has_few_names() {
    let names = vec!["a"; 17].join(",");
    let text = format!("Connection: {names}\nA: 1\nX: 1\n\n");
    assert_eq!(read(STRICT, &text), Err(HeadError::BadLine));
    assert_eq!(shown(&head(LAX, &text)), "200 X: 1|");
}

/// C9, V25: `X-Accel-Redirect` hands over only where it is configured.
#[test]
fn x_accel_redirect_is_heeded_where_it_is_configured() {
    let rules = HeadRules { takes_accel: true, ..STRICT };
    let text = "Content-Type: a/b\nX-Accel-Redirect: /internal/x\nLocation: /y\n\n";
    assert_eq!(shown(&head(rules, text)), "200 Content-Type: a/b| accel /internal/x");
    let twice = "X-Accel-Redirect: /a\nX-Accel-Redirect: /b\n\n";
    assert_eq!(read(rules, twice), Err(HeadError::BadLocation));
}

#[test]
fn what_follows_the_head_is_not_taken() {
    let (_, body) = read(STRICT, "X: 1\n\n\nbody\n\n").expect("good").expect("whole");
    assert_eq!(body, "\nbody\n\n");
    assert_eq!(read(STRICT, "X: 1\n"), Ok(None));
    assert_eq!(read(STRICT, "X: 1\n\r"), Ok(None));
    assert_eq!(read(STRICT, ""), Ok(None));
}
