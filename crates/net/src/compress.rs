//! Where answers are compressed on their way out: the router chooses, the handlers compress, and the head
//! says so.

use sekisho_handler::compress::{self, CompressTask, Compressor, Source};
use sekisho_handler::{Piece, Reply, Task};
use sekisho_http::{Coding, Fields, Method, Status};
use sekisho_route::compression::{Answer, choose, mark_compressed, mark_varying, weaken_tag};
use sekisho_route::{Request, RouteState, Table, media_type};

/// The answer that may be compressed.
#[derive(Clone, Copy)]
pub(crate) struct Compression<'a> {
    pub(crate) table: &'a Table,
    pub(crate) request: &'a Request<'a>,
    pub(crate) route: &'a RouteState,
}

/// How an answer leaves.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// As a whole; how long it was before it was compressed, if it was.
    Reply(Reply, Option<u64>),
    /// With this status, and a body that is made while it is sent. A HEAD request gets no body.
    Stream(Status, Option<Box<dyn Task>>),
}

impl Compression<'_> {
    /// Compresses a reply, if it is to be. `file_bytes` is the length of the file that a 304 is about.
    pub(crate) fn apply(
        &self,
        mut reply: Reply,
        file_bytes: Option<u64>,
        fields: &mut Fields,
    ) -> Outgoing {
        let is_same = reply.status == Status::NOT_MODIFIED;
        let length = if is_same { file_bytes } else { Some(reply.len()) };
        let Some((coding, level)) = self.choose(reply.status, length, fields) else {
            return Outgoing::Reply(reply, None);
        };
        if is_same {
            // The tag is that of the full answer.
            weaken_tag(fields);
            return Outgoing::Reply(reply, None);
        }
        let length = reply.len();
        let is_quick = compress::is_quick(coding, level);
        if !reply.body.is_empty() {
            return Outgoing::Reply(reply, None);
        }
        let Some(piece) = reply.piece.take() else { return Outgoing::Reply(reply, None) };
        let whole = match (&piece, piece.in_memory()) {
            (Piece::File(file, range), Some(content))
                if is_quick && *range == (0..file.size()) && !content.is_empty() =>
            {
                Some(file.compressed(coding, level).map(Piece::Shared))
            }
            (_, Some(bytes)) if is_quick && length <= compress::WHOLE_BYTES_MAX => {
                Some(compress::whole(coding, level, bytes).map(Piece::Bytes))
            }
            _ => None,
        };
        if let Some(made) = whole {
            let plain = made.is_some().then_some(length);
            if made.is_some() {
                mark_compressed(fields, coding);
            }
            reply.piece = Some(made.unwrap_or(piece));
            return Outgoing::Reply(reply, plain);
        }
        // The response to a HEAD request has no body, so it needs no task.
        let is_head = self.request.head.method() == Method::Head;
        let task = if is_head { None } else { stream(&piece, coding, level) };
        if !is_head && task.is_none() {
            reply.piece = Some(piece);
            return Outgoing::Reply(reply, None);
        }
        mark_compressed(fields, coding);
        Outgoing::Stream(reply.status, task)
    }

    /// The same for the answer of a task that has given its head: whether its body is compressed, and so of
    /// no known length.
    pub(crate) fn apply_to_task(
        &self,
        status: Status,
        length: Option<u64>,
        task: &mut Option<Box<dyn Task>>,
        fields: &mut Fields,
    ) -> bool {
        let Some((coding, level)) = self.choose(status, length, fields) else { return false };
        if status.is_bodyless() {
            return false;
        }
        if self.request.head.method() != Method::Head {
            let Some(compress_reply) = Compressor::take(coding, level, length, 0) else {
                return false;
            };
            let Some(inner) = task.take() else { return false };
            *task = Some(Box::new(CompressTask::new(Source::Task(inner), compress_reply)));
        }
        mark_compressed(fields, coding);
        true
    }

    /// What the answer gets; says in its head what it depends on.
    fn choose(
        &self,
        status: Status,
        length: Option<u64>,
        fields: &mut Fields,
    ) -> Option<(Coding, u8)> {
        let settings = &self.table.location(self.route.location).settings;
        let compression = &*settings.compression;
        let mut depends = self.route.has_neighbours;
        let mut coding = None;
        if compression.is_on() && self.route.coding.is_none() {
            let media_type = media_type(self.table, self.route).as_bytes();
            let answer = Answer { status, length, fields, media_type };
            let choice =
                choose(compression, self.request.head, &answer, self.request.wall.unix_secs);
            depends |= choice.depends;
            coding = choice.coding;
        }
        if depends && compression.vary {
            mark_varying(fields);
        }
        coding
    }
}

/// A task that compresses a piece; `None` while too many others do, or memory is short.
fn stream(piece: &Piece, coding: Coding, level: u8) -> Option<Box<dyn Task>> {
    let take = |held| Compressor::take(coding, level, Some(piece.len()), held);
    let (compressor, source) = match piece {
        Piece::File(file, range) if file.content().is_none() => {
            (take(0)?, Source::File(file.shared_descriptor()?, range.clone()))
        }
        piece => {
            let bytes = piece.in_memory()?;
            (take(bytes.len())?, Source::Bytes(bytes.to_vec(), 0))
        }
    };
    Some(Box::new(CompressTask::new(source, compressor)))
}
