//! Shared memory between processes that do not trust each other (E7): peers that corrupt it, peers that are
//! killed, servers that hand out nonsense. With `SEKISHO_LONG=1` the long forms run: 100,000 rounds of a hostile
//! peer, 10,000 killed processes.

mod handshake;
mod hostile;
mod idle;
mod killed;
mod support;
