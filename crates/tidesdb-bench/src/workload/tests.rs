//! Every workload on correct engines, and on engines with each kind of fault in [`Fault`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::engine::{Config, Ended, Session, Stats, Transactions};
use crate::engines;
use crate::spec::{Blend, Contention, Isolation};
use crate::stage::{SYNC, Stage, Task, perform};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Fault of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Every thousandth seek shows the key before the right one.
    StaleCursor,
    /// One put in 1500 is lost.
    LostWrite,
    /// The fiftieth commit returns an error.
    FailedCommit,
    /// A get returns the value of another key, of the same length.
    WrongValue,
    /// Deletes do nothing.
    Undead,
    /// A range omits its third row.
    Gap,
    /// The fiftieth transaction is committed without its last write.
    LostUpdate,
    /// No transaction is ever refused.
    NeverRefused,
    /// Every transaction is refused.
    AlwaysRefused,
}

/// A map behind a lock.
struct FaultyEngine {
    map: Mutex<Map>,
    lie: Fault,
}

struct FaultySession<'a> {
    engine: &'a FaultyEngine,
    batch: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    puts: u64,
    commits: u64,
    seeks: u64,
    transaction: FaultyTransaction<'a>,
}

impl Engine for FaultyEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let transaction = FaultyTransaction {
            engine: self,
            checks: false,
            read: Map::new(),
            written: Map::new(),
            gets: 0,
            commits: 0,
        };
        let batch = Vec::new();
        Ok(Box::new(FaultySession { engine: self, batch, puts: 0, commits: 0, seeks: 0, transaction }))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
    fn settings(&self) -> String {
        format!("{:?}", self.lie)
    }
}

impl Session for FaultySession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.puts += 1;
        if self.engine.lie != Fault::LostWrite || !self.puts.is_multiple_of(1500) {
            self.batch.push((key.to_vec(), Some(value.to_vec())));
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.engine.lie != Fault::Undead {
            self.batch.push((key.to_vec(), None));
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.commits += 1;
        if self.engine.lie == Fault::FailedCommit && self.commits == 50 {
            return Err("no space left".to_owned());
        }
        let mut map = self.engine.map.lock().unwrap();
        for (key, value) in self.batch.drain(..) {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.engine.map.lock().unwrap();
        let Some(right) = map.get(key) else { return Ok(false) };
        let wrong = map.values().next().filter(|_| self.engine.lie == Fault::WrongValue);
        value(wrong.unwrap_or(right));
        Ok(true)
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.engine.map.lock().unwrap();
        self.seeks += 1;
        let stale = self.engine.lie == Fault::StaleCursor && self.seeks.is_multiple_of(1000);
        let before = map.range(..key.to_vec()).next_back().filter(|_| stale);
        let right = map.range(key.to_vec()..).next();
        let shown = before.or(right);
        shown.into_iter().for_each(|(key, _)| found(key));
        Ok(shown.is_some())
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let map = self.engine.map.lock().unwrap();
        let gap = |n: usize| self.engine.lie == Fault::Gap && n == 2;
        let rows = map.range(key.to_vec()..).enumerate().filter(|(n, _)| !gap(*n)).take(limit as usize);
        Ok(rows.map(|(_, (key, value))| row(key, value)).count() as u64)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let map = self.engine.map.lock().unwrap();
        map.iter().for_each(|(key, value)| row(key, value));
        Ok(map.len() as u64)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        Some(&mut self.transaction)
    }
}

/// A transaction that is refused if a value that it read has changed since.
struct FaultyTransaction<'a> {
    engine: &'a FaultyEngine,
    checks: bool,
    read: Map,
    written: Map,
    gets: u64,
    commits: u64,
}

impl Transactions for FaultyTransaction<'_> {
    fn begin(&mut self, level: Isolation) -> Result<()> {
        self.checks = level.keeps_updates();
        self.rollback()
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if let Some(own) = self.written.get(key) {
            value(own);
            return Ok(true);
        }
        let found = self.engine.map.lock().unwrap().get(key).cloned();
        self.gets += 1;
        if self.gets.is_multiple_of(64) {
            // Gives other threads time to write the key.
            std::thread::yield_now();
        }
        if let Some(found) = &found {
            value(found);
            self.read.insert(key.to_vec(), found.clone());
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.written.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<()> {
        Err("rows of transactions have no deletes".to_owned())
    }

    fn commit(&mut self) -> Result<Ended> {
        self.commits += 1;
        let lie = self.engine.lie;
        let mut map = self.engine.map.lock().unwrap();
        let changed = self.read.iter().any(|(key, value)| map.get(key) != Some(value));
        if (self.checks && changed && lie != Fault::NeverRefused) || lie == Fault::AlwaysRefused {
            return Ok(Ended::Conflict);
        }
        if lie == Fault::LostUpdate && self.commits == 50 {
            self.written.pop_last();
        }
        map.extend(std::mem::take(&mut self.written)); // `append` would rebuild the whole map
        Ok(Ended::Committed)
    }

    fn rollback(&mut self) -> Result<()> {
        self.read.clear();
        self.written.clear();
        Ok(())
    }
}

/// Runs a row on a map; a wrong answer is an error.
fn on_map(spec: &Spec, lie: Fault) -> Result<Measured> {
    let engine = FaultyEngine { map: Mutex::new(Map::new()), lie: Fault::None };
    let bench = Bench::new(spec, true)?;
    if spec.workload.needs_data() {
        bench.populate(&engine)?;
    }
    let engine = FaultyEngine { lie, ..engine };
    let measured = bench.run(&engine)?;
    let (_, found, _) = bench.iterate(&engine, measured.versions)?;
    bench.verify(&measured, &found)?;
    Ok(measured)
}

fn row(workload: Workload, pattern: Pattern) -> Spec {
    Spec { workload, pattern, ops: 20_000, batch: 10, threads: 3, range: 20, ..Spec::default() }
}

/// Many transactions of three threads on a few thousand keys, or on few keys.
fn counters(contention: Contention, level: Isolation) -> Spec {
    let (isolation, tx_ops, ops, keys) = (Some(level), 5, 3000, 3000);
    Spec { isolation, contention, tx_ops, ops, keys, ..row(Workload::Transaction, Pattern::Random) }
}

fn rows() -> Vec<Spec> {
    let mut rows = Vec::new();
    for workload in Workload::ALL {
        for pattern in Pattern::ALL {
            for verify in [false, true] {
                let spec = Spec { verify, ..row(workload, pattern) };
                rows.extend(spec.check().is_ok().then_some(spec));
            }
        }
    }
    let none = Blend::default();
    let blends = [
        Blend { read: 95, insert: 5, latest: true, ..none },
        Blend { scan: 95, insert: 5, ..none },
        Blend { read: 50, modify: 50, ..none },
    ];
    rows.extend(blends.map(|blend| Spec { blend, ..row(Workload::Blend, Pattern::Scrambled) }));
    for contention in Contention::ALL {
        rows.extend(Isolation::ALL.map(|level| counters(contention, level)));
    }
    let puts = row(Workload::Write, Pattern::Random);
    rows.push(Spec { isolation: Some(Isolation::Snapshot), batch: 100, ..puts });
    rows.push(Spec { filling: crate::values::Filling::Sawtooth, ..row(Workload::Mixed, Pattern::Stride) });
    rows.push(Spec { key_bytes: 256, value_bytes: 4096, ops: 3000, ..row(Workload::Mixed, Pattern::Stride) });
    rows
}

#[test]
fn a_correct_engine_passes_every_workload() {
    for spec in rows() {
        let what = format!("{:?} {:?}", spec.workload, spec.pattern);
        let measured = on_map(&spec, Fault::None).unwrap_or_else(|e| panic!("{what}: {e}"));
        // The additional writer of `ReadWhileWriting` does as many operations as one reader.
        let ops = match spec.workload {
            // The additional reader of `WriteWhileReading` does as many as it can.
            Workload::WriteWhileReading => measured.phases[0].ops,
            Workload::Turnover => measured.phases.iter().find(|p| p.operation == "UPDATE").unwrap().ops,
            _ => {
                let whole = measured.phases.iter().filter(|p| p.operation != FRONT);
                let all: u64 = whole.map(|p| p.ops).sum();
                all * spec.threads as u64 / spec.crew() as u64
            }
        };
        let whole = [Workload::Iterate, Workload::Mixed].contains(&spec.workload);
        let conflicts = measured.transacted.map_or(0, |t| t.conflicts);
        let refused =
            spec.contention == Contention::High && spec.level().is_some_and(Isolation::keeps_updates);
        assert_eq!(conflicts > 0, refused, "{what}: {conflicts} conflicts at {:?}", spec.level());
        assert!(whole || ops.abs_diff(spec.ops) < 200, "{what}: {ops} operations");
        for phase in &measured.phases {
            let latency = phase.latency.as_ref().unwrap_or_else(|| panic!("{what}: no latency"));
            assert!(phase.rate() > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.max, "{what}");
        }
    }
}

#[track_caller]
fn caught(spec: &Spec, lie: Fault, words: &str) {
    let failure = on_map(spec, lie).expect_err("the fault was not detected");
    assert!(failure.contains(words), "{lie:?}: {failure}");
}

#[test]
fn a_wrong_key_from_a_reused_cursor_is_caught() {
    caught(&row(Workload::Seek, Pattern::Random), Fault::StaleCursor, "a seek to an existing key");
    caught(&row(Workload::Seek, Pattern::Zipfian), Fault::StaleCursor, "a seek to an existing key");
}

#[test]
fn one_lost_write_is_caught_without_reading_a_value() {
    for pattern in [Pattern::Seq, Pattern::Random, Pattern::Stride] {
        caught(&row(Workload::Write, pattern), Fault::LostWrite, "it should be");
        caught(&row(Workload::Mixed, pattern), Fault::LostWrite, "missing");
    }
    caught(&row(Workload::Queue, Pattern::Seq), Fault::LostWrite, "the front of a queue");
    for workload in [Workload::Overwrite, Workload::ReadWhileWriting, Workload::WriteWhileReading] {
        caught(&row(workload, Pattern::Random), Fault::LostWrite, "or their versions");
    }
    let churn = on_map(&row(Workload::Churn, Pattern::Random), Fault::LostWrite).unwrap_err();
    assert!(["missing", "version", "it should be"].iter().any(|w| churn.contains(w)), "{churn}");
}

#[test]
fn a_commit_that_fails_is_caught() {
    for workload in [Workload::Write, Workload::Mixed, Workload::Delete, Workload::Churn, Workload::Blend] {
        caught(&row(workload, Pattern::Random), Fault::FailedCommit, "no space left");
    }
}

#[test]
fn other_faults_are_caught() {
    caught(&row(Workload::Read, Pattern::Random), Fault::WrongValue, "never written for this key");
    caught(&row(Workload::MultiGet, Pattern::Uniform), Fault::WrongValue, "never written for this key");
    let older = Spec { version: 1, ..row(Workload::MultiGet, Pattern::Uniform) };
    let stale = on_map(&Spec { version: 0, ..older.clone() }, Fault::None).map(drop);
    assert_eq!(
        (stale, on_map(&older, Fault::None).map(drop)),
        (Ok(()), Ok(())),
        "filled with the version of the row"
    );
    for workload in [Workload::ProbeAfter, Workload::ProbeBeside] {
        let probes = Spec { seconds: 1.0, keys: 6000, verify: true, ..row(workload, Pattern::Random) };
        caught(&probes, Fault::WrongValue, "never written for this key");
        caught(&probes, Fault::StaleCursor, "found another one");
        caught(&probes, Fault::FailedCommit, "no space left");
    }
    caught(&row(Workload::Delete, Pattern::Random), Fault::Undead, "it should be");
    caught(&row(Workload::Churn, Pattern::Random), Fault::Undead, "a deleted key was found");
    caught(&row(Workload::Queue, Pattern::Seq), Fault::Undead, "the front of a queue");
    caught(&row(Workload::Range, Pattern::Seq), Fault::Gap, "skipped");
    caught(&Spec { verify: true, ..row(Workload::Range, Pattern::Random) }, Fault::Gap, "skipped");
}

#[test]
fn a_lost_update_is_caught_at_levels_that_keep_updates() {
    for level in Isolation::ALL {
        // With its own keys, a thread may detect the loss when it reads the key again.
        let failure = on_map(&counters(Contention::Low, level), Fault::LostUpdate).unwrap_err();
        assert!(failure.contains("are lost") || failure.contains("the newest is"), "{level:?}: {failure}");
        let crowded = counters(Contention::High, level);
        if level.keeps_updates() {
            caught(&crowded, Fault::LostUpdate, "are lost");
            caught(&crowded, Fault::NeverRefused, "are lost");
        } else {
            on_map(&crowded, Fault::NeverRefused).unwrap_or_else(|e| panic!("{level:?} may lose some: {e}"));
        }
    }
}

#[test]
fn a_transaction_that_is_always_refused_fails_its_row() {
    caught(&counters(Contention::Low, Isolation::Snapshot), Fault::AlwaysRefused, "refused 100000 times");
    let puts = Spec { isolation: Some(Isolation::Snapshot), ..row(Workload::Write, Pattern::Random) };
    caught(&puts, Fault::AlwaysRefused, "in conflict");
}

/// Runs both stages of a row on a real engine, in this process.
fn staged(engine: &str, spec: &Spec) -> crate::Outcome {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("db");
    let mut task =
        Task { engine: engine.to_owned(), dir: at, spec: spec.clone(), stage: Stage::Fill, group: None };
    if spec.workload.needs_data() {
        let filled = perform(&task, engines::open);
        assert_eq!(filled.failure, None);
    }
    task.stage = Stage::Measure;
    perform(&task, engines::open)
}

#[test]
fn the_null_engine_runs_every_workload() {
    for spec in rows() {
        let outcome = staged("null", &spec);
        assert_eq!(outcome.failure, None, "{:?} {:?}", spec.workload, spec.pattern);
        assert_eq!(outcome.phases.last().map(|p| p.operation.as_str()), Some("ITER"));
    }
}

#[test]
fn this_engine_passes_every_workload() {
    for workload in Workload::ALL {
        for batch in [1, 10] {
            let mut spec = Spec { ops: 6000, batch, ..row(workload, Pattern::Random) };
            if workload == Workload::Families {
                spec.families = vec![4000, 1000, 1000];
            }
            if matches!(
                workload,
                Workload::Overload
                    | Workload::Turnover
                    | Workload::ProbeAfter
                    | Workload::ProbeBeside
                    | Workload::Motion
            ) {
                (spec.seconds, spec.keys) = (0.2, 6000);
            }
            let outcome = staged("tidesdb", &spec);
            assert_eq!(outcome.failure, None, "{workload:?}");
            assert!(outcome.settings.contains("tidesdb") && outcome.db_bytes > 0);
        }
    }
    for contention in Contention::ALL {
        for level in Isolation::ALL {
            let outcome = staged("tidesdb", &counters(contention, level));
            assert_eq!(outcome.failure, None, "{contention:?}, {level:?}");
            assert_eq!(outcome.transacted.map(|t| t.committed), Some(3000));
        }
    }
}

#[test]
fn a_row_can_have_a_duration_and_a_rate() {
    for workload in [Workload::Write, Workload::Read, Workload::Mixed, Workload::Queue, Workload::Blend] {
        let spec = Spec { seconds: 0.15, keys: 9000, ..row(workload, Pattern::Random) };
        on_map(&spec, Fault::None).unwrap_or_else(|e| panic!("{workload:?}: {e}"));
    }
    let spec = Spec { rate: 10_000.0, ops: 3000, ..row(Workload::Write, Pattern::Seq) };
    let measured = on_map(&spec, Fault::None).unwrap();
    assert!((5_000.0..10_500.0).contains(&measured.phases[0].rate()), "{}", measured.phases[0].rate());
}

#[test]
fn the_rate_of_a_row_with_one_more_thread_is_that_of_the_thread() {
    let base =
        Spec { rate: 2_000.0, threads: 1, batch: 100, ..row(Workload::WriteWhileReading, Pattern::Uniform) };
    let measured = on_map(&Spec { ops: 300_000, ..base.clone() }, Fault::None).unwrap();
    let (puts, gets) = (measured.phases[0].rate(), measured.phases[1].rate());
    assert!(gets < 2_100.0 && puts > 3.0 * gets, "{puts} puts, {gets} gets");
    let reading = Spec { workload: Workload::ReadWhileWriting, seconds: 0.3, keys: 6000, ..base };
    let measured = on_map(&reading, Fault::None).unwrap();
    let (gets, puts) = (measured.phases[0].rate(), measured.phases[1].rate());
    assert!(puts < 2_600.0 && gets > 3.0 * puts, "{puts} puts, {gets} gets");
}

#[test]
fn the_timeline_of_a_watched_row_adds_up_to_its_phases() {
    let all = |workload| Spec { watched: true, ops: 6000, batch: 10, ..row(workload, Pattern::Uniform) };
    let timed = |workload| Spec { seconds: 0.3, keys: 6000, rate: 20_000.0, ..all(workload) };
    for spec in [
        Spec { pattern: Pattern::Random, ..all(Workload::Write) },
        all(Workload::Overwrite),
        Spec { rate: 0.0, version: 3, ..timed(Workload::Read) },
        Spec { rate: 0.0, ..timed(Workload::MultiGet) },
        all(Workload::Iterate),
        timed(Workload::ReadWhileWriting),
        all(Workload::WriteWhileReading),
        Spec { pattern: Pattern::Scrambled, version: 9, ..all(Workload::WriteWhileReading) },
        Spec { families: vec![4000, 1000, 1000], ..all(Workload::Families) },
        timed(Workload::Queue),
        Spec { ops: 60_000, rate: 0.0, range: 1000, ..timed(Workload::Turnover) },
        Spec { rate: 0.0, ..timed(Workload::Overload) },
        Spec { rate: 0.0, pattern: Pattern::Random, ..timed(Workload::ProbeAfter) },
        Spec { rate: 0.0, pattern: Pattern::Random, version: 4, ..timed(Workload::ProbeBeside) },
        Spec { rate: 0.0, pattern: Pattern::Random, ..timed(Workload::Motion) },
    ] {
        let (what, outcome) = (spec.workload, staged("tidesdb", &spec));
        assert_eq!(outcome.failure, None, "{what:?}");
        let lines = &outcome.timeline;
        // Not operations of the workload: the syncs beside it.
        for phase in outcome.phases.iter().filter(|p| p.operation != SYNC) {
            let beats = || lines.iter().flat_map(|l| &l.beats).filter(|b| b.operation == phase.operation);
            assert_eq!(beats().map(|b| b.ops).sum::<u64>(), phase.ops, "{what:?} {}", phase.operation);
            let slowest = beats().map(|b| b.slowest).fold(0.0, f64::max);
            let longest = phase.latency.as_ref().map_or(0.0, |l| l.max);
            let apart = (slowest - longest).abs();
            assert!(apart <= longest * 0.002, "{what:?} {}: {slowest} {longest}", phase.operation);
        }
        assert!(lines.iter().all(|l| l.resident > 0) && lines.iter().any(|l| l.files > 0), "{what:?}");
        let reads = [Workload::Read, Workload::MultiGet, Workload::ReadWhileWriting].contains(&what);
        assert_eq!(outcome.device.is_some(), reads, "{what:?}");
        let all_read = what == Workload::Iterate || (spec.overwrites() && what != Workload::Families);
        if what == Workload::Turnover {
            assert!((600..=3630).contains(&outcome.keys), "{}", outcome.keys);
        } else {
            assert_eq!(outcome.keys, if all_read { 6000 } else { 0 }, "{what:?}");
        }
        assert!(outcome.levels.iter().sum::<u64>() > 0, "{what:?}");
        assert_eq!(outcome.stats.tables_written > 0, spec.writes(), "{what:?}");
    }
}

fn turnover() -> Spec {
    Spec { keys: 2000, ops: 6000, seconds: 0.2, range: 500, ..row(Workload::Turnover, Pattern::Random) }
}

#[test]
fn a_turnover_has_its_periods_in_order_and_counts_the_bytes_that_exist() {
    let outcome = staged("tidesdb", &Spec { watched: true, ..turnover() });
    assert_eq!(outcome.failure, None);
    let periods = &outcome.periods;
    let names: Vec<&str> = periods.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["load", "calm", "overwrite", "delete", "queue", "rest"]);
    assert!(periods.windows(2).all(|w| w[0].from <= w[0].to && w[0].to == w[1].from), "{periods:?}");
    let ops = |operation: &str| outcome.phases.iter().find(|p| p.operation == operation).unwrap().ops;
    // Three threads have 666 keys each, of which the multiples of ten stay.
    assert_eq!((ops("PUT"), ops("UPDATE"), ops("DELETE")), (1998, 3 * 1998, 1998 - 200));
    let left = 200 + ops("APPEND") - ops("TAKE");
    let last = outcome.timeline.last().unwrap();
    assert_eq!((outcome.keys, last.live), (left, left * outcome.spec.entry_bytes()));
    assert!(last.allocated > 0 && outcome.timeline.iter().all(|s| s.live > 0 || s.at < periods[0].to));
}

#[test]
fn faults_in_a_turnover_are_caught() {
    // Queues or scans find these faults, whichever come first.
    for (lie, words) in [
        (Fault::Undead, "a deleted key was found"),
        (Fault::Gap, "some are missing"),
        (Fault::LostWrite, "some are missing"),
    ] {
        let failure = on_map(&turnover(), lie).unwrap_err();
        let found = [words, "the front of a queue", "or their versions"];
        assert!(found.iter().any(|words| failure.contains(words)), "{lie:?}: {failure}");
    }
    caught(&turnover(), Fault::FailedCommit, "no space left");
}

/// A map whose commits take two milliseconds each, one at a time.
struct SlowEngine(FaultyEngine, Mutex<()>);

struct SlowSession<'a>(Box<dyn Session + 'a>, &'a Mutex<()>);

impl Engine for SlowEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(SlowSession(self.0.session()?, &self.1)))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
    fn settings(&self) -> String {
        String::new()
    }
}

impl Session for SlowSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.delete(key)
    }
    fn commit(&mut self) -> Result<()> {
        let _turn = self.1.lock().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        self.0.commit()
    }
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get(key, value)
    }
    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.seek(key, found)
    }
    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.0.range(key, limit, row)
    }
    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.0.iterate(row)
    }
    fn refresh(&mut self) -> Result<()> {
        self.0.refresh()
    }
}

#[test]
fn an_overload_offers_twice_what_the_engine_takes() {
    let spec = Spec { keys: 3000, seconds: 1.0, ..row(Workload::Overload, Pattern::Random) };
    let map = FaultyEngine { map: Mutex::default(), lie: Fault::None };
    let engine = SlowEngine(map, Mutex::default());
    let bench = Bench::new(&spec, true).unwrap();
    bench.populate(&engine.0).unwrap();
    let measured = bench.run(&engine).unwrap();
    let (_, found, _) = bench.iterate(&engine.0, measured.versions).unwrap();
    assert_eq!(bench.verify(&measured, &found), Ok(()));
    let overload = measured.overload.unwrap();
    let put = measured.phases.iter().find(|p| p.operation == "PUT").unwrap();
    assert!(overload.found > 0.0 && overload.offered == 2.0 * overload.found, "{overload:?}");
    let share = put.rate() / overload.found;
    assert!(
        (0.4..1.9).contains(&share),
        "the engine takes no more than before, and not twice as much: {share}"
    );
    let served = put.latency.as_ref().unwrap();
    assert_eq!(served.samples, overload.since_due.samples);
    assert!(
        overload.since_due.p50 > 4.0 * served.p50 && overload.since_due.max > 2e5,
        "half of the time the generator is a quarter of a second late: {overload:?} {served:?}"
    );
}

#[test]
fn an_engine_that_cannot_open_fails_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, spec, stage) = (dir.path().into(), Spec::default(), Stage::Measure);
    let task = Task { engine: "none".to_owned(), dir, spec, stage, group: None };
    let refuse = |_: &Config| Err("the door is locked".to_owned());
    assert_eq!(perform(&task, refuse).failure.as_deref(), Some("the door is locked"));
}
