//! Configurations in the shape that distributions and well-known projects publish: the directives they use, in our own
//! words. Each loads, and what it says is there.
#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use sekisho_config::migration::{Migration, Readiness};
use sekisho_config::{Memory, Options, Outcome, load};

fn outcome(server: &str) -> Outcome {
    let text = format!(
        "user www-data; worker_processes auto; worker_rlimit_nofile 8192; pid /run/nginx.pid;
         events {{ worker_connections 8000; multi_accept on; use epoll; }}
         http {{ {server} }}"
    );
    load(
        Path::new("/etc/nginx/nginx.conf"),
        &Options::new("/usr/share/nginx"),
        &Memory::of("/etc/nginx/nginx.conf", text),
    )
}

#[track_caller]
fn loads(server: &str) {
    let found = outcome(server);
    let reports: Vec<_> = found.reports.iter().map(|it| it.render(false)).collect();
    assert!(found.config.is_some(), "{}", reports.join("\n"));
    assert_ne!(Migration::of(&found).readiness(), Readiness::Missing);
}

/// O2
#[test]
fn what_asks_for_http3_loads_without_it() {
    loads(
        r#"server {
            listen 443 quic reuseport; listen [::]:443 quic reuseport; listen 443 ssl; listen [::]:443 ssl;
            http2 on; http3 on; quic_retry on; quic_gso on; ssl_early_data on;
            ssl_certificate /etc/ssl/a.pem; ssl_certificate_key /etc/ssl/a.key; ssl_protocols TLSv1.2 TLSv1.3;
            add_header Alt-Svc 'h3=":$server_port"; ma=86400'; add_header X-Protocol "$server_protocol $http3";
        }
        server { listen 443 ssl; server_name other.example; }"#,
    );
}

/// O2
#[test]
fn what_boilerplates_say_about_files_loads() {
    // Caching by type, hidden files, no transparency for robots, CORS for fonts: as h5bp groups them.
    loads(
        r#"server_tokens off; sendfile on; tcp_nopush on; keepalive_timeout 20s; types_hash_max_size 2048;
        log_format main '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer"';
        access_log /var/log/nginx/access.log main;
        map $sent_http_content_type $expires_by_type {
            default 1M; "" off; ~*text/html 0; ~*application/(json|ld\+json) 0; ~*font/ 1M; ~*image/x-icon 1w;
        }
        map $sent_http_content_type $cors { ~*font/ "*"; ~*application/vnd.ms-fontobject "*"; }
        map $http_upgrade $connection_upgrade { default upgrade; "" close; }
        expires $expires_by_type;
        gzip on; gzip_comp_level 5; gzip_min_length 256; gzip_proxied any; gzip_vary on;
        gzip_types application/json font/ttf image/svg+xml text/css text/plain;
        server {
            listen 80; listen [::]:80; server_name www.example.com;
            return 301 $scheme://example.com$request_uri;
        }
        server {
            listen 80; listen [::]:80; server_name example.com; root /var/www/example.com/public;
            charset utf-8; charset_types text/css text/plain text/vnd.wap.wml text/javascript application/json;
            error_page 404 /404.html;
            add_header X-Content-Type-Options nosniff always;
            add_header Access-Control-Allow-Origin $cors;
            location ~* /\.(?!well-known/) { deny all; }
            location ~* (?:#.*#|\.(?:bak|conf|dist|fla|in[ci]|log|orig|psd|sh|sql|sw[op])|~)$ { deny all; }
            location /meta { if ($arg_go-get = 1) { return 200 ok; } }
            location ~* \.(?:css|js)$ { expires 1y; access_log off; log_not_found off; }
        }"#,
    );
}

/// O2
#[test]
fn what_applications_say_about_their_front_loads() {
    // WordPress, Laravel and Nextcloud without their program: rewriting, refusals, large uploads, logs by host.
    loads(
        r#"limit_req_zone $binary_remote_addr zone=login:10m rate=10r/m;
        limit_conn_zone $binary_remote_addr zone=addr:10m;
        geo $is_office { default 0; 192.0.2.0/24 1; 2001:db8::/32 1; }
        server {
            listen 80 default_server; server_name _; root /var/www/html; index index.php index.html;
            client_max_body_size 512M; client_body_timeout 300s; client_body_buffer_size 512k;
            access_log /var/log/nginx/$server_name.access.log combined; open_log_file_cache max=100 inactive=30s;
            error_log syslog:server=unix:/dev/log,facility=local7,tag=nginx,severity=info warn;
            location = /favicon.ico { log_not_found off; access_log off; }
            location = /robots.txt { allow all; log_not_found off; access_log off; }
            location / { try_files $uri $uri/ /index.php?$args; }
            location ~ ^/(?:build|tests|config|lib|3rdparty|templates|data)(?:$|/) { return 404; }
            location ^~ /.well-known { location = /.well-known/carddav { return 301 /remote.php/dav/; } }
            location = /wp-login.php { limit_req zone=login burst=5 nodelay; limit_req_status 429; limit_conn addr 5; }
            location ~* /(?:uploads|files)/.*\.php$ { deny all; }
            location ~ \.(?:woff2?|png|svg)$ {
                expires 7d; add_header Cache-Control "public, immutable"; limit_rate_after 1m; limit_rate $arg_rate;
            }
            rewrite ^/wp-content/plugins/(.*)/secret /404 last;
            if ($request_method !~ ^(GET|HEAD|POST|PUT|DELETE|PROPFIND|OPTIONS)$) { return 405; }
            if ($is_office = 0) { set $who outside; }
        }"#,
    );
}

/// O2
#[test]
fn what_debian_ships_beside_its_packages_loads() {
    // A status page for munin and collectd, a share for WebDAV, a mirror with listings, statistics behind a password.
    loads(
        r#"server {
            listen 127.0.0.1:80; server_name localhost;
            location /nginx_status { stub_status on; access_log off; allow 127.0.0.1; allow ::1; deny all; }
            location /debian { root /srv/mirror; autoindex on; autoindex_exact_size off; autoindex_localtime on; }
            location /dav {
                root /srv; client_body_temp_path /srv/client_temp; dav_methods PUT DELETE MKCOL COPY MOVE;
                create_full_put_path on; dav_access group:rw all:r; upload_delete_directories off;
                limit_except GET { allow 192.0.2.0/24; deny all; }
            }
            location /awstats { auth_basic "Statistics"; auth_basic_user_file /etc/nginx/htpasswd; alias /var/lib/awstats/; }
            location /doc { alias /usr/share/doc/; disable_symlinks if_not_owner from=$document_root; }
        }"#,
    );
}

/// O2
#[test]
fn what_older_and_larger_setups_say_loads() {
    // The pixel of a counter, what is switched off, sockets with two slashes, and `ssl on` as it was said before `listen … ssl`.
    loads(
        r"proxy_store off; fastcgi_store off; proxy_store_access user:rw; modsecurity off; pagespeed off;
        server {
            listen 443; ssl on; ssl_certificate /etc/ssl/a.pem; ssl_certificate_key /etc/ssl/a.key;
            location = /pixel.gif { empty_gif; }
            location /app { uwsgi_pass unix:///run/app.sock; }
            location /php { fastcgi_pass unix:///run/php.sock; }
        }",
    );
}
