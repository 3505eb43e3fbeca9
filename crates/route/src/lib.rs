//! Pure: a `Config` and a request head, with a view of files, into an `Action`. Opens nothing, sends
//! nothing, asks no clock; what it needs to know comes in with the request.
#![forbid(unsafe_code)]

pub mod access_checks;
pub mod action;
mod address;
pub mod address_database;
mod assigned;
pub mod body_facts;
mod capture;
pub mod charset;
pub mod compression;
mod credentials;
mod decide;
mod escape;
pub mod fields;
mod links;
mod location;
pub mod log;
pub mod log_entry;
mod object;
mod path_mapping;
mod real_ip;
mod redirect;
pub mod route_state;
mod same_access;
mod server_name;
pub mod stream;
pub mod subrequest;
mod table;
pub mod upstream_facts;
mod user_id;
pub mod variable;
pub mod zone;

pub use access_checks::{AccessChecks, Password, Rated, Taken, Wait};
pub use action::{Action, Files, Kind, Look, Seen};
pub use address_database::AddressDatabase;
pub use charset::{computed_charset, name_charset};
pub use credentials::{STANDARD as STANDARD_BASE64, decode_base64};
pub use decide::{Destination, FileOp, Handover, OWN_PREFIX, Store};
pub use fields::{
    added_fields, added_trailers, has_trailers, if_range_replaced, media_type, media_type_of,
};
pub use log::{LineFormat, TimeTexts, log_line, wants_line};
pub use log_entry::LogEntry;
pub use object::{ObjectLook, Objects};
pub use redirect::push_origin;
pub use route_state::{
    Census, ClientCertificate, ClientVerdict, ConnectionCounts, ConnectionFacts, Offered, Request,
    RequestIdSeed, RouteState, TlsFacts, WallTime,
};
pub use subrequest::{AuthAnswer, Picked, SubrequestTarget};
pub use table::{Machine, Table};
pub use variable::{Sent, SentFraming, expand, named_variable, push_variable};
