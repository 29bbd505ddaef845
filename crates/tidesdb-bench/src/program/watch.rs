//! Progress of a run: row n of m, engine, repetition, and the estimated remaining time. Nothing is drawn unless
//! the standard error stream is a terminal.

use std::time::Instant;

use tidesdb_console::failure::{Failure, Outcome as Ended};
use tidesdb_console::progress::Progress;
use tidesdb_console::text::span;

use crate::measure::now;
use crate::run::{Event, Plan};
use crate::{Outcome, Results};

/// Runs a plan with a progress bar on the standard error stream.
pub(super) fn watch(plan: &Plan) -> Ended<Results> {
    let bar = Progress::of_steps(plan.len() as u64);
    let mut estimate = Estimate::new(plan);
    let results = plan.run(|event| match event {
        Event::Begin(spec, engine, done, all) => {
            estimate.begin(&spec.name, engine, done);
            bar.step(done as u64);
            bar.say(message(plan, &estimate, (done, all)));
        }
        Event::End(outcome) => {
            estimate.end();
            bar.line(&progress(outcome));
        }
    });
    drop(bar);
    results.map_err(Failure::usage)
}

/// Returns the text next to the progress bar.
fn message(plan: &Plan, estimate: &Estimate, (done, all): (usize, usize)) -> String {
    let round = (plan.rows.len() * plan.engines.len()).max(1);
    let left = match estimate.left() {
        Some(left) => format!(", about {} left", span(left)),
        None => String::new(),
    };
    let (row, engine) = (&estimate.row, &estimate.engine);
    format!(
        "row {} of {all}: {row} on {engine}, repetition {} of {}{left}",
        done + 1,
        done / round + 1,
        plan.repeat
    )
}

/// Returns one line about a finished row.
fn progress(outcome: &Outcome) -> String {
    let name = format!("{} on {}", outcome.spec.name, outcome.engine);
    match (&outcome.failure, &outcome.absent) {
        (Some(failure), _) => format!("{name}: FAILED: {failure}"),
        (None, Some(why)) => format!("{name}: not offered: {why}"),
        (None, None) => {
            let rates: Vec<String> =
                outcome.phases.iter().map(|p| format!("{} {:.0}/s", p.operation, p.rate())).collect();
            format!("{name}: {}", rates.join(", "))
        }
    }
}

/// Durations of rows, by row and engine, to estimate the remaining time.
struct Estimate {
    /// All rows in the order in which they run.
    order: Vec<(String, String)>,
    /// Row, engine and seconds of finished rows.
    took: Vec<(String, String, f64)>,
    done: usize,
    row: String,
    engine: String,
    begun: Instant,
}

impl Estimate {
    fn new(plan: &Plan) -> Self {
        let order = plan.order().into_iter().map(|(spec, engine, _)| (spec.name.clone(), engine.to_owned()));
        let order = order.collect();
        Self { order, took: Vec::new(), done: 0, row: String::new(), engine: String::new(), begun: now() }
    }

    fn begin(&mut self, row: &str, engine: &str, done: usize) {
        (self.row, self.engine, self.done, self.begun) = (row.to_owned(), engine.to_owned(), done, now());
    }

    fn end(&mut self) {
        self.took.push((self.row.clone(), self.engine.clone(), self.begun.elapsed().as_secs_f64()));
    }

    /// Returns the estimated seconds for the current and all later rows; `None` while no row has finished.
    fn left(&self) -> Option<f64> {
        let rest = self.order.get(self.done..).unwrap_or_default();
        rest.iter().map(|(row, engine)| self.guess(row, engine)).sum()
    }

    /// Estimates a row from earlier runs of the same row, otherwise from this row on other engines, otherwise from all rows.
    fn guess(&self, row: &str, engine: &str) -> Option<f64> {
        let mean = |wanted: &dyn Fn(&(String, String, f64)) -> bool| {
            let times: Vec<f64> = self.took.iter().filter(|t| wanted(t)).map(|t| t.2).collect();
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
        };
        mean(&|t| t.0 == row && t.1 == engine).or_else(|| mean(&|t| t.0 == row)).or_else(|| mean(&|_| true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_uses_the_best_known_durations() {
        let named = |row: &str, engine: &str| (row.to_owned(), engine.to_owned());
        let order = vec![named("a", "x"), named("a", "y"), named("b", "x"), named("a", "x")];
        let mut estimate = Estimate {
            order,
            took: Vec::new(),
            done: 0,
            row: String::new(),
            engine: String::new(),
            begun: now(),
        };
        assert_eq!(estimate.left(), None);
        estimate.took.push(("a".into(), "x".into(), 10.0));
        estimate.done = 1;
        assert_eq!(estimate.left(), Some(30.0), "one row known, all guessed alike");
        estimate.took.push(("a".into(), "y".into(), 2.0));
        estimate.done = 2;
        assert_eq!(estimate.left(), Some(6.0 + 10.0), "the mean for b, its own time for a");
        estimate.done = 4;
        assert_eq!(estimate.left(), Some(0.0));
    }
}
