//! `sekisho migrate`: what becomes of an nginx configuration here, on one page.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sekisho_config::migration::{Migration, Readiness};

use crate::cli::Flags;
use crate::setup::Plan;
use crate::{Problem, terminal};

/// What `sekisho migrate` takes.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// nginx's main configuration file
    #[arg(default_value = "/etc/nginx/nginx.conf")]
    file: PathBuf,
    /// The prefix that relative paths start from [default: the folder of the file]
    #[arg(long, short = 'p', value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// Reads the configuration and prints the page. The status says how it ends: 0 where it loads and means the same, 2
/// where it loads and something differs, 1 where it does not load.
pub(crate) fn run(migrate: &Migrate) -> Result<ExitCode, Problem> {
    let here = std::env::current_dir().map_err(Problem::new)?;
    let file = here.join(&migrate.file);
    if !file.exists() {
        return Err(Problem::new(format_args!("{}: no such file", file.display())));
    }
    let flags =
        Flags { config: Some(file.clone()), prefix: migrate.prefix.clone(), ..Flags::default() };
    let outcome = Plan::from_flags(&flags)?.look();
    let migration = Migration::of(&outcome);
    let page = migration.page(&file.display().to_string());
    terminal::print(page)?;
    Ok(match migration.readiness() {
        Readiness::Same => ExitCode::SUCCESS,
        Readiness::Different => ExitCode::from(2),
        Readiness::Absent | Readiness::Missing => ExitCode::FAILURE,
    })
}
