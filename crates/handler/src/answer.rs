//! Answers that need no file: built-in pages, redirects, texts.

use std::cell::RefCell;
use std::rc::Rc;

use sekisho_config::Settings;
use sekisho_http::fields::is_field_value;
use sekisho_http::{Fields, Status};

use crate::reply::{Piece, Reply};

const PAGE_HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>";
const PAGE_STYLE: &str = ":root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;display:grid;place-content:center;min-height:90vh;margin:0;\
text-align:center}h1{font-weight:600;font-size:1.6rem;margin:0}p{opacity:.6;margin:.3rem}";
const PAGE_BODY: &str = "</style></head>\n<body><h1>";
const PAGE_TAIL: &str = "</p></body></html>\n";
/// How many pages a thread keeps.
const PAGES_MAX: usize = 64;

/// The type of pages.
pub const HTML: &str = "text/html; charset=utf-8";
/// The policy of a built-in page: its own style, and nothing else (V48). A test keeps the digest true.
const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-v3hvnDjSIO4Kv3BYzIevXmaqmV0aX70DCR8lrKmRciw='";

/// The built-in page for a status; nothing where that status has no body.
pub fn page(status: Status, product: &str, fields: &mut Fields) -> Reply {
    if status.is_bodyless() {
        return Reply::empty(status);
    }
    let code;
    let line = if status.line().is_empty() {
        code = status.to_string();
        code.as_str()
    } else {
        status.line()
    };
    fields.push("Content-Type", HTML);
    fields.push("Content-Security-Policy", POLICY);
    let body = PAGES.with_borrow_mut(|pages| {
        let known = pages.iter().find(|page| page.0 == status && *page.1 == *product);
        if let Some((.., body)) = known {
            return Rc::clone(body);
        }
        let style = ["</title><style>", PAGE_STYLE, PAGE_BODY].concat();
        let parts = [PAGE_HEAD, line, &style, line, "</h1><p>", product, PAGE_TAIL];
        let body: Rc<[u8]> = parts.concat().into_bytes().into();
        if pages.len() < PAGES_MAX {
            pages.push((status, product.into(), Rc::clone(&body)));
        }
        body
    });
    Reply::of(status, Piece::Shared(body))
}

/// The same with a sentence that says more than the status.
pub fn page_about(status: Status, why: &str, product: &str, fields: &mut Fields) -> Reply {
    fields.push("Content-Type", HTML);
    fields.push("Content-Security-Policy", POLICY);
    let style = ["</title><style>", PAGE_STYLE, PAGE_BODY].concat();
    let line = status.line();
    let parts = [PAGE_HEAD, line, &style, line, "</h1><p>", why, "</p><p>", product, PAGE_TAIL];
    Reply::of(status, Piece::Shared(parts.concat().into_bytes().into()))
}

thread_local! {
    /// The pages that this thread has made: a status and a name always give the same page.
    static PAGES: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) };
}

/// A status, the server's name, and the page for them.
type Page = (Status, Box<str>, Rc<[u8]>);

/// A redirect to an address that is a safe field value (see [`is_field_value`]).
pub fn redirect(status: Status, location: &[u8], product: &str, fields: &mut Fields) -> Reply {
    if !is_field_value(location) {
        return page(Status::INTERNAL_SERVER_ERROR, product, fields);
    }
    fields.push("Location", location);
    page(status, product, fields)
}

/// A text from the configuration; a status that has no body has no type either, as in nginx.
pub fn text(
    status: Status,
    body: &[u8],
    media_type: &[u8],
    settings: &Settings,
    fields: &mut Fields,
) -> Reply {
    if status.is_bodyless() {
        return Reply::empty(status);
    }
    media_type_field(media_type, settings, fields);
    Reply::of(status, Piece::Bytes(body.to_vec()))
}

/// `Content-Type`, with the `charset` of text where one is set.
pub fn media_type_field(media_type: &[u8], settings: &Settings, fields: &mut Fields) {
    fields.push_with("Content-Type", |value| {
        value.extend_from_slice(media_type);
        if let Some(charset) = &settings.charset
            && settings.charset_types.contain(media_type)
        {
            value.extend_from_slice(b"; charset=");
            value.extend_from_slice(charset.as_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_that_would_split_the_response_is_an_error() {
        // F7, V24
        let mut fields = Fields::new();
        let reply = redirect(Status::FOUND, b"/a\r\nSet-Cookie: x=1", "sekisho", &mut fields);
        assert_eq!(reply.status, Status::INTERNAL_SERVER_ERROR);
        assert!(!fields.as_lines().windows(10).any(|window| window == b"Set-Cookie"));
    }

    #[test]
    fn a_page_names_its_status_and_a_bodyless_status_has_none() {
        let mut fields = Fields::new();
        let reply = page(Status::NOT_FOUND, "sekisho", &mut fields);
        let body = reply.piece.as_ref().and_then(Piece::in_memory).expect("a body");
        assert!(String::from_utf8_lossy(body).contains("<h1>404 Not Found</h1>"));
        assert!(page(Status::NO_CONTENT, "sekisho", &mut fields).is_empty());
    }

    /// V48
    #[test]
    fn the_policy_names_the_style_of_the_page() {
        use base64::Engine as _;
        use sha2::Digest as _;
        let digest =
            base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(PAGE_STYLE));
        assert!(POLICY.contains(&digest), "it is {digest}");
        let mut fields = Fields::new();
        let reply = page(Status::NOT_FOUND, "sekisho", &mut fields);
        let body = reply.piece.as_ref().and_then(Piece::in_memory).expect("a body");
        let style = format!("<style>{PAGE_STYLE}</style>");
        assert!(String::from_utf8_lossy(body).contains(&style));
        assert_eq!(fields.get("content-security-policy"), Some(POLICY.as_bytes()));
    }

    #[test]
    fn a_page_that_is_made_once_is_that_of_its_status_and_name() {
        let body = |status, product| {
            let reply = page(status, product, &mut Fields::new());
            reply.piece.as_ref().and_then(Piece::in_memory).expect("a body").to_vec()
        };
        let first = body(Status::NOT_FOUND, "sekisho");
        assert_eq!(body(Status::NOT_FOUND, "sekisho"), first);
        assert_ne!(body(Status::FORBIDDEN, "sekisho"), first);
        assert!(
            String::from_utf8_lossy(&body(Status::NOT_FOUND, "sekisho/1")).contains("sekisho/1")
        );
    }
}
