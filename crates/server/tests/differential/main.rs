//! Random configurations, the same for nginx and for this server, and the same requests to both: the answers
//! are the same. A few configurations in every run, a thousand with `SEKISHO_LONG=1`. A failure names the
//! seed of its configuration, which makes the same one again: `SEKISHO_SEED=n` asks for that one alone.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod generate;
mod random;

use common::BINARY;
use generate::{Site, requests, site};
use sekisho_testkit::{Client, Response, Server, Tree, have};

const NGINX: &str = "nginx";
/// How many configurations go into one file.
const BATCH: u64 = 100;
const FEW: u64 = 100;
const MANY: u64 = 1000;
/// Differences beyond these add nothing to what a reader learns.
const SHOWN_MAX: usize = 12;

/// The files that all configurations are about. Each begins with a word that no error page has.
fn files() -> Tree {
    let tree = Tree::new();
    let names = [
        "index.html",
        "a.txt",
        "secret.txt",
        "p/index.html",
        "p/a.txt",
        "p/q/index.html",
        "p/q/a.txt",
        "p/q/r/a.txt",
        "p/b.html",
        "e/only.txt",
        "pages/403.html",
        "pages/404.html",
        "pages/index.html",
    ];
    for folder in ["root", "other"] {
        for name in names {
            tree.file(&format!("{folder}/{name}"), format!("file:{folder}/{name}"));
        }
    }
    tree.file("users", "ann:{PLAIN}secret\n");
    tree.mode(".", 0o755);
    tree
}

/// What a client learns from an answer.
fn learned(server: &Server, method: &str, response: &Response) -> String {
    let port = format!(":{}", server.address().port());
    let location = response.field("location").unwrap_or_default().replace(&port, "");
    // nginx adds one for each location that has asked; the last one is of the location that refused.
    let challenges = response.fields_named("www-authenticate");
    let challenge = challenges.last().copied().unwrap_or_default();
    let text = response.text();
    let is_told = text.starts_with("file:") || text.starts_with("text:") || text.starts_with('[');
    let body = match method {
        "HEAD" => "",
        _ if is_told => &text,
        _ => "page",
    };
    format!("{} {location} {challenge} {body}", response.status)
}

/// A connection that is opened again where a server has closed it.
struct Asker<'a> {
    server: &'a Server,
    client: Option<Client>,
}

impl Asker<'_> {
    fn ask(&mut self, host: &str, method: &str, target: &str, fields: &str) -> String {
        let client = self.client.get_or_insert_with(|| self.server.connect());
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        client.send(head);
        match client.try_read_response(method == "HEAD") {
            Ok(response) => {
                if response.field("connection").is_some_and(|value| value == "close") {
                    self.client = None;
                }
                learned(self.server, method, &response)
            }
            Err(error) => {
                self.client = None;
                format!("no answer: {error}")
            }
        }
    }
}

/// A whole configuration for nginx, as a plain process in the foreground.
fn their_config(body: &str) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {{dir}}/temporary;")).concat();
    format!(
        "daemon off; master_process off; pid {{dir}}/nginx.pid; error_log {{dir}}/error.log notice;\n\
         events {{}}\nhttp {{\n{temporary}{body}\n}}\n"
    )
}

/// The same for this server.
fn own_config(body: &str) -> String {
    format!(
        "worker_processes 1; error_log {{dir}}/error.log info;\nevents {{}}\nhttp {{\n{body}\n}}\n"
    )
}

fn compare(seeds: impl Iterator<Item = u64>, differing: &mut Vec<String>) {
    let files = files();
    let sites: Vec<Site> = seeds.map(site).collect();
    let servers: String = sites.iter().map(|site| site.text.as_str()).collect();
    let body = format!(
        "access_log off; autoindex_format json; types {{ text/html html; text/plain txt; }}\n\
         server_names_hash_bucket_size 64; server_names_hash_max_size 4096;\n\
         server {{ listen 127.0.0.1:{{port}} default_server; return 444; }}\n{servers}"
    )
    .replace("{files}", &files.dir().display().to_string());
    let (theirs, own) = (their_config(&body), own_config(&body));
    let theirs = Server::start_in(Tree::new(), NGINX, &theirs);
    let own = Server::start_in(Tree::new(), BINARY, &own);
    let mut askers = [&theirs, &own].map(|server| Asker { server, client: None });
    for site in &sites {
        let mut found = Vec::new();
        for (method, target, fields) in requests(site.seed) {
            let [theirs, own] =
                askers.each_mut().map(|asker| asker.ask(&site.host, &method, &target, &fields));
            if theirs != own {
                found.push(format!(
                    "{method} {target} {fields:?}\n    nginx: {theirs}\n    ours:  {own}"
                ));
            }
        }
        if !found.is_empty() {
            let count = found.len();
            found.truncate(3);
            differing.push(format!(
                "seed {} ({count} requests):\n{}\n  {}",
                site.seed,
                site.text,
                found.join("\n  ")
            ));
        }
    }
}

/// F7, V1: this server shows nothing that nginx would not show with the same configuration, and the reverse.
#[test]
fn who_may_see_what_is_the_same_as_in_nginx() {
    if !have(NGINX) {
        return;
    }
    let named = std::env::var("SEKISHO_SEED").ok().and_then(|seed| seed.parse().ok());
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let (first, count): (u64, u64) = match named {
        Some(seed) => (seed, 1),
        None => (0, if is_long { MANY } else { FEW }),
    };
    let mut differing = Vec::new();
    let mut start = first;
    while start < first + count {
        let end = (start + BATCH).min(first + count);
        compare(start..end, &mut differing);
        start = end;
    }
    let all = differing.len();
    differing.truncate(SHOWN_MAX);
    assert!(all == 0, "{all} of {count} configurations differ\n{}", differing.join("\n"));
}
