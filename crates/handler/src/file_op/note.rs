//! What is known about an unfinished upload, as lines of a small file that survives a restart.

/// What a note may have: as much as most heads, which its parts come from.
pub(super) const BYTES_MAX: usize = 64 << 10;
const FIRST_LINE: &str = "sekisho upload 1";

/// A note about an upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    /// How long it will be.
    pub(crate) length: u64,
    /// What it will be called.
    pub(crate) name: String,
    /// The client's metadata, unchanged.
    pub(crate) metadata: Vec<u8>,
    /// Whether it has been given its name.
    pub(crate) is_done: bool,
}

impl Note {
    /// Neither the name nor the metadata has control bytes in it, so each is one line.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { length, name, is_done, .. } = self;
        let mut bytes =
            format!("{FIRST_LINE}\nlength {length}\nname {name}\ndone {is_done}\nmetadata ")
                .into_bytes();
        bytes.extend_from_slice(&self.metadata);
        bytes.push(b'\n');
        bytes
    }

    /// `None` for what is none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        let mut line = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        line(FIRST_LINE)?;
        let length = std::str::from_utf8(line("length ")?).ok()?.parse().ok()?;
        let name = String::from_utf8(line("name ")?.to_vec()).ok()?;
        let is_done = line("done ")? == b"true";
        let metadata = line("metadata ")?.to_vec();
        // A name is one component, even if another program wrote the note.
        let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        is_name.then_some(Self { length, name, metadata, is_done })
    }
}

/// The decoded value of a key in `Upload-Metadata`: `key base64,key base64`.
pub(crate) fn metadata(field: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    field.split(|byte| *byte == b',').find_map(|pair| {
        let mut words = pair.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        if words.next()? != key {
            return None;
        }
        base64(words.next().unwrap_or_default())
    })
}

/// Either alphabet is taken.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let standard = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    };
    let (text, mut out): (Vec<u8>, _) = (text.iter().map(standard).collect(), Vec::new());
    sekisho_route::decode_base64(&text, &sekisho_route::STANDARD_BASE64, &mut out)?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Note {
            length: u64::MAX,
            name: "a b.txt".into(),
            metadata: b"filename YSBiLnR4dA==".to_vec(),
            is_done: true,
        };
        assert_eq!(Note::from_bytes(&note.to_bytes()), Some(note.clone()));
        let bytes = note.to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Note::from_bytes(&bytes[..end]), None, "{end}");
        }
        let evil = Note { name: "../x".into(), ..note };
        assert_eq!(Note::from_bytes(&evil.to_bytes()), None);
    }

    #[test]
    fn metadata_is_decoded() {
        let field = b"is_private,filename d29ybGQucG5n,filetype aW1hZ2UvcG5n,odd *";
        for (key, expected) in [
            ("filename", Some("world.png")),
            ("filetype", Some("image/png")),
            ("is_private", Some("")),
            ("odd", None),
            ("missing", None),
        ] {
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(metadata(field, key.as_bytes()), expected, "{key}");
        }
        assert_eq!(metadata(b"filename w6k=", b"filename"), Some("é".into()));
    }
}
