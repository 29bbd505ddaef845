//! One stage of a row, in a process of its own: filling the database, or the measured operations. The parent process
//! sends a [`Task`] and reads an [`Outcome`], each one line of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::{Config, Engine, Open, Result, Stats};
use crate::measure::now;
use crate::process::{self, Usage};
use crate::spec::{Durability, Spec};
use crate::workload::{Bench, Phase};

/// Operations in a commit while the database is filled.
const FILL_BATCH: u64 = 1000;

/// What a child process has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Which engine.
    pub engine: String,
    /// Where its database is or will be.
    pub dir: PathBuf,
    /// The row.
    pub spec: Spec,
    /// Whether to fill the database, not to measure.
    pub fill: bool,
}

/// What a row measured. Times are seconds, sizes bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which engine.
    pub engine: String,
    /// The row.
    pub spec: Spec,
    /// Which repetition, from 0.
    pub repetition: usize,
    /// Why its figures mean nothing, if so.
    pub failure: Option<String>,
    /// The kinds of operations; the last one is reading all rows in order.
    pub phases: Vec<Phase>,
    /// What the process used from just after the open until all rows were read.
    pub usage: Usage,
    /// Processor seconds while the operations ran, without reading all rows.
    pub processor: f64,
    /// The time of `usage` on the wall.
    pub wall: f64,
    /// Bytes given to the device until all memtables are flushed and background work is done.
    pub settled_written: u64,
    /// How long that took after all rows were read.
    pub settle: f64,
    /// Opening the database.
    pub open: f64,
    /// Closing the database.
    pub close: f64,
    /// Most memory at a time, before the settling.
    pub peak_memory: u64,
    /// Most addresses at a time.
    pub peak_addresses: u64,
    /// Size of the files after the close.
    pub db_bytes: u64,
    /// What the engine says.
    pub stats: Stats,
    /// Version and settings of the engine.
    pub settings: String,
    /// Answers that were compared byte by byte.
    pub checked: u64,
    /// Keys that were there at the end, all of them the right ones.
    pub keys: u64,
}

impl Outcome {
    /// An outcome without figures.
    pub fn failed(engine: &str, spec: &Spec, failure: impl Into<String>) -> Self {
        Self { failure: Some(failure.into()), ..Self::new(engine, spec) }
    }

    pub(crate) fn new(engine: &str, spec: &Spec) -> Self {
        Self {
            engine: engine.to_owned(),
            spec: spec.clone(),
            repetition: 0,
            failure: None,
            phases: Vec::new(),
            usage: Usage::default(),
            processor: 0.0,
            wall: 0.0,
            settled_written: 0,
            settle: 0.0,
            open: 0.0,
            close: 0.0,
            peak_memory: 0,
            peak_addresses: 0,
            db_bytes: 0,
            stats: Stats::default(),
            settings: String::new(),
            checked: 0,
            keys: 0,
        }
    }

    /// Processor seconds for a million operations, not counting the reading of all rows; that of rows alone if there was
    /// nothing else.
    pub fn processor_per_million(&self) -> f64 {
        let ops: u64 = self.phases.iter().filter(|p| p.operation != "ITER").map(|p| p.ops).sum();
        match ops {
            0 => self.usage.processor * 1e6 / self.keys.max(1) as f64,
            ops => self.processor * 1e6 / ops as f64,
        }
    }

    /// Operations that wrote, those that read rows, of all phases but the last.
    pub fn payload(&self) -> Payload {
        let entry = self.spec.entry_bytes();
        let mut payload = Payload::default();
        for phase in &self.phases {
            match phase.operation.as_str() {
                "GET" | "SEEK" => payload.read += phase.ops * entry,
                "RANGE" | "SCAN" => payload.read += phase.ops * entry * self.spec.range,
                "ITER" => {}
                _ => payload.written += phase.ops * entry,
            }
        }
        payload
    }
}

/// Bytes of keys and values that operations named; for deletes too, as in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Of writes.
    pub written: u64,
    /// Of reads.
    pub read: u64,
}

/// Does a task; what goes wrong is in the outcome.
pub fn perform(task: &Task, open: Open) -> Outcome {
    let mut outcome = Outcome::new(&task.engine, &task.spec);
    let done = if task.fill { fill(task, open) } else { measure(task, open, &mut outcome) };
    outcome.failure = done.err();
    outcome
}

fn fill(task: &Task, open: Open) -> Result<()> {
    let mut config = task.config();
    config.spec.batch = FILL_BATCH;
    config.spec.rate = 0.0;
    config.spec.durability = Durability::Os;
    let engine = open(&config)?;
    Bench::new(&config.spec, engine.keeps_data())?.populate(&*engine)?;
    engine.sync()?;
    if task.spec.settle {
        engine.settle()?;
    }
    engine.close()
}

fn measure(task: &Task, open: Open, outcome: &mut Outcome) -> Result<()> {
    let begin = now();
    let engine = open(&task.config())?;
    outcome.open = begin.elapsed().as_secs_f64();
    outcome.settings = engine.settings();
    let bench = Bench::new(&task.spec, engine.keeps_data())?;
    let (start, before) = (now(), Usage::now());
    let measured = bench.run(&*engine)?;
    let (iter, found, checked) = bench.iterate(&*engine, measured.versions)?;
    outcome.wall = start.elapsed().as_secs_f64();
    outcome.usage = Usage::now().since(&before);
    outcome.peak_memory = process::peak_memory();
    outcome.peak_addresses = process::peak_addresses();
    outcome.checked = measured.checked + checked;
    outcome.keys = found.count;
    outcome.processor = measured.processor;
    outcome.phases = measured.phases;
    outcome.phases.push(iter);
    if engine.keeps_data() {
        found.compare(&bench.expected(&measured.model))?;
    }
    finish(task, engine, &before, outcome)
}

/// Lets the background work end, and closes.
fn finish(task: &Task, engine: Box<dyn Engine>, before: &Usage, outcome: &mut Outcome) -> Result<()> {
    let start = now();
    engine.settle()?;
    outcome.settle = start.elapsed().as_secs_f64();
    outcome.settled_written = Usage::now().since(before).written;
    outcome.stats = engine.stats();
    let start = now();
    engine.close()?;
    outcome.close = start.elapsed().as_secs_f64();
    outcome.db_bytes = process::bytes_below(&task.dir);
    Ok(())
}

impl Task {
    fn config(&self) -> Config {
        Config { engine: self.engine.clone(), dir: self.dir.clone(), spec: self.spec.clone() }
    }
}
