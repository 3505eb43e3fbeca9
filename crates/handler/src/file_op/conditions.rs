//! `If-Match`, `If-None-Match`, `If-Unmodified-Since` and WebDAV's `If` of a request that changes a file: asked before
//! the body is taken, and once more when the file is to take its place. `If` also says which locks a client knows.

use rustix::fs::Stat;
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::{Head, Known, Status, Version, target};
use sekisho_webdav::IfField;
use sekisho_webdav::condition::ResourceState;

use super::webdav::locks;
use super::{Call, Failure};
use crate::open_file::etag_of;

const FIELDS: [Known; 3] = [Known::IfMatch, Known::IfNoneMatch, Known::IfUnmodifiedSince];

/// The conditions of a request; most have none.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    head: Option<Box<Head>>,
    states: Option<Box<States>>,
    /// The tokens of locks that the client has named.
    tokens: Vec<Vec<u8>>,
}

/// `If`, and what it is about where it does not say.
#[derive(Debug)]
struct States {
    field: Result<IfField, Status>,
    path: Vec<u8>,
    file: Vec<u8>,
}

impl Conditions {
    pub(super) fn of(call: &Call<'_>) -> Self {
        let head = call.request.head;
        let states = head.named(b"if").map(|value| {
            let field = IfField::parse(value).map_err(|_| Status::BAD_REQUEST);
            let (path, file) = (call.route_state.path.clone(), call.route_state.file.clone());
            Box::new(States { field, path, file })
        });
        let field = states.as_ref().and_then(|states| states.field.as_ref().ok());
        let tokens =
            field.map(|field| field.tokens().map(<[u8]>::to_vec).collect()).unwrap_or_default();
        Self { head: own_head(head), states, tokens }
    }

    /// The same without any condition: the client knows the locks, and what held before is not asked again.
    pub(super) fn without_states(&self) -> Self {
        Self { head: None, states: None, tokens: self.tokens.clone() }
    }

    /// No condition, but these locks are known, and one more.
    pub(super) fn knowing(tokens: &[Vec<u8>], one_more: &[u8]) -> Self {
        let tokens = tokens.iter().cloned().chain([one_more.to_vec()]).collect();
        Self { head: None, states: None, tokens }
    }

    /// The tokens of locks that the client has named.
    pub(super) fn tokens(&self) -> &[Vec<u8>] {
        &self.tokens
    }

    /// Whether they hold for what there is.
    pub(super) fn check(&self, there: Option<&Stat>) -> Result<(), Status> {
        if let Some(states) = &self.states {
            states.check(there)?;
        }
        let Some(head) = &self.head else { return Ok(()) };
        let holds = match there {
            // What is not there matches nothing, and has not been modified.
            None => head.known(Known::IfMatch).is_none(),
            Some(stat) => {
                let etag = etag_of(stat, stat.st_size as u64);
                let validators =
                    Validators { etag: Some(etag.as_bytes()), modified: stat.st_mtime };
                conditional::evaluate(head, &validators, Since::Off) == PreconditionResult::Proceed
            }
        };
        if holds { Ok(()) } else { Err(Status::PRECONDITION_FAILED) }
    }

    /// Whether no lock that the client does not know keeps it from changing a file, or a folder with all that is in
    /// it. What comes or goes changes its folder, too.
    pub(super) fn check_locks(
        &self,
        file: &[u8],
        is_tree: bool,
        changes_folder: bool,
    ) -> Result<(), Failure> {
        locks::check(file, is_tree, changes_folder, &self.tokens)
    }
}

impl States {
    fn check(&self, there: Option<&Stat>) -> Result<(), Status> {
        let field = self.field.as_ref().map_err(|status| *status)?;
        let own_key = locks::key(&self.file);
        let holds = field.holds(|resource| {
            let Some(file) = resource.map_or(Some(self.file.clone()), |it| self.file_of(it)) else {
                return ResourceState::default();
            };
            // Only of the file that is asked for is it known how it is.
            let stat = there.filter(|_| locks::key(&file) == own_key);
            let etag = stat.map(|stat| etag_of(stat, stat.st_size as u64));
            ResourceState { tokens: locks::tokens_of(&file), etag }
        });
        if holds { Ok(()) } else { Err(Status::PRECONDITION_FAILED) }
    }

    /// The file of another address, if it lies where the address of this one does.
    fn file_of(&self, resource: &[u8]) -> Option<Vec<u8>> {
        let target = target::split(resource).ok()?;
        let mut path = Vec::new();
        target::resolve(target.path, true, &mut path).ok()?;
        let common = self.path.iter().rev().zip(self.file.iter().rev());
        let common = common.take_while(|(one, other)| one == other).count();
        let rest = path.strip_prefix(&self.path[..self.path.len() - common])?;
        Some([&self.file[..self.file.len() - common], rest].concat())
    }
}

/// The conditions of a request alone, where it has any.
pub(crate) fn own_head(head: &Head) -> Option<Box<Head>> {
    if FIELDS.iter().all(|field| head.known(*field).is_none()) {
        return None;
    }
    let mut own = Head::default();
    own.begin(head.method_name(), b"/", Version::Http11);
    for field in FIELDS {
        for value in head.all_known(field) {
            own.push(field.name().as_bytes(), value);
        }
    }
    Some(Box::new(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_the_file_below_the_same_folder() {
        let states = |path: &str, file: &str| States {
            field: Err(Status::BAD_REQUEST),
            path: path.into(),
            file: file.into(),
        };
        let root = states("/a/b.txt", "/srv/www/a/b.txt");
        let alias = states("/dav/x", "/data/x");
        for (states, resource, expected) in [
            (&root, "http://host/a/c%20d", Some("/srv/www/a/c d")),
            (&root, "/other/x", Some("/srv/www/other/x")),
            (&root, "/../../etc", None),
            (&alias, "/dav/y/z", Some("/data/y/z")),
            (&alias, "/elsewhere", None),
        ] {
            let file = states.file_of(resource.as_bytes());
            assert_eq!(file.as_deref(), expected.map(str::as_bytes), "{resource}");
        }
    }
}
