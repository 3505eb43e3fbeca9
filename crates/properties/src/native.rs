//! The native engines' worlds, which are those of their own tests.

#[path = "../../native/tests/scripts/shell.rs"]
#[allow(missing_docs, reason = "a file of tests")]
pub mod shell;
#[path = "../../native/tests/scripts/world.rs"]
pub mod world;
