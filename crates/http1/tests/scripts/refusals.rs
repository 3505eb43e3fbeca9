//! What is refused and what is not (H5, H9, H10; V1, V2), row by row. Each refusal is
//! tried whole and byte by byte.

use crate::harness::{Peer, policy, refused};
use sekisho_http::Status;
use sekisho_http1::{Cause, Event};
use sekisho_lifecycle::{CloseReason, Stage};

/// Feeds a request, wanting its body, until something is refused; `None` if nothing is.
fn result(peer: &mut Peer, bytes: &[u8], piece: usize) -> Option<(u16, Cause)> {
    for piece in bytes.chunks(piece) {
        let mut event = peer.sends(piece);
        while let Some(current) = event {
            match current {
                Event::Request => peer.takes_body(None).expect("there is no limit"),
                Event::Refused(_) => return refused(Some(&current)),
                _ => {}
            }
            event = peer.next();
        }
    }
    None
}

fn is_refused(request: &[u8], status: u16, cause: Cause) {
    for piece in [request.len(), 1, 7] {
        let mut peer = Peer::default();
        let found = result(&mut peer, request, piece);
        let shown = request.escape_ascii();
        assert_eq!(found, Some((status, cause)), "{shown} in pieces of {piece}");
        assert_eq!(cause.status().code(), status);
        peer.answers(Status::new(status).expect("a status"));
        let answer = peer.flushes();
        assert!(answer.contains("\r\nConnection: close\r\n"), "{shown}: {answer}");
        assert_eq!(peer.stage(), Stage::Lingering, "{shown}");
        // What arrives later is ignored, and nothing is answered a second time.
        assert_eq!(peer.sends(crate::harness::GET), None);
        assert!(peer.inbox.is_empty() && peer.scratch.out.is_empty());
        assert_eq!(peer.ends_input(), None);
        assert_eq!(peer.stage(), Stage::Closed(CloseReason::OutOfSync));
    }
}

fn fields_are_refused(fields: &[u8], status: u16, cause: Cause) {
    is_refused(&[b"POST / HTTP/1.1\r\n", fields, b"\r\n"].concat(), status, cause);
}

/// H9, V1: request lines.
#[test]
fn a_malformed_request_line_is_refused() {
    let rows: &[(&[u8], u16, Cause)] = &[
        (b"GET  / HTTP/1.1\r\n", 400, Cause::TargetInvalid),
        (b"GET /  HTTP/1.1\r\n", 400, Cause::RequestLineInvalid),
        (b"GET / HTTP/1.1 \r\n", 400, Cause::RequestLineInvalid),
        (b"GET /a b HTTP/1.1\r\n", 400, Cause::RequestLineInvalid),
        (b" GET / HTTP/1.1\r\n", 400, Cause::MethodInvalid),
        (b"\tGET / HTTP/1.1\r\n", 400, Cause::MethodInvalid),
        (b"GE(T / HTTP/1.1\r\n", 400, Cause::MethodInvalid),
        (b"G\xc3\x89T / HTTP/1.1\r\n", 400, Cause::MethodInvalid),
        (b"GET\t/\tHTTP/1.1\r\n", 400, Cause::RequestLineInvalid),
        (b"GET\r\n", 400, Cause::RequestLineInvalid),
        (b"GET /\r\n", 400, Cause::VersionMissing),
        (b"GET / \r\n", 400, Cause::VersionInvalid),
        (b"GET / http/1.1\r\n", 400, Cause::VersionInvalid),
        (b"GET / HTTP/1\r\n", 400, Cause::VersionInvalid),
        (b"GET / HTTP/1.10\r\n", 400, Cause::VersionInvalid),
        (b"GET / HTTP/11.1\r\n", 400, Cause::VersionInvalid),
        (b"GET / HTTP/+1.1\r\n", 400, Cause::VersionInvalid),
        (b"GET / FTP/1.1\r\n", 400, Cause::VersionInvalid),
        (b"GET / HTTP/0.9\r\n", 505, Cause::VersionNotSupported),
        (b"GET / HTTP/1.2\r\n", 505, Cause::VersionNotSupported),
        (b"GET / HTTP/2.0\r\n", 505, Cause::VersionNotSupported),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, Cause::VersionNotSupported),
        (b"GET / HTTP/9.9\r\n", 505, Cause::VersionNotSupported),
        (b"CONNECT / HTTP/1.1\r\n", 405, Cause::ConnectWithPath),
        (b"CONNECT http://example.org/ HTTP/1.1\r\n", 405, Cause::ConnectWithPath),
        (b"CONNECT * HTTP/1.1\r\n", 400, Cause::TargetInvalid),
        (b"CONNECT example.org HTTP/1.1\r\n", 400, Cause::TargetInvalid),
        (b"GET /\x01 HTTP/1.1\r\n", 400, Cause::TargetInvalid),
        (b"GET /\x7f HTTP/1.1\r\n", 400, Cause::TargetInvalid),
        (b"GET /\x00 HTTP/1.1\r\n", 400, Cause::Nul),
        (b"GET /\r HTTP/1.1\r\n", 400, Cause::BareCr),
        (b"GET / HTTP/1.1\r\r\n", 400, Cause::BareCr),
        (b"GET\r/ HTTP/1.1\r\n", 400, Cause::BareCr),
        (b"\x00", 400, Cause::Nul),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, Cause::MethodInvalid),
        (b"\r\n\r\n", 400, Cause::BlankLines),
        (b"\n\n", 400, Cause::BlankLines),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, Cause::BlankLines),
        (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, Cause::BareCr),
    ];
    for (request, status, cause) in rows {
        is_refused(request, *status, *cause);
    }
}

/// H9, V1: fields and `Host`.
#[test]
fn an_ambiguous_head_is_refused() {
    let rows: &[(&[u8], u16, Cause)] = &[
        // Fields.
        (b"Host: a\r\nA : b\r\n", 400, Cause::SpaceBeforeColon),
        (b"Host: a\r\nA\t: b\r\n", 400, Cause::SpaceBeforeColon),
        (b"Host: a\r\nTransfer-Encoding : chunked\r\n", 400, Cause::SpaceBeforeColon),
        (b"Host: a\r\nContent-Length : 5\r\n", 400, Cause::SpaceBeforeColon),
        (b"Host: a\r\nA: b\r\n c\r\n", 400, Cause::FieldFolded),
        (b"Host: a\r\nA: b\r\n\tc\r\n", 400, Cause::FieldFolded),
        (b" Host: a\r\n", 400, Cause::FieldFolded),
        (b"Host: a\r\nTransfer-Encoding:\r\n chunked\r\n", 400, Cause::FieldFolded),
        (b"Host: a\r\n \r\n", 400, Cause::FieldFolded),
        (b"Host: a\r\nA\r\n", 400, Cause::ColonMissing),
        (b"Host: a\r\nA b\r\n", 400, Cause::ColonMissing),
        (b"Host: a\r\n: b\r\n", 400, Cause::FieldNameInvalid),
        (b"Host: a\r\nA B: c\r\n", 400, Cause::FieldNameInvalid),
        (b"Host: a\r\nA(: c\r\n", 400, Cause::FieldNameInvalid),
        (b"Host: a\r\n\xc3\x89: c\r\n", 400, Cause::FieldNameInvalid),
        (b"Host: a\r\n\x0bTransfer-Encoding: chunked\r\n", 400, Cause::FieldNameInvalid),
        (b"Host: a\r\nA: b\x01\r\n", 400, Cause::FieldValueInvalid),
        (b"Host: a\r\nA: b\x7f\r\n", 400, Cause::FieldValueInvalid),
        (b"Host: a\r\nA: b\x0bc\r\n", 400, Cause::FieldValueInvalid),
        (b"Host: a\r\nA: b\x00\r\n", 400, Cause::Nul),
        (b"Host: a\r\nA\x00: b\r\n", 400, Cause::Nul),
        (b"Host: a\r\n\x00: b\r\n", 400, Cause::Nul),
        (b"Host: a\r\nA: b\rc\r\n", 400, Cause::BareCr),
        (b"Host: a\r\nA: b\r\r\n", 400, Cause::BareCr),
        (b"Host: a\r\nA: b\rContent-Length: 5\r\n", 400, Cause::BareCr),
        (b"Host: a\r\nA\r: b\r\n", 400, Cause::BareCr),
        (b"Host: a\r\n\rA: b\r\n", 400, Cause::BareCr),
        (b"Host: a\r\nA: b\n\r\r\n", 400, Cause::BareCr),
        // Host.
        (b"A: b\r\n", 400, Cause::HostMissing),
        (b"", 400, Cause::HostMissing),
        (b"Host: a\r\nHost: a\r\n", 400, Cause::HostRepeated),
        (b"Host: a\r\nhOST: b\r\n", 400, Cause::HostRepeated),
        // Others that may come once; Referer is none of them.
        (b"Host: a\r\nAuthorization: b\r\nauthorization: b\r\n", 400, Cause::FieldRepeated),
        (b"Host: a\r\nIf-Range: b\r\nIf-Range: b\r\n", 400, Cause::FieldRepeated),
        (b"Host: a\r\nContent-Range: b\r\nContent-Range: b\r\n", 400, Cause::FieldRepeated),
        (b"Host:\r\n", 400, Cause::HostInvalid),
        (b"Host: \r\n", 400, Cause::HostInvalid),
        (b"Host: a b\r\n", 400, Cause::HostInvalid),
        (b"Host: a,b\r\n", 400, Cause::HostInvalid),
        (b"Host: a/b\r\n", 400, Cause::HostInvalid),
        (b"Host: a\\b\r\n", 400, Cause::HostInvalid),
        (b"Host: u@a\r\n", 400, Cause::HostInvalid),
        (b"Host: a?b\r\n", 400, Cause::HostInvalid),
        (b"Host: a#b\r\n", 400, Cause::HostInvalid),
        (b"Host: a:b\r\n", 400, Cause::HostInvalid),
        (b"Host: a:-1\r\n", 400, Cause::HostInvalid),
        (b"Host: a:65536\r\n", 400, Cause::HostInvalid),
        (b"Host: a:80:80\r\n", 400, Cause::HostInvalid),
        (b"Host: :80\r\n", 400, Cause::HostInvalid),
        (b"Host: ..\r\n", 400, Cause::HostInvalid),
        (b"Host: a..b\r\n", 400, Cause::HostInvalid),
        (b"Host: a%zz\r\n", 400, Cause::HostInvalid),
        (b"Host: [::1\r\n", 400, Cause::HostInvalid),
        (b"Host: [::g]\r\n", 400, Cause::HostInvalid),
        (b"Host: [::1]a\r\n", 400, Cause::HostInvalid),
        (b"Host: a\xe9\r\n", 400, Cause::HostInvalid),
    ];
    for (fields, status, cause) in rows {
        fields_are_refused(fields, *status, *cause);
    }
    is_refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400, Cause::HostRepeated);
}

/// H9, V1, V4: how long the message is.
#[test]
fn an_ambiguous_length_is_refused() {
    let rows: &[(&[u8], u16, Cause)] = &[
        // Content-Length.
        (b"Host: a\r\nContent-Length: +5\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: -1\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 5a\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 0x5\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 5 5\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 5.0\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: \"5\"\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 5;\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length:\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: \xb2\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 18446744073709551616\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 99999999999999999999999\r\n", 400, Cause::LengthInvalid),
        (b"Host: a\r\nContent-Length: 5, 5\r\n", 400, Cause::LengthRepeated),
        (b"Host: a\r\nContent-Length: 5,6\r\n", 400, Cause::LengthRepeated),
        (b"Host: a\r\nContent-Length: ,5\r\n", 400, Cause::LengthRepeated),
        (b"Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n", 400, Cause::LengthRepeated),
        (b"Host: a\r\nContent-Length: 5\r\nContent-length: 6\r\n", 400, Cause::LengthRepeated),
        (b"Host: a\r\nContent-Length: 0\r\nContent-Length:\r\n", 400, Cause::LengthRepeated),
        // Transfer-Encoding.
        (
            b"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            400,
            Cause::LengthAndCoding,
        ),
        (
            b"Host: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            400,
            Cause::LengthAndCoding,
        ),
        (
            b"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: identity\r\n",
            400,
            Cause::LengthAndCoding,
        ),
        (b"Host: a\r\nTransfer-Encoding: chunked, chunked\r\n", 400, Cause::CodingRepeated),
        (
            b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
            Cause::CodingRepeated,
        ),
        (b"Host: a\r\nTransfer-Encoding: chunked, gzip\r\n", 400, Cause::CodingNotLast),
        (
            b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            400,
            Cause::CodingNotLast,
        ),
        (b"Host: a\r\nTransfer-Encoding:\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: ,\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: chunked,\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: \"chunked\"\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: chunked;a=b\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: chunked chunked\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: ch\xc3\xbcnked\r\n", 400, Cause::CodingInvalid),
        (b"Host: a\r\nTransfer-Encoding: \x0bchunked\r\n", 400, Cause::FieldValueInvalid),
        (b"Host: a\r\nTransfer-Encoding: chunked\x00\r\n", 400, Cause::Nul),
        (b"Host: a\r\nTransfer-Encoding: gzip\r\n", 501, Cause::CodingUnknown),
        (b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501, Cause::CodingUnknown),
        (b"Host: a\r\nTransfer-Encoding: identity\r\n", 501, Cause::CodingUnknown),
        (b"Host: a\r\nTransfer-Encoding: xchunked\r\n", 501, Cause::CodingUnknown),
        (b"Host: a\r\nTransfer-Encoding: chunked1\r\n", 501, Cause::CodingUnknown),
        (b"Host: a\r\nTransfer-Encoding: a;b=c\r\n", 501, Cause::CodingUnknown),
    ];
    for (fields, status, cause) in rows {
        fields_are_refused(fields, *status, *cause);
    }
    is_refused(
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        Cause::CodingInHttp10,
    );
}

/// H9, V2: the chunked coding.
#[test]
fn an_ambiguous_chunk_is_refused() {
    let extension = [b"5;", [b'a'; 4096].as_slice(), b"\r\n"].concat();
    let trailer = [b"0\r\nA:", [b'a'; 8192].as_slice(), b"\r\n"].concat();
    let rows: &[(&[u8], u16, Cause)] = &[
        (b"\r\n", 400, Cause::ChunkSizeInvalid),
        (b";a\r\n", 400, Cause::ChunkSizeInvalid),
        (b"x\r\n", 400, Cause::ChunkSizeInvalid),
        (b"0x5\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"+5\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"-5\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b" 5\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"5 \r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"5\t;a\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"5_0\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"5\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"\x005\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"00000000000000005\r\nhello\r\n", 400, Cause::ChunkSizeInvalid),
        (b"10000000000000000\r\n", 400, Cause::ChunkSizeInvalid),
        (b"fffffffffffffffff\r\n", 400, Cause::ChunkSizeInvalid),
        (b"5\rhello\r\n", 400, Cause::ChunkEndInvalid),
        (b"5\r\r\nhello\r\n", 400, Cause::ChunkEndInvalid),
        (b"5\r\nhello\n", 400, Cause::ChunkEndInvalid),
        (b"5\r\nhello!\r\n", 400, Cause::ChunkEndInvalid),
        (b"5\r\nhello0\r\n\r\n", 400, Cause::ChunkEndInvalid),
        (b"5\r\nhello\r0\r\n\r\n", 400, Cause::ChunkEndInvalid),
        (b"5;a\nhello\r\n", 400, Cause::ChunkExtensionInvalid),
        (b"5;a\x00\r\nhello\r\n", 400, Cause::ChunkExtensionInvalid),
        (b"5;a\x7f\r\nhello\r\n", 400, Cause::ChunkExtensionInvalid),
        (b"5;a\rb\r\nhello\r\n", 400, Cause::ChunkEndInvalid),
        (&extension, 400, Cause::ChunkExtensionsTooLong),
        (b"0\r\n\n", 400, Cause::TrailerInvalid),
        (b"0\r\n\rX", 400, Cause::TrailerInvalid),
        (b"0\r\n A: b\r\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nA : b\r\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nA\r\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nA: b\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nA: b\x00\r\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nA: b\rc\r\n\r\n", 400, Cause::TrailerInvalid),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", 400, Cause::TrailerInvalid),
        (&trailer, 431, Cause::TrailersTooLong),
    ];
    for (body, status, cause) in rows {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        is_refused(&[head, *body].concat(), *status, *cause);
    }
}

/// H5, H9: what is unusual but clear is taken.
#[test]
fn what_is_unambiguous_is_accepted() {
    let rows: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\nGET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\nHost: a\r\nA: b\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET /\xff\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"M-SEARCH!#$ / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a_b.example.:80\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:a\t \r\nA:\r\nB:  \xe9 \r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0000\r\nA: b\r\nB:\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000005\r\nhello\r\n0\r\n\r\n",
    ];
    for request in rows {
        for piece in [request.len(), 1] {
            let mut peer = Peer::default();
            let shown = request.escape_ascii();
            assert_eq!(result(&mut peer, request, piece), None, "{shown}");
            assert!(peer.seen.contains(&crate::harness::Seen::BodyEnd), "{shown}");
            assert!(peer.inbox.is_empty(), "{shown}");
        }
    }
}

/// H10: each limit, at its edge and one byte beyond it, whole and byte by byte, and before the head is
/// complete.
#[test]
fn limits_hold_to_the_byte_and_before_the_head_is_complete() {
    let limits = policy(|policy| {
        policy.line_bytes_max = 40;
        policy.field_bytes_max = 30;
        policy.head_bytes_max = 120;
        policy.fields_max = 5;
    });
    let line = |bytes: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(bytes - 16));
    let field = |bytes: usize| format!("A: {}\r\n", "b".repeat(bytes - 5));
    let host = "Host: a\r\n";
    let rows = [
        (line(40) + host + "\r\n", None),
        (line(41), Some((414, Cause::LineTooLong))),
        ("GET /".to_owned() + &"a".repeat(35), Some((414, Cause::LineTooLong))),
        ("GET /".to_owned() + &"a".repeat(34), None),
        (line(20) + host + &field(30) + "\r\n", None),
        (line(20) + host + &field(31), Some((431, Cause::FieldTooLong))),
        (line(20) + host + "A: " + &"b".repeat(27), Some((431, Cause::FieldTooLong))),
        (line(20) + host + "A: " + &"b".repeat(26), None),
        (line(40) + host + &field(30) + &field(30) + &field(9) + "\r\n", None),
        (line(40) + host + &field(30) + &field(30) + &field(10), None),
        (
            line(40) + host + &field(30) + &field(30) + &field(10) + "\r\n",
            Some((431, Cause::HeadTooLarge)),
        ),
        (line(20) + host + &"A: b\r\n".repeat(4) + "\r\n", None),
        (line(20) + host + &"A: b\r\n".repeat(5), Some((431, Cause::TooManyFields))),
    ];
    for (request, expected) in rows {
        for piece in [request.len(), 1, 3] {
            let mut peer = Peer::new(limits.clone());
            let found = result(&mut peer, request.as_bytes(), piece);
            assert_eq!(found, expected, "{request:?} in pieces of {piece}");
        }
    }
}

/// H4: a definite error is answered at once; what may still become valid is waited for.
#[test]
fn nothing_is_answered_before_it_is_certain() {
    let mut peer = Peer::default();
    assert_eq!(peer.sends("GET / HTTP/1.1\r\nHost : a\r\n"), None);
    assert_eq!(refused(peer.sends("\r\n").as_ref()), Some((400, Cause::SpaceBeforeColon)));
    let mut peer = Peer::default();
    assert!(peer.sends("GET / HTTP/3.0\r\n").is_some(), "the request line alone is enough");
    // The first bytes of another protocol: no line end may ever come.
    for other in ["*\0\0\0\u{1}", "\u{16}\u{3}\u{1}", "GET\0"] {
        assert!(Peer::default().sends(other).is_some(), "{other:?}");
    }
}

/// H9: a refused HEAD request gets no body, and the scratch holds what is known of it.
#[test]
fn a_refusal_keeps_as_much_of_the_head_as_is_known() {
    let mut peer = Peer::default();
    assert!(peer.sends("HEAD /x HTTP/1.0\r\nA : b\r\n\r\n").is_some());
    assert_eq!(peer.scratch.head.target(), b"/x");
    peer.answers(Status::BAD_REQUEST);
    let answer = peer.flushes();
    assert!(answer.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\n"), "{answer}");

    let mut peer = Peer::default();
    peer.is_request("GET /old HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.answers(Status::OK);
    assert!(peer.sends("(").is_some());
    assert_eq!(peer.scratch.head.target(), b"", "nothing is left of the request before");
}

/// The causes have words that follow the house's rules.
#[test]
fn messages_are_short_and_distinct() {
    let mut messages: Vec<_> = Cause::ALL.iter().map(|cause| cause.message()).collect();
    messages.sort_unstable();
    messages.dedup();
    assert_eq!(messages.len(), Cause::ALL.len());
    assert!(messages.iter().all(|message| !message.ends_with('.')));
    assert!(Cause::ALL.iter().all(|cause| (400..=505).contains(&cause.status().code())));
}
