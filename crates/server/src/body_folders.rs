//! The folders of `client_body_temp_path`: made before the server changes its user, as nginx does.

use std::collections::BTreeSet;
use std::path::Path;

use sekisho_config::{Config, Level};

use crate::certificates::make_folder;
use crate::user::Identity;

/// Makes the missing folders. One that cannot be made is only logged: it may never be needed.
pub(crate) fn prepare(config: &Config, identity: Option<&Identity>) -> Vec<(Level, String)> {
    let owner = identity.map(|identity| (identity.uid, identity.gid));
    let settings = config.http.locations.iter().map(|location| &location.settings);
    let settings = settings.filter(|it| it.pass.is_some() || it.cgi.is_some());
    let folders: BTreeSet<&Path> =
        settings.filter_map(|it| it.client_body_temp_path.as_deref()).collect();
    let make = |folder: &Path| {
        let error = make_folder(folder, owner).err()?;
        let path = folder.display();
        Some((
            Level::Warn,
            format!("cannot make the \"client_body_temp_path\" \"{path}\": {error}"),
        ))
    };
    folders.into_iter().filter_map(make).collect()
}
