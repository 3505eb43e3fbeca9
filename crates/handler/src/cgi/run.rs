//! A process that runs: feeds the machine with what happens to it and carries out what it orders.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal as OsSignal, WaitId, WaitIdOptions, WaitOptions};
use sekisho_gateway::cgi::{Exit, Fact, Program, ProgramOrders, Signal};
use sekisho_lifecycle::Moment;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

use super::HandlerContext;
use super::orphans::{self, RunId};
use super::process_slots::{Starting, Ticket};
use super::spawn::{self, Pipes};
use super::stderr::Stderr;
use super::stdin::Stdin;

/// What the first read of a program's output takes; it grows while reads are full.
const OUTPUT_BYTES_FIRST: usize = 4 * 1024;
/// What one read of a program's output takes at the most, and what may still be read of it once a deadline
/// is due: what a pipe holds.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// A program that takes longer than this is watched for its exit and its stderr. Most are over before, and
/// the end of their output shows it.
const WATCH_AFTER: Duration = Duration::from_millis(10);
/// When to try again to watch a process, if no descriptor was left for it.
const WATCH_AGAIN: Duration = Duration::from_millis(100);

/// The runs of a worker that go on by themselves, after their answer or without a client.
#[derive(Debug, Default)]
pub struct Runs {
    alone: Cell<usize>,
    is_forced: Cell<bool>,
    forced: Notify,
}

impl Runs {
    /// How many there are.
    pub fn alone(&self) -> usize {
        self.alone.get()
    }

    /// Ends them all at once: the worker wants to end.
    pub fn force(&self) {
        self.is_forced.set(true);
        self.forced.notify_waiters();
    }
}

/// Work without a client that its worker waits for, as long as this is there.
#[derive(Debug)]
pub struct AloneGuard(Rc<dyn HandlerContext>);

impl AloneGuard {
    /// There is some.
    pub fn new(context: &Rc<dyn HandlerContext>) -> Self {
        context.runs().alone.update(|count| count + 1);
        Self(Rc::clone(context))
    }
}

impl Drop for AloneGuard {
    fn drop(&mut self) {
        self.0.runs().alone.update(|count| count - 1);
        self.0.ended_alone();
    }
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Run {
    program: Program,
    /// The process, whose number is also its group's; `None` once it is reaped.
    process: Option<Pid>,
    watch: Watch,
    has_exited: bool,
    stdin: Stdin,
    stdout: Option<Receiver>,
    /// The client does not take the output: it is not read.
    is_held: bool,
    /// How much was read since a deadline is due.
    overdue_bytes: usize,
    stderr: Option<Stderr>,
    output: Vec<u8>,
    context: Rc<dyn HandlerContext>,
    /// Whose orphans end with it.
    id: Option<RunId>,
    /// Its place; given back when it is over.
    ticket: Ticket,
}

/// How the end of a process is noticed.
#[derive(Debug)]
enum Watch {
    /// By the end of its output; from this moment on by a descriptor.
    From(Moment),
    /// This is readable when it has ended.
    By(Receiver),
}

impl Run {
    pub(super) fn new(
        program: Program,
        pipes: Pipes,
        id: Option<RunId>,
        (ticket, starting): (Ticket, Starting),
        context: Rc<dyn HandlerContext>,
        now: Moment,
    ) -> Self {
        starting.begin(pipes.process);
        Self {
            program,
            process: Some(pipes.process),
            watch: Watch::From(now + WATCH_AFTER),
            has_exited: false,
            stdin: Stdin::new(pipes.stdin, pipes.unwritten, pipes.input),
            stdout: Some(pipes.stdout),
            is_held: false,
            overdue_bytes: 0,
            stderr: pipes.stderr.map(|(pipe, level)| Stderr::new(pipe, level)),
            output: Vec::new(),
            context,
            id,
            ticket,
        }
    }

    /// What the last step read.
    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Whether the program waits for its input, as far as we know: it wants some, and has taken what
    /// there was.
    pub(super) fn has_taken_all(&self) -> bool {
        self.stdin.has_taken_all()
    }

    /// Whether the next deadline is for the program's silence.
    pub(super) fn awaits_output(&self) -> bool {
        self.program.awaits_output()
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let watch = match self.watch {
            Watch::From(at) if !self.has_exited && !self.program.is_over() => Some(at),
            _ => None,
        };
        [self.program.next_deadline(), watch].into_iter().flatten().min()
    }

    /// Whether the client takes the output.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) fn await_client(&mut self, is_awaited: bool, now: Moment) {
        self.program.after(Fact::ClientAwaited(is_awaited), now);
    }

    /// Tells the machine a fact that is not about output, and carries out what concerns the process.
    pub(super) fn tell(&mut self, fact: Fact<'_>, now: Moment) -> ProgramOrders {
        let orders = self.program.after(fact, now);
        self.carry_out(orders.signal);
        orders
    }

    /// Gives the program bytes of the body; says how many need not be offered again.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        let wrote = self.stdin.write(cx, bytes);
        if wrote.has_moved {
            self.program.after(Fact::InputTaken, now);
        }
        wrote.taken
    }

    /// No more of the body comes.
    pub(super) fn end_input(&mut self) {
        self.stdin.end();
    }

    /// One fact, if there is one, and the orders for it, with the length of the output that they are
    /// about. `None` when nothing can be done now.
    pub(super) fn step(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Option<(ProgramOrders, usize)> {
        if self.program.is_over() {
            return None;
        }
        if let Some(stderr) = &mut self.stderr {
            stderr.read(cx, &*self.context);
        }
        if self.stdin.write_rest(cx) {
            self.program.after(Fact::InputTaken, now);
        }
        let is_late = |program: &Program| program.next_deadline().is_some_and(|at| at.is_due(now));
        if is_late(&self.program) && self.program.awaits_output() && self.stdin.has_read_on() {
            // To read a body from its file is a sign of life, as to take it from a pipe is (T5).
            self.program.after(Fact::InputTaken, now);
        }
        let is_due = is_late(&self.program);
        // What has come in time wins over a deadline (T3); a program that never pauses does not.
        let is_read = if is_due { self.overdue_bytes < OUTPUT_BYTES_MAX } else { !self.is_held };
        if is_read && let Some((orders, count)) = self.read_output(cx, now) {
            self.overdue_bytes = if is_due { self.overdue_bytes + count } else { 0 };
            return Some((orders, count));
        }
        if let Some(exit) = self.poll_exit(cx, now) {
            return Some((self.tell(Fact::Exited(exit), now), 0));
        }
        if is_due {
            self.overdue_bytes = 0;
            let orders = self.program.expire(now);
            self.carry_out(orders.signal);
            return Some((orders, 0));
        }
        None
    }

    fn read_output(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<(ProgramOrders, usize)> {
        let stdout = self.stdout.as_mut()?;
        if self.output.is_empty() {
            self.output.resize(OUTPUT_BYTES_FIRST, 0);
        }
        let mut buffer = ReadBuf::new(&mut self.output);
        let read = loop {
            match Pin::new(&mut *stdout).poll_read(cx, &mut buffer) {
                Poll::Pending => return None,
                Poll::Ready(Ok(())) => break Ok(buffer.filled().len()),
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(error)) => break Err(error),
            }
        };
        let Some(read) = read.as_ref().ok().copied().filter(|read| *read > 0) else {
            self.stdout = None;
            let fact = if read.is_err() { Fact::OutputLost } else { Fact::OutputEnded };
            return Some((self.tell(fact, now), 0));
        };
        let orders = self.program.after(Fact::Output(&self.output[..read]), now);
        self.carry_out(orders.signal);
        if read == self.output.len() && read < OUTPUT_BYTES_MAX {
            self.output.resize(read * 2, 0);
        }
        Some((orders, read))
    }

    /// How the process ended, returned once. It is not reaped: its number must not be reused until its group
    /// has been killed.
    fn poll_exit(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<Exit> {
        if self.has_exited {
            return None;
        }
        if let Watch::From(at) = self.watch {
            if self.stdout.is_some() && !at.is_due(now) {
                return None;
            }
            if let Some(exit) = exit_of(WaitId::Pid(self.process?)) {
                self.has_exited = true;
                return Some(exit);
            }
            self.begin_to_watch(cx, now);
        }
        let Watch::By(ended) = &self.watch else { return None };
        let Poll::Ready(Ok(())) = ended.poll_read_ready(cx) else { return None };
        let exit = exit_of(WaitId::PidFd(ended.as_fd()))?;
        self.has_exited = true;
        Some(exit)
    }

    fn begin_to_watch(&mut self, cx: &mut Context<'_>, now: Moment) {
        let ended = self
            .process
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
            // The runtime's pipe is used only to wait: it is the safe way to wait for any descriptor.
            .and_then(|fd| Receiver::from_owned_fd_unchecked(fd).ok());
        self.watch = ended.map_or(Watch::From(now + WATCH_AGAIN), Watch::By);
        if let Some(stderr) = &mut self.stderr {
            stderr.watch();
            stderr.read(cx, &*self.context);
        }
    }

    fn carry_out(&mut self, signal: Option<Signal>) {
        let Some(group) = self.process else { return };
        let signal_group = |signal: OsSignal| {
            // A group that is gone need not be killed.
            let _ = rustix::process::kill_process_group(group, signal);
        };
        match signal {
            None => {}
            Some(Signal::Terminate) => signal_group(OsSignal::TERM),
            Some(Signal::Kill) => signal_group(OsSignal::KILL),
            Some(Signal::Sweep) => {
                signal_group(OsSignal::KILL);
                self.ticket.process_slots().end(group);
                let _ = rustix::process::waitpid(Some(group), WaitOptions::NOHANG);
                self.leave();
            }
        }
    }

    /// The process is reaped: releases everything, and looks for processes that it left behind.
    fn leave(&mut self) {
        self.process = None;
        self.stdin.close();
        self.stdout = None;
        if let Some(stderr) = self.stderr.take() {
            stderr.finish(&*self.context);
        }
        let process_slots = self.ticket.process_slots();
        if let Some(id) = self.id.take() {
            process_slots.orphans.end(id);
        }
        orphans::look(process_slots);
    }

    /// Goes on until the process has ended, without a client.
    pub(super) fn go_on_alone(mut self: Box<Self>) {
        let context = Rc::clone(&self.context);
        self.tell(Fact::ClientLost, context.now());
        self.stdin.close();
        self.is_held = false;
        if self.program.is_over() {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is gone: what is left is ended here and now.
            return drop(self);
        }
        let guard = AloneGuard::new(&context);
        tokio::task::spawn_local(async move {
            self.run_alone(context.runs()).await;
            drop((self, guard));
        });
    }

    async fn run_alone(&mut self, runs: &Runs) {
        let mut forced = std::pin::pin!(runs.forced.notified());
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            loop {
                let now = self.context.now();
                if forced.as_mut().poll(cx).is_ready() || runs.is_forced.get() {
                    return Poll::Ready(());
                }
                while self.step(cx, now).is_some() {}
                if self.program.is_over() {
                    return Poll::Ready(());
                }
                let Some(at) = self.next_deadline() else { return Poll::Pending };
                sleep.as_mut().reset(tokio::time::Instant::now() + at.since(now));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            // In this order: a shutdown of the whole server meanwhile must find the group in the list, or
            // killed.
            let _ = rustix::process::kill_process_group(process, OsSignal::KILL);
            self.ticket.process_slots().end(process);
            spawn::end(process);
            self.leave();
        }
    }
}

/// How a process ended, without reaping it.
fn exit_of(id: WaitId<'_>) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(id, options) {
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Code(-1),
        }),
        // There is no such child: it has been reaped elsewhere, and its status with it.
        Err(Errno::CHILD) => Some(Exit::Code(-1)),
        Ok(None) | Err(_) => None,
    }
}
