//! Work that takes its time: a program, an upload. The connection polls its task between reading and
//! writing, so there is no channel, no second task and no lock between the two, and what one cannot
//! take holds the other back.

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
pub trait Task: std::fmt::Debug {
    /// What works here, for logs and the live view.
    fn name(&self) -> &'static str;

    /// Whether a service works here, which may compute for as long as it likes.
    fn is_service(&self) -> bool {
        false
    }

    /// Takes bytes of the request body; says how many. Where that is not all, the task wakes the
    /// connection when it can take more.
    /// A task that wants none throws all of them away.
    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        let _ = (cx, now);
        bytes.len()
    }

    /// How bytes of the request body may come without being offered.
    fn body_sink(&mut self, _cx: &mut Context<'_>) -> BodySink<'_> {
        BodySink::Ordinary
    }

    /// So many bytes have come in this way.
    fn direct_bytes_done(&mut self, _bytes: u64) {}

    /// The request body is complete.
    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        let _ = (cx, now);
    }

    /// Whether it is of no use without the client, also when its answer has begun: a program, an upstream (C6).
    fn stops_with_client(&self) -> bool {
        false
    }

    /// Goes on as far as it can without waiting.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress>;

    /// Of the body whose head has just been given only this part is wanted. Whether the task gives no more than that.
    fn narrow(&mut self, part: &Range<u64>) -> bool {
        let _ = part;
        false
    }

    /// Whether the client does not take what was made: then silence is not the task's fault.
    fn hold(&mut self, is_held: bool, now: Moment) {
        let _ = (is_held, now);
    }

    /// The client does not take what was made: a task that keeps it for later goes on with its source meanwhile.
    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        let _ = (cx, now);
    }

    /// Its own deadline (T9: while it works, this one decides).
    fn next_deadline(&self) -> Option<Deadline> {
        None
    }

    /// How long the body was before it was compressed; `None` where it is not.
    fn plain_bytes(&self) -> Option<u64> {
        None
    }

    /// Which servers were asked so far, where it asks any.
    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        let _ = facts;
    }

    /// The server that is asked at present, where one is.
    fn upstream_view(&self, _now: Moment) -> Option<UpstreamView> {
        None
    }

    /// The requests within this one that run at present.
    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment) {
        let _ = (views, now);
    }

    /// What it has found out for the decision that is made again; called once, after [`Progress::Again`].
    fn conclude(&mut self, route_state: &mut RouteState) {
        let _ = route_state;
    }

    /// The request's body, where it has gathered it.
    fn describe_body(&self, facts: &mut BodyFacts) {
        let _ = facts;
    }

    /// It has failed, or something else answers: gives back the request's body, which is not to be missing there.
    fn return_body(&mut self) -> ReturnedBody {
        ReturnedBody::Lost
    }

    /// The request is cancelled (L31). It still gives its one answer by `poll`.
    fn cancel(&mut self, cause: Cause, now: Moment);
}
