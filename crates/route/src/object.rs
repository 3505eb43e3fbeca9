//! What is known about objects of a `storage` while a request is decided: each one is asked for once, and the decision
//! waits for the answer.

use sekisho_http::Status;

/// How many objects are asked for in one decision: index files, and candidates of `try_files`.
const ASKED_MAX: usize = 32;

/// What there is in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectLook {
    /// An object.
    Object,
    /// No object, but there are some below this path.
    Folder,
    /// Neither.
    Missing,
    /// It could not be found out: the status to answer with.
    Failed(Status),
}

/// What was asked for so far; paths are those of `route_state.file`, a folder's ends with a slash.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    known: Vec<(Vec<u8>, ObjectLook)>,
    /// What is to be asked for.
    asked: Vec<u8>,
}

impl Objects {
    /// What is to be asked for.
    pub fn asked(&self) -> &[u8] {
        &self.asked
    }

    /// The answer.
    pub fn note(&mut self, look: ObjectLook) {
        let asked = std::mem::take(&mut self.asked);
        self.known.push((asked, look));
    }

    /// What is known of a path.
    pub(crate) fn known(&self, file: &[u8]) -> Option<ObjectLook> {
        self.known.iter().find(|(known, _)| known == file).map(|(_, look)| *look)
    }

    /// A path was asked for without a wait, and is not there.
    pub fn note_missing(&mut self, file: &[u8]) {
        self.known.push((file.to_vec(), ObjectLook::Missing));
    }

    /// What is known of a path; if nothing is, it is to be asked for.
    pub(crate) fn look(&mut self, file: &[u8]) -> Option<ObjectLook> {
        if let Some(look) = self.known(file) {
            return Some(look);
        }
        if self.known.len() >= ASKED_MAX {
            return Some(ObjectLook::Failed(Status::INTERNAL_SERVER_ERROR));
        }
        file.clone_into(&mut self.asked);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_asked_for_once_and_there_is_a_bound() {
        let mut objects = Objects::default();
        assert_eq!(objects.look(b"/a"), None);
        assert_eq!(objects.asked(), b"/a");
        objects.note(ObjectLook::Missing);
        assert_eq!(objects.look(b"/a"), Some(ObjectLook::Missing));
        for number in 1..ASKED_MAX {
            assert_eq!(objects.look(format!("/{number}").as_bytes()), None);
            objects.note(ObjectLook::Object);
        }
        let over = ObjectLook::Failed(Status::INTERNAL_SERVER_ERROR);
        assert_eq!(objects.look(b"/b"), Some(over));
    }
}
