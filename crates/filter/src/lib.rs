//! Pure: what is done to a response's body on its way to the client: text that is replaced (`sub_filter`), server-side
//! includes (`ssi`), slices (`slice`), the gzip format (`gunzip`); and the cookies of `userid`. Bytes go in, bytes and
//! orders come out; nothing is fetched or sent here.
#![forbid(unsafe_code)]

pub mod gzip;
pub mod slice;
pub mod ssi;
pub mod substitute;
pub mod time_format;
pub mod uid;
