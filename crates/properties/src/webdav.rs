//! WebDAV: whatever a body or an `If` field is, nothing panics, everything is bounded, what is kept is read again as it
//! was, and every answer that is made of it is well-formed.

use sekisho_webdav::condition::{self, ResourceState};
use sekisho_webdav::multistatus::{self, Found, MultiStatus};
use sekisho_webdav::{DeadProperties, IfField, Lock, LockRequest, PropertyUpdate, Propfind, lock};

/// Holds the parsers to it.
pub fn check(data: &[u8]) {
    if let Ok(field) = IfField::parse(data) {
        assert!(field.tokens().count() <= 256);
        let _ = field.holds(|_| ResourceState::default());
    }
    let _ = condition::coded_url(data);
    let secs = lock::timeout(Some(data)).as_secs();
    assert!((1..=3600).contains(&secs));
    let _ = DeadProperties::from_bytes(data).map(|properties| {
        let again = properties.to_bytes().map(|bytes| DeadProperties::from_bytes(&bytes));
        assert!(again.is_none_or(|again| again.as_ref() == Some(&properties)));
    });
    let mut found = Found::default();
    if let Ok(Propfind::These(names) | Propfind::All(names)) = Propfind::parse(data) {
        for name in &names {
            found.push_missing(name);
        }
    }
    if let Ok(updates) = PropertyUpdate::parse(data) {
        let mut properties = DeadProperties::default();
        for update in updates {
            properties.update(update);
        }
        if let Some(bytes) = properties.to_bytes() {
            assert_eq!(DeadProperties::from_bytes(&bytes).as_ref(), Some(&properties));
        }
        for (name, value) in properties.iter() {
            found.push(name, value);
        }
    }
    let mut answer = MultiStatus::default();
    answer.push(data, &found);
    assert_well_formed(&answer.finish());
    if let Ok(Some(request)) = LockRequest::parse(data) {
        let token = lock::token([7; 16]);
        let lock = Lock::new(token, data.to_vec(), true, request.scope, request.owner);
        assert_well_formed(&multistatus::lock_answer(&lock, data));
    }
}

/// It is read as what it is not, which needs it to be well-formed, or too large for that.
fn assert_well_formed(xml: &[u8]) {
    let text = std::str::from_utf8(xml).expect("text");
    let mut reader = quick_xml::NsReader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Eof) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}: {text}"),
        }
    }
}
