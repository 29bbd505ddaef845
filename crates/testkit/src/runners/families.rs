//! T52, many families: the processor time of everything that is done for each family, at several numbers of families: create, look up,
//! write a row, flush, merge, do nothing, describe, close, open, recover, drop. With four times the families, no figure may be much more
//! than four times as large, and families that are not used may take no processor time. A case is the whole run.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tempfile::TempDir;
use testkit::home::in_memory;
use testkit::process::{self, processor_time, thread_time};
use testkit::report::{self, OneCase, exit, finish, violation};
use testkit::watch::Watch;
use tidesdb::{Db, Error, Family, FamilyOptions, HealthState, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

/// A figure may grow by this factor more than the families. A quadratic one grows by the factor of the families more, so the sizes must lie
/// further apart.
const MARGIN: u64 = 2;
/// Figures below this are not compared: they are mostly what does not depend on the families.
const FLOOR: Duration = Duration::from_millis(40);
/// The same for a look up, which does nothing but what depends on the families: 1000 of them take 1 ms.
const LOOK_UP_FLOOR: Duration = Duration::from_millis(2);
/// A database is quiet after five seconds without a commit. Then it looks once for what it can merge.
const QUIET: Duration = Duration::from_secs(7);
/// Processor time that an idle database may take in ten seconds, however many families it has.
const IDLE_MAX: Duration = Duration::from_millis(100);

#[derive(Clone, Parser)]
struct Plan {
    /// Numbers of families, ascending, each at least four times the one before.
    #[arg(long, value_delimiter = ',', default_value = "1000,4000,16000")]
    sizes: Vec<u64>,
    /// Rows that are recovered.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Seconds for which idle databases are watched; 0 = not at all.
    #[arg(long, default_value_t = 20)]
    idle: u64,
    #[command(flatten)]
    one: OneCase,
}

/// The names of the figures, in the order in which they are measured.
const NAMES: [&str; 11] =
    ["create", "look up", "write", "flush", "merge", "idle", "stats", "close", "open", "recover", "drop"];
const LOOK_UP: usize = 1;
/// Index of the figure that must not grow at all.
const IDLE: usize = 5;

type Figures = [Duration; NAMES.len()];

pub(crate) fn runner() -> ExitCode {
    let plan: Plan = process::arguments();
    report::begin(&[], plan.one.case);
    if plan.sizes.is_empty() || plan.sizes.windows(2).any(|pair| pair[1] < pair[0].saturating_mul(4)) {
        violation("each of --sizes is at least four times the one before");
        return ExitCode::FAILURE;
    }
    let watch = Watch::start(Duration::from_secs(1800));
    println!("{:>9}  {}", "families", NAMES.map(|name| format!("{name:>9}")).join(" "));
    let mut seen: Vec<(u64, Figures)> = Vec::new();
    for &size in &plan.sizes {
        watch.begin("a database");
        match run(&plan, size) {
            Ok(figures) => {
                let ms = figures.map(|time| format!("{:>6.0} ms", time.as_secs_f64() * 1000.0));
                println!("{size:>9}  {}", ms.join(" "));
                seen.push((size, figures));
            }
            Err(e) => violation(e),
        }
    }
    let violations = judge(&plan, &seen);
    violations.iter().for_each(violation);
    let (families, rows) = (plan.sizes.iter().sum(), plan.rows * seen.len() as u64);
    let figures = [
        ("families", families),
        ("rows", rows),
        ("violations", violations.len() as u64),
        ("seed", plan.one.case),
    ];
    exit(finish("T52", &figures, &[("rows", plan.rows * plan.sizes.len() as u64)]))
}

/// What is wrong with the figures.
fn judge(plan: &Plan, seen: &[(u64, Figures)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (size, figures) in seen {
        let per_ten = figures[IDLE] * 10 / plan.idle.max(1) as u32;
        if per_ten > IDLE_MAX {
            wrong.push(format!("{size} idle families take {per_ten:?} of processor time in ten seconds"));
        }
    }
    for pair in seen.windows(2) {
        let ((few, before), (many, after)) = (pair[0], pair[1]);
        for (at, name) in NAMES.iter().enumerate().filter(|(at, _)| *at != IDLE) {
            let floor = if at == LOOK_UP { LOOK_UP_FLOOR } else { FLOOR };
            let most = before[at].max(floor) * (many * MARGIN / few) as u32;
            if after[at] > most {
                let (a, b) = (before[at], after[at]);
                wrong.push(format!("{name}: {a:?} with {few} families, and {b:?} with {many}"));
            }
        }
    }
    wrong
}

fn open(dir: &TempDir) -> Result<Db, Error> {
    let options = Db::options(dir.path()).sync(SyncMode::None).background_threads(2).memory_limit(6 << 30);
    options.with(|o| o.disk_free_min = 0).open()
}

fn name(n: u64) -> String {
    format!("tenant{n:06}")
}

/// Returns the processor time that all threads take for `work`.
fn cost<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<(Duration, R), Error> {
    let before = processor_time();
    let done = work()?;
    Ok((processor_time() - before, done))
}

/// Returns the processor time until no job is left in the background, without that of looking.
fn settled(db: &Db) -> Duration {
    let (clock, before) = (RealClock::new(), processor_time());
    let mut looking = Duration::ZERO;
    loop {
        clock.sleep(Duration::from_millis(100));
        let begun = thread_time();
        let left = db.stats().jobs_pending;
        looking += thread_time() - begun;
        if left == 0 {
            return (processor_time() - before).saturating_sub(looking);
        }
    }
}

fn run(plan: &Plan, size: u64) -> Result<Figures, String> {
    let dir = in_memory()?;
    measure(plan, size, &dir).map_err(|e| format!("{size} families: {e}"))
}

fn measure(plan: &Plan, size: u64, dir: &TempDir) -> Result<Figures, Error> {
    let db = open(dir)?;
    let make = |n: u64| db.create_family(&name(n), FamilyOptions::default());
    let (create, families) = cost(|| (0..size).map(make).collect::<Result<Vec<Family>, Error>>())?;
    let (look_up, ()) = cost(|| {
        (0..size).try_for_each(|n| {
            let found = db.family(&name(n))?;
            assert!(db.has_family(&found.name()));
            db.family_or_create(&name(n), FamilyOptions::default()).map(drop)
        })
    })?;
    let put = |family: &Family| family.put("row", "1").map(drop);
    let (write, ()) = cost(|| families.iter().try_for_each(put))?;
    let (flush, ()) = cost(|| db.flush())?;
    let flush = flush + settled(&db);
    families.iter().try_for_each(put)?;
    let (merge, ()) = cost(|| db.compact())?;
    let merge = merge + settled(&db);
    let idle = idle(plan, &db)?;
    let begun = thread_time();
    assert!(db.stats().families.len() as u64 > size && db.health().state == HealthState::Healthy);
    let stats = thread_time() - begun;
    drop(families);
    let (close, ()) = cost(|| db.close())?;
    let (open_again, db) = cost(|| open(dir))?;
    let open_again = open_again + settled(&db);
    fill(&db, plan.rows, size)?;
    db.abandon();
    let (recover, db) = cost(|| {
        let db = open(dir)?;
        db.put("row", "after the recovery")?;
        Ok(db)
    })?;
    let recover = recover + settled(&db);
    check(&db, plan.rows, size)?;
    rest(plan, &db);
    let (dropped, ()) = cost(|| (0..size).step_by(2).try_for_each(|n| db.drop_family(&name(n))))?;
    let dropped = dropped + settled(&db);
    db.close()?;
    Ok([create, look_up, write, flush, merge, idle, stats, close, open_again, recover, dropped])
}

/// Waits until the database has done what it does only when it is not used.
fn rest(plan: &Plan, db: &Db) {
    if plan.idle > 0 {
        RealClock::new().sleep(QUIET);
        settled(db);
    }
}

/// Returns the processor time that the database takes while nothing uses it.
fn idle(plan: &Plan, db: &Db) -> Result<Duration, Error> {
    if plan.idle == 0 {
        return Ok(Duration::ZERO);
    }
    let clock = RealClock::new();
    rest(plan, db);
    cost(|| {
        clock.sleep(Duration::from_secs(plan.idle));
        Ok(())
    })
    .map(|(time, ())| time)
}

/// Writes `rows` rows, one family after the other.
fn fill(db: &Db, rows: u64, size: u64) -> Result<(), Error> {
    let families = (0..size).map(|n| db.family(&name(n))).collect::<Result<Vec<_>, _>>()?;
    let mut batch = WriteBatch::new();
    for row in 0..rows {
        batch.put(&families[(row % size) as usize], row.to_le_bytes(), [7; 20])?;
        if batch.len() == 20 {
            db.write(&mut batch)?;
        }
    }
    db.write(&mut batch).map(drop)
}

/// Checks that some of the recovered rows are there.
fn check(db: &Db, rows: u64, size: u64) -> Result<(), Error> {
    for row in (0..rows).step_by(101) {
        let found = db.family(&name(row % size))?.get(row.to_le_bytes())?;
        assert_eq!(found.as_deref(), Some(&[7; 20][..]), "row {row} is missing after the recovery");
    }
    Ok(())
}
