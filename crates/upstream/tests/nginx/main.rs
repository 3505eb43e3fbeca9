//! The same questions put to us and to a real nginx: what is kept, which target an upstream gets, which places an
//! answer names. Skipped where there is no nginx.

mod cache;
mod places;
mod server;
mod target;
