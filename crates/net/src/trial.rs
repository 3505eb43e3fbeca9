//! Faults on demand, for tests. Only a build with debug assertions has them, and only a server that is started
//! with `SEKISHO_TRIAL` in its environment: a release build does not even look at it.

#[cfg(debug_assertions)]
mod armed {
    use std::rc::Rc;
    use std::sync::LazyLock;
    use std::time::Duration;

    use sekisho_http::Head;

    use crate::link::Link;
    use crate::mishap::Vital;

    static IS_ARMED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SEKISHO_TRIAL").is_some());

    /// Does what the field `X-Trial` of a request asks for.
    pub(crate) fn strike(link: &Link, head: &Head) {
        if !*IS_ARMED {
            return;
        }
        let mut fields = head.fields();
        let Some((_, fault)) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"x-trial")) else {
            return;
        };
        match fault {
            b"panic" => panic!("a trial"),
            b"borrowed" => {
                let _sessions = link.worker.sessions.borrow_mut();
                panic!("a trial with something in hand");
            }
            b"worker" => {
                let vital = Vital(Rc::clone(&link.worker));
                tokio::task::spawn_local(async move {
                    let _vital = vital;
                    panic!("a trial of the worker");
                });
            }
            b"task" => {
                tokio::task::spawn_local(async { panic!("a trial of a task") });
            }
            _ => {
                let stall =
                    fault.strip_prefix(b"stall=").and_then(|it| std::str::from_utf8(it).ok());
                if let Some(millis) = stall.and_then(|text| text.parse().ok()) {
                    #[expect(clippy::disallowed_methods, reason = "to be stuck is the trial")]
                    std::thread::sleep(Duration::from_millis(millis));
                }
            }
        }
    }
}

#[cfg(debug_assertions)]
pub(crate) use armed::strike;

/// Nothing.
#[cfg(not(debug_assertions))]
pub(crate) const fn strike(_: &crate::link::Link, _: &sekisho_http::Head) {}
