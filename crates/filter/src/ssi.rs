//! Server-side includes: a text with commands `<!--#name parameter="value" -->` in it becomes text and orders to
//! include other resources. The rules are those of `ngx_http_ssi_module`; other than there, conditions may be nested.

mod evaluate;
mod parse;
mod value;

pub use evaluate::{Environment, Include, Page, Shared, Step};
pub use parse::{Command, Event, Parser};
pub use value::{Encoding, encode};
