//! `--password`: a file of one user for `auth_basic`, in a folder of its own that goes with the server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::Problem;
use crate::terminal::complain;

/// bcrypt takes no more into account.
const PASSWORD_BYTES_MAX: usize = 72;

/// A file of users, until it is dropped.
#[derive(Debug)]
pub(super) struct UsersFile {
    folder: PathBuf,
    path: PathBuf,
}

impl UsersFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UsersFile {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes the file for `USER:PASSWORD`, or for `USER` whose password is asked for.
pub(super) fn users_file(words: &str) -> Result<UsersFile, Problem> {
    let (user, password) = match words.split_once(':') {
        Some((user, password)) => (user, password.to_owned()),
        None => (words, ask(words)?),
    };
    if user.is_empty() || user.contains(char::is_control) {
        return Err(Problem::new("--password: no user name before the colon"));
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(Problem::new(format_args!(
            "--password: a password has 1 to {PASSWORD_BYTES_MAX} bytes"
        )));
    }
    write(user, &password).map_err(|error| Problem::new(format_args!("--password: {error}")))
}

fn write(user: &str, password: &str) -> io::Result<UsersFile> {
    let mut random = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let (salt, name) = random.split_at(16);
    let name = name.iter().fold(0_u64, |name, byte| name << 8 | u64::from(*byte));
    let hash = sekisho_handler::password::hash(password.as_bytes(), salt)
        .ok_or_else(|| io::Error::other("the password cannot be hashed"))?;
    let folder = std::env::temp_dir().join(format!("sekisho-serve-{name:016x}"));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let file = UsersFile { path: folder.join("users"), folder };
    let mut users = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file.path)?;
    writeln!(users, "{user}:{hash}")?;
    Ok(file)
}

/// Reads a password without showing it.
fn ask(user: &str) -> Result<String, Problem> {
    let stdin = io::stdin();
    let fail = |error: io::Error| Problem::new(format_args!("--password: {error}"));
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
    read.map_err(fail)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
