//! What a store's answers say. Nothing of them is shown to clients; a refusal becomes a status by its cause.

use sekisho_http::Status;

use crate::tree::{Element, parse};

/// Why a store did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status of its answer.
    pub status: u16,
    /// Its code, such as `NoSuchKey`; empty where the answer has none.
    pub code: String,
    /// Its message.
    pub message: String,
}

impl Refusal {
    /// Reads an answer with an error status; its body may be anything.
    pub fn new(status: u16, body: &[u8]) -> Self {
        let error = parse(body);
        let error = error.as_ref().map(|error| {
            // Some stores put it into another element.
            error.children.iter().find(|child| child.name == "Error").unwrap_or(error)
        });
        let text = |name| error.and_then(|error| error.text(name)).unwrap_or_default();
        Self { status, code: clean(text("Code")), message: clean(text("Message")) }
    }

    /// The status that our client gets.
    pub fn answer(&self) -> Status {
        match (self.status, self.code.as_str()) {
            // A bucket that is not there, and an upload that has gone, are no matter of the client's.
            (
                _,
                "NoSuchBucket"
                | "NoSuchUpload"
                | "InvalidPart"
                | "SignatureDoesNotMatch"
                | "InvalidAccessKeyId"
                | "RequestTimeTooSkewed"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthFailure",
            ) => Status::BAD_GATEWAY,
            (
                _,
                "QuotaExceeded" | "XMinioStorageFull" | "EntityTooLarge" | "InsufficientStorage",
            ) => Status::INSUFFICIENT_STORAGE,
            (_, "SlowDown" | "ServiceUnavailable" | "TooManyRequests" | "OperationAborted") => {
                Status::SERVICE_UNAVAILABLE
            }
            (404, _) | (_, "NoSuchKey") => Status::NOT_FOUND,
            (403, _) => Status::FORBIDDEN,
            (412, _) => Status::PRECONDITION_FAILED,
            (409, _) => Status::CONFLICT,
            (416, _) => Status::RANGE_NOT_SATISFIABLE,
            (429 | 503, _) => Status::SERVICE_UNAVAILABLE,
            (504, _) | (_, "RequestTimeout") => Status::GATEWAY_TIMEOUT,
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

/// Reads a page of a listing (`ListObjectsV2`).
pub fn list_page(body: &[u8]) -> Option<Page> {
    let root = parse(body).filter(|root| root.name == "ListBucketResult")?;
    let entry = |element: &Element| {
        Some(Entry {
            key: element.text("Key")?.to_owned(),
            bytes: element.text("Size")?.trim().parse().ok()?,
            modified: element.text("LastModified").and_then(instant).unwrap_or_default(),
        })
    };
    let prefix = |element: &Element| element.text("Prefix").map(str::to_owned);
    Some(Page {
        entries: root.all("Contents").filter_map(entry).collect(),
        prefixes: root.all("CommonPrefixes").filter_map(prefix).collect(),
        next: root
            .text("NextContinuationToken")
            .filter(|_| root.text("IsTruncated") == Some("true"))
            .map(str::to_owned),
    })
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
pub fn parts(body: &[u8]) -> Option<(Vec<Part>, Option<u32>)> {
    // Some stores call it a response.
    let root = parse(body).filter(|root| root.name.starts_with("ListParts"))?;
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

/// Whether a copy, or the completion of an upload, has succeeded: the status of its answer is sent before the
/// store knows, and the body says it.
pub fn copied(body: &[u8]) -> Result<Option<String>, Refusal> {
    match parse(body) {
        Some(root) if root.name == "Error" => Err(Refusal::new(500, body)),
        Some(root) => Ok(root.text("ETag").map(str::to_owned)),
        None => Err(Refusal::new(502, b"")),
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
            (404, "NoSuchUpload", Status::BAD_GATEWAY, true),
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
        ] {
            let refusal = Refusal::new(status, error(code).as_bytes());
            assert_eq!(
                (refusal.answer(), refusal.is_trouble()),
                (expected, is_trouble),
                "{status} {code}"
            );
        }
        assert_eq!(Refusal::new(500, b"no xml").code, "");
    }

    #[test]
    fn a_page_has_objects_and_folders() {
        let body = b"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
            <Prefix>a/</Prefix><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>\
            <Contents><Key>a/x &lt;1&gt;</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><Size>12</Size></Contents>\
            <CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = list_page(body).expect("a page");
        assert_eq!(
            page.entries,
            [Entry { key: "a/x <1>".into(), bytes: 12, modified: 1_255_369_830 }]
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
        assert_eq!(parts(body), Some((vec![part], Some(7))));
        let begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(begun).as_deref(), Some("u"));
    }

    #[test]
    fn a_completion_may_fail_with_a_status_of_success() {
        let good =
            b"<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(copied(good), Ok(Some("\"e\"".to_owned())));
        let bad = b"<Error><Code>InternalError</Code></Error>";
        assert_eq!(copied(bad).expect_err("an error").answer(), Status::BAD_GATEWAY);
        assert!(copied(b"").is_err());
    }

    proptest::proptest! {
        /// Whatever a store says, it is read or it is not.
        #[test]
        fn no_answer_harms(
            pieces in proptest::collection::vec(0..16_usize, 0..40),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
        ) {
            const WORDS: [&str; 16] = [
                "<ListBucketResult>", "</ListBucketResult>", "<Contents>", "</Contents>", "<Key>", "</Key>",
                "<Size>", "</Size>", "99999999999999999999", "<LastModified>", "</LastModified>",
                "2009-13-99T99:99:99", "&amp;", "&#xd800;", "<ListPartsResult>", "<Error><Code>",
            ];
            let mut body: Vec<u8> = pieces.iter().flat_map(|at| WORDS[*at].bytes()).collect();
            body.extend_from_slice(&noise);
            let _ = (list_page(&body), uploads(&body), parts(&body), upload_id(&body), copied(&body));
            let refusal = Refusal::new(500, &body);
            proptest::prop_assert!(refusal.answer().code() >= 400);
            proptest::prop_assert!(!refusal.message.contains('\n'));
        }
    }
}
