//! The first message of a TLS client: however it is cut, what comes first is a wait for more and then the same result;
//! what follows a hello changes nothing of it; a name that is found has no byte that a name cannot have.

#[path = "../../net/src/tls/hello.rs"]
#[allow(dead_code, reason = "of a borrowed file not everything is needed")]
mod hello;

use hello::{Peek, peek};

/// Holds the look at it.
pub fn check(data: &[u8]) {
    let whole = peek(data);
    if let Peek::Hello(name, _) = &whole {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        assert!(name.len() <= 255 && name.bytes().all(is_fine), "{name:?}");
    }
    // Ends at every place cost too much for long inputs.
    let step = data.len() / 64 + 1;
    for end in (0..data.len()).step_by(step) {
        let part = peek(&data[..end]);
        match (&part, &whole) {
            (Peek::More, _) | (Peek::Clear, Peek::Clear) | (Peek::Odd(..), Peek::Odd(..)) => {}
            (Peek::Hello(early, few), Peek::Hello(late, many)) => {
                assert_eq!((early, few), (late, many));
            }
            _ => panic!("{part:?} after {end} bytes, {whole:?} in the end"),
        }
    }
}
