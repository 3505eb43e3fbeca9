//! What the parent and the processes that it starts can have at most.

use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet as Set, CapabilitySets};
use sekisho_config::Config;

/// Raises the limit of descriptors, which worker processes inherit: only root can raise it.
pub(crate) fn limit_descriptors(config: &Config) -> Result<(), String> {
    let Some(wanted) = config.main.worker_rlimit_nofile else { return Ok(()) };
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    let next = Rlimit { current: limit.current, maximum };
    rustix::process::setrlimit(Resource::Nofile, next)
        .map_err(|error| format!("worker_rlimit_nofile: {error}"))
}

/// Gives up every capability that the parent, a worker process that stays root, or a new parent does not need.
pub(crate) fn limit_capabilities() -> rustix::io::Result<()> {
    let keep = Set::CHOWN
        | Set::DAC_OVERRIDE
        | Set::DAC_READ_SEARCH
        | Set::FOWNER
        | Set::FSETID
        | Set::KILL
        | Set::SETUID
        | Set::SETGID
        | Set::SETPCAP
        | Set::NET_BIND_SERVICE
        | Set::SYS_RESOURCE;
    let have = rustix::thread::capabilities(None)?;
    if !have.effective.contains(Set::SETPCAP) {
        return Ok(());
    }
    for number in 0..64 {
        let one = Set::from_bits_retain(1 << number);
        if keep.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // The kernel knows no more of them.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    let kept = keep & have.permitted;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: Set::empty() };
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(None, sets)
}
