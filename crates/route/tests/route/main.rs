//! The routing table from outside: a configuration, a request and a view of files, into an action.

mod access;
mod access_checks;
mod alias;
mod compression;
mod configured;
mod error_page;
mod fields;
mod file_op;
mod files;
mod limits;
mod links;
mod location;
mod methods;
mod object;
mod program;
mod property;
mod redirect;
mod rewrite;
mod server_name;
mod subrequest;
mod support;
mod tls;
mod variable;
mod zone;
