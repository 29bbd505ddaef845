//! Targets of the suite `beyond-memory`: this engine against each rival of the same run.

use crate::suite::beyond::{GET, GET_WHILE_WRITING, LOAD, MULTIGET, OVERWRITE, SCAN};

use super::lines::{Line, OURS, Spread};
use super::words::{Unit, figure};

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Figure that is compared.
    pub what: String,
    /// Figure of this engine.
    pub ours: String,
    /// Figure of the rival.
    pub rival: String,
    /// Result: a ratio for rates.
    pub stands: String,
    /// Required result; empty if nothing is required.
    pub wanted: String,
    /// Whether the target is met; `None` if a figure is missing.
    pub met: Option<bool>,
}

impl Target {
    /// Returns the verdict as words.
    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None if self.wanted.is_empty() => "",
            None => "not measured",
        }
    }
}

/// Targets for rates: row, operation, and the required ratio to the rival.
const RATES: [(&str, &str, &str, f64); 5] = [
    ("load in batches of 100", LOAD, "PUT", 2.3),
    ("overwrite at random", OVERWRITE, "PUT", 1.5),
    ("random get", GET, "GET", 2.0),
    ("multi_get of 32, keys", MULTIGET, "MULTIGET", 3.0),
    ("full scan, rows", SCAN, "ITER", 3.0),
];
/// The slowest get must not be slower than that of the rival.
const SLOWEST: [(&str, &str); 2] = [("slowest get", GET), ("slowest get during writes", GET_WHILE_WRITING)];
/// Maximum bytes that a get of a cold key may read from the device.
const READ_PER_GET: f64 = 4.5 * 1024.0;

/// Returns the targets against a rival; empty if it did not run the suite.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    let suite = [LOAD, OVERWRITE, GET, MULTIGET, SCAN, GET_WHILE_WRITING];
    if !lines.iter().any(|l| l.engine == rival && suite.contains(&l.row.as_str())) {
        return Vec::new();
    }
    let find = |row: &str, operation: &str, engine: &str| {
        let mut of = lines.iter().filter(|l| l.is_measured() && l.row == row && l.engine == engine);
        of.find(|l| l.operation == operation)
    };
    let pair = |row, operation, pick: fn(&Line) -> Spread| {
        [OURS, rival].map(|engine| {
            let there = find(row, operation, engine).map(pick).filter(Spread::is_there);
            there.map(|spread| spread.median)
        })
    };
    let mut all: Vec<Target> = RATES
        .into_iter()
        .map(|(what, row, operation, times)| {
            let [ours, theirs] = pair(row, operation, |l| l.rate);
            let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
            Target {
                stands: ratio.map_or_else(String::new, |n| format!("{}x", figure(n))),
                wanted: format!(">= {times}x"),
                met: ratio.map(|n| n >= times),
                ..shown(what, [ours, theirs], |n| format!("{}/s", Unit::Rate.show(n)))
            }
        })
        .collect();
    let read = [OURS, rival].map(|engine| find(GET, "GET", engine).map(|l| l.read_per_op.median));
    all.insert(
        3,
        Target {
            wanted: "<= 4.5 KiB".to_owned(),
            met: read[0].map(|n| n <= READ_PER_GET),
            ..shown("read from the device per random get", read, |n| format!("{:.2} KiB", n / 1024.0))
        },
    );
    for (what, row) in SLOWEST {
        let both = pair(row, "GET", |l| l.max);
        all.push(at_most(what, both, |n| Unit::Micros.show(n).replace('\u{b5}', "u")));
    }
    let memory = [OURS, rival].map(|engine| {
        let of = lines.iter().filter(|l| l.is_measured() && l.engine == engine);
        of.map(|l| l.memory.median).reduce(f64::max)
    });
    all.push(at_most("resident memory, peak of all stages", memory, |n| {
        format!("{:.0} MiB", n / f64::from(1 << 20))
    }));
    all
}

/// Builds a target whose bound is the rival's figure.
fn at_most(what: &'static str, both: [Option<f64>; 2], words: fn(f64) -> String) -> Target {
    let [ours, theirs] = both;
    let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
    Target {
        stands: ratio.map_or_else(String::new, |n| format!("{}x", figure(n))),
        wanted: "<= 1x".to_owned(),
        met: ratio.map(|n| n <= 1.0),
        ..shown(what, both, words)
    }
}

pub(super) fn shown(what: impl Into<String>, both: [Option<f64>; 2], words: fn(f64) -> String) -> Target {
    let [ours, rival] = both.map(|n| n.map_or_else(|| "-".to_owned(), words));
    Target { what: what.into(), ours, rival, stands: String::new(), wanted: String::new(), met: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(n: f64) -> Spread {
        Spread { low: n, median: n, high: n }
    }

    fn line(row: &str, operation: &str, engine: &str, rate: f64) -> Line {
        let held = if row == SCAN { rate * 1e3 } else { 1.0 };
        let (row, operation, engine) = (row.to_owned(), operation.to_owned(), engine.to_owned());
        let (max, read_per_op, memory) = (one(1e9 / rate), one(8e6 / rate), one(held));
        Line { row, operation, engine, rate: one(rate), max, read_per_op, memory, ..Line::default() }
    }

    #[test]
    fn each_target_is_compared_with_its_bound() {
        let mut lines = Vec::new();
        for (engine, rate) in [(OURS, 2000.0), ("rocksdb", 1000.0)] {
            lines.extend(RATES.map(|(_, row, operation, _)| line(row, operation, engine, rate)));
            lines.push(line(GET_WHILE_WRITING, "GET", engine, 3000.0 - rate));
        }
        let found = targets(&lines, "rocksdb");
        let verdicts: Vec<_> =
            found.iter().map(|t| (t.what.as_str(), t.verdict(), t.stands.as_str())).collect();
        assert_eq!(
            verdicts,
            [
                ("load in batches of 100", "not met", "2.00x"),
                ("overwrite at random", "met", "2.00x"),
                ("random get", "met", "2.00x"),
                ("read from the device per random get", "met", ""),
                ("multi_get of 32, keys", "not met", "2.00x"),
                ("full scan, rows", "not met", "2.00x"),
                ("slowest get", "met", "0.50x"),
                ("slowest get during writes", "not met", "2.00x"),
                ("resident memory, peak of all stages", "not met", "2.00x"),
            ]
        );
        assert_eq!(found[3].ours, "3.91 KiB");
        lines.retain(|l| l.row != SCAN || l.engine == OURS);
        let scan = &targets(&lines, "rocksdb")[5];
        assert_eq!((scan.verdict(), scan.rival.as_str()), ("not measured", "-"));
        assert_eq!(targets(&[line("put_random", "PUT", "rocksdb", 1.0)], "rocksdb"), []);
    }
}
