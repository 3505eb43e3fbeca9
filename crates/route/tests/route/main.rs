//! The routing table from outside: a configuration, a request and a view of files, into an action.

mod access;
mod alias;
mod compression;
mod configured;
mod file_op;
mod error_page;
mod fields;
mod files;
mod access_checks;
mod limits;
mod links;
mod location;
mod methods;
mod program;
mod property;
mod redirect;
mod rewrite;
mod server_name;
mod support;
mod variable;
mod zone;
