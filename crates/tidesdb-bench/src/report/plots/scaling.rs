//! Rows that differ in one setting only, as lines over that setting.

use std::collections::BTreeMap;

use crate::spec::{Durability, Spec};

use super::super::lines::Line;
use super::super::score::Better;
use super::super::words::{Unit, counted};
use super::contest::{contests, finding, note};
use super::facets::{Facet, Facets};
use super::{Contest, Drawn, Pick, Stage};

/// The setting on the axis.
struct Axis {
    /// Its value.
    value: fn(&Spec) -> u64,
    /// Equalizes other settings that may differ.
    level: fn(&mut Spec),
    /// Formats a value.
    label: fn(u64) -> String,
    /// Selects the figure.
    pick: Pick,
    unit: Unit,
    /// Formats the settings shared by all rows of a chart, for its title.
    fixed: fn(&Spec) -> String,
    /// Formats a value of the setting in a sentence.
    words: fn(&str) -> String,
}

/// Draws rates over batch sizes.
pub(super) fn batches(stage: &Stage<'_>) -> Option<Drawn> {
    let axis = Axis {
        value: |s| s.batch,
        level: |s| s.batch = 0,
        label: |n| Unit::Rate.tick(n as f64),
        pick: |l| l.rate,
        unit: Unit::Rate,
        fixed: |s| format!("{}, {} B", counted(s.threads, "thread"), s.value_bytes),
        words: |n| format!("batches of {n}"),
    };
    axis.plot(stage, |line| {
        matches!(
            line.operation.as_str(),
            "PUT" | "DELETE" | "CHURN" | "APPEND" | "TAKE" | "INSERT" | "UPDATE"
        )
    })
}

/// Draws bytes per second over value sizes.
pub(super) fn values(stage: &Stage<'_>) -> Option<Drawn> {
    let axis = Axis {
        value: |s| s.value_bytes as u64,
        level: |s| (s.value_bytes, s.key_bytes) = (0, 0),
        label: |n| if n < 1 << 20 { format!("{n} B") } else { Unit::Bytes.tick(n as f64) },
        pick: |l| l.rate.map(|rate| rate * l.spec.entry_bytes() as f64),
        unit: Unit::Flow,
        fixed: |s| format!("{}, batches of {}", counted(s.threads, "thread"), s.batch),
        words: |n| format!("values of {n}"),
    };
    axis.plot(stage, |line| {
        !matches!(line.operation.as_str(), "ITER" | "SCAN" | "RANGE" | "SEEK" | "DELETE" | "TX")
    })
}

/// Draws rates of durable writes over threads.
pub(super) fn threads(stage: &Stage<'_>) -> Option<Drawn> {
    let axis = Axis {
        value: |s| s.threads as u64,
        level: |s| s.threads = 0,
        label: |n| n.to_string(),
        pick: |l| l.rate,
        unit: Unit::Rate,
        fixed: |s| format!("batches of {}", s.batch),
        words: |n| format!("{n} threads"),
    };
    axis.plot(stage, |line| line.spec.durability == Durability::Device && line.operation != "ITER")
}

impl Axis {
    fn plot(&self, stage: &Stage<'_>, wanted: fn(&Line) -> bool) -> Option<Drawn> {
        let lines: Vec<&Line> = stage.lines.iter().copied().filter(|l| wanted(l)).collect();
        let facets = self.facets(stage, &lines);
        if facets.is_empty() {
            return None;
        }
        let named = |(facet, contest): (&Facet, &Contest)| Contest {
            label: (self.words)(&contest.label),
            note: format!("({})", facet.title),
            points: contest.points.clone(),
        };
        let all: Vec<Contest> =
            facets.iter().flat_map(|f| f.stops.iter().map(move |(_, c)| named((f, c)))).collect();
        let finding = finding(&all, &stage.cast, Better::Higher, self.unit);
        Some((finding, stage.facets(Facets { unit: self.unit, small: false }, &facets)))
    }

    /// Returns one chart for each group of lines that differ only in the setting, if it has at least two values.
    fn facets(&self, stage: &Stage<'_>, lines: &[&Line]) -> Vec<Facet> {
        let mut groups: Vec<(String, BTreeMap<u64, Vec<&Line>>)> = Vec::new();
        for line in lines {
            let key = format!("{} {:?}", line.operation, self.alike(&line.spec));
            let at = match groups.iter().position(|(k, _)| *k == key) {
                Some(at) => at,
                None => {
                    groups.push((key, BTreeMap::new()));
                    groups.len() - 1
                }
            };
            groups[at].1.entry((self.value)(&line.spec)).or_default().push(line);
        }
        groups.retain(|(_, values)| values.len() > 1);
        groups.iter().map(|(_, values)| self.facet(stage, values)).collect()
    }

    fn facet(&self, stage: &Stage<'_>, values: &BTreeMap<u64, Vec<&Line>>) -> Facet {
        let mut title = String::new();
        let mut stops = Vec::new();
        for (value, lines) in values {
            // If several rows have the same value, the first one of the suite is used.
            let Some(contest) = contests(lines, &stage.cast, true, self.pick).into_iter().next() else {
                continue;
            };
            if let Some(line) = lines.first().filter(|_| title.is_empty()) {
                let spec = &line.spec;
                title = format!("{}, {}, {}", note(line, true), spec.pattern.name(), (self.fixed)(spec));
            }
            let at = (*value as f64).max(0.5).ln();
            stops.push((at, Contest { label: (self.label)(*value), ..contest }));
        }
        Facet { title, stops }
    }

    /// Returns the settings that must agree. Numbers of operations and keys may differ, because slow rows have fewer.
    fn alike(&self, spec: &Spec) -> Spec {
        let mut spec = Spec { name: String::new(), ops: 0, keys: 0, ..spec.clone() };
        (self.level)(&mut spec);
        spec
    }
}
