//! Request bodies: by length or by chunks, decoded where they lie. May be interrupted at every byte,
//! and holds nothing back but a few numbers. Only CRLF ends a line here (H9).

use std::ops::Range;

use sekisho_http::refusal::Cause;
use sekisho_http::token::{is_token_byte, is_value_byte};

use crate::parse::Framing;

/// Bytes of chunk extensions that one body may have in all.
pub const EXTENSION_BYTES_MAX: u16 = 4 * 1024;
/// Bytes of trailer fields that one body may have in all. They are dropped (H13).
pub const TRAILER_BYTES_MAX: u16 = 8 * 1024;
/// Hexadecimal digits of a chunk size: 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// The result of one look at the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// How many bytes were taken from the front of the input.
    pub taken: usize,
    /// Which of them are body; perhaps none.
    pub data: Range<usize>,
    /// Where the body stands after them.
    pub state: Progress,
}

/// Where a body stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There may be more to come.
    More,
    /// Complete; what follows is the next request.
    End,
    /// More body is there than the caller asked for.
    Over,
}

/// Decodes one body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoder {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
}

impl Decoder {
    /// The decoder for a message; `None` when it has no body.
    pub const fn new(framing: Framing) -> Option<Self> {
        match framing {
            Framing::None | Framing::Length(0) => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Chunked::new())),
        }
    }

    /// Takes what it can, up to one stretch of body of at most `data_max` bytes.
    pub fn advance(&mut self, input: &[u8], data_max: u64) -> Result<Decoded, Cause> {
        match self {
            Self::Length(left) => {
                let len = (*left).min(data_max).min(input.len() as u64);
                *left -= len;
                let state = match (*left, len) {
                    (0, _) => Progress::End,
                    (_, 0) if !input.is_empty() => Progress::Over,
                    _ => Progress::More,
                };
                Ok(Decoded { taken: len as usize, data: 0..len as usize, state })
            }
            Self::Chunked(chunked) => chunked.advance(input, data_max),
        }
    }

    /// A decoder for chunks that stops where the trailer section begins, once, so that the caller can keep
    /// it: [`is_in_trailers`](Self::is_in_trailers) is true from then on.
    pub const fn chunked_with_trailers() -> Self {
        Self::Chunked(Chunked { stops_at_trailers: true, ..Chunked::new() })
    }

    /// Whether what comes next is the trailer section, or the rest of it.
    pub const fn is_in_trailers(&self) -> bool {
        match self {
            Self::Length(_) => false,
            Self::Chunked(chunked) => matches!(
                chunked.state,
                State::Trailer
                    | State::TrailerName
                    | State::TrailerValue
                    | State::TrailerLf
                    | State::EndLf
                    | State::Ended
            ),
        }
    }

    /// How many bytes are still to come, where that is known.
    pub const fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) => None,
        }
    }
}

/// ```text
/// Size ─┬─► Extension ─┐
///       └──────────────┴► SizeLf ─┬─► Data ─► DataCr ─► DataLf ─► Size
///                                 └─► Trailer ─┬─► EndLf ─► (end)
///                                              └─► Name ─► Value ─► ValueLf ─► Trailer
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Ended,
}

/// The chunked coding (RFC 9112 §7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunked {
    /// The size of the chunk while it is read, then how much of it is left.
    left: u64,
    extension_bytes: u16,
    trailer_bytes: u16,
    digits: u8,
    state: State,
    stops_at_trailers: bool,
}

impl Chunked {
    const fn new() -> Self {
        Self {
            left: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            digits: 0,
            state: State::Size,
            stops_at_trailers: false,
        }
    }

    fn advance(&mut self, input: &[u8], data_max: u64) -> Result<Decoded, Cause> {
        let mut taken = 0;
        while self.state != State::Ended {
            if self.state == State::Data {
                let len = self.left.min(data_max).min((input.len() - taken) as u64);
                if len == 0 {
                    let state = if taken < input.len() { Progress::Over } else { Progress::More };
                    return Ok(Decoded { taken, data: taken..taken, state });
                }
                self.left -= len;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                let data = taken..taken + len as usize;
                return Ok(Decoded { taken: data.end, data, state: Progress::More });
            }
            let Some(byte) = input.get(taken) else {
                return Ok(Decoded { taken, data: taken..taken, state: Progress::More });
            };
            let is_before = self.state == State::SizeLf;
            self.framing_byte(*byte)?;
            taken += 1;
            if self.stops_at_trailers && is_before && self.state == State::Trailer {
                return Ok(Decoded { taken, data: taken..taken, state: Progress::More });
            }
        }
        Ok(Decoded { taken, data: taken..taken, state: Progress::End })
    }

    /// One byte between stretches of data.
    fn framing_byte(&mut self, byte: u8) -> Result<(), Cause> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == SIZE_DIGITS_MAX {
                    return Err(Cause::ChunkSizeInvalid);
                }
                self.digits += 1;
                self.left = self.left << 4 | u64::from(hex_value(byte));
                State::Size
            }
            (State::Size, b'\r') if self.digits > 0 => State::SizeLf,
            (State::Size, b';') if self.digits > 0 => self.count_extension()?,
            (State::Size, _) => return Err(Cause::ChunkSizeInvalid),
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, byte) if is_value_byte(byte) => self.count_extension()?,
            (State::Extension, _) => return Err(Cause::ChunkExtensionInvalid),
            (State::SizeLf, b'\n') => {
                self.digits = 0;
                if self.left == 0 { State::Trailer } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::SizeLf | State::DataCr | State::DataLf, _) => {
                return Err(Cause::ChunkEndInvalid);
            }
            (State::Trailer, b'\r') => State::EndLf,
            (State::Trailer, byte) if is_token_byte(byte) => {
                self.count_trailer(State::TrailerName)?
            }
            (State::TrailerName, b':') => self.count_trailer(State::TrailerValue)?,
            (State::TrailerName, byte) if is_token_byte(byte) => {
                self.count_trailer(State::TrailerName)?
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if is_value_byte(byte) => {
                self.count_trailer(State::TrailerValue)?
            }
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::EndLf, b'\n') => State::Ended,
            (
                State::Trailer
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::EndLf,
                _,
            ) => return Err(Cause::TrailerInvalid),
            (state @ (State::Data | State::Ended), _) => state,
        };
        Ok(())
    }

    fn count_extension(&mut self) -> Result<State, Cause> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(Cause::ChunkExtensionsTooLong);
        }
        Ok(State::Extension)
    }

    fn count_trailer(&mut self, next: State) -> Result<State, Cause> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Cause::TrailersTooLong);
        }
        Ok(next)
    }
}

const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunked(input: &[u8]) -> Result<Decoded, Cause> {
        Decoder::Chunked(Chunked::new()).advance(input, u64::MAX)
    }

    /// H13: the bounds are these, to the byte.
    #[test]
    fn extensions_and_trailers_are_bounded_to_the_byte() {
        assert_eq!((EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX), (4096, 8192));
        let extended = |bytes: usize| format!("0;{}\r\n\r\n", "e".repeat(bytes - 1));
        let trailing = |bytes: usize| format!("0\r\nt:{}\r\n\r\n", "v".repeat(bytes - 2));
        assert_eq!(chunked(extended(4096).as_bytes()).map(|it| it.state), Ok(Progress::End));
        assert_eq!(chunked(extended(4097).as_bytes()), Err(Cause::ChunkExtensionsTooLong));
        assert_eq!(chunked(extended(5000).as_bytes()), Err(Cause::ChunkExtensionsTooLong));
        assert_eq!(chunked(trailing(8192).as_bytes()).map(|it| it.state), Ok(Progress::End));
        assert_eq!(chunked(trailing(8193).as_bytes()), Err(Cause::TrailersTooLong));
        assert_eq!(chunked(trailing(9000).as_bytes()), Err(Cause::TrailersTooLong));
    }

    /// A body that may grow no further says so only when there is more of it.
    #[test]
    fn a_body_beyond_its_limit_is_seen_when_more_comes() {
        let mut length = Decoder::Length(5);
        assert_eq!(length.advance(b"ab", 2).map(|it| it.state), Ok(Progress::More));
        assert_eq!(length.advance(b"", 0).map(|it| it.state), Ok(Progress::More));
        assert_eq!(length.advance(b"c", 0).map(|it| it.state), Ok(Progress::Over));
    }

    /// The caller gets the trailer section apart, once, where it asks for it, and nowhere else.
    #[test]
    fn decoding_stops_before_the_trailers_where_that_is_asked_for() {
        let input = b"3\r\nabc\r\n0\r\nT: v\r\nU: w\r\n\r\n";
        let stops = |mut decoder: Decoder| {
            let (mut at, mut stops) = (0, Vec::new());
            loop {
                let step = decoder.advance(&input[at..], u64::MAX).expect("it is well formed");
                at += step.taken;
                if step.state == Progress::End {
                    return (stops, at);
                }
                stops.push((at, decoder.is_in_trailers()));
            }
        };
        let all = input.len();
        assert_eq!(stops(Decoder::Chunked(Chunked::new())), (vec![(6, false)], all));
        assert_eq!(stops(Decoder::chunked_with_trailers()), (vec![(6, false), (11, true)], all));
    }
}
