//! A process that runs: feeds the machine with what happens to it and carries out what it orders.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal as OsSignal, WaitId, WaitIdOptions};
use sekisho_config::Level;
use sekisho_gateway::cgi::{Exit, Fact, Orders, Program, Signal};
use sekisho_lifecycle::Moment;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};

use super::Surroundings;
use super::seats::Ticket;
use super::spawn::Pipes;

/// What one read of a program's output takes at the most.
const OUTPUT_BYTES: usize = 16 * 1024;
/// A line of stderr is cut after so many bytes.
const STDERR_LINE_MAX: usize = 1024;
/// A run may write so many lines of stderr into the log; the rest is counted.
const STDERR_LINES_MAX: u32 = 100;

/// The runs of a worker that go on by themselves, after their answer or without a client.
#[derive(Debug, Default)]
pub struct Runs {
    alone: Cell<usize>,
    is_forced: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Runs {
    /// How many there are.
    pub fn alone(&self) -> usize {
        self.alone.get()
    }

    /// Ends them all at once: the worker wants to end.
    pub fn force(&self) {
        self.is_forced.set(true);
        for waker in self.wakers.borrow_mut().drain(..) {
            waker.wake();
        }
    }
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Run {
    program: Program,
    process: std::process::Child,
    group: Option<Pid>,
    /// Readable when the process has ended.
    ended: Option<Receiver>,
    has_exited: bool,
    stdin: Option<Sender>,
    /// The program has not taken what it was given.
    is_input_full: bool,
    stdout: Option<Receiver>,
    stderr: Option<Stderr>,
    output: Vec<u8>,
    around: Rc<dyn Surroundings>,
    /// Its place; given back when it is over.
    _ticket: Ticket,
}

#[derive(Debug)]
struct Stderr {
    pipe: Receiver,
    line: Vec<u8>,
    lines: u32,
}

impl Run {
    pub(super) fn new(
        program: Program,
        pipes: Pipes,
        ticket: Ticket,
        around: Rc<dyn Surroundings>,
    ) -> Self {
        let group = i32::try_from(pipes.child.id()).ok().and_then(Pid::from_raw);
        let ended = group
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
            // The runtime's pipe is used only to wait: it is the safe way to wait for any descriptor.
            .and_then(|fd| Receiver::from_owned_fd_unchecked(fd).ok());
        let stderr = pipes.stderr.map(|pipe| Stderr { pipe, line: Vec::new(), lines: 0 });
        Self {
            program,
            process: pipes.child,
            group,
            ended,
            has_exited: false,
            stdin: pipes.stdin,
            is_input_full: false,
            stdout: Some(pipes.stdout),
            stderr,
            output: Vec::new(),
            around,
            _ticket: ticket,
        }
    }

    /// What the last step read.
    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Whether the program waits for its input, as far as we know: it wants some, and has taken what
    /// there was.
    pub(super) fn has_taken_all(&self) -> bool {
        self.stdin.is_some() && !self.is_input_full
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.program.next_deadline()
    }

    pub(super) fn await_client(&mut self, is_awaited: bool, now: Moment) {
        self.program.after(Fact::ClientAwaited(is_awaited), now);
    }

    /// Tells the machine a fact that is not about output, and carries out what concerns the process.
    pub(super) fn tell(&mut self, fact: Fact<'_>, now: Moment) -> Orders {
        let orders = self.program.after(fact, now);
        self.carry_out(orders.signal);
        orders
    }

    /// Gives the program bytes of the body. One that closes its input or is gone takes all, to nowhere:
    /// that is normal (C7).
    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        let mut taken = 0;
        self.is_input_full = false;
        while taken < bytes.len() {
            let Some(stdin) = &mut self.stdin else { return bytes.len() };
            match Pin::new(stdin).poll_write(cx, &bytes[taken..]) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    taken += count;
                    self.program.after(Fact::InputTaken, now);
                }
                Poll::Ready(_) => self.stdin = None,
                Poll::Pending => {
                    self.is_input_full = true;
                    break;
                }
            }
        }
        taken
    }

    pub(super) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// One fact, if there is one, and the orders for it, with the length of the output that they are
    /// about. `None` when nothing can be done now.
    pub(super) fn step(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<(Orders, usize)> {
        if self.program.is_over() {
            return None;
        }
        self.read_stderr(cx);
        if let Some(step) = self.read_output(cx, now) {
            return Some(step);
        }
        if let Some(exit) = self.poll_exit(cx) {
            let orders = self.tell(Fact::Exited(exit), now);
            return Some((orders, 0));
        }
        if self.program.next_deadline().is_some_and(|at| at.is_due(now)) {
            let orders = self.program.expire(now);
            self.carry_out(orders.signal);
            return Some((orders, 0));
        }
        None
    }

    fn read_output(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<(Orders, usize)> {
        let stdout = self.stdout.as_mut()?;
        self.output.resize(OUTPUT_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.output);
        let read = match Pin::new(stdout).poll_read(cx, &mut buffer) {
            Poll::Pending => return None,
            Poll::Ready(Ok(())) => buffer.filled().len(),
            Poll::Ready(Err(_)) => 0,
        };
        if read == 0 {
            self.stdout = None;
            return Some((self.tell(Fact::OutputEnded, now), 0));
        }
        let orders = self.program.after(Fact::Output(&self.output[..read]), now);
        self.carry_out(orders.signal);
        Some((orders, read))
    }

    /// How the process ended, told once. It is not reaped: its number must stay its own until its group
    /// has been swept.
    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Option<Exit> {
        if self.has_exited {
            return None;
        }
        let exit = match &self.ended {
            Some(ended) => {
                let Poll::Ready(Ok(())) = ended.poll_read_ready(cx) else { return None };
                exit_of(WaitId::PidFd(ended.as_fd()))?
            }
            // No descriptor was left to watch it by: asked whenever something else happens.
            None => exit_of(WaitId::Pid(self.group?))?,
        };
        self.has_exited = true;
        self.ended = None;
        Some(exit)
    }

    fn carry_out(&mut self, signal: Option<Signal>) {
        let Some(group) = self.group else { return };
        let signal_group = |signal: OsSignal| {
            // A group that is gone has what it was to get.
            let _ = rustix::process::kill_process_group(group, signal);
        };
        match signal {
            None => {}
            Some(Signal::Terminate) => signal_group(OsSignal::TERM),
            Some(Signal::Kill) => signal_group(OsSignal::KILL),
            Some(Signal::Sweep) => {
                signal_group(OsSignal::KILL);
                let _ = self.process.try_wait();
                self.group = None;
                self.stdin = None;
                self.stdout = None;
                self.finish_stderr();
            }
        }
    }

    /// Goes on until the process has ended, without anyone to answer to.
    pub(super) fn go_on_alone(mut self: Box<Self>) {
        let around = Rc::clone(&self.around);
        self.tell(Fact::ClientLost, around.now());
        self.stdin = None;
        if self.program.is_over() {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is gone: what is left is ended here and now.
            return drop(self);
        }
        let runs = around.runs();
        runs.alone.set(runs.alone.get() + 1);
        tokio::task::spawn_local(async move {
            self.run_alone().await;
            drop(self);
            let runs = around.runs();
            runs.alone.set(runs.alone.get() - 1);
            around.ended_alone();
        });
    }

    async fn run_alone(&mut self) {
        let mut sleep = std::pin::pin!(tokio::time::sleep(std::time::Duration::ZERO));
        poll_fn(|cx| {
            loop {
                let now = self.around.now();
                if self.around.runs().is_forced.get() {
                    return Poll::Ready(());
                }
                while self.step(cx, now).is_some() {}
                if self.program.is_over() {
                    return Poll::Ready(());
                }
                self.around.runs().wakers.borrow_mut().push(cx.waker().clone());
                let Some(at) = self.program.next_deadline() else { return Poll::Pending };
                sleep.as_mut().reset(tokio::time::Instant::now() + at.since(now));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    fn read_stderr(&mut self, cx: &mut Context<'_>) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut bytes = [0; 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut stderr.pipe).poll_read(cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let filled = buffer.filled().len();
                    stderr.take(&bytes[..filled], &*self.around);
                }
                Poll::Ready(_) => break,
            }
        }
        self.finish_stderr();
    }

    /// The last words: what is still in the pipe, and a line without an end.
    fn finish_stderr(&mut self) {
        let Some(mut stderr) = self.stderr.take() else { return };
        let mut bytes = [0; 4096];
        // Bounded: a child that outlived the group may write for ever.
        for _ in 0..16 {
            match stderr.pipe.try_read(&mut bytes) {
                Ok(count) if count > 0 => stderr.take(&bytes[..count], &*self.around),
                _ => break,
            }
        }
        stderr.end_line(&*self.around);
        if stderr.lines > STDERR_LINES_MAX {
            let left_out = stderr.lines - STDERR_LINES_MAX;
            let message = format_args!("cgi stderr: {left_out} more lines were left out");
            self.around.report(Level::Error, message);
        }
    }
}

impl Stderr {
    fn take(&mut self, bytes: &[u8], around: &dyn Surroundings) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line(around);
            } else if self.line.len() < STDERR_LINE_MAX {
                self.line.push(byte);
            }
        }
    }

    fn end_line(&mut self, around: &dyn Surroundings) {
        if self.line.is_empty() {
            return;
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= STDERR_LINES_MAX {
            let line = String::from_utf8_lossy(&self.line);
            around.report(Level::Error, format_args!("cgi stderr: {line}"));
        }
        self.line.clear();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = rustix::process::kill_process_group(group, OsSignal::KILL);
            let _ = self.process.wait();
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
        // Nobody there to wait for: whoever reaped it has its status.
        Err(Errno::CHILD) => Some(Exit::Code(-1)),
        Ok(None) | Err(_) => None,
    }
}
