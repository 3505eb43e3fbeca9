//! Address tokens of earlier connections (`NEW_TOKEN`, RFC 9000 §8.1.3): a client that shows one has proved its address, and
//! needs no Retry. Each counts once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quinn_proto::{TokenLog, TokenReuseError, ValidationTokenConfig};

/// How long a token is valid.
const LIFETIME: Duration = Duration::from_hours(24);
/// Tokens that a client gets on each connection.
const SENT: u32 = 2;
/// Used tokens that are remembered; beyond that number tokens do not count.
const USED_MAX: usize = 64 << 10;
/// How much time passes before tokens that are no longer valid are looked for again.
const LOOK: Duration = Duration::from_mins(30);

/// Tokens that were used, with the time of their issue.
struct UsedTokens {
    list: Mutex<Used>,
}

struct Used {
    tokens: HashMap<u128, SystemTime>,
    /// The latest time that is known from a token, and that of the last look.
    latest: SystemTime,
    looked: SystemTime,
}

impl UsedTokens {
    fn new() -> Self {
        let (latest, looked) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        Self { list: Mutex::new(Used { tokens: HashMap::new(), latest, looked }) }
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let Used { tokens, latest, looked } = &mut *list;
        *latest = issued.max(*latest);
        if tokens.len() >= USED_MAX && *latest >= *looked + LOOK {
            *looked = *latest;
            tokens.retain(|_, issued| *issued + lifetime > *latest);
        }
        if tokens.len() >= USED_MAX {
            return Err(TokenReuseError);
        }
        match tokens.insert(nonce, issued) {
            None => Ok(()),
            Some(_) => Err(TokenReuseError),
        }
    }
}

/// What servers do with tokens. All workers share the list of those that were used.
pub(super) fn config() -> ValidationTokenConfig {
    static USED: LazyLock<Arc<UsedTokens>> = LazyLock::new(|| Arc::new(UsedTokens::new()));
    let mut config = ValidationTokenConfig::default();
    config.lifetime(LIFETIME).log(Arc::clone(&USED) as Arc<dyn TokenLog>).sent(SENT);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_once() {
        let used = UsedTokens::new();
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let day = Duration::from_hours(24);
        assert!(used.check_and_insert(1, at(100), day).is_ok());
        assert!(used.check_and_insert(1, at(100), day).is_err());
        for nonce in 2..=USED_MAX as u128 {
            assert!(used.check_and_insert(nonce, at(100), day).is_ok());
        }
        assert!(used.check_and_insert(0, at(101), day).is_err(), "no room");
        assert!(used.check_and_insert(0, at(200_000), day).is_ok(), "the others are too old");
    }
}
