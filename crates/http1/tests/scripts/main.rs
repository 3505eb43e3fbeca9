//! The engine, driven by scripts on a virtual clock.

mod bodies;
mod connections;
mod cuts;
mod deadlines;
mod harness;
mod refusals;
