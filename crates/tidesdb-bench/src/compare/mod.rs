//! Compares two results: which rows became slower, and whether the change exceeds the noise.
//!
//! A row is a regression if its median fell by more than the threshold and the ranges of its repetitions do not overlap,
//! or if it failed only in the new results.

mod page;

use std::fmt::Write;

use crate::report::{Line, Spread, counted, geometric_mean, lines, table_rate};
use crate::run::Results;

pub use page::html;

/// One line of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The row.
    pub row: String,
    /// The operation; empty if the row failed.
    pub operation: String,
    /// The engine.
    pub engine: String,
    /// Operations per second before and after, with their ranges; `None` if missing.
    pub rates: (Option<Spread>, Option<Spread>),
    /// The verdict.
    pub verdict: Verdict,
}

impl Change {
    /// Returns row, operation and engine.
    pub fn name(&self) -> String {
        let words = [&self.row, &self.operation, &self.engine];
        let there: Vec<&str> =
            words.iter().map(|word| word.as_str()).filter(|word| !word.is_empty()).collect();
        there.join(" ")
    }

    /// Returns how many times as fast it became.
    pub fn ratio(&self) -> Option<f64> {
        match self.rates {
            (Some(old), Some(new)) if old.median > 0.0 && new.median > 0.0 => Some(new.median / old.median),
            _ => None,
        }
    }
}

/// Verdict on a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the threshold or the noise.
    Same,
    /// Faster by more than the threshold and the noise.
    Better,
    /// Slower by more than the threshold and the noise.
    Worse,
    /// Failed only in the new results.
    Broken,
    /// Failed only in the old results.
    Repaired,
    /// Missing in one of them, or failed in both.
    Incomparable,
}

impl Verdict {
    /// Returns the word for the verdict.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Broken => "BROKEN",
            Self::Repaired => "repaired",
            Self::Incomparable => "not comparable",
        }
    }
}

/// Compares line by line; `threshold` is a fraction of the old rate, such as 0.05.
pub fn compare(old: &Results, new: &Results, threshold: f64) -> Vec<Change> {
    let (old, new) = (lines(old), lines(new));
    let name = |l: &Line| (l.row.clone(), l.engine.clone(), l.operation.clone());
    let partner = |all: &[Line], l: &Line| all.iter().find(|o| name(o) == name(l)).cloned();
    let broken = |all: &[Line], l: &Line| {
        all.iter().any(|o| o.failure.is_some() && (&o.row, &o.engine) == (&l.row, &l.engine))
    };
    let mut changes: Vec<Change> = new
        .iter()
        .map(|line| {
            let before = partner(&old, line);
            let verdict = match (&before, line.failure.is_some()) {
                (_, true) if broken(&old, line) => Verdict::Incomparable,
                (_, true) => Verdict::Broken,
                (Some(before), false) => judge(before, line, threshold),
                (None, false) if broken(&old, line) => Verdict::Repaired,
                (None, false) => Verdict::Incomparable,
            };
            change(before.as_ref(), Some(line), verdict)
        })
        .collect();
    let gone = old.iter().filter(|l| partner(&new, l).is_none() && !broken(&new, l));
    changes.extend(gone.map(|l| change(Some(l), None, Verdict::Incomparable)));
    changes
}

fn judge(old: &Line, new: &Line, threshold: f64) -> Verdict {
    let ratio = new.rate.median / old.rate.median.max(f64::MIN_POSITIVE);
    if ratio < 1.0 - threshold && new.rate.high < old.rate.low {
        return Verdict::Worse;
    }
    if ratio > 1.0 + threshold && new.rate.low > old.rate.high {
        return Verdict::Better;
    }
    Verdict::Same
}

fn change(old: Option<&Line>, new: Option<&Line>, verdict: Verdict) -> Change {
    let rate = |l: Option<&Line>| l.filter(|l| l.is_measured()).map(|l| l.rate);
    let named = |pick: fn(&Line) -> &String| old.or(new).map(pick).cloned().unwrap_or_default();
    Change {
        row: named(|l| &l.row),
        operation: named(|l| &l.operation),
        engine: named(|l| &l.engine),
        rates: (rate(old), rate(new)),
        verdict,
    }
}

/// Returns whether at least one row became worse.
pub fn is_worse(changes: &[Change]) -> bool {
    changes.iter().any(|c| matches!(c.verdict, Verdict::Worse | Verdict::Broken))
}

/// Returns the geometric mean of all ratios, and their number.
pub fn mean(changes: &[Change]) -> Option<(f64, usize)> {
    let ratios: Vec<f64> = changes.iter().filter_map(Change::ratio).collect();
    geometric_mean(ratios.iter().copied()).map(|mean| (mean, ratios.len()))
}

/// Returns the comparison as a table, with the significant changes and the geometric mean of all ratios at the end.
pub fn table(changes: &[Change]) -> String {
    let width = changes.iter().map(|c| c.name().chars().count()).max().unwrap_or(0);
    let mut out = format!("{:<width$}  {:>8}  {:>8}  {:>6}\n", "row", "old", "new", "ratio");
    for change in changes {
        let show = |r: Option<Spread>| r.map_or_else(|| "-".to_owned(), |r| table_rate(r.median));
        let ratio = change.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let (old, new) = (show(change.rates.0), show(change.rates.1));
        let (name, verdict) = (change.name(), change.verdict.word());
        let line = format!("{name:<width$}  {old:>8}  {new:>8}  {ratio:>6}  {verdict}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for (title, verdicts) in [
        ("regression", [Verdict::Worse, Verdict::Broken]),
        ("improvement", [Verdict::Better, Verdict::Repaired]),
    ] {
        section(&mut out, title, changes.iter().filter(|c| verdicts.contains(&c.verdict)).collect());
    }
    let (mean, n) = mean(changes).unwrap_or((1.0, 0));
    let _ = writeln!(out, "geometric mean of {n} ratios: {mean:.3}");
    out
}

/// Appends the significant changes, the largest first, with their ranges.
fn section(out: &mut String, title: &str, mut changes: Vec<&Change>) {
    let size = |c: &Change| c.ratio().map_or(f64::INFINITY, |ratio| ratio.ln().abs());
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let _ = writeln!(out, "{}", counted(changes.len(), title));
    for change in changes {
        let range = |r: Option<Spread>| match r {
            Some(r) => format!("{}..{}", table_rate(r.low), table_rate(r.high)),
            None => "no figures".to_owned(),
        };
        let (old, new) = (range(change.rates.0), range(change.rates.1));
        let ratio = change.ratio().map_or_else(String::new, |ratio| format!(", {ratio:.2}x"));
        let what = match change.verdict {
            Verdict::Broken => "it failed, and did not before".to_owned(),
            Verdict::Repaired => format!("{new}, failed before"),
            _ => format!("{old} -> {new}{ratio}"),
        };
        let _ = writeln!(out, "  {}: {what}", change.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Machine;
    use crate::run::FORMAT;
    use crate::spec::Spec;
    use crate::stage::Outcome;
    use crate::workload::Phase;

    fn results(rows: &[(&str, &[u64])]) -> Results {
        let mut outcomes = Vec::new();
        for (name, rates) in rows {
            let spec = Spec { name: (*name).to_owned(), ..Spec::default() };
            for rate in *rates {
                let mut outcome = Outcome::new("tidesdb", &spec);
                outcome.phases =
                    vec![Phase { operation: "PUT".to_owned(), ops: *rate, seconds: 1.0, latency: None }];
                outcome.failure = (*rate == 0).then(|| "lost".to_owned());
                outcomes.push(outcome);
            }
        }
        let machine = Machine::default();
        let rows = Vec::new();
        Results {
            rows,
            format: FORMAT,
            version: String::new(),
            suite: String::new(),
            begun: 0,
            seed: 0,
            machine,
            outcomes,
        }
    }

    #[test]
    fn only_changes_beyond_the_noise_are_flagged() {
        let old = results(&[
            ("same", &[100, 110]),
            ("slow", &[100, 110]),
            ("noisy", &[80, 100, 110]),
            ("fast", &[100]),
            ("breaks", &[100]),
            ("heals", &[0]),
            ("gone", &[1]),
        ]);
        let new = results(&[
            ("same", &[97, 108]),
            ("slow", &[80, 90]),
            ("noisy", &[60, 70, 90]),
            ("fast", &[150]),
            ("breaks", &[0]),
            ("heals", &[5]),
            ("new", &[1]),
        ]);
        let changes = compare(&old, &new, 0.05);
        let of = |name: &str| changes.iter().find(|c| c.row == name).unwrap().verdict;
        assert_eq!(of("same"), Verdict::Same);
        assert_eq!(of("slow"), Verdict::Worse);
        assert_eq!(of("noisy"), Verdict::Same);
        assert_eq!(of("fast"), Verdict::Better);
        assert_eq!(of("breaks"), Verdict::Broken);
        assert_eq!(of("heals"), Verdict::Repaired);
        assert_eq!((of("gone"), of("new")), (Verdict::Incomparable, Verdict::Incomparable));
        assert!(is_worse(&changes) && !is_worse(&compare(&old, &old, 0.05)));
        let text = table(&changes);
        assert!(text.contains("2 regressions\n  breaks tidesdb: it failed, and did not before\n  slow PUT tidesdb: 100..110 -> 80.0..90.0, 0.81x"), "{text}");
        assert!(text.contains("WORSE") && text.contains("geometric mean of 4 ratios: 0.9"), "{text}");
    }
}
