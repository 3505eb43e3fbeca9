//! What the fuzz targets share: cutting input into pieces, a site to route in, and shells around the
//! engines that follow a script. Nothing here is part of the server.
#![forbid(unsafe_code)]

pub mod cuts;
pub mod engine;
pub mod native;
pub mod site;
