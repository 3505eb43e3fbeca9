//! What lines are written to: a file, a file of gzip members, or a syslog server.

use std::fs::File;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::syslog::Socket;

#[derive(Debug)]
pub(crate) enum Destination {
    File(File),
    /// Everything that is written at a time becomes one gzip member, at this level.
    Compressed(File, u32),
    Syslog(Box<Socket>),
}

impl Destination {
    /// The file beneath, where it is one.
    pub(crate) fn file(&self) -> Option<&File> {
        match self {
            Self::File(file) | Self::Compressed(file, _) => Some(file),
            Self::Syslog(_) => None,
        }
    }

    /// The same with another file (it was opened again).
    pub(crate) fn replace_file(&mut self, file: File) {
        match self {
            Self::File(old) | Self::Compressed(old, _) => *old = file,
            Self::Syslog(_) => {}
        }
    }

    /// Writes as much as the target takes: how much that was.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::File(file) => write_some(file, bytes),
            Self::Compressed(file, level) => match compress(bytes, *level) {
                // Half a member cannot be read: its rest is not counted as lines.
                Ok(member) if write_some(file, &member) == member.len() => bytes.len(),
                _ => 0,
            },
            Self::Syslog(socket) => {
                let mut sent = 0;
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if !socket.send(line.strip_suffix(b"\n").unwrap_or(line)) {
                        break;
                    }
                    sent += line.len();
                }
                sent
            }
        }
    }
}

fn compress(bytes: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn write_some(file: &mut File, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(count) if count > 0 => taken += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    taken
}
