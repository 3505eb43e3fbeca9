//! Man pages and completions, written from the command line and the table of directives: packages install them.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::Problem;
use crate::cli::Cli;

/// Writes all of them into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Problem> {
    let fail = |error: std::io::Error| Problem::new(format_args!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(command(), folder).map_err(fail)?;
    fs::write(folder.join("sekisho.conf.5"), sekisho_config::reference::man()).map_err(fail)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command(), "sekisho", folder).map_err(fail)?;
    }
    Ok(())
}

fn command() -> clap::Command {
    Cli::command().version(env!("CARGO_PKG_VERSION"))
}
