//! `sekisho serve`: a folder without any configuration file. Its options become configuration text
//! (`builtin.rs`); here is what that language cannot express: free ports, both families of addresses, a
//! password from the command line, and what the terminal shows.

mod addresses;
mod password;
mod qr;

use std::path::Path;
use std::process::ExitCode;

use sekisho_config::ListenAddress;

use crate::cli::Serve;
use crate::https::Https;
use crate::run::Server;
use crate::setup::Plan;
use crate::{Problem, builtin, terminal};
use addresses::Reach;
use password::UsersFile;

/// Serves a folder until a signal ends it.
pub(crate) fn run(mut serve: Serve) -> Result<ExitCode, Problem> {
    let https = Https::of(&mut serve)?;
    let serve = &serve;
    let dir = folder(serve)?;
    if serve.cgi && crate::user::is_root() && !serve.cgi_allow_root {
        return Err(Problem::new(
            "CGI programs would run as root: start as another user, or add --cgi-allow-root",
        ));
    }
    let listens = addresses::listens(serve, &https)?;
    let users = serve.password.as_deref().map(password::users_file).transpose()?;
    let reach = Reach::of(&listens);
    warn_of_open_writes(serve, reach);
    let text = builtin::folder(serve, &listens, users.as_ref().map(UsersFile::path), &https);
    let server = Server::start(Plan::builtin(text, dir.clone()))?;
    tell(serve, &dir, &server, &https)?;
    let code = server.run();
    // A folder that is shared for a while is left as it was found.
    sekisho_net::forget_finished(&dir);
    drop(users);
    Ok(code)
}

fn folder(serve: &Serve) -> Result<std::path::PathBuf, Problem> {
    let name = serve.folder().display();
    let dir = std::fs::canonicalize(serve.folder())
        .map_err(|error| Problem::new(format_args!("{name}: {error}")))?;
    if !dir.is_dir() {
        return Err(Problem::new(format_args!("{name}: not a directory")));
    }
    if let Err(error) = std::fs::read_dir(&dir) {
        return Err(Problem::new(format_args!("{name}: {error}")));
    }
    if serve.spa && !dir.join("index.html").is_file() {
        return Err(Problem::new(format_args!("--spa: {name} has no index.html")));
    }
    Ok(dir)
}

/// Warns an operator who lets a whole network change the folder.
fn warn_of_open_writes(serve: &Serve, reach: Reach) {
    if serve.password.is_some() || reach == Reach::ThisMachine {
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

/// What the terminal shows when the server runs.
fn tell(serve: &Serve, dir: &Path, server: &Server, https: &Https) -> Result<(), Problem> {
    let mut reached = server.addresses();
    reached.retain(|address| !is_redirect(address, https, serve));
    let links = match https {
        Https::Off => addresses::links(&reached, "http"),
        Https::Local(..) => addresses::links(&reached, "https"),
        Https::Named(order) => addresses::named_links(&reached, &order.name),
    };
    let told = links.iter().map(|link| format!("Sekisho serves {} on {link}\n", dir.display()));
    terminal::tell(told.collect::<String>());
    https.tell();
    if serve.webdav {
        terminal::tell("WebDAV clients can mount the same address.\n");
    }
    if serve.cgi {
        terminal::tell(
            "Files in cgi-bin, and files that end in .cgi .sh .py .pl .php, run as CGI programs.\n",
        );
    }
    let shows = serve.shows_listing();
    if !shows && !builtin::indexes(serve).iter().any(|name| dir.join(name).exists()) {
        terminal::tell("There is no index.html; `--open-listing` lists the folder.\n");
    }
    if Reach::of_addresses(&server.addresses()) == Reach::ThisMachine && serve.listen.is_empty() {
        terminal::tell(
            "Only this machine can connect; `-l PORT` shares the folder with the network.\n",
        );
    }
    if serve.qr {
        let link = links.iter().find(|link| addresses::is_for_others(link)).or(links.first());
        let link = link.ok_or_else(|| Problem::new("--qr: there is no address to show"))?;
        terminal::tell(format_args!("\n{}\n{link}\n", qr::code(link)?));
    }
    Ok(())
}

/// Whether an address only leads to the one with TLS.
fn is_redirect(address: &ListenAddress, https: &Https, serve: &Serve) -> bool {
    let is_80 = matches!(address, ListenAddress::Tcp(at) if at.port() == 80);
    is_80 && matches!(https, Https::Named(_)) && serve.listen.is_empty()
}
