//! Workloads: the operations of each thread, and the expected contents of the database afterwards.
//!
//! A [`Bench`] knows the row and the model. Every phase runs on all threads at once (module `lane`). Its timed part
//! contains only the operations, the generation of keys and values, and the checks of the answers. A model that cannot
//! be updated during the timed part is replayed afterwards, because generators are deterministic.

mod lane;
mod model;
mod basic;
mod churn;
mod queue;
mod blend;
mod transaction;
mod beyond;
mod drawn;
mod families;
mod turnover;
mod overload;
mod probe;
mod motion;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Cause, Engine, Result};
use crate::keys::{Keys, Pattern, Stream, Zipf};
use crate::measure::Latency;
use crate::rng::Rng;
use crate::spec::{Spec, Workload};
use crate::timeline::{Board, Period};
use crate::values::Values;
use crate::verify::Summary;

use lane::Gathered;
pub use lane::Limit;
pub use model::Model;
use model::Order;
pub(crate) use motion::{LOAD, OVERWRITE, rows_of_motion};
pub use overload::Overload;
pub(crate) use probe::{PROBES, rows_of_probe};
pub use queue::FRONT;
pub use transaction::Transacted;

/// Measurements of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Kind: PUT, GET, DELETE, SEEK, RANGE, ITER, ...
    pub operation: String,
    /// Number of operations. ITER counts rows; commits count their operations.
    pub ops: u64,
    /// Time from the first start to the last end, in seconds.
    pub seconds: f64,
    /// Latencies; `None` for ITER.
    pub latency: Option<Latency>,
}

impl Phase {
    /// Returns operations per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }
}

/// Measurements of a workload, and the expected contents of the database afterwards.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Measurements per kind of operation.
    pub phases: Vec<Phase>,
    /// Expected contents.
    pub model: Model,
    /// Processor seconds of all threads while operations ran, including those of the engine.
    pub processor: f64,
    /// Whether the model includes versions. It does not if threads overwrite each other's keys.
    pub versions: bool,
    /// Number of answers that were compared byte by byte.
    pub checked: u64,
    /// How transactions ended, if the workload has transactions that could be refused.
    pub transacted: Option<Transacted>,
    /// Periods, if the workload does one thing after another.
    pub periods: Vec<Period>,
    /// Rates of the overload, if the workload has one.
    pub overload: Option<Overload>,
    /// Why operations were slow, besides the causes that the engine reports.
    pub causes: Vec<Cause>,
}

impl Default for Measured {
    fn default() -> Self {
        let (phases, model) = (Vec::new(), Model::Filled);
        let (periods, transacted, overload) = (Vec::new(), None, None);
        let causes = Vec::new();
        Self {
            phases,
            model,
            processor: 0.0,
            versions: true,
            checked: 0,
            transacted,
            periods,
            overload,
            causes,
        }
    }
}

impl Measured {
    /// Creates the measurements of a single phase.
    fn of<T>(done: Gathered<T>, model: impl FnOnce(Vec<T>) -> Model) -> Self {
        let Gathered { phases, lanes, checked, processor } = done;
        Self { phases, model: model(lanes), processor, checked, ..Self::default() }
    }

    /// Sets the periods. Operations that only one period has get its duration.
    fn in_periods(&mut self, periods: Vec<Period>) {
        for phase in &mut self.phases {
            if let Some(period) = periods.iter().find(|p| p.operations.contains(&phase.operation)) {
                phase.seconds = period.to - period.from;
            }
        }
        self.periods = periods;
    }
}

/// A row, ready to run.
pub struct Bench<'a> {
    spec: &'a Spec,
    keys: Keys,
    values: Values,
    zipf: Option<Arc<Zipf>>,
    order: Order,
    lenient: bool,
    board: Option<Arc<Board>>,
}

impl<'a> Bench<'a> {
    /// Prepares a row for an engine. If the engine does not keep data, wrong answers are ignored.
    ///
    /// # Errors
    /// Returns an error if the row is invalid.
    pub fn new(spec: &'a Spec, keeps_data: bool) -> Result<Self> {
        spec.check()?;
        let latest = spec.workload == Workload::Blend && spec.blend.latest;
        let zipf = matches!(spec.pattern, Pattern::Zipfian | Pattern::Scrambled) || latest;
        let shape = || Arc::new(Zipf::new(spec.population(), spec.theta, spec.theta_offset));
        let mut bench = Self {
            spec,
            keys: spec.keys()?,
            values: spec.values()?,
            zipf: zipf.then(shape),
            order: Order::Unknown,
            lenient: !keeps_data,
            board: None,
        };
        if spec.workload == Workload::Range {
            bench.order = bench.order();
        }
        Ok(bench)
    }

    /// Counts operations on a board while they run. The board must have a lane for each thread of the row.
    pub fn on_board(mut self, board: Arc<Board>) -> Self {
        self.board = Some(board);
        self
    }

    /// Fills the database for a workload that needs data. This is not measured.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub fn populate(&self, engine: &dyn Engine) -> Result<()> {
        if self.spec.workload == Workload::Families {
            return self.fill_families(engine);
        }
        self.puts(engine, Limit::Count(self.spec.share()), |thread| self.filling(thread)).map(drop)
    }

    /// Runs the workload.
    ///
    /// # Errors
    /// Returns a failed operation or a wrong answer.
    pub fn run(&self, engine: &dyn Engine) -> Result<Measured> {
        let limit = self.limit();
        match self.spec.workload {
            Workload::Write | Workload::Kill => self.write(engine, limit),
            Workload::Read => self.read(engine, limit),
            Workload::Mixed => self.mixed(engine, limit),
            Workload::Delete => self.deletes(engine, limit),
            Workload::Seek => self.seek(engine, limit),
            Workload::Range => self.ranges(engine, limit),
            Workload::Iterate => Ok(Measured::default()),
            Workload::Churn => self.churn(engine, limit),
            Workload::Queue => self.queue(engine, limit),
            Workload::Blend => self.blended(engine, limit),
            Workload::Transaction => self.transactions(engine, limit),
            Workload::Overwrite => self.overwrite(engine, limit),
            Workload::MultiGet => self.multi_gets(engine, limit),
            Workload::ReadWhileWriting => self.read_while_writing(engine, limit),
            Workload::WriteWhileReading => self.write_while_reading(engine, limit),
            Workload::Families => self.families(engine, limit),
            Workload::Turnover => self.turnover(engine),
            Workload::Overload => self.overload(engine),
            Workload::ProbeAfter => self.probe_after(engine),
            Workload::ProbeBeside => self.probe_beside(engine),
            Workload::Motion => self.motion(engine),
        }
    }

    /// Compares the rows found in the database with the expected contents.
    ///
    /// # Errors
    /// Returns a description of the difference.
    pub fn verify(&self, measured: &Measured, found: &Summary) -> Result<()> {
        let wanted = self.expected(&measured.model);
        match &measured.model {
            Model::Counted(counted) if found.count == wanted.count => counted.check(found.versions)?,
            _ => {}
        }
        found.compare(&wanted)
    }

    fn limit(&self) -> Limit {
        match self.spec.seconds > 0.0 {
            true => Limit::Time(Duration::from_secs_f64(self.spec.seconds)),
            false => Limit::Count(self.spec.quota()),
        }
    }

    /// Returns the indexes that `thread` writes.
    fn writing(&self, thread: u64) -> Stream {
        let n = self.spec.population();
        match (self.spec.pattern, &self.zipf) {
            (Pattern::Uniform, _) => Stream::Uniform { rng: Rng::new(self.spec.seed, thread), n },
            (Pattern::Zipfian | Pattern::Scrambled, Some(zipf)) => {
                Stream::Zipf { rng: Rng::new(self.spec.seed, thread), zipf: zipf.clone() }
            }
            _ => self.slice(thread, self.spec.share()),
        }
    }

    /// Returns the indexes that `thread` writes to fill the database.
    fn filling(&self, thread: u64) -> Stream {
        if self.is_filled_by_drawing() { self.writing(thread) } else { self.slice(thread, self.spec.share()) }
    }

    /// Returns true if the database is filled with drawn keys, as the reference does for its zipfian reads. Otherwise
    /// it has all keys, popular or not.
    fn is_filled_by_drawing(&self) -> bool {
        let drawn = !self.spec.workload.needs_data() && self.spec.pattern.is_drawn();
        drawn || (self.spec.pattern == Pattern::Zipfian && !self.spec.overwrites())
    }

    /// Returns the indexes that `thread` reads, all of which were written. `written` limits them to the first part of
    /// its share.
    fn reading(&self, thread: u64, written: Option<u64>) -> Stream {
        let share = self.spec.share();
        match (self.spec.pattern, written) {
            (p, written) if p.is_drawn() => self.writing(thread).again(written.unwrap_or(share)),
            (_, Some(written)) => self.slice(thread, written),
            (Pattern::Random, None) => Stream::sweep(self.spec.population(), thread * share),
            _ => self.slice(thread, share),
        }
    }

    fn slice(&self, thread: u64, written: u64) -> Stream {
        let first = thread * self.spec.share();
        Stream::ascending(first, first + written)
    }
}
