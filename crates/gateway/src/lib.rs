//! Communication with programs behind the server, whether we start them (CGI) or connect to them (FastCGI,
//! SCGI, uwsgi): what is sent to them and what they answer. Pure: it starts no process, reads no pipe and
//! asks no clock; facts and the time come in, orders and bytes go out.
#![forbid(unsafe_code)]

mod answer;
pub mod cgi;
pub mod fastcgi;
mod params;
pub mod scgi;
mod single;
pub mod uwsgi;

pub use params::{push_environment, push_http_params};
pub use single::SingleRequest;
