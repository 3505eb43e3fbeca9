//! How folders are listed.

use std::sync::Arc;

/// The companions of `autoindex` that say what a listing is and has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// `autoindex_title`
    pub title: Option<Arc<str>>,
    /// `autoindex_format`
    pub format: ListingFormat,
    /// `autoindex_readme`
    pub readme: bool,
    /// `autoindex_archive`
    pub archives: Archives,
}

/// `autoindex_format`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListingFormat {
    /// An HTML page; JSON for a client that accepts only that.
    #[default]
    Html,
    /// `xml`
    Xml,
    /// `json`
    Json,
    /// `jsonp`: JSON within a call of the function that `?callback=` names.
    Jsonp,
}

/// `autoindex_archive`: in which forms a whole folder can be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Archives {
    /// `zip`
    pub zip: bool,
    /// `tar`
    pub tar: bool,
}
