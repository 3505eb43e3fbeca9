//! All files below a folder, one after the other, as its listings would show them: for an archive of them, or for a
//! search.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::io::Errno;
use sekisho_config::Level;

use super::entry::{Entries, Facts, Folder, ReadError, Reading, Shown};
use super::order::{By, SortOrder};
use super::shared::{Key, Readings, SharedReading};
use super::{ListedFolder, is_lack, joined};
use crate::file_cache;

/// How deep folders are followed, and how many entries there may be in all.
const DEPTH_MAX: usize = 64;
const ENTRIES_MAX: usize = 200_000;
const TOO_MANY: &str = "there are too many files";
pub(super) const OVER_BUDGET: &str = "listings and archives have reached their memory limit";
/// How long the names of folders that are still to be read may be together.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// So many of the names that could not be read are kept for the list at the end of the archive.
const UNREAD_NAMES_MAX: usize = 1000;
/// So many of them have a line of their own in the error log.
const UNREAD_LINES_MAX: usize = 10;
/// What that list is called in the archive.
const UNREAD_LIST: &[u8] = b"NOT-READABLE.txt";

/// What comes next.
#[derive(Debug)]
pub(super) enum Step {
    /// Some work was done; nothing has come of it yet.
    Worked,
    /// A folder; its name ends with a slash.
    Folder { name: Vec<u8>, modified: i64 },
    /// A file, opened.
    File { name: Vec<u8>, modified: i64, size: u64, descriptor: OwnedFd },
    /// Something that was searched for, as a path below the place.
    Found { name: Vec<u8>, is_folder: bool, facts: Facts },
    /// That was all.
    End,
    /// There is more than is sent, or it could not be read.
    Failed(&'static str),
}

/// What a walk is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// An archive: files are opened.
    Archive {
        /// What everything in the archive is below.
        top: Vec<u8>,
        /// The entries of the folder itself that are wanted; all where none is named.
        wanted: Vec<Vec<u8>>,
    },
    /// A search: names that contain all of these words, which are in lower case.
    Search { words: Vec<String> },
}

/// A walk through a folder.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) place: ListedFolder,
    purpose: Purpose,
    /// Folders that are still to be read, as paths below the place, each with a closing slash.
    waiting: Vec<Vec<u8>>,
    waiting_bytes: usize,
    /// The folder that is being read or shown.
    folder: Vec<u8>,
    stage: WalkStage,
    count: usize,
    unread: Unread,
    /// What others read at the same time.
    readings: Readings,
}

/// What could not be read.
#[derive(Debug, Default)]
struct Unread {
    names: Vec<String>,
    count: usize,
    /// Links to folders, which are not followed.
    links: Vec<String>,
    link_count: usize,
    /// Names with control characters.
    odd: Vec<String>,
}

#[derive(Debug)]
enum WalkStage {
    Between,
    Reading(SharedReading),
    Showing(Box<Entries>),
}

impl Walk {
    pub(super) fn new(place: ListedFolder, readings: Readings, purpose: Purpose) -> Self {
        Self {
            place,
            purpose,
            waiting: vec![Vec::new()],
            waiting_bytes: 0,
            folder: Vec::new(),
            stage: WalkStage::Between,
            count: 0,
            unread: Unread::default(),
            readings,
        }
    }

    /// What the folders that are still to be read hold in memory.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.waiting.capacity() * size_of::<Vec<u8>>()
    }

    pub(super) fn next(&mut self) -> Step {
        match std::mem::replace(&mut self.stage, WalkStage::Between) {
            WalkStage::Between => self.enter(),
            WalkStage::Reading(reading) => match reading.step() {
                Ok(entries) => {
                    self.stage = match entries {
                        Some(entries) => WalkStage::Showing(Box::new(entries)),
                        None => WalkStage::Reading(reading),
                    };
                    Step::Worked
                }
                Err(ReadError::OverBudget) => Step::Failed(OVER_BUDGET),
                Err(ReadError::System(_)) => Step::Failed("a folder cannot be read"),
            },
            WalkStage::Showing(entries) => self.show(entries),
        }
    }

    /// Opens the next folder.
    fn enter(&mut self) -> Step {
        let Some(folder) = self.waiting.pop() else { return Step::End };
        self.waiting_bytes -= folder.len();
        let path = joined(&self.place.file, &folder);
        let opened = Folder::open(&path, self.place.root_bytes, self.place.symlinks);
        let (opened, stat) = match opened {
            Ok(opened) => opened,
            // An entry that cannot be fetched by itself, or is gone, is left out; but not the requested
            // folder, and nothing because of a lack of resources.
            Err(errno) if folder.is_empty() || is_lack(errno) => {
                return Step::Failed("a folder cannot be opened");
            }
            Err(errno) => {
                self.leave_out(&folder, errno);
                return Step::Worked;
            }
        };
        let order = SortOrder { by: By::Name, is_descending: false };
        // Its time decides only whether others may join, and those look at the clock themselves.
        let key = Key::of(&stat, order, self.place.symlinks, self.place.wall_secs);
        let shared = self.readings.find(key);
        let shared =
            shared.map_or_else(|| self.readings.begin(key, Reading::new(opened, order)), Ok);
        let Ok(shared) = shared else { return Step::Failed(OVER_BUDGET) };
        self.stage = WalkStage::Reading(shared);
        self.folder = folder;
        match &self.purpose {
            Purpose::Archive { top, .. } => {
                let name = archived_name(top, &self.folder, b"");
                Step::Folder { name, modified: stat.st_mtime.max(0) }
            }
            Purpose::Search { .. } => Step::Worked,
        }
    }

    fn show(&mut self, mut entries: Box<Entries>) -> Step {
        let is_cut = entries.is_cut();
        let Shown { name, is_folder, facts, .. } = match entries.next() {
            Ok(Some(entry)) => entry,
            Ok(None) if is_cut => return Step::Failed(TOO_MANY),
            Ok(None) => {
                self.pass_by_odd(&entries);
                return Step::Worked;
            }
            Err(_) => return Step::Failed("the status of a file cannot be read"),
        };
        let mut below = [&self.folder, name].concat();
        self.count += 1;
        if self.count > ENTRIES_MAX {
            return Step::Failed(TOO_MANY);
        }
        if self.folder.is_empty() && !self.purpose.wants(name) {
            self.stage = WalkStage::Showing(entries);
            return Step::Worked;
        }
        let is_found = self.purpose.finds(name);
        if is_folder {
            below.push(b'/');
            let depth = below.split(|byte| *byte == b'/').count();
            let is_link = entries.is_link();
            self.stage = WalkStage::Showing(entries);
            if !self.place.is_ours(&below) {
                return Step::Worked;
            }
            if is_link {
                self.pass_by(&below);
                return Step::Worked;
            }
            self.waiting_bytes += below.len();
            if depth > DEPTH_MAX {
                return Step::Failed("folders are nested too deeply");
            }
            if self.waiting_bytes > WAITING_BYTES_MAX {
                return Step::Failed(TOO_MANY);
            }
            let found = is_found.then(|| below[..below.len() - 1].to_vec());
            self.waiting.push(below);
            return match found {
                Some(name) => Step::Found { name, is_folder, facts },
                None => Step::Worked,
            };
        }
        let archived = match &self.purpose {
            Purpose::Archive { top, .. } => archived_name(top, &self.folder, name),
            Purpose::Search { .. } => Vec::new(),
        };
        self.stage = WalkStage::Showing(entries);
        if !self.place.is_ours(&below) {
            return Step::Worked;
        }
        if matches!(self.purpose, Purpose::Search { .. }) {
            return if is_found {
                Step::Found { name: below, is_folder, facts }
            } else {
                Step::Worked
            };
        }
        let path = joined(&self.place.file, &below);
        match file_cache::open(&path, self.place.root_bytes, self.place.symlinks) {
            Ok((descriptor, stat))
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile =>
            {
                let (size, modified) = (stat.st_size as u64, stat.st_mtime.max(0));
                Step::File { name: archived, modified, size, descriptor }
            }
            Err(errno) if is_lack(errno) => Step::Failed("a file cannot be opened"),
            Err(errno) => {
                self.leave_out(&below, errno);
                Step::Worked
            }
            Ok(_) => Step::Worked,
        }
    }

    /// Notes that the archive lacks something that its listing shows, unless that is gone by now.
    fn leave_out(&mut self, below: &[u8], errno: Errno) {
        if errno == Errno::NOENT || matches!(self.purpose, Purpose::Search { .. }) {
            return;
        }
        self.unread.count += 1;
        if self.unread.count > UNREAD_NAMES_MAX {
            return;
        }
        let why = std::io::Error::from(errno);
        if self.unread.count <= UNREAD_LINES_MAX {
            let name = below.escape_ascii();
            let (file, hint) =
                (self.place.file.escape_ascii(), self.place.context.denial_hint(errno));
            self.place.context.report(
                Level::Error,
                format_args!("archive of \"{file}\" lacks \"{name}\": {why}{hint}"),
            );
        }
        self.unread.names.push(below.escape_ascii().to_string());
    }

    /// Notes names that the listing cannot show.
    fn pass_by_odd(&mut self, entries: &Entries) {
        let Purpose::Archive { wanted, .. } = &self.purpose else { return };
        let is_selection = self.folder.is_empty() && !wanted.is_empty();
        for name in entries.odd().iter().filter(|_| !is_selection) {
            let below = [&self.folder, &**name].concat();
            if self.place.is_ours(&below) && self.unread.odd.len() < UNREAD_NAMES_MAX {
                self.unread.odd.push(below.escape_ascii().to_string());
            }
        }
    }

    /// Notes a link to a folder, which the listing shows and the archive does not follow.
    fn pass_by(&mut self, below: &[u8]) {
        if matches!(self.purpose, Purpose::Archive { .. }) {
            self.unread.link_count += 1;
            if self.unread.link_count <= UNREAD_NAMES_MAX {
                self.unread.links.push(below.escape_ascii().to_string());
            }
        }
    }

    /// The list of what the archive lacks, to be put into it under this name; once.
    pub(super) fn take_unread(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let Unread { names, count, links, link_count, odd } = std::mem::take(&mut self.unread);
        let mut text = String::new();
        for (what, names, count) in [
            ("The server could not read COUNT of the files and folders here:\n", &names, count),
            ("Links to folders are not followed; COUNT are left out:\n", &links, link_count),
            (
                "Names with control characters cannot be requested; these are left out:\n",
                &odd,
                odd.len(),
            ),
        ] {
            if count == 0 {
                continue;
            }
            text.push_str(&what.replace("COUNT", &count.to_string()));
            for name in names {
                text.push_str(name);
                text.push('\n');
            }
            if count > names.len() {
                text.push_str("and others\n");
            }
        }
        if text.is_empty() {
            return None;
        }
        if count > UNREAD_LINES_MAX {
            let file = self.place.file.escape_ascii();
            self.place.context.report(
                Level::Error,
                format_args!("archive of \"{file}\" lacks {count} files and folders in all"),
            );
        }
        let Purpose::Archive { top, .. } = &self.purpose else { return None };
        Some((archived_name(top, b"", UNREAD_LIST), text.into_bytes()))
    }
}

impl Purpose {
    /// Whether an entry of the folder itself is looked at.
    fn wants(&self, name: &[u8]) -> bool {
        match self {
            Self::Archive { wanted, .. } => {
                wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
            }
            Self::Search { .. } => true,
        }
    }

    /// Whether a name is searched for.
    fn finds(&self, name: &[u8]) -> bool {
        let Self::Search { words } = self else { return false };
        let name = String::from_utf8_lossy(name).to_lowercase();
        words.iter().all(|word| name.contains(word.as_str()))
    }
}

/// The name in an archive of something in a folder of it.
fn archived_name(top: &[u8], folder: &[u8], name: &[u8]) -> Vec<u8> {
    [top, b"/", folder, name].concat()
}
