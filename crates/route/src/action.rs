//! The possible answers, and the questions to the file system that lead to one.

use std::net::SocketAddr;

use sekisho_config::{Settings, StatusForm};
use sekisho_http::Status;

use crate::access_checks::{AccessChecks, Wait};
use crate::decide::FileOp;

/// What shall be answered. The details are in the [`RouteState`](crate::Exchange).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<F> {
    /// Serve this file (GET or HEAD); it has `route_state.coding`. Where `route_state.status` is set, it is an error page: answer with
    /// that status, and conditions and ranges do not apply.
    File(F),
    /// Run the program `route_state.file` (`Settings::cgi` says how); `route_state.script_name()` and
    /// `route_state.path_info()` are its share of the path. `route_state.status` as for a file: the answer has
    /// that status, whatever the program says.
    Cgi,
    /// Pass the request to another server (`Settings::pass` says to which and how); `route_state.status` as
    /// for a program.
    Pass,
    /// Change files: what shall be done with `route_state.file` (`Settings::file_ops` says how).
    FileOp(FileOp),
    /// List the directory `route_state.file`; `route_state.status` as for a file.
    Listing,
    /// A service answers (`Settings::service`).
    Service,
    /// How the server is.
    Status(StatusForm),
    /// Redirect the client to `route_state.text`.
    Redirect(Status),
    /// Answer with `route_state.text` as the body; its media type is the location's.
    Text(Status),
    /// The built-in page for this status. A 405 comes with `route_state.allow`.
    Error(Status),
    /// OPTIONS: 200 with `route_state.allow` and no body.
    Options,
    /// `return 444`: close without an answer.
    Close,
    /// Nothing yet: [`resume`](crate::Table::resume) when this is over.
    Wait(Wait),
}

/// The shell's view of the file system, asked with whole paths.
pub trait Files: AccessChecks {
    /// An open file, or a stand-in for one.
    type File;

    /// The answer to an authority that asks for this token, to check that a name is ours (RFC 8555 §8.3).
    fn acme_token(&mut self, token: &[u8]) -> Option<Vec<u8>> {
        let _ = token;
        None
    }

    /// The client is not the peer (`set_real_ip_from`): reports name the client.
    fn know_client(&mut self, client: SocketAddr) {
        let _ = client;
    }

    /// What there is at `path`. Its first `root_bytes` are a directory that the configuration named;
    /// the rest begins with `/` and may come from the client, but has no dot segments. Nothing
    /// outside that directory may be opened (F2). A path with a closing slash is a directory or
    /// nothing.
    fn look(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Look<Self::File>;

    /// The same for a file that may stand in for another one and need not be there: one that cannot be served
    /// counts as missing, and is not reported.
    fn look_for_neighbour(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
    ) -> Option<Self::File> {
        match self.look(path, root_bytes, settings) {
            Look::File(file) => Some(file),
            Look::Directory | Look::Missing | Look::Denied | Look::Failed => None,
        }
    }

    /// The same for a file that is to be run and not read: nothing need be opened. What is there but is
    /// neither a regular file nor a directory is [`Look::Missing`] here (C1).
    fn look_for_program(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
    ) -> Look<()> {
        match self.look(path, root_bytes, settings) {
            Look::File(_) => Look::File(()),
            Look::Directory => Look::Directory,
            Look::Missing => Look::Missing,
            Look::Denied => Look::Denied,
            Look::Failed => Look::Failed,
        }
    }

    /// What kind of thing there is at `path`, for the tests of `if`: nothing need be opened, and it need not
    /// be readable. `None` where there is nothing, or nothing to be known.
    fn inspect(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Option<Seen> {
        match self.look(path, root_bytes, settings) {
            Look::File(_) => Some(Seen { kind: Kind::File, is_executable: false }),
            Look::Directory => Some(Seen { kind: Kind::Directory, is_executable: true }),
            Look::Missing | Look::Denied | Look::Failed => None,
        }
    }
}

/// What [`Files::inspect`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What it is.
    pub kind: Kind,
    /// Whether its owner may run it (or enter it).
    pub is_executable: bool,
}

/// Kinds of things in a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, a socket, …
    Other,
}

/// What there is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look<F> {
    /// A regular file, opened.
    File(F),
    /// A directory.
    Directory,
    /// Nothing (also where a part of the path is not a directory).
    Missing,
    /// Something that may not be opened: no permission, a symbolic link against the policy, a device.
    Denied,
    /// It could not be found out: no resources, or an I/O error.
    Failed,
}
