//! What is different with Azure Blob Storage: signatures by the key of an account (Shared Key), the names of blocks, which
//! are the parts of an upload, and conditions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sekisho_http::{Fields, date};

use crate::sign::{self, hmac};
use crate::{Credentials, Draft};

/// The version of the protocol that is spoken.
const VERSION: &str = "2021-08-06";
/// The fields that are signed beside those whose names begin with `x-ms-`; between the first two and the others stand the
/// length of the body and its digest, and behind the type the date.
const SIGNED: [&str; 5] =
    ["If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"];

/// Adds what proves that a request is ours. All of its fields must be there before.
pub(crate) fn sign(
    draft: &Draft,
    credentials: Option<&Credentials>,
    body_bytes: u64,
    unix_secs: i64,
    fields: &mut Fields,
) {
    fields.push("x-ms-version", VERSION);
    match credentials {
        Some(Credentials::SharedKey { account, key }) => {
            fields.push_with("x-ms-date", |out| date::write(unix_secs, out));
            let text = text_to_sign(draft, account, body_bytes, fields);
            let signature = STANDARD.encode(hmac(key, &text));
            fields.push("Authorization", format!("SharedKey {account}:{signature}"));
        }
        // It stands in the target; what is copied is another target.
        Some(Credentials::SharedAccess(token)) => fields
            .change("x-ms-copy-source", |source| Some([source, b"?", token.as_bytes()].concat())),
        _ => {}
    }
}

fn text_to_sign(draft: &Draft, account: &str, body_bytes: u64, fields: &Fields) -> Vec<u8> {
    let field = |name: &str| fields.get(name).unwrap_or_default();
    let length = if body_bytes == 0 { String::new() } else { body_bytes.to_string() };
    let mut lines: Vec<&[u8]> = vec![
        draft.method.as_bytes(),
        field("Content-Encoding"),
        field("Content-Language"),
        length.as_bytes(),
        field("Content-MD5"),
        field("Content-Type"),
        // The date is one of the other fields.
        b"",
    ];
    lines.extend(SIGNED.map(field));
    let own = sign::lines(fields, |name| name.starts_with(b"x-ms-"));
    lines.extend(own.iter().map(Vec::as_slice));
    let resource = [b"/", account.as_bytes(), &draft.path].concat();
    lines.push(&resource);
    let mut query: Vec<Vec<u8>> =
        draft.query.iter().map(|(name, value)| [name.as_bytes(), b":", value].concat()).collect();
    query.sort();
    lines.extend(query.iter().map(Vec::as_slice));
    lines.join(&b'\n')
}

/// The name of a block: all of an object must be equally long, and uploads of one object must not share any.
pub(crate) fn block(upload: &str, number: u32) -> String {
    STANDARD.encode(format!("{upload}-{number:05}"))
}

/// The number of a block; `None` if it belongs to another upload.
pub(crate) fn block_number(upload: &str, block: &str) -> Option<u32> {
    let name = STANDARD.decode(block).ok()?;
    let number = name.strip_prefix(upload.as_bytes())?.strip_prefix(b"-")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Leaves out of a GET or HEAD what Azure refuses: a list of tags, conditions of both kinds in one request, and a range
/// without a beginning, whose length is returned. All of an object is an answer, too, where 304 or 206 could have been one.
pub(crate) fn trim_conditions(fields: &mut Fields) -> Option<u64> {
    let has_other = fields.has("If-Match") || fields.has("If-Unmodified-Since");
    let tag = fields.get("If-None-Match").map(<[u8]>::to_vec);
    if has_other || tag.is_some() {
        fields.remove("If-Modified-Since");
    }
    fields.remove("If-None-Match");
    // They are compared weakly (RFC 9110 §13.1.2).
    let tag = tag.filter(|tag| !has_other && !tag.contains(&b','));
    if let Some(tag) = tag {
        fields.push("If-None-Match", tag.strip_prefix(b"W/").unwrap_or(&tag));
    }
    let range = std::str::from_utf8(fields.get("Range")?).unwrap_or_default();
    let (first, last) =
        range.strip_prefix("bytes=").and_then(|it| it.split_once('-')).unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().ok();
    let suffix = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => return None,
        (Some(_), None) if last.is_empty() => return None,
        (None, Some(bytes)) if first.is_empty() && bytes > 0 => Some(bytes),
        _ => None,
    };
    fields.remove("Range");
    suffix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Place, Scope, Service};

    fn place(base: &str) -> Place {
        Place {
            service: Service::Azure,
            host: "myaccount.blob.core.windows.net".into(),
            is_tls: true,
            base: base.into(),
            bucket: "mycontainer".into(),
            prefix: "".into(),
            region: "".into(),
        }
    }

    /// The examples of Microsoft's documentation ("Authorize with Shared Key").
    #[test]
    fn what_is_signed_is_that_of_the_documentation() {
        let mut fields = Fields::default();
        fields.push("x-ms-version", "2015-02-21");
        fields.push("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
        let draft = place("/mycontainer").bucket("GET");
        let draft =
            draft.with("restype", b"container").with("comp", b"metadata").with("timeout", b"20");
        assert_eq!(
            String::from_utf8_lossy(&text_to_sign(&draft, "myaccount", 0, &fields)),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
             /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
        );
    }

    /// The signature was made by the tools of OpenSSL from the text, with the key that the emulator is known for.
    #[test]
    fn a_write_is_signed_with_its_length_and_conditions() {
        const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        let key = STANDARD.decode(KEY).expect("base64");
        let account = "devstoreaccount1".to_owned();
        let keys = Credentials::SharedKey { account, key };
        let draft = place("/devstoreaccount1/c").put(b"a b", b"text/plain");
        let mut fields = draft.fields.clone();
        fields.push("If-None-Match", "*");
        sign(&draft, Some(&keys), 11, 1_435_361_952, &mut fields);
        assert_eq!(fields.get("x-ms-date"), Some(&b"Fri, 26 Jun 2015 23:39:12 GMT"[..]));
        let text = "PUT\n\n\n11\n\n\n\n\n\n*\n\n\nx-ms-blob-content-type:text/plain\nx-ms-blob-type:BlockBlob\n\
            x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2021-08-06\n/devstoreaccount1/devstoreaccount1/c/a%20b";
        let made = text_to_sign(&draft, "devstoreaccount1", 11, &fields);
        assert_eq!(String::from_utf8_lossy(&made), text);
        let said = String::from_utf8_lossy(fields.get("authorization").expect("signed"));
        assert_eq!(said, "SharedKey devstoreaccount1:ZPVFMouaLvMqxfwhxy3DtKlnysd9c4x8j0jItNi7gZ4=");
    }

    #[test]
    fn a_token_is_in_the_target_and_an_anonymous_request_has_neither() {
        let place = place("/c");
        let token = Credentials::SharedAccess("sv=1&sig=s%3D".to_owned());
        let draft = place.copy(b"a", b"b");
        assert_eq!(draft.signed_target(Some(&token)), b"/c/b?sv=1&sig=s%3D");
        let list = place.list(b"", Scope::First, None);
        assert!(list.signed_target(Some(&token)).ends_with(b"&restype=container&sv=1&sig=s%3D"));
        assert_eq!(list.signed_target(None), list.target());
        let mut fields = draft.fields.clone();
        sign(&draft, Some(&token), 0, 0, &mut fields);
        assert_eq!(
            fields.get("x-ms-copy-source"),
            Some(&b"https://myaccount.blob.core.windows.net/c/a?sv=1&sig=s%3D"[..])
        );
        assert!(!fields.has("authorization") && fields.has("x-ms-version"));
    }

    #[test]
    fn blocks_belong_to_one_upload() {
        let name = block("id", 7);
        assert_eq!(STANDARD.decode(&name).as_deref(), Ok(&b"id-00007"[..]));
        assert_eq!(name.len(), block("id", 10_000).len());
        assert_eq!((block_number("id", &name), block_number("other", &name)), (Some(7), None));
        assert_eq!(block_number("id", "no base64!"), None);
    }

    #[test]
    fn conditions_are_those_that_azure_takes() {
        for (fields, expected) in [
            (&[("If-None-Match", "W/\"a\"")][..], "If-None-Match: \"a\"\r\n"),
            (&[("If-None-Match", "\"a\", \"b\""), ("If-Modified-Since", "d")], ""),
            (&[("If-Modified-Since", "d")], "If-Modified-Since: d\r\n"),
            (&[("If-Match", "\"a\""), ("If-None-Match", "\"b\"")], "If-Match: \"a\"\r\n"),
            (
                &[("If-Unmodified-Since", "d"), ("If-Modified-Since", "d")],
                "If-Unmodified-Since: d\r\n",
            ),
            (
                &[("If-None-Match", "*"), ("Range", "bytes=1-")],
                "Range: bytes=1-\r\nIf-None-Match: *\r\n",
            ),
        ] {
            let mut all = Fields::default();
            for (name, value) in fields {
                all.push(name, value);
            }
            assert_eq!(trim_conditions(&mut all), None);
            assert_eq!(String::from_utf8_lossy(all.as_lines()), expected, "{fields:?}");
        }
        for (range, is_kept, suffix) in [
            ("bytes=0-", true, None),
            ("bytes=3-3", true, None),
            ("bytes=4-3", false, None),
            ("bytes=-5", false, Some(5)),
            ("bytes=-0", false, None),
            ("bytes=-", false, None),
            ("bytes=1-x", false, None),
            ("lines=1-2", false, None),
            ("bytes", false, None),
        ] {
            let mut all = Fields::default();
            all.push("Range", range);
            assert_eq!((trim_conditions(&mut all), all.has("range")), (suffix, is_kept), "{range}");
        }
    }
}
