//! What the command line asks for, done: print, test, signal or serve.

use std::fmt::Write;
use std::io::{ErrorKind, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::fs::OFlags;
use rustix::process::Pid;
use sekisho_config::{ListenAddress, Outcome};
use sekisho_net::site::PRODUCT;

use crate::cli::{Cli, Command, Flags, SignalName, is_nginx, program_name};
use crate::run::{self, Server};
use crate::setup::{self, Plan};
use crate::terminal::{self, complain, tell};
use crate::{
    Problem, builtin, ctl, daemon, https, manual, migrate, parenting, pid_file, serve, upgrade,
};

const DEFAULT_PORT: u16 = 8080;
/// The version of nginx that `docs/nginx.md` compares with.
const NGINX_VERSION: &str = "1.31.5";
/// Modules of nginx that are built in, by the names of nginx's options.
const NGINX_MODULES: [&str; 13] = [
    "http_ssl_module",
    "http_v2_module",
    "http_realip_module",
    "http_addition_module",
    "http_sub_module",
    "http_dav_module",
    "http_gunzip_module",
    "http_gzip_static_module",
    "http_auth_request_module",
    "http_slice_module",
    "http_stub_status_module",
    "stream",
    "stream_ssl_module",
];

/// Does what the command line asks for.
pub(crate) fn act(cli: Cli) -> Result<ExitCode, Problem> {
    let flags = cli.flags;
    match cli.command {
        Some(Command::Serve(serve)) => return serve::serve(serve),
        Some(Command::Proxy(proxy)) => return serve::proxy(proxy),
        Some(Command::Passwd(passwd)) => return serve::passwd(&passwd),
        Some(Command::Trust) => return https::trust(),
        Some(Command::Ctl(ctl)) => return Ok(ctl::run(&ctl)),
        Some(Command::Migrate(migrate)) => return migrate::run(&migrate),
        Some(Command::Manual { folder }) => {
            return manual::write(&folder).map(|()| ExitCode::SUCCESS);
        }
        None => {}
    }
    if flags.version || flags.build {
        return print_version(flags.build).map(|()| ExitCode::SUCCESS);
    }
    let is_plain = !is_nginx()
        && flags.config.is_none()
        && flags.prefix.is_none()
        && flags.globals.is_none()
        && flags.signal.is_none()
        && !flags.test
        && !flags.dump;
    if is_plain {
        return serve_default();
    }
    let plan = Plan::from_flags(&flags)?;
    if flags.test || flags.dump {
        return test(&plan, &flags);
    }
    create_early_log(&plan)?;
    if let Some(name) = flags.signal {
        let config = plan.read_to_find()?;
        let Some(path) = &config.main.pid else {
            return Err(Problem::new("the configuration has no pid file to find the server by"));
        };
        return send(pid_file::server(path)?, name);
    }
    serve_configuration(plan)
}

/// Serves a configuration: in the background, where it says so; as a parent, where there is to be one.
fn serve_configuration(plan: Plan) -> Result<ExitCode, Problem> {
    let is_first = upgrade::predecessor().is_none()
        && !sekisho_parent::is_successor()
        && !sekisho_parent::is_worker();
    // One with errors is reported below.
    let config = is_first.then(|| sekisho_parent::read(plan.main_file(), plan.options())).flatten();
    let mut when_ready = None;
    if daemon::is_background() {
        when_ready = daemon::leave_terminal()?;
    } else if config.as_ref().is_some_and(|config| config.main.processes.daemon) {
        return daemon::start();
    }
    if let Some(code) = parenting::run(&plan, config.as_ref(), &mut when_ready)? {
        return Ok(code);
    }
    let server = Server::start(plan)?;
    if let Some(when_ready) = when_ready {
        when_ready();
    }
    Ok(server.run())
}

/// `-v` and `-V`
fn print_version(with_build: bool) -> Result<(), Problem> {
    if is_nginx() {
        // What scripts and certbot look for, where they look for it.
        complain(nginx_version(with_build));
        return Ok(());
    }
    let mut text = format!("sekisho version: {PRODUCT}\n");
    if with_build {
        let _ = writeln!(text, "built with rustc for {}-linux", std::env::consts::ARCH);
    }
    terminal::print(text)
}

/// The version text of nginx: the version whose configuration language and behaviour this program has.
fn nginx_version(with_build: bool) -> String {
    let mut text =
        format!("nginx version: nginx/{NGINX_VERSION} (Sekisho {})\n", env!("CARGO_PKG_VERSION"));
    if with_build {
        let _ = writeln!(text, "built with rustc for {}-linux", std::env::consts::ARCH);
        let _ = writeln!(text, "TLS SNI support enabled");
        let paths = setup::NGINX_PATHS.map(|(option, path)| format!("--{option}={path}"));
        let modules = NGINX_MODULES.map(|module| format!("--with-{module}"));
        let all = [paths.as_slice(), modules.as_slice()].concat().join(" ");
        let _ = writeln!(text, "configure arguments: {all}");
    }
    text
}

/// `-s`: sends a signal; `reload` and `reopen` go through the control socket, so that their result can be printed (O3).
fn send(pid: Pid, name: SignalName) -> Result<ExitCode, Problem> {
    let number = pid.as_raw_nonzero().get().unsigned_abs();
    let asked = match name {
        SignalName::Reload => Some(ctl::reload(number)?),
        SignalName::Reopen => Some(ctl::reopen(number)?),
        _ => None,
    };
    if let Some(result) = asked {
        if let Some(result) = result {
            complain(result.text);
            return Ok(if result.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        complain(format_args!(
            "{}: process {number} cannot be reached; its error log has the result\n",
            program_name()
        ));
    }
    pid_file::signal(pid, name)?;
    Ok(ExitCode::SUCCESS)
}

/// `-t` and `-T`.
fn test(plan: &Plan, flags: &Flags) -> Result<ExitCode, Problem> {
    let outcome = plan.read();
    setup::report(&outcome);
    let file = plan.main_file().display();
    // What operators and nodes prove themselves by is in files, too.
    let rules = outcome.config.as_ref().map(|config| run::rules(config, None));
    if let Some(Err(problem)) = &rules {
        complain(format_args!("{}: {problem}\n", program_name()));
    }
    let is_good = rules.is_some_and(|rules| rules.is_ok());
    if flags.dump && is_good {
        dump(&outcome)?;
    }
    if !is_good {
        return Err(Problem::new(format_args!("configuration file {file} test failed")));
    }
    if !flags.quiet {
        let name = program_name();
        complain(format_args!("{name}: the configuration file {file} syntax is ok\n"));
        complain(format_args!("{name}: configuration file {file} test is successful\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Every file that was read. A reader that has gone has read enough.
fn dump(outcome: &Outcome) -> Result<(), Problem> {
    let mut out = std::io::stdout().lock();
    for (path, text) in &outcome.files {
        let dumped = writeln!(out, "# configuration file {}:", path.display())
            .and_then(|()| out.write_all(text.as_ref()))
            .and_then(|()| writeln!(out));
        if dumped.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            return Ok(());
        }
        dumped.map_err(|error| Problem::new(format_args!("standard output: {error}")))?;
    }
    Ok(())
}

/// The file that `-e` names is there before anything else is done, as with nginx.
fn create_early_log(plan: &Plan) -> Result<(), Problem> {
    let Some(path) = plan.early_log() else { return Ok(()) };
    match sekisho_openings::open_guarded(OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Problem::new(format_args!("cannot open {}: {error}", path.display()))),
    }
}

/// Plain `sekisho`.
fn serve_default() -> Result<ExitCode, Problem> {
    if upgrade::predecessor().is_some() {
        return Err(Problem::new("the built-in site cannot be upgraded: its port changes"));
    }
    let port =
        free_port().map_err(|error| Problem::new(format_args!("no port is free: {error}")))?;
    let server = Server::start(Plan::builtin(builtin::default_site(port), PathBuf::from("/")))?;
    for address in server.addresses() {
        tell(format_args!("Sekisho serves its built-in site on {}\n", link(&address)));
    }
    tell("Serve a folder with `sekisho serve DIR`, a configuration with `sekisho -c FILE`.\n");
    Ok(server.run())
}

/// The usual port, or any other: a first trial should not fail because another program has the port.
fn free_port() -> std::io::Result<u16> {
    let usual = TcpListener::bind(("127.0.0.1", DEFAULT_PORT));
    let found = usual.or_else(|_| TcpListener::bind(("127.0.0.1", 0)))?;
    Ok(found.local_addr()?.port())
}

/// An address as one can click on it.
fn link(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(at) => format!("http://{at}/"),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        ListenAddress::Udp(at) => format!("udp:{at}"),
    }
}
