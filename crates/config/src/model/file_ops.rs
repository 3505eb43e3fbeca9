//! What the configuration says about file operations: requests that change files (PUT, POST, DELETE, MKCOL, COPY,
//! MOVE), and under which rules.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Method;

use super::{Storage, Template};

/// `dav_methods`, `upload_store` and their companions, where anything may be changed at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileOps {
    /// `dav_methods`
    pub methods: Methods,
    /// `dav_ext_methods`
    pub ext_methods: ExtMethods,
    /// `upload_store`: where the bodies of POST requests are put.
    pub store: Option<Template>,
    /// The `storage` that it is in, if it is no folder.
    pub storage: Option<Arc<Storage>>,
    /// `dav_access`: the permissions of what is made here, whatever the umask.
    pub access: Permissions,
    /// `create_full_put_path`
    pub creates_folders: bool,
    /// `min_delete_depth`
    pub delete_depth_min: usize,
    /// `upload_conflict`
    pub conflict: Conflict,
    /// `upload_sync`
    pub sync: Sync,
    /// `upload_direct`: from how many bytes on a body goes to the disk past the page cache.
    pub direct_min: Option<u64>,
    /// `upload_delete_directories`
    pub delete_directories: DeleteDirectories,
    /// `upload_parts_max`: how many parts a form may have.
    pub parts_max: usize,
    /// `upload_resumable` and `upload_resumable_expires`: how long an unfinished upload is kept; `None`
    /// where uploads cannot be resumed.
    pub resumable: Option<Duration>,
    /// `upload_resumable_max`
    pub unfinished_max: UnfinishedMax,
    /// `upload_origins`: from which sites' pages changes may come.
    pub origins: Origins,
}

/// `upload_resumable_max`: how many unfinished uploads a store may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnfinishedMax {
    /// In all.
    pub of_store: usize,
    /// Of one client address.
    pub of_address: usize,
}

/// `upload_origins`: the origins whose pages may make a browser change files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origins {
    /// Only those of the host that is asked.
    Own,
    /// Those, and those of these origins (`scheme://host[:port]`, in lower case).
    Listed(Vec<Vec<u8>>),
    /// All origins.
    Any,
}

impl Origins {
    /// Whether an origin is named here.
    pub fn contains(&self, origin: &[u8]) -> bool {
        match self {
            Self::Own => false,
            Self::Listed(listed) => listed.iter().any(|one| one.eq_ignore_ascii_case(origin)),
            Self::Any => true,
        }
    }
}

impl Default for FileOps {
    /// Nothing at all: the ground on which the table's defaults are put.
    fn default() -> Self {
        Self {
            methods: Methods::default(),
            ext_methods: ExtMethods::default(),
            store: None,
            storage: None,
            access: Permissions::default(),
            creates_folders: false,
            delete_depth_min: 0,
            conflict: Conflict::Replace,
            sync: Sync::Off,
            direct_min: None,
            delete_directories: DeleteDirectories::Off,
            parts_max: 0,
            resumable: None,
            unfinished_max: UnfinishedMax::default(),
            origins: Origins::Own,
        }
    }
}

/// `dav_methods`: which of them are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each method")]
pub struct Methods {
    /// PUT stores a file.
    pub put: bool,
    /// DELETE removes one.
    pub delete: bool,
    /// MKCOL makes a folder.
    pub mkcol: bool,
    /// COPY copies a file or a folder.
    pub copy: bool,
    /// MOVE renames one.
    pub r#move: bool,
}

impl Methods {
    /// The methods that `dav_methods` can name.
    pub const ALL: [Method; 5] =
        [Method::Put, Method::Delete, Method::Mkcol, Method::Copy, Method::Move];

    /// Whether none is allowed.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether this one is allowed.
    pub const fn contains(self, method: Method) -> bool {
        match method {
            Method::Put => self.put,
            Method::Delete => self.delete,
            Method::Mkcol => self.mkcol,
            Method::Copy => self.copy,
            Method::Move => self.r#move,
            _ => false,
        }
    }

    /// Allows one more; `false` if it is none of them.
    pub fn insert(&mut self, method: Method) -> bool {
        let slot = match method {
            Method::Put => &mut self.put,
            Method::Delete => &mut self.delete,
            Method::Mkcol => &mut self.mkcol,
            Method::Copy => &mut self.copy,
            Method::Move => &mut self.r#move,
            _ => return false,
        };
        *slot = true;
        true
    }
}

/// `dav_ext_methods`: which of WebDAV's other methods are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each method")]
pub struct ExtMethods {
    /// PROPFIND tells the properties of files and folders.
    pub propfind: bool,
    /// PROPPATCH changes those that clients made.
    pub proppatch: bool,
    /// LOCK keeps others from changing something.
    pub lock: bool,
    /// UNLOCK ends that.
    pub unlock: bool,
    /// OPTIONS names the classes of WebDAV.
    pub options: bool,
}

impl ExtMethods {
    /// The methods that are no file's without it.
    pub const ALL: [Method; 4] =
        [Method::Propfind, Method::Proppatch, Method::Lock, Method::Unlock];

    /// Whether none is answered.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether this one is answered.
    pub const fn contains(self, method: Method) -> bool {
        match method {
            Method::Propfind => self.propfind,
            Method::Proppatch => self.proppatch,
            Method::Lock => self.lock,
            Method::Unlock => self.unlock,
            Method::Options => self.options,
            _ => false,
        }
    }

    /// Whether one of them changes files.
    pub const fn may_change(self) -> bool {
        self.proppatch || self.lock
    }

    /// One more is answered; `false` if it is none of them.
    pub fn insert(&mut self, method: Method) -> bool {
        let slot = match method {
            Method::Propfind => &mut self.propfind,
            Method::Proppatch => &mut self.proppatch,
            Method::Lock => &mut self.lock,
            Method::Unlock => &mut self.unlock,
            Method::Options => &mut self.options,
            _ => return false,
        };
        *slot = true;
        true
    }
}

impl FileOps {
    /// Whether clients can change files below the location's own folder.
    pub fn changes_own_folder(&self) -> bool {
        !self.methods.is_empty() || self.ext_methods.may_change()
    }
}

/// `dav_access`: permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Permissions {
    /// Of files.
    pub file: u32,
    /// Of folders: a user that may read one may enter it.
    pub folder: u32,
}

impl Permissions {
    /// With the bits of files.
    pub const fn of_files(file: u32) -> Self {
        Self { file, folder: file | (file & 0o444) >> 2 }
    }
}

/// `upload_conflict`: what happens where there is a file of the name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The new one takes its place.
    Replace,
    /// The upload is refused.
    Refuse,
    /// The new one gets another name: `name (1).ext`.
    Rename,
}

/// `upload_sync`: what is on the disk before the answer is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// That is the kernel's business.
    Off,
    /// The file's content.
    Data,
    /// Its content, and its name in the folder.
    Full,
}

/// `upload_delete_directories`: whether DELETE may remove folders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteDirectories {
    /// Never.
    Off,
    /// Empty ones.
    Empty,
    /// With all that is in them.
    Recursive,
}
