//! Rows that turn their data over: the bytes on disk against the bytes that exist, and what a scan costs, in each
//! period.

use crate::spec::Workload;
use crate::suite::churn::CHURN;
use crate::timeline::{Period, Second};

use super::lines::Line;
use super::steady::{Bound, Figure, compared, peak_in, times};
use super::table::rate;
use super::targets::Target;
use super::words::{Unit, figure};

/// Files may take this many times the bytes that exist, and two files of values.
const BOUND: f64 = 1.35;
/// Size of two files of values in memtables.
const TWO_FILES: f64 = 8.0;
/// Operation of the overwrites, and of the scans.
const UPDATE: &str = "UPDATE";
const SCAN: &str = "SCAN";

const HEAD: [&str; 16] = [
    "row",
    "engine",
    "overwrites/s",
    "live MiB",
    "used/live: calm",
    "overwriting, peak",
    "at its end",
    "live MiB",
    "used/live: queues, end",
    "at rest",
    "over 1.35x MiB",
    "bound",
    "scan: calm",
    "overwriting, first and last tenth",
    "at rest",
    "at rest / calm",
];

/// Figures of one row.
struct Turned<'a> {
    timeline: &'a [Second],
    periods: &'a [Period],
    memtable: u64,
}

impl<'a> Turned<'a> {
    fn of(line: &'a Line) -> Self {
        Self { timeline: &line.seconds, periods: &line.periods, memtable: line.spec.memtable }
    }

    fn lines(&self, period: &str) -> Vec<&'a Second> {
        self.periods
            .iter()
            .find(|p| p.name == period)
            .map_or_else(Vec::new, |p| p.lines(self.timeline).collect())
    }

    /// Returns the last line of a period, with bytes that exist.
    fn end(&self, period: &str) -> Option<&'a Second> {
        self.lines(period).into_iter().rfind(|s| s.live > 0)
    }

    fn ratio_at_end(&self, period: &str) -> Option<f64> {
        self.end(period).map(ratio)
    }

    /// Returns the highest ratio in a period.
    fn peak(&self, period: &str) -> Option<f64> {
        self.lines(period).into_iter().filter(|s| s.live > 0).map(ratio).reduce(f64::max)
    }

    /// Returns how many bytes more than the bound without its constant the files take at the end of the rest.
    fn over(&self) -> Option<f64> {
        self.end("rest").map(|s| s.allocated as f64 - BOUND * s.live as f64)
    }

    fn is_within(&self) -> Option<bool> {
        self.over().map(|over| over <= TWO_FILES * self.memtable as f64)
    }

    /// Returns the mean time of a scan in a period, in microseconds.
    fn scan(&self, period: &str) -> Option<f64> {
        mean(&self.lines(period))
    }

    /// Returns the mean time of a scan in the first and the last tenth of a period.
    fn tenths(&self, period: &str) -> Option<(f64, f64)> {
        let scans = |s: &&Second| s.beats.iter().any(|b| b.operation == SCAN && b.ops > 0);
        let lines: Vec<&Second> = self.lines(period).into_iter().filter(scans).collect();
        let tenth = lines.len().div_ceil(10);
        Some((mean(&lines[..tenth])?, mean(&lines[lines.len() - tenth..])?))
    }

    fn slowdown(&self) -> Option<f64> {
        Some(self.scan("rest")? / self.scan("calm")?)
    }
}

fn ratio(second: &Second) -> f64 {
    second.allocated as f64 / second.live.max(1) as f64
}

fn mean(lines: &[&Second]) -> Option<f64> {
    let beats = lines.iter().flat_map(|s| &s.beats).filter(|b| b.operation == SCAN);
    let (ops, seconds) = beats.fold((0, 0.0), |(ops, seconds), b| (ops + b.ops, seconds + b.seconds));
    (ops > 0).then(|| seconds * 1e6 / ops as f64)
}

/// Returns the rows of the table, the titles first; `None` if no row turns its data over.
pub(super) fn rows(lines: &[Line]) -> Option<Vec<Vec<String>>> {
    let of = |l: &&Line| l.is_measured() && l.spec.workload == Workload::Turnover && l.operation == UPDATE;
    let rows: Vec<Vec<String>> = lines.iter().filter(of).map(cells).collect();
    (!rows.is_empty()).then(|| [vec![HEAD.map(str::to_owned).to_vec()], rows].concat())
}

fn cells(line: &Line) -> Vec<String> {
    let turned = Turned::of(line);
    let mib = |n: f64| format!("{:.0}", n / f64::from(1 << 20));
    let live = |period| turned.end(period).map_or_else(String::new, |s| mib(s.live as f64));
    let times = |n: Option<f64>| n.map_or_else(String::new, times);
    let micros = |n: f64| Unit::Micros.show(n).replace('\u{b5}', "u");
    let tenths =
        turned.tenths("overwrite").map(|(first, last)| format!("{} {}", micros(first), micros(last)));
    vec![
        line.row.clone(),
        line.engine.clone(),
        rate(line.rate.median),
        live("overwrite"),
        times(turned.ratio_at_end("calm")),
        times(turned.peak("overwrite")),
        times(turned.ratio_at_end("overwrite")),
        live("rest"),
        times(turned.ratio_at_end("queue")),
        times(turned.ratio_at_end("rest")),
        turned.over().map_or_else(String::new, mib),
        turned.is_within().map_or("", |met| if met { "met" } else { "not met" }).to_owned(),
        turned.scan("calm").map_or_else(String::new, micros),
        tenths.unwrap_or_default(),
        turned.scan("rest").map_or_else(String::new, micros),
        turned.slowdown().map_or_else(String::new, |n| format!("{}x", figure(n))),
    ]
}

const FIGURES: [Figure; 7] = [
    ("overwrites", |l| Some(l.rate.median), super::steady::per_second, Bound::Free),
    ("slowest overwrite", |l| Some(l.max.median), super::steady::micros, Bound::Free),
    ("written / raw", |l| Some(l.write_amp.median), times, Bound::Free),
    (
        "files at the peak of the overwrites / live",
        |l| Turned::of(l).peak("overwrite"),
        times,
        Bound::AtMostTimes(1.0),
    ),
    (
        "files at rest over 1.35x live",
        |l| Turned::of(l).over().map(|over| over.max(0.0)),
        super::steady::bytes,
        Bound::Free,
    ),
    ("files at the peak", |l| Some(peak_in(&l.seconds)), super::steady::bytes, Bound::Free),
    ("scan at rest / calm", |l| Turned::of(l).slowdown(), times, Bound::AtMost(1.25)),
];

/// Returns the targets against a rival; empty if the suite has not run.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    compared(lines, (CHURN, UPDATE), rival, &FIGURES)
}

#[cfg(test)]
mod tests {
    use super::super::lines::OURS;
    use super::*;
    use crate::spec::Spec;
    use crate::timeline::Beat;

    const MIB: u64 = 1 << 20;

    /// A line of the timeline with bytes that exist, bytes on disk, and the time of ten scans.
    fn second(at: u32, live: u64, allocated: u64, scans: f64) -> Second {
        let beat = Beat { operation: SCAN.to_owned(), ops: 10, seconds: scans, ..Beat::default() };
        let (live, allocated) = (live * MIB, allocated * MIB);
        Second { at: f64::from(at), length: 1.0, live, allocated, beats: vec![beat], ..Second::default() }
    }

    fn line(at_rest: u64) -> Line {
        let period = |name: &str, from: u32, to: u32| Period {
            name: name.to_owned(),
            operations: Vec::new(),
            from: f64::from(from),
            to: f64::from(to),
        };
        let names = [("calm", 0, 1), ("overwrite", 1, 4), ("queue", 4, 5), ("rest", 5, 6)];
        Line {
            row: "churn_4k@0.5".to_owned(),
            engine: OURS.to_owned(),
            operation: UPDATE.to_owned(),
            spec: Spec { workload: Workload::Turnover, memtable: MIB, ..Spec::default() },
            seconds: vec![
                second(1, 100, 110, 0.1),
                second(2, 100, 150, 0.2),
                second(3, 100, 250, 0.3),
                second(4, 100, 200, 0.4),
                second(5, 10, 100, 0.1),
                second(6, 10, at_rest, 0.15),
            ],
            periods: names.map(|(name, from, to)| period(name, from, to)).to_vec(),
            ..Line::default()
        }
    }

    #[test]
    fn the_table_has_the_space_and_the_scans_of_each_period() {
        let rows = rows(&[line(20)]).unwrap();
        let cells: Vec<&str> = rows[1][3..].iter().map(String::as_str).collect();
        let space = ["100", "1.10x", "2.50x", "2.00x", "10", "10.0x", "2.00x", "6", "met"];
        assert_eq!(cells[..9], space);
        assert_eq!(cells[9..], ["10.0 ms", "20.0 ms 40.0 ms", "15.0 ms", "1.50x"]);
        assert_eq!(super::rows(&[line(22)]).unwrap()[1][11], "not met", "more than two files over the bound");
        assert!(super::rows(&[Line::default()]).is_none());
    }

    #[test]
    fn targets_compare_with_a_rival() {
        let rival = Line { engine: "rocksdb".to_owned(), ..line(100) };
        let found = targets(&[line(20), rival], "rocksdb");
        assert_eq!(found.len(), FIGURES.len());
        let last = found.last().unwrap();
        assert_eq!((last.what.as_str(), last.verdict()), ("churn_4k@0.5: scan at rest / calm", "not met"));
    }
}
