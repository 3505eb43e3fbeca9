//! HPACK against another implementation, both ways (V12).

use proptest::prelude::*;
use sekisho_http::Status;
use sekisho_http2::hpack::{Decoder, Encoder};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    let verdict = decoder.decode(block, &mut Vec::new(), |field| {
        fields.push((field.name.to_vec(), field.value.to_vec()));
    });
    verdict.ok().map(|()| fields)
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z-]{1,20}".prop_map(String::into_bytes),
        "[ -~]{0,90}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..300),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let known: &[&[u8]] =
        &[b"server", b"date", b"content-type", b"etag", b"set-cookie", b"x-a", b"vary"];
    prop_oneof![
        3 => proptest::sample::select(known).prop_map(<[u8]>::to_vec),
        1 => "[a-z][a-z0-9-]{0,40}".prop_map(String::into_bytes),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let few: &[&[u8]] = &[b"", b"a", b"text/html", b"Sun, 15 Nov 2026 04:42:56 GMT", b"sekisho"];
    prop_oneof![
        3 => proptest::sample::select(few).prop_map(<[u8]>::to_vec),
        1 => text(),
    ]
}

proptest! {
    /// What we write, we and another decoder read the same.
    #[test]
    fn blocks_are_read_as_they_were_written(
        blocks in proptest::collection::vec(
            (
                proptest::collection::vec((name(), value()), 0..12),
                proptest::option::weighted(0.1, 0_u32..6000),
                200_u16..600,
            ),
            1..20,
        ),
    ) {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        let mut other = fluke_hpack::Decoder::new();
        for (fields, size, status) in blocks {
            if let Some(size) = size {
                encoder.set_peer_max(size);
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            encoder.status(Status::new(status).expect("a status"), &mut block);
            for (name, value) in &fields {
                encoder.field(name, value, &mut block);
            }
            let mut expected = vec![(b":status".to_vec(), status.to_string().into_bytes())];
            expected.extend(fields);
            let ours = decoded(&mut decoder, &block);
            prop_assert_eq!(ours.as_ref(), Some(&expected));
            prop_assert_eq!(&other.decode(&block).expect("valid"), &expected);
            prop_assert!(encoder.capacity() < 4096);
        }
    }

    /// What another encoder writes, we read.
    #[test]
    fn we_read_what_others_write(
        blocks in proptest::collection::vec(
            proptest::collection::vec((name(), value()), 0..12),
            1..20,
        ),
    ) {
        let mut encoder = fluke_hpack::Encoder::new();
        let mut decoder = Decoder::default();
        for fields in blocks {
            let block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            prop_assert_eq!(decoded(&mut decoder, &block), Some(fields));
        }
    }

    /// Nothing panics, and what both take they understand alike.
    #[test]
    fn any_bytes_are_read_alike_or_refused(
        blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
    ) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let Some(fields) = decoded(&mut decoder, &block) else { break };
            prop_assert!(fields.len() <= block.len());
            prop_assert!(decoder.capacity() < 5 * 4096);
        }
    }
}
