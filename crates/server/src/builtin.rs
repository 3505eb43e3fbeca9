//! Configurations that need no file: the built-in site, `sekisho serve` and `sekisho proxy`. All are configuration text,
//! so that there is one way to configure and what they do can be read.

use std::fmt::Write;
use std::path::Path;

use crate::cli::{Bind, Serve};
use crate::https::Https;
use crate::serve::Target;

/// What plain `sekisho` serves.
pub(crate) fn default_site(port: u16) -> String {
    let page = quote(include_str!("builtin.html"));
    format!(
        "worker_processes 1;\n\
         pid off;\n\
         error_log stderr warn;\n\
         events {{}}\n\
         http {{\n\
             access_log off;\n\
             server {{\n\
                 listen 127.0.0.1:{port};\n\
                 default_type \"text/html; charset=utf-8\";\n\
                 types {{ }}\n\
                 location = / {{ return 200 {page}; }}\n\
                 location / {{ return 404; }}\n\
             }}\n\
         }}\n"
    )
}

/// A site of the command line.
pub(crate) struct Site<'a> {
    pub(crate) bind: &'a Bind,
    pub(crate) listens: &'a [String],
    pub(crate) https: &'a Https,
    pub(crate) content: Content<'a>,
}

/// What a site consists of.
pub(crate) enum Content<'a> {
    /// `sekisho serve`: a folder, or one file of it; paths below which requests are passed on.
    Folder {
        serve: &'a Serve,
        file: Option<&'a str>,
        users: Option<&'a Path>,
        proxied: &'a [(&'a str, Target)],
    },
    /// `sekisho proxy`
    Proxy(&'a [Target]),
}

/// The configuration of a site.
///
/// The folder itself is the prefix, so that its name, whatever is in it, never passes through the
/// language.
pub(crate) fn site(site: &Site<'_>) -> String {
    let Site { bind, https, .. } = site;
    let listens: Vec<&str> = site.listens.iter().map(String::as_str).collect();
    let listen = listen_lines(&listens, https, "");
    format!(
        "worker_processes {workers};\n\
         {user}\n\
         pid off;\n\
         error_log stderr error;\n\
         events {{}}\n\
         http {{\n\
             access_log {access};\n\
             {https}\n\
             {others}\n\
             {shared}\n\
             {headers}\n\
             server {{\n\
                 {listen}\n\
                 {order}\n\
                 server_name {names};\n\
                 client_header_timeout 10s;\n\
                 keepalive_timeout 30s;\n\
                 {content}\n\
             }}\n\
         }}\n",
        workers = quote(&bind.workers),
        user = user(&site.content),
        https = https_settings(bind, https),
        order = if matches!(https, Https::Named(_)) { ORDER } else { "" },
        others = other_names(bind, &listens, https),
        names = names(bind, &listens, https),
        shared = shared(&site.content),
        headers = headers(bind),
        content = match &site.content {
            Content::Folder { serve, file, users, proxied } => {
                folder(serve, *file, *users, proxied)
            }
            Content::Proxy(targets) => proxy("/", "servers", &targets[0], targets.len() > 1),
        },
        access = if bind.quiet { "off" } else { "stderr" },
    )
}

/// What a site needs in the `http` block.
fn shared(content: &Content<'_>) -> String {
    let mut text = String::new();
    match content {
        Content::Folder { serve, proxied, .. } => {
            text.push_str(if serve.compress == "on" { COMPRESSION } else { "" });
            text.push_str(if serve.cors { CORS } else { "" });
            for (at, (_, target)) in proxied.iter().enumerate() {
                text.push_str(&upstream(&format!("servers{at}"), std::slice::from_ref(target)));
            }
            text.push_str(if proxied.is_empty() { "" } else { UPGRADE });
        }
        Content::Proxy(targets) => {
            text.push_str(&upstream("servers", targets));
            text.push_str(UPGRADE);
            text.push_str(ALIVE);
        }
    }
    text
}

/// `--header`
fn headers(bind: &Bind) -> String {
    let line = |(name, value): &(String, String)| {
        format!("add_header {} {} always;\n", quote(name), quote(&value.replace('$', "${dollar}")))
    };
    let mut text: String = bind.header.iter().map(line).collect();
    if bind.header.iter().any(|(_, value)| value.contains('$')) {
        text.push_str("geo $dollar { default '$'; }\n");
    }
    text
}

/// The server block of `serve`.
fn folder(
    serve: &Serve,
    file: Option<&str>,
    users: Option<&Path>,
    proxied: &[(&str, Target)],
) -> String {
    let passed = proxied
        .iter()
        .enumerate()
        .map(|(at, (path, target))| proxy(path, &format!("servers{at}"), target, false));
    format!(
        "root .;\n\
         {hidden}\n\
         {password}\n\
         {preflight}\n\
         {spa}\n\
         index {index};\n\
         {programs}\n\
         {file_ops}\n\
         default_type application/octet-stream;\n\
         charset utf-8;\n\
         autoindex {autoindex};\n\
         autoindex_exact_size off;\n\
         autoindex_localtime on;\n\
         {listing}\n\
         {passed}\n",
        hidden = match file {
            Some(file) => one_file(file),
            // Files that a listing hides are not served to a client that guesses their names.
            None if !serve.hidden => "location ~ /\\. { return 404; }".to_owned(),
            None => String::new(),
        },
        index = indexes(serve).join(" "),
        preflight = if serve.cors { PREFLIGHT } else { "" },
        password = users.map(password).unwrap_or_default(),
        spa = if serve.spa { SPA } else { "" },
        listing = listing(serve),
        programs = if serve.cgi { programs(serve) } else { String::new() },
        file_ops = file_ops(serve),
        autoindex = if serve.open_listing { "on" } else { "off" },
        passed = passed.collect::<String>(),
    )
}

/// One file, and the way to it.
fn one_file(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut url = String::from("/");
    for byte in name.bytes() {
        if is_plain(byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    format!(
        "location = / {{ return 302 {url}; }}\n\
         location = {} {{ }}\n\
         location / {{ return 404; }}",
        quote(&format!("/{name}"))
    )
}

/// The servers that requests are passed on to.
fn upstream(name: &str, targets: &[Target]) -> String {
    let server = |target: &Target| format!("server {};\n", quote(&target.server));
    let servers: String = targets.iter().map(server).collect();
    format!("upstream {name} {{ zone {name} 64k; {servers} keepalive 32; }}\n")
}

/// Tunnels keep their `Upgrade`; other connections to servers are kept.
const UPGRADE: &str = "map $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n";

/// A server that responds at all is alive, whatever it says about `/`.
const ALIVE: &str = "match alive { status 100-599; }\n";

/// A location whose requests are passed on. A server of a group that does not respond is left out.
fn proxy(path: &str, group: &str, target: &Target, is_checked: bool) -> String {
    let tls = target.host_name().map(|name| {
        let name = quote(name);
        format!("proxy_ssl_server_name on; proxy_ssl_name {name};\n")
    });
    let tls = tls.filter(|_| target.scheme == "https").unwrap_or_default();
    // A server elsewhere is asked by its own name, as a browser would.
    let host = target.host_name().map_or_else(|| "$http_host".to_owned(), quote);
    let check = if is_checked { "health_check interval=2s match=alive;" } else { "" };
    format!(
        "location {path} {{\n\
             proxy_pass {scheme}://{group}{below};\n\
             proxy_http_version 1.1;\n\
             proxy_set_header Host {host};\n\
             proxy_set_header Upgrade $http_upgrade;\n\
             proxy_set_header Connection $connection_upgrade;\n\
             proxy_set_header X-Real-IP $remote_addr;\n\
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             proxy_set_header X-Forwarded-Proto $scheme;\n\
             proxy_set_header X-Forwarded-Host $http_host;\n\
             client_max_body_size 0;\n\
             {tls}{check}\n\
         }}\n",
        path = quote(path),
        scheme = target.scheme,
        below = target.path,
    )
}

/// A path that is no file is one of the application's, unless it has the form of a file's name: a missing script is a 404.
const SPA: &str =
    r"location ~ \.\w+$ { try_files $uri =404; } try_files $uri $uri/index.html /index.html;";

/// What it adds to the server of a name.
const ORDER: &str = "acme_certificate authority; ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;";

/// What `--https` adds to the `http` block.
fn https_settings(bind: &Bind, https: &Https) -> String {
    let path = |path: &Path| quote(&path.to_string_lossy());
    match https {
        Https::Off => String::new(),
        Https::Local(certificate, _) => {
            let file = path(certificate);
            format!("http2 on; ssl_certificate {file}; ssl_certificate_key {file};")
        }
        Https::Given(certificate, key) => {
            let (certificate, key) = (path(certificate), path(key));
            format!("http2 on; ssl_certificate {certificate}; ssl_certificate_key {key};")
        }
        Https::Named(order) => {
            let (uri, state, name) = (quote(&order.uri), path(&order.state), quote(&order.name));
            let root = order.root.as_deref().map(|root| {
                let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
                format!("ssl_trusted_certificate {}; ", path(&root))
            });
            let root = root.unwrap_or_default();
            // Port 80 is for clients without TLS; the authority looks at port 443.
            let redirect = if bind.listen.is_empty() {
                format!(
                    "server {{ listen 80; server_name {name}; return 301 https://$host$request_uri; }}"
                )
            } else {
                String::new()
            };
            format!(
                "http2 on;\n\
                 acme_issuer authority {{ uri {uri}; challenge tls-alpn-01; state_path {state}; {root}accept_terms_of_service; }}\n\
                 {redirect}"
            )
        }
    }
}

/// `--compress`
const COMPRESSION: &str = "gzip on; brotli on; zstd on;
    gzip_types   text/css text/plain text/javascript application/javascript application/json text/xml application/xml image/svg+xml;
    brotli_types text/css text/plain text/javascript application/javascript application/json text/xml application/xml image/svg+xml;
    zstd_types   text/css text/plain text/javascript application/javascript application/json text/xml application/xml image/svg+xml;";

/// `--cors`: other sites may read, and nothing else. Some fields belong to answers to preflight requests alone.
const CORS: &str = "map $http_access_control_request_method $cors_methods { '' ''; default 'GET, HEAD, OPTIONS'; }
    map $http_access_control_request_headers $cors_headers { '' ''; default $http_access_control_request_headers; }
    add_header Access-Control-Allow-Origin '*' always;
    add_header Access-Control-Expose-Headers 'Content-Length, Content-Range, Accept-Ranges, ETag' always;
    add_header Access-Control-Allow-Methods $cors_methods;
    add_header Access-Control-Allow-Headers $cors_headers;";

/// A preflight request has no password, and needs none.
const PREFLIGHT: &str = "if ($cors_methods) { return 204; }";

/// `--password`
fn password(users: &Path) -> String {
    format!("auth_basic Sekisho; auth_basic_user_file {};", quote(&users.display().to_string()))
}

/// `--archive` and `--title`
fn listing(serve: &Serve) -> String {
    let mut text = String::new();
    if serve.open_listing {
        text.push_str("autoindex_search on; ");
    }
    if serve.archive {
        text.push_str("autoindex_archive zip tar; ");
    }
    if let Some(title) = &serve.title {
        let _ = write!(text, "autoindex_title {};", quote(title));
    }
    text
}

/// Whether only this machine reaches an address by TCP.
fn loopback(address: &str) -> Option<&str> {
    let (host, _port) = address.rsplit_once(':')?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_ip = |ip: std::net::IpAddr| ip.is_loopback();
    let is_loopback = host == "localhost" || bare.parse().is_ok_and(is_ip);
    is_loopback.then_some(host)
}

/// The `listen` directives of these addresses: with `--https` for QUIC as well, where the address has a port.
fn listen_lines(listens: &[&str], https: &Https, option: &str) -> String {
    let mut lines = String::new();
    for address in listens {
        let quoted = quote(address);
        let _ = match https {
            Https::Off => write!(lines, "listen {quoted}{option}; "),
            _ if address.starts_with("unix:") => write!(lines, "listen {quoted} ssl{option}; "),
            _ => write!(lines, "listen {quoted} ssl{option}; listen {quoted} quic{option}; "),
        };
    }
    lines
}

/// The names that are answered to on loopback addresses. A page of another site may reach this machine by a name
/// of its own that leads here (DNS rebinding); it cannot choose these.
fn names(bind: &Bind, listens: &[&str], https: &Https) -> String {
    if let Https::Named(order) = https {
        // The one that is ordered for comes first, and nothing else is.
        return quote(&order.name);
    }
    let known = ["", "localhost", "127.0.0.1", "[::1]"];
    let own = listens.iter().filter_map(|address| loopback(address));
    let mut names: Vec<&str> = known.into_iter().chain(own).collect();
    names.extend(bind.host.iter().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(" ")
}

/// What is answered to other names on loopback addresses.
///
/// The page and the line on the terminal say how to have them served.
fn other_names(bind: &Bind, listens: &[&str], https: &Https) -> String {
    let handshakes = match https {
        Https::Off | Https::Local(..) | Https::Given(..) => "",
        Https::Named(_) => "ssl_reject_handshake on;",
    };
    let near: Vec<&str> =
        listens.iter().copied().filter(|address| loopback(address).is_some()).collect();
    let listen = listen_lines(&near, https, " default_server");
    if listen.is_empty() {
        return listen;
    }
    let log = if bind.quiet { "off" } else { "stderr other_names" };
    format!(
        "log_format other_names '$remote_addr - [$time_local] \"$request\" $status: this server does not answer to \
         \"$host\"; to let it, start it with --host $host';\n\
         server {{ {listen} server_name _; {handshakes} access_log {log}; default_type 'text/plain; charset=utf-8';\n\
         return 421 'This server does not answer to the name \"$host\". To let it, start it with --host $host\\n'; }}"
    )
}

/// The server keeps the user that started it, root too: the folder may be readable for that user alone.
fn user(content: &Content<'_>) -> &'static str {
    let runs_programs = matches!(content, Content::Folder { serve, .. } if serve.cgi_allow_root);
    match (crate::user::is_root(), runs_programs) {
        (false, _) => "",
        (true, false) => "user root;",
        (true, true) => "user root; cgi_allow_root on;",
    }
}

/// The index files of a folder.
pub(crate) fn indexes(serve: &Serve) -> &'static [&'static str] {
    const ALL: [&str; 5] = ["index.html", "index.htm", "index.cgi", "index.py", "index.php"];
    if serve.cgi { &ALL } else { &ALL[..2] }
}

/// `--upload` and `--delete`
fn file_ops(serve: &Serve) -> String {
    let methods = match (serve.upload || serve.webdav, serve.delete || serve.webdav) {
        (false, false) => return String::new(),
        (true, false) => "PUT MKCOL",
        (false, true) => "DELETE MOVE",
        (true, true) => "PUT MKCOL COPY DELETE MOVE",
    };
    let mut text = format!("dav_methods {methods};\n");
    if serve.webdav {
        text.push_str("dav_ext_methods PROPFIND PROPPATCH OPTIONS LOCK UNLOCK;\n");
    }
    if serve.upload || serve.webdav {
        text.push_str(
            "dav_access user:rw group:r all:r;\n\
             create_full_put_path on;\n\
             client_max_body_size 0;\n\
             upload_store $request_filename;\n\
             upload_resumable on;\n",
        );
        // A client of WebDAV that saves a file means that file.
        text.push_str(if serve.webdav { "" } else { "upload_conflict rename;\n" });
    }
    if serve.delete || serve.webdav {
        text.push_str("upload_delete_directories recursive;\n");
    }
    text
}

/// What runs files of which extension.
const LANGUAGES: [(&str, &str); 4] =
    [(".sh", "sh"), (".py", "python3"), (".pl", "perl"), (".php", "php-cgi")];

/// `--cgi`. A language without its interpreter is listed all the same: its files must then be executable
/// themselves, and are never sent as they are.
fn programs(serve: &Serve) -> String {
    let mut text = String::from("location /cgi-bin/ { cgi on; }\ncgi_extension .cgi;\n");
    if let Some(time) = &serve.timeout {
        let _ = writeln!(text, "cgi_read_timeout {};", quote(time));
    }
    for (extension, name) in LANGUAGES {
        let interpreter = interpreter(name).map(|path| quote(&path)).unwrap_or_default();
        let _ = writeln!(text, "cgi_extension {extension} {interpreter};");
    }
    text
}

/// Where an interpreter lies.
fn interpreter(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| {
        let is_ours = rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
        is_ours && file.is_absolute() && file.is_file()
    })?;
    // A path that is not UTF-8 cannot be configured, and one with a variable in it is not.
    found.to_str().filter(|path| !path.contains('$')).map(str::to_owned)
}

/// A word that is taken as it is.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('\'');
    out
}
