//! What is measured.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engines::{Database, Engine, Store, of};
use crate::rows::{Changes, Versions, key, mixed, value};
use crate::{Result, say};

/// Generations after the first.
const ROUNDS: u64 = 10;
/// Generations that a prune leaves.
const KEPT: usize = 3;
/// Bits that are flipped, one after the other.
const FLIPS: u64 = 100;
/// Processes that are killed.
const KILLS: u64 = 50;
/// Puts a second, and how long.
const RATE: f64 = 10_000.0;
const PACED: Duration = Duration::from_secs(20);

fn fresh(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    match fs::remove_dir_all(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(path),
    }
}

/// The files below a folder with their lengths.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => all.append(&mut files(&entry.path())?),
            false => drop(all.insert(entry.path(), entry.metadata()?.len())),
        }
    }
    Ok(all)
}

fn bytes(dir: &Path) -> Result<u64> {
    Ok(files(dir)?.values().sum())
}

/// Bytes of table files and value logs that `before` did not have.
fn newer(before: &BTreeMap<PathBuf, u64>, after: &BTreeMap<PathBuf, u64>) -> u64 {
    let is_data = |path: &Path| {
        path.extension().is_some_and(|e| ["klog", "vlog", "sst", "blob"].iter().any(|data| e == *data))
    };
    after
        .iter()
        .filter(|(path, _)| is_data(path))
        .map(|(path, len)| len - before.get(path).unwrap_or(&0).min(len))
        .sum()
}

fn filled(engine: Engine, dir: &Path, versions: &Versions) -> Result<Box<dyn Database>> {
    let mut db = (engine.open)(dir)?;
    versions.fill(|key, value| db.put(key, value))?;
    db.commit()?;
    db.settle()?;
    Ok(db)
}

pub(crate) fn generations(engine: Engine, dir: &Path, rows: u64, changes: Changes) -> Result<()> {
    let (home, shelf) = (fresh(dir, "db")?, fresh(dir, "store")?);
    let mut versions = Versions::new(rows);
    let mut db = filled(engine, &home, &versions)?;
    let mut store = (engine.store)(&shelf)?;
    let mut kept = VecDeque::new();
    let mut had = BTreeMap::new();
    for round in 0..=ROUNDS {
        let changed = match round {
            0 => 0,
            _ => versions.change(round, changes, |key, value| db.put(key, value))?,
        };
        db.commit()?;
        let (before, began) = (bytes(&shelf)?, Instant::now());
        db.back_up(&mut *store)?;
        let (took, copied) = (began.elapsed(), bytes(&shelf)? - before);
        let has = files(&home)?;
        say(&format!(
            "generation {round}: {:.1} MB overwritten, {:.1} MB of new files, {:.1} MB copied in {:.2} s; database {:.1} MB, store {:.1} MB",
            mega(changed),
            mega(newer(&had, &has)),
            mega(copied),
            took.as_secs_f64(),
            mega(bytes(&home)?),
            mega(bytes(&shelf)?)
        ));
        had = has;
        kept.push_back(versions.clone());
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
    db.close()?;
    let began = Instant::now();
    store.keep_last(KEPT)?;
    say(&format!("pruned in {:.2} s; store {:.1} MB", began.elapsed().as_secs_f64(), mega(bytes(&shelf)?)));
    let listed = store.list()?;
    if listed.len() != KEPT {
        return Err(format!("{} generations are left", listed.len()).into());
    }
    for (number, versions) in listed.into_iter().zip(kept) {
        let (copy, began) = (fresh(dir, "copy")?, Instant::now());
        store.restore(number, &copy)?;
        let took = began.elapsed();
        let db = (engine.open)(&copy)?;
        versions.compare(db.rows()?)?;
        db.close()?;
        say(&format!("generation {number} restored in {:.2} s; all rows are right", took.as_secs_f64()));
    }
    Ok(())
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

pub(crate) fn writers(engine: Engine, dir: &Path, rows: u64) -> Result<()> {
    let (home, shelf) = (fresh(dir, "db")?, fresh(dir, "store")?);
    let db = filled(engine, &home, &Versions::new(rows))?;
    let mut store = (engine.store)(&shelf)?;
    report("alone", paced(&*db, rows, &|began| began.elapsed() < PACED)?);
    let (ended, began) = (AtomicBool::new(false), Instant::now());
    let (took, waits) = std::thread::scope(|scope| {
        let writer =
            scope.spawn(|| paced(&*db, rows, &|_| !ended.load(Ordering::Relaxed)).map_err(|e| e.to_string()));
        let done = db.back_up(&mut *store);
        ended.store(true, Ordering::Relaxed);
        let took = began.elapsed();
        let waits = writer.join().map_err(|_| "a writer has panicked")?;
        done.map(|()| (took, waits))
    })?;
    report("beside a first backup", waits?);
    say(&format!("the backup took {:.2} s, store {:.1} MB", took.as_secs_f64(), mega(bytes(&shelf)?)));
    db.close()
}

/// Puts rows at a fixed rate while `goes_on`; returns how long each took from the time at which it was due.
fn paced(db: &dyn Database, rows: u64, goes_on: &dyn Fn(Instant) -> bool) -> Result<Vec<Duration>> {
    let (began, mut waits) = (Instant::now(), Vec::new());
    while goes_on(began) {
        let due = Duration::from_secs_f64(waits.len() as f64 / RATE);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let number = mixed(waits.len() as u64) % rows;
        db.put_now(&key(number), &value(number, 1))?;
        waits.push(began.elapsed().saturating_sub(due));
    }
    Ok(waits)
}

fn report(what: &str, mut waits: Vec<Duration>) {
    waits.sort_unstable();
    let at = |part: f64| waits.get(((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1)));
    let [p50, p99, p999, most] = [0.5, 0.99, 0.999, 1.0].map(|part| at(part).copied().unwrap_or_default());
    say(&format!("{what}: {} puts, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, slowest {most:?}", waits.len()));
}

pub(crate) fn flips(engine: Engine, dir: &Path, rows: u64) -> Result<()> {
    let (home, shelf) = (fresh(dir, "db")?, fresh(dir, "store")?);
    let mut versions = Versions::new(rows);
    let mut db = filled(engine, &home, &versions)?;
    let mut store = (engine.store)(&shelf)?;
    db.back_up(&mut *store)?;
    versions.change(1, Changes::Everywhere, |key, value| db.put(key, value))?;
    db.commit()?;
    db.back_up(&mut *store)?;
    db.close()?;
    let newest = *store.list()?.last().ok_or("no generation")?;
    drop(store);
    let all: Vec<(PathBuf, u64)> = files(&shelf)?.into_iter().filter(|(_, len)| *len > 0).collect();
    let (mut by_verify, mut by_restore, mut by_reads, mut harmless) = (0, 0, 0, 0);
    for n in 0..FLIPS {
        let (path, len) = &all[(mixed(n) % all.len() as u64) as usize];
        let at = mixed(n ^ 0xF11B) % len;
        flip(path, at, n)?;
        let copy = fresh(dir, "copy")?;
        let opened = (engine.store)(&shelf);
        let verified =
            opened.and_then(|store| has(&*store, newest).and_then(|()| store.verify(newest)).map(|()| store));
        by_verify += u64::from(verified.is_err());
        let restored = (engine.store)(&shelf).and_then(|mut store| store.restore(newest, &copy));
        by_restore += u64::from(restored.is_err());
        if restored.is_ok() {
            let read = (engine.open)(&copy).and_then(|db| versions.compare(db.rows()?));
            by_reads += u64::from(read.is_err());
            harmless += u64::from(read.is_ok());
        }
        flip(path, at, n)?;
    }
    say(&format!(
        "{FLIPS} flips in {} files: the check notices {by_verify}, a restore {by_restore}; it succeeds and the rows are wrong or unreadable {by_reads}, \
         right {harmless}",
        all.len()
    ));
    Ok(())
}

fn has(store: &dyn Store, number: u64) -> Result<()> {
    if store.list()?.contains(&number) { Ok(()) } else { Err("it is not listed".into()) }
}

fn flip(path: &Path, at: u64, bit: u64) -> Result<()> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut byte)?;
    byte[0] ^= 1 << (bit % 8);
    file.seek(SeekFrom::Start(at))?;
    Ok(file.write_all(&byte)?)
}

pub(crate) fn kills(dir: &Path, rows: u64) -> Result<()> {
    let engine = of("tidesdb")?;
    let (home, shelf) = (fresh(dir, "db")?, fresh(dir, "store")?);
    filled(engine, &home, &Versions::new(rows))?.close()?;
    let mib = ((rows * crate::rows::ROW_BYTES) >> 20).to_string();
    let (mut restored, mut newest) = (0, 0);
    for n in 0..KILLS {
        let mut victim =
            Command::new(std::env::current_exe()?).args(["victim", "tidesdb"]).arg(dir).arg(&mib).spawn()?;
        std::thread::sleep(Duration::from_millis(300 + mixed(n) % 4000));
        victim.kill()?;
        victim.wait()?;
        let mut store = (engine.store)(&shelf)?;
        let listed = store.list()?;
        if listed.last().is_none_or(|last| *last < newest) && newest > 0 {
            return Err(format!("generation {newest} is lost: {listed:?}").into());
        }
        newest = listed.last().copied().unwrap_or(newest);
        for number in listed {
            store.verify(number)?;
            let copy = fresh(dir, "copy")?;
            store.restore(number, &copy)?;
            let db = (engine.open)(&copy)?;
            consistent(db.rows()?, rows)?;
            db.close()?;
            restored += 1;
        }
    }
    say(&format!(
        "{KILLS} kills up to generation {newest}: {restored} restores, each with all {rows} rows, none torn"
    ));
    Ok(())
}

/// Each row is there, and is the one of the version that it states.
fn consistent(rows: impl Iterator<Item = crate::engines::Row>, count: u64) -> Result<()> {
    let mut next = 0;
    for row in rows {
        let (found, content) = row?;
        let version = content.first().copied().unwrap_or_default();
        if found != key(next) || content != value(next, version) {
            return Err(format!("row {next} is torn").into());
        }
        next += 1;
    }
    if next == count { Ok(()) } else { Err(format!("{next} rows of {count}").into()) }
}

/// Overwrites rows, and makes and prunes generations, until it is killed.
pub(crate) fn victim(dir: &Path, rows: u64) -> Result<()> {
    let engine = of("tidesdb")?;
    let mut db = (engine.open)(&dir.join("db"))?;
    let mut store = (engine.store)(&dir.join("store"))?;
    let mut versions = Versions::new(rows);
    for round in u64::from(std::process::id()).. {
        versions.change(round, Changes::Everywhere, |key, value| db.put(key, value))?;
        db.commit()?;
        db.back_up(&mut *store)?;
        store.keep_last(KEPT)?;
    }
    Ok(())
}
