//! The encoders: whatever is put in, however it is cut and flushed, comes out again.

use std::io::Read;

use sekisho_handler::compress::{Encoder, whole};
use sekisho_http::Coding;

fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Zstd => out = zstd::stream::decode_all(bytes).expect("zstd"),
        Coding::Brotli => {
            brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).expect("brotli");
        }
        Coding::Gzip => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).expect("gzip");
        }
    }
    out
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn content(random: &mut Random, bytes: usize) -> Vec<u8> {
    let letters = 1 + random.below(255);
    (0..bytes).map(|_| random.below(letters) as u8).collect()
}

const LEVELS: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, &[1, 3, 9, 19, 22]),
    (Coding::Brotli, &[0, 1, 2, 4, 5, 9, 10, 11]),
    (Coding::Gzip, &[1, 2, 6, 9]),
];

#[test]
fn however_it_is_cut_and_flushed_it_comes_out_whole() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let size = [0, 1, 100, 5000, 70_000][random.below(5)];
        let content = content(&mut random, size);
        for (coding, levels) in LEVELS {
            for level in levels {
                let length = (random.below(2) == 0).then_some(size as u64);
                let mut encoder = Encoder::new(coding, *level, length).expect("an encoder");
                let mut out = Vec::new();
                let mut rest = &content[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(1 + random.below(rest.len()));
                    encoder.write(piece, &mut out).expect("it takes it");
                    if random.below(3) == 0 {
                        encoder.flush(&mut out).expect("it gives it");
                    }
                    rest = after;
                }
                encoder.finish(&mut out).expect("it ends");
                assert!(decode(coding, &out) == content, "seed {seed}, {coding:?} {level}");
            }
        }
    }
}

#[test]
fn what_would_not_be_shorter_is_left_alone() {
    let mut random = Random(1);
    let noise: Vec<u8> = (0..2000).map(|_| random.below(256) as u8).collect();
    for coding in Coding::ALL {
        assert!(whole(coding, 3, &noise).is_none(), "{coding:?}");
        assert!(whole(coding, 3, b"").is_none(), "{coding:?}");
        assert!(whole(coding, 3, b"a").is_none(), "{coding:?}");
        let made = whole(coding, 3, &[b'a'; 2000]).expect("shorter");
        assert_eq!(decode(coding, &made), [b'a'; 2000], "{coding:?}");
    }
}
