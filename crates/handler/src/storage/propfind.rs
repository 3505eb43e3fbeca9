//! PROPFIND in a store: the properties of an object, or of a folder and what is in it. An entry that another location
//! answers for is not listed. There are no properties of clients, and no locks.

use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::LocationId;
use sekisho_http::Status;
use sekisho_route::{Table, media_type_of};
use sekisho_storage::{Entry, Scope, list_page};
use sekisho_webdav::{DeadProperties, Invalid, Propfind, body, multistatus};

use super::change::{PAGES_MAX, Refuse};
use super::list::name_below;
use super::work::{Done, Intake, Operation, Outcome, Work};
use super::{Client, Question};
use crate::file_op::dav::{Depth, Growing, Known, Resource, WRONG_DEPTH, XML_TYPE, find};
use crate::task::Task;
use crate::upstream::Call;

/// A request for properties.
struct Asked {
    work: Rc<Work>,
    table: Arc<Table>,
    location: LocationId,
    path: Vec<u8>,
    key: Vec<u8>,
    depth: Depth,
}

/// Starts to find properties.
pub(super) fn start(
    call: &Call<'_>,
    client: Rc<Client>,
    refuse: &Refuse<'_>,
) -> Result<Box<dyn Task>, Status> {
    let route_state = call.route_state;
    let Some(depth) = Depth::of(call.request.head) else {
        return refuse(Status::BAD_REQUEST, WRONG_DEPTH);
    };
    let asked = Asked {
        key: client.key(&route_state.file, route_state.root_bytes),
        table: client.context().table(),
        work: Work::new(client),
        location: route_state.location,
        path: route_state.path.clone(),
        depth,
    };
    // A body that is larger than any that is taken ends before its last byte.
    let intake = Intake::new(body::BYTES_MAX + 1, call.has_body, None);
    let (work, body) = (Rc::clone(&asked.work), Rc::clone(&intake));
    Ok(Operation::start(work, intake, async move {
        let (bytes, is_last) = body.part(Vec::new()).await;
        if !is_last {
            return Err(Status::CONTENT_TOO_LARGE.into());
        }
        let wanted = Propfind::parse(&bytes).map_err(|invalid| match invalid {
            Invalid::Malformed => Status::BAD_REQUEST,
            Invalid::TooLarge => Status::CONTENT_TOO_LARGE,
        })?;
        asked.answer(&wanted).await
    }))
}

fn xml(status: Status, body: Vec<u8>) -> Done {
    Done { body, ..Done::new(status).field("Content-Type", XML_TYPE) }
}

impl Asked {
    async fn answer(mut self, wanted: &Propfind) -> Outcome {
        let own = self.look().await?;
        if own.is_folder && self.depth == Depth::Infinity {
            // How deep folders lie is not for a client to make us find out (RFC 4918 §9.1).
            return Ok(xml(Status::FORBIDDEN, multistatus::error("propfind-finite-depth", &[])));
        }
        let lists = own.is_folder && self.depth == Depth::One;
        let mut answer = Growing::new().ok_or(Status::SERVICE_UNAVAILABLE)?;
        self.push(&mut answer, wanted, &self.path, own)?;
        if lists {
            self.push_entries(&mut answer, wanted).await?;
        }
        Ok(xml(Status::MULTI_STATUS, answer.finish()))
    }

    /// What the path names; it gets a slash if that is a folder.
    async fn look(&mut self) -> Result<Known, Status> {
        let folder = Known { is_folder: true, ..Known::default() };
        if !self.path.ends_with(b"/") {
            if let Some(there) = self.work.head(&self.key).await? {
                let etag = String::from_utf8_lossy(&there.tag).into_owned();
                return Ok(object(there.bytes, there.modified, etag));
            }
            // Clients leave the slash out; the folder itself must be this location's, too.
            self.path.push(b'/');
            self.key.push(b'/');
            if !self.table.is_entry_of(self.location, &self.path) {
                return Err(Status::FORBIDDEN);
            }
        }
        // The root itself is always a folder.
        let is_root = self.key.len() == self.work.client.storage.place.prefix.len();
        let is_there = is_root || self.work.has_any(&self.key).await?;
        if is_there { Ok(folder) } else { Err(Status::NOT_FOUND) }
    }

    async fn push_entries(&self, answer: &mut Growing, wanted: &Propfind) -> Result<(), Status> {
        let mut next: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let after = next.as_deref().map(str::as_bytes);
            let draft = self.work.client.storage.place.list(&self.key, Scope::Folder, after);
            let listed = self.work.succeed(Question::new(draft)).await?;
            let page = list_page(&listed.body).ok_or(Status::BAD_GATEWAY)?;
            for prefix in &page.prefixes {
                let folder = Known { is_folder: true, ..Known::default() };
                self.push_entry(answer, wanted, prefix, folder)?;
            }
            for Entry { key, bytes, modified, tag } in page.entries {
                self.push_entry(answer, wanted, &key, object(bytes, modified, tag))?;
            }
            match page.next {
                None => return Ok(()),
                // The same page would come again.
                more if more == next => break,
                more => next = more,
            }
        }
        Err(self.work.endless("a listing"))
    }

    fn push_entry(
        &self,
        answer: &mut Growing,
        wanted: &Propfind,
        key: &str,
        known: Known,
    ) -> Result<(), Status> {
        let Some(name) = name_below(&self.key, key) else { return Ok(()) };
        let is_hidden = name.starts_with(sekisho_route::OWN_PREFIX);
        let slash: &[u8] = if known.is_folder { b"/" } else { b"" };
        let path = [&self.path, name, slash].concat();
        if is_hidden
            || name.iter().any(u8::is_ascii_control)
            || !self.table.is_entry_of(self.location, &path)
        {
            return Ok(());
        }
        self.push(answer, wanted, &path, known)
    }

    fn push(
        &self,
        answer: &mut Growing,
        wanted: &Propfind,
        path: &[u8],
        known: Known,
    ) -> Result<(), Status> {
        let media_type = media_type_of(&self.table, self.location, path);
        let resource =
            Resource { path, file: b"", known, media_type, has_locks: false, quota: None };
        let found = find(&resource, wanted, &DeadProperties::default());
        if answer.push(path, &found) { Ok(()) } else { Err(Status::SERVICE_UNAVAILABLE) }
    }
}

fn object(bytes: u64, modified: i64, etag: String) -> Known {
    Known { is_folder: false, bytes, created: Some(modified), modified: Some(modified), etag }
}
