//! Queues over time: what a scan of the front costs in each tenth of the row, against the first.

use crate::run::Results;
use crate::spec::Workload;
use crate::timeline::{Part, Second};
use crate::workload::FRONT;

use super::words::{Unit, figure};

/// Number of parts; a part of a row of ten minutes is a minute.
const PARTS: usize = 10;

/// Returns the rows of the table, the titles first; `None` if no watched row has a queue.
pub(super) fn rows(results: &Results) -> Option<Vec<Vec<String>>> {
    let mut rows =
        vec![["row", "engine", "first tenth", "each tenth / first", "worst"].map(str::to_owned).to_vec()];
    let queues = results.outcomes.iter().filter(|o| o.spec.workload == Workload::Queue);
    for outcome in queues.filter(|o| o.failure.is_none()) {
        let means = means(&outcome.timeline);
        let Some(first) = means.first().copied().filter(|first| *first > 0.0) else { continue };
        let ratios: Vec<f64> = means.iter().map(|mean| mean / first).collect();
        rows.push(vec![
            outcome.spec.name.clone(),
            outcome.engine.clone(),
            Unit::Micros.show(first * 1e6).replace('\u{b5}', "u"),
            ratios.iter().map(|ratio| figure(*ratio)).collect::<Vec<_>>().join(" "),
            format!("{}x", figure(ratios.iter().copied().fold(0.0, f64::max))),
        ]);
    }
    (rows.len() > 1).then_some(rows)
}

/// Returns the mean seconds of a scan of the front in each tenth of the row.
fn means(timeline: &[Second]) -> Vec<f64> {
    let run: Vec<&Second> = timeline.iter().filter(|s| s.part == Part::Run).collect();
    let Some(end) = run.last().map(|s| s.at) else { return Vec::new() };
    let mut parts = [(0u64, 0.0); PARTS];
    for second in run {
        // The line at the end of a part belongs to it.
        let middle = second.at - second.length / 2.0;
        let part = ((middle / end * PARTS as f64) as usize).min(PARTS - 1);
        for beat in second.beats.iter().filter(|b| b.operation == FRONT) {
            parts[part].0 += beat.ops;
            parts[part].1 += beat.seconds;
        }
    }
    parts.iter().filter(|(ops, _)| *ops > 0).map(|(ops, seconds)| seconds / *ops as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Beat;

    #[test]
    fn each_tenth_has_the_mean_of_its_scans() {
        let second = |at: u32| {
            let seconds = if at > 10 { 0.4 } else { 0.1 };
            let beat = Beat { operation: FRONT.to_owned(), ops: 100, seconds, ..Beat::default() };
            Second { at: f64::from(at), length: 1.0, beats: vec![beat], ..Second::default() }
        };
        let means = means(&(1..=20).map(second).collect::<Vec<_>>());
        assert_eq!(means, [[0.001; 5], [0.004; 5]].concat());
        assert!(super::means(&[]).is_empty());
    }
}
