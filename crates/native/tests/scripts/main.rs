//! Scripts on a clock that is a number, and properties of whole engines.

mod cuts;
mod deciding;
mod many;
mod newer;
mod session;
#[expect(unreachable_pub, reason = "the fuzz targets use it as well")]
mod shell;
#[expect(unreachable_pub, reason = "the fuzz targets use it as well")]
mod world;
mod worlds;
