//! The properties of one file or folder: those of the protocol, made of what the file system or a store knows, and dead ones.

use rustix::fs::{FileType, Stat};
use sekisho_http::date;
use sekisho_webdav::multistatus::{self, Found};
use sekisho_webdav::{DeadProperties, Lock, Name, Propfind};

use super::super::beneath;
use super::locks;
use crate::open_file::etag_of;

/// One resource.
pub(crate) struct Resource<'a> {
    /// Its decoded path, which ends with a slash for a folder.
    pub(crate) path: &'a [u8],
    /// Its file.
    pub(crate) file: &'a [u8],
    pub(crate) known: Known,
    pub(crate) media_type: &'a str,
    pub(crate) has_locks: bool,
    /// What is free, and what is used, on its file system: only where it is asked for.
    pub(crate) quota: Option<(u64, u64)>,
}

/// What is known of one.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) is_folder: bool,
    pub(crate) bytes: u64,
    /// In Unix seconds, as the next one.
    pub(crate) created: Option<i64>,
    pub(crate) modified: Option<i64>,
    pub(crate) etag: String,
}

impl Known {
    /// What the file system knows.
    pub(super) fn of(stat: &Stat) -> Self {
        let bytes = stat.st_size as u64;
        Self {
            is_folder: beneath::kind(stat) == FileType::Directory,
            bytes,
            // The time of birth is not known everywhere; what is known is not later.
            created: Some(stat.st_mtime.min(stat.st_ctime)),
            modified: Some(stat.st_mtime),
            etag: etag_of(stat, bytes),
        }
    }
}

/// The names that the protocol has, in the order in which they are listed.
const LIVE: [&str; 9] = [
    "resourcetype",
    "creationdate",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "supportedlock",
];
/// Sent only to clients that ask for them by name (RFC 4331).
const QUOTA: [&str; 2] = ["quota-available-bytes", "quota-used-bytes"];

/// Whether a property is the server's own: no client can set it.
pub(super) fn is_live(name: &Name) -> bool {
    name.is_dav()
}

/// Whether dead properties can be part of the answer.
pub(super) fn wants_dead(asked: &Propfind) -> bool {
    match asked {
        Propfind::All(_) | Propfind::Names => true,
        Propfind::These(names) => names.iter().any(|name| !name.is_dav()),
    }
}

/// Whether the quota is asked for.
pub(super) fn wants_quota(asked: &Propfind) -> bool {
    let is_quota = |name: &Name| name.is_dav() && QUOTA.contains(&name.local.as_str());
    match asked {
        Propfind::These(names) | Propfind::All(names) => names.iter().any(is_quota),
        Propfind::Names => false,
    }
}

/// What is found of the properties that are asked for.
pub(crate) fn find(resource: &Resource<'_>, asked: &Propfind, dead: &DeadProperties) -> Found {
    let mut found = Found::default();
    match asked {
        Propfind::Names => {
            for local in LIVE.iter().filter(|local| resource.live(local).is_some()) {
                found.push(&Name::dav(local), "");
            }
            for (name, _) in dead.iter() {
                found.push(name, "");
            }
        }
        Propfind::All(more) => {
            for local in LIVE {
                if let Some(value) = resource.live(local) {
                    found.push(&Name::dav(local), &value);
                }
            }
            for (name, value) in dead.iter() {
                found.push(name, value);
            }
            let is_told = |name: &&Name| {
                name.is_dav() && LIVE.contains(&name.local.as_str()) || dead.value(name).is_some()
            };
            for name in more.iter().filter(|name| !is_told(name)) {
                push_one(resource, name, dead, &mut found);
            }
        }
        Propfind::These(names) => {
            for name in names {
                push_one(resource, name, dead, &mut found);
            }
        }
    }
    found
}

fn push_one(resource: &Resource<'_>, name: &Name, dead: &DeadProperties, found: &mut Found) {
    let live = if name.is_dav() { resource.live(&name.local) } else { None };
    match (live, dead.value(name)) {
        (Some(value), _) => found.push(name, &value),
        (None, Some(value)) => found.push(name, value),
        (None, None) => found.push_missing(name),
    }
}

impl Resource<'_> {
    /// The value of a property of the protocol, as XML.
    fn live(&self, local: &str) -> Option<String> {
        let Known { is_folder, bytes, created, modified, ref etag } = self.known;
        match local {
            "resourcetype" if is_folder => Some("<D:collection/>".to_owned()),
            "resourcetype" => Some(String::new()),
            "creationdate" => {
                let mut time = Vec::new();
                crate::listing::push_time(created?, &mut time);
                String::from_utf8(time).ok()
            }
            "displayname" => {
                let name = self.path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
                Some(multistatus::text(&String::from_utf8_lossy(name.unwrap_or(b"/"))))
            }
            "getcontentlength" if !is_folder => Some(bytes.to_string()),
            "getcontenttype" if !is_folder => Some(multistatus::text(self.media_type)),
            "getetag" if !is_folder => Some(multistatus::text(etag)),
            "getlastmodified" => {
                let mut time = Vec::new();
                date::write(modified?, &mut time);
                String::from_utf8(time).ok()
            }
            "lockdiscovery" if self.has_locks => Some(self.locks()),
            "supportedlock" if self.has_locks => Some(multistatus::SUPPORTED_LOCKS.to_owned()),
            "quota-available-bytes" => self.quota.map(|(free, _)| free.to_string()),
            "quota-used-bytes" => self.quota.map(|(_, used)| used.to_string()),
            _ => None,
        }
    }

    fn locks(&self) -> String {
        let own = locks::key(self.file);
        let locks: Vec<Lock> = locks::hold().covering(&own, locks::now()).cloned().collect();
        let roots: Vec<Vec<u8>> = locks.iter().map(|lock| root_of(lock, &own, self.path)).collect();
        multistatus::active_locks(locks.iter().zip(roots.iter().map(Vec::as_slice)))
    }
}

/// The path of what a lock is on, seen from something within it.
pub(super) fn root_of(lock: &Lock, own: &[u8], path: &[u8]) -> Vec<u8> {
    let above = own.get(lock.path.len()..).unwrap_or_default();
    let steps = above.split(|byte| *byte == b'/').skip(1).count();
    let mut root = path.strip_suffix(b"/").unwrap_or(path);
    for _ in 0..steps {
        root = &root[..root.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    }
    let is_folder = steps > 0 || path.ends_with(b"/");
    [root, if is_folder { b"/".as_slice() } else { b"" }].concat()
}
