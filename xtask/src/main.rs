//! The project's own checks, as `cargo xtask <check>`: which rule and which threat is proved by which test, the wall
//! between pure and shell rooms, the generated reference, the shape of files. Reads the checkout and nothing else; never
//! the network.
#![forbid(unsafe_code)]

mod citation;
mod directives;
mod licence;
mod lock;
mod packages;
mod proto;
mod sbom;
mod settings;
mod shape;
mod simulate;
mod source;
mod spec;
mod style;
mod threats;
mod wall;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask spec [--check]        write (or check) docs/spec-coverage.md and docs/threats.md
       cargo xtask directives [--check]  write (or check) docs/directives.md
       cargo xtask proto [--check]       write (or check) the .proto files of the native protocol
       cargo xtask packages              the manifests of the crates that are meant to be published
       cargo xtask wall                  dependencies, sources and licences; what pure rooms touch
       cargo xtask style                 length and opening of files, words that must not stay
       cargo xtask settings              fields of the configuration's model that nobody reads
       cargo xtask sbom                  print what a release is made of (CycloneDX)
       cargo xtask simulate [http|http2|native] [--seeds N] [--from N] [--seed N] [--jobs N] [--all]
                                         play worlds of the simulation, or one again";

/// What a check found wrong, one line each.
type Complaints = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = workspace_root();
    let complaints = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["spec"] => [spec::write(&root), threats::write(&root)].concat(),
        ["spec", "--check"] => [spec::check(&root), threats::check(&root)].concat(),
        ["directives"] => directives::write(&root),
        ["directives", "--check"] => directives::check(&root),
        ["proto"] => proto::write(&root),
        ["proto", "--check"] => proto::check(&root),
        ["packages"] => packages::check(&root),
        ["wall"] => wall::check(&root),
        ["style"] => style::check(&root),
        ["settings"] => settings::check(&root),
        ["sbom"] => match sbom::text(&root) {
            Ok(text) => {
                println!("{text}");
                return ExitCode::SUCCESS;
            }
            Err(complaints) => complaints,
        },
        ["simulate", rest @ ..] => match simulate::run(rest) {
            Ok(complaints) => complaints,
            Err(error) => {
                eprintln!("{error}\n{USAGE}");
                return ExitCode::from(2);
            }
        },
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        println!("{}: good", arguments.join(" "));
        ExitCode::SUCCESS
    } else {
        eprintln!("{}: {} found", arguments.join(" "), complaints.len());
        ExitCode::FAILURE
    }
}

/// Cargo says where this package lies; the workspace is the folder around it.
fn workspace_root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.as_deref().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned()
}

/// Reads a file of the checkout; one that cannot be read is a complaint.
fn read(root: &Path, relative: &str) -> Result<String, Complaints> {
    std::fs::read_to_string(root.join(relative))
        .map_err(|error| vec![format!("{relative}: {error}")])
}

/// Writes a generated file.
fn write(root: &Path, relative: &str, text: &str) -> Complaints {
    match std::fs::write(root.join(relative), text) {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!("{relative}: {error}")],
    }
}

/// Complains when a generated file is not what it would be now.
fn check_generated(root: &Path, relative: &str, fresh: &str, command: &str) -> Complaints {
    match read(root, relative) {
        Err(complaints) => complaints,
        Ok(text) if text == fresh => Vec::new(),
        Ok(_) => vec![format!("{relative} is out of date: run `cargo xtask {command}`")],
    }
}
