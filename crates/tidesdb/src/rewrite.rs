//! The one merge loop: entries in order in, tables out. Flush and every compaction run it.
//!
//! Law, asserted in every build before anything is installed: entries in = entries out + entries dropped by a rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::codec::Compression;
use crate::family::{FamilyCore, Metric};
use crate::merge::{Purge, Retain, RetainRules, RetainStream};
use crate::ranges::RangeTombstone;
use crate::shared::MaintenanceCtx;
use crate::sst::{TableMeta, TableOptions, TableWriter};
use crate::types::{EntryCursor, EntryRef, SeqNo, VlogId};
use crate::version::{Change, VersionEdit};
use crate::wal::layout::UNIT;
use crate::{Error, Result, files};

/// Level that flushes write to.
pub const FLUSH_LEVEL: u8 = 1;

/// Where a rewrite goes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Level of the new tables.
    pub level: u8,
    /// Nothing older is stored of the keys of the input.
    pub bottom: bool,
    /// About how long a table may get.
    pub table_bytes: u64,
    /// How often merges had been stopped when this one began; `None` for what is no merge, and goes on.
    pub stops_seen: Option<u64>,
    /// The new tables leave the system's page cache, as the old ones were not there. What a flush writes stays: it is read again soon,
    /// by readers or by a merge.
    pub drop_pages: bool,
}

impl Target {
    /// One table in the level that flushes write to.
    pub fn flush(bottom: bool) -> Self {
        Self { level: FLUSH_LEVEL, bottom, table_bytes: u64::MAX, stops_seen: None, drop_pages: false }
    }

    /// What is flushed is soon merged: there the processor time of writers counts for more than a few bytes.
    fn compression(&self, wanted: Compression) -> Compression {
        match wanted {
            Compression::Lz4 if self.level == FLUSH_LEVEL => Compression::Lz4Fast,
            other => other,
        }
    }
}

/// What a rewrite made. The files are durable, and so are their names.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// The new tables, in key order, disjoint.
    pub tables: Vec<Arc<TableMeta>>,
    /// Range tombstones that came with the input and are not in the manifest yet.
    pub ranges: Vec<Arc<RangeTombstone>>,
    /// Entries read.
    pub entries_in: u64,
    /// Entries dropped by rule.
    pub dropped: u64,
}

impl Rewritten {
    /// Bytes of the new tables.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.file_bytes).sum()
    }

    /// Adds the new tables, and the value logs that neither a version nor `edit` names yet, to `edit`.
    ///
    /// # Errors
    /// Those of opening a value log.
    pub fn add_to(
        &self,
        ctx: &MaintenanceCtx,
        family: &FamilyCore,
        level: u8,
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let state = ctx.versions.version(family.id);
        let mut named: BTreeSet<VlogId> = state.iter().flat_map(|v| v.vlogs().keys().copied()).collect();
        named.extend(edit.changes().iter().filter_map(|c| match c {
            Change::AddVlog { vlog, .. } => Some(*vlog),
            _ => None,
        }));
        let referred: BTreeSet<VlogId> = self
            .tables
            .iter()
            .flat_map(|t| t.vlog_refs.iter().map(|r| r.vlog))
            .filter(|id| !named.contains(id))
            .collect();
        for vlog in referred {
            let salt = family.vlog.info(vlog)?.salt;
            edit.push(Change::AddVlog { family: family.id, vlog, salt });
        }
        for table in &self.tables {
            edit.push(Change::AddTable { family: family.id, level, meta: Arc::clone(table) });
        }
        for range in &self.ranges {
            edit.push(Change::AddRange { family: family.id, range: Arc::clone(range) });
        }
        Ok(())
    }

    /// Removes the files after a failed install, unless the manifest is in doubt: the next open may find them named.
    pub fn abandon(&self, ctx: &MaintenanceCtx) {
        if ctx.versions.is_poisoned() {
            return;
        }
        for table in &self.tables {
            // Left over, it is an orphan that the next open sets aside.
            let _ = ctx.dir.unlink(&files::table(table.id));
        }
    }
}

/// Runs `cursor`, which is positioned, to its end and writes what must be kept into tables, without what `purge` deletes for all
/// readers. All versions of a key go to one table.
///
/// # Errors
/// Those of reading and writing; all output is removed.
pub fn run(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    cursor: impl EntryCursor,
    target: Target,
    purge: &Purge,
) -> Result<Rewritten> {
    let mut output =
        Output { ctx, family, target, writer: None, key: Vec::new(), written: 0, out: Rewritten::default() };
    let retain = Retain::new(rules(ctx, target.bottom), family.options.comparator.clone());
    let write = Arc::clone(&ctx.write);
    let go_on = move || write.health.check().and_then(|()| write.merges.check(target.stops_seen));
    match output.write_all(RetainStream::new(cursor, retain, None).purging(purge).checking(go_on)) {
        Ok(()) => Ok(output.out),
        Err(e) => {
            if let Some(writer) = output.writer.take() {
                writer.abandon();
            }
            output.out.abandon(ctx);
            Err(e)
        }
    }
}

/// Who reads while the merge runs, and at what time.
pub fn rules(ctx: &MaintenanceCtx, bottom: bool) -> RetainRules {
    // Sequence numbers count the log in units.
    let history = ctx.write.options.history_bytes / UNIT;
    let mut snapshots = ctx.reads.snapshots.readers(|| ctx.reads.visible().saturating_sub(history));
    let visible_floor = snapshots.pop().unwrap_or(0);
    let oldest = ctx.reads.snapshots.oldest_validating();
    // What a transaction saw before it expired counts when it commits.
    let now = oldest.map_or(u32::MAX, |(_, began)| began).min(ctx.reads.now_secs());
    let conflicts_since = oldest.map(|(seq, _)| seq);
    RetainRules { snapshots, visible_floor, bottom, now: Some(now), conflicts_since }
}

struct Output<'a> {
    ctx: &'a MaintenanceCtx,
    family: &'a FamilyCore,
    target: Target,
    writer: Option<TableWriter>,
    key: Vec<u8>,
    written: u64,
    out: Rewritten,
}

impl Output<'_> {
    fn write_all<C: EntryCursor>(&mut self, mut stream: RetainStream<C>) -> Result<()> {
        loop {
            // Of what was written: the table is finished before the next entry is added.
            let purged_to = stream.purged_to();
            let Some(entry) = stream.next()? else { break };
            self.write(entry, purged_to)?;
        }
        self.finish_table(stream.purged_to())?;
        let counts = stream.counts();
        self.out.entries_in = counts.seen + stream.purged();
        self.out.dropped = counts.dropped_in_all() + stream.purged();
        // Law: no entry is lost. Cost: one comparison for each rewrite.
        assert_eq!(
            counts.seen,
            self.written + counts.dropped_in_all(),
            "a rewrite writes or drops by a rule each entry that it reads"
        );
        if !self.out.tables.is_empty() {
            self.ctx.dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
        }
        self.family.count(Metric::Dropped, self.out.dropped);
        Ok(())
    }

    fn write(&mut self, entry: EntryRef<'_>, purged_to: SeqNo) -> Result<()> {
        let full = self.writer.as_ref().is_some_and(|w| w.file_bytes_estimate() >= self.target.table_bytes);
        if full && self.family.options.comparator.compare(entry.key, &self.key).is_ne() {
            self.finish_table(purged_to)?;
        }
        if self.target.table_bytes != u64::MAX {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        if self.writer.is_none() {
            self.writer = Some(self.begin_table()?);
        }
        if let Some(writer) = &mut self.writer {
            writer.add(entry)?;
            self.written += 1;
        }
        Ok(())
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
        Ok(if self.target.drop_pages { writer.dropping_pages() } else { writer })
    }

    fn finish_table(&mut self, purged_to: SeqNo) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.set_purged_to(purged_to);
            self.out.tables.push(Arc::new(writer.finish()?));
        }
        Ok(())
    }
}
