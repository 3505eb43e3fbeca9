//! Bytes into words and out of them. Every access is one atomic load or store of a whole word, which costs no
//! more than an ordinary one, and leaves nothing undefined when another process writes at the same time.

use std::sync::atomic::Ordering::Relaxed;

use crate::memory::Word;

/// The bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Writes `bytes` from the byte `at` on. No other side writes these words; a reader of the other bytes in the
/// first and last word finds them unchanged.
pub fn put<W: Word>(words: &[W], at: usize, bytes: &[u8]) {
    let (first, shift) = (at / WORD, at % WORD);
    let (edge, rest) = bytes.split_at(edge_len(shift, bytes.len()));
    let mut words = words[first..].iter();
    if !edge.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, shift, edge);
    }
    let (whole, edge) = rest.as_chunks::<WORD>();
    for (chunk, word) in whole.iter().zip(words.by_ref()) {
        word.store(u64::from_le_bytes(*chunk), Relaxed);
    }
    if !edge.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, 0, edge);
    }
}

/// Reads into `bytes` from the byte `at` on.
pub fn get<W: Word>(words: &[W], at: usize, bytes: &mut [u8]) {
    let (first, shift) = (at / WORD, at % WORD);
    let (edge, rest) = bytes.split_at_mut(edge_len(shift, bytes.len()));
    let mut words = words[first..].iter();
    if !edge.is_empty()
        && let Some(word) = words.next()
    {
        part(word, shift, edge);
    }
    let (whole, edge) = rest.as_chunks_mut::<WORD>();
    for (chunk, word) in whole.iter_mut().zip(words.by_ref()) {
        *chunk = word.load(Relaxed).to_le_bytes();
    }
    if !edge.is_empty()
        && let Some(word) = words.next()
    {
        part(word, 0, edge);
    }
}

/// How many bytes stand in a first word that is not used from its start.
fn edge_len(shift: usize, len: usize) -> usize {
    if shift == 0 { 0 } else { len.min(WORD - shift) }
}

fn merge<W: Word>(word: &W, shift: usize, bytes: &[u8]) {
    let mut whole = word.load(Relaxed).to_le_bytes();
    whole[shift..shift + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_le_bytes(whole), Relaxed);
}

fn part<W: Word>(word: &W, shift: usize, bytes: &mut [u8]) {
    let whole = word.load(Relaxed).to_le_bytes();
    bytes.copy_from_slice(&whole[shift..shift + bytes.len()]);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_cut_is_copied_and_its_neighbours_stay() {
        for at in 0..24 {
            for len in 0..40 {
                let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
                let bytes: Vec<u8> = (0..len as u8).collect();
                put(&words, at, &bytes);
                let mut all = vec![0; 64];
                get(&words, 0, &mut all);
                let mut wanted = vec![255; 64];
                wanted[at..at + len].copy_from_slice(&bytes);
                assert_eq!(all, wanted, "{len} bytes at {at}");
                let mut back = vec![0; len];
                get(&words, at, &mut back);
                assert_eq!(back, bytes);
            }
        }
    }

    #[test]
    fn the_first_byte_of_a_word_is_its_lowest() {
        let words = [AtomicU64::new(0)];
        put(&words, 1, &[7]);
        assert_eq!(words[0].load(Relaxed), 7 << 8);
    }
}
