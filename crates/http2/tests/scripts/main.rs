//! Scripts for the HTTP/2 engine: a peer that sends frames, a shell that answers, and a clock that is a number.
#![allow(clippy::doc_markdown, reason = "frames and codes are written as the RFC writes them")]

mod abuse;
mod bodies;
mod cuts;
mod deadlines;
mod harness;
mod hpack;
mod memory;
mod requests;
mod sending;
mod shutdown;
mod tunnels;
