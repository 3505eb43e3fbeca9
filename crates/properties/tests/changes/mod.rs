//! Seeds, dictionaries, and changes of seeds that are always the same.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by test binaries, each of which needs a part of it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// A line of `fuzz/targets`.
pub struct Row {
    pub name: String,
    pub dictionary: String,
    pub longest: usize,
    pub changes: usize,
}

pub fn rows() -> Vec<Row> {
    let text = fs::read_to_string(fuzz_folder().join("targets")).expect("fuzz/targets");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, dictionary, longest, changes] = words[..] else { panic!("{line}") };
            Row {
                name: name.to_owned(),
                dictionary: dictionary.to_owned(),
                longest: longest.parse().expect("a number"),
                changes: changes.parse().expect("a number"),
            }
        })
        .collect()
}

/// The seeds of a target by their names.
pub fn seeds(name: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = fuzz_folder().join("seeds").join(name);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let content = fs::read(entry.path()).expect("a seed");
            (entry.file_name().to_string_lossy().into_owned(), content)
        })
        .collect()
}

/// What libFuzzer has kept of a target, which is not committed.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(fuzz_folder().join("corpus").join(name)).into_iter().flatten();
    entries.flatten().filter_map(|entry| fs::read(entry.path()).ok()).collect()
}

/// The words of a dictionary, as libFuzzer writes them.
pub fn words(name: &str) -> Vec<Vec<u8>> {
    let path = fuzz_folder().join(format!("dict/{name}.dict"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let quoted = text.lines().filter_map(|line| {
        let start = line.find('"').filter(|_| !line.starts_with('#'))?;
        line[start + 1..].strip_suffix('"')
    });
    quoted.map(|word| unescaped(word.as_bytes())).collect()
}

fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, rest) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                out.push(u8::from_str_radix(digits, 16).expect("\\xHH"));
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                out.push(*escaped);
                rest = after;
            }
            _ => out.push(*byte),
        }
    }
    out
}

/// Changes inputs as fuzzers do, always in the same way (`splitmix64`).
pub struct Mutator {
    state: u64,
    words: Vec<Vec<u8>>,
    longest: usize,
}

impl Mutator {
    pub fn new(state: u64, words: Vec<Vec<u8>>, longest: usize) -> Self {
        Self { state, words, longest }
    }

    pub fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below.max(1) as u64) as usize
    }

    fn word(&mut self) -> Vec<u8> {
        let at = self.draw(self.words.len());
        self.words[at].clone()
    }

    /// One to six small changes of an input; `other` is another one to borrow from.
    pub fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.draw(6) {
            self.change_once(&mut bytes, other);
        }
        bytes.truncate(self.longest);
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        const TELLING: &[u8] = b"\0\t\n\r \"#%&'()*+,-./:;<=>?@[\\]^_`{|}~09azAZ\x7f\x80\xc2\xff";
        let at = self.draw(bytes.len() + 1);
        let end = (at + 1 + self.draw(8)).min(bytes.len());
        match self.draw(10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.draw(8),
            1 if at < bytes.len() => bytes[at] = self.draw(256) as u8,
            2 if at < bytes.len() => bytes[at] = TELLING[self.draw(TELLING.len())],
            3 => bytes.insert(at, TELLING[self.draw(TELLING.len())]),
            4 if at < end => drop(bytes.drain(at..end)),
            5 if at < end => {
                let piece = bytes[at..end].to_vec();
                let to = self.draw(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            6 if !self.words.is_empty() => {
                let word = self.word();
                bytes.splice(at..at, word);
            }
            7 if !self.words.is_empty() => {
                let word = self.word();
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word);
            }
            8 if !other.is_empty() => {
                let from = self.draw(other.len());
                let to = (from + 1 + self.draw(40)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            9 => bytes.truncate(at),
            _ => bytes.insert(at, self.draw(256) as u8),
        }
    }
}

pub fn rounds() -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
