//! What programs that embed an endpoint or a client rely on: the examples run and are short, addresses of every kind are
//! connected to, and a client comes back when its server does.

mod addresses;
mod reconnect;

#[path = "../../examples/kv.rs"]
#[allow(missing_docs, unreachable_pub, reason = "an example")]
mod kv;
#[path = "../../examples/tail.rs"]
#[allow(missing_docs, unreachable_pub, reason = "an example")]
mod tail;
#[path = "../../examples/upload.rs"]
#[allow(missing_docs, unreachable_pub, reason = "an example")]
mod upload;

#[test]
fn a_key_value_store_is_called_by_unix_socket_and_shared_memory() {
    kv::main().expect("it runs");
}

#[test]
fn a_log_is_followed_by_a_channel() {
    tail::main().expect("it runs");
}

#[test]
fn a_file_is_uploaded_in_parts() {
    upload::main().expect("it runs");
}

#[test]
fn the_examples_are_short() {
    let sources = [
        include_str!("../../examples/kv.rs"),
        include_str!("../../examples/tail.rs"),
        include_str!("../../examples/upload.rs"),
    ];
    for source in sources {
        assert!(source.lines().count() < 100, "{}", source.lines().next().unwrap_or_default());
    }
}
