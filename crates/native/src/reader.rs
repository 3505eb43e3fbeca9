//! Takes a stream of frames apart. Control messages are looked at when they are complete; bulk is handed on
//! as it comes, so that nothing is held here and nothing is allocated for a length that a peer claims.

use std::ops::Range;
use std::time::Duration;

use sekisho_lifecycle::Moment;

use crate::frame::{Form, HEAD_BYTES, Head};
use crate::policy::PROGRESS_BYTES;
use crate::violation::Violation;

/// Where in a stream of frames we are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    /// The frame that has begun, and how much of its payload is missing.
    inside: Option<(Head, u32)>,
    /// By when it must go on.
    late_at: Option<Moment>,
    /// What came since that was said.
    progress: u32,
}

/// The result of a look at the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// More is needed.
    Nothing,
    /// A part of a bulk payload; more of it follows.
    Piece(Head, Range<usize>),
    /// The frame is complete; this is its payload, or the last part of it.
    Whole(Head, Range<usize>),
}

impl Reader {
    /// Takes the next part from the front of `input`, and says how many bytes that took. `check` decides on
    /// each head before anything is done about it.
    pub fn next(
        &mut self,
        input: &[u8],
        now: Moment,
        timeout: Option<Duration>,
        check: impl FnOnce(Head) -> Result<(), Violation>,
    ) -> Result<(usize, Part), Violation> {
        let (start, head, left) = match self.inside {
            Some((head, left)) => (0, head, left),
            None => match Head::read(input)? {
                None => {
                    if !input.is_empty() {
                        self.begin(now, timeout);
                    }
                    return Ok((0, Part::Nothing));
                }
                Some(head) => {
                    check(head)?;
                    (HEAD_BYTES, head, head.length)
                }
            },
        };
        let there = input.len() - start;
        if there >= left as usize {
            let end = start + left as usize;
            *self = Self::default();
            return Ok((end, Part::Whole(head, start..end)));
        }
        self.begin(now, timeout);
        if head.kind.form() != Form::Bulk {
            self.inside = Some((head, left));
            return Ok((start, Part::Nothing));
        }
        let there = there as u32;
        self.inside = Some((head, left - there));
        self.progress = self.progress.saturating_add(there);
        if self.progress >= PROGRESS_BYTES {
            self.progress = 0;
            self.late_at = timeout.map(|timeout| now + timeout);
        }
        let end = input.len();
        if there == 0 {
            return Ok((end, Part::Nothing));
        }
        Ok((end, Part::Piece(head, start..end)))
    }

    /// Nothing is taken for a while: the peer is not late.
    pub fn hold(&mut self) {
        self.late_at = None;
    }

    /// By when the frame that has begun must go on.
    pub const fn late_at(&self) -> Option<Moment> {
        self.late_at
    }

    /// Whether a frame has begun and not ended.
    pub const fn is_inside(&self) -> bool {
        self.inside.is_some() || self.late_at.is_some()
    }

    fn begin(&mut self, now: Moment, timeout: Option<Duration>) {
        if self.late_at.is_none() {
            self.late_at = timeout.map(|timeout| now + timeout);
        }
    }
}
