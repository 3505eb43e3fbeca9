//! `ctl cache`: what operators do with kept answers.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use sekisho_endpoint::control::{PurgeCache, Purged, What};

use super::Failure;
use super::session::Server;

/// What `ctl cache` takes.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Delete entries, and say how many there were
    Purge {
        /// What `proxy_cache_key` came to, with all variants of it; with `*` at its end every key that begins so
        // `--key` is the key of a certificate, for every command.
        #[arg(id = "entry_key", value_name = "KEY")]
        key: Option<String>,
        /// The cache (`keys_zone`); every cache where it is not said
        #[arg(long, value_name = "NAME")]
        zone: Option<String>,
        /// Every entry: must be said where no key is
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

pub(super) fn run(command: &Command, server: &mut Server) -> Result<ExitCode, Failure> {
    let Command::Purge { key, zone, all } = command;
    let mut stdout = io::stdout().lock();
    if key.as_deref().unwrap_or_default().is_empty() && !all {
        writeln!(io::stderr(), "name a key, or say --all")?;
        return Ok(ExitCode::from(2));
    }
    let key = key.clone().unwrap_or_default().into_bytes();
    let zone = zone.clone().unwrap_or_default();
    let purged: Purged = server.ask(What::PurgeCache(PurgeCache { zone, key }))?;
    if purged.caches == 0 {
        writeln!(io::stderr(), "there is no such cache")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(stdout, "{} entries deleted", purged.entries)?;
    Ok(ExitCode::SUCCESS)
}
