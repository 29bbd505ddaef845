//! Rows that become tables outside of the database, which one commit takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidesdb::{Error, Ingest, TableBuilder, WriteOptions};
use tidesdb_io::sim::Habits;

use super::ledger::{Change, Op};
use super::world::{Tracked, World};
use crate::model::moment;
use crate::rng::Rng;

/// Folder of the tables.
const FOLDER: &str = "/built";
/// Least memory of a builder: enough for some rows of each table, because each file costs time in everything that looks at all of them.
const MEMORY_MIN: u64 = 64;

/// What one builder writes.
pub(super) struct Part {
    t: Arc<Tracked>,
    /// Its range deletes, then its rows in the order of their keys.
    ops: Vec<Op>,
}

impl Part {
    /// The range deletes and the last row of each key of `ops`; `None` without a row.
    pub(super) fn new(t: &Arc<Tracked>, ops: Vec<Op>) -> Option<Self> {
        let (mut ranges, rows): (Vec<Op>, Vec<Op>) =
            ops.into_iter().partition(|op| matches!(op.change, Change::DeleteRange(_)));
        let rows: BTreeMap<Vec<u8>, Op> = rows.into_iter().map(|op| (op.key.clone(), op)).collect();
        let is_something = !rows.is_empty();
        ranges.extend(rows.into_values());
        is_something.then(|| Self { t: Arc::clone(t), ops: ranges })
    }

    fn add_to(&self, rows: &mut TableBuilder, rng: &mut Rng) -> tidesdb::Result<()> {
        for Op { key, change, .. } in &self.ops {
            match change {
                Change::Put(row) if row.expiry == 0 && rng.one_in(6) => {
                    rows.put_stream(key, &row.value[..])?;
                }
                Change::Put(row) => rows.put_expiring(key, &row.value, moment(row.expiry))?,
                Change::Delete | Change::SingleDelete => rows.delete(key)?,
                Change::Merge(operand) => rows.merge(key, operand)?,
                Change::DeleteRange(until) => rows.delete_range(key..until)?,
            }
        }
        Ok(())
    }
}

/// What `parts` do, oldest first.
pub(super) fn ops(parts: &[Part]) -> Vec<Op> {
    parts.iter().flat_map(|part| part.ops.iter().cloned()).collect()
}

/// A family and a key that `parts`, which are not empty, change.
pub(super) fn one_of(parts: &[Part], rng: &mut Rng) -> (Arc<Tracked>, Vec<u8>) {
    let part = rng.pick(parts);
    (Arc::clone(&part.t), rng.pick(&part.ops).key.clone())
}

/// One at a time builds tables: the number of open files may be limited.
pub(super) struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    /// `None` if somebody else builds.
    pub(super) fn of(world: &'a World) -> Option<Self> {
        (!world.is_building.swap(true, SeqCst)).then_some(Self(&world.is_building))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// How tables come into the database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Copy,
    Link,
    Move,
}

/// Builds tables of `parts`, whose files get names that begin with `stem`, and takes them as one commit. Returns its sequence number.
pub(super) fn take(
    world: &World,
    rng: &mut Rng,
    stem: &str,
    parts: &[Part],
    options: WriteOptions,
) -> tidesdb::Result<u64> {
    if let [only] = parts
        && rng.one_in(3)
    {
        let mut writer = only.t.family.sorted_writer()?;
        only.add_to(writer.rows(), rng)?;
        return writer.commit_with(&options).map(|taken| taken.seq);
    }
    let dir = world.env.disk.open_dir(FOLDER.as_ref(), true);
    dir.map_err(|e| Error::Io { op: "open", file: FOLDER.into(), offset: None, cause: Arc::new(e) })?;
    let mut built: Vec<Vec<PathBuf>> = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        let mut rows = part.t.family.table_builder(format!("{FOLDER}/{stem}-{n}"))?;
        if rng.one_in(2) {
            rows = rows.memory_limit(MEMORY_MIN << rng.below(8));
        }
        part.add_to(&mut rows, rng)?;
        built.push(rows.finish()?);
    }
    let way = *rng.pick(&[Way::Copy, Way::Link, Way::Move]);
    let mut ingest = Ingest::new().options(options);
    for (part, paths) in parts.iter().zip(&built) {
        ingest = ingest.tables(&part.t.family, paths);
    }
    let ingest = match way {
        Way::Copy => ingest,
        Way::Link => ingest.linking(),
        Way::Move => ingest.moving(),
    };
    let paths: Vec<PathBuf> = built.into_iter().flatten().collect();
    if rng.one_in(12) && !world.is_stormy() {
        refuse_damaged(world, rng, &ingest, &paths);
    }
    let taken = world.db.ingest(&ingest);
    look_at_sources(world, way, taken.is_ok(), &paths);
    taken.map(|taken| taken.seq)
}

/// Damages a byte of one of the tables for the time of an ingest, which must notice it and do nothing.
fn refuse_damaged(world: &World, rng: &mut Rng, ingest: &Ingest, paths: &[PathBuf]) {
    let path = rng.pick(paths);
    let Ok(whole) = world.disk.read_file(path) else { return };
    let (at, bit) = (rng.below(whole.len() as u64), rng.below(8));
    let _ = world.disk.corrupt(path, at, |byte| byte ^ 1 << bit);
    let what = format!("an ingest of {} with damage in byte {at}", path.display());
    match world.db.ingest(ingest) {
        Ok(taken) => world.fail(format!("{what} was taken: {taken:?}")),
        Err(Error::Corrupt { .. } | Error::FormatTooNew { .. } | Error::NotFound { .. }) => {}
        Err(e) => world.failed(&what, &e, &[]),
    }
    let _ = world.disk.corrupt(path, at, |byte| byte ^ 1 << bit);
}

/// The files of the caller stay, unless they are to be moved and were taken. Removes them.
fn look_at_sources(world: &World, way: Way, is_taken: bool, paths: &[PathBuf]) {
    // Windows keeps the name of an open file for a while.
    let is_judged = !world.is_stormy() && world.plan.habits != Habits::WINDOWS;
    for path in paths {
        let is_there = world.disk.read_file(path).is_ok();
        if is_judged && is_there == (is_taken && way == Way::Move) {
            let (is, done) =
                (if is_there { "still there" } else { "lost" }, if is_taken { "taken" } else { "refused" });
            world.fail(format!("the table {} is {is} after it was {done}", path.display()));
        }
    }
    if let Ok(dir) = world.env.disk.open_dir(FOLDER.as_ref(), false) {
        for name in paths.iter().filter_map(|path| path.file_name()?.to_str()) {
            let _ = dir.unlink(name); // some were moved
            let _ = dir.unlink(&format!("{name}.vlog"));
        }
    }
}
