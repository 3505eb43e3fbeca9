//! What the directives for uploads and changes become: defaults, inheritance, precedence.

use std::path::Path;
use std::time::Duration;

use sekisho_config::{
    Config, Conflict, DeleteDirectories, FileOps, LocationMatch, Memory, Methods, Options,
    Permissions, Sync, load,
};

fn loaded(text: &str) -> Config {
    let source = Memory::of("/conf/main.conf", text);
    let outcome = load(Path::new("/conf/main.conf"), &Options::new("/prefix"), &source);
    let shown: String = outcome.reports.iter().map(|report| report.render(false)).collect();
    outcome.config.unwrap_or_else(|| panic!("{shown}"))
}

fn all() -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/good/file_ops.conf");
    loaded(&std::fs::read_to_string(path).expect("the file is there"))
}

/// What holds at a location; the server itself for "".
fn at<'c>(config: &'c Config, name: &str) -> Option<&'c FileOps> {
    let is_it = |matches: &LocationMatch| match matches {
        LocationMatch::Prefix { path, .. } => path == name.as_bytes(),
        LocationMatch::Server => name.is_empty(),
        _ => false,
    };
    let found = config.http.locations.iter().find(|location| is_it(&location.matches));
    found.unwrap_or_else(|| panic!("no location {name}")).settings.file_ops.as_deref()
}

/// F5, F6: nothing is changed unless something says so, and then as in nginx.
#[test]
fn nothing_is_changed_by_default() {
    let config = loaded("http { server { listen 80; } }");
    assert!(at(&config, "").is_none());
    let config = loaded("http { upload_resumable on; server { listen 80; dav_methods PUT; } }");
    let file_ops = at(&config, "").expect("on");
    assert_eq!(file_ops.methods, Methods { put: true, ..Methods::default() });
    assert_eq!(file_ops.access, Permissions { file: 0o600, folder: 0o700 });
    assert_eq!((file_ops.creates_folders, file_ops.delete_depth_min), (false, 0));
    assert_eq!((file_ops.conflict, file_ops.sync), (Conflict::Replace, Sync::Off));
    assert_eq!(file_ops.delete_directories, DeleteDirectories::Recursive);
    assert!(file_ops.store.is_none());
    assert!(file_ops.resumable.is_none(), "there is nowhere to resume");
}

#[test]
fn what_is_said_is_what_holds() {
    let config = all();
    assert!(at(&config, "/read/").is_none());
    let all = at(&config, "/all/").expect("on");
    let methods = Methods { put: true, delete: true, mkcol: true, copy: true, r#move: true };
    assert_eq!(all.methods, methods);
    assert_eq!(all.access, Permissions { file: 0o664, folder: 0o775 });
    assert_eq!((all.creates_folders, all.delete_depth_min), (true, 2));
    assert_eq!((all.conflict, all.sync), (Conflict::Rename, Sync::Full));
    assert_eq!(all.delete_directories, DeleteDirectories::Recursive);
    let post = at(&config, "/post/").expect("a store");
    assert!(post.methods.is_empty());
    assert_eq!(post.store.as_ref().map(|store| store.parts.len()), Some(2));
    assert_eq!(post.access, Permissions { file: 0o644, folder: 0o755 }, "inherited");
    assert_eq!(post.parts_max, 20);
    assert_eq!(post.resumable, Some(Duration::from_hours(2)));
    assert!(at(&config, "/post/off/").is_none());
    let here = at(&config, "/here/").expect("a store");
    assert!(here.methods.put && here.methods.delete && !here.methods.mkcol, "inherited");
    assert_eq!((here.parts_max, here.sync), (100, Sync::Data));
}
