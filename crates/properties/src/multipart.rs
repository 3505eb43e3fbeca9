//! Forms: however the bytes are cut, the parts are the same; names of files are safe; nothing panics.
//!
//! The first byte says how long the boundary is that follows, the next two where the rest is cut.

use sekisho_http::multipart::{self, Event, Form, Limits, Malformed};
use sekisho_http::{file_name, parameters};

const LIMITS: Limits = Limits { parts_max: 16, head_bytes_max: 512 };

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let _ = multipart::boundary(data);
    let _ = parameters::parameters(data).count();
    let _ = parameters::file_name(data);
    if let Some(name) = file_name::safe(data) {
        assert!(!name.is_empty() && name.len() <= file_name::BYTES_MAX);
        assert!(!name.starts_with('.') && !name.contains(['/', '\\', '\0', '\r', '\n']));
    }
    let [length, first, second, rest @ ..] = data else { return };
    let length = usize::from(*length) % multipart::BOUNDARY_BYTES_MAX + 1;
    let Some((boundary, body)) = rest.split_at_checked(length) else { return };
    if boundary.contains(&b'\r') {
        return;
    }
    let whole = read(boundary, &[body]);
    let cut = usize::from(*first) * 256 + usize::from(*second);
    let cut = cut % (body.len() + 1);
    assert_eq!(read(boundary, &[&body[..cut], &body[cut..]]), whole);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(read(boundary, &bytes), whole);
}

/// Names and contents.
type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// The parts with their content, or what is wrong.
fn read(boundary: &[u8], pieces: &[&[u8]]) -> Result<Parts, Malformed> {
    let mut form = Form::new(boundary, LIMITS);
    let mut parts = Parts::new();
    for piece in pieces {
        form.receive(piece, |event| {
            match event {
                Event::Part(part) => parts.push((part.name.into_owned(), Vec::new())),
                Event::Data(bytes) => {
                    parts.last_mut().expect("a part").1.extend_from_slice(bytes);
                }
                Event::PartEnd => {}
            }
            Ok::<_, Malformed>(())
        })?;
    }
    form.finish()?;
    Ok(parts)
}
