//! How folders are listed.

use super::{LEVELS, Row, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Archives, ListingFormat};

pub(super) const ROWS: &[Row] = &[
    active(
        "autoindex",
        LEVELS,
        "on|off",
        "off",
        "Whether a folder without an index file is listed",
        |l, d, _| set(&mut l.settings.autoindex, d.flag()),
    ),
    active(
        "autoindex_exact_size",
        LEVELS,
        "on|off",
        "on",
        "Whether a listing shows sizes in bytes",
        |l, d, _| set(&mut l.settings.autoindex_exact_size, d.flag()),
    ),
    active(
        "autoindex_localtime",
        LEVELS,
        "on|off",
        "off",
        "Whether a listing shows local times",
        |l, d, _| set(&mut l.settings.autoindex_localtime, d.flag()),
    ),
    active(
        "autoindex_format",
        LEVELS,
        "html|xml|json|jsonp",
        "html",
        "The form of a listing; with `html`, clients that prefer `application/json` get that",
        format,
    ),
    active(
        "autoindex_readme",
        LEVELS,
        "on|off",
        "on",
        "Whether a listing shows the folder's README.md, README.txt or README below it (not in nginx)",
        |l, d, _| set(&mut l.settings.listing.readme, d.flag()),
    ),
    active(
        "autoindex_title",
        LEVELS,
        "text",
        "",
        "The heading of listings, in place of `Home` and `Index of` (not in nginx)",
        |l, d, _| {
            let title = d.text(d.arg(0))?;
            l.settings.listing.title = (!title.is_empty()).then(|| title.into());
            Ok(())
        },
    ),
    active(
        "autoindex_archive",
        LEVELS,
        "off|format ...",
        "off",
        "Whether a listed folder can be downloaded as one file: `zip`, `tar` or both (not in nginx)",
        archive,
    ),
    active(
        "autoindex_search",
        LEVELS,
        "on|off",
        "off",
        "Whether names in all folders below a listed one can be searched by `?search=` (not in nginx)",
        |l, d, _| set(&mut l.settings.listing.search, d.flag()),
    ),
];

fn format(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    l.settings.listing.format = match &*word.text {
        b"html" => ListingFormat::Html,
        b"xml" => ListingFormat::Xml,
        b"json" => ListingFormat::Json,
        b"jsonp" => ListingFormat::Jsonp,
        _ => return Err(d.invalid(word, "must be \"html\", \"xml\", \"json\" or \"jsonp\"")),
    };
    Ok(())
}

fn archive(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut archives = Archives::default();
    for word in d.args() {
        match &*word.text {
            b"off" if d.args().len() == 1 => {}
            b"zip" if !archives.zip => archives.zip = true,
            b"tar" if !archives.tar => archives.tar = true,
            _ => return Err(d.invalid(word, "must be \"off\", or \"zip\" and \"tar\", each once")),
        }
    }
    l.settings.listing.archives = archives;
    Ok(())
}
