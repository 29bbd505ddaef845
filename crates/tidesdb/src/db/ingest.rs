//! Takes tables that were built outside of the database: one commit for any number of them.
//!
//! Everything slow comes first: the files get names in the database by link, move or copy, each byte is checked, and all is made durable.
//! Then one record in the log takes them all, and they are in the read views, in the place of memtables that are flushed already.
//! A flush adds them to the manifest after the older memtables of their families. Writers never wait for any of it, but perhaps for the
//! merges of tables that overlap: these go to level 1.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_io::{Access, Dir, FileExt, PooledDir};
use tidesdb_sync::Mutex;

use super::Db;
use crate::callback::comparing;
use crate::codec::{Salt, hex};
use crate::context::{OwnedLog, StagedTables};
use crate::engine::Engine;
use crate::events::Event;
use crate::family::FamilyCore;
use crate::ingest::{Foreign, IngestRecord, Ingested, TableBuilder, Taking, check, name_of_values};
use crate::maintenance::MaintenanceCtx;
use crate::options::{FamilyOptions, SyncMode, WriteOptions};
use crate::order::{self, Gather};
use crate::ranges::RangeTombstone;
use crate::sst::Table;
use crate::types::{FamilyId, TableId, VlogId};
use crate::version::{Change, VersionEdit};
use crate::wal::Log;
use crate::write::{self, Family};
use crate::{Error, Result, files};

/// Bytes copied per read.
const COPY_BYTES: u64 = 1 << 20;
/// Maximum number of tables of one family in one call, times that of the sorted runs which they make because they overlap.
const PLACES_MAX: usize = 1 << 20;
/// Maximum number of threads that check tables.
const THREADS_MAX: usize = 4;

/// How files come into the directory of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Transfer {
    #[default]
    Copy,
    Link,
    Move,
    /// As `Move`, for files that nobody else knows.
    Rename,
}

/// Tables for [`Db::ingest`]: which, for which families, and how their files come into the directory of the database.
#[derive(Clone, Debug, Default)]
pub struct Ingest {
    parts: Vec<(Family, Vec<PathBuf>)>,
    transfer: Transfer,
    options: WriteOptions,
}

impl Ingest {
    /// Takes no tables yet. Files are copied.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds tables for `family`, by the paths that [`TableBuilder::finish`] returned, with their value logs. Of two tables with the same key the
    /// later one counts. Tables of a builder that deletes ranges must follow one another, as its paths do.
    #[must_use]
    pub fn tables(mut self, family: &Family, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let paths = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        self.parts.push((family.clone(), paths));
        self
    }

    /// Links the files instead of copying them: the database and the caller share them, so nobody may change them later. They must be on the
    /// same file system. If a sync of one fails, write them again: what the system lost may still look right until the machine stops.
    #[must_use]
    pub fn linking(mut self) -> Self {
        self.transfer = Transfer::Link;
        self
    }

    /// Moves the files instead of copying them: they are linked, and lose their old names once they are taken. They must be on the same file
    /// system. The commit is synced, whatever its options say.
    #[must_use]
    pub fn moving(mut self) -> Self {
        self.transfer = Transfer::Move;
        self
    }

    /// Sets the options of the commit, such as its sync mode. The files are durable in every mode.
    #[must_use]
    pub fn options(mut self, options: WriteOptions) -> Self {
        self.options = options;
        self
    }
}

impl Db {
    /// Takes tables that [`TableBuilder`]s wrote, of several families, as one commit: all of them become visible together, newer than
    /// everything before, and invisible to older snapshots. Commits, reads, flushes and merges continue meanwhile.
    ///
    /// No byte of the files is believed: each is read and checked first. A commit hook does not see the rows. A running transaction that read
    /// or wrote their keys fails when it commits. After an error nothing is taken, and no file is left.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Db, FamilyOptions, Ingest, TableBuilder};
    /// let db = Db::open(dir.path().join("db"))?;
    /// let stock = db.family_or_create("stock", FamilyOptions::default())?;
    /// let mut rows = stock.table_builder(dir.path().join("stock"))?;
    /// for n in 0..1000u32 {
    ///     rows.put(n.to_be_bytes(), "ten")?;
    /// }
    /// let taken = db.ingest(&Ingest::new().tables(&stock, rows.finish()?).moving())?;
    /// assert_eq!((taken.tables, taken.rows), (1, 1000));
    /// assert!(stock.contains(7u32.to_be_bytes())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a family of another database, for a table with another key order or merge operator, for a link to another
    /// file system, and for a table between those of another builder that deletes ranges; `Corrupt` for a damaged file, and for one that no
    /// builder wrote; `NotFound` for a dropped family; `NoSpace`, `Io`, `Closed`, `ReadOnly`, `Poisoned`. `CommitUnknown`: as for a write.
    pub fn ingest(&self, ingest: &Ingest) -> Result<Ingested> {
        take(&self.inner.engine, ingest)
    }
}

impl Family {
    /// A builder of tables for this family, whose files begin with `stem`: see [`TableBuilder::create`].
    ///
    /// # Errors
    /// As [`TableBuilder::create`].
    pub fn table_builder(&self, stem: impl AsRef<Path>) -> Result<TableBuilder> {
        TableBuilder::create_in(self.ctx.env.clone(), stem.as_ref(), &self.current_options())
    }

    /// Puts all `rows`, which must come in the order of their keys, as one commit: they are written to tables, past the log and the memtables,
    /// and taken together. Each key may come once. This is the fastest way to load much data; the rows become visible at the end, all at
    /// once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let rows = (0..10_000u32).map(|n| (n.to_be_bytes(), "row"));
    /// assert_eq!(db.default_family().ingest_sorted(rows)?.rows, 10_000);
    /// assert_eq!(db.range(..)?.count(), 10_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for rows out of order, an empty or too long key, too long a value; others as [`Db::ingest`]. Nothing is taken.
    pub fn ingest_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Ingested> {
        let mut writer = self.sorted_writer()?;
        for (key, value) in rows {
            writer.rows().put(key, value)?;
        }
        writer.commit()
    }

    /// Begins to write sorted rows as [`Family::ingest_sorted`] does, one after the other.
    ///
    /// # Errors
    /// `NotFound` for a dropped family; `Closed`, `ReadOnly`, `Poisoned`.
    pub fn sorted_writer(&self) -> Result<SortedWriter> {
        let ctx = &self.ctx;
        drop(ctx.begin_call()?);
        self.core.check_usable()?;
        // Nothing is reserved: a close waits for each reservation, and this writer may outlive it.
        let writer = Arc::clone(ctx);
        let check = move |bytes| {
            writer.jobs.check_open()?;
            writer.log.check_space_for_merge(bytes)
        };
        let place = (ctx.log.dir(), format!("{}{}", files::BUILDING, hex(&ctx.env.entropy.salt())));
        let (env, options) = (ctx.env.clone(), self.current_options());
        let rows = TableBuilder::within(env, place, options, &ctx.memory, Box::new(check))?;
        Ok(SortedWriter { family: self.clone(), rows })
    }
}

/// Writes sorted rows to tables in the folder of the database, which a commit takes: see [`Family::ingest_sorted`]. Dropping it discards
/// them. It does not keep the database open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// let mut writer = db.default_family().sorted_writer()?;
/// writer.rows().put("apple", "red")?;
/// writer.rows().delete("banana")?;
/// assert!(!db.contains("apple")?);
/// writer.commit()?;
/// assert!(db.contains("apple")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SortedWriter {
    family: Family,
    rows: TableBuilder,
}

impl SortedWriter {
    /// Where the rows go.
    pub fn rows(&mut self) -> &mut TableBuilder {
        &mut self.rows
    }

    /// Takes all rows as one commit.
    ///
    /// # Errors
    /// As [`Db::ingest`]: nothing is taken.
    pub fn commit(self) -> Result<Ingested> {
        self.commit_with(&WriteOptions::default())
    }

    /// Like [`SortedWriter::commit`], with options for this commit.
    ///
    /// # Errors
    /// As [`SortedWriter::commit`].
    pub fn commit_with(self, options: &WriteOptions) -> Result<Ingested> {
        let database = self.family.ctx.database()?;
        database.take_tables(&self.family.core, self.rows.finish()?, *options)
    }
}

/// Takes tables that a [`SortedWriter`] has written: see [`OpenDatabase::take_tables`](crate::context::OpenDatabase::take_tables).
pub(super) fn take_built(
    engine: &Engine,
    family: &Arc<FamilyCore>,
    paths: Vec<PathBuf>,
    options: WriteOptions,
) -> Result<Ingested> {
    let family = Family { core: Arc::clone(family), ctx: Arc::clone(&engine.write) };
    let ingest = Ingest { parts: vec![(family, paths)], transfer: Transfer::Rename, options };
    take(engine, &ingest).inspect_err(|_| {
        for name in ingest.parts[0].1.iter().filter_map(|path| path.file_name()?.to_str()) {
            remove(&**engine.write.log.dir(), name);
        }
    })
}

/// A table that was named for the database, before it is taken.
struct Arriving {
    family: Arc<FamilyCore>,
    foreign: Foreign,
    source: (Arc<dyn Dir>, String),
}

/// The files that have names in the database and that nothing refers to yet. They are removed, unless they are kept.
struct Arrived<'a> {
    ctx: &'a MaintenanceCtx,
    tables: Vec<TableId>,
    vlogs: Vec<(Arc<FamilyCore>, VlogId)>,
}

impl Arrived<'_> {
    fn keep(&mut self) {
        self.tables.clear();
        self.vlogs.clear();
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // the log may name them; if it does not, the next open removes them
        }
        for id in self.tables.drain(..) {
            self.ctx.tables.forget(id);
            files::remove(&*self.ctx.dir, &files::table(id));
        }
        for (family, id) in self.vlogs.drain(..) {
            family.vlog.open.close(id);
            files::remove(&*self.ctx.dir, &files::vlog(id));
        }
    }
}

fn take(engine: &Engine, ingest: &Ingest) -> Result<Ingested> {
    let ctx = &engine.maintenance;
    let _call = ctx.write.begin_call()?;
    let started = ctx.write.env.clock.mono();
    let arriving = arriving(ctx, ingest)?;
    if arriving.is_empty() {
        return Ok(Ingested::default());
    }
    let bytes = arriving.iter().map(|table| table.bytes()).fold(0, u64::saturating_add);
    let copied = if ingest.transfer == Transfer::Copy { bytes } else { 0 };
    let _space = Log::reserve_space_for_merge(OwnedLog(Arc::clone(&ctx.write)), copied)
        .map_err(|e| ctx.write.refused(copied, e))?;
    let mut arrived = Arrived { ctx, tables: Vec::new(), vlogs: Vec::new() };
    check_ranges(ctx, &arriving)?;
    check_sets(&arriving)?;
    for table in &arriving {
        transfer(ctx, table, ingest.transfer, &mut arrived).map_err(|e| ctx.write.refused(copied, e))?;
    }
    ctx.dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
    let tables = open_all(ctx, &arriving, ingest.transfer != Transfer::Rename)?;
    let (record, mut staged) = staged(&arriving, tables);
    staged.iter().try_for_each(check_overlaps)?;
    let (tables, rows) =
        (arriving.len() as u64, arriving.iter().map(|table| table.foreign.meta.entries).sum());
    mark_log(ctx)?;
    let keeps_log_back = || {
        if let Some(remote) = &engine.remote {
            remote.kept.give_up(); // the store gets the tables before a log that takes them
        }
    };
    let options = match ingest.transfer {
        Transfer::Move => ingest.options.sync(SyncMode::Full), // a loss of power must not leave neither the rows nor the files
        _ => ingest.options,
    };
    let committed =
        write::commit_taken(&ctx.write, &mut record.encode(), &mut staged, &options, keeps_log_back);
    if !matches!(&committed, Err(e) if !matches!(e, Error::CommitUnknown { .. })) {
        arrived.keep();
    }
    let seq = committed?;
    ctx.write.log.note_data(bytes);
    if ingest.transfer == Transfer::Move {
        for Arriving { source: (dir, name), .. } in &arriving {
            remove(&**dir, name);
        }
    }
    for part in &staged {
        let of_family = |table: &&Arriving| table.family.id == part.family.id;
        ctx.write.events.record(&Event::Ingest {
            family: part.family.name(),
            tables: part.tables.len() as u64,
            entries: arriving.iter().filter(of_family).map(|table| table.foreign.meta.entries).sum(),
            bytes: arriving.iter().filter(of_family).map(Arriving::bytes).sum(),
            seconds: ctx.write.env.clock.mono().saturating_sub(started),
        });
    }
    Ok(Ingested { seq, tables, rows, bytes })
}

/// Reads what the tables state of themselves, and gives them numbers.
fn arriving(ctx: &MaintenanceCtx, ingest: &Ingest) -> Result<Vec<Arriving>> {
    let (mut all, mut dirs) = (Vec::new(), BTreeMap::<PathBuf, Arc<dyn Dir>>::new());
    for (family, paths) in &ingest.parts {
        if !family.core.vlog.is_in(&ctx.dir) {
            return Err(Error::invalid("tables are to be taken by a family of another database"));
        }
        family.core.check_usable()?;
        let options = family.current_options();
        for path in paths {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(Error::invalid(format!("{} is no path of a table", path.display())));
            };
            let folder = files::folder_of(path).to_path_buf();
            let dir = match dirs.get(&folder) {
                Some(dir) => Arc::clone(dir),
                None if ingest.transfer == Transfer::Rename => Arc::clone(&ctx.dir),
                None => {
                    let opened = ctx.write.env.disk.open_dir(&folder, false);
                    let dir = opened.map_err(|e| Error::io("open", &folder.display().to_string(), e))?;
                    let dir = PooledDir::wrap(dir, &ctx.write.env.descriptors);
                    dirs.insert(folder, Arc::clone(&dir));
                    dir
                }
            };
            if ingest.transfer != Transfer::Rename && files::parse(name).is_some() && is_database(&*dir) {
                return Err(Error::invalid(format!(
                    "{} is a file of a database; export its rows",
                    path.display()
                )));
            }
            let foreign = read(ctx, &dir, name, &options)?;
            all.push(Arriving { family: Arc::clone(&family.core), foreign, source: (dir, name.to_owned()) });
        }
    }
    Ok(all)
}

/// Removes a table and its value log.
fn remove(dir: &dyn Dir, name: &str) {
    files::remove(dir, name);
    files::remove(dir, &name_of_values(name));
}

fn is_database(dir: &dyn Dir) -> bool {
    dir.open(files::CURRENT, Access::Read).is_ok()
}

/// Fails if the range deletes of all tables together would take more memory than those of one commit may.
fn check_ranges(ctx: &MaintenanceCtx, arriving: &[Arriving]) -> Result<()> {
    let ranges = arriving.iter().flat_map(|table| &table.foreign.built.ranges);
    let bytes: u64 = ranges.map(|(start, end)| RangeTombstone::bytes_of(start.len(), end.len()) as u64).sum();
    match ctx.write.memory.ranges_max() / 2 {
        max if bytes > max => Err(Error::MemoryLimit {
            what: format!(
                "the tables delete ranges that take {bytes} bytes of memory, and memory_limit allows {max}"
            )
            .into(),
        }),
        _ => Ok(()),
    }
}

/// Fails if a table of another builder lies between those of one that deletes ranges: these get one place, at the first of them, so the later
/// table would not count.
fn check_sets(arriving: &[Arriving]) -> Result<()> {
    let deletes = arriving.iter().filter(|table| !table.foreign.built.ranges.is_empty());
    let deleting: BTreeSet<(FamilyId, Salt)> = deletes.map(Arriving::set).gather();
    let (mut begun, mut last) = (BTreeSet::new(), BTreeMap::new());
    for table in arriving {
        let set = table.set();
        let goes_on = last.insert(table.family.id, set) == Some(set);
        if !goes_on && !begun.insert(set) && deleting.contains(&set) {
            return Err(Error::invalid(format!(
                "{} comes after a table of another builder, but the tables of a builder that deletes ranges must follow one another",
                table.source.1
            )));
        }
    }
    Ok(())
}

/// Fails if too many of the tables overlap. They get their places in the read view while no commit can be ordered, and each is compared with the runs of
/// the others.
fn check_overlaps(part: &StagedTables) -> Result<()> {
    let version = Arc::clone(&part.family.owned_view().version);
    let runs = comparing(|| version.of_taken(&part.tables).map(|taken| taken.runs().len()))?;
    match part.tables.len().saturating_mul(runs) {
        places if places <= PLACES_MAX => Ok(()),
        _ => Err(Error::invalid(format!(
            "{} tables that overlap as {runs} sorted runs are too many for one call; take them in several calls",
            part.tables.len()
        ))),
    }
}

fn read(ctx: &MaintenanceCtx, dir: &Arc<dyn Dir>, name: &str, options: &FamilyOptions) -> Result<Foreign> {
    Foreign::read(&**dir, name, options, |has_values| {
        let vlog = has_values.then(|| ctx.versions.new_vlog_id()).transpose()?;
        Ok((ctx.versions.new_table_id()?, vlog))
    })
}

impl Arriving {
    /// Length of the table and of its value log.
    fn bytes(&self) -> u64 {
        let values = self.foreign.built.values.map_or(0, |(_, bytes)| bytes);
        self.foreign.meta.file_bytes.saturating_add(values)
    }

    /// Identifies the tables of its builder in its family.
    fn set(&self) -> (FamilyId, Salt) {
        (self.family.id, self.foreign.built.set)
    }

    fn vlog(&self) -> Option<VlogId> {
        self.foreign.meta.taken.and_then(|taken| taken.vlog)
    }

    /// Puts the name that the caller knows in place of the one that the damaged file had in the database.
    fn named_by_caller(&self, error: Error) -> Error {
        let Error::Corrupt { file, offset, what } = &error else { return error };
        let name = &self.source.1;
        let is_values = self.vlog().is_some_and(|vlog| **file == *files::vlog(vlog));
        match is_values {
            true => Error::corrupt(&name_of_values(name), *offset, &**what),
            false if **file == *files::table(self.foreign.meta.id) => Error::corrupt(name, *offset, &**what),
            false => error,
        }
    }
}

/// Brings the files of a table into the directory of the database, and makes their bytes durable.
fn transfer(ctx: &MaintenanceCtx, table: &Arriving, how: Transfer, arrived: &mut Arrived<'_>) -> Result<()> {
    let (from, name) = (&*table.source.0, &table.source.1);
    let id = table.foreign.meta.id;
    arrived.tables.push(id);
    bring(ctx, (from, name, table.foreign.meta.file_bytes), &files::table(id), how)?;
    if let (Some(vlog), Some((_, bytes))) = (table.vlog(), table.foreign.built.values) {
        arrived.vlogs.push((Arc::clone(&table.family), vlog));
        bring(ctx, (from, &name_of_values(name), bytes), &files::vlog(vlog), how)?;
    }
    Ok(())
}

/// Brings a file of `from`, which should have `bytes` bytes.
fn bring(
    ctx: &MaintenanceCtx,
    (from, name, bytes): (&dyn Dir, &str, u64),
    to: &str,
    how: Transfer,
) -> Result<()> {
    ctx.write.jobs.check_open()?;
    match how {
        Transfer::Copy => return copy(ctx, (from, name, bytes), to),
        Transfer::Rename => return ctx.dir.rename(name, to).map_err(|e| Error::io("rename", name, e)),
        Transfer::Link | Transfer::Move => {}
    }
    from.link(name, &*ctx.dir, to).map_err(|e| match e.kind() {
        std::io::ErrorKind::CrossesDevices => {
            Error::invalid(format!("{name} is on another file system than the database; have it copied"))
        }
        std::io::ErrorKind::Unsupported => {
            Error::invalid(format!("the file system of {name} has no hard links; have it copied"))
        }
        _ => Error::io("link", name, e),
    })?;
    let file = files::open_to_sync(&*ctx.dir, to).map_err(|e| Error::io("open", name, e))?;
    file.sync_all().map_err(|e| Error::io("sync", name, e))
}

fn copy(ctx: &MaintenanceCtx, (from, name, bytes): (&dyn Dir, &str, u64), to: &str) -> Result<()> {
    let io = |op: &'static str| move |e| Error::io(op, name, e);
    let file = from.open(name, Access::Read).map_err(io("open"))?;
    let len = file.len().map_err(io("stat"))?;
    if len != bytes {
        return Err(Error::corrupt(name, len.min(bytes), format!("the file has {len} bytes, not {bytes}")));
    }
    let new = ctx.dir.create_new(to, 0).map_err(io("copy"))?;
    let mut buf = vec![0; COPY_BYTES.min(len) as usize];
    for at in (0..len).step_by(COPY_BYTES as usize) {
        ctx.write.jobs.check_open()?;
        let part = &mut buf[..COPY_BYTES.min(len - at) as usize];
        file.read_exact_at(part, at).map_err(io("read"))?;
        new.write_all_at(part, at).map_err(io("copy"))?;
    }
    new.sync_all().map_err(io("sync"))
}

/// Opens the tables, which have their names in the database: on several threads, because each byte of those `from_elsewhere` is checked.
fn open_all(ctx: &MaintenanceCtx, arriving: &[Arriving], from_elsewhere: bool) -> Result<Vec<Arc<Table>>> {
    let (next, opened) = (AtomicUsize::new(0), Mutex::<_>::new(Vec::with_capacity(arriving.len())));
    let open_some = |_: usize| {
        while let Some((n, table)) = take_next(&next, arriving) {
            let result = comparing(|| open(ctx, table, from_elsewhere));
            if result.is_err() {
                next.store(arriving.len(), Ordering::Relaxed); // the others stop
            }
            opened.lock().push((n, result));
        }
    };
    let threads = &ctx.write.env.threads;
    let alone = !from_elsewhere || ctx.write.options.background_threads == Some(0);
    match if alone { 0 } else { threads.parallelism().min(THREADS_MAX).min(arriving.len()).saturating_sub(1) }
    {
        0 => open_some(0),
        helpers => threads.run_together("tidesdb-ingest", helpers, &open_some),
    }
    let mut opened = std::mem::take(&mut *opened.lock());
    order::sort_by_key(&mut opened, |(n, _)| *n);
    opened.into_iter().map(|(_, result)| result).collect()
}

fn take_next<'t>(next: &AtomicUsize, tables: &'t [Arriving]) -> Option<(usize, &'t Arriving)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    tables.get(n).map(|table| (n, table))
}

/// Opens a table, which has its name in the database. Checks each byte of it and of its values if it comes `from_elsewhere`.
fn open(ctx: &MaintenanceCtx, table: &Arriving, from_elsewhere: bool) -> Result<Arc<Table>> {
    let options = table.family.options.now();
    if from_elsewhere {
        let mut go_on = || ctx.write.jobs.check_open();
        check(&ctx.tables, &options, &table.foreign, &table.family.vlog, &mut go_on)
            .map_err(|e| table.named_by_caller(e))?;
    }
    // Opened anew: nobody may share what gets its sequence number.
    Table::open(&ctx.tables, &options.comparator, Arc::clone(&table.foreign.meta))
}

/// The record that takes all tables, and the tables by family, in their order. Range deletes come before all tables of their builder, which
/// then stay together.
fn staged(arriving: &[Arriving], tables: Vec<Arc<Table>>) -> (IngestRecord, Vec<StagedTables>) {
    let mut record = IngestRecord::default();
    let mut staged: BTreeMap<FamilyId, StagedTables> = BTreeMap::new();
    let mut tables: Vec<Option<Arc<Table>>> = tables.into_iter().map(Some).collect();
    // The tables of each builder, and whether they delete ranges.
    let mut sets: BTreeMap<(FamilyId, Salt), (Vec<usize>, bool)> = BTreeMap::new();
    for (n, table) in arriving.iter().enumerate() {
        let (of_set, deletes) = sets.entry(table.set()).or_default();
        of_set.push(n);
        *deletes |= !table.foreign.built.ranges.is_empty();
    }
    for first in 0..arriving.len() {
        if tables[first].is_none() {
            continue; // with another table of its builder
        }
        let of_set = match sets.get(&arriving[first].set()) {
            Some((of_set, true)) => of_set,
            _ => slice::from_ref(&first),
        };
        let family = &arriving[first].family;
        let part = staged.entry(family.id).or_insert_with(|| StagedTables {
            family: Arc::clone(family),
            tables: Vec::new(),
            positions: Vec::new(),
            ranges: Vec::new(),
        });
        for (start, end) in of_set.iter().flat_map(|n| &arriving[*n].foreign.built.ranges) {
            let range = Taking::Range(start.clone(), end.clone());
            part.ranges.push((record.parts().len() as u64, range.clone()));
            record.push(family.id, range);
        }
        for &n in of_set {
            part.positions.push(record.parts().len() as u64);
            part.tables.extend(tables[n].take());
            record.push(family.id, Taking::Table(Arc::clone(&arriving[n].foreign.meta)));
        }
    }
    (record, staged.into_values().collect())
}

/// Notes in the manifest that the log may take tables, if it does not say so yet.
fn mark_log(ctx: &MaintenanceCtx) -> Result<()> {
    if ctx.versions.log_takes_tables() {
        return Ok(());
    }
    let mut edit = VersionEdit::new();
    edit.push(Change::LogTakesTables);
    ctx.install(&edit, &[])
}
