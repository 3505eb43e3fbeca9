//! The only file that asks the machine for the time.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sekisho_http::{Fields, date};
use sekisho_lifecycle::Moment;
use sekisho_log::Stamp;
use sekisho_route::WallTime;

/// The wall clock is read again after this time; dates in heads have a resolution of a second.
const WALL_FRESH: Duration = Duration::from_millis(5);
/// The local offset from UTC is looked up again after this many seconds.
const OFFSET_FRESH_SECS: i64 = 60;

/// A worker's clock: monotonic moments, and the wall clock with its date line made once a second.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    /// The time that a simulation has set.
    #[cfg(feature = "simulation")]
    set: Cell<Option<Moment>>,
    wall: Cell<WallTime>,
    wall_read: Cell<Option<Moment>>,
    offset_read_secs: Cell<i64>,
    date_secs: Cell<i64>,
    date: RefCell<Fields>,
}

/// The time since 1970, for code without a worker's clock, such as the validity of certificates.
#[expect(clippy::disallowed_methods, reason = "this is the one file that asks")]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Clock {
    /// A clock whose monotonic zero is `start`: the same for all workers, so that moments compare.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            #[cfg(feature = "simulation")]
            set: Cell::new(None),
            wall: Cell::new(WallTime { unix_secs: 0, nanos: 0, utc_offset_secs: 0 }),
            wall_read: Cell::new(None),
            offset_read_secs: Cell::new(i64::MIN),
            date_secs: Cell::new(i64::MIN),
            date: RefCell::default(),
        }
    }

    /// The machine's monotonic clock, for the start of a process.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
    pub fn machine_now() -> Instant {
        Instant::now()
    }

    /// The same clock as other programs know it: since the machine started.
    pub fn machine_monotonic() -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    /// Sets the time: from here on it is always what was set last.
    #[cfg(feature = "simulation")]
    pub fn set(&self, now: Moment) {
        self.set.set(Some(now));
    }

    /// This moment.
    pub fn now(&self) -> Moment {
        #[cfg(feature = "simulation")]
        if let Some(set) = self.set.get() {
            return set;
        }
        let since = Self::machine_now().duration_since(self.start);
        Moment::from_nanos(since.as_nanos() as u64)
    }

    /// A moment as the runtime's timer understands it.
    pub fn instant(&self, moment: Moment) -> tokio::time::Instant {
        (self.start + Duration::from_nanos(moment.as_nanos())).into()
    }

    /// The moment of an instant of the machine's clock.
    pub fn moment(&self, instant: Instant) -> Moment {
        let since = instant.saturating_duration_since(self.start);
        Moment::from_nanos(since.as_nanos() as u64)
    }

    /// The wall clock at `now`.
    pub fn wall(&self, now: Moment) -> WallTime {
        if self.wall_read.get().is_none_or(|read| now.since(read) >= WALL_FRESH) {
            self.read_wall(now);
        }
        self.wall.get()
    }

    /// The same, for the error log.
    pub fn stamp(&self, now: Moment) -> Stamp {
        let wall = self.wall(now);
        Stamp { unix_secs: wall.unix_secs, utc_offset_secs: wall.utc_offset_secs }
    }

    /// Adds `Date`. Its text is made once a second.
    pub fn push_date(&self, now: Moment, fields: &mut Fields) {
        let secs = self.wall(now).unix_secs;
        if self.date_secs.get() != secs {
            let mut made = self.date.borrow_mut();
            made.clear();
            made.push_with("Date", |value| date::write(secs, value));
            self.date_secs.set(secs);
        }
        fields.extend_from(&self.date.borrow());
    }

    fn read_wall(&self, now: Moment) {
        #[cfg(feature = "simulation")]
        if let Some(set) = self.set.get() {
            let unix_secs = (set.as_nanos() / 1_000_000_000) as i64;
            self.wall.set(WallTime { unix_secs, nanos: 0, utc_offset_secs: 0 });
            self.wall_read.set(Some(now));
            return;
        }
        let since = unix_time();
        let unix_secs = since.as_secs() as i64;
        let mut utc_offset_secs = self.wall.get().utc_offset_secs;
        // `abs_diff`: the wall clock may jump, in either direction (X14).
        if unix_secs.abs_diff(self.offset_read_secs.get()) >= OFFSET_FRESH_SECS as u64 {
            utc_offset_secs = local_offset(unix_secs);
            self.offset_read_secs.set(unix_secs);
        }
        self.wall.set(WallTime { unix_secs, nanos: since.subsec_nanos(), utc_offset_secs });
        self.wall_read.set(Some(now));
    }
}

fn local_offset(unix_secs: i64) -> i32 {
    let Ok(at) = jiff::Timestamp::from_second(unix_secs) else { return 0 };
    jiff::tz::TimeZone::system().to_offset(at).seconds()
}
