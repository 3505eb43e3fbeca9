//! The configurations of a world, as text, and what the server makes of them; and the one file that there is.

use std::cell::OnceCell;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{Memory, Options, load};
use sekisho_handler::OpenFile;
use sekisho_http::Policy;
use sekisho_log::Logs;
use sekisho_net::simulation::memory_file;
use sekisho_net::{Groups, Site, Zones};
use sekisho_route::Machine;

/// How long a body a handler may want: each has its location.
pub(super) const BODY_LIMITS: [u64; 3] = [100, 2000, 1 << 20];
/// How long the file is: too long to be kept in memory.
const FILE_BYTES: usize = 64 * 1024;
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// The configuration in which two servers have these policies.
pub(super) fn text(policies: &[Arc<Policy>; 2], sessions_max: usize, speaks_http2: bool) -> String {
    let mut text = format!(
        "error_log stderr emerg; events {{ connections_max {sessions_max}; }} http {{ access_log off; "
    );
    for (name, policy) in ["a", "b"].into_iter().zip(policies) {
        let http2 = if speaks_http2 { "http2 on; " } else { "" };
        let _ = write!(text, "server {{ listen 127.0.0.1:80; server_name {name}; {http2}");
        write_policy(policy, &mut text);
        for most in BODY_LIMITS {
            let _ =
                write!(text, "location /m{most}/ {{ client_max_body_size {most}; return 200; }} ");
        }
        text.push_str("location / { return 200; } } ");
    }
    text.push('}');
    text
}

fn write_policy(policy: &Policy, text: &mut String) {
    let mut time = |name: &str, time: Option<Duration>| {
        let _ = match time {
            Some(time) => write!(text, "{name} {}ms; ", time.as_millis()),
            None => write!(text, "{name} off; "),
        };
    };
    time("client_header_timeout", policy.header_timeout);
    time("client_body_timeout", policy.body_timeout);
    time("keepalive_timeout", policy.keepalive_timeout);
    time("send_timeout", policy.send_timeout);
    time("lingering_timeout", policy.lingering_timeout);
    time("lingering_time", policy.lingering_time);
    let rate = policy.body_min_rate.map_or_else(|| "off".to_owned(), |rate| rate.to_string());
    let half_close = if policy.half_close { "on" } else { "off" };
    let _ = write!(
        text,
        "client_body_min_rate {rate}; keepalive_requests {}; client_body_discard_max {}; half_close {half_close}; ",
        policy.keepalive_requests, policy.body_discard_max
    );
}

/// What the server makes of a configuration.
pub(crate) fn open(text: &str) -> Arc<Site> {
    let outcome = load("/c".as_ref(), &Options::new("/"), &Memory::of("/c", text));
    let config = outcome.config.expect("a configuration without errors");
    let (logs, zones, groups) = (Logs::new(), Zones::default(), Groups::default());
    let site = Site::new(Arc::new(config), &logs, &zones, &groups, Machine::default());
    Arc::new(site.expect("nothing has to be opened"))
}

/// The file that answers are made of: the alphabet, again and again. One for all worlds of a thread.
pub(super) fn file(site: &Site) -> Rc<OpenFile> {
    thread_local! {
        static FILE: OnceCell<Rc<OpenFile>> = const { OnceCell::new() };
    }
    let open = || {
        let letters: Vec<u8> = LETTERS.iter().copied().cycle().take(FILE_BYTES).collect();
        memory_file(site, &letters).expect("memory for a file")
    };
    FILE.with(|file| Rc::clone(file.get_or_init(open)))
}
