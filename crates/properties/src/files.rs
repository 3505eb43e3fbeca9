//! Requests that change files: whatever method, target, `Destination` and tus field a client sends, the file that
//! is meant lies below the location's folder and is none of our own; the note of an upload is read back as it was
//! written, and `Upload-Metadata` gives what was encoded into it.
//!
//! The first byte chooses the method; the lines are the target, `Destination`, `Host`, `Upload-Metadata`, a note.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use sekisho_config::{Memory, Options, Settings, load};
use sekisho_http::{Head, Version, file_name, target};
use sekisho_route::{
    AccessChecks, Action, ConnectionFacts, FileOp, Files, Look, OWN_PREFIX, Request, RequestIdSeed,
    RouteState, Store, Table, WallTime,
};

#[path = "../../handler/src/file_op/note.rs"]
#[allow(dead_code, reason = "of a borrowed file not everything is needed")]
mod note;

use note::Note;

const TEXT: &str = "events {} http { server {
    listen 8080;
    root /srv/files;
    dav_methods PUT DELETE MKCOL COPY MOVE;
    location /a/ { alias /data/a/; cgi_extension .cgi; }
    location /up/ { upload_store /data/up; upload_resumable on; }
    location ~ ^/by/([^/]*)/ { upload_store /data/by/$1; upload_resumable on; alias /data/$1; }
    location /none { dav_methods off; }
} }";
const ROOTS: [&[u8]; 4] = [b"/srv/files", b"/data/a", b"/data/up", b"/data"];
const METHODS: [&str; 10] =
    ["PUT", "DELETE", "MKCOL", "COPY", "MOVE", "POST", "PATCH", "HEAD", "OPTIONS", "GET"];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let outcome = load(Path::new("/s.conf"), &Options::new("/p"), &Memory::of("/s.conf", TEXT));
    Table::new(Arc::new(outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports))))
});

/// Holds the readers to it.
pub fn check(data: &[u8]) {
    let Some((bits, rest)) = data.split_first() else { return };
    let mut lines = rest.splitn(5, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (text, destination, host, metadata, noted) = (line(), line(), line(), line(), line());
    let mut head = Head::default();
    let method = METHODS[usize::from(*bits) % METHODS.len()];
    head.begin(method.as_bytes(), text, Version::Http11);
    head.push(b"Host", if host.is_empty() { b"a.example" } else { host });
    if !destination.is_empty() {
        head.push(b"Destination", destination);
    }
    if *bits >= 128 {
        head.push(b"Tus-Resumable", b"1.0.0");
        head.push(b"Upload-Metadata", metadata);
    }
    decides(&head);
    reads_metadata(metadata, rest);
    reads_note(noted, metadata);
}

fn decides(head: &Head) {
    let connection = ConnectionFacts::default();
    let (wall, request_id) = (WallTime::default(), RequestIdSeed(1));
    let request = Request::new(head, 0, &connection, wall, request_id);
    let mut route_state = RouteState::default();
    let action = TABLE.decide(&request, &mut route_state, &mut Nothing);
    let Action::FileOp(file_op) = action else { return };
    let root = route_state.root_bytes;
    let below = |file: &[u8]| {
        let (root, rest) = file.split_at(root);
        let shown = || format!("{} below {}", rest.escape_ascii(), root.escape_ascii());
        let named = root.strip_suffix(b"/").unwrap_or(root);
        assert!(ROOTS.iter().any(|known| named.starts_with(known)), "{}", shown());
        let is_safe = |path: &[u8]| !path.split(|byte| *byte == b'/').any(|part| part == b"..");
        assert!(is_safe(file) && !file.contains(&0), "{}", shown());
        assert!(rest.is_empty() || target::is_resolved(rest), "{}", shown());
        let mut parts = rest.split(|byte| *byte == b'/');
        assert!(!parts.any(|part| part.starts_with(OWN_PREFIX)), "{}", shown());
    };
    let name_of = |store: &Store| {
        assert!(!store.name.contains(&b'/') && !matches!(store.name.as_slice(), b"." | b".."));
        let address = store.address.as_deref().unwrap_or(b"/");
        assert!(target::is_resolved(address) && address.ends_with(b"/"));
    };
    match &file_op {
        FileOp::Put | FileOp::Delete | FileOp::Mkcol => below(&route_state.file),
        FileOp::Propfind | FileOp::Proppatch | FileOp::Lock(_) | FileOp::Unlock => {
            below(&route_state.file);
        }
        FileOp::Copy(to) | FileOp::Move(to) => {
            below(&route_state.file);
            below(&to.file);
            assert_eq!(to.file[..root], route_state.file[..root], "another root");
            assert!(target::is_resolved(&to.path));
            assert_eq!(to.path.ends_with(b"/"), route_state.path.ends_with(b"/"));
        }
        FileOp::Store(store) | FileOp::Resume(store) => {
            below(&route_state.file);
            name_of(store);
        }
    }
    let is_program = |file: &[u8]| {
        let stem = file.strip_suffix(b".cgi").filter(|_| root == b"/data/a".len());
        stem.is_some_and(|stem| !stem.ends_with(b"/"))
    };
    match file_op {
        FileOp::Put => assert!(!is_program(&route_state.file), "a program would be stored"),
        FileOp::Copy(to) | FileOp::Move(to) => assert!(!is_program(&to.file)),
        _ => {}
    }
}

/// A file system with nothing in it.
struct Nothing;

impl AccessChecks for Nothing {}

impl Files for Nothing {
    type File = ();

    fn look(&mut self, _: &[u8], _: usize, _: &Settings) -> Look<()> {
        Look::Missing
    }
}

fn reads_metadata(field: &[u8], value: &[u8]) {
    for key in [&b"filename"[..], b"name", b""] {
        if let Some(decoded) = note::metadata(field, key) {
            assert!(decoded.len() <= field.len());
            let _ = file_name::safe(&decoded);
        }
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(value);
    for written in [
        format!("filename {encoded}"),
        format!("is_private,filename {encoded},name YQ=="),
        format!("type dGV4dA==, filename {encoded}"),
        format!("filename  {} ,x", encoded.trim_end_matches('=')),
    ] {
        assert_eq!(note::metadata(written.as_bytes(), b"filename").as_deref(), Some(value));
        assert_eq!(note::metadata(written.as_bytes(), b"file"), None);
    }
}

fn reads_note(text: &[u8], metadata: &[u8]) {
    let text = [
        b"sekisho upload 1\n",
        &text.iter().map(|b| if *b == b'|' { b'\n' } else { *b }).collect::<Vec<_>>()[..],
        b"\n",
    ]
    .concat();
    if let Some(note) = Note::from_bytes(&text) {
        assert!(!note.name.is_empty() && !note.name.contains('/') && !note.name.starts_with('.'));
        assert_eq!(Note::from_bytes(&note.to_bytes()), Some(note));
    }
    // As a client's words make one.
    let metadata: Vec<u8> =
        metadata.iter().copied().filter(|byte| *byte >= b' ' || *byte == b'\t').collect();
    if let Some(name) = file_name::safe(&text) {
        let note = Note { length: text.len() as u64, name, metadata, is_done: text.len() % 2 == 0 };
        let bytes = note.to_bytes();
        assert_eq!(Note::from_bytes(&bytes), Some(note));
        assert_eq!(Note::from_bytes(&bytes[..bytes.len() - 1]), None, "cut short");
    }
}
