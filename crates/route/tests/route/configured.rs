//! The same from configuration text: parser, resolver and routing together.

use std::path::Path;
use std::sync::Arc;

use sekisho_config::{Memory, Options};
use sekisho_route::{LineFormat, Table, TimeTexts};

use crate::support::{Asked, check};

pub(crate) fn configured(servers: &str) -> Table {
    let text = format!("events {{}} http {{ {servers} }}");
    let source = Memory::of("/etc/sekisho.conf", text);
    let outcome = sekisho_config::load(Path::new("/etc/sekisho.conf"), &Options::new("/"), &source);
    let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports));
    Table::new(Arc::new(config))
}

/// F7: the configuration of nginx's documentation, as it is written there.
#[test]
fn the_documented_locations_are_found() {
    let table = configured(
        r"server {
            listen 8080;
            location = / { return 200 A; }
            location / { return 200 B; }
            location /documents/ { return 200 C; }
            location ^~ /images/ { return 200 D; }
            location ~* \.(gif|jpg|jpeg)$ { return 200 E; }
        }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /", "text 200 A"),
            ("GET /index.html", "text 200 B"),
            ("GET /documents/document.html", "text 200 C"),
            ("GET /images/1.gif", "text 200 D"),
            ("GET /documents/1.JPG", "text 200 E"),
        ],
    );
}

/// F7
#[test]
fn a_site_as_people_write_it_works() {
    let table = configured(
        r"map $arg_lang $greeting { default hello; ja konnichiwa; ~^de(.*)$ hallo$1; }
        server {
            listen 8080;
            server_name example.org;
            root /srv/;
            error_page 404 /404.html;
            error_page 500 502 503 504 =200 @down;
            location / { try_files $uri $uri/ /app?path=$uri; }
            location = /app { return 200 '$greeting $args'; }
            location /files { alias /data/; autoindex on; location ~ \.txt$ { add_header X a; } }
            location ~ ^/u/(?<user>\w+)/(.*)$ { alias /home/$user/$2; }
            location /old/ { return 301 /new/; }
            location /upload { limit_except GET { deny all; } }
            location = /404.html { internal; }
            location @down { return 200 down; }
            location /fail { return 503; }
        }
        server { listen 8080; server_name *.example.org; return 444; }",
    );
    let files = [
        "/srv/index.html",
        "/srv/a.css",
        "/srv/404.html",
        "/data/a.txt",
        "/data/dir/b.txt",
        "/home/kim/x",
    ];
    check(
        &table,
        &files,
        &[
            ("GET /a.css", "file /srv/a.css"),
            ("GET /", "file /srv/index.html"),
            ("GET /x?lang=ja", "text 200 hello path=/x"),
            ("GET /app?lang=ja", "text 200 konnichiwa lang=ja"),
            ("GET /app?lang=de-CH", "text 200 hallo-CH lang=de-CH"),
            ("GET /files/a.txt", "file /data/a.txt"),
            ("GET /files/dir/", "listing /data/dir/"),
            ("GET /files/dir/b.txt", "file /data/dir/b.txt"),
            ("GET /files/none", "file /srv/404.html as 404"),
            ("GET /files../secret", "file /srv/404.html as 404"),
            ("GET /u/kim/x", "file /home/kim/x"),
            ("GET /old/x", "redirect 301 http://example.org:8080/new/"),
            ("POST /upload", "error 403"),
            ("GET /404.html", "file /srv/404.html as 404"),
            ("GET /fail", "text 200 down"),
            ("GET http://www.example.org/", "close"),
        ],
    );
}

/// O6
#[test]
fn the_default_log_line_is_the_combined_one() {
    let table = configured("server { listen 8080; location / { return 200 x; } }");
    let mut asked = Asked::new("GET /x", &[]);
    asked.decide(&table);
    let logs = &table.location(asked.route_state.location).settings.access_logs;
    let mut out = Vec::new();
    let log = logs.first().expect("an access log by default");
    let (format, mut times) = (LineFormat::new(&log.format), TimeTexts::new());
    let (request, route_state) = (asked.request(), &asked.route_state);
    sekisho_route::log_line(&format, &table, &request, route_state, None, &mut times, &mut out);
    let expected =
        "192.0.2.1 - - [06/Nov/1994:10:49:37 +0200] \"GET /x HTTP/1.1\" 000 0 \"-\" \"-\"";
    assert_eq!(out.escape_ascii().to_string(), expected.escape_debug().to_string());
}
