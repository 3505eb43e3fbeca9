//! Pure: a `Config` and a request head, with a view of files, into an `Action`. Opens nothing, sends
//! nothing, asks no clock; what it needs to know comes in with the request.
#![forbid(unsafe_code)]

pub mod action;
mod capture;
pub mod compression;
mod decide;
pub mod exchange;
pub mod fields;
mod location;
pub mod log;
mod place;
mod redirect;
mod server_name;
mod table;
pub mod variable;

pub use action::{Action, Files, Look};
pub use decide::Handover;
pub use exchange::{ConnectionFacts, Exchange, Request, RequestIdSeed, WallTime};
pub use fields::{added_fields, media_type};
pub use log::{log_line, wants_line};
pub use table::{Machine, Table};
pub use variable::{Sent, expand, push_variable};
