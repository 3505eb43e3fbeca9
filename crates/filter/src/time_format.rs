//! Times in the forms of `strftime`, in the C locale.

use sekisho_http::date::{self, Civil, civil};

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// A longer text is cut: forms come from pages.
const TEXT_BYTES_MAX: usize = 4096;

/// A zone of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// GMT.
    Gmt,
    /// So many seconds ahead of it.
    Local(i32),
}

impl Zone {
    const fn offset(self) -> i32 {
        match self {
            Self::Gmt => 0,
            Self::Local(offset) => offset,
        }
    }
}

/// Writes a time in this form; what is no form of `strftime` stays as it is.
pub fn write(unix_secs: i64, zone: Zone, format: &[u8], out: &mut Vec<u8>) {
    let end = out.len() + TEXT_BYTES_MAX;
    let time = civil(unix_secs.saturating_add(i64::from(zone.offset())));
    let mut bytes = format.iter();
    while let Some(byte) = bytes.next() {
        if out.len() >= end {
            return;
        }
        match (byte, bytes.as_slice().first()) {
            (b'%', Some(form)) => {
                bytes.next();
                one(*form, unix_secs, zone, time, out);
            }
            _ => out.push(*byte),
        }
    }
}

fn one(form: u8, unix_secs: i64, zone: Zone, time: Civil, out: &mut Vec<u8>) {
    let Civil { year, month, day, hour, minute, second, weekday } = time;
    let weekday_name = WEEKDAYS[usize::from(weekday % 7)];
    let month_name = MONTHS[usize::from(month.clamp(1, 12) - 1)];
    let hour_of_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut put = |text: String| out.extend_from_slice(text.as_bytes());
    match form {
        b'a' => put(weekday_name[..3].to_owned()),
        b'A' => put(weekday_name.to_owned()),
        b'b' | b'h' => put(month_name[..3].to_owned()),
        b'B' => put(month_name.to_owned()),
        b'c' => put(format!(
            "{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}",
            &weekday_name[..3],
            &month_name[..3]
        )),
        b'C' => date::push_two((year / 100) as u8, out),
        b'd' => date::push_two(day, out),
        b'D' | b'x' => put(format!("{month:02}/{day:02}/{:02}", year % 100)),
        b'e' => put(format!("{day:2}")),
        b'F' => put(format!("{year:04}-{month:02}-{day:02}")),
        b'H' => date::push_two(hour, out),
        b'I' => date::push_two(hour_of_12, out),
        b'j' => put(format!("{:03}", day_of_year(time))),
        b'k' => put(format!("{hour:2}")),
        b'l' => put(format!("{hour_of_12:2}")),
        b'm' => date::push_two(month, out),
        b'M' => date::push_two(minute, out),
        b'n' => out.push(b'\n'),
        b'p' => put(if hour < 12 { "AM" } else { "PM" }.to_owned()),
        b'r' => {
            let half = if hour < 12 { "AM" } else { "PM" };
            put(format!("{hour_of_12:02}:{minute:02}:{second:02} {half}"));
        }
        b'R' => put(format!("{hour:02}:{minute:02}")),
        b's' => put(unix_secs.to_string()),
        b'S' => date::push_two(second, out),
        b't' => out.push(b'\t'),
        b'T' | b'X' => put(format!("{hour:02}:{minute:02}:{second:02}")),
        b'u' => put((if weekday == 0 { 7 } else { weekday }).to_string()),
        b'w' => put(weekday.to_string()),
        b'y' => date::push_two((year % 100) as u8, out),
        b'Y' => put(year.to_string()),
        b'Z' if zone.offset() == 0 => put("GMT".to_owned()),
        // Without a database of zones, another one than Greenwich's has its distance for a name.
        b'z' | b'Z' => put(offset_text(zone)),
        b'%' => out.push(b'%'),
        other => out.extend_from_slice(&[b'%', other]),
    }
}

fn offset_text(zone: Zone) -> String {
    let offset = zone.offset();
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.unsigned_abs() / 60;
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}

fn day_of_year(time: Civil) -> u16 {
    const BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = time.year.is_multiple_of(4)
        && (!time.year.is_multiple_of(100) || time.year.is_multiple_of(400));
    let before = BEFORE[usize::from(time.month.clamp(1, 12) - 1)];
    before + u16::from(time.day) + u16::from(is_leap && time.month > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_strftime_does() {
        // 1994-11-06 08:49:37, a Sunday.
        let at = 784_111_777;
        for (format, expected) in [
            ("%A, %d-%b-%Y %H:%M:%S %Z", "Sunday, 06-Nov-1994 08:49:37 GMT"),
            ("%a %B %e %I %p %j %y %u %w", "Sun November  6 08 AM 310 94 7 0"),
            ("%F %T %D %R %c", "1994-11-06 08:49:37 11/06/94 08:49 Sun Nov  6 08:49:37 1994"),
            ("%s %% %Q %", "784111777 % %Q %"),
            ("IF", "IF"),
        ] {
            let mut out = Vec::new();
            write(at, Zone::Gmt, format.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).expect("text"), expected);
        }
        let mut out = Vec::new();
        write(at, Zone::Local(-19_800), b"%d %H:%M %z %Z", &mut out);
        assert_eq!(out, b"06 03:19 -0530 -0530");
    }
}
