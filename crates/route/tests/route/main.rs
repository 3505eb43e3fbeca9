//! The routing table from outside: a configuration, a request and a view of files, into an action.

mod alias;
mod compression;
mod configured;
mod error_page;
mod fields;
mod files;
mod location;
mod methods;
mod program;
mod property;
mod redirect;
mod server_name;
mod support;
mod variable;
