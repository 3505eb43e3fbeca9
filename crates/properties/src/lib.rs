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
pub mod http3_engine;
pub mod http3_frames;
pub mod http3_qpack;
mod http3_streams;
pub mod log;
pub mod multipart;
pub mod native;
pub mod native_frames;
pub mod nats;
pub mod path;
pub mod percent;
pub mod proxy_header;
pub mod range;
pub mod readme;
pub mod request_head;
pub mod resolver;
pub mod ring;
pub mod site;
pub mod slices;
pub mod ssi;
pub mod substitute;
pub mod tls_hello;
pub mod upstream_cgi;
pub mod upstream_events;
pub mod upstream_http1;
pub mod upstream_http2;
pub mod values;
pub mod webdav;

/// A promise by its name, which is that of the fuzz target and of the folder with its seeds.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// The name.
    pub name: &'static str,
    /// Panics where the promise is not kept.
    pub check: fn(&[u8]),
}

/// All of them, in the order of `fuzz/targets`.
pub const ALL: [Property; 40] = [
    Property { name: "request_head", check: request_head::check },
    Property { name: "chunked", check: chunked::check },
    Property { name: "differential", check: differential::check },
    Property { name: "engine", check: engine::check },
    Property { name: "percent", check: percent::check },
    Property { name: "path", check: path::check },
    Property { name: "range", check: range::check },
    Property { name: "conditional", check: conditional::check },
    Property { name: "values", check: values::check },
    Property { name: "credentials", check: credentials::check },
    Property { name: "multipart", check: multipart::check },
    Property { name: "webdav", check: webdav::check },
    Property { name: "files", check: files::check },
    Property { name: "readme", check: readme::check },
    Property { name: "cgi_environment", check: cgi_environment::check },
    Property { name: "cgi_head", check: cgi_head::check },
    Property { name: "cgi_program", check: cgi_program::check },
    Property { name: "log", check: log::check },
    Property { name: "config_syntax", check: config_syntax::check },
    Property { name: "config", check: config::check },
    Property { name: "native_frames", check: native_frames::check },
    Property { name: "native_engine", check: native::world::check },
    Property { name: "http2_frames", check: http2_frames::check },
    Property { name: "http2_hpack", check: http2_hpack::check },
    Property { name: "http2_engine", check: http2_engine::check },
    Property { name: "http3_frames", check: http3_frames::check },
    Property { name: "http3_qpack", check: http3_qpack::check },
    Property { name: "http3_engine", check: http3_engine::check },
    Property { name: "ring", check: ring::check },
    Property { name: "upstream_http1", check: upstream_http1::check },
    Property { name: "upstream_http2", check: upstream_http2::check },
    Property { name: "upstream_cgi", check: upstream_cgi::check },
    Property { name: "cache_entry", check: cache_entry::check },
    Property { name: "resolver", check: resolver::check },
    Property { name: "proxy_header", check: proxy_header::check },
    Property { name: "substitute", check: substitute::check },
    Property { name: "ssi", check: ssi::check },
    Property { name: "slices", check: slices::check },
    Property { name: "tls_hello", check: tls_hello::check },
    Property { name: "nats", check: nats::check },
];
