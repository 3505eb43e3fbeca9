//! The types that every HTTP version shares: head, method, status, target, validators and ranges. It owns no
//! socket, task, file or clock; the program around it, which does, is called the shell.
#![forbid(unsafe_code)]

pub mod compression;
pub mod conditional;
pub mod date;
pub mod encoding;
pub mod fields;
pub mod file_name;
pub mod head;
pub mod hex;
pub mod huffman;
pub mod malformed;
pub mod multipart;
mod names;
pub mod parameters;
pub mod policy;
pub mod priority;
pub mod proxy_header;
pub mod range;
pub mod rate;
pub mod refusal;
pub mod request;
pub mod response;
pub mod schedule;
pub mod slots;
pub mod status;
pub mod stream;
pub mod target;
pub mod token;
pub mod upstream;

pub use encoding::{Accepted, Coding};
pub use fields::Fields;
pub use head::{Head, Known, Method, Version};
pub use malformed::Malformed;
pub use policy::Policy;
pub use priority::Priority;
pub use proxy_header::{ProxyAddresses, ProxyHeader, ProxyValue};
pub use rate::{Buckets, Rate};
pub use refusal::Refusal;
pub use response::{BodyLength, Response, Scratch, Sends};
pub use schedule::{Place, Schedule};
pub use slots::{Slots, StreamId};
pub use status::Status;
