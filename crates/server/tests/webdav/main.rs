//! WebDAV (RFC 4918) with real clients: Debian's `litmus`, cadaver and rclone; and what they do not try.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod rules;

use common::serve;
use sekisho_testkit::{Server, Tree};

/// Everything that a client of WebDAV needs.
const WEBDAV: &str = "dav_methods PUT DELETE MKCOL COPY MOVE; \
     dav_ext_methods PROPFIND PROPPATCH OPTIONS LOCK UNLOCK; \
     upload_delete_directories recursive; client_max_body_size 0;";

/// A server whose root is a WebDAV share, with two workers: locks hold for all clients.
fn share(tree: Tree) -> Server {
    tree.folder("root/dav");
    let config = common::site(&format!("location /dav/ {{ {WEBDAV} }}"));
    Server::start_in(
        tree,
        common::BINARY,
        &config.replace("worker_processes 1;", "worker_processes 2;"),
    )
}

/// The same with settings of its own.
fn share_with(tree: Tree, body: &str) -> Server {
    serve(tree, &body.replace("WEBDAV", WEBDAV))
}
