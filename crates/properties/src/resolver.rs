//! Answers of name servers: any bytes are the answer to the question or none; only records that belong to the name
//! are believed, by a second reading; no name goes round in a circle.
//!
//! The input is what stands behind a sound question for `a.b`, after two bytes: how many records it has, and its
//! flags. It is also taken for a whole message.

use std::net::IpAddr;

use sekisho_upstream::resolve::{Kind, ResolveFault, answer, query};

const ID: u16 = 0x1234;

/// Holds the reader to it.
pub fn check(data: &[u8]) {
    let _ = answer(data, ID, "a.b", Kind::A);
    let (Some(count), Some(flags)) = (data.first(), data.get(1)) else { return };
    for kind in [Kind::A, Kind::Aaaa] {
        let mut message = Vec::new();
        query(ID, "a.b", kind, &mut message).expect("a name");
        (message[2], message[3], message[7]) = (0x80 | flags & 2, flags >> 4, *count);
        message.extend_from_slice(&data[2..]);
        match answer(&message, ID, "a.b", kind) {
            Err(ResolveFault::Truncated) => assert!(flags & 2 != 0),
            Err(ResolveFault::NoSuchName) => assert_eq!(flags >> 4, 3),
            Err(ResolveFault::Refused(code)) => assert_eq!(flags >> 4, code),
            Err(fault) => assert_eq!(fault, ResolveFault::Malformed),
            Ok(found) => {
                assert!(found.addresses.len() <= 64.min(usize::from(*count)));
                for address in &found.addresses {
                    let bytes = match address {
                        IpAddr::V4(address) => address.octets().to_vec(),
                        IpAddr::V6(address) => address.octets().to_vec(),
                    };
                    let is_there = message.windows(bytes.len()).any(|window| window == bytes);
                    assert!(is_there, "no address is made up");
                }
                assert_eq!(
                    answer(&message, ID ^ 1, "a.b", kind),
                    Err(ResolveFault::NotOurs),
                    "the number counts"
                );
                let other = answer(&message, ID, "a.c", kind);
                assert_eq!(other, Err(ResolveFault::NotOurs), "the name counts");
            }
        }
    }
}
