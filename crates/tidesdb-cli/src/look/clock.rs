//! Moments as text, in UTC.

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Returns the year, the month and the day of a number of days since the UNIX epoch. Each 400 years have 146,097 days; years begin in March
/// here, so a leap day ends a year.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// The inverse of [`date_of`]; `None` if there is no such day.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (from_march, of) = ((month + 9) % 12, year - i64::from(month <= 2));
    let (era, of) = (of.div_euclid(400), of.rem_euclid(400));
    let days = era * 146_097 + of * 365 + of / 4 - of / 100 + (153 * from_march + 2) / 5 + day - 1 - 719_468;
    (date_of(days) == (year, month, day)).then_some(days)
}

/// Returns the time of the day: `14:03:20`.
pub(crate) fn time_of_day(millis: u64) -> String {
    let secs = (millis / 1000) as i64 % DAY;
    format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

/// Returns the date and the time of the day: `2026-11-29 14:03:20 UTC`; without the date if the day is that of `now`.
pub(crate) fn moment(millis: u64, now: u64) -> String {
    let day = |millis: u64| (millis / 1000) as i64 / DAY;
    let time = time_of_day(millis);
    if day(millis) == day(now) {
        return format!("{time} UTC");
    }
    let (year, month, day) = date_of(day(millis).min(2_932_896)); // until the year 9999
    format!("{year:04}-{month:02}-{day:02} {time} UTC")
}

/// Parses a time of RFC 3339, with any offset, as milliseconds since the UNIX epoch.
pub(crate) fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(11..)?);
    matches!(text.as_bytes().get(10)?, b'T' | b't' | b' ').then_some(())?;
    let [year, month, day] = numbers(date, '-')?;
    let end = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, offset) = rest.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let secs = days_of(year, month, day)? * DAY + parse_clock(clock)?.0;
    let millis = match fraction {
        "" => 0,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{digits:0<3}").get(..3)?.parse().ok()?
        }
        _ => return None,
    };
    let offset = match offset {
        "Z" | "z" => 0,
        offset => parse_clock(&offset[1..])?.0 * if offset.starts_with('+') { 1 } else { -1 },
    };
    u64::try_from((secs - offset) * 1000 + millis).ok()
}

/// Parses a time of the day, `14:03` or `14:03:20`, as seconds, and says how many seconds it names: a minute or one.
pub(crate) fn parse_clock(text: &str) -> Option<(i64, i64)> {
    let (secs, span) = match numbers(text, ':') {
        Some([hour, minute, second]) => (Some((hour, minute, second)), 1),
        None => (numbers(text, ':').map(|[hour, minute]| (hour, minute, 0)), 60),
    };
    let (hour, minute, second) = secs?;
    let is_valid = hour < 24 && minute < 60 && second < 60;
    is_valid.then_some((hour * 3600 + minute * 60 + second, span))
}

/// Parses numbers of digits alone, between separators.
fn numbers<const N: usize>(text: &str, between: char) -> Option<[i64; N]> {
    let number = |part: &str| {
        let is_short = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        is_short.then(|| part.parse().ok()).flatten()
    };
    let all: Option<Vec<i64>> = text.split(between).map(number).collect();
    all?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_796_040_000_000; // 2026-11-30T12:00:00Z

    #[test]
    fn moments_are_written_and_read_back() {
        assert_eq!(moment(NOON, NOON), "12:00:00 UTC");
        assert_eq!(moment(NOON, NOON + 86_400_000), "2026-11-30 12:00:00 UTC");
        assert_eq!(moment(951_782_399_000, 0), "2000-02-28 23:59:59 UTC");
        assert_eq!(moment(u64::MAX, 0).len(), "9999-12-31 23:59:59 UTC".len());
        for (text, millis) in [
            ("2026-11-30T12:00:00Z", NOON),
            ("2026-11-30 12:00:00z", NOON),
            ("2026-11-30T13:30:00+01:30", NOON),
            ("2026-11-30T11:00:00.25-01:00", NOON + 250),
            ("2000-02-29T00:00:00.1239Z", 951_782_400_123),
            ("1970-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(parse_rfc3339(text), Some(millis), "{text}");
        }
        for bad in [
            "",
            "2026-11-30",
            "2026-11-30T12:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "2026-11-30T12:00:00.xZ",
            "2026-11-30T12:00:00+1",
            "+026-11-30T12:00:00Z",
            "2026-11-30T12:00:00\u{e9}Z",
            "2026-11-3\u{e9}12:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_of_the_day_name_a_minute_or_a_second() {
        assert_eq!(parse_clock("14:03"), Some((50_580, 60)));
        assert_eq!(parse_clock("14:03:20"), Some((50_600, 1)));
        for bad in ["", "14", "24:00", "14:60", "14:03:60", "14:03:", "-1:03", "14:03:20:1", "99999:00"] {
            assert_eq!(parse_clock(bad), None, "{bad}");
        }
    }
}
