//! Files that the configuration names. `guard` and `folder` open and create them as root without being led astray by
//! links of other users; `given` holds the descriptors that a worker process got from its parent (`sekisho-parent`),
//! for files that its own user cannot open. Nothing here decides which files those are.
#![forbid(unsafe_code)]

mod folder;
mod given;
mod guard;
pub mod socket_file;

pub use folder::make_folder;
pub use given::{
    Given, Opened, config_names, config_text, log, open, read, read_text, replace, stat,
};
pub use guard::{User, is_own_output, open_guarded, open_to_give};
