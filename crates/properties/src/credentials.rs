//! The credentials of a client, and stored passwords: base64 is decoded as by another decoder; `$remote_user`
//! is the text before the first colon or empty; a stored password that cannot be used admits no client, a
//! usable one admits the right password, and none costs more than its bound.
//!
//! The first line is an `Authorization`, the second a stored password, the third a password that is offered.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use sekisho_config::{Memory, Options, Variable, load};
use sekisho_http::{Head, Version};
use sekisho_route::{
    ConnectionFacts, Request, RequestIdSeed, RouteState, Table, WallTime, push_variable,
};
use sha1::{Digest, Sha1};

use form::Stored;

#[path = "../../handler/src/password/form.rs"]
#[allow(dead_code, unreachable_pub, reason = "of a borrowed file not everything is needed")]
mod form;
#[path = "../../handler/src/password/md5_crypt.rs"]
mod md5_crypt;

/// What comparing may cost here, in microseconds: dearer ones are only read.
const SLOWNESS_MAX: u64 = 200;
/// One in so many of the dear ones is compared.
const SELDOM: usize = 64;
/// 16 rounds of bcrypt, the dearest that is allowed.
const BOUND: u64 = 50 << 16;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let text = "events {} http { server { listen 8080; root /srv; } }";
    let outcome = load(Path::new("/s.conf"), &Options::new("/p"), &Memory::of("/s.conf", text));
    Table::new(Arc::new(outcome.config.expect("a good configuration")))
});

/// Holds the readers to it.
pub fn check(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (field, stored, password) = (line(), line(), line());
    names_the_user(field);
    // Any user and any password, written as a client does it.
    let encoded = base64::engine::general_purpose::STANDARD.encode(data);
    let mut written = b"Basic ".to_vec();
    written.extend_from_slice(encoded.as_bytes());
    let colon = data.iter().position(|byte| *byte == b':').filter(|at| *at > 0);
    assert_eq!(user_of(&written), data[..colon.unwrap_or(0)]);
    is_stored(stored, password, data.len() % SELDOM == 0);
    stores(stored, password);
}

fn user_of(field: &[u8]) -> Vec<u8> {
    let mut head = Head::default();
    head.begin(b"GET", b"/", Version::Http11);
    head.push(b"Authorization", field);
    let connection = ConnectionFacts::default();
    let (wall, request_id) = (WallTime::default(), RequestIdSeed(1));
    let request = Request::new(&head, 0, &connection, wall, request_id);
    let mut route_state = RouteState::default();
    let _ = TABLE.choose_server(0, &head, &mut route_state);
    let mut out = Vec::new();
    push_variable(&Variable::RemoteUser, &TABLE, &request, &route_state, &mut out);
    out
}

fn names_the_user(field: &[u8]) {
    let user = user_of(field);
    assert!(!user.contains(&b':'));
    let is_basic = field.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
    assert!(user.is_empty() || is_basic, "{}", field.escape_ascii());
    assert!(user.len() <= field.len(), "nothing is made up");
}

fn is_stored(text: &[u8], password: &[u8], is_tried: bool) {
    let stored = Stored::parse(text);
    assert!(stored.slowness() <= BOUND, "{}", text.escape_ascii());
    if stored.why_unusable().is_some() {
        assert!(!stored.is(password) && !stored.is(text) && !stored.is(b""));
        assert!(stored.is_quick());
    } else if stored.is_quick() || (is_tried && stored.slowness() <= SLOWNESS_MAX) {
        let is = stored.is(password);
        assert_eq!(is, stored.is(password));
        assert!(!is || !stored.is(&[password, b"x"].concat()), "two passwords");
    }
    assert!(!format!("{stored:?}").contains('$'), "a password is never shown");
}

/// What another hand has made of a password lets this one in, and no other.
fn stores(salt: &[u8], password: &[u8]) {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let salted = Sha1::new().chain_update(password).chain_update(salt).finalize();
    let made = [
        [b"{PLAIN}", password].concat(),
        format!("{{SHA}}{}", encode(&Sha1::digest(password))).into_bytes(),
        format!("{{SSHA}}{}", encode(&[&salted, salt].concat())).into_bytes(),
    ];
    for text in made {
        let stored = Stored::parse(&text);
        assert_eq!(stored.why_unusable(), None, "{}", text.escape_ascii());
        assert!(stored.is(password), "{}", text.escape_ascii());
        assert!(!stored.is(&[password, b"x"].concat()));
        assert!(password.is_empty() || !stored.is(&password[1..]));
    }
}
