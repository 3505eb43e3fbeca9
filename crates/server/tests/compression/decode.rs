//! Contents that compress well and badly, and decoders that take what comes, piece by piece.

use std::io::Write;

use sekisho_testkit::Response;

/// As they stand in heads.
pub(crate) const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// Words of a sort; the beginning is the same at every length.
pub(crate) fn text(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 16);
    let mut seed = 1_u64;
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = (seed >> 33) % 5000;
        write!(text, "word{} ", word * word % 977).expect("memory takes it");
    }
    text.truncate(bytes);
    text
}

/// The body without its coding.
#[track_caller]
pub(crate) fn decoded(response: &Response) -> Vec<u8> {
    match response.field("content-encoding") {
        None => response.body.clone(),
        Some(coding) => {
            let mut decoder = Decoder::new(coding);
            decoder.push(&response.body);
            let out = decoder.out().to_vec();
            assert!(decoder.ends_well(), "{coding} is cut");
            out
        }
    }
}

/// One decoder for all codings; what has come out can be seen at any time.
pub(crate) enum Decoder {
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>, Vec<u8>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Gzip(Box<flate2::write::GzDecoder<Vec<u8>>>),
}

impl Decoder {
    pub(crate) fn new(coding: &str) -> Self {
        match coding {
            "zstd" => {
                let decoder = zstd::stream::write::Decoder::new(Vec::new()).expect("a decoder");
                Self::Zstd(Box::new(decoder), Vec::new())
            }
            "br" => Self::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096))),
            "gzip" => Self::Gzip(Box::new(flate2::write::GzDecoder::new(Vec::new()))),
            other => panic!("unknown coding {other}"),
        }
    }

    /// More has come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let pushed = match self {
            Self::Zstd(decoder, all) => {
                all.extend_from_slice(bytes);
                decoder.write_all(bytes).and_then(|()| decoder.flush())
            }
            Self::Brotli(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Self::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
        };
        pushed.expect("what comes can be decoded");
    }

    /// What has come out so far.
    pub(crate) fn out(&self) -> &[u8] {
        match self {
            Self::Zstd(decoder, _) => decoder.get_ref(),
            Self::Brotli(decoder) => decoder.get_ref(),
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }

    /// Whether the end has come.
    pub(crate) fn ends_well(self) -> bool {
        match self {
            Self::Zstd(_, all) => zstd::stream::decode_all(&all[..]).is_ok(),
            Self::Brotli(mut decoder) => decoder.close().is_ok(),
            Self::Gzip(decoder) => decoder.finish().is_ok(),
        }
    }
}
