//! Texts in another charset (`source_charset`, `charset_map`): what is in memory is recoded at once, larger files
//! while they are sent.

use std::sync::Arc;

use sekisho_config::{Recode, Recoding, Settings};
use sekisho_handler::compress::{CompressTask, Compressor, Source};
use sekisho_handler::{Piece, Reply, Task};
use sekisho_http::{Fields, Status};

/// A reply in the charset that its head names.
pub(crate) enum Recoded {
    /// As a whole.
    Reply(Reply),
    /// With a body that is made while it is sent.
    Stream(Status, Box<dyn Task>),
    /// There is no memory for it now.
    Short,
}

/// How a response is recoded, where its location wants that and its head names the charset.
pub(crate) fn wanted<'s>(settings: &'s Settings, fields: &Fields) -> Option<&'s Arc<Recode>> {
    let charset = settings.charset.as_ref()?;
    let media_type = fields.get("content-type").unwrap_or_default();
    let is_multipart = media_type.starts_with(b"multipart/byteranges");
    let is_named = media_type.ends_with(charset.as_bytes()) || is_multipart;
    settings.recode.as_ref().filter(|_| is_named && !fields.has("content-encoding"))
}

/// Recodes a reply, where that is wanted.
pub(crate) fn apply(reply: Reply, recode: Option<&Arc<Recode>>, fields: &Fields) -> Recoded {
    let Some(recode) = recode.filter(|_| !reply.is_empty()) else {
        return Recoded::Reply(reply);
    };
    let media_type = fields.get("content-type").unwrap_or_default();
    let is_multipart = media_type.starts_with(b"multipart/byteranges");
    let Reply { status, body, piece } = reply;
    let one = |piece: Piece| match (&piece, piece.in_memory()) {
        // Between the parts of several ranges stand heads of our own.
        (Piece::Bytes(_), _) if is_multipart => Ok(piece),
        (_, Some(bytes)) => Ok(Piece::Bytes(recoded(recode, bytes))),
        _ => Err(piece),
    };
    let body: Result<Vec<_>, _> = body.into_iter().map(one).collect();
    match (piece.map(one).transpose(), body) {
        (Ok(piece), Ok(body)) => Recoded::Reply(Reply { status, body, piece }),
        (Err(piece), _) | (_, Err(piece)) => match stream(recode, &piece) {
            Some(task) => Recoded::Stream(status, task),
            None => Recoded::Short,
        },
    }
}

fn recoded(recode: &Arc<Recode>, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut recoding = Recoding::new(recode);
    recoding.push(bytes, &mut out);
    recoding.finish(&mut out);
    out
}

fn stream(recode: &Arc<Recode>, piece: &Piece) -> Option<Box<dyn Task>> {
    let Piece::File(file, range) = piece else { return None };
    let source = Source::File(file.shared_descriptor()?, range.clone());
    let compressor = Compressor::recode(recode, range.end - range.start)?;
    Some(Box::new(CompressTask::new(source, compressor)))
}
