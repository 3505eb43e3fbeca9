//! Configuration files on the disk.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use sekisho_config::Source;

use crate::user;

/// Real files.
#[derive(Debug)]
pub(crate) struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        // What a parent has read is what it opened files for.
        let given = sekisho_openings::config_text(path);
        given.unwrap_or_else(|| std::fs::read(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            io::ErrorKind::IsADirectory => "is a directory".to_owned(),
            _ => error.to_string(),
        })
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        if let Some(names) = sekisho_openings::config_names(path) {
            return names.into_iter().collect();
        }
        // The empty path means the current directory.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
    }

    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let found = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
        let mut all: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        Ok(all)
    }

    fn cannot_become(&self, user: &str) -> Option<String> {
        // A process that is not root cannot change its user, as with nginx.
        if user::is_root() { user::find(user).err() } else { None }
    }

    fn cannot_join(&self, group: &str) -> Option<String> {
        if user::is_root() { user::find_group(group).err() } else { None }
    }

    fn would_be_root(&self, user: Option<&str>) -> bool {
        user::would_be_root(user)
    }
}
