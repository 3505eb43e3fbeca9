//! Passwords of `auth_basic`: files of users, read when they change, and verdicts, remembered for a moment.
//! A password is never written anywhere, and a hash that takes its time is never computed on a worker's own
//! thread: it is a [`PasswordQuery`], which a [`Task`](crate::Task) of [`crate::wait`] answers.

mod form;
mod md5_crypt;
pub(crate) mod turns;
mod users;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sekisho_lifecycle::Moment;
use sekisho_route::Password;
use sha2::{Digest, Sha256};

pub use form::Stored;
use users::User;
pub use users::{Users, mistakes};

use crate::file_cache::Identity;

/// How many files of users are held at once: their names may come from variables.
const FILES_MAX: usize = 64;
/// How many verdicts of each kind a worker remembers.
const PASSWORD_CACHE_MAX: usize = 1024;
/// How long. A client that is kept alive pays for its password once in this time.
const PASSWORD_CACHE_AGE: Duration = Duration::from_secs(30);
/// Longer passwords are wrong, as for crypt(3).
const PASSWORD_MAX: usize = 512;

/// What costs about a twentieth of a second, once for each client.
const BCRYPT_COST: u32 = 10;

/// A password in the form of a file of users, by bcrypt; `None` if it is too long for that.
pub fn hash(password: &[u8], salt: &[u8]) -> Option<String> {
    let salt = salt.try_into().ok()?;
    let hash = bcrypt::hash_with_salt_bytes(password, BCRYPT_COST, salt).ok()?;
    String::from_utf8(hash.to_vec()).ok()
}

/// The files of users of the whole server.
#[derive(Debug, Default)]
pub struct UserFiles(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_path: HashMap<Vec<u8>, Arc<Users>>,
    /// Files that could not be read, until that has been reported.
    failed: HashMap<Vec<u8>, io::Error>,
}

impl UserFiles {
    /// A file as it was read, if it is still the same.
    fn find(&self, path: &[u8], identity: Identity, wall_secs: i64) -> Option<Arc<Users>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let users = known.by_path.get(path)?;
        users.is_current(identity, wall_secs).then(|| Arc::clone(users))
    }

    fn take_failure(&self, path: &[u8]) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failed.remove(path)
    }

    fn keep(&self, path: Vec<u8>, read: io::Result<Arc<Users>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_path.len() >= FILES_MAX && !known.by_path.contains_key(&path) {
            known.by_path.clear();
        }
        if known.failed.len() >= FILES_MAX {
            known.failed.clear();
        }
        match read {
            Ok(users) => _ = known.by_path.insert(path, users),
            Err(error) => _ = known.failed.insert(path, error),
        }
    }
}

/// What a worker remembers of passwords.
pub struct PasswordCache {
    secret: [u8; 32],
    right: Recent,
    wrong: Recent,
}

impl fmt::Debug for PasswordCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCache")
            .field("right", &self.right.by_key.len())
            .field("wrong", &self.wrong.by_key.len())
            .finish_non_exhaustive()
    }
}

impl Default for PasswordCache {
    fn default() -> Self {
        // Random: the keys of the standard library's hasher.
        let mut secret = Sha256::new();
        for part in 0..4_u8 {
            secret.update(RandomState::new().hash_one(part).to_ne_bytes());
        }
        Self {
            secret: secret.finalize().into(),
            right: Recent::default(),
            wrong: Recent::default(),
        }
    }
}

/// A keyed hash of a stored password, a user and a password that was offered. It stays valid when the file
/// changes: whether a password matches a stored hash does not change.
pub type Key = [u8; 32];

impl PasswordCache {
    fn key(&self, stored: &[u8], user: &[u8], password: &[u8]) -> Key {
        let mut hash = Sha256::new().chain_update(self.secret);
        for part in [stored, user, password] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn find(&self, key: &Key, now: Moment) -> Option<bool> {
        let is_fresh = |recent: &Recent| {
            recent.by_key.get(key).is_some_and(|since| !(*since + PASSWORD_CACHE_AGE).is_due(now))
        };
        if is_fresh(&self.right) {
            return Some(true);
        }
        is_fresh(&self.wrong).then_some(false)
    }

    fn keep(&mut self, key: Key, is_right: bool, now: Moment) {
        if is_right { &mut self.right } else { &mut self.wrong }.insert(key, now);
    }
}

/// Wrong passwords are kept apart from right ones, so that guesses do not evict right passwords.
#[derive(Default)]
struct Recent {
    by_key: HashMap<Key, Moment>,
    order: VecDeque<Key>,
}

impl Recent {
    fn insert(&mut self, key: Key, now: Moment) {
        if self.by_key.insert(key, now).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > PASSWORD_CACHE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

/// What is asked, with what is known already.
pub struct PasswordQuery {
    path: Vec<u8>,
    wall_secs: i64,
    users: Option<Arc<Users>>,
    user: Vec<u8>,
    password: Vec<u8>,
    key: Option<Key>,
}

impl fmt::Debug for PasswordQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").finish_non_exhaustive()
    }
}

impl Drop for PasswordQuery {
    fn drop(&mut self) {
        self.password.fill(0);
        std::hint::black_box(&self.password);
    }
}

/// What came of asking.
#[derive(Debug)]
pub enum Answer {
    /// This.
    Known(Password),
    /// It takes its time.
    Later(PasswordQuery),
    /// The file cannot be used.
    Trouble(Password, io::Error),
    /// What is stored for this user cannot be used.
    Unusable(&'static str),
}

/// A hash of what a file has stored for a user, by which it is known again whether that is still the same. Only the worker
/// whose cache it is can compare it.
pub fn record(password_cache: &PasswordCache, users: &Users, user: &[u8]) -> Option<Key> {
    match users.find(user) {
        User::Known(stored) => Some(password_cache.key(stored.text(), user, b"")),
        User::Unknown(_) | User::Nobody => None,
    }
}

/// The users of a file as they are now: to be called outside the event loop.
pub fn read_users(path: &Path, wall_secs: i64) -> io::Result<Users> {
    Users::read(path, wall_secs)
}

/// Whether the password is the user's by this file, as far as that is known at once.
pub fn ask(
    files: &UserFiles,
    password_cache: &PasswordCache,
    question: [&[u8]; 3],
    now: Moment,
    wall_secs: i64,
) -> Answer {
    ask_and_show(files, password_cache, question, now, wall_secs).0
}

/// The same, with the users that were looked at.
pub fn ask_and_show(
    files: &UserFiles,
    password_cache: &PasswordCache,
    [path, user, password]: [&[u8]; 3],
    now: Moment,
    wall_secs: i64,
) -> (Answer, Option<Arc<Users>>) {
    let identity = match sekisho_openings::stat(Path::new(std::ffi::OsStr::from_bytes(path))) {
        Ok(stat) => Identity::of(&stat),
        Err(error) => return (trouble(error), None),
    };
    if let Some(error) = files.take_failure(path) {
        return (trouble(error), None);
    }
    let users = files.find(path, identity, wall_secs);
    let answer = users.as_ref().map(|users| ask_users(users, password_cache, user, password, now));
    let answer = match answer {
        Some(Ok(answer)) => answer,
        later => Answer::Later(PasswordQuery {
            path: path.to_vec(),
            wall_secs,
            users: users.clone(),
            user: user.to_vec(),
            password: password.to_vec(),
            key: later.and_then(Result::err),
        }),
    };
    (answer, users)
}

/// An error is the key under which the answer will be known.
fn ask_users(
    users: &Users,
    password_cache: &PasswordCache,
    user: &[u8],
    password: &[u8],
    now: Moment,
) -> Result<Answer, Key> {
    let (stored, is_known) = match users.find(user) {
        User::Known(stored) => (stored, true),
        User::Unknown(stand_in) => (stand_in, false),
        User::Nobody => return Ok(Answer::Known(Password::Unknown)),
    };
    let result = |is_right| match (is_known, is_right) {
        (false, _) => Answer::Known(Password::Unknown),
        (true, true) => Answer::Known(Password::Right),
        (true, false) => Answer::Known(Password::Wrong),
    };
    if password.len() > PASSWORD_MAX || password.contains(&0) {
        return Ok(result(false));
    }
    if let Some(why) = stored.why_unusable().filter(|_| is_known) {
        return Ok(Answer::Unusable(why));
    }
    if stored.is_quick() {
        return Ok(result(stored.is(password)));
    }
    let key = password_cache.key(stored.text(), user, password);
    password_cache.find(&key, now).map(result).ok_or(key)
}

fn trouble(error: io::Error) -> Answer {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    Answer::Trouble(if is_missing { Password::NoFile } else { Password::Failed }, error)
}

/// What came of a question that took its time.
#[derive(Debug)]
pub struct Worked {
    path: Vec<u8>,
    read: Option<io::Result<Arc<Users>>>,
    result: Option<(Key, bool)>,
}

impl PasswordQuery {
    /// The user name of the request.
    pub(crate) fn user(&self) -> &[u8] {
        &self.user
    }

    /// Reads the file if it must be read, or else computes the hash: to be called outside the event loop.
    pub fn work(mut self) -> Worked {
        let path = std::mem::take(&mut self.path);
        let (Some(users), Some(key)) = (&self.users, self.key) else {
            let read = Users::read(Path::new(std::ffi::OsStr::from_bytes(&path)), self.wall_secs);
            return Worked { path, read: Some(read.map(Arc::new)), result: None };
        };
        // An unknown user costs as much time as a known user with a wrong password.
        let is_right = match users.find(&self.user) {
            User::Known(stored) => stored.is(&self.password),
            User::Unknown(stand_in) => {
                stand_in.is(&self.password);
                false
            }
            User::Nobody => false,
        };
        Worked { path, read: None, result: Some((key, is_right)) }
    }
}

impl Worked {
    /// Whether a password was computed and is right.
    pub(crate) const fn is_right(&self) -> bool {
        matches!(self.result, Some((_, true)))
    }

    /// Remembers it, so that the same question has an answer at once.
    pub fn keep(self, files: &UserFiles, password_cache: &mut PasswordCache, now: Moment) {
        if let Some(read) = self.read {
            files.keep(self.path, read);
        }
        if let Some((key, is_right)) = self.result {
            password_cache.keep(key, is_right, now);
        }
    }
}
