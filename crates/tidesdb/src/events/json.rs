//! Values of events as JSON.

use std::fmt::Write;
use std::time::Duration;

use super::LevelPart;

/// A value of a field of an event. A type that refers to such a value, for example an `Arc<str>`, needs no
/// implementation of its own.
pub(super) trait Json {
    /// Appends the value as JSON.
    fn json(&self, out: &mut String);
}

macro_rules! as_displayed {
    ($($of:ty)*) => {
        $(impl Json for $of {
            fn json(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
        })*
    };
}

as_displayed! { u8 u64 bool }

impl Json for f64 {
    fn json(&self, out: &mut String) {
        // JSON has no infinity and no NaN.
        let _ = if self.is_finite() { write!(out, "{self:.3}") } else { write!(out, "null") };
    }
}

/// Seconds.
impl Json for Duration {
    fn json(&self, out: &mut String) {
        let _ = write!(out, "{:.6}", self.as_secs_f64());
    }
}

impl Json for str {
    fn json(&self, out: &mut String) {
        out.push('"');
        for c in self.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                c if c < ' ' => {
                    let _ = write!(out, "\\u{:04x}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

impl Json for String {
    fn json(&self, out: &mut String) {
        self.as_str().json(out);
    }
}

impl<T: Json> Json for Vec<T> {
    fn json(&self, out: &mut String) {
        out.push('[');
        for (at, item) in self.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            item.json(out);
        }
        out.push(']');
    }
}

impl Json for LevelPart {
    fn json(&self, out: &mut String) {
        let Self { level, tables, bytes } = self;
        let _ = write!(out, "{{\"level\":{level},\"tables\":{tables},\"bytes\":{bytes}}}");
    }
}

/// Appends `secs` since the UNIX epoch in the form of RFC 3339, in UTC.
pub(super) fn timestamp(secs: u64, out: &mut String) {
    let (days, rest) = ((secs / 86_400).min(2_932_896), secs % 86_400); // until the year 9999
    // Civil date from days; each 400 years have 146,097 days. Years begin in March, so a leap day ends a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
}
