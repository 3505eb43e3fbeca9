//! What a client that breaks the rules of HTTP/3 and QPACK gets over the wire: the cases of h3spec (RFC 9114, RFC 9204).

use quinn_proto::{ConnectionError, VarInt};
use sekisho_http3::Code;
use sekisho_testkit::{Server, Tree};

use crate::client::{Client, framed, headers};
use crate::support::can_make_certificates;
use crate::{serve, site};

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")];

/// What is sent, and by which code the connection ends.
type Closes = (&'static str, fn(&mut Client), Code);

/// A client that has not opened its control stream.
fn connect(server: &Server) -> Client {
    let mut client = Client::begin(server.address(), "a.test");
    client.until("the handshake", |client| client.is_connected);
    client
}

/// A control stream with these frames behind SETTINGS.
fn control(client: &mut Client, kind: u64, payload: &[u8]) {
    client.open_control(&framed(kind, payload));
}

const CLOSES: &[Closes] = &[
    (
        "DATA before HEADERS",
        |client| {
            client.open_request(&framed(0, b"x"));
        },
        Code::FrameUnexpected,
    ),
    (
        "CANCEL_PUSH on a request stream",
        |client| {
            client.open_request(&framed(3, &[0]));
        },
        Code::FrameUnexpected,
    ),
    (
        "SETTINGS on a request stream",
        |client| {
            client.open_request(&framed(4, &[]));
        },
        Code::FrameUnexpected,
    ),
    (
        "a first control frame that is not SETTINGS",
        |client| {
            client.open_uni(&[&[0][..], &framed(7, &[0])].concat());
        },
        Code::MissingSettings,
    ),
    ("DATA on the control stream", |client| control(client, 0, b"x"), Code::FrameUnexpected),
    ("HEADERS on the control stream", |client| control(client, 1, b"x"), Code::FrameUnexpected),
    ("a second SETTINGS", |client| control(client, 4, &[]), Code::FrameUnexpected),
    (
        "a setting of HTTP/2",
        |client| {
            client.open_uni(&[&[0][..], &framed(4, &[2, 1])].concat());
        },
        Code::Settings,
    ),
    (
        "two control streams",
        |client| {
            client.open_control(&[]);
            client.open_control(&[]);
        },
        Code::StreamCreation,
    ),
    (
        "a push stream of the client",
        |client| {
            client.open_uni(&[1, 0]);
        },
        Code::StreamCreation,
    ),
    (
        "a control stream that ends",
        |client| {
            let id = client.open_control(&[]);
            client.finish(id);
        },
        Code::ClosedCriticalStream,
    ),
    (
        "an encoder stream that is reset",
        |client| {
            let id = client.open_uni(&[2]);
            // By then the server knows the type of the stream.
            client.get("/");
            client.connection.send_stream(id).reset(VarInt::from_u32(0)).expect("open");
        },
        Code::ClosedCriticalStream,
    ),
    (
        "a request that ends within a frame",
        |client| {
            let id = client.open_request(&headers(&GET)[..9]);
            client.finish(id);
        },
        Code::Frame,
    ),
    (
        "an index that the static table does not have",
        |client| {
            client.open_request(&framed(1, &[0, 0, 0xff, 0x24]));
        },
        Code::DecompressionFailed,
    ),
    (
        "a table that is larger than was allowed",
        |client| {
            client.open_uni(&[2, 0x3f, 0xe2, 0x1f]);
        },
        Code::EncoderStream,
    ),
    (
        "an insert count that does not rise",
        |client| {
            client.open_uni(&[3, 0]);
        },
        Code::DecoderStream,
    ),
];

#[test]
fn a_violation_closes_the_connection_with_its_code() {
    // Q1
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), &site(""));
    for (what, violate, code) in CLOSES {
        let mut client = connect(&server);
        violate(&mut client);
        client.until(what, |client| client.lost.is_some());
        let Some(ConnectionError::ApplicationClosed(close)) = &client.lost else {
            panic!("{what}: {:?}", client.lost);
        };
        assert_eq!(close.error_code.into_inner(), code.number(), "{what}: {}", code.name());
    }
}

#[test]
fn a_malformed_request_resets_its_stream_only() {
    // Q1
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/a", "hello");
    let server = serve(tree, &site(""));
    let mut client = Client::connect(server.address(), "a.test");
    let rows: [(&str, Vec<(&str, &str)>); 6] = [
        ("a pseudo-header field twice", [&GET[..], &[(":path", "/")]].concat()),
        ("no :method", GET[1..].to_vec()),
        ("no :path", GET[..3].to_vec()),
        ("a pseudo-header field of a response", [&GET[..], &[(":status", "200")]].concat()),
        ("a late pseudo-header field", [&GET[..3], &[("a", "b"), GET[3]]].concat()),
        ("a field of HTTP/1", [&GET[..], &[("connection", "close")]].concat()),
    ];
    for (what, fields) in rows {
        let id = client.open_request(&headers(&fields));
        client.finish(id);
        assert_eq!(client.response(id).reset, Some(Code::Message.number()), "{what}");
    }
    assert_eq!(client.get("/a").body, b"hello");
}
