//! What HPACK (RFC 7541) and QPACK (RFC 9204) share: numbers and strings as they are written, and the dynamic table.

pub mod prefixed;
pub mod table;
