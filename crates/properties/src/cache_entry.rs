//! Entries of the cache on disk: any bytes are a whole entry or none; what is read is written the same; what a
//! field says about a lifetime never makes an answer fresh for longer than it says, by a second reading.

use sekisho_http::{Fields, Status};
use sekisho_upstream::cache::entry::{decode, head_bytes};
use sekisho_upstream::cache::{
    CacheControl, Candidate, Entry, Key, StoreRules, entry_path, may_store,
};

const NOW: i64 = 1_000_000_000;

/// Holds the reader to it.
pub fn check(data: &[u8]) {
    file(data);
    whole(data);
    lifetimes(data);
}

fn file(data: &[u8]) {
    let Ok(len) = head_bytes(data) else { return };
    let key = b"k";
    for file_bytes in [data.len() as u64, len as u64, u64::MAX] {
        if let Ok(entry) = decode(data, file_bytes, key) {
            let mut again = Vec::new();
            entry.encode(&mut again).expect("as long as before");
            assert_eq!(again, data[..len]);
            assert_eq!(entry.key, key);
        }
    }
}

/// An entry made of the input is read back, and no shorter or longer file is it.
fn whole(data: &[u8]) {
    let mut fields = Fields::default();
    for line in data.split(|byte| *byte == b'\n') {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        fields.push(&line[..colon], line.get(colon + 1..).unwrap_or_default());
    }
    let rules = StoreRules::default();
    let accel: Fields = [("X-Accel-Expires", "9")].into_iter().collect();
    let candidate = candidate(&accel);
    let lifetime = may_store(&rules, &candidate, NOW).expect("kept");
    let key = Key::new(data);
    let entry = Entry {
        key: data.to_vec(),
        vary: data.iter().take(9).copied().collect(),
        variant: key.variant(data, |name| fields.get(str::from_utf8(name).ok()?)).0,
        lifetime,
        status: Status::OK,
        fields,
        body_bytes: data.len() as u64,
        body_checksum: 1,
    };
    let mut bytes = Vec::new();
    entry.encode(&mut bytes).expect("short enough");
    let file_bytes = bytes.len() as u64 + entry.body_bytes;
    assert_eq!(head_bytes(&bytes), Ok(bytes.len()));
    assert_eq!(decode(&bytes, file_bytes, data).as_ref(), Ok(&entry));
    assert!(decode(&bytes, file_bytes + 1, data).is_err());
    assert!(decode(&bytes[..bytes.len() - 1], file_bytes, data).is_err());
    let path = entry_path(&[1, 2], key);
    assert!(
        path.len() == 32 + 5
            && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'/')
    );
}

fn candidate(fields: &Fields) -> Candidate<'_> {
    Candidate {
        method: sekisho_http::Method::Get,
        is_authorized: false,
        is_refused: false,
        uses: 1,
        status: Status::OK,
        fields,
    }
}

/// The input as a `Cache-Control`.
fn lifetimes(data: &[u8]) {
    let mut fields = Fields::default();
    fields.push(b"Cache-Control", data);
    let control = CacheControl::parse(std::iter::once(data));
    let lower = String::from_utf8_lossy(data).to_ascii_lowercase();
    for (is_said, word) in [
        (control.no_store, "no-store"),
        (control.no_cache, "no-cache"),
        (control.private, "private"),
        (control.public, "public"),
        (control.max_age.is_some(), "max-age"),
        (control.s_maxage.is_some(), "s-maxage"),
    ] {
        assert!(!is_said || lower.contains(word), "nothing is made up");
    }
    // Without quotes each directive is what stands between commas.
    if !data.contains(&b'"') {
        let has = |word: &str| lower.split(',').any(|directive| directive.trim_ascii() == word);
        assert!(!has("no-store") || control.no_store);
        assert!(!has("private") || control.private);
    }
    match may_store(&StoreRules::default(), &candidate(&fields), NOW) {
        Err(_) => {}
        Ok(lifetime) => {
            assert!(!control.no_store && !control.private && !control.no_cache);
            let said = control.lifetime().expect("a lifetime was given");
            assert_eq!(lifetime.valid_until - NOW, i64::from(said));
            assert!(said > 0 && lifetime.is_fresh(NOW));
        }
    }
}
