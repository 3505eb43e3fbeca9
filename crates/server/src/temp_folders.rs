//! The folders for temporary files (`client_body_temp_path`, `proxy_temp_path`, …): made before the server changes its user,
//! as nginx does (ADR 0096).

use std::collections::BTreeMap;
use std::path::Path;

use sekisho_config::{Config, Level, Options, Settings, TempFolder};

use crate::Problem;
use crate::certificates::make_folder;
use crate::setup::text_of;
use crate::user::Identity;

/// The directives, nginx's folders in its prefix, and those of Debian's nginx.
const FOLDERS: [(&str, &str, &str); 5] = [
    ("client_body_temp_path", "client_body_temp", "/var/lib/nginx/body"),
    ("proxy_temp_path", "proxy_temp", "/var/lib/nginx/proxy"),
    ("fastcgi_temp_path", "fastcgi_temp", "/var/lib/nginx/fastcgi"),
    ("scgi_temp_path", "scgi_temp", "/var/lib/nginx/scgi"),
    ("uwsgi_temp_path", "uwsgi_temp", "/var/lib/nginx/uwsgi"),
];

/// Where default folders are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base<'a> {
    /// In this folder, with nginx's names.
    Folder(&'a Path),
    /// The same, where they exist already.
    Existing(&'a Path),
    /// Where Debian's nginx has them.
    Nginx,
}

/// Adds the defaults of a command line.
pub(crate) fn with_defaults(mut options: Options, base: Base<'_>) -> Result<Options, Problem> {
    for (directive, name, of_nginx) in FOLDERS {
        let path = match base {
            Base::Nginx => of_nginx.into(),
            Base::Folder(folder) | Base::Existing(folder) => folder.join(name),
        };
        if !matches!(base, Base::Existing(_)) || path.is_dir() {
            options = options.with_default(directive, &[text_of(&path)?]);
        }
    }
    Ok(options)
}

/// Makes the missing folders. One that cannot be made is only logged: it may never be needed, and a default one has TMPDIR
/// in its place.
pub(crate) fn prepare(config: &Config, identity: Option<&Identity>) -> Vec<(Level, String)> {
    let owner = identity.map(|identity| (identity.uid, identity.gid));
    let settings = config.http.locations.iter().map(|location| &location.settings);
    let folders = settings.flat_map(Settings::temp_folders);
    let folders: BTreeMap<&Path, &TempFolder> = folders.map(|it| (&*it.path, it)).collect();
    let make = |folder: &TempFolder| {
        let error = make_folder(&folder.path, owner).err()?;
        let path = folder.path.display();
        let instead = if folder.is_default { "; TMPDIR is used instead" } else { "" };
        let level = if folder.is_default { Level::Notice } else { Level::Warn };
        let what = "cannot make the folder for temporary files";
        Some((level, format!("{what} \"{path}\": {error}{instead}")))
    };
    folders.into_values().filter_map(make).collect()
}
