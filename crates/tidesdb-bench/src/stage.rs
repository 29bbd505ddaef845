//! One stage of a row, in its own process: filling the database, the measured operations, or the steps before and after
//! a kill. The parent process sends a [`Task`] and reads an [`Outcome`]; each is one line of JSON.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::device::{self, Device};
use crate::engine::{Cause, Config, Engine, Open, Result, Stats, Wait};
use crate::measure::{Latency, Recorder, now};
use crate::process::{self, Usage};
use crate::rivals;
use crate::spec::{Durability, Spec, Workload};
use crate::timeline::{Board, Part, Period, Second, Sources, Watch};
use crate::workload::{Bench, Measured, Model, Overload, Phase, Transacted, rows_of_motion, rows_of_probe};

/// Time covered by one line of the timeline.
const LINE: Duration = Duration::from_secs(1);
/// Fraction of the row's time that is spent measuring the device: one part in this many.
const PROBE: f64 = 6.0;

/// Appends to a file beside the database, each followed by a bare sync of its data: what the device does at that time to anybody.
pub const SYNC: &str = "SYNC";
/// Pause between two of them.
const SYNC_PAUSE: Duration = Duration::from_millis(100);

/// Operations per commit while the database is filled, and about the most bytes: engines limit the size of a batch.
const FILL_BATCH: u64 = 1000;
const FILL_BYTES: u64 = 64 << 20;

/// Part of a row that one child process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Fills the database; not measured.
    Fill,
    /// Runs the measured operations.
    Measure,
    /// Puts rows, reports the result and waits to be killed.
    Write,
    /// Opens the database after the kill, counts the keys, closes.
    Count,
    /// Opens the database after a clean close, and closes it again.
    Reopen,
}

/// Work order for a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Engine name.
    pub engine: String,
    /// Directory of the database; it need not exist yet.
    pub dir: PathBuf,
    /// The row.
    pub spec: Spec,
    /// Part of the row to run.
    pub stage: Stage,
    /// The cgroup to enter before the engine is opened, if the row has a memory limit.
    #[serde(default)]
    pub group: Option<PathBuf>,
}

/// Measurements of one row. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Engine name.
    pub engine: String,
    /// The row.
    pub spec: Spec,
    /// Repetition, counted from 0.
    pub repetition: usize,
    /// Why the row failed; its figures then mean nothing. `None` if it did not fail.
    pub failure: Option<String>,
    /// Why the engine does not offer the row: then there are no figures, and it is not a failure. `None` if it offers the row.
    #[serde(default)]
    pub absent: Option<String>,
    /// Results per kind of operation; the last one is the scan of all rows.
    pub phases: Vec<Phase>,
    /// Resources used from just after the open until all rows were read.
    pub usage: Usage,
    /// Processor seconds used by the operations, without the scan of all rows.
    pub processor: f64,
    /// Wall-clock time covered by `usage`.
    pub wall: f64,
    /// Bytes written to the device until all memtables were flushed and background work was done.
    pub settled_written: u64,
    /// Duration of that settling, after all rows were read.
    pub settle: f64,
    /// Duration of opening the database.
    pub open: f64,
    /// Duration of closing the database.
    pub close: f64,
    /// Peak resident memory, without the wait for flushes and merges at the end.
    pub peak_memory: u64,
    /// Peak address space.
    pub peak_addresses: u64,
    /// Total size of the files after the close.
    pub db_bytes: u64,
    /// Counters reported by the engine.
    pub stats: Stats,
    /// Causes of write stalls, if the engine reports them.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Opening after a kill and after a clean close, if the row tests that.
    #[serde(default)]
    pub restart: Option<Restart>,
    /// How transactions ended, if the row runs transactions.
    #[serde(default)]
    pub transacted: Option<Transacted>,
    /// Periods, if the row does one thing after another.
    #[serde(default)]
    pub periods: Vec<Period>,
    /// Rates of the overload, if the row has one.
    #[serde(default)]
    pub overload: Option<Overload>,
    /// Version and settings of the engine.
    pub settings: String,
    /// Number of answers that were compared byte by byte.
    pub checked: u64,
    /// Number of keys at the end, all verified.
    pub keys: u64,
    /// How long due merges waited, for each family of a `Families` row.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// Bytes of the tables in each level at the end, the newest level first, if the engine reports them.
    #[serde(default)]
    pub levels: Vec<u64>,
    /// One line per second, if the row is watched.
    #[serde(default)]
    pub timeline: Vec<Second>,
    /// Random read limit of the device, measured on the files of this database just before the row, if the row is
    /// watched and reads.
    #[serde(default)]
    pub device: Option<Device>,
}

/// Restart times of an engine, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// Duration of opening after the process was killed right after its last commit.
    pub killed: f64,
    /// Duration of opening after a clean close.
    pub clean: f64,
    /// Number of puts whose commit had returned.
    pub acknowledged: u64,
    /// Number of keys found after the kill.
    pub survived: u64,
}

impl Outcome {
    /// Returns the outcome of a row that the engine does not offer.
    pub fn absent(engine: &str, spec: &Spec, reason: impl Into<String>) -> Self {
        Self { absent: Some(reason.into()), ..Self::new(engine, spec) }
    }

    /// Returns the outcome of a failed row, without figures.
    pub fn failed(engine: &str, spec: &Spec, failure: impl Into<String>) -> Self {
        Self { failure: Some(failure.into()), ..Self::new(engine, spec) }
    }

    pub(crate) fn new(engine: &str, spec: &Spec) -> Self {
        Self {
            engine: engine.to_owned(),
            spec: spec.clone(),
            repetition: 0,
            failure: None,
            absent: None,
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
            causes: Vec::new(),
            restart: None,
            transacted: None,
            periods: Vec::new(),
            overload: None,
            settings: String::new(),
            checked: 0,
            keys: 0,
            waits: Vec::new(),
            levels: Vec::new(),
            timeline: Vec::new(),
            device: None,
        }
    }

    /// Returns processor seconds per million operations, without the scan of all rows. If there were no other
    /// operations, returns processor seconds per million rows scanned.
    pub fn processor_per_million(&self) -> f64 {
        let ops: u64 = self.phases.iter().filter(|p| p.operation != "ITER").map(|p| p.ops).sum();
        match ops {
            0 => self.usage.processor * 1e6 / self.keys.max(1) as f64,
            ops => self.processor * 1e6 / ops as f64,
        }
    }

    /// Returns the bytes that operations wrote and read, without those of the scan of all rows.
    pub fn payload(&self) -> Payload {
        let entry = self.spec.entry_bytes();
        let mut payload = Payload::default();
        for phase in &self.phases {
            match phase.operation.as_str() {
                "GET" | "MULTIGET" | "SEEK" => payload.read += phase.ops * entry,
                "HEAD" => payload.read += phase.ops * entry * self.spec.batch,
                "RANGE" | "SCAN" => payload.read += phase.ops * entry * self.spec.range,
                "ITER" | "OPEN" | "REOPEN" | SYNC => {}
                "TX" => {
                    payload.read += phase.ops * self.spec.tx_ops * entry;
                    payload.written += phase.ops * self.spec.tx_ops * entry;
                }
                operation => {
                    match rows_of_probe(operation).or_else(|| rows_of_motion(operation, self.spec.range)) {
                        Some(rows) => payload.read += phase.ops * entry * rows,
                        None => payload.written += phase.ops * entry,
                    }
                }
            }
        }
        payload
    }
}

/// Bytes of keys and values named by operations; deletes count in full, as in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Bytes of writes.
    pub written: u64,
    /// Bytes of reads.
    pub read: u64,
}

/// Runs a task; a failure is reported in the outcome.
pub fn perform(task: &Task, open: Open) -> Outcome {
    let mut outcome = Outcome::new(&task.engine, &task.spec);
    let entered = task.group.as_deref().map_or(Ok(()), cgroup::enter);
    let done = entered.and_then(|()| match task.stage {
        Stage::Fill => fill(task, open),
        Stage::Measure if task.spec.watched => watched(task, open, &mut outcome),
        Stage::Measure => measure(task, open, &mut outcome),
        Stage::Count => count(task, open, &mut outcome),
        Stage::Reopen => reopen(task, open, &mut outcome),
        Stage::Write => Err("the stage Write needs `write_until_killed`".to_owned()),
    });
    outcome.failure = done.err();
    outcome
}

fn fill(task: &Task, open: Open) -> Result<()> {
    let mut config = task.config();
    config.spec.batch = (FILL_BYTES / config.spec.entry_bytes()).clamp(1, FILL_BATCH);
    config.spec.rate = 0.0;
    config.spec.bulk = false;
    config.spec.durability = rivals::filling_class(&task.engine);
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
    outcome.transacted = measured.transacted;
    (outcome.periods, outcome.overload) = (measured.periods.clone(), measured.overload.clone());
    outcome.phases.clone_from(&measured.phases);
    outcome.phases.push(iter);
    if engine.keeps_data() {
        bench.verify(&measured, &found)?;
        verify_families(&bench, &*engine, &measured)?;
    }
    finish(task, engine, &before, outcome)
}

/// Measures a row with a per-second timeline, background work included.
fn watched(task: &Task, open: Open, outcome: &mut Outcome) -> Result<()> {
    let spec = &task.spec;
    outcome.device = limit_of_device(task);
    let begin = now();
    let engine = open(&task.config())?;
    outcome.open = begin.elapsed().as_secs_f64();
    outcome.settings = engine.settings();
    let board = Arc::new(Board::new(spec.crew()));
    let bench = Bench::new(spec, engine.keeps_data())?.on_board(board.clone());
    let is_over = AtomicBool::new(false);
    let (measured, synced) = std::thread::scope(|scope| {
        let syncs =
            (spec.workload == Workload::Motion).then(|| scope.spawn(|| bare_syncs(&task.dir, &is_over)));
        let (dir, group) = (task.dir.clone(), task.group.clone());
        let measured = Watch::start(scope, Sources { board, dir, group, engine: &*engine }, LINE)
            .and_then(|watch| timed(&bench, &*engine, watch, outcome));
        is_over.store(true, Ordering::Relaxed);
        let synced =
            syncs.map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())));
        Ok::<_, String>((measured?, synced.transpose()?))
    })?;
    (outcome.peak_memory, outcome.peak_addresses) = (process::peak_memory(), process::peak_addresses());
    if spec.overwrites() && spec.workload != Workload::Families {
        let phases = outcome.phases.clone();
        scan(&bench, &*engine, &measured, outcome)?;
        outcome.phases = phases;
        outcome.phases.extend(synced);
    }
    if engine.keeps_data() {
        verify_families(&bench, &*engine, &measured)?;
    }
    (outcome.stats, outcome.causes, outcome.levels) = (engine.stats(), engine.causes(), engine.levels());
    outcome.causes.extend(measured.causes);
    let start = now();
    engine.close()?;
    outcome.close = start.elapsed().as_secs_f64();
    outcome.db_bytes = process::bytes_below(&task.dir);
    Ok(())
}

/// Appends to a file beside `dir` and syncs it until `is_over`. Returns the latencies of the syncs.
fn bare_syncs(dir: &Path, is_over: &AtomicBool) -> Result<Phase> {
    let path = dir.with_extension("syncs");
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    let mut file = File::create(&path).map_err(failed)?;
    let (start, mut recorder) = (now(), Recorder::default());
    while !is_over.load(Ordering::Relaxed) {
        file.write_all(&[0; 4096]).map_err(failed)?;
        let begin = now();
        file.sync_data().map_err(failed)?;
        recorder.record(begin.elapsed());
        std::thread::sleep(SYNC_PAUSE);
    }
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path).map_err(failed)?;
    let latency = recorder.latency();
    let ops = latency.as_ref().map_or(0, |l| l.samples);
    Ok(Phase { operation: SYNC.to_owned(), ops, seconds, latency })
}

/// An engine may begin work once there was no commit for some seconds. The next stage of a database larger than memory reads what
/// that work leaves, so every engine gets these seconds, and then the time that the work takes.
const CALM: Duration = Duration::from_secs(8);

/// Runs the operations of a watched row and waits for its background work.
fn timed(
    bench: &Bench<'_>,
    engine: &dyn Engine,
    watch: Watch<'_>,
    outcome: &mut Outcome,
) -> Result<Measured> {
    let (start, before) = (now(), Usage::now());
    let measured = bench.run(engine)?;
    outcome.phases.clone_from(&measured.phases);
    outcome.transacted = measured.transacted;
    (outcome.periods, outcome.overload) = (measured.periods.clone(), measured.overload.clone());
    outcome.processor = measured.processor;
    outcome.checked = measured.checked;
    if outcome.spec.workload == Workload::Iterate {
        scan(bench, engine, &measured, outcome)?;
    }
    outcome.wall = start.elapsed().as_secs_f64();
    outcome.usage = Usage::now().since(&before);
    let waits = engine.waits();
    watch.part(Part::Settle);
    let start = now();
    engine.settle()?;
    if outcome.spec.memory > 0 && outcome.spec.writes() {
        std::thread::sleep(CALM);
        engine.settle()?;
    }
    outcome.settle = start.elapsed().as_secs_f64();
    outcome.settled_written = Usage::now().since(&before).written;
    outcome.waits = waits;
    outcome.timeline = watch.finish()?;
    Ok(measured)
}

/// Compares the rows of all families with the model, if the row has families.
fn verify_families(bench: &Bench<'_>, engine: &dyn Engine, measured: &Measured) -> Result<()> {
    match &measured.model {
        Model::Families(puts) => bench.verify_families(engine, puts),
        _ => Ok(()),
    }
}

/// Reads all rows and compares them with the model.
fn scan(bench: &Bench<'_>, engine: &dyn Engine, measured: &Measured, outcome: &mut Outcome) -> Result<()> {
    let (iter, found, checked) = bench.iterate(engine, measured.versions)?;
    outcome.phases.push(iter);
    outcome.checked += checked;
    outcome.keys = found.count;
    if engine.keeps_data() { bench.verify(measured, &found) } else { Ok(()) }
}

/// Measures the random read rate of the device, with as many reads in flight as the row can have. Returns `None` if the
/// row reads no keys.
fn limit_of_device(task: &Task) -> Option<Device> {
    let spec = &task.spec;
    let depth = match spec.workload {
        Workload::Read | Workload::ReadWhileWriting => spec.threads,
        Workload::MultiGet => spec.threads * spec.batch as usize,
        _ => return None,
    };
    let time = Duration::from_secs_f64(spec.seconds / PROBE);
    Some(device::measure(&task.dir, depth, time, spec.seed))
}

/// Waits for the background work to end, then closes the database.
fn finish(task: &Task, engine: Box<dyn Engine>, before: &Usage, outcome: &mut Outcome) -> Result<()> {
    let start = now();
    engine.settle()?;
    outcome.settle = start.elapsed().as_secs_f64();
    outcome.settled_written = Usage::now().since(before).written;
    outcome.stats = engine.stats();
    outcome.causes = engine.causes();
    let start = now();
    engine.close()?;
    outcome.close = start.elapsed().as_secs_f64();
    outcome.db_bytes = process::bytes_below(&task.dir);
    Ok(())
}

/// Puts with the durability of the row, then calls `done`, which reports to the parent and does not return. If this
/// function returns, the outcome holds the reason.
pub fn write_until_killed(task: &Task, open: Open, done: impl FnOnce(&Outcome)) -> Outcome {
    let mut outcome = Outcome::new(&task.engine, &task.spec);
    let written = write(task, open, &mut outcome, done);
    outcome.failure = written.err();
    outcome
}

fn write(task: &Task, open: Open, outcome: &mut Outcome, done: impl FnOnce(&Outcome)) -> Result<()> {
    let engine = open(&task.config())?;
    outcome.settings = engine.settings();
    let bench = Bench::new(&task.spec, engine.keeps_data())?;
    let (start, before) = (now(), Usage::now());
    let measured = bench.run(&*engine)?;
    outcome.wall = start.elapsed().as_secs_f64();
    outcome.usage = Usage::now().since(&before);
    outcome.peak_memory = process::peak_memory();
    outcome.peak_addresses = process::peak_addresses();
    outcome.processor = measured.processor;
    outcome.phases = measured.phases;
    outcome.stats = engine.stats();
    outcome.causes = engine.causes();
    done(outcome);
    Err("the process was not killed".to_owned())
}

/// Opens the database after the kill and counts its keys.
fn count(task: &Task, open: Open, outcome: &mut Outcome) -> Result<()> {
    let engine = opened(task, open, outcome)?;
    let bench = Bench::new(&task.spec, engine.keeps_data())?;
    let (iter, found, checked) = bench.iterate(&*engine, true)?;
    outcome.phases = vec![iter];
    (outcome.keys, outcome.checked) = (found.count, checked);
    if engine.keeps_data() && task.spec.durability != Durability::None {
        let puts = vec![task.spec.quota(); task.spec.threads];
        found
            .compare(&bench.expected(&Model::Written(puts)))
            .map_err(|what| format!("after the kill: {what}"))?;
    }
    let start = now();
    engine.close()?;
    outcome.close = start.elapsed().as_secs_f64();
    outcome.db_bytes = process::bytes_below(&task.dir);
    Ok(())
}

fn reopen(task: &Task, open: Open, outcome: &mut Outcome) -> Result<()> {
    opened(task, open, outcome)?.close()
}

fn opened(task: &Task, open: Open, outcome: &mut Outcome) -> Result<Box<dyn Engine>> {
    let begin = now();
    let engine = open(&task.config())?;
    outcome.open = begin.elapsed().as_secs_f64();
    Ok(engine)
}

/// Returns a phase of one operation that took `seconds`.
fn once(operation: &str, seconds: f64) -> Phase {
    let us = seconds * 1e6;
    let (samples, deviation, variation) = (1, 0.0, 0.0);
    let [mean, min, p50, p95, p99, p999, p9999, max] = [us; 8];
    let latency =
        Latency { samples, mean, deviation, variation, min, p50, p95, p99, p999, p9999, slow: seconds, max };
    Phase { operation: operation.to_owned(), ops: 1, seconds, latency: Some(latency) }
}

/// Combines the outcomes of a row with a kill: the puts, the count after the kill, and the opening after a clean close.
pub(crate) fn restarted(mut written: Outcome, counted: Outcome, clean: f64) -> Outcome {
    let acknowledged = written.phases.iter().map(|p| p.ops).sum();
    written.restart = Some(Restart { killed: counted.open, clean, acknowledged, survived: counted.keys });
    written.phases.extend([once("REOPEN", counted.open), once("OPEN", clean)]);
    written.phases.extend(counted.phases);
    (written.open, written.close) = (counted.open, counted.close);
    (written.keys, written.checked, written.db_bytes) = (counted.keys, counted.checked, counted.db_bytes);
    written
}

impl Task {
    fn config(&self) -> Config {
        Config { engine: self.engine.clone(), dir: self.dir.clone(), spec: self.spec.clone() }
    }
}
