//! The same for what `proxy_*`, `fastcgi_*`, `scgi_*`, `uwsgi_*` and `grpc_*` say about servers: each is inherited, as the
//! `merge_loc_conf` of nginx's modules do. The handler itself (`proxy_pass` and its companions) is not, so that every
//! location here has one of its own.

use super::{OTHERS, config, settings};
use crate::directive::{self, Body, Context, Status};
use crate::model::{Config, Family};

/// A directive without its prefix, a value that is not the default, and who has it: the first letters of the families.
const ROWS: &[(&str, &str, &str)] = &[
    ("connect_timeout", "7s", "pfsug"),
    ("send_timeout", "7s", "pfsug"),
    ("read_timeout", "7s", "pfsug"),
    ("next_upstream", "http_500", "pfsug"),
    ("next_upstream_tries", "7", "pfsug"),
    ("next_upstream_timeout", "7s", "pfsug"),
    ("buffer_size", "7k", "pfsug"),
    ("intercept_errors", "on", "pfsug"),
    ("hide_header", "X-Other", "pfsug"),
    ("pass_header", "Server", "pfsug"),
    ("ignore_headers", "X-Accel-Redirect", "pfsug"),
    ("bind", "127.0.0.7", "pfsug"),
    ("socket_keepalive", "on", "pfsug"),
    ("buffering", "off", "pfsu"),
    ("buffers", "7 7k", "pfsu"),
    ("max_temp_file_size", "7m", "pfsu"),
    ("temp_path", "/x", "pfsu"),
    ("request_buffering", "off", "pfsu"),
    ("ignore_client_abort", "on", "pfsu"),
    ("pass_request_headers", "off", "pfsu"),
    ("pass_request_body", "off", "pfsu"),
    ("force_ranges", "on", "pfsu"),
    ("limit_rate", "7", "pfsu"),
    ("ssl_server_name", "on", "pug"),
    ("ssl_name", "other.test", "pug"),
    ("ssl_verify", "on", "pug"),
    ("ssl_trusted_certificate", "/x", "pug"),
    ("ssl_certificate", "/x", "pug"),
    ("ssl_certificate_key", "/x", "pug"),
    ("ssl_certificate_cache", "max=7", "pug"),
    ("ssl_password_file", "/x", "pug"),
    ("ssl_crl", "/x", "pug"),
    ("ssl_session_reuse", "off", "pug"),
    ("cache", "zone_of_it", "pfsu"),
    ("cache_key", "$uri", "pfsu"),
    ("cache_valid", "7s", "pfsu"),
    ("cache_min_uses", "7", "pfsu"),
    ("cache_methods", "POST", "pfsu"),
    ("cache_max_range_offset", "7", "pfsu"),
    ("cache_bypass", "$arg_x", "pfsu"),
    ("no_cache", "$arg_x", "pfsu"),
    ("cache_use_stale", "error", "pfsu"),
    ("cache_lock", "on", "pfsu"),
    ("cache_lock_timeout", "7s", "pfsu"),
    ("cache_lock_age", "7s", "pfsu"),
    ("cache_revalidate", "on", "pfsu"),
    ("cache_background_update", "on", "pfsu"),
    ("cache_convert_head", "off", "p"),
    ("param", "X y", "fsu"),
    ("index", "x", "f"),
    ("split_path_info", "^(a)(b)$", "f"),
    ("catch_stderr", "x", "f"),
    ("keep_conn", "on", "f"),
    ("modifier1", "7", "u"),
    ("modifier2", "7", "u"),
    ("http_version", "1.0", "p"),
    ("set_header", "X y", "pg"),
    ("pass_trailers", "on", "p"),
    ("method", "POST", "p"),
    ("set_body", "x", "p"),
    ("redirect", "/x /y", "p"),
    ("cookie_domain", "a b", "p"),
    ("cookie_path", "a b", "p"),
    ("cookie_flags", "a secure", "p"),
];

/// Whether a row is for a family.
fn is_for(families: &str, family: Family) -> bool {
    family.name().chars().next().is_some_and(|letter| families.contains(letter))
}

fn pass(family: Family) -> String {
    let scheme = if family == Family::Proxy { "http://" } else { "" };
    format!("{}_pass {scheme}127.0.0.1:9;", family.name())
}

/// What a location does with requests that it passes on.
fn shown(config: &Config, path: &str) -> String {
    let pass = settings(config, path).pass.as_deref();
    format!("{:?}", pass.expect("requests are passed on").forward)
}

#[test]
fn every_setting_about_servers_has_a_row() {
    for row in directive::rows() {
        let is_setting = row.status == Status::Active
            && row.contexts.contains(Context::Location)
            && !matches!(row.body, Body::Block(_));
        let family = Family::ALL.into_iter().find(|family| {
            let rest = row.name.strip_prefix(family.name());
            rest.is_some_and(|rest| rest.starts_with('_'))
        });
        let (true, Some(family)) = (is_setting, family) else { continue };
        assert!(OTHERS.iter().any(|prefix| row.name.starts_with(prefix)));
        let name = &row.name[family.name().len() + 1..];
        let is_listed = ROWS.iter().any(|(own, _, who)| *own == name && is_for(who, family));
        assert!(is_listed || name == "pass", "{} has no row", row.name);
    }
    for (name, _, families) in ROWS {
        for family in Family::ALL.into_iter().filter(|family| is_for(families, *family)) {
            let name = format!("{}_{name}", family.name());
            assert!(!directive::by_name(name.as_bytes()).is_empty(), "{name} is not a directive");
        }
    }
}

/// F7, N1: a nested location has it, directly and through one more; one that says something else has that.
#[test]
fn settings_about_servers_are_inherited_as_nginx_merges_them() {
    for (name, value, families) in ROWS {
        for family in Family::ALL.into_iter().filter(|family| is_for(families, *family)) {
            let prefix = family.name();
            let pass = pass(family);
            let zone = match family {
                Family::Grpc => String::new(),
                _ => format!("{prefix}_cache_path /x keys_zone=zone_of_it:1m;"),
            };
            let text = |said: &str, inner: &str| {
                format!(
                    "http {{ {zone} server {{ listen 80;
                       location /a/ {{ {said} {pass} location /a/b/ {{ {inner} {pass} location /a/b/c/ {{ {pass} }} }} }} }} }}"
                )
            };
            let said = format!("{prefix}_{name} {value};");
            let (with, without) = (config(&text(&said, "")), config(&text("", "")));
            let outer = shown(&with, "/a/");
            assert_ne!(outer, shown(&without, "/a/"), "{said} changes nothing");
            for path in ["/a/b/", "/a/b/c/"] {
                assert_eq!(shown(&with, path), outer, "{said} in {path}");
            }
            let own = config(&text("", &said));
            assert_eq!(
                shown(&own, "/a/"),
                shown(&without, "/a/"),
                "{said} is not for the outer one"
            );
            assert_eq!(shown(&own, "/a/b/c/"), outer, "{said} from the nearest level");
        }
    }
}
