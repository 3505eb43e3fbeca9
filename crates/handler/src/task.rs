//! Work that takes its time: a program, an upload. The connection polls its task between reading and
//! writing, so there is no channel, no second task and no lock between the two, and what one cannot
//! take holds the other back.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::RouteState;
use sekisho_route::body_facts::BodyFacts;
use sekisho_route::upstream_facts::UpstreamFacts;

use crate::request_body::Gathered;

/// What a task has come to.
#[derive(Debug)]
pub enum Progress {
    /// The head of the response: its fields have been added to [`Outbox::fields`]. The length of the
    /// body, where it is known.
    Head(Status, Option<u64>),
    /// An answer before the answer (1xx); its fields are in [`Outbox::fields`].
    Informational(Status),
    /// Another protocol from here on (101), which is this one; fields are in [`Outbox::fields`]. Bytes in either
    /// direction are a body without an end.
    Upgrade(Vec<u8>),
    /// Bytes of the body have been appended to [`Outbox::body`].
    Body,
    /// The response is complete.
    Done,
    /// No head has been given, and none will be: answer with this status. Fields that belong to it
    /// (`Retry-After`) have been added to [`Outbox::fields`].
    Fail(Status),
    /// A head was given and the rest cannot come: the client must see that (C5).
    Break,
    /// Answer as if this had been asked for (a local `Location`, C9).
    Redirect(Vec<u8>),
    /// The same by `X-Accel-Redirect`, which may name an `internal` location.
    HandOver(Vec<u8>),
    /// What the decision waited for is over: it is made again. Nothing of the request's body was taken.
    Again,
}

/// Where a task puts what it makes.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Fields of the response; never those of framing.
    pub fields: Fields,
    /// How fast the body may leave, in place of `limit_rate` (`X-Accel-Limit-Rate`); 0 is no limit.
    pub limit_rate: Option<u64>,
    /// The charset to give the body in, in place of `charset` (`X-Accel-Charset`).
    pub charset: Option<Vec<u8>>,
    /// Set with a head: the answer is one that a cache has or gets. Its server has seen no conditions, so those of
    /// the client are judged where it is sent.
    pub is_kept: bool,
    /// Body bytes. Emptied by the connection after each progress.
    pub body: Vec<u8>,
    /// Fields that follow the body: empty ones with the head if some may follow, and all of them with the end.
    pub trailers: Option<Fields>,
}

/// The upstream server that works on a request at present, for the live view.
#[derive(Clone, Debug)]
pub struct UpstreamView {
    /// Its address; the name of the group while names are looked up.
    pub server: Arc<str>,
    /// The how many-th try it is, from 1; 0 before the first.
    pub attempt: usize,
    /// How long this try has taken so far.
    pub age: Duration,
    /// Until when something must happen.
    pub deadline: Option<Deadline>,
}

/// A request within a request, as `ctl` shows it.
#[derive(Clone, Debug)]
pub struct SubrequestView {
    /// What it asks for.
    pub path: String,
    /// Who works on it.
    pub handler: &'static str,
    /// How long it has run.
    pub age: Duration,
    /// Its status, once its answer has begun.
    pub status: Option<u16>,
    /// In how many others it stands, from 1.
    pub depth: u8,
}

/// What a task that has failed gives back of the request's body, so that another one can answer.
#[derive(Debug)]
pub enum ReturnedBody {
    /// All of it: no more comes.
    Whole(Gathered),
    /// What has been taken of it; the rest comes as before.
    Begun(Vec<u8>),
    /// Something of it is gone.
    Lost,
}

/// How body bytes get from the socket to where they belong.
#[derive(Debug)]
pub enum BodySink<'a> {
    /// They are offered; see [`Task::take`].
    Ordinary,
    /// They are read into this memory. While it is empty, what has come is being written, and the rest has to
    /// wait: the task wakes the connection when there is room.
    Memory(&'a mut [u8]),
}

/// Lets all others have their turn, and the sockets be looked at, before the task is polled again. Waking it
/// at once would not: a task that wakes itself is polled many times before the next look at the sockets.
pub fn rest<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}

/// A handler at work on one request. Dropping it cancels it: whatever it holds (a process, a temporary file)
/// is released in good order.
///
/// No method of its parts has a default. A task that has no use for a method says so by [`without!`](crate::without),
/// a task around another one passes it on by [`forward!`](crate::forward): a forgotten one does not compile.
pub trait Task: Work + BodyIn + Describe + fmt::Debug {}

impl<T: Work + BodyIn + Describe + fmt::Debug> Task for T {}

/// The work on the response.
pub trait Work {
    /// Goes on as far as it can without waiting.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress>;

    /// The request is cancelled (L31). It still gives its one answer by `poll`.
    fn cancel(&mut self, cause: Cause, now: Moment);

    /// Its own deadline (T9: while it works, this one decides).
    fn next_deadline(&self) -> Option<Deadline>;

    /// Whether the client does not take what was made: then silence is not the task's fault.
    fn hold(&mut self, is_held: bool, now: Moment);

    /// The client does not take what was made: a task that keeps it for later goes on with its source meanwhile.
    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment);

    /// Of the body whose head has just been given only this part is wanted. Whether the task gives no more than that.
    fn narrow(&mut self, part: &Range<u64>) -> bool;

    /// Whether it is of no use without the client, also when its answer has begun: a program, an upstream (C6).
    fn stops_with_client(&self) -> bool;

    /// Whether a service works here, which may compute for as long as it likes.
    fn is_service(&self) -> bool;

    /// Notes the result for the decision that is made again; called once, after [`Progress::Again`].
    fn conclude(&mut self, route_state: &mut RouteState);
}

/// The request body on its way to the task.
pub trait BodyIn {
    /// Takes bytes of the request body; says how many. Where that is not all, the task wakes the
    /// connection when it can take more.
    /// A task that wants none throws all of them away.
    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize;

    /// How bytes of the request body may come without being offered.
    fn body_sink(&mut self, cx: &mut Context<'_>) -> BodySink<'_>;

    /// Number of bytes that were read into [`BodySink::Memory`].
    fn direct_bytes_done(&mut self, bytes: u64);

    /// The request body is complete.
    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment);

    /// It has failed, or something else answers: gives back the request's body, which is not to be missing there.
    fn return_body(&mut self) -> ReturnedBody;
}

/// Facts about a task for logs, variables and the live view.
pub trait Describe {
    /// Name of the handler.
    fn name(&self) -> &'static str;

    /// Length of the body before it was compressed; `None` where it is not.
    fn plain_bytes(&self) -> Option<u64>;

    /// The server that is asked at present, where one is.
    fn upstream_view(&self, now: Moment) -> Option<UpstreamView>;

    /// Servers that were asked so far.
    fn describe_upstream(&self, facts: &mut UpstreamFacts);

    /// The request's body, where the task has gathered it.
    fn describe_body(&self, facts: &mut BodyFacts);

    /// The requests within this one that run at present.
    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment);
}

/// A task around another one.
pub trait Wrapper {
    /// The task within.
    type Inner: Task + ?Sized;

    /// The task within, where there is one now.
    fn inner(&self) -> Option<&Self::Inner>;

    /// The task within, where there is one now.
    fn inner_mut(&mut self) -> Option<&mut Self::Inner>;
}

/// Methods of a task that are those of the task within it ([`Wrapper`]). While there is none, they do what
/// [`without!`](crate::without) says.
#[macro_export]
macro_rules! forward {
    ($($method:ident),+ $(,)?) => { $($crate::task_method!(forward $method);)+ };
}

/// Methods that a task has no use for: it discards a body, has no deadline, no server and nothing to describe.
#[macro_export]
macro_rules! without {
    ($($method:ident),+ $(,)?) => { $($crate::task_method!(without $method);)+ };
}

/// Every method that can be forwarded or left out, with its neutral value.
#[doc(hidden)]
#[macro_export]
macro_rules! task_method {
    ($way:ident cancel) => { $crate::task_method!(@mut $way cancel(cause: $crate::task::types::Cause, now: $crate::task::types::Moment) {}); };
    ($way:ident next_deadline) => {
        $crate::task_method!(@ref $way next_deadline() -> Option<$crate::task::types::Deadline> { None });
    };
    ($way:ident hold) => { $crate::task_method!(@mut $way hold(is_held: bool, now: $crate::task::types::Moment) {}); };
    ($way:ident absorb) => {
        $crate::task_method!(@mut $way absorb(cx: &mut $crate::task::types::Context<'_>, now: $crate::task::types::Moment) {});
    };
    ($way:ident narrow) => {
        $crate::task_method!(@mut $way narrow(part: &std::ops::Range<u64>) -> bool { false });
    };
    ($way:ident stops_with_client) => {
        $crate::task_method!(@ref $way stops_with_client() -> bool { false });
    };
    ($way:ident is_service) => { $crate::task_method!(@ref $way is_service() -> bool { false }); };
    ($way:ident conclude) => {
        $crate::task_method!(@mut $way conclude(route_state: &mut $crate::task::types::RouteState) {});
    };
    ($way:ident take) => {
        $crate::task_method!(
            @mut $way take(cx: &mut $crate::task::types::Context<'_>, bytes: &[u8], now: $crate::task::types::Moment) -> usize { bytes.len() }
        );
    };
    ($way:ident body_sink) => {
        $crate::task_method!(
            @mut $way body_sink(cx: &mut $crate::task::types::Context<'_>) -> $crate::task::BodySink<'_> {
                $crate::task::BodySink::Ordinary
            }
        );
    };
    ($way:ident direct_bytes_done) => {
        $crate::task_method!(@mut $way direct_bytes_done(bytes: u64) {});
    };
    ($way:ident end_body) => {
        $crate::task_method!(@mut $way end_body(cx: &mut $crate::task::types::Context<'_>, now: $crate::task::types::Moment) {});
    };
    ($way:ident return_body) => {
        $crate::task_method!(
            @mut $way return_body() -> $crate::task::ReturnedBody { $crate::task::ReturnedBody::Lost }
        );
    };
    ($way:ident plain_bytes) => {
        $crate::task_method!(@ref $way plain_bytes() -> Option<u64> { None });
    };
    ($way:ident upstream_view) => {
        $crate::task_method!(
            @ref $way upstream_view(now: $crate::task::types::Moment) -> Option<$crate::task::UpstreamView> { None }
        );
    };
    ($way:ident describe_upstream) => {
        $crate::task_method!(@ref $way describe_upstream(facts: &mut $crate::task::types::UpstreamFacts) {});
    };
    ($way:ident describe_body) => {
        $crate::task_method!(@ref $way describe_body(facts: &mut $crate::task::types::BodyFacts) {});
    };
    ($way:ident describe_subrequests) => {
        $crate::task_method!(
            @ref $way describe_subrequests(views: &mut Vec<$crate::task::types::SubrequestView>, now: $crate::task::types::Moment) {}
        );
    };
    (@ref forward $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? { $($none:expr)? }) => {
        fn $name(&self, $($arg: $type),*) $(-> $out)? {
            match $crate::task::Wrapper::inner(self) {
                Some(inner) => inner.$name($($arg),*),
                None => ($($none)?),
            }
        }
    };
    (@mut forward $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? { $($none:expr)? }) => {
        fn $name(&mut self, $($arg: $type),*) $(-> $out)? {
            match $crate::task::Wrapper::inner_mut(self) {
                Some(inner) => inner.$name($($arg),*),
                None => ($($none)?),
            }
        }
    };
    (@ref without $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? { $($none:expr)? }) => {
        fn $name(&self, $($arg: $type),*) $(-> $out)? {
            $(let _ = $arg;)*
            $($none)?
        }
    };
    (@mut without $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? { $($none:expr)? }) => {
        fn $name(&mut self, $($arg: $type),*) $(-> $out)? {
            $(let _ = $arg;)*
            $($none)?
        }
    };
}

/// Names that the macros use in other modules.
#[doc(hidden)]
pub mod types {
    pub use std::task::Context;

    pub use sekisho_lifecycle::cancel::Cause;
    pub use sekisho_lifecycle::{Deadline, Moment};
    pub use sekisho_route::RouteState;
    pub use sekisho_route::body_facts::BodyFacts;
    pub use sekisho_route::upstream_facts::UpstreamFacts;

    pub use super::SubrequestView;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use sekisho_http::Coding;

    use super::*;
    use crate::compress::{CompressTask, Compressor, Source};
    use crate::filter::{FilterTask, Part};

    /// A service whose response is buffered.
    #[derive(Debug)]
    struct Stub(Rc<Cell<u32>>);

    impl Work for Stub {
        without!(cancel, next_deadline, hold, narrow, stops_with_client, conclude);

        fn poll(&mut self, _: &mut Context<'_>, _: &mut Outbox, _: Moment) -> Poll<Progress> {
            Poll::Pending
        }

        fn absorb(&mut self, _: &mut Context<'_>, _: Moment) {
            self.0.set(self.0.get() + 1);
        }

        fn is_service(&self) -> bool {
            true
        }
    }

    impl BodyIn for Stub {
        without!(take, body_sink, direct_bytes_done, end_body, return_body);
    }

    impl Describe for Stub {
        without!(
            plain_bytes,
            upstream_view,
            describe_upstream,
            describe_body,
            describe_subrequests
        );

        fn name(&self) -> &'static str {
            "stub"
        }
    }

    /// E4: a filtered or compressed service is subject to the turn limit, and its source is read ahead.
    #[test]
    fn wrappers_are_services_and_absorb_as_their_source() {
        let absorbed = Rc::new(Cell::new(0));
        let stub = || Box::new(Stub(Rc::clone(&absorbed)));
        let compressor = Compressor::take(Coding::Gzip, 1, None, 0).expect("memory");
        let wrappers: [Box<dyn Task>; 2] = [
            Box::new(FilterTask::new(stub(), None, Box::new(Part::new(0..1)))),
            Box::new(CompressTask::new(Source::Task(stub()), compressor)),
        ];
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (number, mut wrapper) in wrappers.into_iter().enumerate() {
            assert_eq!((wrapper.name(), wrapper.is_service()), ("stub", true));
            wrapper.absorb(&mut cx, Moment::ZERO);
            assert_eq!(absorbed.get() as usize, number + 1);
        }
    }
}
