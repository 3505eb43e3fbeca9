//! Changes that a page of another site makes a browser ask for: refused unless the configuration names that
//! site (`upload_origins`). A browser says where a request comes from by `Sec-Fetch-Site` and `Origin`, which
//! no page can change; a client that sends neither is no browser, or has asked by itself.

use sekisho_config::Origins;
use sekisho_http::{Head, Known, target};

/// Whether a change may be asked for from where this request comes from.
pub(super) fn is_allowed(head: &Head, origins: &Origins) -> bool {
    if *origins == Origins::Any {
        return true;
    }
    let authority = target::split_authority(head.target()).map(|(authority, _)| authority);
    let own = authority.or_else(|| head.known(Known::Host)).unwrap_or_default();
    let (mut is_listed, mut is_foreign) = (false, false);
    for origin in values(head, b"origin") {
        if origins.contains(origin) {
            is_listed = true;
        } else if !is_of_host(origin, own) {
            is_foreign = true;
        }
    }
    let is_same = |site: &[u8]| {
        [&b"same-origin"[..], b"none"].iter().any(|same| site.eq_ignore_ascii_case(same))
    };
    !is_foreign && (is_listed || values(head, b"sec-fetch-site").all(is_same))
}

fn values<'h>(head: &'h Head, name: &'static [u8]) -> impl Iterator<Item = &'h [u8]> {
    head.fields().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Whether an origin, `scheme://host[:port]`, is the host that was asked. The scheme does not matter: TLS may
/// end before us.
fn is_of_host(origin: &[u8], host: &[u8]) -> bool {
    let Some((authority, [])) = target::split_authority(origin) else { return false };
    // Neither names the port that its scheme has anyway, but some clients do.
    let bare = |value: &[u8]| {
        let bytes = [&b":80"[..], b":443"].iter().find_map(|port| value.strip_suffix(*port));
        bytes.unwrap_or(value).to_ascii_lowercase()
    };
    !authority.is_empty() && bare(authority) == bare(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V51
    #[test]
    fn a_change_comes_from_the_own_site_or_from_one_that_is_named() {
        let listed = Origins::Listed(vec!["https://app.example".into()]);
        let evil = "https://evil.example";
        for (fields, own, named) in [
            (&[][..], true, true),
            (&[("Sec-Fetch-Site", "same-origin")][..], true, true),
            (&[("Sec-Fetch-Site", "none")][..], true, true),
            (&[("Sec-Fetch-Site", "cross-site")][..], false, false),
            (&[("Sec-Fetch-Site", "same-site")][..], false, false),
            (&[("Sec-Fetch-Site", "new-kind")][..], false, false),
            (&[("Origin", "http://here.example:8080")][..], true, true),
            (&[("Origin", "https://HERE.example:8080")][..], true, true),
            (&[("Origin", "http://here.example")][..], false, false),
            (&[("Origin", "http://here.example:8080/")][..], false, false),
            (&[("Origin", "null")][..], false, false),
            (&[("Origin", "")][..], false, false),
            (&[("Origin", evil)][..], false, false),
            (&[("Origin", evil), ("Sec-Fetch-Site", "same-origin")][..], false, false),
            (&[("Origin", "http://here.example:8080"), ("Origin", evil)][..], false, false),
            (&[("Origin", "https://app.example")][..], false, true),
            (
                &[("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site")][..],
                false,
                true,
            ),
            (&[("Origin", "https://app.example"), ("Origin", evil)][..], false, false),
            (&[("Origin", "http://app.example")][..], false, false),
        ] {
            let mut head = Head::default();
            head.begin(b"POST", b"/", sekisho_http::Version::Http11);
            head.push(b"Host", b"here.example:8080");
            for (name, value) in fields {
                head.push(name.as_bytes(), value.as_bytes());
            }
            assert_eq!(is_allowed(&head, &Origins::Own), own, "{fields:?}");
            assert_eq!(is_allowed(&head, &listed), named, "{fields:?}");
            assert!(is_allowed(&head, &Origins::Any), "{fields:?}");
        }
        assert!(is_of_host(b"https://here.example", b"here.example:443"));
        assert!(!is_of_host(b"https://", b""));
    }
}
