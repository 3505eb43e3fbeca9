//! `expires`: the meaning of its arguments, in the configuration or in the value of a variable.

use super::Template;
use crate::value::{self, Wrong};

const DAY: i64 = 86_400;

/// `expires`
#[derive(Clone, Debug)]
pub enum Expires {
    /// No `Expires` and no `Cache-Control`.
    Off,
    /// `Thu, 01 Jan 1970 00:00:01 GMT`, `no-cache`
    Epoch,
    /// `Thu, 31 Dec 2037 23:55:55 GMT`, ten years
    Max,
    /// So many seconds from now; negative means `no-cache`.
    After(i64),
    /// So many seconds from the file's modification.
    Modified(i64),
    /// `@15h30m`: seconds since midnight (UTC here).
    Daily(u32),
    /// What a value with variables says: read by [`Expires::read`] for each answer.
    By(Template),
    /// The same behind `modified`.
    ModifiedBy(Template),
}

impl Expires {
    /// A value without variables: `off`, `epoch`, `max`, a time, or `@` and a time of the day.
    pub fn read(text: &str, is_modified: bool) -> Result<Self, Wrong> {
        match text {
            "off" if !is_modified => return Ok(Self::Off),
            "epoch" if !is_modified => return Ok(Self::Epoch),
            "max" if !is_modified => return Ok(Self::Max),
            _ => {}
        }
        if let Some(daily) = text.strip_prefix('@').filter(|_| !is_modified) {
            let daily = seconds(daily)?;
            if daily > DAY {
                return Err("is a daily time of more than 24 hours");
            }
            return Ok(Self::Daily((daily % DAY) as u32));
        }
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let length = sign * seconds(text.strip_prefix(['-', '+']).unwrap_or(text))?;
        Ok(if is_modified { Self::Modified(length) } else { Self::After(length) })
    }
}

fn seconds(text: &str) -> Result<i64, Wrong> {
    i64::try_from(value::time(text)?.as_secs()).map_err(|_| "is too large")
}
