//! T18, few descriptors: a process with a limit of 256 open files uses a database with 20,000 tables and a thousand value
//! logs. Writes, reads, scans, merges, checks, copies and opens must all work, even while the program holds every
//! remaining descriptor. Then values are overwritten until many value logs were created and removed. The processor time of a flush, a get
//! and an open is printed: compare runs with different numbers of tables.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::home::in_memory;
use testkit::process;
use testkit::report::{self, OneCase, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Compression, Db, Error, FamilyOptions, SyncMode, WriteBatch};

/// Descriptor limit of the process.
const LIMIT: u64 = 256;
/// Rows per commit, and about as many rows per merged table.
const ROWS: u64 = 20;
/// Rows that are overwritten again and again.
const CHURNED: u64 = 50;
/// Value logs that may be left after the overwrites.
const FILES_MAX: u64 = CHURNED * 3 / 2 + 4;
/// Flushes that are measured. They overwrite the first [`NEAR`] rows, so that their merges are the same whatever the number of tables.
const FLUSHES: u64 = 400;
const NEAR: u64 = 2000;
/// Gets that are measured.
const GETS: u64 = 20_000;

/// Size of the run.
#[derive(Clone, Copy, Parser)]
struct Plan {
    /// Minimum number of tables to create.
    #[arg(long, default_value_t = 20_000)]
    tables: u64,
    /// Minimum number of value log files to create.
    #[arg(long, default_value_t = 1000)]
    values: u64,
    /// Number of families with their own value log.
    #[arg(long, default_value_t = 300)]
    families: u64,
    /// Number of value logs to fill with values that are then overwritten.
    #[arg(long, default_value_t = 5000)]
    churn: u64,
    #[command(flatten)]
    one: OneCase,
}

pub(crate) fn runner() -> ExitCode {
    let plan: Plan = process::arguments();
    report::begin(&[], plan.one.case);
    let watch = Watch::start(Duration::from_secs(480));
    watch.begin("the database");
    let limited = process::limit_descriptors(LIMIT);
    if limited != Ok(true) {
        println!("T18 SKIPPED: {}", limited.err().unwrap_or("the system has no such limit".to_owned()));
        return ExitCode::SUCCESS;
    }
    let seen = in_memory().and_then(|temp| run(temp.path(), plan));
    let violations = u64::from(seen.is_err());
    let seen = seen.unwrap_or_else(|e| {
        violation(e);
        Seen::default()
    });
    let figures = [
        ("limit", LIMIT),
        ("tables", seen.tables),
        ("value_logs", seen.value_logs),
        ("open_max", seen.open_max),
        ("rows", seen.rows),
        ("value_logs_removed", seen.removed),
        ("value_logs_left", seen.left),
        ("flush_cpu_us", seen.flush_micros),
        ("get_cpu_ns", seen.get_nanos),
        ("open_cpu_us_per_table", seen.open_micros),
        ("violations", violations),
        ("seed", plan.one.case),
    ];
    let floors = [
        ("tables", plan.tables),
        ("value_logs", plan.values + plan.families),
        ("rows", plan.tables * ROWS),
        ("value_logs_removed", plan.churn / 10 * 9),
    ];
    exit(finish("T18", &figures, &floors))
}

/// Figures of the run.
#[derive(Default)]
struct Seen {
    tables: u64,
    value_logs: u64,
    open_max: u64,
    rows: u64,
    removed: u64,
    left: u64,
    /// Processor time of a flush, with the merges that follow from it.
    flush_micros: u64,
    /// Processor time of a get of a random row.
    get_nanos: u64,
    /// Processor time of an open for each table.
    open_micros: u64,
}

impl Seen {
    /// Counts the files of the database and the descriptors that the process has open.
    fn look(&mut self, path: &Path) -> Result<(), String> {
        let names = |path: &Path| -> Result<Vec<String>, String> {
            let entries = std::fs::read_dir(path).map_err(|e| format!("list: {e}"))?;
            Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        };
        let files = names(path)?;
        let count = |end: &str| files.iter().filter(|name| name.ends_with(end)).count() as u64;
        self.tables = self.tables.max(count(".klog"));
        self.value_logs = self.value_logs.max(count(".vlog"));
        self.open_max = self.open_max.max(names(Path::new("/proc/self/fd"))?.len() as u64);
        Ok(())
    }
}

fn open(path: &Path) -> Result<Db, Error> {
    let options = Db::options(path).sync(SyncMode::None).background_threads(2).default_family(small());
    options.with(|o| (o.wal_segment_bytes, o.disk_free_min) = (1 << 20, 0)).open()
}

/// Options of a family with many small tables: a merge makes several of each flushed table.
fn small() -> FamilyOptions {
    let options = FamilyOptions::default().write_buffer_bytes(16 << 10).value_threshold(usize::MAX);
    let mut options = options.compression(Compression::None);
    options.table_bytes = 3072;
    options
}

/// Options of a family with many value logs. Its memtable never fills up, so no flush syncs the value logs.
fn values() -> FamilyOptions {
    let mut options = FamilyOptions::default().value_threshold(64).compression(Compression::None);
    options.vlog_file_bytes = 4096;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u64, bytes: usize) -> Vec<u8> {
    Rng::new(n).next_u64().to_string().into_bytes().into_iter().cycle().take(bytes).collect()
}

/// Adds the name of the step to an error.
fn say<T>(what: &str, done: Result<T, Error>) -> Result<T, String> {
    done.map_err(|e| format!("{what}: {e}"))
}

fn run(path: &Path, plan: Plan) -> Result<Seen, String> {
    let (dir, mut seen) = (path.join("db"), Seen::default());
    churn(&path.join("churn"), plan, &mut seen)?;
    let db = say("open", open(&dir))?;
    fill(&db, plan, &dir, &mut seen)?;
    seen.rows = check(&db, plan, "before the merge")?;
    measure(&db, plan, &mut seen)?;
    say("merge", db.compact())?;
    seen.look(&dir)?;
    check(&db, plan, "after the merge")?;
    starve(&db, plan).map_err(|e| format!("without a descriptor left: {e}"))?;
    let report = say("verify", db.verify())?;
    if !report.is_ok() {
        return Err(format!("verify: {report}"));
    }
    say("checkpoint", db.checkpoint(path.join("checkpoint")))?;
    say("backup", db.backup(path.join("backup")))?;
    seen.look(&dir)?;
    say("close", db.close())?;

    for name in ["db", "checkpoint", "backup"] {
        let dir = path.join(name);
        let before = processor_time();
        let db = say("open again", open(&dir)).map_err(|e| format!("{name}: {e}"))?;
        let tables = db.stats().trees.iter().map(|tree| tree.tables as u64).sum::<u64>();
        seen.open_micros = ((processor_time() - before) / 1000 / tables.max(1)).max(seen.open_micros);
        check(&db, plan, name)?;
        say("put", db.put(&key(0), &value(0, 150)))?;
        db.abandon();
        let db = say("open after a crash", open(&dir))?;
        check(&db, plan, name)?;
        seen.look(&dir)?;
        say("close", db.close())?;
    }
    Ok(seen)
}

/// Creates the tables and the value logs, and overwrites a tenth of the rows.
fn fill(db: &Db, plan: Plan, dir: &Path, seen: &mut Seen) -> Result<(), String> {
    let family = say("create", db.create_family("values", values()))?;
    for n in 0..plan.values {
        say("put a large value", family.put(&key(n), &value(n, 4096)))?;
    }
    seen.look(dir)?;
    for n in 0..plan.families {
        let family = say("create", db.create_family(&format!("family{n}"), values()))?;
        say("put a value", family.put(&key(n), &value(n, 100)))?;
    }
    seen.look(dir)?;
    let mut batch = WriteBatch::new();
    let mut commit = |rows: &mut dyn Iterator<Item = u64>| -> Result<(), String> {
        for n in rows {
            say("put", batch.put(db.default_family(), &key(n), &value(n, 150)))?;
        }
        say("commit", db.write(&mut batch).map(drop))
    };
    (0..plan.tables).try_for_each(|table| commit(&mut (table * ROWS..(table + 1) * ROWS)))?;
    say("flush", db.flush())?;
    seen.look(dir)?;
    let mut rng = Rng::new(plan.one.case);
    (0..plan.tables / 10).try_for_each(|_| commit(&mut (0..ROWS).map(|_| rng.below(plan.tables * ROWS))))?;
    seen.look(dir)
}

/// Measures flushes and gets.
fn measure(db: &Db, plan: Plan, seen: &mut Seen) -> Result<(), String> {
    let mut rng = Rng::new(plan.one.case + 3);
    let before = processor_time();
    for _ in 0..FLUSHES {
        let mut batch = WriteBatch::new();
        for n in (0..ROWS).map(|_| rng.below(NEAR)) {
            say("put", batch.put(db.default_family(), &key(n), &value(n, 150)))?;
        }
        say("commit", db.write(&mut batch).map(drop))?;
        say("flush", db.default_family().flush())?;
    }
    seen.flush_micros = (processor_time() - before) / 1000 / FLUSHES;
    let before = processor_time();
    for n in (0..GETS).map(|_| rng.below(plan.tables * ROWS)) {
        say("get", db.get(&key(n)))?.ok_or_else(|| format!("row {n} is missing"))?;
    }
    seen.get_nanos = (processor_time() - before) / GETS;
    Ok(())
}

/// Processor time of this process in nanoseconds.
fn processor_time() -> u64 {
    process::processor_time().as_nanos() as u64
}

/// Overwrites the same rows until `plan.churn` value logs were filled; few of them may be left.
fn churn(path: &Path, plan: Plan, seen: &mut Seen) -> Result<(), String> {
    let db = say("open", open(path))?;
    let family = say("create", db.create_family("churn", values().write_buffer_bytes(64 << 10)))?;
    for n in 0..plan.churn {
        say("overwrite", family.put(&key(n % CHURNED), &value(n, 4096)))?;
        if n % 1000 == 0 {
            seen.look(path)?;
        }
    }
    for _ in 0..100 {
        say("merge", family.compact())?;
        let stats = family.stats();
        (seen.removed, seen.left) = (stats.value_files_removed, stats.value_log_files as u64);
        if seen.left <= FILES_MAX {
            break;
        }
        std::thread::sleep(Duration::from_millis(100)); // a job in the background may still use a version
    }
    seen.look(path)?;
    if seen.left > FILES_MAX {
        return Err(format!("{} value logs are left for {CHURNED} values that fill one each", seen.left));
    }
    for n in plan.churn.saturating_sub(CHURNED)..plan.churn {
        if say("get", family.get(&key(n % CHURNED)))?.as_deref() != Some(&value(n, 4096)[..]) {
            return Err(format!("overwritten value {n} is wrong"));
        }
    }
    say("close", db.close())
}

/// Checks that every row exists, by key and in two interleaved scans; returns the number of rows.
fn check(db: &Db, plan: Plan, when: &str) -> Result<u64, String> {
    let family = say("family", db.family("values"))?;
    for n in 0..plan.values {
        let got = say("get of a large value", family.get(&key(n))).map_err(|e| format!("{when}: {e}"))?;
        if got.as_deref() != Some(&value(n, 4096)[..]) {
            return Err(format!("{when}: large value {n} is wrong"));
        }
    }
    for n in 0..plan.families {
        let family = say("family", db.family(&format!("family{n}")))?;
        let got = say("get of a value", family.get(&key(n))).map_err(|e| format!("{when}: {e}"))?;
        if got.as_deref() != Some(&value(n, 100)[..]) {
            return Err(format!("{when}: value of family {n} is wrong"));
        }
    }
    let total = plan.tables * ROWS;
    let mut rng = Rng::new(plan.one.case + 7);
    for n in (0..plan.tables).map(|_| rng.below(total)) {
        let got = say("get", db.get(&key(n))).map_err(|e| format!("{when}: {e}"))?;
        if got.as_deref() != Some(&value(n, 150)[..]) {
            return Err(format!("{when}: row {n} is wrong"));
        }
    }
    // Each scan covers half of the rows. They advance alternately, because each one needs its own tables.
    let half = key(total / 2);
    let mut walks = [say("scan", db.range(..half.clone()))?, say("scan", db.range(half..))?];
    let mut rows = 0;
    loop {
        let row = |walk: &mut tidesdb::Iter| walk.next().transpose();
        let pair = [row(&mut walks[0]), row(&mut walks[1])];
        let before = rows;
        for (n, row) in [rows / 2, total / 2 + rows / 2].into_iter().zip(pair) {
            if let Some((k, v)) = say("scan", row).map_err(|e| format!("{when}: {e}"))? {
                if *k != *key(n) || *v != *value(n, 150) {
                    return Err(format!("{when}: row {n} of a scan is wrong"));
                }
                rows += 1;
            }
        }
        if rows == before {
            break;
        }
    }
    if rows != total { Err(format!("{when}: {rows} rows of {total}")) } else { Ok(rows) }
}

/// Takes every remaining descriptor and checks that the database works with those it has.
#[expect(clippy::disallowed_methods, reason = "files of the program, not of a database")]
fn starve(db: &Db, plan: Plan) -> Result<(), String> {
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    check(db, plan, "reads")?;
    for n in 0..plan.tables * 2 {
        say("put", db.put(&key(n), &value(n, 150)))?; // flushes, merges and log segments need descriptors
    }
    let family = say("family", db.family("values"))?;
    for n in 0..20 {
        say("put of a large value", family.put(&key(n), &value(n, 4096)))?;
    }
    say("flush", db.flush())?;
    check(db, plan, "reads after writes")?;
    drop(taken);
    Ok(())
}
