//! Uploads, deletion and what else changes files: nginx's `dav_…` directives, and ours.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use sekisho_http::{Method, target};

use super::{LEVELS, Row, active, set, storage};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{
    Conflict, DeleteDirectories, ExtMethods, Methods, Origins, Part, Permissions, Sync, Template,
    UnfinishedMax, Variable,
};

pub(super) const ROWS: &[Row] = &[
    active(
        "dav_methods",
        LEVELS,
        "off|method ...",
        "off",
        "Which of PUT, DELETE, MKCOL, COPY and MOVE may change files",
        methods,
    ),
    active(
        "dav_ext_methods",
        LEVELS,
        "off|method ...",
        "off",
        "Which of WebDAV's PROPFIND, PROPPATCH, LOCK, UNLOCK and OPTIONS are answered (nginx: the module dav-ext, without \
         PROPPATCH)",
        ext_methods,
    ),
    active(
        "dav_access",
        LEVELS,
        "users:permissions ...",
        "user:rw",
        "Permissions of new files, like `user:rw group:r all:r`; users who may read a folder may enter it",
        access,
    ),
    active(
        "create_full_put_path",
        LEVELS,
        "on|off",
        "off",
        "Whether PUT creates missing folders (409 otherwise)",
        |l, d, _| set(&mut l.file_ops.rest.creates_folders, d.flag()),
    ),
    active(
        "min_delete_depth",
        LEVELS,
        "number",
        "0",
        "How many parts a path must have for DELETE to remove what it names (409 otherwise)",
        |l, d, _| {
            let depth = d.number(0)?;
            l.file_ops.rest.delete_depth_min = usize::try_from(depth).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
    active(
        "upload_store",
        LEVELS,
        "folder|off",
        "off",
        "The folder where POST stores files, from forms or as raw bodies; `$request_filename` for the folder in the address (ours)",
        store,
    ),
    active(
        "upload_conflict",
        LEVELS,
        "replace|refuse|rename",
        "replace",
        "What happens if a file of the same name exists: it is replaced, the upload is refused (409), or it gets another name (ours)",
        |l, d, _| {
            let word = d.arg(0);
            l.file_ops.rest.conflict = match &*word.text {
                b"replace" => Conflict::Replace,
                b"refuse" => Conflict::Refuse,
                b"rename" => Conflict::Rename,
                _ => return Err(d.invalid(word, "must be \"replace\", \"refuse\" or \"rename\"")),
            };
            Ok(())
        },
    ),
    active(
        "upload_sync",
        LEVELS,
        "off|data|full",
        "off",
        "What is on the disk before an upload is answered: nothing for certain, the content, or the name, too (ours)",
        |l, d, _| {
            let word = d.arg(0);
            l.file_ops.rest.sync = match &*word.text {
                b"off" => Sync::Off,
                b"data" => Sync::Data,
                b"full" => Sync::Full,
                _ => return Err(d.invalid(word, "must be \"off\", \"data\" or \"full\"")),
            };
            Ok(())
        },
    ),
    active(
        "upload_delete_directories",
        LEVELS,
        "off|empty|recursive",
        "recursive",
        "Whether DELETE removes folders: never (403), empty ones (409 otherwise), or with their content, as in nginx (ours)",
        |l, d, _| {
            let word = d.arg(0);
            l.file_ops.rest.delete_directories = match &*word.text {
                b"off" => DeleteDirectories::Off,
                b"empty" => DeleteDirectories::Empty,
                b"recursive" => DeleteDirectories::Recursive,
                _ => return Err(d.invalid(word, "must be \"off\", \"empty\" or \"recursive\"")),
            };
            Ok(())
        },
    ),
    active(
        "upload_direct",
        LEVELS,
        "size|off",
        "16m",
        "The size from which an upload of known length bypasses the page cache, on ext4 and xfs (ours)",
        |l, d, _| {
            let is_off = *d.arg(0).text == *b"off";
            let least = if is_off { None } else { Some(d.size(0)?) };
            l.file_ops.rest.direct_min = least;
            Ok(())
        },
    ),
    active(
        "upload_parts_max",
        LEVELS,
        "number",
        "100",
        "How many parts a form may have for POST to store its files (413 beyond; ours)",
        |l, d, _| set(&mut l.file_ops.rest.parts_max, d.count(0)),
    ),
    active(
        "upload_resumable",
        LEVELS,
        "on|off",
        "off",
        "Whether uploads to `upload_store` can be resumed, by the protocol tus 1.0 (ours)",
        |l, d, _| set(&mut l.file_ops.is_resumable, d.flag()),
    ),
    active(
        "upload_resumable_expires",
        LEVELS,
        "time",
        "24h",
        "How long an unfinished upload is kept after its last byte (ours)",
        |l, d, _| {
            let time = d.time(0)?;
            if time < Duration::from_secs(1) {
                return Err(d.invalid(d.arg(0), "must be at least 1s"));
            }
            l.file_ops.resumable_expires = time;
            Ok(())
        },
    ),
    active(
        "upload_resumable_max",
        LEVELS,
        "number [address=number]",
        "10000 address=100",
        "How many unfinished uploads a store may hold (507 beyond), and how many of them one client address (429; ours)",
        unfinished_max,
    ),
    active(
        "upload_origins",
        LEVELS,
        "own|any|origin ...",
        "own",
        "The sites from which a browser may change files: the own host, and origins like `https://app.example` (403 otherwise; ours)",
        origins,
    ),
];

fn unfinished_max(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let of_store = d.count(0)?;
    let mut of_address = of_store;
    if let Some(word) = d.args().get(1) {
        let number =
            word.text.strip_prefix(b"address=").and_then(|text| std::str::from_utf8(text).ok());
        let number = number.and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        of_address = number.ok_or_else(|| d.invalid(word, "must be like address=100"))?;
    }
    l.file_ops.rest.unfinished_max = UnfinishedMax { of_store, of_address };
    Ok(())
}

fn origins(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    l.file_ops.rest.origins = match d.args() {
        [word] if &*word.text == b"own" => Origins::Own,
        [word] if &*word.text == b"any" => Origins::Any,
        words => {
            let mut listed = Vec::with_capacity(words.len());
            for word in words {
                let authority = target::split_authority(&word.text);
                if !authority.is_some_and(|(host, rest)| rest.is_empty() && target::is_host(host)) {
                    return Err(
                        d.invalid(word, "must be like https://app.example, or own or any alone")
                    );
                }
                listed.push(word.text.to_ascii_lowercase());
            }
            Origins::Listed(listed)
        }
    };
    Ok(())
}

fn methods(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    l.file_ops.rest.methods = Methods::default();
    if let [word] = d.args()
        && &*word.text == b"off"
    {
        return Ok(());
    }
    for word in d.args() {
        // nginx takes them in any case.
        let method = Method::from_bytes(&word.text.to_ascii_uppercase());
        if l.file_ops.rest.methods.contains(method) {
            return Err(Fault::at(word, format!("duplicate value \"{}\"", word.shown())));
        }
        if !l.file_ops.rest.methods.insert(method) {
            return Err(d.invalid(word, "must be PUT, DELETE, MKCOL, COPY, MOVE, or off alone"));
        }
    }
    Ok(())
}

fn ext_methods(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut methods = ExtMethods::default();
    let is_off = matches!(d.args(), [word] if &*word.text == b"off");
    for word in d.args().iter().filter(|_| !is_off) {
        let method = Method::from_bytes(&word.text.to_ascii_uppercase());
        if methods.contains(method) {
            return Err(Fault::at(word, format!("duplicate value \"{}\"", word.shown())));
        }
        if !methods.insert(method) {
            let reason = "must be PROPFIND, PROPPATCH, OPTIONS, LOCK, UNLOCK, or off alone";
            return Err(d.invalid(word, reason));
        }
    }
    l.file_ops.rest.ext_methods = methods;
    Ok(())
}

fn access(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    // If only the group or all are named, the owner may read and write.
    let mut bits = 0o600;
    for word in d.args() {
        let wrong = || d.invalid(word, "must be like user:rw, group:r or all:r");
        let text = d.text(word)?;
        let (who, what) = text.split_once(':').ok_or_else(wrong)?;
        let right = match what {
            "r" => 4,
            "w" => 2,
            "rw" => 6,
            _ => return Err(wrong()),
        };
        match who {
            "user" => bits = bits & !0o700 | right << 6,
            "group" => bits |= right << 3,
            "all" => bits |= right,
            _ => return Err(wrong()),
        }
    }
    l.file_ops.rest.access = Permissions::of_files(bits);
    Ok(())
}

fn store(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let template = match word.text.first() {
        None => return Err(d.invalid(word, "is empty")),
        Some(b'$') => d.template(word, s)?,
        Some(_) if &*word.text == b"off" => {
            l.file_ops.rest.store = None;
            return Ok(());
        }
        Some(_) if storage::is_named(word) => {
            let (place, storage) = storage::store(d, word, s)?;
            l.file_ops.rest.store = Some(place);
            l.file_ops.rest.storage = storage;
            return Ok(());
        }
        Some(_) => {
            let text = s.path(&word.text).into_os_string();
            d.template_of(word, text.as_bytes(), s)?
        }
    };
    if !has_ground(&template) {
        // Whatever a client can put there must stay below a folder that the configuration names.
        let reason =
            "must begin with the name of a folder, with $document_root or with $request_filename";
        return Err(d.invalid(word, reason));
    }
    l.file_ops.rest.store = Some(template);
    l.file_ops.rest.storage = None;
    Ok(())
}

/// Whether the value begins with a folder that no client can choose.
fn has_ground(template: &Template) -> bool {
    match template.parts.as_slice() {
        [Part::Literal(text), ..] => text.len() > 1,
        [Part::Variable(Variable::DocumentRoot), ..]
        | [Part::Variable(Variable::RequestFilename)] => true,
        _ => false,
    }
}
