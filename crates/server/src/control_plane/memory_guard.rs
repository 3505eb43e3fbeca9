//! Logs what the memory guard does (X8): a line in the error log when it begins to refuse work and one when
//! it ends, at most one pair in a second. Workers find out that memory is short and notify this task. When it is nearly
//! used up, all workers are told to end connections (O9).

use std::rc::Rc;
use std::time::Duration;

use sekisho_config::Level;
use sekisho_handler::memory;
use sekisho_net::native::LogPace;

use super::host::Host;

/// While memory is short, it is checked this often whether it still is, even if no work is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The same while it is nearly used up.
const SHED_EVERY: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;

/// Watches for as long as the control plane runs.
pub(super) async fn watch(host: Rc<Host>) {
    let mut pace = LogPace::default();
    loop {
        memory::shortage_began().await;
        let began = host.uptime();
        let refusals_before = memory::refusals();
        let unlogged = pace.may_log(host.now());
        if let Some(unlogged) = unlogged {
            let limit = memory::limit_bytes().unwrap_or(0) / MIB;
            let again = format!(" (and {unlogged} times before, not logged)");
            let again = if unlogged > 0 { &again } else { "" };
            let message = format_args!(
                "memory is short, most of {limit} MiB is in use: new connections and costly work are refused{again}"
            );
            host.log(Level::Error, None, message);
        }
        while memory::is_still_short() {
            let is_critical = memory::was_critical();
            if is_critical {
                host.worker_registry.shed();
            }
            let pause = if is_critical { SHED_EVERY } else { LOOK_EVERY };
            let _ = tokio::time::timeout(pause, memory::shortage_began()).await;
        }
        if unlogged.is_some() {
            let seconds = host.uptime().saturating_sub(began).as_secs_f64();
            let refusals = memory::refusals() - refusals_before;
            let message = format_args!(
                "memory is no longer short, after {seconds:.1} s and {refusals} refusals"
            );
            host.log(Level::Error, None, message);
        }
    }
}
