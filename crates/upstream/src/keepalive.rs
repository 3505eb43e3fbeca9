//! Which upstream connections are kept, for how long, and which of them the next request gets (U4):
//! `keepalive`, `keepalive_requests`, `keepalive_time`, `keepalive_timeout`. One pool for each worker and
//! group; what a connection is, only the shell knows.

use std::collections::VecDeque;
use std::time::Duration;

use sekisho_http::upstream::NotReusable;
use sekisho_lifecycle::Moment;

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `keepalive`: idle connections of one worker; 0 keeps none.
    pub connections: usize,
    /// `keepalive_requests`: how many requests one connection carries.
    pub requests: u64,
    /// `keepalive_time`: how old it may be when a request on it ends.
    pub time: Option<Duration>,
    /// `keepalive_timeout`: how long it may be idle.
    pub timeout: Option<Duration>,
}

impl Default for Settings {
    /// nginx's defaults, with nothing kept.
    fn default() -> Self {
        Self {
            connections: 0,
            requests: 1000,
            time: Some(Duration::from_hours(1)),
            timeout: Some(Duration::from_mins(1)),
        }
    }
}

/// What is known about a connection whose exchange has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// How many requests it has carried.
    pub requests: u64,
    /// When it was made.
    pub opened: Moment,
}

/// Why a connection is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotKept {
    /// It cannot carry another request.
    NotReusable(NotReusable),
    /// No connections are kept.
    Off,
    /// It has carried `keepalive_requests`.
    RequestsUsedUp,
    /// It is older than `keepalive_time`.
    TooOld,
}

/// Whether a connection is kept after an exchange.
pub fn may_keep(
    settings: &Settings,
    reuse: Result<(), NotReusable>,
    usage: Usage,
    now: Moment,
) -> Result<(), NotKept> {
    reuse.map_err(NotKept::NotReusable)?;
    if settings.connections == 0 {
        return Err(NotKept::Off);
    }
    if usage.requests >= settings.requests {
        return Err(NotKept::RequestsUsedUp);
    }
    if settings.time.is_some_and(|time| now.since(usage.opened) > time) {
        return Err(NotKept::TooOld);
    }
    Ok(())
}

#[derive(Debug)]
struct Idle<C> {
    peer: usize,
    connection: C,
    usage: Usage,
    until: Option<Moment>,
}

/// The idle connections of one worker to one group, the one used last in front.
#[derive(Debug)]
pub struct Pool<C> {
    settings: Settings,
    idle: VecDeque<Idle<C>>,
}

impl<C> Pool<C> {
    /// An empty pool.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, idle: VecDeque::new() }
    }

    /// How many are idle.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }

    /// Keeps a connection that [`may_keep`] allows; a returned connection is to be closed: the one that was
    /// not used for the longest time, if there are too many now.
    pub fn put(&mut self, peer: usize, connection: C, usage: Usage, now: Moment) -> Option<C> {
        let until = self.settings.timeout.map(|timeout| now + timeout);
        self.idle.push_front(Idle { peer, connection, usage, until });
        if self.idle.len() > self.settings.connections {
            return self.idle.pop_back().map(|idle| idle.connection);
        }
        None
    }

    /// A connection to this server, the one used last, with what it has carried. One whose time is over is
    /// not given, though it may not have been closed yet.
    pub fn take(&mut self, peer: usize, now: Moment) -> Option<(C, Usage)> {
        let is_live = |idle: &Idle<C>| idle.until.is_none_or(|until| !until.is_due(now));
        let at = self.idle.iter().position(|idle| idle.peer == peer && is_live(idle))?;
        self.idle.remove(at).map(|idle| (idle.connection, idle.usage))
    }

    /// Takes out those for which `is_gone` is true: the peer has closed them, or their server is gone.
    pub fn remove(&mut self, mut is_gone: impl FnMut(usize, &mut C) -> bool) -> Vec<C> {
        let mut gone = Vec::new();
        for mut idle in std::mem::take(&mut self.idle) {
            if is_gone(idle.peer, &mut idle.connection) {
                gone.push(idle.connection);
            } else {
                self.idle.push_back(idle);
            }
        }
        gone
    }

    /// When the next one has been idle for too long (T2).
    pub fn next_deadline(&self) -> Option<Moment> {
        self.idle.iter().filter_map(|idle| idle.until).min()
    }

    /// Takes out those that have been idle for too long, to be closed.
    pub fn expire(&mut self, now: Moment) -> Vec<C> {
        let mut expired = Vec::new();
        for idle in std::mem::take(&mut self.idle) {
            if idle.until.is_some_and(|until| until.is_due(now)) {
                expired.push(idle.connection);
            } else {
                self.idle.push_back(idle);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    const NEW: Usage = Usage { requests: 1, opened: Moment::ZERO };

    fn settings(connections: usize) -> Settings {
        Settings { connections, ..Settings::default() }
    }

    #[test]
    fn a_connection_is_kept_unless_there_is_a_reason() {
        let now = seconds(3600);
        let rows = [
            (settings(2), Ok(()), NEW, Ok(())),
            (settings(0), Ok(()), NEW, Err(NotKept::Off)),
            (
                settings(2),
                Err(NotReusable::Surplus),
                NEW,
                Err(NotKept::NotReusable(NotReusable::Surplus)),
            ),
            (settings(2), Ok(()), Usage { requests: 1000, ..NEW }, Err(NotKept::RequestsUsedUp)),
            (
                Settings { time: Some(Duration::from_secs(3599)), ..settings(2) },
                Ok(()),
                NEW,
                Err(NotKept::TooOld),
            ),
        ];
        for (settings, reuse, usage, expected) in rows {
            assert_eq!(may_keep(&settings, reuse, usage, now), expected);
        }
    }

    #[test]
    fn the_last_used_is_given_and_the_least_used_closed() {
        let mut pool = Pool::new(settings(2));
        assert_eq!(pool.put(0, 'a', NEW, seconds(0)), None);
        assert_eq!(pool.put(1, 'b', NEW, seconds(1)), None);
        assert_eq!(pool.put(0, 'c', NEW, seconds(2)), Some('a'));
        assert_eq!(pool.put(0, 'd', NEW, seconds(3)), Some('b'));
        assert_eq!(pool.take(1, seconds(4)), None);
        assert_eq!(pool.take(0, seconds(4)), Some(('d', NEW)));
        assert_eq!(pool.take(0, seconds(4)), Some(('c', NEW)));
        assert!(pool.is_empty());
    }

    #[test]
    fn idle_connections_expire() {
        let mut pool = Pool::new(settings(4));
        pool.put(0, 'a', NEW, seconds(0));
        pool.put(0, 'b', NEW, seconds(10));
        assert_eq!(pool.next_deadline(), Some(seconds(60)));
        assert_eq!(pool.expire(seconds(59)), []);
        assert_eq!(pool.take(0, seconds(60)), Some(('b', NEW)));
        assert_eq!(pool.take(0, seconds(60)), None, "its time is over");
        assert_eq!(pool.expire(seconds(60)), ['a']);
        assert_eq!(pool.next_deadline(), None);
    }

    /// U4: what the peer closed while idle is taken out, and costs no request.
    #[test]
    fn closed_connections_are_taken_out() {
        let mut pool = Pool::new(settings(4));
        for name in ['a', 'b', 'c'] {
            pool.put(0, name, NEW, seconds(0));
        }
        assert_eq!(pool.remove(|_, name| *name == 'b'), ['b']);
        assert_eq!((pool.len(), pool.take(0, seconds(1))), (2, Some(('c', NEW))));
    }
}
