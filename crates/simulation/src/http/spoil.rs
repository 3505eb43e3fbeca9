//! What a faulty server does to its output, put between the driver and the network.

use super::Sim;
use super::answer::Reader;
use crate::Fault;

/// How every answer begins.
const BEGINNING: &[u8] = b"HTTP/1.1 ";

/// What leaves in the place of these bytes, where they are spoilt: whole answers, for which there is room.
pub(super) fn output(bytes: &[u8], is_file: bool, room: usize, sim: &Sim) -> Option<Vec<u8>> {
    let fault = sim.fault?;
    if is_file || 2 * bytes.len() > room || !are_whole_answers(bytes) {
        return None;
    }
    match fault {
        Fault::AnswerTwice => Some([bytes, bytes].concat()),
        Fault::AnswerLost => Some(Vec::new()),
        Fault::AnswersSwapped => {
            let begins = |at: &usize| bytes[*at..].starts_with(BEGINNING);
            let mut answers = (1..bytes.len()).filter(begins);
            let (second, third) = (answers.next()?, answers.next().unwrap_or(bytes.len()));
            Some([&bytes[second..third], &bytes[..second], &bytes[third..]].concat())
        }
        _ => None,
    }
}

fn are_whole_answers(bytes: &[u8]) -> bool {
    let mut reader = Reader::default();
    reader.input().extend_from_slice(bytes);
    while let Ok(Some(_)) = reader.next(false) {}
    bytes.starts_with(BEGINNING) && reader.is_between()
}
