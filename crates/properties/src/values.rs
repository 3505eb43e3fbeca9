//! Other values of fields: a coding is taken only where the client takes it, in the order of its wishes;
//! parameters are read back as they were written; marks on an answer's field lines leave them whole lines.
//!
//! Each line of the input is a value.

use sekisho_http::{Accepted, Coding, Fields, Head, Version, multipart, parameters};
use sekisho_route::compression::{mark_compressed, mark_varying};

/// Holds the readers to it.
pub fn check(data: &[u8]) {
    for value in data.split(|byte| *byte == b'\n').take(4) {
        codings(value);
        marks(value);
        reads_parameters(value);
    }
    weights(data);
    writes_parameters(data);
}

fn accepted(values: &[&[u8]]) -> Accepted {
    let mut head = Head::default();
    head.begin(b"GET", b"/", Version::Http11);
    for value in values {
        head.push(b"Accept-Encoding", value);
    }
    Accepted::of(&head)
}

/// A coding is taken only where it was named, or gzip for an asterisk.
fn codings(value: &[u8]) {
    let lower = value.to_ascii_lowercase();
    let says = |name: &str| lower.windows(name.len()).any(|word| word == name.as_bytes());
    let found = accepted(&[value]);
    for coding in found.iter() {
        assert!(says(coding.name()) || (coding == Coding::Gzip && says("*")));
        assert!(found.contains(coding));
    }
    let all: Vec<Coding> = found.iter().collect();
    for (at, coding) in all.iter().enumerate() {
        assert!(!all[..at].contains(coding), "twice");
    }
    assert_eq!(found.is_empty(), all.is_empty());
}

/// A list is written from the input, two bytes for each member, and must come to what its numbers say.
fn weights(data: &[u8]) {
    const NAMES: [&str; 8] = ["zstd", "br", "gzip", "x-gzip", "*", "identity", "GZip", "deflate"];
    let mut said: [Option<u16>; 5] = [None; 5];
    let mut lists = [String::new(), String::new()];
    for pair in data.chunks_exact(2).take(8) {
        let (name, weight) = (usize::from(pair[0] & 7), u16::from(pair[1]) * 4);
        let weight = weight.min(1000);
        let text = match (weight, pair[0] >> 3 & 3) {
            (1000, 0) => String::new(),
            (1000, _) => ";q=1.000".to_owned(),
            (_, 0) => format!(" ; Q=0.{weight:03}"),
            (_, 1) => format!(";q=0.{weight:03} "),
            _ => format!(";\tq=0.{weight:03}"),
        };
        let list = &mut lists[usize::from(pair[0] >> 7)];
        for word in [NAMES[name], &text, ","] {
            list.push_str(word);
        }
    }
    // The first word on a coding holds, over both fields in their order.
    for list in &lists {
        for member in list.split(',').filter(|member| !member.is_empty()) {
            let (name, weight) = member.split_once(';').unwrap_or((member, "q=1"));
            let slot = match name.trim().to_lowercase().as_str() {
                "zstd" => 0,
                "br" => 1,
                "gzip" | "x-gzip" => 2,
                "*" => 3,
                "identity" => 4,
                _ => continue,
            };
            let number: f64 = weight.trim()[2..].parse().expect("we wrote it");
            said[slot].get_or_insert((number * 1000.0).round() as u16);
        }
    }
    let least = said[4].unwrap_or(0).max(1);
    let weights = [said[0].unwrap_or(0), said[1].unwrap_or(0), said[2].or(said[3]).unwrap_or(0)];
    let mut wanted: Vec<(u16, Coding)> = weights.into_iter().zip(Coding::ALL).collect();
    wanted.retain(|(weight, _)| *weight >= least);
    wanted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let wanted: Vec<Coding> = wanted.into_iter().map(|(_, coding)| coding).collect();
    let found: Vec<Coding> = accepted(&[lists[0].as_bytes(), lists[1].as_bytes()]).iter().collect();
    assert_eq!(found, wanted, "{lists:?}");
}

/// What compression changes leaves the other fields as they are.
fn marks(value: &[u8]) {
    let name = ["ETag", "Vary", "Accept-Ranges", "X"][value.len() % 4];
    let pairs = [("A", &b"b"[..]), (name, value), ("C", b"d")];
    let mut fields: Fields = pairs.into_iter().collect();
    mark_compressed(&mut fields, Coding::Brotli);
    mark_varying(&mut fields);
    assert_eq!((fields.get("a"), fields.get("c")), (Some(&b"b"[..]), Some(&b"d"[..])));
    assert_eq!(fields.get("content-encoding"), Some(&b"br"[..]));
    assert!((4..=5).contains(&fields.len()), "{fields:?}");
}

fn reads_parameters(value: &[u8]) {
    let mut bytes = 0;
    for (name, text) in parameters::parameters(value) {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
        bytes += name.len() + text.len() + 2;
    }
    assert!(bytes <= value.len(), "nothing is made up");
    if let Some(boundary) = multipart::boundary(value) {
        assert!((1..=multipart::BOUNDARY_BYTES_MAX).contains(&boundary.len()));
        assert!(multipart::is_form(value) && boundary.last() != Some(&b' '));
        assert!(boundary.iter().all(|byte| matches!(byte, b' '..=b'~')));
    }
}

/// What is quoted as RFC 9110 §5.6.4 has it is read back.
fn writes_parameters(data: &[u8]) {
    let mut field = b"form-data".to_vec();
    let texts: Vec<&[u8]> = data.split(|byte| *byte == b'\n').take(4).collect();
    for (at, text) in texts.iter().enumerate() {
        field.extend_from_slice(format!("; p{at}=\"").as_bytes());
        for byte in *text {
            if matches!(byte, b'"' | b'\\') {
                field.push(b'\\');
            }
            field.push(*byte);
        }
        field.push(b'"');
    }
    let found: Vec<(Vec<u8>, Vec<u8>)> = parameters::parameters(&field)
        .map(|(name, value)| (name.to_vec(), value.into_owned()))
        .collect();
    let wanted: Vec<(Vec<u8>, Vec<u8>)> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| (format!("p{at}").into_bytes(), text.to_vec()))
        .collect();
    assert_eq!(found, wanted, "{}", field.escape_ascii());
}
