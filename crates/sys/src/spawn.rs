//! Starting a process without copying ours, as `posix_spawn` does it: the child runs in our memory, on a
//! stack of its own, while the calling thread waits, until it has become the new program. So the cost does
//! not grow with the server.
//!
//! What the standard library's way cannot do is done here: every descriptor but three is closed, also those
//! that our parent left to us without the close-on-exec flag, and the environment is handed over as it
//! is. No memory is taken in the child, no lock, nothing but calls to the kernel.

use std::cell::RefCell;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_char, c_int, c_void, sigset_t};

use crate::signals::INHERITED;

/// What the child needs is a few hundred bytes; the C library's own calls are shallow.
const STACK_BYTES: usize = 64 * 1024;
/// The first descriptor that a program does not get.
const FIRST_CLOSED: RawFd = 3;

/// What is started.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// The file.
    pub program: &'a CStr,
    /// Its arguments, its own name included.
    pub arguments: &'a [&'a CStr],
    /// `NAME=value`
    pub environment: &'a [&'a CStr],
    /// The folder it runs in.
    pub directory: &'a CStr,
    /// Standard input, output and error. None of them may be one of our own first three.
    pub descriptors: [BorrowedFd<'a>; 3],
    /// How much it may use.
    pub limits: Limits,
}

/// How much a program may use; a limit that is not set is inherited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes of address space.
    pub memory_bytes: Option<u64>,
    /// Seconds on a processor; one more, and it is killed.
    pub cpu_secs: Option<u64>,
    /// Bytes of each file that it writes.
    pub file_bytes: Option<u64>,
    /// Processes and threads of its user, all of them counted.
    pub processes: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
}

/// What is limited, as the C library calls it.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = c_int;

impl Limits {
    /// Each limit: what is limited, from where on a program is told, and from where on it is ended. It leaves
    /// no image of its memory on the disk, which may hold what its clients sent.
    fn rows(self) -> [(Resource, Option<(u64, u64)>); 6] {
        let both = |limit: Option<u64>| limit.map(|limit| (limit, limit));
        [
            (libc::RLIMIT_AS, both(self.memory_bytes)),
            (libc::RLIMIT_CPU, self.cpu_secs.map(|secs| (secs, secs.saturating_add(1)))),
            (libc::RLIMIT_FSIZE, both(self.file_bytes)),
            (libc::RLIMIT_NPROC, both(self.processes)),
            (libc::RLIMIT_NOFILE, both(self.descriptors)),
            (libc::RLIMIT_CORE, Some((0, 0))),
        ]
    }
}

/// What the child reads, made before it is there.
struct Plan {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    descriptors: [RawFd; 3],
    limits: Limits,
    /// What went wrong in the child; zero for nothing.
    error: AtomicI32,
}

thread_local! {
    /// The child's stack: the thread waits while it is in use.
    static STACK: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Starts a process in a session and a process group of its own; its number is both of theirs. It must be waited
/// for.
pub fn spawn(process: &Process<'_>) -> io::Result<i32> {
    let descriptors = process.descriptors.map(|fd| fd.as_raw_fd());
    if descriptors.iter().any(|fd| *fd < FIRST_CLOSED) {
        // One would be put over another.
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let arguments = pointers(process.arguments);
    let environment = pointers(process.environment);
    let plan = Plan {
        program: process.program.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        directory: process.directory.as_ptr(),
        descriptors,
        limits: process.limits,
        error: AtomicI32::new(0),
    };
    let pid = STACK.with_borrow_mut(|stack| {
        if stack.is_empty() {
            stack.resize(STACK_BYTES, MaybeUninit::uninit());
        }
        with_signals_blocked(|| start(&plan, stack))
    })?;
    match plan.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        error => {
            // It never became the program, so it is reaped here and not reported.
            // SAFETY: a null status is allowed; the child is ours and has ended.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// As `execve` wants them: ended by a null.
fn pointers(strings: &[&CStr]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Runs the child to the point where it is another program, or has failed.
fn start(plan: &Plan, stack: &mut [MaybeUninit<u8>]) -> io::Result<i32> {
    // SAFETY: one past the end of the stack, which grows downwards.
    let top = unsafe { stack.as_mut_ptr().add(stack.len()) };
    // The machine wants its stack on a border of 16.
    let top = top.wrapping_sub(top.addr() % 16);
    let plan = ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the child gets memory that no other code uses as its stack, and with `CLONE_VFORK` this thread
    // does not go on before the child has left our memory: stack and plan outlive it. It shares no
    // descriptor table and no signal handlers with us (no `CLONE_FILES`, no `CLONE_SIGHAND`).
    let pid = unsafe {
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, plan)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// No handler of ours may run in the child, in our memory.
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: both calls write the whole of what they are given.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: `before` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// The child's whole life with us.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` hands over a plan, and waits with it.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let error = become_program(plan);
    plan.error.store(error, Ordering::Relaxed);
    // SAFETY: ends this process at once, without anything of ours being run.
    unsafe { libc::_exit(127) }
}

/// Only returns when it fails, with the reason.
fn become_program(plan: &Plan) -> c_int {
    // SAFETY: calls to the kernel, with descriptors that are open and strings and lists that end as they
    // must: `spawn` made them from safe types, and they are not changed meanwhile. What they change (session,
    // descriptors, folder, signals) is the child's own. `errno` is that of the waiting thread, which does not
    // read it.
    unsafe {
        // A session and not only a group: no process can join a group of another session, so no process of a
        // program can hide in the server's.
        if libc::setsid() < 0 {
            return errno();
        }
        for (own, fd) in (0..).zip(plan.descriptors) {
            if libc::dup2(fd, own) < 0 {
                return errno();
            }
        }
        // A kernel without this call (before 5.9) closes at least what is marked: all that we open.
        libc::syscall(libc::SYS_close_range, FIRST_CLOSED, c_int::MAX, 0);
        if libc::chdir(plan.directory) != 0 {
            return errno();
        }
        // Those for which we may have handlers, and the one that Rust ignores. All others are as our parent left them.
        for signal in INHERITED.into_iter().chain([libc::SIGPIPE]) {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::<sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        for (resource, limit) in plan.limits.rows() {
            let Some((soft, hard)) = limit else { continue };
            if limit_to(resource, soft, hard) != 0 {
                return errno();
            }
        }
        libc::execve(plan.program, plan.arguments, plan.environment);
        errno()
    }
}

/// Limits the calling process, never to more than it has.
///
/// # Safety
/// Nothing but a limit changes; it must be called where that is meant, in the child.
unsafe fn limit_to(resource: Resource, soft: u64, hard: u64) -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is a whole limit, ours to write and to read.
    unsafe {
        if libc::getrlimit(resource, &raw mut limit) != 0 {
            return -1;
        }
        limit.rlim_max = hard.min(limit.rlim_max);
        limit.rlim_cur = soft.min(limit.rlim_max);
        libc::setrlimit(resource, &raw const limit)
    }
}

fn errno() -> c_int {
    // SAFETY: the place is there as long as the thread is.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// Runs a shell script to its end; its output and its wait status.
    fn run(script: &CStr, directory: &CStr) -> io::Result<(String, c_int)> {
        run_within(script, directory, Limits::default())
    }

    /// The same within limits.
    fn run_within(script: &CStr, directory: &CStr, limits: Limits) -> io::Result<(String, c_int)> {
        let nothing = File::options().read(true).write(true).open("/dev/null").expect("opened");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let pid = spawn(&Process {
            program: c"/bin/sh",
            arguments: &[c"sh", c"-c", script],
            environment: &[c"PATH=/usr/bin:/bin", c"ONE=1"],
            directory,
            descriptors: [nothing.as_fd(), writer.as_fd(), nothing.as_fd()],
            limits,
        })?;
        drop(writer);
        let mut output = String::new();
        reader.read_to_string(&mut output).expect("text");
        Ok((output, wait(pid)))
    }

    fn wait(pid: i32) -> c_int {
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    #[test]
    fn a_program_gets_what_it_is_given_and_nothing_else() {
        // C8: also of a descriptor without the mark, as others leave them to us.
        // SAFETY: a copy of standard error, closed below.
        let left = unsafe { libc::dup(2) };
        assert!(left >= FIRST_CLOSED);
        let script = c"env; pwd; cut -d' ' -f1,5,6 /proc/$$/stat; grep SigBlk /proc/self/status; ls /proc/self/fd; exit 7";
        let (output, status) = run(script, c"/usr").expect("started");
        // SAFETY: the copy from above.
        unsafe { libc::close(left) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
        let lines: Vec<&str> = output.lines().collect();
        assert!(lines.contains(&"ONE=1") && !output.contains("CARGO"), "{output}");
        assert!(lines.contains(&"/usr"), "{output}");
        assert!(lines.contains(&"SigBlk:\t0000000000000000"), "{output}");
        // The folder itself is the fourth.
        assert_eq!(lines[lines.len() - 4..], ["0", "1", "2", "3"], "{output}");
        let group = lines.iter().find_map(|line| {
            let numbers: Vec<u32> =
                line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
            let [own, group, session] = numbers[..] else { return None };
            Some(own == group && own == session)
        });
        assert_eq!(group, Some(true), "{output}");
    }

    #[test]
    fn signals_are_as_a_program_expects_them() {
        let (output, status) = run(c"kill -PIPE $$; echo ignored", c"/").expect("started");
        assert_eq!(output, "");
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGPIPE);
    }

    #[test]
    fn what_cannot_be_started_says_why_and_leaves_nobody() {
        let nothing = File::options().read(true).write(true).open("/dev/null").expect("opened");
        let try_to = |program: &CStr, directory: &CStr, descriptors| {
            let arguments = &[program];
            let (environment, limits) = (&[][..], Limits::default());
            let process =
                Process { program, arguments, environment, directory, descriptors, limits };
            spawn(&process).expect_err("not started").raw_os_error()
        };
        let three = [nothing.as_fd(); 3];
        assert_eq!(try_to(c"/no/such/program", c"/", three), Some(libc::ENOENT));
        assert_eq!(try_to(c"/etc/passwd", c"/", three), Some(libc::EACCES));
        assert_eq!(try_to(c"/bin/sh", c"/no/such/folder", three), Some(libc::ENOENT));
        let own = io::stdin();
        let low = [own.as_fd(), nothing.as_fd(), nothing.as_fd()];
        assert_eq!(try_to(c"/bin/sh", c"/", low), Some(libc::EBADF));
    }

    /// V40: the limits are the program's, and not the server's.
    #[test]
    fn a_program_is_held_to_its_limits() {
        let limits = Limits {
            memory_bytes: Some(1 << 30),
            cpu_secs: Some(7),
            file_bytes: Some(1 << 20),
            processes: Some(1000),
            descriptors: Some(64),
        };
        let script = c"cat /proc/self/limits";
        let (output, _) = run_within(script, c"/", limits).expect("started");
        let shown = |name: &str| -> Vec<String> {
            let line = output.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().take(2).map(str::to_owned).collect()
        };
        for (name, soft, hard) in [
            ("Max address space", "1073741824", "1073741824"),
            ("Max cpu time", "7", "8"),
            ("Max file size", "1048576", "1048576"),
            ("Max processes", "1000", "1000"),
            ("Max open files", "64", "64"),
            ("Max core file size", "0", "0"),
        ] {
            assert_eq!(shown(name), [soft, hard], "{name}");
        }
        let (output, _) = run(c"ulimit -f; ulimit -t", c"/").expect("started");
        assert_eq!(output, "unlimited\nunlimited\n", "ours are as they were");
    }

    #[test]
    fn threads_start_programs_at_the_same_time() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (output, status) = run(c"echo hello", c"/").expect("started");
                        assert_eq!((output.as_str(), status), ("hello\n", 0));
                    }
                });
            }
        });
    }

    /// How long a start takes when nothing else is in its way: the shortest of many.
    #[expect(clippy::disallowed_methods, reason = "the test measures real time")]
    fn time_to_start() -> Duration {
        let nothing = File::options().read(true).write(true).open("/dev/null").expect("opened");
        let times = (0..100).map(|_| {
            let before = std::time::Instant::now();
            let pid = spawn(&Process {
                program: c"/bin/true",
                arguments: &[c"true"],
                environment: &[],
                directory: c"/",
                descriptors: [nothing.as_fd(); 3],
                limits: Limits::default(),
            });
            let took = before.elapsed();
            assert_eq!(wait(pid.expect("started")), 0);
            took
        });
        times.min().unwrap_or_default()
    }

    #[test]
    fn a_start_costs_the_same_in_a_large_process() {
        // C11: a copy of the page tables of 1 GiB takes tens of milliseconds.
        let is_long = std::env::var_os("SEKISHO_LONG").is_some();
        let small = time_to_start();
        let mib = if is_long { 1024 } else { 256 };
        let large = vec![1_u8; mib << 20];
        let beside = time_to_start();
        println!("a start takes {small:?}, and {beside:?} beside {mib} MiB");
        assert!(std::hint::black_box(&large).iter().step_by(4096).all(|byte| *byte == 1));
        assert!(beside < small * 2 + Duration::from_millis(1), "{small:?}, then {beside:?}");
    }
}
