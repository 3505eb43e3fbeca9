//! A client that connects again when its session is over. Calls in flight end with the error of the session: whether
//! they were done is not known here, and only their caller knows whether they may be made twice. The next call
//! connects, at most so often and with growing pauses of random length, so that many clients of a server that
//! comes back do not all come at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::address::Address;
use crate::client::{Call, Client};
use crate::connect::{AnyStream, connect_to};
use crate::core::{CallError, Options};
use crate::new_request::NewRequest;

/// How often and how long to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The pause after the first attempt that failed, at the most; each one after that is twice as long.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// So many attempts are made for one call.
    pub attempts: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(5), attempts: 8 }
    }
}

impl Backoff {
    /// The pause after attempt number `attempt`, from zero: between a half and all of what it grows to, as `random`
    /// says; nothing after the last one.
    pub fn pause(&self, attempt: u32, random: u64) -> Option<Duration> {
        if attempt + 1 >= self.attempts {
            return None;
        }
        let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        let half = whole / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        Some(half + Duration::from_nanos(random % spread))
    }
}

/// A client that connects again.
#[derive(Debug)]
pub struct ReconnectingClient {
    address: Address,
    options: Options,
    backoff: Backoff,
    /// The session in use.
    current: Mutex<Option<Client<AnyStream>>>,
}

impl ReconnectingClient {
    /// For a server at this address; the first call connects.
    pub fn new(address: Address, options: impl Into<Options>, backoff: Backoff) -> Self {
        Self { address, options: options.into(), backoff, current: Mutex::new(None) }
    }

    /// The session, or a new one if it is over.
    pub async fn session(&self) -> Result<Client<AnyStream>, CallError> {
        let mut current = self.current.lock().await;
        if let Some(client) = current.as_ref().filter(|client| !client.is_over()) {
            return Ok(client.clone());
        }
        *current = None;
        let mut attempt = 0;
        loop {
            let error = match connect_to(&self.address, self.options.clone()).await {
                Ok(client) => {
                    *current = Some(client.clone());
                    return Ok(client);
                }
                Err(error) => error,
            };
            let random = RandomState::new().build_hasher().finish();
            let pause = self.backoff.pause(attempt, random).filter(|_| error.may_pass());
            let Some(pause) = pause else { return Err(error) };
            attempt += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Makes a request and waits for its answer. An error for which [`CallError::is_session_over`] says yes leaves
    /// open whether the request was done: a caller whose request may be done twice calls again.
    pub async fn call(&self, request: &NewRequest<'_>) -> Result<Vec<u8>, CallError> {
        self.session().await?.call_with(request).await
    }

    /// Makes a request, for callers that want its records or send more of its body.
    pub async fn start(&self, request: &NewRequest<'_>) -> Result<Call<AnyStream>, CallError> {
        self.session().await?.start(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_end() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            longest: Duration::from_millis(350),
            attempts: 5,
        };
        let millis = |attempt, random| {
            backoff.pause(attempt, random).map(|pause| pause.as_micros() as u64 / 1000)
        };
        // A half at least, and all of it at the most.
        let rows = [(0, 50, 100), (1, 100, 200), (2, 175, 350), (3, 175, 350)];
        for (attempt, least, most) in rows {
            let spread = most * 1_000_000 / 2;
            assert_eq!(millis(attempt, 0), Some(least));
            assert_eq!(millis(attempt, spread), Some(most));
            for random in [1, 12_345, u64::MAX] {
                let pause = millis(attempt, random);
                assert!(pause.is_some_and(|pause| (least..=most).contains(&pause)));
            }
        }
        assert_eq!(millis(4, 0), None);
        let endless = Backoff { attempts: u32::MAX, ..backoff };
        assert_eq!(endless.pause(1000, 0), Some(Duration::from_millis(175)));
    }
}
