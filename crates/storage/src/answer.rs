//! What a store's answers say. Nothing of them is shown to clients; a refusal becomes a status by its cause.

use sekisho_http::{Fields, Status, date};

use crate::tree::{Element, parse};
use crate::{PARTS_MAX, Place, Service, azure};

/// Why a store did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status of its answer.
    pub status: u16,
    /// Its code, such as `NoSuchKey`; empty where the answer has none.
    pub code: String,
    /// Its message; empty where the answer has none.
    pub message: String,
    /// How long the object is, where a range that was asked for lies behind its end.
    pub object_bytes: Option<u64>,
}

/// Where stores say the code and the message of a refusal that has no body, such as that of a HEAD.
const CODE_FIELDS: [&str; 2] = ["x-ms-error-code", "x-minio-error-code"];
const MESSAGE_FIELD: &str = "x-minio-error-desc";

impl Refusal {
    /// Reads an answer with an error status; its body may be anything.
    pub fn new(status: u16, fields: &Fields, body: &[u8]) -> Self {
        let error = parse(body);
        let error = error.as_ref().map(|error| {
            // Some stores put it into another element.
            error.children.iter().find(|child| child.name == "Error").unwrap_or(error)
        });
        let text = |name, others: &[&str]| {
            if let Some(text) = error.and_then(|error| error.text(name)) {
                return clean(text);
            }
            let said = others.iter().find_map(|other| fields.get(other));
            clean(&String::from_utf8_lossy(said.unwrap_or_default()))
        };
        let unsatisfied =
            fields.get("content-range").and_then(|range| range.strip_prefix(b"bytes */"));
        let object_bytes = match unsatisfied {
            Some(bytes) => std::str::from_utf8(bytes).ok(),
            None => error.and_then(|error| error.text("ActualObjectSize")),
        };
        Self {
            status,
            code: text("Code", &CODE_FIELDS),
            message: text("Message", &[MESSAGE_FIELD]),
            object_bytes: object_bytes.and_then(|bytes| bytes.trim().parse().ok()),
        }
    }

    /// Whether it is not known why something was refused that an operator should know of.
    pub fn is_unexplained(&self) -> bool {
        let is_final = matches!(self.status, 301 | 307 | 400..=428 | 430..=499);
        is_final && self.code.is_empty() && self.is_trouble()
    }

    /// The status that our client gets.
    pub fn answer(&self) -> Status {
        match (self.status, self.code.as_str()) {
            // An upload by parts that has been removed meanwhile.
            (_, "NoSuchUpload") => Status::GONE,
            // A bucket that is not there is no matter of the client's.
            (
                _,
                "NoSuchBucket"
                | "InvalidPart"
                | "SignatureDoesNotMatch"
                | "InvalidAccessKeyId"
                | "RequestTimeTooSkewed"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthFailure"
                | "ContainerNotFound"
                | "ContainerBeingDeleted"
                | "AuthenticationFailed"
                | "AuthorizationFailure"
                | "AccountIsDisabled"
                | "KeyBasedAuthenticationNotPermitted",
            ) => Status::BAD_GATEWAY,
            (
                _,
                "QuotaExceeded" | "XMinioStorageFull" | "EntityTooLarge" | "InsufficientStorage",
            ) => Status::INSUFFICIENT_STORAGE,
            (_, "SlowDown" | "ServiceUnavailable" | "TooManyRequests" | "OperationAborted") => {
                Status::SERVICE_UNAVAILABLE
            }
            // What Azure says where `If-None-Match: *` does not hold.
            (_, "BlobAlreadyExists") => Status::PRECONDITION_FAILED,
            // Another upload of the same blob was completed, or another client has locked it.
            (_, "InvalidBlockList" | "LeaseIdMissing") => Status::CONFLICT,
            (404, _) | (_, "NoSuchKey") => Status::NOT_FOUND,
            (403, _) => Status::FORBIDDEN,
            (412, _) => Status::PRECONDITION_FAILED,
            (409, _) => Status::CONFLICT,
            (416, _) => Status::RANGE_NOT_SATISFIABLE,
            (429 | 503, _) => Status::SERVICE_UNAVAILABLE,
            (504, _) | (_, "RequestTimeout" | "OperationTimedOut") => Status::GATEWAY_TIMEOUT,
            (507, _) => Status::INSUFFICIENT_STORAGE,
            _ => Status::BAD_GATEWAY,
        }
    }

    /// Whether an operator should know of it: all but what clients cause.
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self.answer(),
            Status::NOT_FOUND | Status::PRECONDITION_FAILED | Status::RANGE_NOT_SATISFIABLE
        )
    }
}

/// What comes from a store goes into one line of a log.
fn clean(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect()
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// How long it is.
    pub bytes: u64,
    /// When it was changed, in Unix seconds.
    pub modified: i64,
    /// Its entity tag, as its head has it.
    pub tag: String,
}

/// A page of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Objects.
    pub entries: Vec<Entry>,
    /// What the keys of further objects begin with, up to a slash.
    pub prefixes: Vec<String>,
    /// How the next page is asked for.
    pub next: Option<String>,
}

impl Page {
    /// The keys of its objects that begin with a prefix: some stores list others, too.
    pub fn keys_below(self, prefix: &[u8]) -> impl Iterator<Item = String> {
        let keys = self.entries.into_iter().map(|entry| entry.key);
        keys.filter(move |key| key.as_bytes().starts_with(prefix))
    }
}

/// Reads a page of a listing (`ListObjectsV2`, or Azure's `List Blobs`).
pub fn list_page(body: &[u8]) -> Option<Page> {
    let root = parse(body)?;
    match root.name.as_str() {
        "ListBucketResult" => Some(bucket_page(&root)),
        "EnumerationResults" => Some(container_page(&root)),
        _ => None,
    }
}

fn container_page(root: &Element) -> Page {
    let blobs = |name| root.all("Blobs").flat_map(move |blobs| blobs.all(name));
    let entry = |element: &Element| {
        let known = element.all("Properties").next()?;
        let modified = known.text("Last-Modified").and_then(|it| date::parse(it.as_bytes()));
        Some(Entry {
            key: element.text("Name")?.to_owned(),
            bytes: known.text("Content-Length")?.trim().parse().ok()?,
            modified: modified.unwrap_or_default(),
            tag: quoted(known.text("Etag")),
        })
    };
    let prefix = |element: &Element| element.text("Name").map(str::to_owned);
    Page {
        entries: blobs("Blob").filter_map(entry).collect(),
        prefixes: blobs("BlobPrefix").filter_map(prefix).collect(),
        next: root.text("NextMarker").filter(|next| !next.is_empty()).map(str::to_owned),
    }
}

/// Some stores leave the quotes out.
fn quoted(tag: Option<&str>) -> String {
    match tag {
        Some(tag) if !tag.contains('"') => format!("\"{tag}\""),
        tag => tag.unwrap_or_default().to_owned(),
    }
}

fn bucket_page(root: &Element) -> Page {
    let entry = |element: &Element| {
        Some(Entry {
            key: element.text("Key")?.to_owned(),
            bytes: element.text("Size")?.trim().parse().ok()?,
            modified: element.text("LastModified").and_then(instant).unwrap_or_default(),
            tag: quoted(element.text("ETag")),
        })
    };
    let prefix = |element: &Element| element.text("Prefix").map(str::to_owned);
    Page {
        entries: root.all("Contents").filter_map(entry).collect(),
        prefixes: root.all("CommonPrefixes").filter_map(prefix).collect(),
        next: root
            .text("NextContinuationToken")
            .filter(|_| root.text("IsTruncated") == Some("true"))
            .map(str::to_owned),
    }
}

/// The id of an upload that was begun.
pub fn upload_id(body: &[u8]) -> Option<String> {
    let root = parse(body).filter(|root| root.name == "InitiateMultipartUploadResult")?;
    root.text("UploadId").filter(|id| !id.is_empty()).map(str::to_owned)
}

/// An upload that is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    /// The key of the object that it would be.
    pub key: String,
    /// Its id.
    pub id: String,
    /// When it was begun, in Unix seconds.
    pub begun: i64,
}

/// Reads which uploads are not complete, and whether there are more.
pub fn uploads(body: &[u8]) -> Option<(Vec<Upload>, bool)> {
    let root = parse(body).filter(|root| root.name == "ListMultipartUploadsResult")?;
    let one = |element: &Element| {
        Some(Upload {
            key: element.text("Key")?.to_owned(),
            id: element.text("UploadId")?.to_owned(),
            begun: element.text("Initiated").and_then(instant)?,
        })
    };
    let is_more = root.text("IsTruncated") == Some("true");
    Some((root.all("Upload").filter_map(one).collect(), is_more))
}

/// A part of an upload that is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// From 1 on.
    pub number: u32,
    /// Its entity tag.
    pub tag: String,
    /// How long it is.
    pub bytes: u64,
    /// When it came, in Unix seconds.
    pub modified: i64,
}

/// Reads which parts an upload has, and behind which number there are more.
pub fn parts(body: &[u8], upload: &str) -> Option<(Vec<Part>, Option<u32>)> {
    let root = parse(body)?;
    if root.name == "BlockList" {
        return Some((blocks(&root, upload), None));
    }
    // Some stores call it a response.
    if !root.name.starts_with("ListParts") {
        return None;
    }
    let one = |element: &Element| {
        Some(Part {
            number: element.text("PartNumber")?.trim().parse().ok()?,
            tag: element.text("ETag")?.to_owned(),
            bytes: element.text("Size")?.trim().parse().ok()?,
            modified: element.text("LastModified").and_then(instant).unwrap_or_default(),
        })
    };
    let next =
        root.text("NextPartNumberMarker").filter(|_| root.text("IsTruncated") == Some("true"));
    Some((root.all("Part").filter_map(one).collect(), next.and_then(|next| next.parse().ok())))
}

/// Azure lists the blocks of all uploads of a blob.
fn blocks(root: &Element, upload: &str) -> Vec<Part> {
    let one = |element: &Element| {
        let tag = element.text("Name")?.to_owned();
        let number = azure::block_number(upload, &tag)?;
        let bytes = element.text("Size")?.trim().parse().ok()?;
        Some(Part { number, tag, bytes, modified: 0 })
    };
    let blocks = root.all("UncommittedBlocks").flat_map(|blocks| blocks.all("Block"));
    let mut parts: Vec<Option<Part>> = Vec::new();
    for part in blocks.filter_map(one).filter(|part| u64::from(part.number) <= PARTS_MAX) {
        let at = part.number as usize;
        if parts.len() <= at {
            parts.resize(at + 1, None);
        }
        parts[at] = Some(part);
    }
    parts.into_iter().flatten().collect()
}

impl Place {
    /// The entity tag of an upload that was completed. S3 sends the status of its answer before it knows how that ends,
    /// and the body says it.
    pub fn completed(&self, fields: &Fields, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        match self.service {
            Service::S3 => made(body).map(String::into_bytes),
            Service::Azure => Ok(fields.get("etag").unwrap_or_default().to_vec()),
        }
    }

    /// Whether an object has been copied; otherwise its head says later how that ends.
    pub fn copied(&self, fields: &Fields, body: &[u8]) -> Result<bool, Refusal> {
        if self.service == Service::S3 {
            return made(body).map(|_| true);
        }
        match fields.get("x-ms-copy-status") {
            None | Some(b"success") => Ok(true),
            Some(b"pending") => Ok(false),
            Some(status) => {
                let why = fields.get("x-ms-copy-status-description").unwrap_or_default();
                let text = |bytes| clean(&String::from_utf8_lossy(bytes));
                let (code, message) = (text(status), text(why));
                Err(Refusal { status: 500, code, message, object_bytes: None })
            }
        }
    }
}

fn made(body: &[u8]) -> Result<String, Refusal> {
    match parse(body) {
        Some(root) if root.name == "Error" => Err(Refusal::new(500, &Fields::default(), body)),
        Some(root) => Ok(root.text("ETag").unwrap_or_default().to_owned()),
        None => Err(Refusal::new(502, &Fields::default(), b"")),
    }
}

/// Reads `2009-10-12T17:50:30.000Z`.
fn instant(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Howard Hinnant's `days_from_civil`.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_become_statuses_by_their_cause() {
        let error = |code: &str| {
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>")
        };
        for (status, code, expected, is_trouble) in [
            (404, "NoSuchKey", Status::NOT_FOUND, false),
            (404, "", Status::NOT_FOUND, false),
            (404, "NoSuchBucket", Status::BAD_GATEWAY, true),
            (404, "NoSuchUpload", Status::GONE, true),
            (403, "AccessDenied", Status::FORBIDDEN, true),
            (403, "", Status::FORBIDDEN, true),
            (403, "SignatureDoesNotMatch", Status::BAD_GATEWAY, true),
            (412, "PreconditionFailed", Status::PRECONDITION_FAILED, false),
            (416, "InvalidRange", Status::RANGE_NOT_SATISFIABLE, false),
            (503, "SlowDown", Status::SERVICE_UNAVAILABLE, true),
            (429, "", Status::SERVICE_UNAVAILABLE, true),
            (500, "InternalError", Status::BAD_GATEWAY, true),
            (400, "EntityTooLarge", Status::INSUFFICIENT_STORAGE, true),
            (507, "", Status::INSUFFICIENT_STORAGE, true),
            (301, "PermanentRedirect", Status::BAD_GATEWAY, true),
            (404, "BlobNotFound", Status::NOT_FOUND, false),
            (404, "ContainerNotFound", Status::BAD_GATEWAY, true),
            (403, "AuthenticationFailed", Status::BAD_GATEWAY, true),
            (403, "AuthorizationFailure", Status::BAD_GATEWAY, true),
            (403, "AuthorizationPermissionMismatch", Status::FORBIDDEN, true),
            (409, "BlobAlreadyExists", Status::PRECONDITION_FAILED, false),
            (412, "ConditionNotMet", Status::PRECONDITION_FAILED, false),
            (412, "LeaseIdMissing", Status::CONFLICT, true),
            (400, "InvalidBlockList", Status::CONFLICT, true),
            (500, "OperationTimedOut", Status::GATEWAY_TIMEOUT, true),
            (503, "ServerBusy", Status::SERVICE_UNAVAILABLE, true),
        ] {
            let none = Fields::default();
            let refusal = Refusal::new(status, &none, error(code).as_bytes());
            // The answer to a HEAD.
            let fields: Fields = [("x-ms-error-code", code)].into_iter().collect();
            assert_eq!(Refusal::new(status, &fields, b"").answer(), expected, "{status} {code}");
            assert_eq!(
                (refusal.answer(), refusal.is_trouble()),
                (expected, is_trouble),
                "{status} {code}"
            );
        }
        assert_eq!(Refusal::new(500, &Fields::default(), b"no xml").code, "");
    }

    #[test]
    fn a_range_behind_the_end_says_where_that_is() {
        let body =
            b"<Error><Code>InvalidRange</Code><ActualObjectSize>11</ActualObjectSize></Error>";
        for (range, body, expected) in [
            ("", &body[..], Some(11)),
            ("bytes */12", b"", Some(12)),
            ("bytes */*", b"", None),
            ("", b"<Error/>", None),
        ] {
            let mut fields = Fields::default();
            if !range.is_empty() {
                fields.push("Content-Range", range);
            }
            assert_eq!(Refusal::new(416, &fields, body).object_bytes, expected, "{range}");
        }
    }

    #[test]
    fn a_refusal_without_a_code_is_not_explained() {
        for (status, code, expected) in [
            (403, "", true),
            (400, "", true),
            (301, "", true),
            (403, "AccessDenied", false),
            (404, "", false),
            (412, "", false),
            (429, "", false),
            (503, "", false),
            (304, "", false),
        ] {
            let fields: Fields = [("X-Minio-Error-Code", code)].into_iter().collect();
            let refusal = Refusal::new(status, &fields, b"");
            assert_eq!(refusal.is_unexplained(), expected, "{status} {code}");
        }
    }

    #[test]
    fn a_page_has_objects_and_folders() {
        let body = b"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
            <Prefix>a/</Prefix><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>\
            <Contents><Key>a/x &lt;1&gt;</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><Size>12</Size><ETag>&quot;e&quot;</ETag></Contents>\
            <CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = list_page(body).expect("a page");
        assert_eq!(
            page.entries,
            [Entry {
                key: "a/x <1>".into(),
                bytes: 12,
                modified: 1_255_369_830,
                tag: "\"e\"".into()
            }]
        );
        assert_eq!(page.prefixes, ["a/c/"]);
        assert_eq!(page.next.as_deref(), Some("t&1"));
        let below = |prefix: &[u8]| page.clone().keys_below(prefix).count();
        assert_eq!(
            (below(b"a/"), below(b""), below(b"b/"), below(b"a/x <1> and more")),
            (1, 1, 0, 0)
        );
        assert_eq!(list_page(b"<Other/>"), None);
        assert_eq!(list_page(b"<ListBucketResult>"), None);
    }

    #[test]
    fn uploads_and_parts_are_read() {
        let body = b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>k</Key><UploadId>i</UploadId>\
            <Initiated>1970-01-02T00:00:01Z</Initiated></Upload></ListMultipartUploadsResult>";
        let upload = Upload { key: "k".into(), id: "i".into(), begun: 86_401 };
        assert_eq!(uploads(body), Some((vec![upload], false)));
        let body = b"<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>7</NextPartNumberMarker>\
            <Part><PartNumber>7</PartNumber><ETag>&quot;e&quot;</ETag><Size>5</Size></Part></ListPartsResult>";
        let part = Part { number: 7, tag: "\"e\"".into(), bytes: 5, modified: 0 };
        assert_eq!(parts(body, "i"), Some((vec![part], Some(7))));
        let begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(begun).as_deref(), Some("u"));
    }

    #[test]
    fn a_completion_may_fail_with_a_status_of_success() {
        let good =
            b"<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(made(good), Ok("\"e\"".to_owned()));
        let bad = b"<Error><Code>InternalError</Code></Error>";
        assert_eq!(made(bad).expect_err("an error").answer(), Status::BAD_GATEWAY);
        assert!(made(b"").is_err());
    }

    #[test]
    fn documents_of_azure_are_read() {
        let body = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ContainerName=\"c\"><Prefix>a/</Prefix><Blobs>\
            <Blob><Name>a/x &amp; y</Name><Properties><Last-Modified>Mon, 12 Oct 2009 17:50:30 GMT</Last-Modified>\
            <Content-Length>12</Content-Length><Etag>0x8D</Etag></Properties></Blob><BlobPrefix><Name>a/c/</Name></BlobPrefix></Blobs>\
            <NextMarker>m</NextMarker></EnumerationResults>";
        let page = list_page(body.as_bytes()).expect("a page");
        let (key, tag) = ("a/x & y".into(), "\"0x8D\"".into());
        let entry = Entry { key, bytes: 12, modified: 1_255_369_830, tag };
        assert_eq!((&*page.entries, &*page.prefixes), (&[entry][..], &["a/c/".to_owned()][..]));
        assert_eq!(page.next.as_deref(), Some("m"));
        let last = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(list_page(last), Some(Page::default()));
        let block = |upload, number| {
            let name = azure::block(upload, number);
            format!("<Block><Name>{name}</Name><Size>5</Size></Block>")
        };
        let all = [block("i", 2), block("other", 1), block("i", 1)].concat();
        let body = format!("<BlockList><UncommittedBlocks>{all}</UncommittedBlocks></BlockList>");
        let (found, next) = parts(body.as_bytes(), "i").expect("blocks");
        let numbers: Vec<(u32, u64)> = found.iter().map(|it| (it.number, it.bytes)).collect();
        assert_eq!((&*numbers, next), (&[(1, 5), (2, 5)][..], None));
    }

    #[test]
    fn a_copy_of_azure_may_take_time_or_fail() {
        let place = Place {
            service: Service::Azure,
            host: "h".into(),
            is_tls: true,
            base: "".into(),
            bucket: "b".into(),
            prefix: "".into(),
            region: "".into(),
        };
        for (status, expected) in
            [("success", Some(true)), ("pending", Some(false)), ("failed", None)]
        {
            let mut fields = Fields::default();
            fields.push("x-ms-copy-status", status);
            assert_eq!(place.copied(&fields, b"").ok(), expected, "{status}");
        }
        assert_eq!(place.copied(&Fields::default(), b""), Ok(true));
    }

    proptest::proptest! {
        /// Whatever a store says, it is read or it is not.
        #[test]
        fn no_answer_harms(
            pieces in proptest::collection::vec(0..20_usize, 0..40),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
        ) {
            const WORDS: [&str; 20] = [
                "<ListBucketResult>", "</ListBucketResult>", "<Contents>", "</Contents>", "<Key>", "</Key>",
                "<Size>", "</Size>", "99999999999999999999", "<LastModified>", "</LastModified>",
                "2009-13-99T99:99:99", "&amp;", "&#xd800;", "<ListPartsResult>", "<Error><Code>",
                "<EnumerationResults><Blobs>", "<Blob><Name>", "<BlockList><UncommittedBlocks>", "<Block><Name>aS0x",
            ];
            let mut body: Vec<u8> = pieces.iter().flat_map(|at| WORDS[*at].bytes()).collect();
            body.extend_from_slice(&noise);
            let _ = (list_page(&body), uploads(&body), parts(&body, "i"), upload_id(&body), made(&body));
            let refusal = Refusal::new(500, &Fields::default(), &body);
            proptest::prop_assert!(refusal.answer().code() >= 400);
            proptest::prop_assert!(!refusal.message.contains('\n'));
        }
    }
}
