//! Recovery: what the log holds is read into memtables and written to tables before anything new is accepted.
//!
//! Replayed data is never trusted to be on disk just because it could be read: after a failed sync the system's cache can
//! hold what the disk does not. So all of it goes to new, synced tables first, then the manifest moves the
//! beginning of the log past it, then the old segments go. A crash at any point starts over from the same log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_memtable::Version;

use crate::family::FamilyCore;
use crate::shared::Shared;
use crate::types::{Kind, SeqNo, WalId};
use crate::version::{Change, State, VersionEdit};
use crate::vlog::VlogPointer;
use crate::wal::reader::{self, Scan, ScanConfig};
use crate::write::{Op, ops};
use crate::{Error, Result, files, flush};

/// What opening did. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the database had been closed in order.
    pub clean: bool,
    /// Commits read back from the log.
    pub commits: u64,
    /// Operations read back from the log.
    pub operations: u64,
    /// Whole commits after the end of the recovered prefix that were given up.
    pub discarded: u64,
    /// Commits that were being written when the process died; none of them had returned.
    pub unfinished: u64,
    /// Where the log was cut, as a sequence number.
    pub cut: Option<SeqNo>,
    /// Damage that the recovery mode went past.
    pub damage: Option<Error>,
    /// First sequence number after the recovered commits.
    pub end: SeqNo,
    /// Files set aside because the manifest does not name them.
    pub orphans: usize,
    /// How long it took.
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
            write!(f, "; the log was cut at sequence number {cut}, {} later commits given up", self.discarded)?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "; went past damage: {damage}")?;
        }
        if self.orphans > 0 {
            write!(f, "; {} stray files set aside", self.orphans)?;
        }
        Ok(())
    }
}

/// Recovers the database. Families are loaded already.
///
/// # Errors
/// `Corrupt` for damage that the mode does not go past; `Io`, `NoSpace`. Nothing was deleted.
pub(super) fn run(shared: &Arc<Shared>) -> Result<RecoveryReport> {
    let started = shared.env.clock.mono();
    let state = shared.versions.state();
    let config = scan_config(shared, &state);
    let scan = reader::scan(&shared.dir, &config)?;
    shared.recovery_pins.store(first_seq(&config), Ordering::SeqCst);

    let mut replay = Replay { shared, state: &state, scan: &scan, commits: 0, operations: 0, stopped_at: None };
    reader::replay(&shared.dir, &config, &scan, |seq, body, file, base| replay.commit(seq, body, file, base))?;
    let (commits, operations, stopped_at) = (replay.commits, replay.operations, replay.stopped_at);
    let mut report = RecoveryReport {
        clean: scan.commits == 0 && scan.cut.is_none() && scan.damage.is_none(),
        commits,
        operations,
        discarded: scan.discarded + (scan.commits - commits.min(scan.commits)),
        unfinished: scan.unfinished.len() as u64,
        cut: stopped_at.or(scan.cut),
        damage: scan.damage.clone(),
        end: stopped_at.unwrap_or(scan.end),
        orphans: 0,
        took: Duration::ZERO,
    };
    if !shared.options.read_only {
        persist(shared, &config, &report)?;
        report.orphans = shared.versions.settle_orphans().set_aside;
    }
    report.took = shared.env.clock.mono().saturating_sub(started);
    tracing::info!(%report, "opened");
    Ok(report)
}

fn first_seq(config: &ScanConfig) -> SeqNo {
    config.first.0 * config.segment_bytes / crate::wal::layout::UNIT
}

fn scan_config(shared: &Shared, state: &State) -> ScanConfig {
    let identity = shared.versions.identity();
    let mut config = ScanConfig {
        segment_bytes: identity.wal_segment_bytes,
        db_uuid: identity.uuid,
        boot_id: shared.env.disk.boot_id(),
        first: state.log_start,
        first_existed: false,
        watermark: state.durable_mark,
        mode: shared.options.recovery,
    };
    // A sequence number inside the first segment was given out, so the segment existed.
    config.first_existed = state.log_start.0 > 0 && state.last_seq > first_seq(&config);
    config
}

struct Replay<'a> {
    shared: &'a Arc<Shared>,
    state: &'a State,
    scan: &'a Scan,
    commits: u64,
    operations: u64,
    stopped_at: Option<SeqNo>,
}

impl Replay<'_> {
    /// Applies one commit; `false` ends the replay before it.
    fn commit(&mut self, seq: SeqNo, body: &[u8], file: &str, base: u64) -> Result<bool> {
        self.relieve(seq)?;
        if !self.values_are_there(seq, body, file, base)? {
            self.stopped_at = Some(seq);
            return Ok(false);
        }
        for op in ops(body, file, base) {
            let op = op?;
            let family = self.shared.families.read().get(&op.family).cloned();
            match family {
                Some(family) => self.apply(seq, &family, &op)?,
                None if op.family < self.state.next_family => {} // dropped since
                None => return Err(Error::corrupt(file, base, "a commit for a family that never existed")),
            }
            self.operations += 1;
        }
        self.commits += 1;
        Ok(true)
    }

    fn apply(&self, seq: SeqNo, family: &Arc<FamilyCore>, op: &Op<'_>) -> Result<()> {
        if self.state.families.get(&op.family).is_some_and(|f| seq <= f.flushed_to) {
            return Ok(()); // in tables already
        }
        family.make_slot(seq, self.shared.env.entropy.next_u64(), || seq);
        let view = family.owned_view();
        let slot = view.slot_for(seq).ok_or_else(|| Error::internal("a replayed commit has no memtable"))?;
        let version = Version { seq, kind: op.kind as u8, expiry: op.expiry };
        slot.map
            .insert(op.key, version, op.value)
            .map_err(|_| Error::MemoryLimit { what: "replaying the log".into() })?;
        Ok(())
    }

    /// Between two commits: full memtables become tables, so that a long log fits in the memory of a short one.
    fn relieve(&self, seq: SeqNo) -> Result<()> {
        if self.shared.options.read_only || !self.commits.is_multiple_of(64) {
            return Ok(());
        }
        for family in self.shared.all_families() {
            let bytes = family.owned_view().active.as_ref().map_or(0, |a| a.map.allocated_bytes());
            if bytes >= family.options.write_buffer_bytes {
                self.shared.debt.add(bytes as u64);
                family.change_view(|view| (view.rotated(seq), ()));
                flush::run(self.shared, &family)?;
            }
        }
        Ok(())
    }

    /// After a stop of the machine a record can be there without the value it points to: such a commit was never durable.
    fn values_are_there(&self, seq: SeqNo, body: &[u8], file: &str, base: u64) -> Result<bool> {
        if self.scan.same_boot || seq < self.scan.synced {
            return Ok(true);
        }
        for op in ops(body, file, base) {
            let op = op?;
            let family = self.shared.families.read().get(&op.family).cloned();
            let (Some(family), Kind::PutPointer) = (family, op.kind) else {
                continue;
            };
            let pointer = VlogPointer::decode(op.value)
                .ok_or_else(|| Error::corrupt(file, base, "a pointer of a wrong length"))?;
            match family.vlog.read(&pointer) {
                Ok(_) => {}
                Err(e) if e.is_corruption() || e.io_kind() == Some(std::io::ErrorKind::NotFound) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// Makes durable what was replayed, then moves the beginning of the log past it.
fn persist(shared: &Arc<Shared>, config: &ScanConfig, report: &RecoveryReport) -> Result<()> {
    for family in shared.all_families() {
        flush::all(shared, &family)?;
    }
    seal_old_vlogs(shared)?;
    let (ids, old) = reader::segment_files(&shared.dir, config.first)?;
    shared.begin_log(Vec::new())?;
    // Only now nothing on disk needs the old segments.
    let cut = report.damage.as_ref().and(report.cut).map(|seq| shared.log.segment_of(seq));
    for id in ids.into_iter().chain(old).filter(|id| *id < shared.log.segment_of(shared.log.sequencer().tail())) {
        retire(shared, id, cut.is_some_and(|cut| id >= cut));
    }
    remove_free(shared);
    Ok(())
}

/// Value logs of earlier sessions are complete: nothing is appended to them any more.
fn seal_old_vlogs(shared: &Arc<Shared>) -> Result<()> {
    let sealed_at = shared.log.sequencer().tail() - 1;
    let mut edit = VersionEdit::new();
    let state = shared.versions.state();
    for family in state.families.values() {
        for (id, info) in family.vlogs.iter().filter(|(_, info)| info.sealed_at.is_none()) {
            let core = shared.families.read().get(&family.id).cloned();
            let bytes = core.map_or(Ok(info.bytes), |core| core.vlog.file_bytes(*id))?;
            edit.push(Change::SealVlog { family: family.id, vlog: *id, bytes, sealed_at });
        }
        edit.push(Change::FlushedTo { family: family.id, seq: sealed_at });
    }
    if !edit.is_empty() {
        shared.versions.install(edit, |_| ()).inspect_err(|e| shared.poison_if_unknown(e))?;
    }
    let mut edit = VersionEdit::new();
    for family in shared.versions.state().families.values() {
        edit_obsolete_vlogs(family, &mut edit);
    }
    if edit.is_empty() {
        return Ok(());
    }
    shared.versions.install(edit, |_| ()).inspect_err(|e| shared.poison_if_unknown(e))
}

fn edit_obsolete_vlogs(family: &crate::version::FamilyState, edit: &mut VersionEdit) {
    for vlog in family.obsolete_vlogs() {
        edit.push(Change::RemoveVlog { family: family.id, vlog });
    }
}

/// A segment whose commits are in tables goes; one that was given up is kept for a person to look at.
fn retire(shared: &Shared, id: WalId, lost: bool) {
    let name = files::wal(id);
    let result = if lost { shared.dir.rename(&name, &format!("{name}.lost")) } else { shared.dir.unlink(&name) };
    if let Err(error) = result {
        tracing::warn!(%name, %error, "an old log segment could not be removed; it is ignored");
    }
}

/// Segment files that waited for reuse in an earlier session.
fn remove_free(shared: &Shared) {
    let names = shared.dir.list().unwrap_or_default();
    for name in names.iter().filter(|n| n.ends_with(".wal.free")) {
        if let Err(error) = shared.dir.unlink(name) {
            tracing::warn!(%name, %error, "an unused log segment could not be removed; it is ignored");
        }
    }
}
