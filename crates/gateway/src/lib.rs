//! Speaking to programs behind the server: what they are told and what they answer. Pure: it starts no
//! process, reads no pipe and asks no clock; facts and the time come in, orders and bytes go out.
#![forbid(unsafe_code)]

pub mod cgi;
