//! The only merge loop: reads entries in order and writes tables. Flush and every compaction use it.
//!
//! Invariant, checked before anything is installed: entries in = entries out + entries dropped by a rule.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::codec::Compression;
use crate::context::MergeSpace;
use crate::family::{FamilyCore, Metric};
use crate::jobs::Progress;
use crate::maintenance::MaintenanceCtx;
use crate::memory::{Charge, Use};
use crate::merge::{CHECK_EVERY, CoveringRanges, Retain, RetainRules, RetainStream};
use crate::order::Gather;
use crate::ranges::RangeTombstone;
use crate::sst::{TableMeta, TableOptions, TableWriter, UnsyncedTable};
use crate::types::{Comparator, EntryCursor, EntryRef, SeqNo, TableId, VlogId};
use crate::version::{Change, VersionEdit};
use crate::vlog::ValueMover;
use crate::wal::layout::UNIT;
use crate::{Error, Result, files};

/// Numbers of tables in one event.
const EVENT_TABLES_MAX: usize = 16;
/// Level that flushes write to.
pub const FLUSH_LEVEL: u8 = 1;

/// Bytes that a merge writes between two looks at its disk space and its rate.
const STRIDE_BYTES: u64 = 256 << 10;
/// Maximum number of tables of a part that wait for their sync while the next ones are written. Their last bytes are on their way to the
/// device meanwhile.
const UNSYNCED_MAX: usize = 2;
/// Entries that a helper writes between two looks for merges of other families.
const YIELD_EVERY: u64 = 256;

/// Keys at which output tables end, besides at their size; in key order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Splits<'a> {
    /// No table holds keys on both sides of one of these.
    pub cuts: &'a [Vec<u8>],
    /// A table ends before a gap that holds two of these.
    pub guards: &'a [Vec<u8>],
}

impl Splits<'_> {
    /// Returns whether a table ends before `key`, which must be after the keys of earlier calls.
    fn part_before(&mut self, order: &Comparator, key: &[u8]) -> bool {
        let passed = |keys: &[Vec<u8>]| keys.iter().take_while(|k| order.compare(k, key).is_le()).count();
        let (cuts, guards) = (passed(self.cuts), passed(self.guards));
        self.cuts = &self.cuts[cuts..];
        self.guards = &self.guards[guards..];
        cuts > 0 || guards > 1
    }
}

/// Parameters of the output of a rewrite.
#[derive(Clone, Copy, Debug, Default)]
pub struct RewriteTarget<'a> {
    /// Level of the new tables.
    pub level: u8,
    /// No older entries of the input's keys exist elsewhere.
    pub bottom: bool,
    /// Approximate maximum length of a table.
    pub table_bytes: u64,
    /// Where else tables end.
    pub splits: Splits<'a>,
    /// The rewrite ends before this key, if there is one.
    pub end: Option<&'a [u8]>,
    /// End early if a merge of another family waits for a thread.
    pub yields: bool,
    /// Number of merge stops when this merge began; `None` for rewrites that are not stopped, such as flushes.
    pub stops_seen: Option<u64>,
    /// How far the rewrite is.
    pub progress: Option<&'a Arc<Progress>>,
    /// Drop the pages of the new tables from the page cache, because the old tables were not cached and the family is too
    /// long for it. Pages that a flush writes stay: readers or a merge soon read them again.
    pub drop_pages: bool,
    /// Keep the blocks of the new tables in the block cache, as long as it has room.
    pub caches: bool,
    /// Reserved disk space of a merge. The rate of merges applies to rewrites that have it.
    pub space: Option<&'a MergeSpace>,
}

impl RewriteTarget<'_> {
    /// One table in the level that flushes write to.
    pub fn flush(bottom: bool) -> Self {
        Self { level: FLUSH_LEVEL, bottom, table_bytes: u64::MAX, ..Self::default() }
    }

    /// Flushed tables are soon merged: there the processor time of writers matters more than a few bytes.
    fn compression(&self, wanted: Compression) -> Compression {
        match wanted {
            Compression::Lz4 if self.level == FLUSH_LEVEL => Compression::Lz4Fast,
            other => other,
        }
    }
}

/// The result of a rewrite.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// The new tables, in key order, disjoint.
    pub tables: Vec<Arc<TableMeta>>,
    /// The files of those that are not durable yet.
    unsynced: VecDeque<UnsyncedTable>,
    /// Range tombstones of the input that are not in the manifest yet.
    pub ranges: Vec<Arc<RangeTombstone>>,
    /// Entries read.
    pub entries_in: u64,
    /// Entries dropped by a rule.
    pub dropped: u64,
    /// Older versions that stayed because a reader sees them or may.
    pub older: u64,
    /// Number of key ranges that were rewritten, each on its own.
    pub parts: u64,
    /// The files stay whatever happens: the tables are not new, or the log names them.
    stays: bool,
}

impl Rewritten {
    /// Durable tables that stay as they are.
    pub fn unchanged(tables: Vec<Arc<TableMeta>>) -> Self {
        Self { tables, stays: true, ..Self::default() }
    }

    /// Adds to `edit` that the value logs of these tables, which a commit took, are complete; `sealed_at` is that commit or a later one.
    ///
    /// # Errors
    /// Errors of opening a value log.
    pub fn seal_values(
        &self,
        ctx: &MaintenanceCtx,
        family: &FamilyCore,
        sealed_at: SeqNo,
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let state = ctx.versions.version(family.id);
        let is_sealed = |id: &VlogId| state.as_ref().is_some_and(|v| v.vlogs().contains_key(id));
        let vlogs: BTreeSet<VlogId> = self.tables.iter().filter_map(|table| table.taken?.vlog).gather();
        for vlog in vlogs.into_iter().filter(|id| !is_sealed(id)) {
            let bytes = family.vlog.info(vlog)?.bytes;
            edit.push(Change::SealVlog { family: family.id, vlog, bytes, sealed_at });
        }
        Ok(())
    }

    /// Makes the new tables and their names durable.
    ///
    /// # Errors
    /// `Io`; the tables are removed.
    pub fn sync(&mut self, ctx: &MaintenanceCtx) -> Result<()> {
        Self::sync_all(ctx, std::slice::from_mut(self))
    }

    /// Makes the new tables of `all` and their names durable.
    ///
    /// # Errors
    /// `Io`; the tables are removed.
    pub fn sync_all(ctx: &MaintenanceCtx, all: &mut [Self]) -> Result<()> {
        if all.iter().all(|out| out.tables.is_empty()) {
            return Ok(());
        }
        let files: Vec<_> = all.iter_mut().flat_map(|out| std::mem::take(&mut out.unsynced)).collect();
        let names = || ctx.dir.sync().map_err(|e| Error::io("sync", "database directory", e));
        files
            .iter()
            .try_for_each(UnsyncedTable::sync)
            .and_then(|()| names())
            .inspect_err(|_| all.iter().for_each(|out| out.abandon(ctx)))
    }

    /// Adds the result of another part of the same job.
    pub fn absorb(&mut self, other: Self) {
        self.tables.extend(other.tables);
        self.unsynced.extend(other.unsynced);
        self.ranges.extend(other.ranges);
        self.entries_in += other.entries_in;
        self.dropped += other.dropped;
        self.older += other.older;
        self.parts += other.parts;
        self.stays |= other.stays;
    }

    /// Counts the entries among the figures of `family`.
    pub fn count(&self, family: &FamilyCore) {
        family.count(Metric::Dropped, self.dropped);
        family.count(Metric::EntriesWritten, self.entries_in - self.dropped);
        family.count(Metric::OlderVersions, self.older);
    }

    /// Bytes of the new tables.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.file_bytes).sum()
    }

    /// Numbers of the new tables for an event, which has room for some.
    pub fn table_numbers(&self) -> Vec<u64> {
        self.tables.iter().take(EVENT_TABLES_MAX).map(|table| table.id.0).collect()
    }

    /// Adds to `edit` the new tables, each at its `place`: level and generation; and the value logs that neither a version nor `edit` names yet: those that the
    /// tables refer to, which are durable, and the durable ones of this session, which memtables may refer to. The
    /// caller holds [`FamilyCore::naming`] until the edit is installed, unless no other job installs anything for the
    /// family.
    ///
    /// # Errors
    /// Errors of opening a value log.
    pub fn add_to(
        &self,
        ctx: &MaintenanceCtx,
        family: &FamilyCore,
        place: impl Fn(TableId) -> (u8, u32),
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let referred = self.tables.iter().flat_map(|t| &t.vlog_refs).map(|r| r.vlog);
        name_vlogs(ctx, family, referred.chain(family.vlog.begun.nameable()), edit)?;
        for table in &self.tables {
            let (level, generation) = place(table.id);
            edit.push(Change::AddTable { family: family.id, level, generation, meta: Arc::clone(table) });
        }
        for range in &self.ranges {
            edit.push(Change::AddRange { family: family.id, range: Arc::clone(range) });
        }
        Ok(())
    }

    /// Removes the files after a failed install, unless the state of the manifest is unknown: the next open may find
    /// them named.
    pub fn abandon(&self, ctx: &MaintenanceCtx) {
        if self.stays || ctx.versions.is_poisoned() {
            return;
        }
        for table in &self.tables {
            ctx.tables.forget(table.id);
            // If this fails, the file is an orphan that the next open sets aside.
            let _ = ctx.dir.unlink(&files::table(table.id));
        }
    }
}

/// Adds to `edit` those of `vlogs` that neither a version nor `edit` names yet.
///
/// # Errors
/// Errors of opening a value log.
pub fn name_vlogs(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    vlogs: impl Iterator<Item = VlogId>,
    edit: &mut VersionEdit,
) -> Result<()> {
    let state = ctx.versions.version(family.id);
    let mut named: BTreeSet<VlogId> = state.iter().flat_map(|v| v.vlogs().keys().copied()).gather();
    named.extend(edit.changes.iter().filter_map(|c| match c {
        Change::AddVlog { vlog, .. } => Some(*vlog),
        _ => None,
    }));
    for vlog in vlogs.filter(|id| !named.contains(id)).gather::<BTreeSet<_>>() {
        let salt = family.vlog.info(vlog)?.salt;
        edit.push(Change::AddVlog { family: family.id, vlog, salt });
    }
    Ok(())
}

/// Reads `cursor`, which is positioned, to its end and writes the entries to keep into tables, without those that the
/// range tombstones in `purge` delete for all readers. All versions of a key go to one table.
///
/// # Errors
/// Errors of reading and writing; all output is removed.
pub fn run(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    cursor: impl EntryCursor,
    target: RewriteTarget<'_>,
    purge: &CoveringRanges,
) -> Result<Rewritten> {
    let (mut out, _) = run_part(ctx, family, cursor, target, purge, &mut ValueMover::default())?;
    out.sync(ctx)?;
    out.count(family);
    Ok(out)
}

/// Like [`run`], and lets `mover` move values. Neither they nor the tables are durable yet. If the rewrite ended early, also
/// returns the first key that it left out.
///
/// # Errors
/// As [`run`]; those of moving a value.
pub fn run_part(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    cursor: impl EntryCursor,
    target: RewriteTarget<'_>,
    purge: &CoveringRanges,
    mover: &mut ValueMover,
) -> Result<(Rewritten, Option<Vec<u8>>)> {
    let mut output = Output {
        ctx,
        family,
        target,
        mover,
        writer: None,
        written: 0,
        noted: 0,
        unpaced: 0,
        charge: Charge::new(Use::Jobs),
        // A flush writes one table, which is not longer than memtables are.
        growing_max: if target.space.is_some() { ctx.write.memory.table_max() } else { u64::MAX },
        yielding: false,
        out: Rewritten { parts: 1, ..Rewritten::default() },
    };
    let rules = RetainRules {
        // Tables of the level that flushes write to are ordered by their numbers.
        renumber: target.level > FLUSH_LEVEL && purge.ranges.is_empty(),
        ..rules(ctx, target.bottom)
    };
    let retain = Retain::new(rules, family.options.comparator.clone());
    let (write, progress) = (Arc::clone(&ctx.write), target.progress.map(Arc::clone));
    let go_on = move || {
        write.pacing.note_step();
        if let Some(progress) = &progress {
            progress.advance(CHECK_EVERY);
            progress.check()?;
        }
        write.health.check().and_then(|()| write.merges.check(target.stops_seen))
    };
    let stream = RetainStream::new(cursor, retain, target.end)
        .purging(purge)
        .sharing(&ctx.write.memory)
        .folding(family.options.merge_operator().cloned())
        .filtering(if target.level > FLUSH_LEVEL { family.filter.lock().clone() } else { None })
        .checking(go_on);
    match output.write_all(stream) {
        Ok(rest) => Ok((output.out, rest)),
        Err(e) => {
            if let Some(writer) = output.writer.take() {
                writer.abandon();
            }
            output.out.abandon(ctx);
            ctx.write.pacing.note_failure();
            Err(e)
        }
    }
}

/// The retention rules: the read timestamps to preserve while the merge runs, and its time for expiry.
pub fn rules(ctx: &MaintenanceCtx, bottom: bool) -> RetainRules {
    let now = ctx.reads.now();
    rules_of(ctx, (now, ctx.reads.snapshots.readers(|| visible_floor(ctx))), bottom)
}

/// Like [`rules`], for planning: does not raise the floor of history, so only data that no reader can reach may be dropped by them.
pub fn outlook(ctx: &MaintenanceCtx) -> RetainRules {
    let now = ctx.reads.now();
    rules_of(ctx, (now, ctx.reads.snapshots.readers_now(visible_floor(ctx))), false)
}

/// Returns the oldest read timestamp that needs no snapshot.
fn visible_floor(ctx: &MaintenanceCtx) -> SeqNo {
    // Sequence numbers count the log in units.
    ctx.reads.visible().saturating_sub(ctx.write.options.history_bytes / UNIT)
}

/// `now` was read before the numbers of the readers.
fn rules_of(ctx: &MaintenanceCtx, (now, mut snapshots): (u64, Vec<SeqNo>), bottom: bool) -> RetainRules {
    let visible_floor = snapshots.pop().unwrap_or(0);
    let (conflicts_since, began) = ctx.reads.snapshots.oldest_validating();
    // The commit of a transaction still depends on rows that it saw before they expired, and its cursors show them.
    let now = began.unwrap_or(u64::MAX).min(now);
    let newest_snapshot = ctx.reads.snapshots.newest();
    RetainRules {
        snapshots,
        visible_floor,
        bottom,
        now: Some(now),
        conflicts_since,
        newest_snapshot,
        renumber: false,
    }
}

struct Output<'a> {
    ctx: &'a MaintenanceCtx,
    family: &'a FamilyCore,
    target: RewriteTarget<'a>,
    mover: &'a mut ValueMover,
    writer: Option<TableWriter>,
    written: u64,
    /// Bytes of the table being written that were noted; a merge has taken them from its reserved space.
    noted: u64,
    /// Those of them for which the merge has not waited yet, if merges have a rate.
    unpaced: u64,
    /// The rewrite ends after the current key.
    yielding: bool,
    /// Memory of the table being written.
    charge: Charge,
    /// Memory of its filter and index at which a table ends.
    growing_max: u64,
    out: Rewritten,
}

impl Output<'_> {
    /// Returns the first key that was left out, if the rewrite ended early.
    fn write_all<C: EntryCursor>(&mut self, mut stream: RetainStream<C>) -> Result<Option<Vec<u8>>> {
        loop {
            // Covers what was written so far: the table is finished before the next entry is added.
            let purged_to = stream.purged_to();
            let Some(entry) = stream.next()? else { break };
            self.write(entry, purged_to)?;
            stream.end_value();
            self.note_stride()?;
            if !stream.has_long_value() {
                self.wait()?;
            }
            if self.yielding {
                stream.end_after_key();
            }
        }
        self.finish_table(stream.purged_to())?;
        self.wait()?;
        let counts = stream.counts();
        self.out.entries_in = counts.seen + stream.purged();
        self.out.dropped = counts.dropped_in_all() + stream.purged();
        self.out.older = counts.older;
        // Law: no entry is lost. Cost: one comparison for each rewrite.
        assert_eq!(
            counts.seen,
            self.written + counts.dropped_in_all(),
            "a rewrite writes or drops by a rule each entry that it reads"
        );
        Ok(stream.rest().map(<[u8]>::to_vec))
    }

    fn write(&mut self, entry: EntryRef<'_>, purged_to: SeqNo) -> Result<()> {
        let order = &self.family.options.comparator;
        let ends = |w: &TableWriter| {
            (w.file_bytes_estimate() >= self.target.table_bytes || w.growing_bytes() >= self.growing_max)
                && order.compare(entry.key, w.last_key()).is_ne()
        };
        let parts = self.target.splits.part_before(order, entry.key);
        if parts || self.writer.as_ref().is_some_and(ends) {
            self.finish_table(purged_to)?;
        }
        if self.writer.is_none() {
            self.writer = Some(self.begin_table()?);
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let moved =
            if entry.kind.holds_pointer() { self.mover.moved(&self.family.vlog, entry.value)? } else { None };
        if entry.value.len() as u64 >= STRIDE_BYTES {
            // To compress it takes as much again.
            self.charge.set(&self.ctx.write.memory, writer.memory_bytes() + entry.value.len() as u64);
        }
        writer.add(moved.as_deref().map_or(entry, |value| EntryRef { value, ..entry }))?;
        if entry.value.len() as u64 >= STRIDE_BYTES {
            self.charge.set(&self.ctx.write.memory, writer.memory_bytes());
        }
        self.written += 1;
        let looks = self.target.yields && self.written.is_multiple_of(YIELD_EVERY);
        // Not before half a table is written: a table for each waiting merge would be many short ones.
        self.yielding = looks
            && writer.file_bytes_estimate() >= self.target.table_bytes / 2
            && self.ctx.write.jobs.another_merge_waits(self.family.id);
        Ok(())
    }

    /// Looks at disk space and memory once a stride was written.
    #[inline]
    fn note_stride(&mut self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let bytes = writer.file_bytes();
        if bytes >= self.noted + STRIDE_BYTES {
            self.charge.set(&self.ctx.write.memory, writer.memory_bytes());
            self.note(bytes)
        } else {
            Ok(())
        }
    }

    /// Records that the table being written has `bytes` by now.
    #[cold]
    fn note(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.noted);
        self.noted += more;
        let Some(space) = self.target.space else { return Ok(()) };
        space.written(more)?;
        self.unpaced += more;
        Ok(())
    }

    /// Waits for the device if many tables are not durable, and for other merges if merges have a rate. The caller has no permission for a
    /// long value: flushes and merges wait for that.
    #[inline]
    fn wait(&mut self) -> Result<()> {
        if self.out.unsynced.len() > UNSYNCED_MAX
            && let Some(first) = self.out.unsynced.pop_front()
        {
            first.sync()?;
        }
        match std::mem::take(&mut self.unpaced) {
            0 => {}
            bytes => self.throttle(bytes),
        }
        Ok(())
    }

    #[cold]
    fn throttle(&self, bytes: u64) {
        let merges = &self.ctx.write.merges;
        merges.throttle(&*self.ctx.write.env.clock, bytes, || {
            self.ctx.write.health.check().is_ok()
                && merges.check(self.target.stops_seen).is_ok()
                && self.target.progress.is_none_or(|progress| progress.check().is_ok())
        });
    }

    fn begin_table(&self) -> Result<TableWriter> {
        let options = TableOptions {
            compression: self.target.compression(self.family.options.compression()),
            filter_bits_per_key: self.family.options.filter_bits_per_key(),
        };
        let id = self.ctx.versions.new_table_id()?;
        let salt = self.ctx.write.env.entropy.salt();
        let order = self.family.options.comparator.clone();
        let writer = TableWriter::create(&self.ctx.dir, id, salt, options, order)?;
        let writer = if self.target.caches { writer.caching(&self.ctx.tables) } else { writer };
        Ok(if self.target.drop_pages { writer.dropping_pages() } else { writer })
    }

    fn finish_table(&mut self, purged_to: SeqNo) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.set_purged_to(purged_to);
            let (table, file) = writer.complete()?;
            let bytes = table.file_bytes;
            self.out.tables.push(Arc::new(table));
            self.out.unsynced.push_back(file);
            self.note(bytes)?;
            self.noted = 0;
            self.charge.release();
        }
        Ok(())
    }
}
