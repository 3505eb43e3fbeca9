//! Configurations that need no file: the built-in site, and `sekisho serve`. Both are configuration
//! text, so that there is one way to configure and what they do can be read.

use std::fmt::Write;

use crate::cli::Serve;

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
pub(crate) fn folder(serve: &Serve) -> String {
    let listens: Vec<&str> = match serve.listen.as_slice() {
        [] => vec!["127.0.0.1:8080"],
        some => some.iter().map(String::as_str).collect(),
    };
    let mut listen = String::new();
    for address in listens {
        let _ = write!(listen, "listen {}; ", quote(address));
    }
    format!(
        "worker_processes {workers};\n\
         pid off;\n\
         error_log stderr error;\n\
         events {{}}\n\
         http {{\n\
             access_log {access};\n\
             server {{\n\
                 {listen}\n\
                 root .;\n\
                 index index.html index.htm;\n\
                 default_type application/octet-stream;\n\
                 charset utf-8;\n\
                 autoindex {autoindex};\n\
                 autoindex_exact_size off;\n\
                 autoindex_localtime on;\n\
             }}\n\
         }}\n",
        workers = quote(&serve.workers),
        access = if serve.quiet { "off" } else { "stderr" },
        autoindex = if serve.open_listing { "on" } else { "off" },
    )
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
