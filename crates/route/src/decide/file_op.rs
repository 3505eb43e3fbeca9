//! Requests that change files, where `dav_methods` or `upload_store` allows it: what is to be done, and
//! to which file. Whether it can be done is for the shell to find out; here it is only decided that
//! nothing outside the location's own folder is named (F5, F6).

use std::mem;

use sekisho_config::{
    ExtMethods, FileOps, Level, Methods, Part, PathMapping, Settings, Template, Variable,
};
use sekisho_http::{Method, Status, target};

use super::{Decision, FILE_METHODS, Next, origin};
use crate::action::{Action, Files};
use crate::path_mapping::{self, AliasFrom, Mapped};
use crate::redirect;
use crate::variable::Scope;

/// What names of our own begin with: unfinished uploads. They are not there for clients.
pub const OWN_PREFIX: &[u8] = b".sekisho-";

/// What shall be done with files. The file is `route_state.file`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOp {
    /// The body becomes the file.
    Put,
    /// The file goes.
    Delete,
    /// A folder is made.
    Mkcol,
    /// The file, or folder, is copied.
    Copy(Box<Destination>),
    /// It is given another name.
    Move(Box<Destination>),
    /// The body, or what is in it, is stored in the folder `route_state.file`.
    Store(Box<Store>),
    /// Its properties are asked for.
    Propfind,
    /// Some of them are changed.
    Proppatch,
    /// It is locked; `true` if the lock may create it.
    Lock(bool),
    /// It is unlocked.
    Unlock,
    /// An unfinished upload in the folder `route_state.file` is queried, continued or cancelled.
    Resume(Box<Store>),
}

/// Where COPY and MOVE go: below the same directory of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The decoded, resolved path.
    pub path: Vec<u8>,
    /// The file that it maps to; its first `route_state.root_bytes` are those of `route_state.file`.
    pub file: Vec<u8>,
}

/// What is known about the place where bodies are stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Store {
    /// The path under which what is stored there can be asked for, with a closing slash, if there is one.
    pub address: Option<Vec<u8>>,
    /// The last part of the request's path, where it can only be the name of a file; or else nothing.
    pub name: Vec<u8>,
}

/// Every method that files can be asked or changed with here.
pub(super) fn methods(settings: &Settings) -> impl Iterator<Item = Method> {
    let file_ops = settings.file_ops.as_deref();
    let of_store =
        file_ops.is_some_and(|file_ops| file_ops.store.is_some()).then_some(Method::Post);
    let resumed =
        file_ops.is_some_and(|file_ops| file_ops.resumable.is_some()).then_some(Method::Patch);
    let changes = Methods::ALL
        .into_iter()
        .filter(move |method| file_ops.is_some_and(|file_ops| file_ops.methods.contains(*method)));
    let ext = ExtMethods::ALL.into_iter().filter(move |method| {
        file_ops.is_some_and(|file_ops| file_ops.ext_methods.contains(*method))
    });
    FILE_METHODS.into_iter().chain(of_store).chain(resumed).chain(changes).chain(ext)
}

/// Whether a path or file name has a part that is a name of our own.
pub(super) fn has_own_name(path: &[u8]) -> bool {
    // Most paths have no dot behind a slash, and are looked at once.
    path.windows(2)
        .enumerate()
        .any(|(at, pair)| pair == b"/." && path[at + 1..].starts_with(OWN_PREFIX))
        || path.starts_with(OWN_PREFIX)
}

impl<F: Files> Decision<'_, F> {
    /// The decision for a request that changes files, or could; `None` for any other.
    pub(super) fn file_op(&mut self) -> Option<Next<F::File>> {
        let settings = self.settings();
        let file_ops = settings.file_ops.as_deref()?;
        if has_own_name(&self.route_state.path) {
            return Some(Next::Fail(Status::NOT_FOUND));
        }
        if file_ops.resumable.is_some() && self.is_about_unfinished() {
            let is_change = self.route_state.method != Method::Head;
            let refusal = if is_change { self.foreign(file_ops) } else { None };
            return refusal.or_else(|| Some(self.resume(file_ops)));
        }
        let next = match self.route_state.method {
            Method::Options => match self.method_outcome() {
                Ok(()) => return None,
                Err(next) => next,
            },
            Method::Post => {
                let template = file_ops.store.as_ref()?;
                self.foreign(file_ops).unwrap_or_else(|| self.store(template))
            }
            method if file_ops.methods.contains(method) => {
                self.foreign(file_ops).unwrap_or_else(|| self.changed(method))
            }
            // To look is no change.
            Method::Propfind if file_ops.ext_methods.propfind => self.changed(Method::Propfind),
            method if file_ops.ext_methods.contains(method) => {
                self.foreign(file_ops).unwrap_or_else(|| self.changed(method))
            }
            _ => return None,
        };
        Some(next)
    }

    fn changed(&mut self, method: Method) -> Next<F::File> {
        match self.change(method) {
            Ok(file_op) => Next::Done(Action::FileOp(file_op)),
            Err(status) => Next::Fail(status),
        }
    }

    /// The refusal of a change that another site asks for.
    fn foreign(&self, file_ops: &FileOps) -> Option<Next<F::File>> {
        if origin::is_allowed(self.request.head, &file_ops.origins) {
            return None;
        }
        self.log_entry(
            Level::Error,
            "change refused: it comes from another site (upload_origins)".to_owned(),
        );
        Some(Next::Fail(Status::FORBIDDEN))
    }

    fn change(&mut self, method: Method) -> Result<FileOp, Status> {
        let mapped = self.map_path();
        if !mapped.is_safe {
            return Err(Status::FORBIDDEN);
        }
        if has_own_name(&self.route_state.file[mapped.root_bytes..]) {
            return Err(Status::NOT_FOUND);
        }
        match method {
            Method::Put => self
                .may_become(&self.route_state.path, &self.route_state.file)
                .map(|()| FileOp::Put),
            Method::Delete => Ok(FileOp::Delete),
            Method::Propfind => Ok(FileOp::Propfind),
            Method::Proppatch => Ok(FileOp::Proppatch),
            // It makes an empty file where there is none, which is an upload.
            Method::Lock => {
                let may_put = self.settings().file_ops.as_deref().is_some_and(|it| it.methods.put);
                let is_stored = may_put
                    && self.may_become(&self.route_state.path, &self.route_state.file).is_ok();
                Ok(FileOp::Lock(is_stored))
            }
            Method::Unlock => Ok(FileOp::Unlock),
            Method::Mkcol => {
                // It may turn out that there is something of the name, which is a 405.
                self.write_allowed();
                Ok(FileOp::Mkcol)
            }
            Method::Copy => Ok(FileOp::Copy(Box::new(self.destination(mapped)?))),
            _ => Ok(FileOp::Move(Box::new(self.destination(mapped)?))),
        }
    }

    /// What comes from a client must not become a program here: a client that may store files may not run
    /// them.
    fn may_become(&self, path: &[u8], file: &[u8]) -> Result<(), Status> {
        let is_program = self.settings().cgi.as_deref().is_some_and(|cgi| cgi.is_program(file));
        if !is_program && !self.table.is_run(self.route_state.location, path, file) {
            return Ok(());
        }
        let file = file.escape_ascii();
        self.log_entry(
            Level::Error,
            format!("\"{file}\" is not stored: it would run as a program"),
        );
        Err(Status::FORBIDDEN)
    }

    /// `Destination`: on this server, in this location (another may have other rules), below the same
    /// root.
    fn destination(&mut self, source: Mapped) -> Result<Destination, Status> {
        let head = self.request.head;
        let value = head.named(b"destination").ok_or(Status::BAD_REQUEST)?;
        let target = target::split(value).map_err(|_| Status::BAD_REQUEST)?;
        if let Some(authority) = target.authority {
            // As in nginx, a port makes no other host: clients leave it out, or add it.
            let mut host = Vec::new();
            if target::host(authority, &mut host).is_err() || host != self.route_state.host {
                return Err(Status::BAD_REQUEST);
            }
        }
        let merge_slashes = self.table.server(self.route_state.server).merge_slashes;
        let mut path = Vec::new();
        target::resolve(target.path, merge_slashes, &mut path).map_err(|_| Status::BAD_REQUEST)?;
        // A folder goes to a folder, a file to a file (nginx: 409). Clients of WebDAV leave slashes out, and a copy
        // may replace a folder by a file; which case it is, is found out when the files are looked at.
        let is_webdav =
            self.settings().file_ops.as_deref().is_some_and(|it| !it.ext_methods.is_empty());
        let has_slash = |path: &[u8]| path.last() == Some(&b'/');
        if has_slash(&path) != has_slash(&self.route_state.path) && !is_webdav {
            return Err(Status::CONFLICT);
        }
        let (file, mapped) = self.mapped_elsewhere(&mut path)?;
        if is_webdav {
            // Whether it is to be a file or a folder is not known here: both must be this location's.
            self.check_other_form(&path)?;
        }
        let root = source.root_bytes;
        let is_same_root =
            mapped.root_bytes == root && file.get(..root) == self.route_state.file.get(..root);
        if !mapped.is_safe || !is_same_root || has_own_name(&file[root..]) {
            return Err(Status::FORBIDDEN);
        }
        self.may_become(&path, &file)?;
        Ok(Destination { path, file })
    }

    /// Whether a path with its slash left out, or put behind it, may be changed as well.
    fn check_other_form(&mut self, path: &[u8]) -> Result<(), Status> {
        let mut other = match path.strip_suffix(b"/") {
            Some([]) => return Ok(()),
            Some(bare) => bare.to_vec(),
            None => [path, b"/"].concat(),
        };
        let (file, mapped) = self.mapped_elsewhere(&mut other)?;
        let is_own = has_own_name(file.get(mapped.root_bytes..).unwrap_or_default());
        if !mapped.is_safe || is_own {
            return Err(Status::FORBIDDEN);
        }
        if other.ends_with(b"/") { Ok(()) } else { self.may_become(&other, &file) }
    }

    /// The file that another path of this location maps to.
    fn mapped_elsewhere(&mut self, path: &mut Vec<u8>) -> Result<(Vec<u8>, Mapped), Status> {
        let captures = mem::take(&mut self.route_state.captures);
        mem::swap(&mut self.route_state.path, path);
        let is_here = self.find_location() == self.route_state.location;
        let mut file = Vec::new();
        let mapped = self
            .scoped(|scope| path_mapping::write_file(scope, &scope.route_state.path, &mut file));
        mem::swap(&mut self.route_state.path, path);
        self.route_state.captures = captures;
        if is_here { Ok((file, mapped)) } else { Err(Status::FORBIDDEN) }
    }

    /// Whether the request belongs to an upload that was begun before (tus 1.0).
    fn is_about_unfinished(&self) -> bool {
        matches!(self.meant_method(), Method::Head | Method::Patch | Method::Delete)
            && self.request.head.named(b"tus-resumable").is_some()
    }

    /// The method that is acted on, where the client may name another than its own (tus 1.0,
    /// `X-HTTP-Method-Override`): what limits methods must see this one.
    pub(super) fn meant_method(&self) -> Method {
        let method = self.route_state.method;
        let head = self.request.head;
        let is_overridden = method == Method::Post
            && self
                .settings()
                .file_ops
                .as_deref()
                .is_some_and(|file_ops| file_ops.resumable.is_some())
            && head.named(b"x-http-method-override") == Some(b"PATCH")
            && head.named(b"tus-resumable").is_some();
        if is_overridden { Method::Patch } else { method }
    }

    /// The last part of the path names the upload; the store is where the rest leads.
    fn resume(&mut self, file_ops: &FileOps) -> Next<F::File> {
        let Some(template) = &file_ops.store else { return Next::Fail(Status::NOT_FOUND) };
        let whole = self.route_state.path.clone();
        let folder_bytes = whole.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        self.route_state.path.truncate(folder_bytes);
        let found = self.write_store(template);
        self.route_state.path.clone_from(&whole);
        match found {
            Ok(address) => {
                let name = whole[folder_bytes..].to_vec();
                Next::Done(Action::FileOp(FileOp::Resume(Box::new(Store { address, name }))))
            }
            Err(status) => Next::Fail(status),
        }
    }

    /// POST where there is an `upload_store`.
    fn store(&mut self, template: &Template) -> Next<F::File> {
        let is_same_for_all = template
            .parts
            .iter()
            .all(|part| matches!(part, Part::Literal(_) | Part::Variable(Variable::DocumentRoot)));
        let path = &self.route_state.path;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_name = is_same_for_all && !self.table.is_path_of(self.route_state.location, path);
        let name = if is_name { name.to_vec() } else { Vec::new() };
        match self.write_store(template) {
            Ok(address) => {
                Next::Done(Action::FileOp(FileOp::Store(Box::new(Store { address, name }))))
            }
            Err(status) => Next::Fail(status),
        }
    }

    /// Writes the folder's name into `route_state.file`; returns its path as clients see it.
    fn write_store(&mut self, template: &Template) -> Result<Option<Vec<u8>>, Status> {
        let mut file = mem::take(&mut self.route_state.file);
        let mapped = self.scoped(|scope| path_mapping::write_store(scope, template, &mut file));
        let is_own = has_own_name(&file[mapped.root_bytes..]);
        let address = self.scoped(|scope| address_of(scope, &file));
        self.route_state.file = file;
        self.route_state.root_bytes = mapped.root_bytes;
        if mapped.is_safe && !is_own { Ok(address) } else { Err(Status::NOT_FOUND) }
    }

    /// Writes `Allow` for this location.
    pub(super) fn write_allowed(&mut self) {
        let settings = self.settings();
        let allowed = settings.allow_methods.as_deref();
        let methods: Vec<Method> = methods(settings)
            .filter(|method| allowed.is_none_or(|allowed| allowed.contains(method)))
            .collect();
        redirect::write_methods(&methods, &mut self.route_state.allow);
    }
}

/// The path under which a folder can be asked for in the scope's location, with a closing slash; `None`
/// where it lies elsewhere.
fn address_of(scope: &Scope<'_>, folder: &[u8]) -> Option<Vec<u8>> {
    let mut root = Vec::new();
    path_mapping::write_root(scope, &mut root);
    let (mut address, rest) = match (&scope.settings().path_mapping, scope.alias_from()) {
        (PathMapping::Root(_), _) => (Vec::new(), folder.strip_prefix(root.as_slice())?),
        (_, AliasFrom::Prefix(bytes)) => {
            let prefix = scope.route_state.path.get(..bytes)?;
            (prefix.to_vec(), folder.strip_prefix(root.as_slice())?)
        }
        _ => return None,
    };
    let is_below = rest.is_empty() || rest.starts_with(b"/") || address.ends_with(b"/");
    address.extend_from_slice(rest);
    if !address.ends_with(b"/") {
        address.push(b'/');
    }
    (is_below && target::is_resolved(&address)).then_some(address)
}
