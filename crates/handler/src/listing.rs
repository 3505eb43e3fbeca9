//! Folders as pages, and for programs (`autoindex`, F4). A small folder is listed at once; a large one by a
//! task, in slices and in bounded memory. What is not served is not listed.

mod archive;
mod cache;
mod entry;
mod form;
mod objects;
mod order;
mod page;
mod readme;
mod search;
mod shared;
mod task;
mod text;
mod walk;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use sekisho_config::{
    Archives, Conflict, DeleteDirectories, FileCache, Level, ListingFormat, Settings, Symlinks,
};
use sekisho_http::{Fields, Head, Method, Status};
use sekisho_lifecycle::Moment;

use archive::{ArchiveTask, Kind};
pub use cache::Cache;
use entry::{Entries, Folder, ReadError, Reading};
use form::{Form, Writer};
use order::{By, SortOrder};
use page::{Offers, Page};
use search::SearchTask;
use shared::{Key, Readings, SharedReading};
use task::{ListingStage, ListingTask};
use walk::{Purpose, Walk};

pub(crate) use objects::{Listable, ObjectListing};
pub(crate) use text::push_time;

use crate::memory::{self, Class};
use crate::reply::{Piece, Reply};
use crate::task::Task;
use crate::{answer, file_cache, open_file};

/// A folder with more entries than this is listed by a task.
const AT_ONCE_MAX: usize = 2048;
/// The same where the listing cannot be kept: a slow client would hold all of it in memory.
const AT_ONCE_UNKEPT_MAX: usize = 256;
/// More than this of what is searched for is not looked at.
const SEARCH_BYTES_MAX: usize = 256;

/// What a listing needs of the server around it.
pub trait ListingContext: fmt::Debug {
    /// Whether an address is answered under the same settings as the listing, whatever it is called.
    fn is_ours(&self, path: &[u8]) -> bool;
    /// Writes a line about the request into its error log.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
    /// What an operator needs to know beside this error of the system.
    fn denial_hint(&self, errno: Errno) -> String;
}

/// What is to be listed, for which request.
#[derive(Debug)]
pub struct Call<'a> {
    /// The folder; its first `root_bytes` are the root.
    pub file: &'a [u8],
    /// See `file`.
    pub root_bytes: usize,
    /// Its address.
    pub path: &'a [u8],
    /// The query of the address.
    pub query: &'a [u8],
    /// The request.
    pub head: &'a Head,
    /// The method that is acted on.
    pub method: Method,
    /// What holds here.
    pub settings: &'a Settings,
    /// The name of `settings`: unique.
    pub settings_name: (u64, u32),
    /// The server around it.
    pub context: Rc<dyn ListingContext>,
    /// The status that an `error_page` wants.
    pub status: Option<Status>,
    /// How far local time is ahead of UTC.
    pub utc_offset_secs: i32,
    /// How this server calls itself.
    pub product: &'a str,
    /// The time.
    pub now: Moment,
    /// The same on the wall clock.
    pub wall_secs: i64,
}

/// What came of it.
#[derive(Debug)]
pub enum Listed {
    /// An answer.
    Reply(Reply),
    /// A task that makes it.
    Task(Box<dyn Task>),
}

/// Lists a folder. The fields of a reply are added to `fields`.
pub fn list(call: &Call<'_>, cache: &mut Cache, fields: &mut Fields) -> Listed {
    let refuse =
        |status, fields: &mut Fields| Listed::Reply(answer::page(status, call.product, fields));
    let settings = call.settings;
    let Ok(form) = Form::of(settings.listing.format, call.head, call.query) else {
        return refuse(Status::BAD_REQUEST, fields);
    };
    let name = cache_name(call, &form);
    let status = call.status.unwrap_or(Status::OK);
    let archive = archive_kind(call);
    if is_missing_archive(call, archive) {
        return refuse(Status::NOT_FOUND, fields);
    }
    let words = search_words(call);
    let found = name.as_deref().filter(|_| archive.is_none() && words.is_none());
    if let Some(body) =
        found.and_then(|name| cache.find(name, call.file, call.root_bytes, settings, call.now))
    {
        write_fields(&form, settings, fields);
        return Listed::Reply(Reply::of(status, Piece::Shared(body)));
    }
    // What is made anew takes memory.
    if memory::is_short() {
        fields.push("Retry-After", "1");
        return refuse(Status::SERVICE_UNAVAILABLE, fields);
    }
    let is_head = call.method == Method::Head;
    let busy = |status, fields: &mut Fields| {
        fields.push("Retry-After", "1");
        refuse(status, fields)
    };
    if let Some(kind) = archive {
        return match pack(call, kind, &cache.readings, status) {
            Ok(task) => Listed::Task(Box::new(task)),
            Err(status) => busy(status, fields),
        };
    }
    if let Some(words) = words {
        return match search(call, form, words, &cache.readings, status) {
            Ok(task) => Listed::Task(Box::new(task)),
            Err(status) => busy(status, fields),
        };
    }
    match read(call, &form, &cache.readings) {
        Ok(Found::Large(reading)) => {
            let writer = Writer::new(form, page(call));
            let mut fields = Fields::new();
            write_fields(&writer.form, settings, &mut fields);
            let stage =
                if is_head { ListingStage::Head(None) } else { ListingStage::Reading(reading) };
            let place = ListedFolder::of(call);
            let is_resting = false;
            let task = ListingTask { stage, writer, place, status, fields, is_head, is_resting };
            Listed::Task(Box::new(task))
        }
        Ok(Found::Small(mut reading, stat)) => {
            let mut writer = Writer::new(form, page(call));
            let place = ListedFolder::of(call);
            let is_kept = name.is_some() && !cache::is_racy(&stat, call.wall_secs);
            let is_task = !is_kept && reading.count() > AT_ONCE_UNKEPT_MAX;
            if is_task && reading.account().is_err() {
                fields.push("Retry-After", "1");
                return refuse(place.over_budget("listing"), fields);
            }
            let mut entries = Entries::of(Arc::new(reading.finish()));
            if is_task {
                let mut fields = Fields::new();
                write_fields(&writer.form, settings, &mut fields);
                let stage = ListingStage::Head(Some(Box::new(entries)));
                let is_resting = false;
                let task =
                    ListingTask { stage, writer, place, status, fields, is_head, is_resting };
                return Listed::Task(Box::new(task));
            }
            let mut body = Vec::new();
            writer.begin(&mut body);
            loop {
                match entries.next() {
                    Ok(Some(entry)) => writer.row(entry, &mut body),
                    Ok(None) => break,
                    Err(errno) => return refuse(place.failed(errno), fields),
                }
            }
            write_fields(&writer.form, settings, fields);
            place.finish(&writer, &entries, &mut body);
            let piece = match name.filter(|_| body.len() <= cache::LISTING_BYTES_MAX) {
                Some(name) => {
                    let (now, wall) = (call.now, call.wall_secs);
                    Piece::Shared(cache.keep(&name, body, &stat, writer.newest, now, wall))
                }
                None => Piece::Bytes(body),
            };
            Listed::Reply(Reply::of(status, piece))
        }
        Err(error) => {
            if error == ReadError::OverBudget {
                fields.push("Retry-After", "1");
            }
            refuse(ListedFolder::of(call).failure(error), fields)
        }
    }
}

/// Begins an archive of the folder.
fn pack(
    call: &Call<'_>,
    kind: Kind,
    readings: &Readings,
    status: Status,
) -> Result<ArchiveTask, Status> {
    let place = ListedFolder::of(call);
    let share = memory::budget(Class::Listings).begin(archive::BUFFER_BYTES);
    let Some(share) = share else { return Err(place.over_budget("archive")) };
    let is_head = call.method == Method::Head;
    Ok(ArchiveTask::new(kind, call.query, place, readings.clone(), share, status, is_head))
}

/// Begins a search below the folder.
fn search(
    call: &Call<'_>,
    form: Form,
    words: Vec<String>,
    readings: &Readings,
    status: Status,
) -> Result<SearchTask, Status> {
    let place = ListedFolder::of(call);
    let share = memory::budget(Class::Listings).begin(search::BYTES_MIN);
    let Some(share) = share else { return Err(place.over_budget("search")) };
    let mut fields = Fields::new();
    write_fields(&form, call.settings, &mut fields);
    let order = order(call, &form);
    let writer = Writer::new(form, page(call));
    let walk = Walk::new(place, readings.clone(), Purpose::Search { words });
    let is_head = call.method == Method::Head;
    Ok(SearchTask::new(walk, writer, order, share, status, fields, is_head))
}

/// A folder, and how it is listed.
enum Found {
    /// At once: it has been read.
    Small(Box<Reading>, Box<rustix::fs::Stat>),
    /// By a task.
    Large(SharedReading),
}

/// Opens the folder and reads as much as is read at once.
fn read(call: &Call<'_>, form: &Form, readings: &Readings) -> Result<Found, ReadError> {
    let symlinks = call.settings.disable_symlinks;
    let (folder, stat) = Folder::open(call.file, call.root_bytes, symlinks)?;
    let order = order(call, form);
    let key = Key::of(&stat, order, symlinks, call.wall_secs);
    if let Some(shared) = readings.find(key) {
        return Ok(Found::Large(shared));
    }
    let mut reading = Reading::new(folder, order);
    while reading.count() <= AT_ONCE_MAX {
        if reading.step()? {
            return Ok(Found::Small(Box::new(reading), Box::new(stat)));
        }
    }
    readings.begin(key, reading).map(Found::Large)
}

/// The page is in natural order, the other forms in nginx's, unless the query says otherwise.
fn order(call: &Call<'_>, form: &Form) -> SortOrder {
    let otherwise = if *form == Form::Html { By::Name } else { By::Bytes };
    SortOrder::asked_for(call.query, otherwise)
}

fn page(call: &Call<'_>) -> Page {
    let settings = call.settings;
    Page {
        path: call.path.to_vec(),
        title: settings.listing.title.clone(),
        order: order(call, &Form::Html),
        offers: offers(call),
        search: search_text(call),
        exact_size: settings.autoindex_exact_size,
        offset_secs: if settings.autoindex_localtime { call.utc_offset_secs } else { 0 },
    }
}

/// What can be done here beside looking. Whether this client may do it is checked when it tries.
fn offers(call: &Call<'_>) -> Offers {
    let settings = call.settings;
    let archives = offered_archives(call);
    let only_looks = Offers {
        zip: archives.zip,
        tar: archives.tar,
        search: is_searchable(call),
        ..Offers::default()
    };
    let Some(file_ops) = settings.file_ops.as_deref() else { return only_looks };
    let is_allowed =
        |method| settings.allow_methods.as_ref().is_none_or(|methods| methods.contains(&method));
    let delete = file_ops.methods.delete && is_allowed(Method::Delete);
    let put = file_ops.methods.put && is_allowed(Method::Put);
    let may_replace = match file_ops.conflict {
        Conflict::Replace => true,
        // Only by a client that might delete it, too.
        Conflict::Rename => delete,
        Conflict::Refuse => false,
    };
    Offers {
        put,
        replace: put && may_replace,
        post: file_ops.store.is_some() && is_allowed(Method::Post),
        delete,
        rename: file_ops.methods.r#move && is_allowed(Method::Move),
        rmdir: delete && file_ops.delete_directories == DeleteDirectories::Empty,
        rmtree: delete && file_ops.delete_directories == DeleteDirectories::Recursive,
        mkcol: file_ops.methods.mkcol && is_allowed(Method::Mkcol),
        ..only_looks
    }
}

/// The archive that is asked for (`?download=zip`), if it is offered.
fn archive_kind(call: &Call<'_>) -> Option<Kind> {
    let archives = offered_archives(call);
    match order::argument(call.query, b"download") {
        Some(b"zip") if archives.zip => Some(Kind::Zip),
        Some(b"tar") if archives.tar => Some(Kind::Tar),
        _ => None,
    }
}

/// Whether an archive is asked for that there is not: of a kind that is not offered beside another one, or of entries of
/// which none is there. Where no archives are offered, the words of the query mean nothing.
fn is_missing_archive(call: &Call<'_>, kind: Option<Kind>) -> bool {
    if order::argument(call.query, b"download").is_none() {
        return false;
    }
    if kind.is_none() {
        let archives = offered_archives(call);
        return archives.zip || archives.tar;
    }
    let mut wanted = order::arguments(call.query, b"name").map(order::decoded).peekable();
    if wanted.peek().is_none() {
        return false;
    }
    let symlinks = call.settings.disable_symlinks;
    // One that cannot be opened is reported by the walk.
    Folder::open(call.file, call.root_bytes, symlinks)
        .is_ok_and(|(folder, _)| !wanted.any(|name| folder.lists(&name)))
}

/// In which forms the folder can be fetched as a whole. Where files may be programs it cannot: their source
/// is not public (V26). Nor where what can be fetched depends on how it is called.
fn offered_archives(call: &Call<'_>) -> Archives {
    let is_open = call.settings.cgi.is_none() && call.context.is_ours(call.path);
    if is_open { call.settings.listing.archives } else { Archives::default() }
}

/// Whether names below can be searched: under the rules of archives.
fn is_searchable(call: &Call<'_>) -> bool {
    let settings = call.settings;
    settings.listing.search && settings.cgi.is_none() && call.context.is_ours(call.path)
}

/// What is searched for (`?search=`), as it was written.
fn search_text(call: &Call<'_>) -> Option<Vec<u8>> {
    let text = order::argument(call.query, b"search").filter(|_| is_searchable(call))?;
    let mut text = order::decoded(text);
    text.truncate(SEARCH_BYTES_MAX);
    Some(text).filter(|text| !text.trim_ascii().is_empty())
}

/// The words of it, in lower case.
fn search_words(call: &Call<'_>) -> Option<Vec<String>> {
    let text = search_text(call)?;
    let text = String::from_utf8_lossy(&text).to_lowercase();
    Some(text.split_whitespace().map(str::to_owned).collect())
}

fn write_fields(form: &Form, settings: &Settings, fields: &mut Fields) {
    form.push_fields(fields);
    if settings.listing.format == ListingFormat::Html {
        fields.push("Vary", "Accept");
    }
}

/// What a listing is made of, as the name under which it is kept; `None` for one that is not.
fn cache_name(call: &Call<'_>, form: &Form) -> Option<Vec<u8>> {
    let kind = match form {
        Form::Html => 0,
        Form::Xml => 1,
        Form::Json => 2,
        Form::Jsonp(_) => return None,
    };
    if call.settings.open_file_cache == FileCache::Off {
        return None;
    }
    let order = order(call, form);
    let (site, location) = call.settings_name;
    let mut name = Vec::with_capacity(call.file.len() + call.path.len() + 40);
    name.extend_from_slice(&site.to_ne_bytes());
    name.extend_from_slice(&location.to_ne_bytes());
    name.extend_from_slice(&call.utc_offset_secs.to_ne_bytes());
    name.extend_from_slice(&call.root_bytes.to_ne_bytes());
    name.extend_from_slice(&[kind, order.by as u8, u8::from(order.is_descending)]);
    name.extend_from_slice(call.file);
    name.push(0);
    name.extend_from_slice(call.path);
    Some(name)
}

/// Whether something failed because we lack something.
fn is_lack(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOBUFS)
}

/// Where the folder is, for what is read beside its entries.
#[derive(Debug)]
struct ListedFolder {
    file: Vec<u8>,
    root_bytes: usize,
    symlinks: Symlinks,
    path: Vec<u8>,
    shows_readme: bool,
    context: Rc<dyn ListingContext>,
    /// When it was asked for.
    wall_secs: i64,
}

impl ListedFolder {
    fn of(call: &Call<'_>) -> Self {
        Self {
            file: call.file.to_vec(),
            root_bytes: call.root_bytes,
            symlinks: call.settings.disable_symlinks,
            path: call.path.to_vec(),
            // Where files may be programs, what lies there is not shown as text (V26).
            shows_readme: call.settings.listing.readme && call.settings.cgi.is_none(),
            context: Rc::clone(&call.context),
            wall_secs: call.wall_secs,
        }
    }

    /// Whether what lies below can be fetched as freely as the listing.
    fn is_ours(&self, below: &[u8]) -> bool {
        self.context.is_ours(&joined(&self.path, below))
    }

    /// Reports why there is no listing; the status that says so.
    fn failed(&self, errno: Errno) -> Status {
        let (file, why) = (self.file.escape_ascii(), std::io::Error::from(errno));
        let hint = self.context.denial_hint(errno);
        self.context
            .report(Level::Error, format_args!("listing of \"{file}\" failed: {why}{hint}"));
        if is_lack(errno) { Status::INTERNAL_SERVER_ERROR } else { Status::FORBIDDEN }
    }

    /// The same for whatever it is.
    fn failure(&self, error: ReadError) -> Status {
        match error {
            ReadError::System(errno) => self.failed(errno),
            ReadError::OverBudget => self.over_budget("listing"),
        }
    }

    /// Reports that there is no memory for it now.
    fn over_budget(&self, what: &str) -> Status {
        let (file, budget) = (self.file.escape_ascii(), memory::budget(Class::Listings));
        let (taken, limit) = (budget.taken() >> 10, budget.limit() >> 10);
        let message = format_args!(
            "{what} of \"{file}\" is refused: listings and archives hold {taken} KiB of at most {limit} KiB"
        );
        self.context.report(Level::Warn, message);
        Status::SERVICE_UNAVAILABLE
    }

    /// Writes what follows the last entry.
    fn finish(&self, writer: &Writer, entries: &Entries, out: &mut Vec<u8>) {
        writer.count(entries.is_cut(), out);
        if writer.form == Form::Html && self.shows_readme {
            self.readme(entries, out);
        }
        writer.end(out);
    }

    /// Shows the README, if it can be fetched as freely as the listing: another location may guard it.
    fn readme(&self, entries: &Entries, out: &mut Vec<u8>) -> Option<()> {
        let name = entries.readme()?;
        if !self.is_ours(name) {
            return None;
        }
        let file = joined(&self.file, name);
        let (descriptor, stat) = file_cache::open(&file, self.root_bytes, self.symlinks).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let size = stat.st_size as u64;
        let shown = size.min(readme::README_BYTES_MAX);
        let content = open_file::read_whole(&descriptor, shown, true)?;
        readme::write(name, &content, size > shown, out);
        Some(())
    }
}

/// A folder's path, which ends with a slash, and a name in it.
fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, slash, name].concat()
}
