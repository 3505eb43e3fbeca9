//! Faults on demand, for tests. Only a build with debug assertions has them, and only a server that is started
//! with `SEKISHO_INJECT_FAULTS` in its environment: a release build does not even look at it.

#[cfg(debug_assertions)]
mod armed {
    use std::rc::Rc;
    use std::sync::LazyLock;
    use std::time::Duration;

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
            _ => {
                let stall =
                    fault.strip_prefix(b"stall=").and_then(|it| std::str::from_utf8(it).ok());
                if let Some(millis) = stall.and_then(|text| text.parse().ok()) {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the injected fault is to be stuck"
                    )]
                    std::thread::sleep(Duration::from_millis(millis));
                }
            }
        }
    }
}

#[cfg(debug_assertions)]
pub(crate) use armed::inject;

/// Nothing.
#[cfg(not(debug_assertions))]
pub(crate) const fn inject(_: &crate::link::Link, _: &sekisho_http::Head) {}
