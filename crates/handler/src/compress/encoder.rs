//! One encoder for all codings: bytes go in, compressed bytes are appended to what is given. It never blocks
//! and is independent of answers.

use std::io::{self, Write};
use std::sync::Arc;

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation as Operation, BrotliEncoderParameter as Parameter,
    BrotliEncoderStateStruct,
};
use flate2::write::GzEncoder;
use sekisho_config::{Recode, Recoding};
use sekisho_http::Coding;
use zstd::zstd_safe::CParameter;

/// Windows of brotli and zstd are not larger than 2 to the power of this: what a stream costs in memory is
/// bounded by it (gzip's window is 32 KiB).
const WINDOW_BITS_MAX: u32 = 18;
/// Above this level zstd would take tables many times larger than the window.
const TABLES_LEVEL: u8 = 6;
/// The least that brotli and zstd know.
const WINDOW_BITS_MIN: u32 = 10;
/// What brotli gives at a time.
const ROOM_BYTES: usize = 8 * 1024;

/// A coding at work on one body.
pub struct Encoder(Box<Kind>);

enum Kind {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Gzip(GzEncoder<Vec<u8>>),
    /// No compression: a text in another charset.
    Recode(Recoding),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self.0 {
            Kind::Zstd(_) => "Encoder(zstd)",
            Kind::Brotli(_) => "Encoder(br)",
            Kind::Gzip(_) => "Encoder(gzip)",
            Kind::Recode(_) => "Encoder(charset)",
        })
    }
}

impl Encoder {
    /// For a body of this length, where it is known: a short one needs less memory.
    pub fn new(coding: Coding, level: u8, length: Option<u64>) -> io::Result<Self> {
        let bits = length.map_or(WINDOW_BITS_MAX, |length| {
            // A little more than the body: brotli's window is 16 bytes short of a power of two.
            u64::BITS - length.saturating_add(16).leading_zeros()
        });
        let bits = bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        Ok(Self(Box::new(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), i32::from(level))?;
                encoder.set_parameter(CParameter::WindowLog(bits))?;
                if level > TABLES_LEVEL {
                    encoder.set_parameter(CParameter::HashLog(bits))?;
                    encoder.set_parameter(CParameter::ChainLog(bits))?;
                }
                encoder.set_pledged_src_size(length)?;
                Kind::Zstd(encoder)
            }
            Coding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                state.set_parameter(Parameter::BROTLI_PARAM_QUALITY, u32::from(level));
                state.set_parameter(Parameter::BROTLI_PARAM_LGWIN, bits);
                Kind::Brotli(state)
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(u32::from(level));
                Kind::Gzip(GzEncoder::new(Vec::new(), level))
            }
        })))
    }

    /// One that gives texts in another charset.
    pub fn recode(recode: &Arc<Recode>) -> Self {
        Self(Box::new(Kind::Recode(Recoding::new(recode))))
    }

    /// Takes all of the bytes; gives what is ready.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match &mut *self.0 {
            Kind::Zstd(encoder) => {
                encoder.write_all(bytes)?;
                out.append(encoder.get_mut());
            }
            Kind::Brotli(state) => {
                run_brotli(state, Operation::BROTLI_OPERATION_PROCESS, bytes, out)?;
            }
            Kind::Gzip(encoder) => {
                encoder.write_all(bytes)?;
                out.append(encoder.get_mut());
            }
            Kind::Recode(recoding) => recoding.push(bytes, out),
        }
        Ok(())
    }

    /// Writes all input taken so far: a decoder can reproduce it completely.
    pub fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut *self.0 {
            Kind::Zstd(encoder) => {
                encoder.flush()?;
                out.append(encoder.get_mut());
            }
            Kind::Brotli(state) => run_brotli(state, Operation::BROTLI_OPERATION_FLUSH, &[], out)?,
            Kind::Gzip(encoder) => {
                encoder.flush()?;
                out.append(encoder.get_mut());
            }
            Kind::Recode(_) => {}
        }
        Ok(())
    }

    /// Gives the rest and the end.
    pub fn finish(self, out: &mut Vec<u8>) -> io::Result<()> {
        match *self.0 {
            Kind::Zstd(encoder) => out.append(&mut encoder.finish()?),
            Kind::Brotli(mut state) => {
                run_brotli(&mut state, Operation::BROTLI_OPERATION_FINISH, &[], out)?;
            }
            Kind::Gzip(encoder) => out.append(&mut encoder.finish()?),
            Kind::Recode(mut recoding) => recoding.finish(out),
        }
        Ok(())
    }
}

fn run_brotli(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    operation: Operation,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut room = [0; ROOM_BYTES];
    let (mut left, mut taken) = (bytes.len(), 0);
    loop {
        let (mut free, mut made) = (room.len(), 0);
        let is_well = state.compress_stream(
            operation,
            &mut left,
            bytes,
            &mut taken,
            &mut free,
            &mut room,
            &mut made,
            &mut None,
            &mut |_, _, _, _| (),
        );
        out.extend_from_slice(&room[..made]);
        if !is_well {
            return Err(io::Error::other("brotli failed"));
        }
        let is_done = match operation {
            Operation::BROTLI_OPERATION_FINISH => state.is_finished(),
            _ => left == 0 && !state.has_more_output(),
        };
        if is_done {
            return Ok(());
        }
    }
}
