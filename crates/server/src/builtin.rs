//! Configurations that need no file: the built-in site, and `sekisho serve`. Both are configuration
//! text, so that there is one way to configure and what they do can be read.

use std::fmt::Write;
use std::path::Path;

use crate::cli::Serve;
use crate::https::Https;

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

/// What `sekisho serve` serves.
///
/// The folder itself is the prefix, so that its name, whatever is in it, never passes through the
/// language.
pub(crate) fn folder(
    serve: &Serve,
    listens: &[String],
    users: Option<&Path>,
    https: &Https,
) -> String {
    let listens: Vec<&str> = listens.iter().map(String::as_str).collect();
    let tls = if matches!(https, Https::Off) { "" } else { " ssl" };
    let mut listen = String::new();
    for address in &listens {
        let _ = write!(listen, "listen {}{tls}; ", quote(address));
    }
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
             {compression}\n\
             {cors}\n\
             server {{\n\
                 {listen}\n\
                 {order}\n\
                 server_name {names};\n\
                 root .;\n\
                 {hidden}\n\
                 {password}\n\
                 {preflight}\n\
                 {spa}\n\
                 client_header_timeout 10s;\n\
                 keepalive_timeout 30s;\n\
                 index {index};\n\
                 {programs}\n\
                 {file_ops}\n\
                 default_type application/octet-stream;\n\
                 charset utf-8;\n\
                 autoindex {autoindex};\n\
                 autoindex_exact_size off;\n\
                 autoindex_localtime on;\n\
                 {listing}\n\
             }}\n\
         }}\n",
        workers = quote(&serve.workers),
        user = user(serve),
        https = https_settings(serve, https),
        order = if matches!(https, Https::Named(_)) { ORDER } else { "" },
        others = other_names(serve, &listens, https),
        names = names(serve, &listens, https),
        // Files that a listing hides are not served to a client that guesses their names.
        hidden = if serve.hidden { "" } else { "location ~ /\\. { return 404; }" },
        index = indexes(serve).join(" "),
        compression = if serve.compress == "on" { COMPRESSION } else { "" },
        cors = if serve.cors { CORS } else { "" },
        preflight = if serve.cors { PREFLIGHT } else { "" },
        password = users.map(password).unwrap_or_default(),
        spa = if serve.spa { SPA } else { "" },
        listing = listing(serve),
        programs = if serve.cgi { programs(serve) } else { String::new() },
        file_ops = file_ops(serve),
        access = if serve.quiet { "off" } else { "stderr" },
        autoindex = if serve.shows_listing() { "on" } else { "off" },
    )
}

/// A path that is no file is one of the application's, unless it has the form of a file's name: a missing script is a 404.
const SPA: &str =
    r"location ~ \.\w+$ { try_files $uri =404; } try_files $uri $uri/index.html /index.html;";

/// What it adds to the server of a name.
const ORDER: &str = "acme_certificate authority; ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;";

/// What `--https` adds to the `http` block.
fn https_settings(serve: &Serve, https: &Https) -> String {
    let path = |path: &Path| quote(&path.to_string_lossy());
    match https {
        Https::Off => String::new(),
        Https::Local(certificate, _) => {
            let file = path(certificate);
            format!("http2 on; ssl_certificate {file}; ssl_certificate_key {file};")
        }
        Https::Named(order) => {
            let (uri, state, name) = (quote(&order.uri), path(&order.state), quote(&order.name));
            let root = order.root.as_deref().map(|root| {
                let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
                format!("ssl_trusted_certificate {}; ", path(&root))
            });
            let root = root.unwrap_or_default();
            // Port 80 is for clients without TLS; the authority looks at port 443.
            let redirect = if serve.listen.is_empty() {
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
    if serve.shows_listing() {
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

/// The names that are answered to on loopback addresses. A page of another site may reach this machine by a name
/// of its own that leads here (DNS rebinding); it cannot choose these.
fn names(serve: &Serve, listens: &[&str], https: &Https) -> String {
    if let Https::Named(order) = https {
        // The one that is ordered for comes first, and nothing else is.
        return quote(&order.name);
    }
    let known = ["", "localhost", "127.0.0.1", "[::1]"];
    let own = listens.iter().filter_map(|address| loopback(address));
    let mut names: Vec<&str> = known.into_iter().chain(own).collect();
    names.extend(serve.host.iter().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(" ")
}

/// What is answered to other names on loopback addresses.
///
/// The page and the line on the terminal say how to have them served.
fn other_names(serve: &Serve, listens: &[&str], https: &Https) -> String {
    let (tls, handshakes) = match https {
        Https::Off => ("", ""),
        Https::Local(..) => (" ssl", ""),
        Https::Named(_) => (" ssl", "ssl_reject_handshake on;"),
    };
    let mut listen = String::new();
    for address in listens.iter().filter(|address| loopback(address).is_some()) {
        let _ = write!(listen, "listen {}{tls} default_server; ", quote(address));
    }
    if listen.is_empty() {
        return listen;
    }
    let log = if serve.quiet { "off" } else { "stderr other_names" };
    format!(
        "log_format other_names '$remote_addr - [$time_local] \"$request\" $status: this server does not answer to \
         \"$host\"; to let it, start it with --host $host';\n\
         server {{ {listen} server_name _; {handshakes} access_log {log}; default_type 'text/plain; charset=utf-8';\n\
         return 421 'This server does not answer to the name \"$host\". To let it, start it with --host $host\\n'; }}"
    )
}

/// The server keeps the user that started it, root too: the folder may be readable for that user alone.
fn user(serve: &Serve) -> &'static str {
    match (crate::user::is_root(), serve.cgi_allow_root) {
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
