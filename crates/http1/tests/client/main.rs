//! Scripts for the client's side of HTTP/1: a scripted upstream, on virtual time.

mod cuts;
mod deadlines;
mod exchanges;
mod harness;
mod real;
mod wire;
