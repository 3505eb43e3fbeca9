//! POST where there is an `upload_store`: the body is a file, or a form with files in it. All of them
//! appear when all is complete, or none does.

use std::fmt::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{Conflict, FileOps};
use sekisho_http::multipart::{self, Event, Form, Limits, Malformed};
use sekisho_http::{Fields, Head, Known, Status, file_name, parameters, target};
use sekisho_route::{RouteState, Store};

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::copy::Tree;
use super::intake::{Intake, Sink};
use super::land::{self, Landed, Rules};
use super::temp::{self, Temp};
use super::{Answer, Call, Failure, Outcome, Programs, Stop};
use crate::file_cache::files_changed;

/// How long the head of a part may be.
pub(crate) const PART_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Files on their way into a store.
#[derive(Debug)]
struct Stored {
    files: Vec<File>,
    /// The form that they come in; `None` for a body that is a file itself.
    form: Option<Form>,
    /// Whether the present part is a file.
    is_file: bool,
    /// Where files wait for the others of their form.
    shelf: Option<Tree>,
    target: StoreTarget,
    programs: Programs,
}

/// What is the same for all files.
#[derive(Debug)]
struct StoreTarget {
    /// A name in the store, to be replaced by each file's own.
    spot: Spot,
    rules: Rules,
    folder: Vec<u8>,
    /// What the folder is called from outside.
    address: Option<Vec<u8>>,
    /// Where a browser goes on.
    back: Option<Vec<u8>>,
    /// For names that have to be made up.
    seconds: i64,
}

/// A file that is being written, or is complete.
#[derive(Debug)]
struct File {
    name: String,
    content: Content,
}

/// Where its content is. However many files a form has, one of them is open at a time.
#[derive(Debug)]
enum Content {
    /// Nothing was written yet.
    Nothing,
    Open(Temp),
    /// In the shelf, by this name.
    Parked(String),
}

/// Looks where the body goes, before it is taken.
pub(super) fn begin(
    call: &Call<'_>,
    file_ops: &FileOps,
    store: &Store,
    programs: Programs,
) -> Result<Intake, Failure> {
    let head = call.request.head;
    let content_type = head.known(Known::ContentType).unwrap_or_default();
    let target = StoreTarget::find(call, file_ops, store)?;
    let mut stored =
        Stored { files: Vec::new(), form: None, is_file: false, shelf: None, target, programs };
    if multipart::is_form(content_type) {
        let boundary = multipart::boundary(content_type).ok_or(Status::BAD_REQUEST)?;
        let limits = Limits { parts_max: file_ops.parts_max, head_bytes_max: PART_HEAD_BYTES_MAX };
        stored.form = Some(Form::new(&boundary, limits));
        return Ok(Intake::new(call.device(), Box::new(stored), None));
    }
    let name = raw_name(head, &call.route_state.query, store);
    if name.is_none() && is_urlencoded(content_type) {
        // The fields of a form, and no file: `enctype="multipart/form-data"` was forgotten.
        return Err(Failure::because(
            Status::UNSUPPORTED_MEDIA_TYPE,
            "upload refused: the fields of a form, and no file name for them",
        ));
    }
    stored.begin_file(name)?;
    Ok(Intake::new(call.device(), Box::new(stored), call.direct_bytes(file_ops)))
}

impl StoreTarget {
    fn find(call: &Call<'_>, file_ops: &FileOps, store: &Store) -> Result<Self, Failure> {
        let (route_state, settings) = (call.route_state, call.settings());
        let folder = route_state.file.strip_suffix(b"/").unwrap_or(&route_state.file).to_vec();
        let any = [&folder, &b"/x"[..]].concat();
        let symlinks = settings.disable_symlinks;
        let root_bytes = route_state.root_bytes.min(folder.len());
        let spot = Spot::find(&any, root_bytes, symlinks, file_ops.creates_folders)
            .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "open store", &folder))?;
        super::sweep::visit(&spot.folder, file_ops.resumable, call.request.wall.unix_secs);
        Ok(Self {
            spot,
            rules: Rules::of(file_ops),
            folder,
            address: store.address.clone(),
            back: way_back(call.request.head, route_state),
            seconds: call.request.wall.unix_secs,
        })
    }

    fn spot(&self, name: &str) -> Spot {
        self.spot.named(name.as_bytes())
    }

    fn file(&self, name: &[u8]) -> Vec<u8> {
        [&self.folder, &b"/"[..], name].concat()
    }
}

impl Stored {
    /// Begins with a file; without a name that can be used, one is made up.
    fn begin_file(&mut self, name: Option<String>) -> Result<(), Failure> {
        let target = &self.target;
        let made_up = || format!("upload-{}-{}", target.seconds, &temp::random()[..8]);
        let wanted = name.unwrap_or_else(made_up);
        // Two files of one form may have the same name: neither replaces the other.
        let mut name = wanted.clone();
        let mut number = 0;
        while self.files.iter().any(|file| file.name == name) {
            number += 1;
            name = String::from_utf8_lossy(&file_name::numbered(wanted.as_bytes(), number)).into();
        }
        let file = target.file(name.as_bytes());
        self.programs.refuse(name.as_bytes())?;
        let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "store", &file);
        let spot = target.spot(&name);
        check_conflict(spot.look().map_err(fail)?.as_ref(), target.rules.conflict)?;
        self.park().map_err(fail)?;
        self.files.push(File { name, content: Content::Nothing });
        Ok(())
    }

    /// Puts the last file aside.
    fn park(&mut self) -> Result<(), Errno> {
        let Some(last) = self.files.last_mut() else { return Ok(()) };
        let temp = match std::mem::replace(&mut last.content, Content::Nothing) {
            Content::Open(temp) => temp,
            // It is empty.
            Content::Nothing => self.target.spot.new_file()?,
            parked @ Content::Parked(_) => {
                last.content = parked;
                return Ok(());
            }
        };
        let tree = match self.shelf.take() {
            Some(tree) => tree,
            None => Tree::new(&self.target.spot.folder, &Stop::default())?,
        };
        let name = temp::random();
        temp.park(self.shelf.insert(tree).inside(), &name)?;
        last.content = Content::Parked(name);
        Ok(())
    }

    /// The last file, open.
    fn opened(&mut self) -> Result<Option<&mut Temp>, Errno> {
        let Some(last) = self.files.last_mut() else { return Ok(None) };
        if let Content::Nothing = last.content {
            last.content = Content::Open(self.target.spot.new_file()?);
        }
        match &mut last.content {
            Content::Open(temp) => Ok(Some(temp)),
            _ => Ok(None),
        }
    }

    fn tell(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event {
            Event::Part(part) => {
                // A field for a file in which none was chosen has an empty name.
                let name = part.file_name.as_deref().filter(|name| !name.is_empty());
                self.is_file = name.is_some();
                match name {
                    Some(name) => self.begin_file(file_name::safe(&form_name(name))),
                    None => Ok(()),
                }
            }
            Event::Data(bytes) if self.is_file => self.write_file(bytes),
            Event::Data(_) => Ok(()),
            Event::PartEnd => {
                self.is_file = false;
                Ok(())
            }
        }
    }

    fn write_file(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.opened() {
            Ok(Some(temp)) => temp.write(bytes),
            Ok(None) => Ok(()),
            Err(errno) => Err(errno),
        };
        written.map_err(|errno| self.failure(errno))
    }
}

impl Sink for Stored {
    fn open(&mut self) -> Result<(), Failure> {
        match self.opened() {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.failure(errno)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(mut form) = self.form.take() else { return self.write_file(bytes) };
        form.receive(bytes, |event| self.tell(&event))?;
        self.form = Some(form);
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.files.last().filter(|_| self.form.is_none())?.content {
            Content::Open(temp) => temp.descriptor().ok(),
            _ => None,
        }
    }

    fn wrote(&mut self, bytes: u64) {
        if let Some(File { content: Content::Open(temp), .. }) = self.files.last_mut() {
            temp.wrote(bytes);
        }
    }

    fn failure(&self, errno: Errno) -> Failure {
        let name = self.files.last().map_or(&b""[..], |file| file.name.as_bytes());
        Failure::by(errno, Status::NOT_FOUND, "store", &self.target.file(name))
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        if let Some(form) = &self.form {
            form.finish().map_err(Failure::from)?;
        }
        self.open()?;
        let Self { files, shelf, target, .. } = *self;
        finish(files, shelf.as_ref(), &target)
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        let status = match malformed {
            Malformed::TooManyParts => Status::CONTENT_TOO_LARGE,
            _ => Status::BAD_REQUEST,
        };
        Self { why: Some(format!("form refused: {malformed}")), ..Self::of(status) }
    }
}

fn finish(files: Vec<File>, shelf: Option<&Tree>, target: &StoreTarget) -> Outcome {
    if files.is_empty() {
        return Err(Failure::because(Status::BAD_REQUEST, "upload refused: no file in the form"));
    }
    // What can be known before anything has happened is.
    for file in &files {
        let name = target.file(file.name.as_bytes());
        let there = target.spot(&file.name).look();
        let there = there.map_err(|e| Failure::by(e, Status::NOT_FOUND, "store", &name))?;
        check_conflict(there.as_ref(), target.rules.conflict)?;
    }
    let mut done = Done(Vec::new());
    for File { name, content } in files {
        let (spot, file) = (target.spot(&name), target.file(name.as_bytes()));
        let temp = match (content, shelf) {
            (Content::Open(temp), _) => Ok(temp),
            (Content::Parked(own), Some(shelf)) => Temp::of_parked(shelf.inside(), own),
            _ => Err(Errno::NOENT),
        };
        let temp = temp.map_err(|e| Failure::by(e, Status::NOT_FOUND, "store", &file))?;
        let landed = land::land(temp, &spot, &Conditions::default(), &target.rules, &file)?;
        done.0.push(landed);
    }
    Ok(answer(&std::mem::take(&mut done.0), target))
}

fn check_conflict(there: Option<&Stat>, conflict: Conflict) -> Result<(), Failure> {
    match there {
        Some(there) if !land::may_replace(there) || conflict == Conflict::Refuse => {
            Err(Failure::because(
                Status::CONFLICT,
                "upload refused: a folder, or something that may not be replaced, has this name",
            ))
        }
        _ => Ok(()),
    }
}

/// Files that have appeared while others have yet to; those that were not there before go again unless
/// all of them do.
struct Done(Vec<Landed>);

impl Drop for Done {
    fn drop(&mut self) {
        for Landed { folder, name, stat, .. } in self.0.drain(..).filter(|landed| landed.is_new) {
            let _turn = land::turn(&name);
            // Not if another file has been put there meanwhile.
            if let Ok(Some(there)) = beneath::look(&*folder, &name)
                && (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)
            {
                remove(&folder, &name);
            }
        }
    }
}

fn remove(folder: &OwnedFd, name: &[u8]) {
    let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
    files_changed();
}

fn answer(landed: &[Landed], target: &StoreTarget) -> Answer {
    let files: Vec<(Vec<u8>, u64)> =
        landed.iter().map(|it| (it.name.clone(), it.stat.st_size as u64)).collect();
    let (status, fields, body) =
        stored_answer(&files, target.address.as_deref(), target.back.as_deref());
    Answer { status, fields, body }
}

/// 201 with a list of what was stored, names and sizes; a browser is sent back to where it came from.
pub(crate) fn stored_answer(
    files: &[(Vec<u8>, u64)],
    address: Option<&[u8]>,
    back: Option<&[u8]>,
) -> (Status, Fields, Vec<u8>) {
    let mut fields = Fields::new();
    if let Some(back) = back {
        fields.push("Location", back);
        return (Status::SEE_OTHER, fields, Vec::new());
    }
    let location = |name: &[u8]| {
        let mut location = Vec::new();
        target::encode_path(address?, &mut location);
        target::encode_path(name, &mut location);
        Some(location)
    };
    fields.push("Content-Type", "application/json; charset=utf-8");
    if let [(only, _)] = files
        && let Some(location) = location(only)
    {
        fields.push("Location", &location);
    }
    let mut json = String::from("{\"files\":[");
    for (at, (name, size)) in files.iter().enumerate() {
        let name = String::from_utf8_lossy(name);
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(json, "{comma}{{\"name\":{},\"size\":{size}", quoted(&name));
        if let Some(location) = location(name.as_bytes()) {
            let _ = write!(json, ",\"location\":{}", quoted(&String::from_utf8_lossy(&location)));
        }
        json.push('}');
    }
    json.push_str("]}\n");
    (Status::CREATED, fields, json.into_bytes())
}

/// A JSON string. Names have no control characters, so two escapes are enough.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What a body that is a file is called: by `Content-Disposition`, by `?name=`, or by the path.
pub(crate) fn raw_name(head: &Head, query: &[u8], store: &Store) -> Option<String> {
    let disposition = head.named(b"content-disposition").and_then(parameters::file_name);
    let by_disposition = disposition.and_then(|name| file_name::safe(&name));
    by_disposition
        .or_else(|| file_name::safe(&decoded(argument(query, b"name")?)))
        .or_else(|| file_name::safe(&store.name))
}

/// Forms escape three bytes of a file's name, and no others (WHATWG HTML, "multipart form data").
pub(crate) fn form_name(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = match rest.get(..3) {
            Some(b"%22") => Some(b'"'),
            Some(b"%0D" | b"%0d") => Some(b'\r'),
            Some(b"%0A" | b"%0a") => Some(b'\n'),
            _ => None,
        };
        out.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &rest[3..] } else { after };
    }
    out
}

fn argument<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let value = pair.strip_prefix(name)?.strip_prefix(b"=")?;
        Some(value)
    })
}

/// As forms encode their fields.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        rest = after;
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(*byte),
        }
    }
    out
}

pub(crate) fn is_urlencoded(content_type: &[u8]) -> bool {
    parameters::head_of(content_type).eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// Where a browser that has sent a form goes on: where it came from, if that is on this server. `None` for a
/// client that does not ask for a page.
pub(crate) fn way_back(head: &Head, route_state: &RouteState) -> Option<Vec<u8>> {
    let accept = head.known(Known::Accept)?;
    let has = |what: &[u8]| memchr::memmem::find(accept, what).is_some();
    if !has(b"text/html") || has(b"application/json") {
        return None;
    }
    let referer = head.known(Known::Referer).and_then(|value| {
        let target = target::split(value).ok()?;
        let is_here = target.authority?.eq_ignore_ascii_case(head.known(Known::Host)?);
        let start = value.len() - target::split_authority(value)?.1.len();
        let address = &value[start..];
        let is_safe = address.starts_with(b"/") && !address.starts_with(b"//");
        let is_plain = address.iter().all(u8::is_ascii_graphic);
        (is_here && is_safe && is_plain).then(|| address.to_vec())
    });
    referer.or_else(|| {
        let mut address = Vec::new();
        target::encode_path(&route_state.path, &mut address);
        // `//name` would be another host.
        (!address.starts_with(b"//")).then_some(address)
    })
}
