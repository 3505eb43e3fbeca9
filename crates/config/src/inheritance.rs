//! What a nested location has from the one around it: one row for each directive that a location may have, with
//! the rule of nginx's source (`merge_loc_conf` of the module) and a test that holds the resolver to it. A new
//! directive needs a row here, or its family one in [`OTHERS`].

mod upstreams;

use std::collections::BTreeMap;

use crate::directive::{self, Body, Context, Status};
use crate::model::{Config, LocationMatch, Settings};
use crate::source::Memory;
use crate::{Options, load};

use Rule::{Inherited as I, NotInherited as N};

/// How nginx merges a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// `ngx_conf_merge_*`: what is not set is taken from the level around it.
    Inherited,
    /// Not merged: it holds only at its own level. So is everything that sets a content handler
    /// (`clcf->handler`), has rewrite codes, or whose module has no `merge_loc_conf`.
    NotInherited,
}

/// Directive, a value that is not the default, and the rule. Lists (`index`, `error_page`, `add_header`,
/// `access_log`, `allow` and `deny`, `limit_req`, `limit_conn`, `types`, `valid_referers`) are inherited as a whole
/// and only where the level has none of its own.
const ROWS: &[(&str, &str, Rule)] = &[
    // ngx_http_core_module
    ("error_page", "404 /x", I),
    ("recursive_error_pages", "on", I),
    ("internal", "", I),
    ("absolute_redirect", "off", I),
    ("server_name_in_redirect", "on", I),
    ("port_in_redirect", "off", I),
    ("root", "/elsewhere", I),
    ("alias", "/elsewhere/", I),
    ("disable_symlinks", "on", I),
    ("open_file_cache", "max=7", I),
    ("open_file_cache_valid", "7s", I),
    ("open_file_cache_min_uses", "7", I),
    ("open_file_cache_errors", "on", I),
    ("sendfile", "off", I),
    ("aio", "threads", I),
    ("resolver", "192.0.2.1", I),
    ("resolver_timeout", "7s", I),
    ("satisfy", "any", I),
    ("auth_delay", "7s", I),
    ("limit_except", "GET { deny all; }", N),
    ("types", "{ a/b c; }", I),
    ("default_type", "a/b", I),
    ("etag", "off", I),
    ("if_modified_since", "before", I),
    ("max_ranges", "7", I),
    ("server_tokens", "off", I),
    ("client_max_body_size", "7", I),
    ("client_body_timeout", "7s", I),
    ("keepalive_timeout", "7s 8s", I),
    ("keepalive_requests", "7", I),
    ("keepalive_time", "7s", I),
    ("keepalive_disable", "safari", I),
    ("chunked_transfer_encoding", "off", I),
    ("limit_rate", "7", I),
    ("limit_rate_after", "7", I),
    ("send_timeout", "7s", I),
    ("lingering_timeout", "7s", I),
    ("lingering_time", "7s", I),
    ("tcp_nodelay", "off", I),
    ("reset_timedout_connection", "on", I),
    ("error_log", "/x debug", I),
    ("log_not_found", "off", I),
    ("open_log_file_cache", "max=7", I),
    // Modules without a merge function, and those whose member is not merged.
    ("try_files", "/x =404", N),
    ("rewrite", "^ /x", N),
    ("set", "$x y", N),
    ("if", "($uri) { }", N),
    ("break", "", N),
    ("return", "404", N),
    ("rewrite_log", "on", I),
    ("uninitialized_variable_warn", "off", I),
    // Content handlers.
    ("stub_status", "", N),
    ("empty_gif", "", N),
    ("status", "page", N),
    ("service", "echo", N),
    // The other modules of nginx.
    ("index", "x", I),
    ("autoindex", "on", I),
    ("autoindex_exact_size", "off", I),
    ("autoindex_localtime", "on", I),
    ("autoindex_format", "json", I),
    ("dav_methods", "PUT", I),
    ("dav_ext_methods", "PROPFIND", I),
    ("dav_access", "all:rw", I),
    ("create_full_put_path", "on", I),
    ("min_delete_depth", "7", I),
    ("allow", "all", I),
    ("deny", "all", I),
    ("set_real_ip_from", "10.0.0.1", I),
    ("real_ip_header", "X-Forwarded-For", I),
    ("real_ip_recursive", "on", I),
    ("auth_basic", "x", I),
    ("auth_basic_user_file", "x", I),
    ("valid_referers", "none x", I),
    ("secure_link", "$arg_x", I),
    ("secure_link_md5", "$arg_x", I),
    ("secure_link_secret", "x", I),
    ("limit_req", "zone=rate", I),
    ("limit_req_status", "429", I),
    ("limit_req_log_level", "info", I),
    ("limit_req_dry_run", "on", I),
    ("limit_conn", "places 7", I),
    ("limit_conn_status", "429", I),
    ("limit_conn_log_level", "info", I),
    ("limit_conn_dry_run", "on", I),
    ("charset", "x", I),
    ("charset_types", "*", I),
    ("more_set_headers", "a:b", I),
    ("more_clear_headers", "a", I),
    ("source_charset", "a", I),
    ("override_charset", "on", I),
    ("add_header", "x y", I),
    ("add_trailer", "x y", I),
    ("expires", "7s", I),
    ("gzip", "on", I),
    ("gzip_comp_level", "7", I),
    ("gzip_types", "a/b", I),
    ("gzip_min_length", "7", I),
    ("gzip_http_version", "1.0", I),
    ("gzip_proxied", "any", I),
    ("gzip_disable", "x", I),
    ("gzip_vary", "off", I),
    ("gzip_static", "on", I),
    ("gunzip", "on", I),
    ("add_before_body", "/x", I),
    ("add_after_body", "/x", I),
    ("addition_types", "a/b", I),
    ("sub_filter", "x y", I),
    ("sub_filter_once", "off", I),
    ("sub_filter_types", "a/b", I),
    ("sub_filter_last_modified", "on", I),
    ("ssi", "on", I),
    ("ssi_types", "a/b", I),
    ("ssi_silent_errors", "on", I),
    ("ssi_value_length", "7", I),
    ("ssi_last_modified", "on", I),
    ("slice", "7", I),
    ("random_index", "on", I),
    ("userid", "on", I),
    ("userid_name", "x", I),
    ("userid_domain", "x", I),
    ("userid_path", "/x", I),
    ("userid_expires", "7s", I),
    ("userid_flags", "secure", I),
    ("userid_mark", "x", I),
    ("userid_p3p", "x", I),
    ("userid_service", "7", I),
    ("auth_request", "/x", I),
    ("auth_request_set", "$x y", I),
    ("mirror", "/x", I),
    ("mirror_request_body", "off", I),
    ("log_subrequest", "on", I),
    ("subrequest_output_buffer_size", "7", I),
    ("access_log", "off", I),
    // Ours, and modules of others: as nginx would.
    ("allow_methods", "GET", I),
    ("autoindex_readme", "off", I),
    ("autoindex_archive", "zip", I),
    ("autoindex_search", "on", I),
    ("autoindex_title", "Shared", I),
    ("upload_store", "/x", I),
    ("upload_conflict", "rename", I),
    ("upload_sync", "full", I),
    ("upload_delete_directories", "empty", I),
    ("upload_direct", "off", I),
    ("upload_parts_max", "7", I),
    ("upload_resumable", "on", I),
    ("upload_resumable_expires", "7h", I),
    ("upload_resumable_max", "7", I),
    ("upload_origins", "any", I),
    ("cgi", "on", I),
    ("cgi_pass", "/x", I),
    ("cgi_extension", ".x", I),
    ("cgi_interpreter", "/x", I),
    ("cgi_working_dir", "/x", I),
    ("cgi_path", "/x", I),
    ("cgi_set_var", "x y", I),
    ("cgi_stderr", "off", I),
    ("cgi_body_only", "on", I),
    ("cgi_strict", "off", I),
    ("cgi_read_timeout", "7s", I),
    ("cgi_timeout", "7s", I),
    ("cgi_kill_grace", "7s", I),
    ("cgi_max_processes", "7", I),
    ("cgi_max_processes_per_address", "7", I),
    ("cgi_reserved_processes", "7", I),
    ("cgi_request_buffering", "off", I),
    ("client_body_buffer_size", "7k", I),
    ("client_body_in_file_only", "on", I),
    ("client_body_temp_path", "/x", I),
    ("http2_chunk_size", "7k", I),
    ("cgi_queue", "7", I),
    ("cgi_pass_authorization", "on", I),
    ("cgi_head_max", "7k", I),
    ("cgi_x_accel_redirect", "on", I),
    ("cgi_leave_daemons", "on", I),
    ("cgi_limits", "cpu=7s", I),
    ("brotli", "on", I),
    ("brotli_comp_level", "7", I),
    ("brotli_types", "a/b", I),
    ("brotli_min_length", "7", I),
    ("brotli_static", "on", I),
    ("zstd", "on", I),
    ("zstd_comp_level", "7", I),
    ("zstd_types", "a/b", I),
    ("zstd_min_length", "7", I),
    ("zstd_static", "on", I),
    ("client_body_discard_max", "7", I),
    ("client_body_min_rate", "7", I),
    ("half_close", "on", I),
];

/// Families that are checked where they are built, or in [`upstreams`].
const OTHERS: &[&str] =
    &["proxy_", "fastcgi_", "uwsgi_", "scgi_", "grpc_", "memcached_", "ssl_", "health_check"];

/// What another directive of the family needs to show in the settings at all.
fn companions(name: &str) -> &'static str {
    match name {
        "open_file_cache_valid" | "open_file_cache_min_uses" | "open_file_cache_errors" => {
            "open_file_cache max=9;"
        }
        "satisfy" | "auth_delay" => "allow 10.0.0.1;",
        "real_ip_header" | "real_ip_recursive" => "set_real_ip_from 10.0.0.2;",
        "auth_basic" => "auth_basic_user_file y;",
        "auth_basic_user_file" => "auth_basic y;",
        "source_charset" => "charset b;",
        "addition_types" => "add_after_body /y;",
        "auth_request_set" => "auth_request /y;",
        "mirror_request_body" => "mirror /y;",
        "sub_filter_once" | "sub_filter_types" | "sub_filter_last_modified" => "sub_filter x z;",
        name if name.starts_with("ssi_") => "ssi on;",
        name if name.starts_with("userid_") => "userid on;",
        "secure_link" => "secure_link_md5 y;",
        "secure_link_md5" => "secure_link y;",
        "limit_req_status" | "limit_req_log_level" | "limit_req_dry_run" => "limit_req zone=rate;",
        "limit_conn_status" | "limit_conn_log_level" | "limit_conn_dry_run" => {
            "limit_conn places 1;"
        }
        "dav_access" | "create_full_put_path" | "min_delete_depth" => "dav_methods DELETE;",
        "upload_conflict"
        | "upload_sync"
        | "upload_delete_directories"
        | "upload_direct"
        | "upload_parts_max"
        | "upload_origins"
        | "upload_resumable" => "upload_store /y;",
        "upload_resumable_expires" | "upload_resumable_max" => {
            "upload_store /y; upload_resumable on;"
        }
        name if name.starts_with("cgi_") && name != "cgi_pass" && name != "cgi_extension" => {
            "cgi on;"
        }
        _ => "",
    }
}

fn config(text: &str) -> Config {
    let source = Memory::of("/c.conf", text);
    let outcome = load("/c.conf".as_ref(), &Options::new("/"), &source);
    let said: String = outcome.reports.iter().map(|report| report.render(false)).collect();
    outcome.config.unwrap_or_else(|| panic!("{text}\n{said}"))
}

fn settings<'c>(config: &'c Config, path: &str) -> &'c Settings {
    let found = config.http.locations.iter().find(|location| {
        matches!(&location.matches, LocationMatch::Prefix { path: own, .. } if own == path.as_bytes())
    });
    &found.expect("the location is there").settings
}

/// What is compared: everything that can be seen.
fn shown(config: &Config, path: &str) -> String {
    let mut settings = settings(config, path).clone();
    // The order of a hash map says nothing.
    let types: BTreeMap<_, _> =
        std::mem::take(&mut settings.types).by_extension.clone().into_iter().collect();
    format!("{settings:?} {types:?}")
}

#[test]
fn every_setting_of_a_location_has_a_row() {
    for row in directive::rows() {
        let is_setting = row.status == Status::Active
            && row.contexts.contains(Context::Location)
            && !matches!(row.body, Body::Block(Context::Location))
            && row.name != "include";
        let is_elsewhere = OTHERS.iter().any(|family| row.name.starts_with(family));
        let is_listed = ROWS.iter().any(|(name, ..)| *name == row.name);
        assert!(!is_setting || is_elsewhere || is_listed, "{} has no row in ROWS", row.name);
    }
    for (name, ..) in ROWS {
        assert!(!directive::by_name(name.as_bytes()).is_empty(), "{name} is not a directive");
    }
}

/// F7: a nested location has what nginx's would have, directly and through one more without directives.
#[test]
fn settings_are_inherited_as_nginx_merges_them() {
    for (name, value, rule) in ROWS {
        let more = companions(name);
        let end = if value.ends_with('}') { "" } else { ";" };
        let said = format!("{name} {value}{end}");
        let text = |said: &str| {
            format!(
                "http {{ limit_req_zone $uri zone=rate:1m rate=1r/s; limit_conn_zone $uri zone=places:1m;
                 charset_map a b {{ 80 81; }}
                 server {{ listen 80; {more}
                   location /a/ {{ {said} location /a/b/ {{ location /a/b/c/ {{ }} }} }} }} }}"
            )
        };
        let (with, without) = (config(&text(&said)), config(&text("")));
        let outer = shown(&with, "/a/");
        assert_ne!(outer, shown(&without, "/a/"), "{name} {value} changes nothing");
        for path in ["/a/b/", "/a/b/c/"] {
            let nested = shown(&with, path);
            let is_plain = nested == shown(&without, path);
            assert_eq!(is_plain, *rule == N, "{name} in {path}: {nested}");
            // An alias replaces the prefix of the location that has it: the same folder, another name.
            if *rule == I && !matches!(*name, "alias" | "cgi_pass") {
                assert_eq!(nested, outer, "{name} in {path}");
            }
        }
    }
}
