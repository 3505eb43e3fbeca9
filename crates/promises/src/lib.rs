//! What everything that reads bytes from outside promises, as plain functions over any bytes: they return
//! when the promise was kept and panic when it was not. `fuzz/` gives them to libFuzzer; `tests/replay.rs`
//! gives them the seeds and some thousand changes of each, on a stable compiler, in every test run.
//! Nothing here is part of the server.
#![forbid(unsafe_code)]
#![allow(
    clippy::similar_names,
    clippy::manual_is_multiple_of,
    clippy::verbose_bit_mask,
    clippy::decimal_bitwise_operands,
    reason = "bits and pairs that are drawn from an input read well as they are"
)]

pub mod cache_entry;
pub mod cgi_environment;
pub mod cgi_head;
pub mod cgi_program;
pub mod chunked;
pub mod conditional;
pub mod config;
pub mod config_syntax;
pub mod credentials;
pub mod cuts;
pub mod differential;
pub mod engine;
pub mod files;
pub mod http2_engine;
pub mod http2_frames;
pub mod http2_hpack;
pub mod log;
pub mod multipart;
pub mod native;
pub mod native_frames;
pub mod path;
pub mod percent;
pub mod range;
pub mod readme;
pub mod request_head;
pub mod resolver;
pub mod ring;
pub mod site;
pub mod upstream_cgi;
pub mod upstream_events;
pub mod upstream_http1;
pub mod values;

/// A promise by its name, which is that of the fuzz target and of the folder with its seeds.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The name.
    pub name: &'static str,
    /// Panics where the promise is not kept.
    pub check: fn(&[u8]),
}

/// All of them, in the order of `fuzz/targets`.
pub const ALL: [Promise; 29] = [
    Promise { name: "request_head", check: request_head::check },
    Promise { name: "chunked", check: chunked::check },
    Promise { name: "differential", check: differential::check },
    Promise { name: "engine", check: engine::check },
    Promise { name: "percent", check: percent::check },
    Promise { name: "path", check: path::check },
    Promise { name: "range", check: range::check },
    Promise { name: "conditional", check: conditional::check },
    Promise { name: "values", check: values::check },
    Promise { name: "credentials", check: credentials::check },
    Promise { name: "multipart", check: multipart::check },
    Promise { name: "files", check: files::check },
    Promise { name: "readme", check: readme::check },
    Promise { name: "cgi_environment", check: cgi_environment::check },
    Promise { name: "cgi_head", check: cgi_head::check },
    Promise { name: "cgi_program", check: cgi_program::check },
    Promise { name: "log", check: log::check },
    Promise { name: "config_syntax", check: config_syntax::check },
    Promise { name: "config", check: config::check },
    Promise { name: "native_frames", check: native_frames::check },
    Promise { name: "native_engine", check: native::world::check },
    Promise { name: "http2_frames", check: http2_frames::check },
    Promise { name: "http2_hpack", check: http2_hpack::check },
    Promise { name: "http2_engine", check: http2_engine::check },
    Promise { name: "ring", check: ring::check },
    Promise { name: "upstream_http1", check: upstream_http1::check },
    Promise { name: "upstream_cgi", check: upstream_cgi::check },
    Promise { name: "cache_entry", check: cache_entry::check },
    Promise { name: "resolver", check: resolver::check },
];
