//! What has left, read as a client reads it.

use sekisho_http1::encode;

/// What was answered, as the handler meant it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The request was HEAD.
    pub is_head: bool,
    /// What was given as the body, as far as it fits.
    pub body: Vec<u8>,
    /// The handler has finished it.
    pub is_finished: bool,
}

/// Reads the whole stream of responses and compares it with what was meant. It may have at most `continues`
/// interim responses.
pub fn check(mut wire: &[u8], answers: &[Answer], mut continues: usize) {
    for (at, answer) in answers.iter().enumerate() {
        skip_continue(&mut wire, &mut continues);
        let is_last = at + 1 == answers.len();
        assert!(answer.is_finished || is_last, "an answer follows one that has not ended");
        let end = wire.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head");
        let head = std::str::from_utf8(&wire[..end + 2]).expect("heads are text");
        wire = &wire[end + 4..];
        let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        assert_eq!(code, Some(answer.status.to_string().as_str()), "{head}");
        let field = |name: &str| {
            let mut values =
                head.lines().skip(1).filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let value = values.next();
            assert_eq!(values.next(), None, "{name} twice in {head}");
            value
        };
        let closes = match field("Connection") {
            None | Some("keep-alive") => false,
            Some(value) => {
                assert_eq!(value, "close");
                true
            }
        };
        assert!(is_last || !closes, "an answer after Connection: close");
        let length = field("Content-Length").map(|value| value.parse::<usize>().expect("a number"));
        let coding = field("Transfer-Encoding");
        assert!(length.is_none() || coding.is_none());
        if answer.is_head || matches!(answer.status, 204 | 304) {
            assert!(answer.body.is_empty(), "nothing is sent behind such a head");
            continue;
        }
        let (body, is_whole) = match (length, coding) {
            (Some(length), _) => {
                let (body, rest) = wire.split_at(length.min(wire.len()));
                wire = rest;
                (body.to_vec(), body.len() == length)
            }
            (None, Some(_)) => chunks(&mut wire),
            (None, None) => {
                assert!(closes && is_last, "a body without an end must end with the connection");
                (std::mem::take(&mut wire).to_vec(), answer.is_finished)
            }
        };
        assert_eq!(body, answer.body);
        // One that was not finished may have all its bytes, but has no last chunk.
        let may_be_whole = answer.is_finished || length.is_some();
        assert!(is_whole == answer.is_finished || (is_whole && may_be_whole), "{answer:?}");
    }
    skip_continue(&mut wire, &mut continues);
    assert!(wire.is_empty(), "bytes behind the last answer: {}", wire.escape_ascii());
}

fn skip_continue(wire: &mut &[u8], continues: &mut usize) {
    while let Some(rest) = wire.strip_prefix(encode::CONTINUE) {
        *continues = continues.checked_sub(1).expect("a 100 without an expectation");
        *wire = rest;
    }
}

/// The chunks that are there, and whether the last one is. The encoder never leaves half of one.
fn chunks(wire: &mut &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while !wire.is_empty() {
        let end = wire.windows(2).position(|window| window == b"\r\n").expect("a size ends");
        let size = std::str::from_utf8(&wire[..end]).expect("sizes are text");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let chunk = &wire[end + 2..];
        body.extend_from_slice(&chunk[..size]);
        *wire = chunk[size..].strip_prefix(b"\r\n").expect("a chunk ends");
        if size == 0 {
            return (body, true);
        }
    }
    (body, false)
}
