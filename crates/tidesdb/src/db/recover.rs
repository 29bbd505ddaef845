//! Recovery: reads the log into memtables and writes these to tables before new commits are accepted.
//!
//! Data is not assumed to be on disk because it could be read: after a failed sync the page cache can hold what the
//! disk does not. So all replayed data goes to new, synced tables first. Then the manifest moves the beginning of the
//! log past it. Then the old segments are removed. A crash at any point starts over from the same log. Operations of
//! families with an unknown key order are deferred without being sorted: see `unresolved.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_io::{Access, File, FileExt};

use super::replay::{insert, to_table};
use super::unresolved::{Deferred, PIECE_BYTES};
use crate::events::{Event, TARGET};
use crate::family::FamilyCore;
use crate::options::RecoveryMode;
use crate::rewrite::{FLUSH_LEVEL, Rewritten};
use crate::shared::{MaintenanceCtx, Shared};
use crate::types::{FamilyId, Kind, SeqNo, VlogId};
use crate::version::{Change, FamilyState, State, VersionEdit};
use crate::vlog::{ValuePlace, VlogSet};
use crate::wal::layout::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, UNIT};
use crate::wal::reader::{self, Scan, ScanConfig};
use crate::wal::remove_spare_segments;
use crate::write::ops;
use crate::{Error, Result, files};

/// Bytes of commits replayed between two checks of the memtable sizes.
const UNCHECKED_BYTES_MAX: usize = 64 << 10;

/// Outcome of an open. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the database had been closed cleanly.
    pub clean: bool,
    /// Commits replayed from the log.
    pub commits: u64,
    /// Operations replayed from the log.
    pub operations: u64,
    /// Bytes of log that these commits take.
    pub log_bytes: u64,
    /// Complete commits after the end of the recovered prefix, which were discarded.
    pub discarded: u64,
    /// Commits that were being written when the process died; none of these calls had returned.
    pub unfinished: u64,
    /// Sequence number at which the log was cut.
    pub cut: Option<SeqNo>,
    /// Whether a sync of the log had failed in an earlier session.
    pub sync_failed: bool,
    /// Damage that the recovery mode tolerated.
    pub damage: Option<Error>,
    /// First sequence number after the recovered commits.
    pub end: SeqNo,
    /// Files set aside because the manifest does not name them.
    pub orphans: usize,
    /// Duration of the recovery.
    pub took: Duration,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clean {
            return write!(f, "clean: nothing to recover ({:?})", self.took);
        }
        write!(f, "recovered {} commits ({} operations) in {:?}", self.commits, self.operations, self.took)?;
        if self.unfinished > 0 {
            write!(f, "; {} commits were unfinished and never returned", self.unfinished)?;
        }
        if let Some(cut) = self.cut {
            write!(
                f,
                "; the log was cut at sequence number {cut}, {} later commits discarded",
                self.discarded
            )?;
        }
        if self.sync_failed {
            f.write_str("; a sync of the log had failed before")?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "; damage was skipped: {damage}")?;
        }
        if self.orphans > 0 {
            write!(f, "; {} stray files set aside", self.orphans)?;
        }
        Ok(())
    }
}

impl RecoveryReport {
    /// The event that says the same.
    pub(super) fn event(&self) -> Event {
        Event::Open {
            seconds: self.took,
            clean: self.clean,
            log_bytes: self.log_bytes,
            commits: self.commits,
            operations: self.operations,
            unfinished: self.unfinished,
            discarded: self.discarded,
            orphans: self.orphans as u64,
            sync_failed: self.sync_failed,
            damage: self.damage.as_ref().map(Error::to_string).unwrap_or_default(),
        }
    }
}

/// Recovers the database. The families must be loaded already.
///
/// # Errors
/// `Corrupt` for damage that the recovery mode does not tolerate; `Io`, `NoSpace`. Nothing was deleted.
pub(super) fn run(shared: &Arc<Shared>) -> Result<RecoveryReport> {
    let started = shared.write.env.clock.mono();
    let _span = tracing::debug_span!(target: TARGET, "recovery").entered();
    let state = shared.maintenance.versions.state();
    let config = scan_config(&shared.maintenance, &state)?;
    let scan = reader::scan(&shared.maintenance.dir, &config)?;
    shared.write.recovery_pins.store(first_seq(&config), Ordering::SeqCst);

    let mut replay = Replay {
        shared,
        state: &state,
        scan: &scan,
        commits: 0,
        operations: 0,
        log_bytes: 0,
        stopped_at: None,
        unchecked: 0,
        tables: Vec::new(),
        deferred: BTreeMap::new(),
        doubtful: BTreeMap::new(),
    };
    let mut report = RecoveryReport {
        clean: scan.commits == 0 && scan.cut.is_none() && scan.damage.is_none(),
        unfinished: scan.unfinished.len() as u64,
        sync_failed: config.sync_failed,
        damage: scan.damage.clone(),
        ..RecoveryReport::default()
    };
    let result = replay.run(&config, &mut report).and_then(|()| match shared.write.options.read_only {
        true => {
            replay.keep_deferred();
            Ok(())
        }
        false => replay.persist(&report),
    });
    if let Err(e) = result {
        replay.tables.iter().for_each(|(_, out)| out.abandon(&shared.maintenance));
        return Err(e);
    }
    if !shared.write.options.read_only {
        remove_old_segments(&shared.maintenance, &config)?;
        report.orphans = shared.maintenance.versions.settle_orphans().set_aside;
    }
    report.took = shared.write.env.clock.mono().saturating_sub(started);
    Ok(report)
}

fn first_seq(config: &ScanConfig) -> SeqNo {
    config.first.0 * config.segment_bytes / UNIT
}

fn scan_config(ctx: &MaintenanceCtx, state: &State) -> Result<ScanConfig> {
    let names = ctx.dir.list().map_err(|e| Error::io("list", "database directory", e))?;
    let identity = ctx.versions.identity();
    let mut config = ScanConfig {
        segment_bytes: identity.wal_segment_bytes,
        db_uuid: identity.uuid,
        boot_id: ctx.write.env.disk.boot_id(),
        first: state.log_start,
        first_existed: false,
        watermark: state.durable_mark,
        sync_failed: names.iter().any(|name| name == files::SYNC_FAILED),
        mode: ctx.write.options.recovery,
    };
    // A sequence number past the header of the first segment was assigned, so the segment existed. One record may fill
    // the previous segment to its end. Then the next number equals the position after that header, and nothing was
    // written there yet.
    let header = SEGMENT_HEADER_BYTES / UNIT;
    config.first_existed = state.log_start.0 > 0 && state.last_seq >= first_seq(&config) + header;
    Ok(config)
}

struct Replay<'a> {
    shared: &'a Arc<Shared>,
    state: &'a State,
    scan: &'a Scan,
    commits: u64,
    operations: u64,
    log_bytes: u64,
    stopped_at: Option<SeqNo>,
    /// Bytes of commits applied since the memtable sizes were last checked.
    unchecked: usize,
    /// Tables written so far; all are installed together at the end.
    tables: Vec<(Arc<FamilyCore>, Rewritten)>,
    /// Operations of unresolved families.
    deferred: BTreeMap<FamilyId, Deferred>,
    /// Parts of value logs that replayed commits refer to and that are not known to be durable.
    doubtful: BTreeMap<VlogId, Range<u64>>,
}

impl Replay<'_> {
    fn run(&mut self, config: &ScanConfig, report: &mut RecoveryReport) -> Result<()> {
        let scan = self.scan;
        let dir = Arc::clone(&self.shared.maintenance.dir);
        reader::replay(&dir, config, scan, |seq, body, file, base| self.commit(seq, body, file, base))?;
        report.commits = self.commits;
        report.operations = self.operations;
        report.log_bytes = self.log_bytes;
        report.discarded = scan.discarded + scan.commits.saturating_sub(self.commits);
        report.cut = self.stopped_at.or(scan.cut);
        report.end = self.stopped_at.unwrap_or(scan.end);
        if self.shared.write.options.read_only && self.commits == 0 {
            self.shared.write.recovery_pins.store(u64::MAX, Ordering::SeqCst); // the log is not needed
        }
        Ok(())
    }

    /// Keeps the deferred operations in memory: a read-only open cannot store them.
    fn keep_deferred(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        *self.shared.deferred.lock() = deferred.into_iter().map(|(id, d)| (id, d.into_piece())).collect();
    }

    /// Applies one commit. Returns `false` to end the replay before this commit.
    fn commit(&mut self, seq: SeqNo, body: &[u8], file: &str, base: u64) -> Result<bool> {
        self.relieve(body.len())?;
        if !self.values_are_there(seq, body, file, base)? {
            if self.shared.write.options.recovery == RecoveryMode::Strict {
                return Err(Error::corrupt(
                    file,
                    base,
                    "a commit refers to a value that is missing in its value log",
                ));
            }
            self.stopped_at = Some(seq);
            return Ok(false);
        }
        for op in ops(body, file, base) {
            let op = op?;
            let family = self.shared.write.families.read().get(&op.family).cloned();
            match family {
                Some(_) if self.is_flushed(seq, op.family) => {}
                Some(family) if family.is_unresolved() => {
                    self.deferred.entry(op.family).or_insert_with(|| Deferred::new(&family)).add(seq, &op)?
                }
                Some(family) => insert(&self.shared.write, &family, seq, &op)?,
                None if op.family < self.state.next_family => {} // dropped since
                None => return Err(Error::corrupt(file, base, "a commit for a family that never existed")),
            }
            self.operations += 1;
        }
        self.commits += 1;
        self.log_bytes += (RECORD_HEADER_BYTES + body.len()) as u64;
        Ok(true)
    }

    /// Returns whether the commit is in tables of the family already, or deferred.
    fn is_flushed(&self, seq: SeqNo, family: FamilyId) -> bool {
        self.state.families.get(&family).is_some_and(|f| seq <= f.flushed_to)
    }

    /// Runs between two commits: writes full memtables as tables, and what is deferred to value logs, so a long log needs no more memory than a short one.
    /// `bytes` is the size of the next commit.
    fn relieve(&mut self, bytes: usize) -> Result<()> {
        self.unchecked += bytes;
        if self.shared.write.options.read_only || self.unchecked < UNCHECKED_BYTES_MAX {
            return Ok(());
        }
        self.unchecked = 0;
        self.deferred.values_mut().try_for_each(|deferred| deferred.write(PIECE_BYTES))?;
        self.shared.write.all_families().iter().try_for_each(|family| self.relieve_one(family))
    }

    fn relieve_one(&mut self, family: &Arc<FamilyCore>) -> Result<()> {
        let bytes = family.owned_view().active.as_ref().map_or(0, |a| a.bytes());
        let full = bytes >= family.options.write_buffer_bytes();
        if full && !self.shared.write.options.read_only { self.write_table(family) } else { Ok(()) }
    }

    /// Writes the memtable of `family` as tables that are not installed yet.
    fn write_table(&mut self, family: &Arc<FamilyCore>) -> Result<()> {
        let has_more = self.tables.iter().any(|(f, _)| Arc::ptr_eq(f, family));
        let out = to_table(&self.shared.maintenance, family, has_more)?;
        self.tables.extend(out.map(|out| (Arc::clone(family), out)));
        Ok(())
    }

    /// Makes the replayed data durable and moves the beginning of the log past it, in one edit. A crash before the edit
    /// starts over from the same log, whose bytes may still be only in the page cache.
    fn persist(&mut self, report: &RecoveryReport) -> Result<()> {
        let shared = self.shared;
        self.install(report).inspect_err(|_| {
            if !shared.maintenance.versions.is_poisoned() {
                shared.write.log.remove_all(); // the manifest does not name its segments
            }
        })?;
        shared.write.recovery_pins.store(u64::MAX, Ordering::SeqCst);
        self.tables.clear();
        self.remove_dead_vlogs()
    }

    fn install(&mut self, report: &RecoveryReport) -> Result<()> {
        let shared = self.shared;
        keep_lost_segments(&shared.maintenance, report)?;
        for family in shared.write.all_families() {
            self.write_table(&family)?;
        }
        self.deferred.values_mut().try_for_each(Deferred::finish)?;
        self.sync_values()?;
        shared.write.log.begin(Vec::new())?;
        let tail = shared.write.log.sequencer().tail();
        let mut edit = VersionEdit::new();
        for (family, out) in &self.tables {
            out.add_to(&shared.maintenance, family, FLUSH_LEVEL, &mut edit)?;
        }
        for deferred in self.deferred.values() {
            deferred.add_to(&shared.maintenance, &mut edit)?;
        }
        for family in self.state.families.keys() {
            edit.push(Change::FlushedTo { family: *family, seq: tail - 1 });
        }
        self.seal_vlogs(tail - 1, &mut edit)?;
        edit.push(Change::LogStart { wal: shared.write.log.segment_of(tail) });
        // On a full disk the first segment is created later, and the manifest must not say that it exists.
        let begun = shared.write.log.has_begun();
        edit.push(Change::LastSeq { seq: if begun { tail } else { tail - 1 } });
        shared.maintenance.install_for_all(&edit)
    }

    /// Makes durable the value logs of earlier sessions that the new tables and the deferred operations refer to. Bytes
    /// that may be only in the page cache, and marked clean there after a failed sync, are written again: otherwise a
    /// sync would not cover them.
    fn sync_values(&self) -> Result<()> {
        let refs = self.tables.iter().flat_map(|(_, out)| &out.tables).flat_map(|t| &t.vlog_refs);
        let deferred = self.deferred.values().flat_map(|d| d.vlogs.iter().copied());
        let ids: BTreeSet<VlogId> = refs.map(|r| r.vlog).chain(deferred).collect();
        for id in ids {
            let name = files::vlog(id);
            let io = |op| move |e| Error::io(op, &files::vlog(id), e);
            let file = self.shared.maintenance.dir.open(&name, Access::ReadWrite).map_err(io("open"))?;
            if let Some(range) = self.doubtful.get(&id) {
                rewrite_in_place(&*file, range.clone()).map_err(io("rewrite"))?;
            }
            file.sync_all().map_err(io("sync"))?;
        }
        self.shared.maintenance.dir.sync().map_err(|e| Error::io("sync", "database directory", e))
    }

    /// Seals the value logs of earlier sessions: nothing is appended to them any more.
    fn seal_vlogs(&self, sealed_at: SeqNo, edit: &mut VersionEdit) -> Result<()> {
        let added: Vec<(FamilyId, VlogId)> = edit
            .changes()
            .iter()
            .filter_map(|c| match c {
                Change::AddVlog { family, vlog, .. } => Some((*family, *vlog)),
                _ => None,
            })
            .collect();
        let open = |f: &Arc<FamilyState>| {
            let id = f.id;
            let unsealed = f.vlogs.iter().filter(|(_, v)| v.sealed_at.is_none()).map(move |(v, _)| (id, *v));
            unsealed.collect::<Vec<_>>()
        };
        for (family, vlog) in self.state.families.values().flat_map(open).chain(added) {
            let bytes = self.with_vlogs(family, |vlogs| vlogs.info(vlog)).transpose()?;
            let bytes = bytes.ok_or_else(|| Error::internal("a family of the manifest is not loaded"))?.bytes;
            edit.push(Change::SealVlog { family, vlog, bytes, sealed_at });
        }
        Ok(())
    }

    /// Calls `read` with the value logs of `family`.
    fn with_vlogs<R>(&self, family: FamilyId, read: impl FnOnce(&VlogSet) -> R) -> Option<R> {
        let core = self.shared.write.families.read().get(&family).cloned();
        core.map(|core| read(&core.vlog))
    }

    /// Removes value logs that nothing refers to.
    fn remove_dead_vlogs(&self) -> Result<()> {
        let mut edit = VersionEdit::new();
        let state = self.shared.maintenance.versions.state();
        for family in state.families.values() {
            for vlog in family.obsolete_vlogs() {
                edit.push(Change::RemoveVlog { family: family.id, vlog });
            }
        }
        if edit.is_empty() { Ok(()) } else { self.shared.maintenance.install_for_all(&edit) }
    }

    /// Returns whether every value that the commit points to can be read. A record that was not durable may exist
    /// without its value, after a machine crash or a failed sync of the value log. Such a commit was never acknowledged
    /// as durable.
    fn values_are_there(&mut self, seq: SeqNo, body: &[u8], file: &str, base: u64) -> Result<bool> {
        if seq < self.scan.synced {
            return Ok(true);
        }
        for op in ops(body, file, base) {
            let op = op?;
            if op.kind != Kind::PutPointer || self.is_flushed(seq, op.family) {
                continue; // the value log of a flushed commit may have been removed since
            }
            let place = ValuePlace::decode(op.value)
                .ok_or_else(|| Error::corrupt(file, base, "a malformed pointer into a value log"))?;
            let checked = self.with_vlogs(op.family, |vlogs| match &place {
                ValuePlace::Record(pointer) => vlogs.read(pointer).map(drop),
                ValuePlace::Chunks(place) => vlogs.check_chunks(place), // durable before its commit was logged
            });
            match checked.unwrap_or(Ok(())) {
                Ok(()) => {
                    if let ValuePlace::Record(pointer) = place {
                        let (from, to) = (pointer.offset, pointer.offset + pointer.record_bytes());
                        let range = self.doubtful.entry(pointer.vlog).or_insert(from..to);
                        *range = range.start.min(from)..range.end.max(to);
                    }
                }
                Err(e) if e.is_corruption() || e.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// Rewrites a part of a file with its own bytes.
fn rewrite_in_place(file: &dyn File, mut range: Range<u64>) -> std::io::Result<()> {
    let mut buf = vec![0; (64 << 10).min(range.end - range.start) as usize];
    while !range.is_empty() {
        let n = buf.len().min((range.end - range.start) as usize);
        file.read_exact_at(&mut buf[..n], range.start)?;
        file.write_all_at(&buf[..n], range.start)?;
        range.start += n as u64;
    }
    Ok(())
}

/// Removes the old log segments, which nothing on disk needs any more.
fn remove_old_segments(ctx: &MaintenanceCtx, config: &ScanConfig) -> Result<()> {
    let files = reader::segment_files(&ctx.dir, config.first, config.segment_bytes)?;
    let begin = ctx.write.log.segment_of(ctx.write.log.sequencer().tail());
    for id in files.needed.into_iter().chain(files.old).filter(|id| *id < begin) {
        let name = files::wal(id);
        if let Err(error) = ctx.dir.unlink(&name) {
            tracing::warn!(%name, %error, "an old log segment could not be removed; it is ignored");
        }
    }
    remove_spent(ctx, config);
    Ok(())
}

/// Keeps segments that are discarded because of damage, for a person to examine. They get a second name before the
/// manifest drops the first, so a crash in between loses neither.
fn keep_lost_segments(ctx: &MaintenanceCtx, report: &RecoveryReport) -> Result<()> {
    let Some(cut) = report.damage.as_ref().and(report.cut) else {
        return Ok(());
    };
    let segment_bytes = ctx.versions.identity().wal_segment_bytes;
    let lost = reader::segment_files(&ctx.dir, ctx.write.log.segment_of(cut), segment_bytes)?;
    for name in lost.needed.into_iter().map(files::wal) {
        let kept = format!("{name}.lost");
        match ctx.dir.link(&name, &*ctx.dir, &kept) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("link", &kept, e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes spare segment files of an earlier session, and the note of a failed sync, since the log it refers to is
/// replayed.
fn remove_spent(ctx: &MaintenanceCtx, config: &ScanConfig) {
    remove_spare_segments(&*ctx.dir);
    if config.sync_failed
        && let Err(error) = ctx.dir.unlink(files::SYNC_FAILED)
    {
        tracing::warn!(%error, "the note of a failed sync could not be removed; the next open tries again");
    }
}
