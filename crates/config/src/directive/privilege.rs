//! What the server itself may do: the sandbox, new privileges, programs as root.

use std::path::PathBuf;

use super::{MAIN, Row, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Privilege, Sandbox};

pub(super) const ROWS: &[Row] = &[
    active(
        "sandbox",
        MAIN,
        "auto|on|off",
        "auto",
        "Whether the kernel (Landlock) restricts workers to the places that the configuration names; `auto` unless programs are run, `on` restricts programs, too (ours)",
        sandbox,
    ),
    active(
        "sandbox_read",
        MAIN,
        "path ...",
        "",
        "Further places that may be read, and run by programs (ours)",
        |_, d, s| places(d, s, |all| &mut all.read),
    )
    .repeated(),
    active(
        "sandbox_write",
        MAIN,
        "path ...",
        "",
        "Further places that may be written (ours)",
        |_, d, s| places(d, s, |all| &mut all.write),
    )
    .repeated(),
    active(
        "no_new_privs",
        MAIN,
        "on|off",
        "on",
        "Whether the server and its programs can never gain privileges, by setuid files such as sudo or sendmail (ours)",
        |_, d, s| set(&mut s.main.privilege.no_new_privs, d.flag()),
    ),
    active(
        "cgi_allow_root",
        MAIN,
        "on|off",
        "off",
        "Whether a server that runs as root may run programs (ours)",
        |_, d, s| set(&mut s.main.privilege.programs_as_root, d.flag()),
    ),
];

fn sandbox(_: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    s.main.privilege.sandbox = match &*word.text {
        b"auto" => Sandbox::Auto,
        b"on" => Sandbox::On,
        b"off" => Sandbox::Off,
        _ => return Err(d.invalid(word, "is not \"auto\", \"on\" or \"off\"")),
    };
    Ok(())
}

fn places(
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    list: fn(&mut Privilege) -> &mut Vec<PathBuf>,
) -> Result<(), Fault> {
    for word in d.args() {
        if word.text.is_empty() {
            return Err(d.invalid(word, "is empty"));
        }
        if word.text.contains(&b'$') {
            let name = d.row.name;
            return Err(Fault::at(word, format!("variables in \"{name}\" are not supported yet")));
        }
        let path = s.path(&word.text);
        list(&mut s.main.privilege).push(path);
    }
    Ok(())
}
