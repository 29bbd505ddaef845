//! Formatting of figures: three digits, SI prefixes, units. Every figure has its unit.

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Operations per second.
    Rate,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    Flow,
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
    /// A ratio.
    Times,
    /// Percent.
    Percent,
}

/// Prefixes of bytes.
const BYTES: [(f64, &str); 5] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];

/// The multiplication sign.
pub(crate) const TIMES: &str = "\u{d7}";
/// Shown where there is no figure.
pub(crate) const DASH: &str = "\u{2013}";

impl Unit {
    /// Formats a figure with three digits and its unit.
    pub(crate) fn show(self, n: f64) -> String {
        self.write(n, figure)
    }

    /// Formats a round figure for an axis.
    pub(crate) fn tick(self, n: f64) -> String {
        self.write(n, plain)
    }

    fn write(self, n: f64, digits: fn(f64) -> String) -> String {
        match self {
            Self::Rate => scaled(n, digits, &[(1e9, "G"), (1e6, "M"), (1e3, "k")], "", ""),
            Self::Bytes => scaled(n, digits, &BYTES, "B", " "),
            Self::Flow => format!("{}/s", scaled(n, digits, &BYTES, "B", " ")),
            Self::Micros => scaled(n, digits, &[(1e6, "s"), (1e3, "ms"), (1.0, "\u{b5}s")], "ns", " "),
            Self::Seconds => match n {
                n if n >= 1.0 || n <= 0.0 => format!("{} s", digits(n)),
                n if n >= 1e-3 => format!("{} ms", digits(n * 1e3)),
                n => format!("{} \u{b5}s", digits(n * 1e6)),
            },
            Self::Times => format!("{}{TIMES}", digits(n)),
            Self::Percent => format!("{} %", digits(n)),
        }
    }
}

/// Formats with the largest prefix that fits; `small` is the unit a thousand times below the last.
fn scaled(n: f64, digits: fn(f64) -> String, prefixes: &[(f64, &str)], small: &str, space: &str) -> String {
    match prefixes.iter().find(|(size, _)| n >= *size) {
        Some((size, name)) => format!("{}{space}{name}", digits(n / size)),
        None if small.is_empty() => digits(n),
        None if small == "B" => format!("{}{space}{small}", digits(n)),
        None => format!("{}{space}{small}", digits(n * 1e3)),
    }
}

/// Formats three digits.
pub(crate) fn figure(n: f64) -> String {
    match n {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// Formats at most three digits, without trailing zeros.
fn plain(n: f64) -> String {
    let text = if n.abs() < 0.0995 && n != 0.0 { format!("{n:.4}") } else { figure(n) };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a number and the word, in the plural where needed.
pub(crate) fn counted(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// Escapes text for element content and quoted attributes of HTML and XML. Characters that are not allowed there become replacement
/// characters, and so do characters that change the writing direction, which could make a name look like another.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns at most `most` characters, the last one an ellipsis if some are cut.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(most.saturating_sub(1)).collect();
    out.push('\u{2026}');
    out
}

/// Formats date and time in UTC from seconds since 1970.
pub(crate) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have the leap day at their end: then one formula gives the number of days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (unit, n, text) in [
            (Unit::Rate, 1_234_567.0, "1.23M"),
            (Unit::Rate, 999.6, "1000"),
            (Unit::Rate, 45_600.0, "45.6k"),
            (Unit::Bytes, 0.0, "0.00 B"),
            (Unit::Bytes, 1536.0, "1.54 kB"),
            (Unit::Flow, 3e6, "3.00 MB/s"),
            (Unit::Micros, 0.25, "250 ns"),
            (Unit::Micros, 12_500.0, "12.5 ms"),
            (Unit::Seconds, 0.0021, "2.10 ms"),
            (Unit::Times, 1.5, "1.50\u{d7}"),
            (Unit::Percent, 99.96, "100 %"),
        ] {
            assert_eq!(unit.show(n), text);
        }
        assert_eq!((Unit::Rate.tick(2e6), Unit::Times.tick(0.05)), ("2M".into(), "0.05\u{d7}".into()));
        assert_eq!((Unit::Rate.tick(100.0), Unit::Micros.tick(10.0)), ("100".into(), "10 \u{b5}s".into()));
        assert_eq!(Unit::Percent.tick(0.0), "0 %");
    }

    #[test]
    fn hostile_text_is_escaped() {
        assert_eq!(
            escape("<b a='x' c=\"y\">&\u{0}\u{202e}\u{1b}"),
            "&lt;b a=&#39;x&#39; c=&quot;y&quot;&gt;&amp;\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!((clipped("abc", 3), clipped("abcd", 3)), ("abc".into(), "ab\u{2026}".into()));
    }

    #[test]
    fn dates_are_correct() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400 + 3660), "2000-02-29 01:01 UTC");
        assert_eq!(date(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(date(1_772_323_200), "2026-03-01 00:00 UTC");
    }
}
