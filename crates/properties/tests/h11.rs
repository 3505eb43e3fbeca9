//! Request heads and the framing of bodies against h11, a parser in another language that shares nothing with ours:
//! whatever we take whole, it takes, too, with the same method, target, fields and body. One process is asked about
//! the seeds and their changes; without `python3` and its module `h11` the test says that it was skipped.
//! `FUZZ_ROUNDS` makes it longer.
//!
//! Differences that are known and wanted:
//! - an empty line before a request line, which RFC 9112 §2.2 asks servers to ignore: h11 refuses it;
//! - bytes above 0x7e in a target: h11 refuses them, we leave them to the router, as nginx does;
//! - a field value that begins or ends with nothing but white space is the same, but h11 refuses a `Content-Length`
//!   of more than 20 digits and chunk sizes of more than 20 digits: leading zeros are digits to us;
//! - an HTTP/1.0 request that wants to be kept alive: h11 closes, so that only the first of a stream is compared;
//! - trailer fields about framing: h11 reads them as if they stood in the head, we drop all trailers unread;
//! - the value of `Transfer-Encoding` is in lower case afterwards: the same coding;
//! - CONNECT and `Upgrade`: h11 waits there for what the application decides.

mod changes;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use changes::{Mutator, corpus, rounds, rows, seeds, words};
use sekisho_properties::differential::{Understood, ours};

/// Answers frames (a length of four bytes, then so many) with frames: for each request that is whole its method,
/// target, fields and body, each piece as a length and its bytes.
const SCRIPT: &str = r#"
import struct, sys
try:
    import h11
except ImportError:
    sys.exit(3)
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
def piece(data):
    return struct.pack("<I", len(data)) + bytes(data)
def understood(stream):
    out, count = b"", 0
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    try:
        connection.receive_data(stream)
        while count < 8:
            request, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return count, out
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return count, out
            fields = list(request.headers)
            out += piece(request.method) + piece(request.target) + piece(body)
            out += struct.pack("<I", len(fields))
            for name, value in fields:
                out += piece(name) + piece(value)
            count += 1
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return count, out
            connection.start_next_cycle()
    except h11.ProtocolError:
        pass
    return count, out
write(b"h11\n")
sys.stdout.buffer.flush()
while True:
    head = read(4)
    if len(head) < 4:
        break
    stream = read(struct.unpack("<I", head)[0])
    count, out = understood(stream)
    write(struct.pack("<II", count, len(out)) + out)
    sys.stdout.buffer.flush()
"#;

struct H11 {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl H11 {
    /// `None` where there is no such thing here.
    /// By the first Python that has it: that of the path, or the system's.
    fn start() -> Option<Self> {
        ["python3", "/usr/bin/python3"].into_iter().find_map(Self::by)
    }

    fn by(python: &str) -> Option<Self> {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (input, mut output) = (child.stdin.take()?, child.stdout.take()?);
        let mut hello = [0; 4];
        if output.read_exact(&mut hello).is_err() {
            let _ = child.wait();
            return None;
        }
        Some(Self { child, input, output })
    }

    fn ask(&mut self, stream: &[u8]) -> Vec<Understood> {
        self.input.write_all(&(stream.len() as u32).to_le_bytes()).expect("h11 listens");
        self.input.write_all(stream).expect("h11 listens");
        let mut head = [0; 8];
        self.output.read_exact(&mut head).expect("h11 answers");
        let mut head = head.as_slice();
        let (count, length) = (number(&mut head), number(&mut head));
        let mut bytes = vec![0; length];
        self.output.read_exact(&mut bytes).expect("h11 answers");
        let mut rest = bytes.as_slice();
        (0..count).map(|_| request(&mut rest)).collect()
    }
}

impl Drop for H11 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(rest: &mut &[u8]) -> usize {
    let (number, after) = rest.split_first_chunk().expect("a number");
    *rest = after;
    u32::from_le_bytes(*number) as usize
}

fn piece(rest: &mut &[u8]) -> Vec<u8> {
    let length = number(rest);
    let (piece, after) = rest.split_at(length);
    *rest = after;
    piece.to_vec()
}

fn request(rest: &mut &[u8]) -> Understood {
    let (method, target, body) = (piece(rest), piece(rest), piece(rest));
    let mut fields: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for _ in 0..number(rest) {
        let (name, value) = (piece(rest), piece(rest));
        fields.entry(name).or_default().push(value);
    }
    Understood { method, target, is_11: true, fields, body, end: 0 }
}

/// Whether this request, or what follows it, is read otherwise on purpose.
fn is_known_difference(request: &Understood, start: usize, stream: &[u8]) -> bool {
    let is_blank = matches!(stream.get(start), Some(b'\r' | b'\n'));
    let length = request.fields.get(&b"content-length"[..]).map_or(0, |values| values[0].len());
    let has_long_size = stream[start..request.end]
        .split(|byte| *byte == b'\n')
        .any(|line| line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() > 20);
    let text = stream[start..request.end].to_ascii_lowercase();
    let says = |word: &[u8]| text.windows(word.len()).filter(|part| *part == word).count();
    let has_framing_trailer = request.fields.contains_key(&b"transfer-encoding"[..])
        && (says(b"content-length") > 0 || says(b"transfer-encoding") > 1);
    is_blank
        || has_framing_trailer
        || length > 20
        || has_long_size
        || !request.target.iter().all(u8::is_ascii_graphic)
}

/// Whether h11 goes on after this request as we do.
fn is_followed(request: &Understood) -> bool {
    let has = |name: &[u8]| request.fields.contains_key(name);
    request.is_11 && request.method != b"CONNECT" && !has(b"upgrade")
}

fn compare(h11: &mut H11, stream: &[u8]) -> usize {
    let ours = ours(stream);
    if ours.is_empty() {
        return 0;
    }
    let theirs = h11.ask(stream);
    let mut start = 0;
    for (at, request) in ours.iter().enumerate() {
        if is_known_difference(request, start, stream) {
            return at;
        }
        start = request.end;
        let shown = || stream.escape_ascii();
        let other = theirs.get(at).unwrap_or_else(|| panic!("refused: {request:?} of {}", shown()));
        let mut found = Understood { end: 0, is_11: true, ..request.clone() };
        if let Some(codings) = found.fields.get_mut(&b"transfer-encoding"[..]) {
            for coding in codings {
                coding.make_ascii_lowercase();
            }
        }
        assert_eq!(found, *other, "request {at} of {}", shown());
        if !is_followed(request) {
            return at + 1;
        }
    }
    ours.len()
}

/// V1, V2: a second parser takes what we take, and finds the same end.
#[test]
fn h11_understands_what_we_understand() {
    let Some(mut h11) = H11::start() else {
        eprintln!("skipped: there is no python3 with the module h11 (Debian: python3-h11)");
        return;
    };
    let row = rows().into_iter().find(|row| row.name == "differential").expect("a row");
    let mut inputs: Vec<Vec<u8>> = seeds("differential").into_values().collect();
    for name in ["request_head", "engine"] {
        inputs.extend(seeds(name).into_values());
    }
    // What long runs have found, where there is any.
    inputs.extend(corpus("differential"));
    let mut compared: usize = inputs.iter().map(|input| compare(&mut h11, input)).sum();
    assert!(compared > 10, "{compared} requests were compared");
    for round in 0..rounds() {
        let words = words(&row.dictionary);
        let mut mutator = Mutator::new(1 << 60 | round << 32, words, row.longest);
        for _ in 0..row.changes {
            let (one, other) = (mutator.draw(inputs.len()), mutator.draw(inputs.len()));
            let input = mutator.change(&inputs[one], &inputs[other]);
            compared += compare(&mut h11, &input);
        }
    }
    println!("{compared} requests were compared");
}
