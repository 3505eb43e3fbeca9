//! The command line: nginx's flags, and `serve` and `proxy`, which need no configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::Problem;

/// A web server: static files, uploads, WebDAV, CGI, reverse proxy, TLS, HTTP/2. Configured in nginx's language
#[derive(Debug, Parser)]
#[command(
    name = "sekisho",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    after_help = "Without arguments a built-in site is served on http://127.0.0.1:8080/."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// nginx's flags, with nginx's meaning.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches on a command line")]
pub(crate) struct Flags {
    /// Show the version and exit
    #[arg(short = 'v', long = "version")]
    pub(crate) version: bool,
    /// Show the version and build details, and exit
    #[arg(short = 'V')]
    pub(crate) build: bool,
    /// Test the configuration and exit
    #[arg(short = 't')]
    pub(crate) test: bool,
    /// Test the configuration, print it and exit
    #[arg(short = 'T')]
    pub(crate) dump: bool,
    /// Print only errors and warnings while testing
    #[arg(short = 'q')]
    pub(crate) quiet: bool,
    /// Send a signal to the running server
    #[arg(short = 's', value_name = "SIGNAL")]
    pub(crate) signal: Option<SignalName>,
    /// The prefix that relative paths start from
    #[arg(short = 'p', value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
    /// The error log until the configuration names one; `stderr` for standard error
    #[arg(short = 'e', value_name = "FILE")]
    pub(crate) error_log: Option<PathBuf>,
    /// The configuration file
    #[arg(short = 'c', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directives that are read before the configuration
    #[arg(short = 'g', value_name = "DIRECTIVES")]
    pub(crate) globals: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder or one file, without any configuration
    Serve(Serve),
    /// Pass requests on to other servers, without any configuration
    Proxy(Proxy),
    /// Write a user and the hash of a password into a password file, or print the line
    Passwd(Passwd),
    /// Make this machine trust the certificates of `serve --https`
    Trust,
    /// Show and control a running server: status, sessions, requests, metrics; reload, stop
    Ctl(crate::ctl::Ctl),
    /// Report what an nginx configuration means here: what works, differs, is missing. Exit status: 0 if it means the
    /// same, 2 if something differs, 1 if it does not load
    Migrate(crate::migrate::Migrate),
    /// Write man pages and shell completions into a folder
    #[command(hide = true)]
    Manual { folder: PathBuf },
}

/// The options of `serve` and `proxy` about addresses, names and certificates.
#[derive(Debug, Args)]
pub(crate) struct Bind {
    /// Where to listen: PORT (every address of this machine), ADDRESS[:PORT] or unix:PATH; repeatable.
    /// Default: this machine only
    #[arg(long, short = 'l', value_name = "ADDR")]
    pub(crate) listen: Vec<String>,
    /// Serve HTTPS: with a certificate that is ordered for this public name (ACME); without a name, with one from a
    /// certificate authority of this machine
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) https: Option<String>,
    /// The ACME directory to order from [default: Let's Encrypt]
    #[arg(long, value_name = "URL", requires = "https")]
    pub(crate) acme_directory: Option<String>,
    /// The authority that has signed the ACME server's own certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "https")]
    pub(crate) acme_root: Option<PathBuf>,
    /// Serve HTTPS with this certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "https")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// The port, if --listen has none; 0 is any free port [default: 8080]
    #[arg(long, short = 'p', value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// On loopback addresses, also respond to this host name; repeatable
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub(crate) host: Vec<String>,
    /// Add this field to every response; repeatable
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    /// Do not write a line for each request
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// The number of workers; `auto` for one per core
    #[arg(long, default_value = "1", value_name = "N", value_parser = workers)]
    pub(crate) workers: String,
}

/// What `sekisho proxy` takes.
#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// Where requests go: PORT, HOST:PORT, http://…, https://… or unix:PATH. Two of them: where to listen, and where
    /// requests go
    #[arg(value_name = "[FROM] TO", num_args = 1..=2)]
    pub(crate) from_to: Vec<String>,
    /// One more server: requests are balanced, and failed servers are left out; repeatable
    #[arg(long, value_name = "TO")]
    pub(crate) to: Vec<String>,
    #[command(flatten)]
    pub(crate) bind: Bind,
}

/// What `sekisho passwd` takes.
#[derive(Debug, Args)]
pub(crate) struct Passwd {
    /// The user's name. The password is read from the terminal or from standard input
    pub(crate) user: String,
    /// The password file of `auth_basic_user_file` and `--password-file`; it is created if it does not exist
    pub(crate) file: Option<PathBuf>,
}

/// What `sekisho serve` takes.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches on a command line")]
pub(crate) struct Serve {
    /// The folder or the file [default: the current folder]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) bind: Bind,
    /// Ask for this user and password, or the hash that `sekisho passwd` prints; without `:PASS` the password is read
    /// from the terminal; repeatable. The variable `SEKISHO_PASSWORD` does the same and is not visible to other users
    #[arg(long, value_name = "USER[:PASS]")]
    pub(crate) password: Vec<String>,
    /// Ask for a user and a password of this file (see `sekisho passwd`)
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    pub(crate) password_file: Option<PathBuf>,
    /// Pass requests below this path on to another server; repeatable
    #[arg(long, value_name = "PATH=TO", value_parser = proxied)]
    pub(crate) proxy: Vec<(String, String)>,
    /// List the content of folders that have no index.html. Always done if only this machine can connect, and with
    /// --upload, --archive and --webdav
    #[arg(long, visible_alias = "listing")]
    pub(crate) open_listing: bool,
    /// List no folder
    #[arg(long, conflicts_with = "open_listing")]
    pub(crate) no_listing: bool,
    /// Offer folders as .zip and .tar; also lists folders
    #[arg(long)]
    pub(crate) archive: bool,
    /// The heading of the listings
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Only read, which is the default; refuses the options that write
    #[arg(long, conflicts_with_all = ["upload", "delete", "webdav"])]
    pub(crate) read_only: bool,
    /// Accept uploads by PUT, by forms, and resumable ones (tus); missing folders are created
    #[arg(long)]
    pub(crate) upload: bool,
    /// Let clients delete and rename files and folders
    #[arg(long)]
    pub(crate) delete: bool,
    /// Serve WebDAV, for reading and writing: clients can mount the folder; also lists folders
    #[arg(long)]
    pub(crate) webdav: bool,
    /// Run CGI programs: files in cgi-bin, and files that end in .cgi .sh .py .pl .php
    #[arg(long)]
    pub(crate) cgi: bool,
    /// Allow CGI programs when running as root
    #[arg(long, requires = "cgi")]
    pub(crate) cgi_allow_root: bool,
    /// How long a CGI program may print nothing, such as 30s or 5m
    #[arg(long, requires = "cgi", value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<String>,
    /// Answer unknown paths with /index.html, for single-page applications
    #[arg(long, conflicts_with_all = ["upload", "delete", "webdav"])]
    pub(crate) spa: bool,
    /// Let pages of other sites read the files (CORS)
    #[arg(long)]
    pub(crate) cors: bool,
    /// Whether to compress responses with gzip, brotli or zstd
    #[arg(long, value_name = "on|off", default_value = "on", default_missing_value = "on", num_args = 0..=1,
          require_equals = true, value_parser = ["on", "off"], hide_possible_values = true)]
    pub(crate) compress: String,
    /// Serve files and folders whose names begin with a dot, too
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Show the address as a QR code
    #[arg(long)]
    pub(crate) qr: bool,
}

/// `--workers`
fn workers(text: &str) -> Result<String, String> {
    let is_good = text == "auto" || text.parse::<u32>().is_ok_and(|number| number > 0);
    is_good.then(|| text.to_owned()).ok_or_else(|| "must be a number from 1, or auto".to_owned())
}

/// `--timeout`
fn time(text: &str) -> Result<String, String> {
    let is_good = sekisho_config::value::deadline(text).is_ok();
    is_good.then(|| text.to_owned()).ok_or_else(|| "must be a time such as 30s or 5m".to_owned())
}

/// `--header`
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be a field such as 'X-Name: value'")?;
    if !sekisho_http::token::is_token(name.as_bytes()) || value.contains(char::is_control) {
        return Err("must be a field such as 'X-Name: value'".to_owned());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// `--proxy`
fn proxied(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, to)) if path.starts_with('/') && !to.is_empty() => {
            Ok((path.to_owned(), to.to_owned()))
        }
        _ => Err("must be a path and a server, such as /api=:3000".to_owned()),
    }
}

/// `--host`: what stands in a request's `Host`, without a port.
fn host(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let ip = text.trim_start_matches('[').trim_end_matches(']');
    let is_good = !text.is_empty() && text.bytes().all(is_part);
    if is_good || ip.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(text.to_owned());
    }
    Err("must be a host name such as files.example.org".to_owned())
}

/// `-s`
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SignalName {
    /// Stop at once
    Stop,
    /// Stop when running requests have finished
    Quit,
    /// Read the configuration again
    Reload,
    /// Reopen the log files
    Reopen,
}

/// Whether the program was called as `nginx`, by a link or a copy of that name: it then has nginx's paths, version text
/// and default of `daemon`.
pub(crate) fn is_nginx() -> bool {
    program_name() == "nginx"
}

/// What the program was called as: `sekisho` or `nginx`.
pub(crate) fn program_name() -> &'static str {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().and_then(|name| name.to_str());
    // A worker process is called "nginx: worker process".
    if name.is_some_and(|name| name == "nginx" || name.starts_with("nginx: ")) {
        "nginx"
    } else {
        "sekisho"
    }
}

/// What other servers call it, and what it is called here.
const HABITS: [(&str, &str); 22] = [
    ("-A", "--upload --delete"),
    ("--allow-all", "--upload --delete"),
    ("-u", "--upload"),
    ("--upload-files", "--upload"),
    ("--allow-upload", "--upload"),
    ("--allow-delete", "--delete"),
    ("--allow-archive", "--archive"),
    ("-a", "--password USER"),
    ("--auth", "--password USER"),
    ("--auth-file", "--password-file FILE"),
    ("--tls-cert", "--certificate FILE --key FILE"),
    ("--tls-key", "--certificate FILE --key FILE"),
    ("--index", "a file named index.html"),
    ("-i", "--listen ADDRESS"),
    ("-b", "--listen ADDRESS"),
    ("--bind", "--listen ADDRESS"),
    ("--root", "sekisho serve DIR"),
    ("--browse", "--open-listing"),
    ("reload", "sekisho ctl reload, or sekisho -s reload"),
    ("stop", "sekisho ctl stop, or sekisho -s quit"),
    ("version", "sekisho -v"),
    ("reverse-proxy", "sekisho proxy [FROM] TO"),
];

/// The command line. A folder or a file alone is served.
fn arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = std::env::args_os().collect();
    let is_command = |word: &OsString| Cli::command().find_subcommand(word).is_some();
    let is_path = |word: &OsString| {
        let is_option = word.as_encoded_bytes().first() == Some(&b'-');
        !is_option && !is_command(word) && Path::new(word).exists()
    };
    if all.get(1).is_some_and(is_path) && !is_nginx() {
        all.insert(1, "serve".into());
    }
    all
}

/// What the word that is not known is called here.
fn habit(error: &clap::Error) -> Option<String> {
    let word = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let word = word.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    })?;
    let name = word.split('=').next().unwrap_or(word);
    let (_, ours) = HABITS.iter().find(|(theirs, _)| *theirs == name)?;
    Some(format!("there is no {name}; use: {ours}"))
}

/// Reads the command line; `--help` and mistakes end the program here, with clap's text.
pub(crate) fn parse() -> Result<Cli, Problem> {
    match Cli::try_parse_from(arguments()) {
        Ok(cli) => Ok(cli),
        // A mistake on the command line is status 1 here, as in nginx.
        Err(error) if error.use_stderr() => {
            let text = habit(&error).unwrap_or_else(|| error.to_string());
            Err(Problem::new(text.trim_start_matches("error: ").trim_end()))
        }
        Err(error) => error.exit(),
    }
}
