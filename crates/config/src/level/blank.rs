//! Levels before anything is said: every setting is there, and none has a value yet. Defaults come from the
//! directive table.

use std::sync::Arc;

use crate::model::{
    Bytes, CharsetTypes, Endpoint, Expires, FileCache, IfModifiedSince, InFileOnly, Listing, Main,
    PathMapping, Privilege, Rewriting, ServerTokens, Settings, Symlinks, Workers,
};

/// Nothing at all, for a level.
pub(super) fn blank_settings() -> Settings {
    Settings {
        path_mapping: PathMapping::Root(Arc::default()),
        index: Arc::default(),
        try_files: None,
        autoindex: false,
        autoindex_exact_size: false,
        autoindex_localtime: false,
        listing: Listing::default(),
        disable_symlinks: Symlinks::Follow,
        open_file_cache: FileCache::Off,
        cgi: None,
        rewriting: Rewriting::default(),
        file_ops: None,
        pass: None,
        status: None,
        error_pages: Arc::default(),
        recursive_error_pages: false,
        internal: false,
        limit_except: None,
        real_ip: None,
        access: None,
        limits: None,
        links: None,
        allow_methods: None,
        absolute_redirect: false,
        server_name_in_redirect: false,
        port_in_redirect: false,
        types: Arc::default(),
        default_type: Arc::from(""),
        charset: None,
        charset_types: CharsetTypes::Text,
        recode: None,
        add_headers: Arc::default(),
        add_trailers: Arc::default(),
        expires: Expires::Off,
        etag: false,
        if_modified_since: IfModifiedSince::Off,
        max_ranges: None,
        server_tokens: ServerTokens::Off,
        compression: Arc::default(),
        client_max_body_size: None,
        client_body_buffer_size: 0,
        client_body_in_file_only: InFileOnly::Off,
        client_body_temp_path: None,
        client_body_discard_max: 0,
        client_body_timeout: None,
        client_body_min_rate: None,
        keepalive_timeout: None,
        keepalive_header: None,
        keepalive_time: None,
        chunked_transfer_encoding: false,
        keepalive_disable: crate::model::KeepaliveDisable::default(),
        keepalive_requests: 0,
        send_timeout: None,
        lingering_timeout: None,
        lingering_time: None,
        half_close: false,
        tcp_nodelay: false,
        http2_chunk_size: 0,
        sendfile: false,
        aio_threads: false,
        limit_rate: Bytes::Fixed(0),
        limit_rate_after: Bytes::Fixed(0),
        access_logs: Arc::default(),
        error_logs: Arc::default(),
        log_not_found: false,
        log_file_cache: None,
        reset_timedout_connection: false,
    }
}

/// Nothing at all, for the process.
pub fn blank_main() -> Main {
    Main {
        worker_processes: Workers::Count(0),
        pid: None,
        user: None,
        error_logs: Vec::new(),
        worker_rlimit_nofile: None,
        worker_connections: 0,
        connections_max: None,
        connections_per_address: None,
        worker_shutdown_timeout: None,
        privilege: Privilege::default(),
        endpoint: Endpoint::default(),
    }
}
