//! The configuration as the parent reads it: each text once, in a copy that the worker process is given, so that both
//! read the same. Names of servers are not resolved here: the parent has nothing to do with the network.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use sekisho_config::{Config, DEFAULT_USER, Options, Source};

use crate::delivery::WorkerUser;

/// Every text that was read.
#[derive(Debug, Default)]
struct Recorder {
    texts: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
}

impl Source for Recorder {
    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let text = std::fs::read(path).map_err(|error| error.to_string())?;
        self.texts.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let entries = std::fs::read_dir(path).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
    }

    fn addresses(&self, _host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        // The worker process asks for the real ones; no opening depends on them.
        Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))])
    }

    fn would_be_root(&self, user: Option<&str>) -> bool {
        find(user.unwrap_or(DEFAULT_USER)).is_ok_and(|account| account.uid == 0)
    }
}

/// What was read: the configuration, if it has no errors, and its texts.
pub(crate) fn read(
    main_file: &Path,
    options: &Options,
) -> (Option<Config>, Vec<(PathBuf, OwnedFd)>) {
    let source = Recorder::default();
    let config = sekisho_config::load(main_file, options, &source).config;
    let texts = source.texts.into_inner().into_iter();
    // One that cannot be copied is read by the worker process itself.
    let copies = texts.filter_map(|(path, text)| Some((path, copy(&text).ok()?)));
    (config, copies.collect())
}

fn copy(text: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("configuration", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(text)?;
    Ok(file.into())
}

/// The user of the worker process; `None` for the one that we are.
pub fn worker_user(config: &Config) -> Result<Option<WorkerUser>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let named = config.main.user.as_ref();
    let (name, group) =
        named.map_or((DEFAULT_USER, None), |(name, group)| (name, group.as_deref()));
    let account = find(name)?;
    let gid = match group.map(|group| (group, sekisho_sys::group(group))) {
        None => account.gid,
        Some((_, Ok(Some(gid)))) => gid,
        Some((group, Ok(None))) => return Err(format!("there is no group \"{group}\"")),
        Some((group, Err(error))) => {
            return Err(format!("group \"{group}\" cannot be looked up: {error}"));
        }
    };
    let groups = sekisho_sys::groups_of(name, gid)
        .map_err(|error| format!("the groups of user \"{name}\" cannot be found: {error}"))?;
    let is_bound = config.main.privilege.no_new_privs;
    Ok(Some(WorkerUser { uid: account.uid, gid, groups, is_bound }))
}

fn find(name: &str) -> Result<sekisho_sys::Account, String> {
    match sekisho_sys::account(name) {
        Ok(Some(account)) => Ok(account),
        Ok(None) => Err(format!("there is no user \"{name}\"")),
        Err(error) => Err(format!("user \"{name}\" cannot be looked up: {error}")),
    }
}
