//! Directives of the process: outside every block, and in `events`.

use super::{Context, EVENTS, EVERYWHERE, MAIN, Row, active, block, nothing, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::Workers;

pub(super) const ROWS: &[Row] = &[
    active(
        "load_module",
        MAIN,
        "file",
        "",
        "Accepted: nginx's modules are not loaded; directives of modules that are not built in are errors",
        load_module,
    )
    .repeated(),
    // The parser puts the files in its place, also among the lines of `types` and `map`.
    active(
        "include",
        EVERYWHERE,
        "file|pattern",
        "",
        "Includes other files; a pattern may match none",
        nothing,
    )
    .repeated(),
    active(
        "worker_processes",
        MAIN,
        "auto|number",
        "auto",
        "The number of workers; `auto` is one per core",
        |_, d, s| {
            s.main.worker_processes = match &*d.arg(0).text {
                b"auto" => Workers::Auto,
                _ => Workers::Count(d.count(0)?),
            };
            Ok(())
        },
    ),
    active(
        "daemon",
        MAIN,
        "on|off",
        "off",
        "Whether the command ends when the server serves (nginx: on). Called as `nginx`: on",
        |_, d, s| set(&mut s.main.processes.daemon, d.flag()),
    ),
    active(
        "master_process",
        MAIN,
        "on|off",
        "",
        "Whether a parent starts the worker process and starts it again. Default: where root starts the server and `user` is another one",
        |_, d, s| set(&mut s.main.processes.parent, d.flag().map(Some)),
    ),
    active(
        "pid",
        MAIN,
        "file|off",
        "logs/sekisho.pid",
        "The file for the process id",
        |_, d, s| {
            let file = &d.arg(0).text;
            s.main.pid = (**file != *b"off").then(|| s.path(file));
            Ok(())
        },
    ),
    active("user", MAIN, "user [group]", "", "The user that the server runs as, if root starts it", user),
    active(
        "worker_rlimit_nofile",
        MAIN,
        "number",
        "",
        "The limit of open files",
        |_, d, s| set(&mut s.main.worker_rlimit_nofile, d.count(0).map(|n| Some(n as u64))),
    ),
    active(
        "worker_shutdown_timeout",
        MAIN,
        "time|off",
        "10s",
        "How long a graceful shutdown may take before it becomes forceful. Where it is set, also how long sessions of \
         a former configuration may stay after a reload; else they stay until they end",
        |_, d, s| {
            let timeout = d.deadline(0)?;
            s.main.worker_shutdown_timeout = timeout;
            s.main.former_sessions_timeout = timeout.filter(|_| !d.is_default);
            Ok(())
        },
    ),
    block("events", MAIN, "", Context::Events, "Settings of connection handling").once(),
    active(
        "worker_connections",
        EVENTS,
        "number",
        "65536",
        "The maximum number of connections of a worker; it accepts no more until one closes (nginx: 512)",
        |_, d, s| set(&mut s.main.worker_connections, d.count(0)),
    ),
    active(
        "connections_max",
        EVENTS,
        "number|off",
        "off",
        "The maximum number of connections of the server; further ones get a 503",
        |_, d, s| set(&mut s.main.connections_max, limit(d)),
    ),
    active(
        "connections_per_address",
        EVENTS,
        "number|off",
        "off",
        "The maximum number of connections from one address; further ones get a 503",
        |_, d, s| set(&mut s.main.connections_per_address, limit(d)),
    ),
    block("http", MAIN, "", Context::Http, "The web server's configuration").once(),
];

/// A number from 1 on, or `off`.
fn limit(d: &Directive<'_>) -> Result<Option<usize>, Fault> {
    if *d.arg(0).text == *b"off" { Ok(None) } else { d.count(0).map(Some) }
}

fn user(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let user = d.text(d.arg(0))?.to_owned();
    let group = d.args().get(1).map(|word| d.text(word).map(str::to_owned)).transpose()?;
    s.main.user = Some((user, group));
    Ok(())
}

/// Modules of nginx whose directives are built in here, by what stands between `ngx_` and `_module.so`.
const BUILT_IN: &[&str] = &[
    "http_brotli_filter",
    "http_brotli_static",
    "http_cgi",
    "http_gzip_static",
    "http_dav",
    "http_zstd_filter",
    "http_zstd_static",
    "http_autoindex",
    "http_auth_basic",
    "http_stub_status",
    "http_secure_link",
    "http_upload",
    "http_addition",
    "http_auth_request",
    "http_dav_ext",
    "http_geoip2",
    "http_gunzip",
    "http_headers_more_filter",
    "http_random_index",
    "http_realip",
    "http_slice",
    "http_ssl",
    "http_sub",
    "http_v2",
    "stream",
    "stream_geoip2",
    "stream_realip",
    "stream_ssl",
    "stream_ssl_preread",
];

/// A script that waits for the server to go into the background would wait for ever: the warning says why.
fn load_module(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let file = d.text(word)?.rsplit('/').next().unwrap_or_default();
    let name = file.strip_suffix(".so").unwrap_or(file);
    let name = name.strip_prefix("ngx_").unwrap_or(name);
    let name = name.strip_suffix("_module").unwrap_or(name);
    if !BUILT_IN.contains(&name) {
        let message = format!(
            "module \"{name}\" is not loaded: directives of it that are not built in are errors"
        );
        s.warn(word.span, message);
    }
    Ok(())
}
