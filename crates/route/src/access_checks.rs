//! The checks before a request is answered: rates, connections and passwords. The decision calls them through
//! [`AccessChecks`], whose methods answer at once; a check that takes time is a [`Wait`].

use std::fmt;
use std::time::Duration;

use sekisho_config::{ConnectionLimit, Level, LocationId, RateLimit};
use sekisho_http::Status;

/// The shell's view of what is shared by many requests. Without it, nothing is limited, and no password
/// is right.
pub trait AccessChecks {
    /// How far above its rate a key is with one request more. With `counts` that request is counted if it
    /// is not over the burst; without, nothing changes.
    fn look_at_rate(&mut self, limit: &RateLimit, key: &[u8], counts: bool) -> Rated {
        let _ = (limit, key, counts);
        Rated::Within(0)
    }

    /// Counts a request whose rate has been looked at; how far above its rate the key is now.
    fn count_request(&mut self, limit: &RateLimit, key: &[u8]) -> u64 {
        let _ = (limit, key);
        0
    }

    /// Takes a place for this request until it is over.
    fn acquire_permit(&mut self, limit: &ConnectionLimit, key: &[u8]) -> Taken {
        let _ = (limit, key);
        Taken::Yes
    }

    /// Gives back the places that were taken for this request.
    fn release_permits(&mut self) {}

    /// Whether the password is the user's, by this file. What went wrong with the file has been reported.
    fn password(
        &mut self,
        location: LocationId,
        file: &[u8],
        user: &[u8],
        password: &[u8],
    ) -> Password {
        let _ = (location, file, user, password);
        Password::Failed
    }

    /// Writes a line about this request into the error log of a location.
    fn report(&mut self, location: LocationId, level: Level, message: fmt::Arguments<'_>) {
        let _ = (location, level, message);
    }

    /// The same for a user who is not let in: programs that ban clients read these lines to their end.
    fn report_user(&mut self, location: LocationId, message: fmt::Arguments<'_>) {
        self.report(location, Level::Error, message);
    }
}

/// What came of looking at a rate; excesses are in thousandths of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rated {
    /// So far above the rate, and within the burst.
    Within(u64),
    /// So far above the rate, and beyond the burst.
    Over(u64),
    /// The zone has no room for this key.
    NoRoom,
}

/// What came of asking for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is taken.
    Yes,
    /// All are taken.
    No,
    /// The zone has no room for this key.
    NoRoom,
}

/// What came of asking for a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Password {
    /// It is the user's.
    Right,
    /// It is not.
    Wrong,
    /// There is no such user.
    Unknown,
    /// There is no such file.
    NoFile,
    /// The file cannot be used.
    Failed,
    /// It takes time: ask again when [`Wait::Password`] is over.
    Later,
}

/// What must be waited for before the decision can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The password that was asked for last.
    Password,
    /// So much time.
    For(Duration),
    /// The location that `auth_request` names: its answer is put into the route state.
    Auth,
    /// A file of the folder `route_state.file`, chosen by chance (`random_index`).
    RandomFile,
    /// An object of the location's `storage`: which one, and later the answer, is in `route_state.objects`.
    Object,
}

/// `$limit_req_status` and `$limit_conn_status`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitStatus {
    Passed,
    Delayed,
    Rejected,
    DelayedDryRun,
    RejectedDryRun,
}

impl LimitStatus {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Delayed => "DELAYED",
            Self::Rejected => "REJECTED",
            Self::DelayedDryRun => "DELAYED_DRY_RUN",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

/// What is remembered of a request's progress through the access checks, so that nothing is counted twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessProgress {
    /// The result of `limit_req`; checked once for a request.
    pub(crate) rate: Option<LimitStatus>,
    /// The result of `limit_conn`; checked once for a request.
    pub(crate) connections: Option<LimitStatus>,
    /// A refusal that waits for `auth_delay`.
    pub(crate) refusal: Option<Status>,
    /// How often it has waited.
    pub(crate) waits: u8,
    /// The realm that a password was asked for last.
    pub(crate) realm: Vec<u8>,
    /// Whether one was.
    pub(crate) is_challenged: bool,
    /// Whose password was right.
    pub(crate) user: Vec<u8>,
    /// Whether one was.
    pub(crate) is_verified: bool,
}

impl AccessProgress {
    /// Makes it ready for the next request; the storage stays.
    pub(crate) fn clear(&mut self) {
        let (mut realm, mut user) =
            (std::mem::take(&mut self.realm), std::mem::take(&mut self.user));
        realm.clear();
        user.clear();
        *self = Self { realm, user, ..Self::default() };
    }
}
