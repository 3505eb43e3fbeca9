//! The contract of the native endpoint: the same rows over every transport. A transport joins by
//! implementing [`Transport`] and standing in the macro below.

#[macro_use]
mod world;

mod channels;
mod clients;
mod deadlines;
mod flood;
mod identity;
mod limits;
mod newer;
mod one_waker;
mod operator;
mod requests;
mod shutdown;
mod turns;
mod vanishing;
