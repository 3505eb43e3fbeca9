//! The client's side over scripts on a virtual clock: requests out, answers back, windows, deadlines and ends (U1–U4).
#![forbid(unsafe_code)]

#[path = "../../../http1/tests/client/harness.rs"]
mod harness;

mod answers;
mod cuts;
mod ends;
mod frames;
mod windows;
