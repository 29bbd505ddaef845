//! What reads cost beside writes and after them: each kind of probe of one row in one line.

use crate::suite::steady::{AFTER, BESIDE};
use crate::timeline::is_write;
use crate::workload::{PROBES, rows_of_probe};

use super::lines::Line;
use super::steady::{Bound, Figure, compared, micros, per_second};
use super::table::rate;
use super::targets::Target;

/// Returns true if the line is a kind of probe, whose rate is measured in its own turns only.
pub(super) fn is_probe(line: &Line) -> bool {
    rows_of_probe(&line.operation).is_some()
}

/// Returns the rows of the table, the titles first; `None` if nothing was probed.
pub(super) fn rows(lines: &[Line]) -> Option<Vec<Vec<String>>> {
    let mut head: Vec<String> = ["row", "engine", "puts/s meanwhile"].map(str::to_owned).to_vec();
    head.extend(PROBES.map(|probe| format!("{}/s", probe.to_lowercase())));
    head.extend(PROBES.map(|probe| format!("p99 {}", probe.to_lowercase())));
    let of = |l: &&Line| l.is_measured() && l.operation == PROBES[0] && l.periods.len() == 2;
    let rows: Vec<Vec<String>> = lines.iter().filter(of).map(|line| cells(line, lines)).collect();
    (!rows.is_empty()).then(|| [vec![head], rows].concat())
}

fn cells(of: &Line, lines: &[Line]) -> Vec<String> {
    let find = |operation: &str| {
        let same = |l: &&Line| l.row == of.row && l.engine == of.engine && l.operation == operation;
        lines.iter().find(same)
    };
    let probes = of.periods.iter().find(|p| p.operations.iter().any(|o| o == PROBES[0]));
    let writes = probes.into_iter().flat_map(|p| &p.operations).find(|o| is_write(o));
    let mut cells = vec![of.row.clone(), of.engine.clone()];
    cells.push(writes.and_then(|w| find(w)).map_or_else(|| "none".to_owned(), |l| rate(l.rate.median)));
    cells.extend(PROBES.map(|probe| find(probe).map_or_else(String::new, |l| rate(l.rate.median))));
    cells.extend(PROBES.map(|probe| find(probe).map_or_else(String::new, |l| micros(l.p99.median))));
    cells
}

/// A kind of probe must not be slower than the rival's.
const RATE: [Figure; 1] = [("rate", |l| Some(l.rate.median), per_second, Bound::AtLeastTimes(1.0))];

/// Returns the targets against a rival; empty if nothing was probed.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    let mut all = Vec::new();
    for row in [AFTER, BESIDE] {
        for probe in PROBES {
            let figures = compared(lines, (row, probe), rival, &RATE);
            let named = |t: Target| Target { what: t.what.replace(": rate", &format!(": {probe}")), ..t };
            all.extend(figures.into_iter().map(named));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::lines::{OURS, Spread};
    use super::*;
    use crate::timeline::Period;

    fn line(engine: &str, operation: &str, rate: f64) -> Line {
        let operations = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Line {
            row: BESIDE.to_owned(),
            engine: engine.to_owned(),
            operation: operation.to_owned(),
            rate: Spread { low: rate, median: rate, high: rate },
            periods: vec![
                Period { operations: operations(&["SEARCH"]), ..Period::default() },
                Period { operations: operations(&["PUT", "SEEK", "GET"]), ..Period::default() },
            ],
            ..Line::default()
        }
    }

    #[test]
    fn a_row_has_one_line_with_all_its_kinds() {
        let lines = [line(OURS, "PUT", 5e5), line(OURS, "SEEK", 3e4), line(OURS, "GET", 2e5)];
        let rows = rows(&lines).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1][..4], ["steady_reads_beside", "tidesdb", "500 K", "30.0 K"]);
        assert_eq!((rows[1][4].as_str(), rows[1][6].as_str()), ("", "200 K"));
        assert!(super::rows(&lines[..1]).is_none());
    }

    #[test]
    fn each_kind_is_compared_with_the_rival() {
        let lines = [line(OURS, "SEEK", 3e4), line("rocksdb", "SEEK", 4e4)];
        let found = targets(&lines, "rocksdb");
        let seek = found.iter().find(|t| t.what.ends_with(": SEEK")).unwrap();
        assert_eq!((seek.stands.as_str(), seek.verdict()), ("0.75x", "not met"));
    }
}
