//! Saving what recovery has read: tables, their values and the new beginning of the log become durable together.
//!
//! Data is not assumed to be on disk because it could be read: after a failed sync the page cache can hold what the
//! disk does not. So all replayed data goes to new, synced tables. Then one edit of the manifest moves the beginning of
//! the log past it. Then the old segments are removed. A crash at any point starts over from the same log.
//!
//! Reads do not need any of this: until the edit is installed, they find the commits in memtables. So after a kill with
//! much data the open returns first, and a background thread saves. Everything that writes waits for it, because the
//! new log begins behind the old one and may not be durable before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_io::{Access, File, FileExt};

use super::RecoveryReport;
use super::replay::{NewTables, to_tables};
use crate::callback::contained;
use crate::engine::Engine;
use crate::events::Event;
use crate::family::FamilyCore;
use crate::jobs::Job;
use crate::maintenance::MaintenanceCtx;
use crate::order::Gather;
use crate::rewrite::{FLUSH_LEVEL, Rewritten};
use crate::types::{FamilyId, SeqNo, VlogId, WalId};
use crate::version::{Change, State, VersionEdit};
use crate::vlog::FILE_HEADER_BYTES;
use crate::wal::reader;
use crate::wal::remove_spare_segments;
use crate::{Error, Result, files};

/// Free space, on top of what the tables may take and of `disk_free_min`, without which an open saves before it returns:
/// it then reports a full disk itself.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Bytes of recovered commits, and of values that they refer to, up to which an open writes tables before it returns.
const FOREGROUND_BYTES_MAX: u64 = 4 << 20;

/// Commits that were recovered and are not in installed tables yet.
pub(super) struct Unsaved {
    pub(super) engine: Arc<Engine>,
    /// The state that the manifest had before.
    pub(super) state: State,
    /// Tables written so far.
    pub(super) tables: NewTables,
    /// Parts of value logs to write again.
    pub(super) doubtful: BTreeMap<VlogId, Range<u64>>,
}

impl Unsaved {
    /// Returns whether `bytes` of commits and values may be saved after the open has returned.
    pub(super) fn may_wait(&self, bytes: u64) -> Result<bool> {
        let write = &self.engine.write;
        let is_large = bytes > if write.options.forced.saves_behind { 0 } else { FOREGROUND_BYTES_MAX };
        // Tables that were written for lack of memory are not readable before they are installed. An object store gets
        // the first state of a session from the open.
        let readable = self.tables.is_empty();
        if !is_large
            || !readable
            || self.engine.remote.is_some()
            || write.options.background_threads == Some(0)
        {
            return Ok(false);
        }
        let space = self.engine.maintenance.dir.space();
        let space = space.map_err(|e| Error::io("read free space", "database directory", e))?;
        let memory: u64 = write.all_families().iter().map(memtable_bytes).sum();
        let needed = memory.saturating_mul(2).saturating_add(write.options.disk_free_min);
        Ok(space.free >= needed.saturating_add(FREE_BYTES_MIN))
    }

    /// Saves in a background thread, while reads go on. A failure poisons the database; the log is intact, and the next
    /// open recovers it.
    pub(super) fn save_behind(mut self, report: &RecoveryReport) {
        let engine = Arc::clone(&self.engine);
        let started = engine.write.env.clock.mono();
        // A panic, as of a user's comparator, must not leave the writers waiting.
        let saved = contained(|| self.save(report))
            .unwrap_or_else(|| Err(Error::internal("saving the recovered commits panicked")));
        let event = Event::Recovered {
            seconds: engine.write.env.clock.mono().saturating_sub(started),
            orphans: *saved.as_ref().unwrap_or(&0) as u64,
            error: saved.as_ref().err().map(Error::to_string).unwrap_or_default(),
        };
        if let Err(e) = saved {
            tracing::error!(error = %e, "recovered commits could not be written to tables; the log keeps them");
            engine.write.poison(e);
        }
        engine.write.end_recovery();
        engine.write.events.record(&event);
        engine.write.events.write();
        self.free();
        engine.write.ask_for_pending();
        engine.write.jobs.push(Job::RemoveObsolete); // files that recovery replaced
    }

    /// Returns the memory of the replay to the system, after its memtables were replaced.
    pub(super) fn free(self) {
        let engine = Arc::clone(&self.engine);
        drop(self);
        engine.return_memory(Duration::ZERO);
    }

    /// Makes the replayed data durable and moves the beginning of the log past it, in one edit. Returns the number of
    /// files that were set aside.
    pub(super) fn save(&mut self, report: &RecoveryReport) -> Result<usize> {
        let engine = Arc::clone(&self.engine);
        self.install(report).inspect_err(|_| {
            if !engine.maintenance.versions.is_poisoned() {
                engine.write.log.remove_all(); // the manifest does not name its segments
            }
            self.abandon();
        })?;
        self.settle(report)
    }

    /// Begins the session of a database that was closed cleanly, at its first write: as [`Unsaved::save`] at an open, but a failure may be
    /// tried again.
    pub(super) fn begin(engine: &Arc<Engine>, state: &State, report: &RecoveryReport) -> Result<()> {
        let (engine, state) = (Arc::clone(engine), state.clone());
        let mut this = Self { engine, state, tables: NewTables::new(), doubtful: BTreeMap::new() };
        let engine = Arc::clone(&this.engine);
        engine.maintenance.with_reserve(|| this.install(report))?;
        this.settle(report).map(drop)
    }

    /// Removes what the installed edit made needless. Returns the number of files that were set aside.
    fn settle(&mut self, report: &RecoveryReport) -> Result<usize> {
        let engine = Arc::clone(&self.engine);
        engine.write.recovery_pins.store(u64::MAX, Ordering::SeqCst);
        self.tables.clear();
        self.remove_dead_vlogs()?;
        remove_old_log(&engine.maintenance, report)?;
        Ok(engine.maintenance.versions.settle_orphans().set_aside)
    }

    /// Removes the tables written so far.
    pub(super) fn abandon(&self) {
        self.outputs().for_each(|(_, out)| out.abandon(&self.engine.maintenance));
    }

    /// The tables, each with its family.
    fn outputs(&self) -> impl Iterator<Item = (&Arc<FamilyCore>, &Rewritten)> {
        self.tables.values().flat_map(|(family, outs)| outs.iter().map(move |out| (family, out)))
    }

    fn install(&mut self, report: &RecoveryReport) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        keep_lost_segments(&engine.maintenance, report)?;
        for family in engine.write.all_families() {
            to_tables(&engine.maintenance, &family, &mut self.tables)?;
        }
        self.sync_values()?;
        let begun = begin_log(&engine)?;
        if !engine.write.log.has_begun() {
            // Otherwise the names of the tables became durable with that of the first segment.
            engine.maintenance.dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
        }
        let tail = engine.write.log.sequencer().tail();
        let mut edit = VersionEdit::new();
        for (family, out) in self.outputs() {
            out.add_to(&engine.maintenance, family, |_| (FLUSH_LEVEL, 0), &mut edit)?;
        }
        for family in self.state.families.keys() {
            edit.push(Change::FlushedTo { family: *family, seq: tail - 1 });
        }
        self.seal_vlogs(tail - 1, &mut edit)?;
        edit.changes.extend(begun.changes);
        self.publish(&edit)
    }

    /// Begins the log of a database that was just created. Returns the edit that says so, for the one that creates the first family.
    pub(super) fn begin_new(mut self, report: &RecoveryReport) -> Result<VersionEdit> {
        let edit = begin_log(&self.engine)?;
        self.settle(report).map(|_| edit)
    }

    /// Installs `edit`, and replaces the memtables by the tables that it adds.
    fn publish(&self, edit: &VersionEdit) -> Result<()> {
        let ctx = &self.engine.maintenance;
        let families = ctx.write.all_families();
        ctx.install_with(edit, |versions| {
            for family in &families {
                let now = || Arc::clone(&family.owned_view().version);
                let version = versions.get(&family.id).map_or_else(now, Arc::clone);
                family.replace_memtables(&version);
            }
        })
    }

    /// Makes durable the value logs of earlier sessions that the new tables refer to. After a failed sync, bytes may be only in the page
    /// cache and marked clean there; these are written again, because otherwise a sync would not cover them.
    fn sync_values(&self) -> Result<()> {
        let refs = self.outputs().flat_map(|(_, out)| &out.tables).flat_map(|t| &t.vlog_refs);
        let ids: BTreeSet<VlogId> = refs.map(|r| r.vlog).gather();
        let dir = &self.engine.maintenance.dir;
        for id in ids {
            let name = files::vlog(id);
            let io = |op| move |e| Error::io(op, &files::vlog(id), e);
            let doubtful = self.doubtful.get(&id);
            // A caller may have linked or moved a file here that nobody may write.
            let opened = match doubtful {
                Some(_) => dir.open(&name, Access::ReadWrite),
                None => files::open_to_sync(&**dir, &name),
            };
            let file = opened.map_err(io("open"))?;
            if let Some(range) = doubtful {
                // The failed sync may have been the first of the file, which covers its header.
                let header = 0..FILE_HEADER_BYTES as u64;
                rewrite_in_place(&*file, header).map_err(io("rewrite"))?;
                rewrite_in_place(&*file, range.clone()).map_err(io("rewrite"))?;
            }
            file.sync_all().map_err(io("sync")).inspect_err(|_| {
                // Unlike the log, values are not copied to new files by the next open.
                files::note_failed_sync(&**dir);
            })?;
        }
        Ok(())
    }

    /// Seals the value logs of earlier sessions: nothing is appended to them any more.
    fn seal_vlogs(&self, sealed_at: SeqNo, edit: &mut VersionEdit) -> Result<()> {
        let all =
            self.state.families.values().flat_map(|f| f.vlogs.iter().map(|(id, info)| (f.id, *id, info)));
        let known = all.filter(|(.., info)| info.sealed_at.is_none()).map(|(family, id, _)| (family, id));
        let added = edit.changes.iter().filter_map(|change| match change {
            Change::AddVlog { family, vlog, .. } => Some((*family, *vlog)),
            _ => None,
        });
        for (family, vlog) in known.chain(added).collect::<Vec<(FamilyId, VlogId)>>() {
            let core = self.engine.write.family(family);
            let core = core.ok_or_else(|| Error::internal("a family of the manifest is not loaded"))?;
            let bytes = core.vlog.info(vlog)?.bytes;
            edit.push(Change::SealVlog { family, vlog, bytes, sealed_at });
        }
        Ok(())
    }

    /// Removes value logs that nothing refers to.
    fn remove_dead_vlogs(&self) -> Result<()> {
        let mut edit = VersionEdit::new();
        let state = self.engine.maintenance.versions.state();
        for family in state.families.values() {
            for vlog in family.obsolete_vlogs_at(family.flushed_to) {
                edit.push(Change::RemoveVlog { family: family.id, vlog });
            }
        }
        if edit.changes.is_empty() {
            return Ok(());
        }
        let families = self.engine.write.all_families();
        let families: Vec<&FamilyCore> = families.iter().map(|family| &**family).collect();
        self.engine.maintenance.install(&edit, &families)
    }
}

/// Begins the log of this session. Returns the edit that says where it begins.
fn begin_log(engine: &Engine) -> Result<VersionEdit> {
    let log = &engine.write.log;
    log.begin(Vec::new())?;
    let tail = log.sequencer().tail();
    let mut edit = VersionEdit::new();
    edit.push(Change::LogStart { wal: log.segment_of(tail) });
    // On a full disk the first segment is created later, and the manifest must not say that it exists.
    edit.push(Change::LastSeq { seq: if log.has_begun() { tail } else { tail - 1 } });
    Ok(edit)
}

/// Bytes of the memtables of `family`.
pub(super) fn memtable_bytes(family: &Arc<FamilyCore>) -> u64 {
    family.owned_view().memtables().map(|slot| slot.bytes() as u64).sum()
}

/// Rewrites a part of a file with its own bytes.
fn rewrite_in_place(file: &dyn File, mut range: Range<u64>) -> std::io::Result<()> {
    let mut buf = vec![0; (64 << 10).min(range.end - range.start) as usize];
    while !range.is_empty() {
        let n = (buf.len() as u64).min(range.end - range.start) as usize;
        file.read_exact_at(&mut buf[..n], range.start)?;
        file.write_all_at(&buf[..n], range.start)?;
        range.start += n as u64;
    }
    Ok(())
}

/// Removes what nothing on disk needs any more, since the old log is replayed: its segments, spare ones of an earlier session, and the note
/// of a failed sync.
fn remove_old_log(ctx: &MaintenanceCtx, report: &RecoveryReport) -> Result<()> {
    let files = reader::segment_files(&ctx.dir, WalId(0), ctx.versions.identity().wal_segment_bytes)?;
    let begin = ctx.write.log.segment_of(ctx.write.log.sequencer().tail());
    for id in files.into_iter().filter(|id| *id < begin) {
        files::remove(&*ctx.dir, &files::wal(id));
    }
    remove_spare_segments(&*ctx.dir);
    if report.sync_failed
        && let Err(error) = ctx.dir.unlink(files::SYNC_FAILED)
    {
        tracing::warn!(%error, "the note of a failed sync could not be removed; the next open tries again");
    }
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
    for name in lost.into_iter().map(files::wal) {
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
