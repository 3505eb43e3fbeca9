//! `sekisho serve` and `sekisho proxy`: a folder, a file or other servers without any configuration file. Options become
//! configuration text (`builtin.rs`); here is what that language cannot express: free ports, both families of addresses,
//! a password from the command line, and what the terminal shows.

mod addresses;
mod password;
mod qr;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sekisho_config::ListenAddress;

use crate::builtin::{Content, Site};
use crate::cli::{Bind, Proxy, Serve};
use crate::https::Https;
use crate::run::Server;
use crate::setup::Plan;
use crate::{Problem, builtin, terminal};
use addresses::Reach;
pub(crate) use password::passwd;
pub(crate) use target::Target;

/// Serves a folder or a file until a signal ends it.
pub(crate) fn serve(mut serve: Serve) -> Result<ExitCode, Problem> {
    take_folder_from_https(&mut serve)?;
    let https = Https::of(&serve.bind)?;
    let (dir, file) = locate(&serve)?;
    if serve.cgi && crate::user::is_root() && !serve.cgi_allow_root {
        return Err(Problem::new(
            "CGI programs would run as root: start as another user, or add --cgi-allow-root",
        ));
    }
    let listens = addresses::listens(&serve.bind, &https)?;
    let users = password::users(&serve)?;
    let reach = Reach::of(&listens);
    let is_private = reach == Reach::ThisMachine;
    let is_listed = is_private || serve.upload || serve.archive || serve.webdav;
    serve.open_listing = !serve.no_listing && (serve.open_listing || is_listed);
    if users.is_none() {
        warn_of_open_writes(&serve, reach);
    }
    let proxied = serve.proxy.iter().map(|(path, to)| Ok((path.as_str(), Target::read(to)?)));
    let proxied = proxied.collect::<Result<Vec<_>, Problem>>()?;
    let content = Content::Folder {
        serve: &serve,
        file: file.as_deref(),
        users: users.as_ref().map(password::Users::path),
        proxied: &proxied,
    };
    let text =
        builtin::site(&Site { bind: &serve.bind, listens: &listens, https: &https, content });
    let server = start(Plan::builtin(text, dir.clone()), &serve.bind)?;
    let shown = file.map_or_else(|| dir.clone(), |name| dir.join(name));
    let links = tell_links(&serve.bind, &server, &https, |link| {
        format!("serves {} on {link}", shown.display())
    });
    tell(&serve, &dir, &server);
    if serve.qr {
        let link = links.iter().find(|link| addresses::is_for_others(link)).or(links.first());
        let link = link.ok_or_else(|| Problem::new("--qr: there is no address to show"))?;
        terminal::tell(format_args!("\n{}\n{link}\n", qr::code(link)?));
    }
    let code = server.run();
    // A folder that is shared for a while is left as it was found.
    sekisho_net::forget_finished(&dir);
    drop(users);
    Ok(code)
}

/// Passes requests on until a signal ends it.
pub(crate) fn proxy(mut proxy: Proxy) -> Result<ExitCode, Problem> {
    let is_taken = proxy.from_to.is_empty() && proxy.to.is_empty();
    if let Some(to) = proxy.bind.https.take_if(|to| is_taken && !to.is_empty()) {
        // `proxy --https :3000`
        proxy.from_to.push(to);
        proxy.bind.https = Some(String::new());
    }
    if let [from, _] = proxy.from_to.as_slice() {
        proxy.bind.listen.push(from.clone());
    }
    let all: Vec<&String> = proxy.from_to.last().into_iter().chain(&proxy.to).collect();
    let targets = all.into_iter().map(|to| Target::read(to)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = targets.first() else {
        return Err(Problem::new("where to? For example: sekisho proxy :3000"));
    };
    if targets.iter().any(|target| target.scheme != first.scheme || target.path != first.path) {
        return Err(Problem::new("all servers must have the same scheme and the same path"));
    }
    let https = Https::of(&proxy.bind)?;
    let listens = addresses::listens(&proxy.bind, &https)?;
    let content = Content::Proxy(&targets);
    let text =
        builtin::site(&Site { bind: &proxy.bind, listens: &listens, https: &https, content });
    let server = start(Plan::builtin(text, PathBuf::from("/")), &proxy.bind)?;
    let shown = targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tell_links(&proxy.bind, &server, &https, |link| {
        format!("passes requests for {link} on to {shown}")
    });
    Ok(server.run())
}

/// Starts the server; a port that is taken gets a hint.
fn start(plan: Plan, bind: &Bind) -> Result<Server, Problem> {
    Server::start(plan).map_err(|problem| {
        let is_taken = problem.0.contains("is in use");
        if is_taken && bind.listen.is_empty() {
            return Problem::new(format_args!(
                "{problem}; choose a port with -p PORT, or any free one with -p 0"
            ));
        }
        problem
    })
}

/// `--https DIR` means the folder. A name is never taken for a folder that is mistyped: with a name there is a folder as
/// well.
fn take_folder_from_https(serve: &mut Serve) -> Result<(), Problem> {
    let Some(name) = serve.bind.https.clone().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    if serve.path.is_some() {
        return Ok(());
    }
    if name.starts_with('.') || name.contains('/') || Path::new(&name).is_dir() {
        serve.path = Some(PathBuf::from(name));
        serve.bind.https = Some(String::new());
        return Ok(());
    }
    Err(Problem::new(format_args!(
        "--https {name}: there is no such folder. If it is a public name, name the folder as well: \
         sekisho serve --https {name} DIR (a dot is the current folder)"
    )))
}

/// The folder, and the file in it if only one file is served.
fn locate(serve: &Serve) -> Result<(PathBuf, Option<String>), Problem> {
    let path = serve.path.as_deref().unwrap_or(Path::new("."));
    let name = path.display();
    let failed = |error: std::io::Error| Problem::new(format_args!("{name}: {error}"));
    let found = std::fs::canonicalize(path).map_err(failed)?;
    if found.is_file() {
        std::fs::File::open(&found).map_err(failed)?;
        let of_folders = [
            (serve.upload, "--upload"),
            (serve.delete, "--delete"),
            (serve.webdav, "--webdav"),
            (serve.archive, "--archive"),
            (serve.cgi, "--cgi"),
            (serve.spa, "--spa"),
        ];
        if let Some((_, option)) = of_folders.iter().find(|(is_set, _)| *is_set) {
            return Err(Problem::new(format_args!("{option} needs a folder; {name} is a file")));
        }
        let file = found.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let file =
            file.ok_or_else(|| Problem::new(format_args!("{name}: the name is not UTF-8")))?;
        return Ok((found.parent().unwrap_or(Path::new("/")).to_owned(), Some(file)));
    }
    std::fs::read_dir(&found).map_err(failed)?;
    if serve.spa && !found.join("index.html").is_file() {
        return Err(Problem::new(format_args!("--spa: {name} has no index.html")));
    }
    Ok((found, None))
}

/// Warns an operator who lets a whole network change the folder.
fn warn_of_open_writes(serve: &Serve, reach: Reach) {
    if reach == Reach::ThisMachine {
        return;
    }
    let what = match (serve.upload || serve.webdav, serve.delete || serve.webdav) {
        (false, false) => return,
        (true, false) => "add files to",
        (false, true) => "delete and rename files in",
        (true, true) => "add, replace, rename and delete files in",
    };
    terminal::complain(format_args!(
        "WARNING: everyone who can reach this machine over the network can {what} this folder.\n\
         WARNING: ask for a password with --password USER, or listen on this machine only (without -l).\n"
    ));
}

/// Shows the addresses at which the server can be reached, and returns them.
fn tell_links(
    bind: &Bind,
    server: &Server,
    https: &Https,
    text: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut reached = server.addresses();
    reached.retain(|address| !is_redirect(address, https, bind));
    let links = match https {
        Https::Off => addresses::links(&reached, "http"),
        Https::Local(..) | Https::Given(..) => addresses::links(&reached, "https"),
        Https::Named(order) => addresses::named_links(&reached, &order.name),
    };
    let told = links.iter().map(|link| format!("Sekisho {}\n", text(link)));
    terminal::tell(told.collect::<String>());
    https.tell();
    links
}

/// Shows what is served, and what could be.
fn tell(serve: &Serve, dir: &Path, server: &Server) {
    if serve.webdav {
        terminal::tell("WebDAV clients can mount the same address.\n");
    }
    if serve.cgi {
        terminal::tell(
            "Files in cgi-bin, and files that end in .cgi .sh .py .pl .php, run as CGI programs.\n",
        );
    }
    let has_index = || builtin::indexes(serve).iter().any(|name| dir.join(name).exists());
    if !serve.open_listing
        && !serve.path.as_ref().is_some_and(|path| path.is_file())
        && !has_index()
    {
        terminal::tell("There is no index.html; `--open-listing` lists the folder.\n");
    }
    let is_private = Reach::of_addresses(&server.addresses()) == Reach::ThisMachine;
    if is_private && serve.bind.listen.is_empty() {
        terminal::tell(
            "Only this machine can connect; `-l PORT` shares the folder with the network.\n",
        );
    }
}

/// Whether an address only leads to the one with TLS.
fn is_redirect(address: &ListenAddress, https: &Https, bind: &Bind) -> bool {
    let is_80 = matches!(address, ListenAddress::Tcp(at) if at.port() == 80);
    is_80 && matches!(https, Https::Named(_)) && bind.listen.is_empty()
}
