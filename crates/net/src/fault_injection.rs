//! Faults on demand, for tests. Only a build with debug assertions has them, and only a server that is started
//! with `SEKISHO_INJECT_FAULTS` in its environment: a release build does not even look at it.

#[cfg(debug_assertions)]
mod armed {
    use std::rc::Rc;
    use std::sync::LazyLock;
    use std::time::Duration;

    use sekisho_config::Level;
    use sekisho_http::Head;

    use crate::link::Link;
    use crate::panic_report::Vital;

    static IS_ARMED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("SEKISHO_INJECT_FAULTS").is_some());

    /// Does what the field `X-Inject-Fault` of a request asks for.
    pub(crate) fn inject(link: &Link, head: &Head) {
        if !*IS_ARMED {
            return;
        }
        let mut fields = head.fields();
        let Some((_, fault)) =
            fields.find(|(name, _)| name.eq_ignore_ascii_case(b"x-inject-fault"))
        else {
            return;
        };
        match fault {
            b"panic" => panic!("an injected fault"),
            b"borrowed" => {
                let _sessions = link.worker.sessions.borrow_mut();
                panic!("an injected fault while something is borrowed");
            }
            b"worker" => {
                let vital = Vital(Rc::clone(&link.worker));
                tokio::task::spawn_local(async move {
                    let _vital = vital;
                    panic!("an injected fault of the worker");
                });
            }
            b"task" => {
                tokio::task::spawn_local(async { panic!("an injected fault of a task") });
            }
            _ => stall(link, std::str::from_utf8(fault).unwrap_or_default()),
        }
    }

    /// `NAME=MILLISECONDS`: the worker (`stall`) or the thread of this name is stuck for so long.
    fn stall(link: &Link, fault: &str) {
        let Some((name, Ok(millis))) =
            fault.split_once('=').map(|(name, millis)| (name, millis.parse()))
        else {
            return;
        };
        let length = Duration::from_millis(millis);
        if name == "stall" {
            // A test waits for it: the next connection is another worker's then.
            let (worker, site) = (&link.worker, &link.listener_context.bound_site().site);
            let at = worker.clock.stamp(worker.clock.now());
            let message = format_args!("an injected fault: stuck for {millis} ms");
            site.log.write(Level::Notice, at, Some(link.id), message);
            #[expect(clippy::disallowed_methods, reason = "the injected fault is to be stuck")]
            std::thread::sleep(length);
        }
        let threads = link.worker.shared.watched_threads.all();
        threads.iter().filter(|thread| thread.name == name).for_each(|thread| thread.stall(length));
    }
}

#[cfg(debug_assertions)]
pub(crate) use armed::inject;

/// Nothing.
#[cfg(not(debug_assertions))]
pub(crate) const fn inject(_: &crate::link::Link, _: &sekisho_http::Head) {}
