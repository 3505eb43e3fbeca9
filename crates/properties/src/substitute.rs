//! `sub_filter`: however a body is cut, what comes out is what a second, simple reading of the whole makes of it; no more
//! is held than the longest text that is looked for.
//!
//! The first line says whether each is replaced once and has the pairs, `text=replacement` with blanks between them; the
//! body follows.

use sekisho_filter::substitute::{Pair, Substituter};

use crate::cuts;

/// How many pairs there are.
const PAIRS_MAX: usize = 6;

/// Holds the filter to it.
pub fn check(data: &[u8]) {
    let (data, seed) = cuts::split_seed(data);
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, body) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let is_once = line.first() == Some(&b'1');
    let pairs: Vec<(&[u8], &[u8])> = line
        .get(1..)
        .unwrap_or_default()
        .split(|byte| *byte == b' ')
        .filter_map(|pair| {
            let mark = pair.iter().position(|byte| *byte == b'=')?;
            (mark > 0).then(|| (&pair[..mark], &pair[mark + 1..]))
        })
        .take(PAIRS_MAX)
        .collect();
    let longest = pairs.iter().map(|(from, _)| from.len()).max().unwrap_or(0);
    let expected = simply(&pairs, is_once, body);
    for way in cuts::ways(body, seed) {
        let made = pairs.iter().filter_map(|(from, to)| Pair::new(from, to.to_vec()));
        let mut filter = Substituter::new(made.collect(), is_once);
        let mut out = Vec::new();
        for piece in way {
            filter.push(piece, &mut out);
            assert!(filter.held_bytes() < longest.max(1), "{} held", filter.held_bytes());
        }
        filter.finish(&mut out);
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }
}

/// The leftmost match, and of several at one place the first pair's.
fn simply(pairs: &[(&[u8], &[u8])], is_once: bool, body: &[u8]) -> Vec<u8> {
    let mut is_used = vec![false; pairs.len()];
    let mut out = Vec::new();
    let mut rest = body;
    while let Some((byte, behind)) = rest.split_first() {
        let found = pairs.iter().enumerate().find(|(at, (from, _))| {
            let is_free = !is_once || !is_used[*at];
            is_free && rest.get(..from.len()).is_some_and(|start| start.eq_ignore_ascii_case(from))
        });
        if let Some((at, (from, to))) = found {
            is_used[at] = true;
            out.extend_from_slice(to);
            rest = &rest[from.len()..];
        } else {
            out.push(*byte);
            rest = behind;
        }
    }
    out
}
