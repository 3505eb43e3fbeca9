//! Files of access logs whose paths have variables. They are opened when there is a line for them, and kept open as
//! `open_log_file_cache` says: by the site, so that it makes no difference which worker has the line.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError};

use sekisho_config::{Level, LogFileCache, LogTarget, Part, Template, Variable};
use sekisho_log::{Buffering, Sink};
use sekisho_route::{Request, RouteState, Sent, expand};

use crate::access_log::stamp;
use crate::error_context::Client;
use crate::site::Site;

/// The file that a line belongs into. `None` where there is none: it cannot be opened, the name leads out of its
/// folder, or the root that the request is about is not there. The last is nginx's rule: a client with
/// invented names (`$host`) creates no files.
pub(crate) fn open(
    path: &Template,
    site: &Site,
    request: &Request<'_>,
    route_state: &RouteState,
    sent: Option<&Sent<'_>>,
) -> Option<Arc<Sink>> {
    let value = |template: &Template| {
        let mut bytes = Vec::new();
        expand(template, site.table(), request, route_state, sent, &mut bytes);
        PathBuf::from(OsString::from_vec(bytes))
    };
    let root = Template { parts: vec![Part::Variable(Variable::DocumentRoot)] };
    // An `alias` may be a file.
    if !value(&root).exists() {
        return None;
    }
    let path = value(path);
    let is_plain = |part: Component<'_>| !matches!(part, Component::ParentDir);
    if !path.is_absolute() || !path.components().all(is_plain) {
        return None;
    }
    let logger = site.error_logger(route_state.location);
    let settings = &site.location(route_state.location).settings;
    let open = |path: &Path| {
        let target = LogTarget::File(path.to_owned());
        let opened = site.logs().open(&target, Buffering::default());
        if let Err(error) = &opened {
            let (shown, client) = (path.display(), Client(request.connection.remote));
            let message = format_args!("open() \"{shown}\" failed: {error}, {client}");
            logger.write(Level::Crit, stamp(request), Some(request.connection.id), message);
        }
        opened.ok()
    };
    match &settings.log_file_cache {
        None => open(&path),
        Some(cache) => {
            let mut files = site.log_files().lock().unwrap_or_else(PoisonError::into_inner);
            files.kept(&path, cache, request.wall.unix_secs, open)
        }
    }
}

/// Files of logs whose paths have variables, kept open as `open_log_file_cache` says.
#[derive(Debug, Default)]
pub(crate) struct Files {
    by_path: HashMap<PathBuf, File>,
}

/// Times are in seconds since 1970.
#[derive(Debug)]
struct File {
    sink: Option<Arc<Sink>>,
    uses: u32,
    opened: i64,
    used: i64,
    /// The order of uses: the least is given up first.
    turn: u64,
}

impl Files {
    fn kept(
        &mut self,
        path: &Path,
        cache: &LogFileCache,
        now: i64,
        open: impl FnOnce(&Path) -> Option<Arc<Sink>>,
    ) -> Option<Arc<Sink>> {
        let inactive = cache.inactive.as_secs() as i64;
        self.by_path.retain(|_, file| now - file.used <= inactive);
        let turn = self.by_path.values().map(|file| file.turn).max().unwrap_or_default() + 1;
        if !self.by_path.contains_key(path) {
            // One that cannot be opened takes no other's place.
            let sink = open(path)?;
            if self.by_path.len() >= cache.max
                && let Some(oldest) = self.by_path.iter().min_by_key(|(_, file)| file.turn)
            {
                let oldest = oldest.0.clone();
                self.by_path.remove(&oldest);
            }
            let kept = (cache.min_uses <= 1).then(|| Arc::clone(&sink));
            let file = File { sink: kept, uses: 1, opened: now, used: now, turn };
            self.by_path.insert(path.to_owned(), file);
            return Some(sink);
        }
        let file = self.by_path.get_mut(path)?;
        (file.used, file.turn, file.uses) = (now, turn, file.uses.saturating_add(1));
        if now - file.opened > cache.valid.as_secs() as i64 {
            file.sink = None;
        }
        if let Some(sink) = &file.sink {
            return Some(Arc::clone(sink));
        }
        let sink = open(path)?;
        if file.uses >= cache.min_uses {
            (file.sink, file.opened) = (Some(Arc::clone(&sink)), now);
        }
        Some(sink)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sekisho_log::Logs;

    use super::*;

    /// O6
    #[test]
    fn the_file_that_was_used_longest_ago_is_closed_first() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let logs = Logs::new();
        let second = Duration::from_secs(1);
        let cache = LogFileCache { max: 2, inactive: 10 * second, valid: 60 * second, min_uses: 2 };
        let mut files = Files::default();
        let mut opened = Vec::new();
        let mut ask = |name: &str, now: i64| {
            let mut is_opened = false;
            files.kept(&dir.path().join(name), &cache, now, |path| {
                is_opened = true;
                logs.open(&LogTarget::File(path.to_owned()), Buffering::default()).ok()
            });
            opened.push(is_opened);
        };
        for (name, now) in [("a", 0), ("a", 1), ("a", 2), ("b", 3), ("b", 4), ("b", 5)] {
            ask(name, now);
        }
        // One that cannot be opened takes no place.
        ask("none/x", 5);
        ask("a", 5);
        ask("b", 5);
        ask("c", 6);
        ask("a", 7);
        ask("c", 30);
        let kept = [true, true, false, true, true, false, true, false, false, true, true, true];
        assert_eq!(opened, kept);
    }
}
