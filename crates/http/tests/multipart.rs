//! Forms: whole, cut anywhere, and broken.

use proptest::prelude::*;
use sekisho_http::multipart::{Event, Form, Limits, Malformed, boundary};

const LIMITS: Limits = Limits { parts_max: 4, head_bytes_max: 200 };

/// What a form consists of: field, file name and content of each part.
type Parts = Vec<(String, Option<String>, Vec<u8>)>;

/// Reads a form in pieces that end at these places.
fn read(body: &[u8], cuts: &[usize]) -> Result<Parts, Malformed> {
    let mut form = Form::new(b"XX", LIMITS);
    let mut parts: Parts = Vec::new();
    let mut is_open = false;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut start = 0;
    for end in cuts.iter().copied().chain([body.len()]) {
        let end = end.clamp(start, body.len());
        form.receive(&body[start..end], |event| {
            match event {
                Event::Part(part) => {
                    assert!(!is_open, "a part begins within another");
                    is_open = true;
                    parts.push((text(&part.name), part.file_name.as_deref().map(text), Vec::new()));
                }
                Event::Data(bytes) => {
                    assert!(is_open && !bytes.is_empty());
                    parts.last_mut().expect("a part").2.extend_from_slice(bytes);
                }
                Event::PartEnd => {
                    assert!(is_open);
                    is_open = false;
                }
            }
            Ok::<_, Malformed>(())
        })?;
        start = end;
    }
    form.finish()?;
    assert!(!is_open);
    Ok(parts)
}

/// F5, V29
#[test]
fn a_form_is_read_in_parts() {
    let field = "Content-Disposition: form-data; name=\"f\"";
    for (body, expected) in [
        ("--XX--".into(), vec![]),
        ("--XX--\r\n".into(), vec![]),
        (format!("--XX\r\n{field}\r\n\r\nhello\r\n--XX--"), vec![("f", None, "hello")]),
        (format!("--XX\r\n{field}\r\n\r\n\r\n--XX--"), vec![("f", None, "")]),
        (
            format!(
                "preamble\r\n--XX \t\r\n{field}; filename=\"a\"\r\n\r\nx\r\n--XX--\r\nepilogue"
            ),
            vec![("f", Some("a"), "x")],
        ),
        (
            format!(
                "--XX\r\nContent-Type: text/plain\r\n{field}\r\n\r\n1\r\n--XX\r\n{field}\r\n\r\n2\r\n--XX--"
            ),
            vec![("f", None, "1"), ("f", None, "2")],
        ),
        // Nearly delimiters.
        (
            format!("--XX\r\n{field}\r\n\r\n\r\n--X\r\r\n--\n--XX\r\n-\r\n--XX--"),
            vec![("f", None, "\r\n--X\r\r\n--\n--XX\r\n-")],
        ),
        (format!("--X\r\n--XX\r\n{field}\r\n\r\nx\r\n--XX--"), vec![("f", None, "x")]),
    ] {
        let expected: Parts = expected
            .into_iter()
            .map(|(name, file, data)| (name.into(), file.map(Into::into), data.into()))
            .collect();
        let body = body.as_bytes();
        for cut in 0..=body.len() {
            assert_eq!(read(body, &[cut]).as_ref(), Ok(&expected), "{} {cut}", body.escape_ascii());
        }
        let all: Vec<usize> = (0..body.len()).collect();
        assert_eq!(read(body, &all).as_ref(), Ok(&expected), "{}", body.escape_ascii());
    }
}

/// V29: a broken form is an error, wherever it is cut.
#[test]
fn a_broken_form_is_an_error() {
    use Malformed::{BadDelimiter, BadHead, CutShort, HeadTooLarge, TooManyParts};
    let part = "--XX\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nx\r\n";
    let long = "y".repeat(300);
    for (body, expected) in [
        (String::new(), CutShort),
        ("nothing".into(), CutShort),
        ("--XX".into(), CutShort),
        ("--XX-".into(), CutShort),
        (part.into(), CutShort),
        (format!("{part}--X"), CutShort),
        (format!("{part}--XX"), CutShort),
        (format!("{part}--XX-x"), BadDelimiter),
        (format!("{part}--XXY\r\n"), BadDelimiter),
        (format!("{part}--XX\n"), BadDelimiter),
        (format!("{part}--XX{}\r\n", " ".repeat(65)), BadDelimiter),
        (format!("{part}--XX\r\n\r\n\r\n--XX--"), BadHead),
        (format!("{part}--XX\r\nno colon\r\n\r\n"), BadHead),
        (format!("{part}--XX\r\nContent-Disposition: attachment; name=x\r\n\r\n"), BadHead),
        (format!("{part}--XX\r\nContent-Disposition: form-data\r\n\r\n"), BadHead),
        (format!("{part}--XX\r\nX: {long}\r\n\r\n"), HeadTooLarge),
        (format!("{part}{part}{part}{part}{part}--XX--"), TooManyParts),
    ] {
        let body = body.as_bytes();
        for cut in 0..=body.len() {
            assert_eq!(read(body, &[cut]), Err(expected), "{} {cut}", body.escape_ascii());
        }
    }
}

#[test]
fn the_boundary_is_read_from_the_type() {
    for (value, expected) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        ("Multipart/Form-Data; charset=x; Boundary=\"a b\"", Some("a b")),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=\"a \"", None),
        ("multipart/form-data; boundary=\"a\tb\"", None),
        ("multipart/mixed; boundary=abc", None),
        ("text/plain", None),
    ] {
        let expected = expected.map(|text| text.as_bytes().to_vec());
        assert_eq!(boundary(value.as_bytes()), expected, "{value}");
    }
    let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
    assert_eq!(boundary(long.as_bytes()), None);
}

proptest! {
    /// However the bytes are cut, the parts are the same; and nothing panics.
    #[test]
    fn cuts_change_nothing(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n"),
                Just("\r\n--XX"), Just("--XX"), Just("--"), Just("\r\n"), Just("\r"), Just("\n"),
                Just("X"), Just("data"), Just(" "), Just("\r\n--XX--"),
                Just("\r\nContent-Disposition: form-data; name=g\r\n\r\n"),
            ],
            0..24,
        ),
        cuts in prop::collection::vec(0usize..400, 0..12),
    ) {
        let body = pieces.concat().into_bytes();
        let mut cuts = cuts;
        cuts.sort_unstable();
        prop_assert_eq!(read(&body, &cuts), read(&body, &[]));
    }

    /// What is put in comes out.
    #[test]
    fn content_round_trips(
        contents in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X'), any::<u8>()], 0..40),
            0..4,
        ),
        cuts in prop::collection::vec(0usize..400, 0..12),
    ) {
        let holds = |content: &Vec<u8>| [b"\r\n", content.as_slice()].concat().windows(6).any(|window| window == b"\r\n--XX");
        prop_assume!(!contents.iter().any(holds));
        let mut body = Vec::new();
        for content in &contents {
            body.extend_from_slice(b"--XX\r\nContent-Disposition: form-data; name=f\r\n\r\n");
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--XX--");
        let mut cuts = cuts;
        cuts.sort_unstable();
        let read = read(&body, &cuts).expect("a good form");
        let read: Vec<Vec<u8>> = read.into_iter().map(|(_, _, content)| content).collect();
        prop_assert_eq!(read, contents);
    }
}
