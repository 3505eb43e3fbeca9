//! The secrets of this process that keys of tickets are derived from: one makes tickets for some hours, older ones
//! still read theirs. A process that takes over by a binary upgrade gets them, so that clients resume there (S4).

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::aws_lc_rs as provider;
use sekisho_http::hex;

/// One secret makes tickets for so long.
const USE: Duration = Duration::from_hours(6);
const SECRET_BYTES: usize = 32;
/// No more are taken from another process: those of the longest lifetime, and some.
const TAKEN_MAX: usize = 64;

#[derive(PartialEq, Eq)]
struct Secret {
    /// In seconds since 1970.
    made: u64,
    bytes: [u8; SECRET_BYTES],
    /// Other servers know it.
    is_shared: bool,
}

/// The newest one first; one that other servers know before those that they do not.
struct Secrets {
    list: VecDeque<Secret>,
    /// Goes up with every change; 0 before the first.
    version: u64,
    /// The longest lifetime of any ticket.
    ticket_secs: u64,
}

static SECRETS: Mutex<Secrets> =
    Mutex::new(Secrets { list: VecDeque::new(), version: 0, ticket_secs: 0 });

fn with<T>(act: impl FnOnce(&mut Secrets) -> T) -> T {
    act(&mut SECRETS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Tickets with this lifetime will be made. False when there are no random numbers to make a secret from.
pub(super) fn need_for(lifetime: Duration, now: u64) -> bool {
    with(|secrets| {
        secrets.ticket_secs = secrets.ticket_secs.max(lifetime.as_secs());
        secrets.rotate(now, random);
        !secrets.list.is_empty()
    })
}

/// Gives the secrets of now and the version of their list.
pub(super) fn read(now: u64, act: impl FnOnce(u64, &mut dyn Iterator<Item = &[u8]>)) {
    with(|secrets| {
        secrets.rotate(now, random);
        act(secrets.version, &mut secrets.list.iter().map(|secret| &secret.bytes[..]));
    });
}

/// The secrets as a text for the process that takes over.
pub fn hand_over() -> String {
    with(|secrets| secrets.write()) + &crate::quic::keys::hand_over()
}

/// Takes the secrets of the process that this one replaces. A text that cannot be read is left alone: clients
/// shake hands anew.
pub fn take_over(text: &str) {
    with(|secrets| secrets.take(text));
    let _ = text.lines().find_map(crate::quic::keys::take_over);
}

/// A secret that may be offered to other servers, as a text.
pub fn candidate() -> Option<String> {
    random().map(|bytes| Secret { made: 0, bytes, is_shared: true }.hex())
}

/// Takes up the secrets that all servers share; they make tickets from now on.
pub fn share(text: &str) {
    with(|secrets| secrets.share(text));
}

fn random() -> Option<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    provider::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}

impl Secrets {
    /// Makes the next secret when it is time, and drops those whose last ticket has ended. Without random numbers
    /// the old one goes on.
    fn rotate(&mut self, now: u64, random: impl FnOnce() -> Option<[u8; SECRET_BYTES]>) {
        let is_due = self.list.front().is_none_or(|newest| {
            // Where secrets are shared, somebody else makes the next one, unless nobody can be reached for too long.
            let used = if newest.is_shared { 2 * USE } else { USE };
            now >= newest.made.saturating_add(used.as_secs())
        });
        if !is_due {
            return;
        }
        let Some(bytes) = random() else { return };
        self.list.iter_mut().for_each(|secret| secret.is_shared = false);
        self.list.push_front(Secret { made: now, bytes, is_shared: false });
        let kept_secs = USE.as_secs() + self.ticket_secs;
        self.list.retain(|secret| now < secret.made.saturating_add(kept_secs));
        self.version += 1;
    }

    fn write(&self) -> String {
        let mut text = String::new();
        for secret in &self.list {
            let _ = writeln!(text, "{} {}", secret.made, secret.hex());
        }
        text
    }

    fn take(&mut self, text: &str) {
        for secret in text.lines().take(TAKEN_MAX).map_while(Secret::parse) {
            if !self.list.iter().any(|known| known.bytes == secret.bytes) {
                self.list.push_back(secret);
            }
        }
        self.sort();
    }

    fn share(&mut self, text: &str) {
        let mut is_changed = false;
        for secret in text.lines().take(TAKEN_MAX).map_while(Secret::parse) {
            let known = self.list.iter_mut().find(|known| known.bytes == secret.bytes);
            is_changed |= known.as_ref().is_none_or(|known| !known.is_shared);
            match known {
                Some(known) => known.is_shared = true,
                None => self.list.push_back(Secret { is_shared: true, ..secret }),
            }
        }
        if is_changed {
            self.sort();
        }
    }

    fn sort(&mut self) {
        let order = |secret: &Secret| std::cmp::Reverse((secret.is_shared, secret.made));
        self.list.make_contiguous().sort_by_key(order);
        self.version += 1;
    }
}

impl Secret {
    fn hex(&self) -> String {
        hex::text(&self.bytes)
    }

    fn parse(line: &str) -> Option<Self> {
        let (made, digits) = line.split_once(' ')?;
        let made = made.parse().ok()?;
        let bytes = hex::bytes(digits.as_bytes())?.try_into().ok()?;
        Some(Self { made, bytes, is_shared: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(ticket_secs: u64) -> Secrets {
        Secrets { list: VecDeque::new(), version: 0, ticket_secs }
    }

    fn made(secrets: &Secrets) -> Vec<u64> {
        secrets.list.iter().map(|secret| secret.made).collect()
    }

    #[test]
    fn a_secret_is_used_for_some_hours_and_kept_until_its_last_ticket_has_ended() {
        // S4
        let (hour, mut secrets) = (3600, secrets(3600));
        for (now, expected) in [
            (0, &[0][..]),
            (6 * hour - 1, &[0]),
            (6 * hour, &[6 * hour, 0]),
            // The first one's last ticket was made just before six hours, and is good for an hour.
            (12 * hour, &[12 * hour, 6 * hour]),
            (100 * hour, &[100 * hour]),
        ] {
            secrets.rotate(now, || Some([1; SECRET_BYTES]));
            assert_eq!(made(&secrets), expected, "{now}");
        }
        let version = secrets.version;
        secrets.rotate(200 * hour, || None);
        assert_eq!((made(&secrets), secrets.version), (vec![100 * hour], version));
    }

    #[test]
    fn secrets_that_others_know_make_tickets_until_nobody_can_be_reached() {
        let (hour, mut secrets) = (3600, secrets(3600));
        secrets.rotate(10 * hour, || Some([9; SECRET_BYTES]));
        let shared = format!("{} {}", 8 * hour, "01".repeat(SECRET_BYTES));
        secrets.share(&shared);
        let version = secrets.version;
        secrets.share(&shared);
        assert_eq!(secrets.version, version, "nothing new");
        assert_eq!(made(&secrets), [8 * hour, 10 * hour], "the shared one, although it is older");
        secrets.rotate(15 * hour, || panic!("others see to the next one"));
        secrets.share(&format!("{} {}\n{shared}", 14 * hour, "02".repeat(SECRET_BYTES)));
        assert_eq!(made(&secrets)[..2], [14 * hour, 8 * hour]);
        secrets.rotate(26 * hour, || Some([7; SECRET_BYTES]));
        assert_eq!(made(&secrets)[0], 26 * hour, "nobody was reached for too long");
    }

    #[test]
    fn a_process_that_takes_over_has_the_same_secrets() {
        // S4, O4
        let mut old = secrets(3600);
        old.rotate(0, || Some([0xab; SECRET_BYTES]));
        old.rotate(USE.as_secs(), || Some([7; SECRET_BYTES]));
        let text = old.write();
        let mut new = secrets(3600);
        new.take(&text);
        assert_eq!(new.write(), text);
        new.take(&text);
        assert_eq!(new.write(), text, "none twice");
        // It goes on with the newest one until that one's time is over.
        new.rotate(USE.as_secs() + 10, || Some([1; SECRET_BYTES]));
        assert_eq!(new.write(), text);
        for bad in ["", "x", "1 ", "-1 00", "1 zz", &format!("1 {}", "é".repeat(SECRET_BYTES))] {
            let mut new = secrets(3600);
            new.take(bad);
            assert!(new.list.is_empty(), "{bad}");
        }
    }
}
