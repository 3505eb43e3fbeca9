//! HTTP dates and the calendar behind them: arithmetic on Unix seconds, without a clock and without a
//! time zone database.

use std::time::SystemTime;

/// Unix seconds as a calendar date and time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    /// From 1 to 9999.
    pub year: u16,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to 31.
    pub day: u8,
    /// From 0 to 23.
    pub hour: u8,
    /// From 0 to 59.
    pub minute: u8,
    /// From 0 to 59.
    pub second: u8,
    /// From 0 (Sunday) to 6.
    pub weekday: u8,
}

/// The months as dates and logs write them.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// The same as the form of RFC 850 has them.
const LONG_WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// How long a date is behind the day of its week.
const LONGEST_REST: usize = ", 06 Nov 1994 08:49:37 GMT".len();

const DAY: i64 = 86_400;
/// 0001-01-01 00:00:00 and 9999-12-31 23:59:59: four digits are all that the formats have.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// The calendar date and time of day, in UTC; times that four digits cannot hold are moved to the
/// nearest that they can.
pub fn civil(unix_secs: i64) -> Civil {
    let secs = unix_secs.clamp(FIRST, LAST);
    let (days, of_day) = (secs.div_euclid(DAY), secs.rem_euclid(DAY));
    // Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil {
        year: year as u16,
        month: month as u8,
        day: (of_year - (153 * march_month + 2) / 5 + 1) as u8,
        hour: (of_day / 3600) as u8,
        minute: (of_day / 60 % 60) as u8,
        second: (of_day % 60) as u8,
        weekday: (days + 4).rem_euclid(7) as u8,
    }
}

/// Writes an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub fn write(unix_secs: i64, out: &mut Vec<u8>) {
    let civil = civil(unix_secs);
    out.extend_from_slice(WEEKDAYS[usize::from(civil.weekday)].as_bytes());
    out.extend_from_slice(b", ");
    push_two(civil.day, out);
    out.push(b' ');
    out.extend_from_slice(MONTHS[usize::from(civil.month - 1)].as_bytes());
    out.push(b' ');
    push_four(civil.year, out);
    out.push(b' ');
    push_time(&civil, out);
    out.extend_from_slice(b" GMT");
}

/// The Unix seconds of an HTTP date in any of its three forms; `None` for anything else. As in nginx, the day of the
/// week need not be the right one; `UTC` is another name of `GMT`.
pub fn parse(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    exact(text).or_else(|| with_any_weekday(text))
}

fn exact(text: &str) -> Option<i64> {
    let date = httpdate::parse_http_date(text).ok()?;
    let since = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Reads a date with each day of the week in place of its own: one of them is right.
fn with_any_weekday(text: &str) -> Option<i64> {
    let (weekday, rest) = text.split_at_checked(text.find([',', ' '])?)?;
    let rest = rest.strip_suffix(" UTC").map_or(rest.into(), |rest| format!("{rest} GMT"));
    let is_short = weekday.len() == 3;
    let is_word = weekday.bytes().all(|byte| byte.is_ascii_alphabetic());
    if !is_word || rest.len() > LONGEST_REST {
        return None;
    }
    let names = if is_short { WEEKDAYS } else { LONG_WEEKDAYS };
    names.iter().find_map(|name| exact(&format!("{name}{rest}")))
}

/// Writes a number below 100 with two digits.
pub fn push_two(number: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + number / 10 % 10, b'0' + number % 10]);
}

/// Writes a number below 10,000 with four digits.
pub fn push_four(number: u16, out: &mut Vec<u8>) {
    push_two((number / 100) as u8, out);
    push_two((number % 100) as u8, out);
}

/// Writes `08:49:37`.
pub fn push_time(civil: &Civil, out: &mut Vec<u8>) {
    push_two(civil.hour, out);
    out.push(b':');
    push_two(civil.minute, out);
    out.push(b':');
    push_two(civil.second, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(unix_secs: i64) -> String {
        let mut out = Vec::new();
        write(unix_secs, &mut out);
        String::from_utf8(out).expect("a date is ASCII")
    }

    #[test]
    fn dates_are_written_as_imf_fixdate() {
        let table = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1, "Thu, 01 Jan 1970 00:00:01 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (2_145_916_555, "Thu, 31 Dec 2037 23:55:55 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MIN, "Mon, 01 Jan 0001 00:00:00 GMT"),
        ];
        for (secs, expected) in table {
            assert_eq!(written(secs), expected);
        }
    }

    #[test]
    fn all_three_forms_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn the_day_of_the_week_may_be_wrong_and_gmt_may_be_utc() {
        for text in [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sat, 06 Nov 1994 08:49:37 UTC",
            "Monday, 06-Nov-94 08:49:37 GMT",
            "Mon Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37 PST",
            "Mon, 06 Nov 1994 08:49:37 +0100",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "1, 06 Nov 1994 08:49:37 GMT",
            ", 06 Nov 1994 08:49:37 GMT",
            "\u{e9}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn a_written_date_reads_back(secs in 0..LAST) {
            prop_assert_eq!(parse(written(secs).as_bytes()), Some(secs));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&value);
        }
    }
}
