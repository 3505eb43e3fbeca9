//! What the fuzz targets share: cutting input into pieces, a site to route in, and a shell around the
//! HTTP/1 engine that follows a script. Nothing here is part of the server.
#![forbid(unsafe_code)]

pub mod cuts;
pub mod engine;
pub mod site;
