//! Server-side includes: however a page is cut, what it comes to is the same; what is no command comes out as it was; what
//! is held is bounded; and a value that is written with entities is no markup.

use sekisho_filter::ssi::{Encoding, Environment, Page, Shared, Step, encode};

use crate::cuts;

/// `ssi_value_length`
const VALUE_BYTES_MAX: usize = 64;
/// A command: its name, sixteen parameters with names of 32 bytes, blanks.
const HELD_BYTES_MAX: usize = 8 * 1024;

struct Given;

impl Environment for Given {
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"a" => Some(b"<a&\"".to_vec()),
            b"empty" => Some(Vec::new()),
            _ => None,
        }
    }

    fn date(&self, format: &[u8], is_local: bool) -> Vec<u8> {
        [if is_local { &b"L"[..] } else { b"G" }, format].concat()
    }
}

/// Holds the evaluation to it.
pub fn check(data: &[u8]) {
    let (text, seed) = cuts::split_seed(data);
    let mut first: Option<Vec<String>> = None;
    for way in cuts::ways(text, seed) {
        let made = run(&way);
        match &first {
            None => {
                if !text.windows(5).any(|window| window == b"<!--#") {
                    let plain = made.concat();
                    assert_eq!(
                        plain,
                        format!("t{}", text.escape_ascii()).repeat(usize::from(!text.is_empty()))
                    );
                }
                first = Some(made);
            }
            Some(first) => assert_eq!(&made, first, "{}", text.escape_ascii()),
        }
    }
    let mut written = Vec::new();
    encode(text, Encoding::Entity, &mut written);
    assert!(!written.iter().any(|byte| b"<>\"".contains(byte)));
    written.clear();
    encode(text, Encoding::Url, &mut written);
    assert!(written.iter().all(u8::is_ascii_graphic));
}

/// What a page comes to; texts side by side are one.
fn run(pieces: &[&[u8]]) -> Vec<String> {
    let (mut page, mut shared) = (Page::new(VALUE_BYTES_MAX, false), Shared::default());
    let mut steps: Vec<String> = Vec::new();
    let mut note = |page: &mut Page, shared: &mut Shared| {
        while let Some(step) = page.next_step(shared, &Given) {
            match (step, steps.last_mut()) {
                (Step::Text(text), Some(last)) if last.starts_with('t') => {
                    last.push_str(&text.escape_ascii().to_string());
                }
                (Step::Text(text), _) => steps.push(format!("t{}", text.escape_ascii())),
                (Step::Wrong(_), _) => steps.push("!".to_owned()),
                (Step::Include(include), _) => {
                    if let Some(name) = &include.set {
                        shared.set(name, b"set".to_vec());
                    }
                    steps.push(format!("{include:?}"));
                }
            }
        }
    };
    for piece in pieces {
        page.push(piece);
        note(&mut page, &mut shared);
        assert!(page.held_bytes() <= HELD_BYTES_MAX + piece.len(), "{}", page.held_bytes());
    }
    page.end();
    note(&mut page, &mut shared);
    assert_eq!(page.held_bytes(), 0);
    steps
}
