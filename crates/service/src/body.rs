//! A request's body that comes while the service works. The protocol feeds it, as much as there is room for; what the
//! service takes makes room again, which is the client's credit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::memory::Held;

/// So much may wait for the service.
pub const BODY_ROOM_BYTES: usize = 64 * 1024;

/// The body of a request, piece by piece.
#[derive(Debug)]
pub struct BodyStream {
    shared: Rc<RefCell<Shared>>,
}

/// The protocol's end of it. If it is dropped before the end of the body, the service sees that.
#[derive(Debug)]
pub struct BodyFeed {
    shared: Rc<RefCell<Shared>>,
}

/// The rest of the body will not come: the client has gone, or the request was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLost;

#[derive(Debug, Default)]
struct Shared {
    pieces: VecDeque<(Vec<u8>, Option<Held>)>,
    bytes: usize,
    /// The lengths of whole pieces that the service has taken, where the protocol wants to know.
    taken: Option<Vec<usize>>,
    end: Option<Result<(), BodyLost>>,
    /// The service wants no more of it.
    is_unwanted: bool,
    reader: Option<Waker>,
    feeder: Option<Waker>,
}

/// Both ends of a body.
pub fn body_stream() -> (BodyFeed, BodyStream) {
    let shared = Rc::<RefCell<Shared>>::default();
    (BodyFeed { shared: Rc::clone(&shared) }, BodyStream { shared })
}

impl BodyFeed {
    /// Offers bytes; returns how many were taken. If that is not all, the task is woken when there is room.
    pub fn offer(&self, cx: &Context<'_>, bytes: &[u8]) -> usize {
        let mut shared = self.shared.borrow_mut();
        if shared.is_unwanted {
            return bytes.len();
        }
        let count = bytes.len().min(BODY_ROOM_BYTES.saturating_sub(shared.bytes));
        if count < bytes.len() {
            shared.feeder = Some(cx.waker().clone());
        }
        if count > 0 {
            shared.pieces.push_back((bytes[..count].to_vec(), None));
            shared.bytes += count;
        }
        let reader = shared.reader.take().filter(|_| count > 0);
        drop(shared);
        wake(reader);
        count
    }

    /// Adds a piece as it is. The protocol's own credit bounds how much may wait; [`BodyFeed::taken`] says what was
    /// taken, and the task is woken when there is something to say.
    pub fn push(&self, task: Option<&Waker>, piece: Vec<u8>, held: Option<Held>) {
        let mut shared = self.shared.borrow_mut();
        shared.taken.get_or_insert_default();
        shared.feeder = task.cloned();
        if shared.is_unwanted {
            return;
        }
        shared.bytes += piece.len();
        shared.pieces.push_back((piece, held));
        let reader = shared.reader.take();
        drop(shared);
        wake(reader);
    }

    /// The lengths of the pushed pieces that the service has taken since this was last asked.
    pub fn taken(&self) -> Vec<usize> {
        self.shared.borrow_mut().taken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the service waits for more.
    pub fn is_awaited(&self) -> bool {
        let shared = self.shared.borrow();
        shared.reader.is_some() && shared.pieces.is_empty() && shared.end.is_none()
    }

    /// Whether the service wants no more of it.
    pub fn is_unwanted(&self) -> bool {
        self.shared.borrow().is_unwanted
    }

    /// The body is complete.
    pub fn end(&self) {
        self.finish(Ok(()));
    }

    fn finish(&self, end: Result<(), BodyLost>) {
        let mut shared = self.shared.borrow_mut();
        shared.end.get_or_insert(end);
        let reader = shared.reader.take();
        drop(shared);
        wake(reader);
    }
}

impl Drop for BodyFeed {
    fn drop(&mut self) {
        self.finish(Err(BodyLost));
    }
}

impl BodyStream {
    /// A body that is all there.
    pub fn whole(body: Vec<u8>) -> Self {
        let shared = Shared {
            bytes: body.len(),
            pieces: Some((body, None)).filter(|(body, _)| !body.is_empty()).into_iter().collect(),
            end: Some(Ok(())),
            ..Shared::default()
        };
        Self { shared: Rc::new(RefCell::new(shared)) }
    }

    /// The next piece; `None` when all of it was taken. Over native sessions a piece is what the client sent as one;
    /// over HTTP it is whatever has come.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, BodyLost>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for futures written by hand.
    pub fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Vec<u8>, BodyLost>>> {
        let mut shared = self.shared.borrow_mut();
        let Some((piece, _)) = shared.pieces.pop_front() else {
            return match shared.end {
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(lost)) => Poll::Ready(Some(Err(lost))),
                None => {
                    shared.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        shared.bytes -= piece.len();
        if let Some(taken) = &mut shared.taken {
            taken.push(piece.len());
        }
        let feeder = shared.feeder.take();
        drop(shared);
        wake(feeder);
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.is_unwanted = true;
        let pieces = std::mem::take(&mut shared.pieces);
        let feeder = shared.feeder.take();
        drop(shared);
        drop(pieces);
        wake(feeder);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl fmt::Display for BodyLost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the rest of the request's body did not come")
    }
}

impl std::error::Error for BodyLost {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_taken_makes_room_for_more() {
        // E4
        let count = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let (feed, mut stream) = body_stream();
        assert_eq!(stream.poll_next(&cx), Poll::Pending);
        let bytes = vec![7; BODY_ROOM_BYTES + 10];
        assert_eq!(feed.offer(&cx, &bytes), BODY_ROOM_BYTES);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the reader");
        assert_eq!(feed.offer(&cx, b"more"), 0);
        let piece = stream.poll_next(&cx);
        assert!(matches!(piece, Poll::Ready(Some(Ok(piece))) if piece.len() == BODY_ROOM_BYTES));
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "the feeder");
        assert_eq!(feed.offer(&cx, b"more"), 4);
        feed.end();
        assert_eq!(stream.poll_next(&cx), Poll::Ready(Some(Ok(b"more".to_vec()))));
        assert_eq!(stream.poll_next(&cx), Poll::Ready(None));
    }

    #[test]
    fn pieces_that_are_pushed_stay_as_they_are_and_what_is_taken_is_told() {
        // E4
        let count = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(Waker::noop());
        let (feed, mut stream) = body_stream();
        assert_eq!(stream.poll_next(&cx), Poll::Pending);
        assert!(feed.is_awaited());
        for piece in [&b"one"[..], b"", b"three"] {
            feed.push(Some(&waker), piece.to_vec(), None);
        }
        assert!(!feed.is_awaited() && feed.taken().is_empty());
        assert_eq!(stream.poll_next(&cx), Poll::Ready(Some(Ok(b"one".to_vec()))));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(stream.poll_next(&cx), Poll::Ready(Some(Ok(Vec::new()))));
        assert_eq!(feed.taken(), [3, 0]);
        assert!(feed.taken().is_empty());
        drop(stream);
        assert!(feed.is_unwanted());
    }

    #[test]
    fn a_body_that_is_cut_does_not_look_complete() {
        // L12
        let cx = Context::from_waker(Waker::noop());
        let (feed, mut stream) = body_stream();
        assert_eq!(feed.offer(&cx, b"half"), 4);
        drop(feed);
        assert_eq!(stream.poll_next(&cx), Poll::Ready(Some(Ok(b"half".to_vec()))));
        assert_eq!(stream.poll_next(&cx), Poll::Ready(Some(Err(BodyLost))));
    }

    #[test]
    fn a_body_that_nobody_wants_is_thrown_away() {
        let cx = Context::from_waker(Waker::noop());
        let (feed, stream) = body_stream();
        drop(stream);
        assert_eq!(feed.offer(&cx, &vec![0; 2 * BODY_ROOM_BYTES]), 2 * BODY_ROOM_BYTES);
        let mut whole = BodyStream::whole(b"all".to_vec());
        assert_eq!(whole.poll_next(&cx), Poll::Ready(Some(Ok(b"all".to_vec()))));
        assert_eq!(whole.poll_next(&cx), Poll::Ready(None));
    }
}
