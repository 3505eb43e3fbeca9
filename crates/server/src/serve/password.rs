//! `--password` and `sekisho passwd`: password files for `auth_basic`. The file of a running `serve` is in a folder of
//! its own that goes with the server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::Problem;
use crate::cli::{Passwd, Serve};
use crate::terminal::{self, complain};

/// bcrypt takes no more into account.
const PASSWORD_BYTES_MAX: usize = 72;
/// Users and passwords beside those of the command line, which other users of the machine can see.
const VARIABLE: &str = "SEKISHO_PASSWORD";
/// How hashes begin.
const HASHES: [&str; 10] =
    ["$2a$", "$2b$", "$2y$", "$apr1$", "$1$", "$5$", "$6$", "$y$", "{SHA}", "{SSHA}"];

/// A password file.
#[derive(Debug)]
pub(super) enum Users {
    /// That of the operator.
    Given(PathBuf),
    /// One of our own, until it is dropped.
    Made { folder: PathBuf, path: PathBuf },
}

impl Users {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Given(path) | Self::Made { path, .. } => path,
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        if let Self::Made { folder, .. } = self {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// The password file of the command line and the environment, if any.
pub(super) fn users(serve: &Serve) -> Result<Option<Users>, Problem> {
    if let Some(path) = &serve.password_file {
        let failed =
            |error| Problem::new(format_args!("--password-file {}: {error}", path.display()));
        File::open(path).map_err(failed)?;
        return Ok(Some(Users::Given(std::path::absolute(path).map_err(failed)?)));
    }
    let variable = std::env::var(VARIABLE).ok();
    let words: Vec<&String> = serve.password.iter().chain(&variable).collect();
    if words.is_empty() {
        return Ok(None);
    }
    let mut lines = String::new();
    for word in words {
        lines.push_str(&line(word, "--password")?);
    }
    made(&lines).map(Some).map_err(|error| Problem::new(format_args!("--password: {error}")))
}

/// `sekisho passwd`: replaces or adds the user's line in the file, or prints it.
pub(crate) fn passwd(passwd: &Passwd) -> Result<ExitCode, Problem> {
    if passwd.user.contains(':') {
        return Err(Problem::new("passwd: a user name has no colon; the password is asked for"));
    }
    let line = line(&passwd.user, "passwd")?;
    let Some(path) = &passwd.file else {
        terminal::print(line)?;
        return Ok(ExitCode::SUCCESS);
    };
    let failed = |error: io::Error| Problem::new(format_args!("{}: {error}", path.display()));
    let old = match fs::read_to_string(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        old => old.unwrap_or_default(),
    };
    let is_other = |old: &&str| old.split(':').next() != Some(passwd.user.as_str());
    let kept = old.lines().filter(is_other).flat_map(|line| [line, "\n"]);
    let text: String = kept.chain([line.as_str()]).collect();
    replace(path, &text).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the file under another name and renames it: a server that reads it never sees half of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = path.with_file_name(name);
    let mode = fs::metadata(path).map(|old| old.permissions()).ok();
    let written = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&new).and_then(
        |mut file| {
            file.write_all(text.as_bytes())?;
            mode.map_or(Ok(()), |mode| file.set_permissions(mode))?;
            file.sync_all()
        },
    );
    let renamed = written.and_then(|()| fs::rename(&new, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&new);
    }
    renamed
}

/// The line of a password file for `USER:PASSWORD`, `USER:HASH`, or `USER` whose password is asked for.
fn line(words: &str, option: &str) -> Result<String, Problem> {
    let (user, password) = match words.split_once(':') {
        Some((user, password)) => (user, password.to_owned()),
        None => (words, ask(words, option)?),
    };
    if user.is_empty() || user.contains(char::is_control) {
        return Err(Problem::new(format_args!("{option}: no user name before the colon")));
    }
    if HASHES.iter().any(|hash| password.starts_with(hash)) {
        return Ok(format!("{user}:{password}\n"));
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(Problem::new(format_args!(
            "{option}: a password has 1 to {PASSWORD_BYTES_MAX} bytes"
        )));
    }
    let hashed =
        random::<16>().map(|salt| sekisho_handler::password::hash(password.as_bytes(), &salt));
    match hashed {
        Ok(Some(hash)) => Ok(format!("{user}:{hash}\n")),
        Ok(None) => Err(Problem::new(format_args!("{option}: the password cannot be hashed"))),
        Err(error) => Err(Problem::new(format_args!("{option}: {error}"))),
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn made(lines: &str) -> io::Result<Users> {
    let name = u64::from_be_bytes(random()?);
    let folder = std::env::temp_dir().join(format!("sekisho-serve-{name:016x}"));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let users = Users::Made { path: folder.join("users"), folder };
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(users.path())?;
    file.write_all(lines.as_bytes())?;
    Ok(users)
}

/// Reads a password without showing it.
fn ask(user: &str, option: &str) -> Result<String, Problem> {
    let stdin = io::stdin();
    let fail = |error: io::Error| Problem::new(format_args!("{option}: {error}"));
    let shown = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
    if let Some(shown) = &shown {
        complain(format_args!("Password for {user}: "));
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(|errno| fail(errno.into()))?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(shown) = &shown {
        let _ = tcsetattr(&stdin, OptionalActions::Flush, shown);
        complain("\n");
    }
    if read.map_err(fail)? == 0 {
        return Err(Problem::new(format_args!(
            "{option}: there is no terminal to ask for the password of {user}: write it to standard input, or set {VARIABLE}"
        )));
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
