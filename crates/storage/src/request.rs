//! Which request does what.

use std::fmt::Write as _;

use sekisho_http::Fields;

use crate::{COPY_BYTES_MAX, Draft, Place, Service, azure};

/// How many entries a page of a listing has.
const PAGE_ENTRIES: &[u8] = b"1000";

/// The kind of what is listed.
const CONTAINER: &[u8] = b"container";

/// How much of what lies below a prefix is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Every object.
    All,
    /// Objects and folders, without what lies in these.
    Folder,
    /// One object, to know whether there is any.
    First,
}

impl Place {
    /// Lists a page of what lies below a prefix; `next` comes from the page before.
    pub fn list(&self, prefix: &[u8], scope: Scope, next: Option<&[u8]>) -> Draft {
        let draft = self.bucket("GET");
        let (mut draft, max, marker) = match self.service {
            Service::S3 => (draft.with("list-type", b"2"), "max-keys", "continuation-token"),
            Service::Azure => {
                (draft.with("restype", CONTAINER).with("comp", b"list"), "maxresults", "marker")
            }
        };
        if !prefix.is_empty() || self.service == Service::S3 {
            draft = draft.with("prefix", prefix);
        }
        draft = match scope {
            Scope::All => draft.with(max, PAGE_ENTRIES),
            Scope::Folder => draft.with("delimiter", b"/").with(max, PAGE_ENTRIES),
            Scope::First => draft.with(max, b"1"),
        };
        match next {
            Some(next) => draft.with(marker, next),
            None => draft,
        }
    }

    /// Writes an object in one request; its type may be empty.
    pub fn put(&self, key: &[u8], media_type: &[u8]) -> Draft {
        let draft = self.typed(self.object("PUT", key), media_type);
        match self.service {
            Service::S3 => draft,
            Service::Azure => draft.field("x-ms-blob-type", b"BlockBlob"),
        }
    }

    fn typed(&self, draft: Draft, media_type: &[u8]) -> Draft {
        match self.service {
            _ if media_type.is_empty() => draft,
            Service::S3 => draft.field("Content-Type", media_type),
            Service::Azure => draft.field("x-ms-blob-content-type", media_type),
        }
    }

    /// Makes an object of another one.
    pub fn copy(&self, from: &[u8], to: &[u8]) -> Draft {
        let name = match self.service {
            Service::S3 => "x-amz-copy-source",
            Service::Azure => "x-ms-copy-source",
        };
        self.object("PUT", to).field(name, &self.copy_source(from))
    }

    /// Whether an object of this length can be copied in one request.
    pub const fn can_copy(&self, bytes: u64) -> bool {
        matches!(self.service, Service::Azure) || bytes <= COPY_BYTES_MAX
    }

    /// Begins an upload by parts; the answer has its id. `None` where an upload needs no beginning: its id may be any text
    /// that no other one has.
    pub fn begin_upload(&self, key: &[u8], media_type: &[u8]) -> Option<Draft> {
        let draft = self.object("POST", key).with("uploads", b"");
        (self.service == Service::S3).then(|| self.typed(draft, media_type))
    }

    /// Sends a part; numbers begin with 1.
    pub fn upload_part(&self, key: &[u8], id: &str, number: u32) -> Draft {
        let draft = self.object("PUT", key);
        match self.service {
            Service::S3 => draft
                .with("partNumber", number.to_string().as_bytes())
                .with("uploadId", id.as_bytes()),
            Service::Azure => {
                draft.with("comp", b"block").with("blockid", azure::block(id, number).as_bytes())
            }
        }
    }

    /// What names a part when its upload is completed, by the fields of the answer to it.
    pub fn part_tag(&self, id: &str, number: u32, fields: &Fields) -> String {
        match self.service {
            Service::S3 => {
                String::from_utf8_lossy(fields.get("etag").unwrap_or_default()).into_owned()
            }
            Service::Azure => azure::block(id, number),
        }
    }

    /// Whether an upload is there before its first part; then it cannot be completed without one.
    pub const fn begins_uploads(&self) -> bool {
        matches!(self.service, Service::S3)
    }

    /// Whether it is known when a part came.
    pub const fn dates_parts(&self) -> bool {
        matches!(self.service, Service::S3)
    }

    /// Makes an object of all parts, which are named by their tags; and the body of that request.
    pub fn complete_upload(
        &self,
        key: &[u8],
        id: &str,
        media_type: &[u8],
        tags: &[String],
    ) -> (Draft, Vec<u8>) {
        let (draft, root) = match self.service {
            Service::S3 => {
                let draft = self.object("POST", key).with("uploadId", id.as_bytes());
                (draft.field("Content-Type", b"application/xml"), "CompleteMultipartUpload")
            }
            Service::Azure => {
                let draft = self.object("PUT", key).with("comp", b"blocklist");
                (self.typed(draft, media_type), "BlockList")
            }
        };
        let space = match self.service {
            Service::S3 => " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"",
            Service::Azure => "",
        };
        let mut body = format!("<{root}{space}>");
        for (number, tag) in (1_u32..).zip(tags) {
            let tag = quick_xml::escape::escape(tag);
            // Writing to a string cannot fail.
            let _ = match self.service {
                Service::S3 => {
                    write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
                }
                Service::Azure => write!(body, "<Uncommitted>{tag}</Uncommitted>"),
            };
        }
        let _ = write!(body, "</{root}>");
        (draft, body.into_bytes())
    }

    /// Removes an upload that is not complete; `None` where the store does that by itself.
    pub fn abort_upload(&self, key: &[u8], id: &str) -> Option<Draft> {
        let draft = self.object("DELETE", key).with("uploadId", id.as_bytes());
        (self.service == Service::S3).then_some(draft)
    }

    /// Lists the parts of an upload behind a number.
    pub fn parts(&self, key: &[u8], id: &str, behind: u32) -> Draft {
        let draft = self.object("GET", key);
        match self.service {
            Service::S3 if behind > 0 => draft
                .with("uploadId", id.as_bytes())
                .with("part-number-marker", behind.to_string().as_bytes()),
            Service::S3 => draft.with("uploadId", id.as_bytes()),
            Service::Azure => {
                draft.with("comp", b"blocklist").with("blocklisttype", b"uncommitted")
            }
        }
    }

    /// Lists uploads that are not complete; `None` where the store removes them by itself.
    pub fn uploads(&self) -> Option<Draft> {
        let draft = self.bucket("GET").with("uploads", b"").with("prefix", self.prefix.as_bytes());
        (self.service == Service::S3).then_some(draft)
    }

    /// Leaves out of the conditions and the range of a GET or HEAD what the store would refuse. If that is a range of the
    /// last bytes, their number is returned: where they begin must be known first.
    pub fn trim_conditions(&self, conditions: &mut Fields) -> Option<u64> {
        match self.service {
            Service::S3 => None,
            Service::Azure => azure::trim_conditions(conditions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(service: Service) -> Place {
        Place {
            service,
            host: "h".into(),
            is_tls: true,
            base: "/b".into(),
            bucket: "b".into(),
            prefix: "p/".into(),
            region: "r".into(),
        }
    }

    fn said(draft: &Draft) -> String {
        format!("{} {}", draft.method, String::from_utf8_lossy(&draft.target()))
    }

    #[test]
    fn every_request_is_the_one_that_s3_knows() {
        let place = place(Service::S3);
        let (complete, body) = place.complete_upload(b"p/k", "i", b"t", &["\"e\"".into()]);
        let some = |draft: Option<Draft>| draft.expect("a request");
        for (draft, expected) in [
            (place.list(b"p/", Scope::All, None), "GET /b?list-type=2&max-keys=1000&prefix=p%2F"),
            (
                place.list(b"p/", Scope::Folder, Some(b"n")),
                "GET /b?continuation-token=n&delimiter=%2F&list-type=2&max-keys=1000&prefix=p%2F",
            ),
            (place.list(b"p/", Scope::First, None), "GET /b?list-type=2&max-keys=1&prefix=p%2F"),
            (place.put(b"p/k", b"t"), "PUT /b/p/k"),
            (place.copy(b"p/k", b"p/l"), "PUT /b/p/l"),
            (some(place.begin_upload(b"p/k", b"t")), "POST /b/p/k?uploads="),
            (place.upload_part(b"p/k", "i", 7), "PUT /b/p/k?partNumber=7&uploadId=i"),
            (complete, "POST /b/p/k?uploadId=i"),
            (some(place.abort_upload(b"p/k", "i")), "DELETE /b/p/k?uploadId=i"),
            (place.parts(b"p/k", "i", 0), "GET /b/p/k?uploadId=i"),
            (place.parts(b"p/k", "i", 9), "GET /b/p/k?part-number-marker=9&uploadId=i"),
            (some(place.uploads()), "GET /b?prefix=p%2F&uploads="),
        ] {
            assert_eq!(said(&draft), expected);
        }
        assert_eq!(
            String::from_utf8_lossy(&body),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Part><PartNumber>1</PartNumber><ETag>&quot;e&quot;</ETag></Part></CompleteMultipartUpload>"
        );
        let copy = place.copy(b"p/k", b"p/l");
        assert_eq!(copy.fields.get("x-amz-copy-source"), Some(&b"/b/p/k"[..]));
        assert!(place.can_copy(5 << 30) && !place.can_copy((5 << 30) + 1));
    }

    #[test]
    fn every_request_is_the_one_that_azure_knows() {
        let place = place(Service::Azure);
        let tag = place.part_tag("i", 7, &Fields::default());
        let (complete, body) = place.complete_upload(b"p/k", "i", b"t", &[tag]);
        for (draft, expected) in [
            (
                place.list(b"", Scope::All, None),
                "GET /b?comp=list&maxresults=1000&restype=container",
            ),
            (
                place.list(b"p/", Scope::Folder, Some(b"n")),
                "GET /b?comp=list&delimiter=%2F&marker=n&maxresults=1000&prefix=p%2F&restype=container",
            ),
            (
                place.list(b"p/", Scope::First, None),
                "GET /b?comp=list&maxresults=1&prefix=p%2F&restype=container",
            ),
            (place.put(b"p/k", b"t"), "PUT /b/p/k"),
            (place.copy(b"p/k", b"p/l"), "PUT /b/p/l"),
            (place.upload_part(b"p/k", "i", 7), "PUT /b/p/k?blockid=aS0wMDAwNw%3D%3D&comp=block"),
            (complete.clone(), "PUT /b/p/k?comp=blocklist"),
            (place.parts(b"p/k", "i", 0), "GET /b/p/k?blocklisttype=uncommitted&comp=blocklist"),
        ] {
            assert_eq!(said(&draft), expected);
        }
        assert_eq!(
            String::from_utf8_lossy(&body),
            "<BlockList><Uncommitted>aS0wMDAwNw==</Uncommitted></BlockList>"
        );
        assert_eq!(complete.fields.get("x-ms-blob-content-type"), Some(&b"t"[..]));
        assert_eq!(place.begin_upload(b"k", b"t"), None);
        assert_eq!((place.abort_upload(b"k", "i"), place.uploads()), (None, None));
        assert!(place.can_copy(u64::MAX));
    }
}
