//! Listings whose entries come from elsewhere, one page at a time: those of object storage.

use std::fmt::Write as _;

use sekisho_http::{Fields, Method, Status};

use super::entry::{Entry, Facts, Shown, is_shown};
use super::form::{Form, Writer};
use super::order::{SortOrder, argument, decoded};
use super::{Call, order, page, write_fields};

/// The argument that names a further page.
const NEXT: &[u8] = b"next";

/// An entry of such a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listable {
    pub(crate) name: Vec<u8>,
    pub(crate) is_folder: bool,
    pub(crate) bytes: u64,
    pub(crate) modified: i64,
}

/// A listing that waits for its entries.
#[derive(Debug)]
pub(crate) struct ObjectListing {
    writer: Writer,
    order: SortOrder,
    /// Which page is asked for.
    pub(crate) next: Option<Vec<u8>>,
    pub(crate) fields: Fields,
    pub(crate) status: Status,
    pub(crate) is_head: bool,
}

impl ObjectListing {
    /// The one that a request asks for; an error is the status to answer with.
    pub(crate) fn new(call: &Call<'_>) -> Result<Self, Status> {
        let form = Form::of(call.settings.listing.format, call.head, call.query)
            .map_err(|_| Status::BAD_REQUEST)?;
        let mut fields = Fields::new();
        write_fields(&form, call.settings, &mut fields);
        let order = order(call, &form);
        Ok(Self {
            writer: Writer::new(form, page(call)),
            order,
            next: argument(call.query, NEXT).map(decoded).filter(|it| !it.is_empty()),
            fields,
            status: call.status.unwrap_or(Status::OK),
            is_head: call.method == Method::Head,
        })
    }

    /// Writes a page; `next` names the one behind it, which its head links to.
    pub(crate) fn write(&mut self, mut entries: Vec<Listable>, next: Option<&str>) -> Vec<u8> {
        entries.retain(|entry| is_shown(&entry.name));
        let facts = |it: &Listable| Facts { size: it.bytes, modified: it.modified };
        let entry = |it: &Listable| Entry::of(it.is_folder, facts(it));
        entries.sort_by(|a, b| self.order.compare((&entry(a), &a.name), (&entry(b), &b.name)));
        let mut body = Vec::new();
        self.writer.begin(&mut body);
        for it in &entries {
            let (name, is_folder) = (&it.name, it.is_folder);
            let entry = Shown { name, is_folder, is_link: false, facts: facts(it) };
            self.writer.row(entry, &mut body);
        }
        self.writer.count(false, &mut body);
        if let Some(next) = next {
            let link = next_link(next);
            self.fields.push("Link", format!("<{link}>; rel=\"next\""));
            if self.writer.form == Form::Html {
                let more = format!("<p><a rel=\"next\" href=\"{link}\">More</a></p>\n");
                body.extend_from_slice(more.as_bytes());
            }
        }
        self.writer.end(&mut body);
        body
    }
}

/// The address of a further page, which needs no escapes in HTML and in a field.
fn next_link(next: &str) -> String {
    next.bytes().fold("?next=".to_owned(), |mut link, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            link.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(link, "%{byte:02X}");
        }
        link
    })
}

#[cfg(test)]
mod tests {
    use super::next_link;

    #[test]
    fn whatever_a_store_names_a_page_its_link_is_one() {
        assert_eq!(next_link("a/b=\"<>"), "?next=a%2Fb%3D%22%3C%3E");
    }
}
