//! A client's reader of responses, strict and independent of the server's code: it believes the framing and
//! nothing else.

/// A response, or as much as there is of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Answer {
    /// Its status.
    pub(super) status: u16,
    /// The `T` field: which request it says it answers.
    pub(super) token: Option<(usize, usize)>,
    /// Whether it says that the connection ends.
    pub(super) closes: bool,
    /// Its body.
    pub(super) body: Vec<u8>,
    /// How its body ends.
    framing: Framing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Framing {
    #[default]
    Nothing,
    /// So many bytes are missing.
    Length(usize),
    /// Before a chunk's size.
    Size,
    /// Within a chunk and the line end behind it.
    Chunk(usize),
    /// Behind the last chunk.
    Last,
    UntilClose,
}

/// Reads responses.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// The response that has begun.
    begun: Option<Answer>,
}

impl Reader {
    /// Where bytes are put.
    pub(super) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether nothing of a further response has come.
    pub(super) fn is_between(&self) -> bool {
        self.bytes.is_empty() && self.begun.is_none()
    }

    /// The response whose head is there and whose end is not.
    pub(super) const fn begun(&self) -> Option<&Answer> {
        self.begun.as_ref()
    }

    /// The next complete response; `is_head`: what it answers was a HEAD.
    pub(super) fn next(&mut self, is_head: bool) -> Result<Option<Answer>, String> {
        if self.begun.is_none() {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(None);
            };
            let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
            self.begun = Some(read_head(&head[..end], is_head)?);
        }
        let Some(answer) = &mut self.begun else { return Ok(None) };
        while let Some(taken) = answer.advance(&self.bytes)? {
            self.bytes.drain(..taken);
            if answer.framing == Framing::Nothing {
                return Ok(self.begun.take());
            }
        }
        Ok(None)
    }

    /// The stream has ended in order: a response that only ends so is whole now.
    pub(super) fn end(&mut self) -> Option<Answer> {
        self.begun.take_if(|answer| answer.framing == Framing::UntilClose)
    }
}

impl Answer {
    /// Takes one step; `None` when more bytes are needed.
    fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        match self.framing {
            Framing::Nothing => Ok(Some(0)),
            Framing::UntilClose if bytes.is_empty() => Ok(None),
            Framing::UntilClose => {
                self.body.extend_from_slice(bytes);
                Ok(Some(bytes.len()))
            }
            Framing::Length(0) => {
                self.framing = Framing::Nothing;
                Ok(Some(0))
            }
            Framing::Length(left) | Framing::Chunk(left) if bytes.is_empty() => {
                debug_assert!(left > 0);
                Ok(None)
            }
            Framing::Length(left) => {
                let taken = left.min(bytes.len());
                self.body.extend_from_slice(&bytes[..taken]);
                self.framing = Framing::Length(left - taken);
                Ok(Some(taken))
            }
            Framing::Size => {
                let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
                    return if bytes.len() > 20 {
                        Err(shown("a long chunk size", bytes))
                    } else {
                        Ok(None)
                    };
                };
                let digits = std::str::from_utf8(&bytes[..end]).ok();
                let size = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
                let size = size.ok_or_else(|| shown("no chunk size", bytes))?;
                self.framing = if size == 0 { Framing::Last } else { Framing::Chunk(size + 2) };
                Ok(Some(end + 2))
            }
            Framing::Chunk(left) => {
                let taken = left.min(bytes.len());
                for (at, byte) in bytes[..taken].iter().enumerate() {
                    match left - at {
                        2 if *byte != b'\r' => return Err(shown("no end of a chunk", bytes)),
                        1 if *byte != b'\n' => return Err(shown("no end of a chunk", bytes)),
                        1 | 2 => {}
                        _ => self.body.push(*byte),
                    }
                }
                self.framing =
                    if taken == left { Framing::Size } else { Framing::Chunk(left - taken) };
                Ok(Some(taken))
            }
            Framing::Last => match bytes.first_chunk() {
                Some(b"\r\n") => {
                    self.framing = Framing::Nothing;
                    Ok(Some(2))
                }
                Some(_) => Err(shown("something behind the last chunk", bytes)),
                None => Ok(None),
            },
        }
    }

    /// Whether only the end of the stream can end it.
    pub(super) fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }
}

fn read_head(head: &[u8], is_head: bool) -> Result<Answer, String> {
    let text = std::str::from_utf8(head).map_err(|_| shown("no text in a head", head))?;
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status: u16 = status.ok_or_else(|| shown("no status line", head))?;
    let mut answer = Answer { status, ..Answer::default() };
    let (mut length, mut is_chunked) = (None, false);
    for line in lines {
        let (name, value) = line.split_once(": ").ok_or_else(|| shown("no field", head))?;
        match name {
            "Content-Length" if length.is_some() || is_chunked => {
                return Err(shown("two framings", head));
            }
            "Content-Length" => {
                length = Some(value.parse::<usize>().map_err(|_| shown("no length", head))?);
            }
            "Transfer-Encoding" if value == "chunked" && length.is_none() => is_chunked = true,
            "Transfer-Encoding" => return Err(shown("two framings", head)),
            "Connection" if value == "close" => answer.closes = true,
            "T" => {
                let (client, ask) = value.split_once('.').ok_or_else(|| shown("no token", head))?;
                answer.token = client.parse().ok().zip(ask.parse().ok());
            }
            _ => {}
        }
    }
    // A client that is late, or one too many, is refused before its method is known to be HEAD.
    let is_unknown = answer.token.is_none() && matches!(status, 408 | 503);
    let has_none = (is_head && !is_unknown) || status < 200 || matches!(status, 204 | 304);
    answer.framing = match (has_none, length, is_chunked) {
        (true, _, _) => Framing::Nothing,
        (_, Some(length), _) => Framing::Length(length),
        (_, None, true) => Framing::Size,
        (_, None, false) => Framing::UntilClose,
    };
    Ok(answer)
}

fn shown(what: &str, bytes: &[u8]) -> String {
    format!("{what}: {}", bytes[..bytes.len().min(120)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_however_they_are_cut() {
        let stream = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nT: 1.2\r\nContent-Length: 3\r\n\r\nabc\
                       HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n\
                       HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nrest";
        for cut in [1, 2, 5, 1000] {
            let mut reader = Reader::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                reader.input().extend_from_slice(piece);
                while let Some(answer) = reader.next(false).unwrap() {
                    seen.push((answer.status, answer.token, answer.body));
                }
            }
            let last = reader.end().unwrap();
            assert!(last.closes && last.body == b"rest" && reader.is_between());
            let expected = [
                (100, None, b"".to_vec()),
                (200, Some((1, 2)), b"abc".to_vec()),
                (404, None, b"hello".to_vec()),
            ];
            assert_eq!(seen, expected);
        }
    }
}
