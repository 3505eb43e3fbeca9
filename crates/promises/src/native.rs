//! The native engines' worlds, which are those of their own tests.

#[path = "../../crates/native/tests/scripts/shell.rs"]
pub mod shell;
#[path = "../../crates/native/tests/scripts/world.rs"]
pub mod world;
