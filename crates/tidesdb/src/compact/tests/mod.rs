//! Flush and merge with a [`MaintenanceCtx`] alone, over a simulated disk: no `Db`, no threads, no catalog.

mod parts;
mod values;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::ManualClock;
use tidesdb_io::sim::{self, Fault, OpKind, OpSet, SimDisk};
use tidesdb_memtable::Version;

use super::policy::{Cause, PlanKind};
use super::run::{begin, carry_out};
use super::{CompactionPlan, everything, record};
use crate::context::WriteCtx;
use crate::family::{FamilyCore, Metric};
use crate::maintenance::MaintenanceCtx;
use crate::memory::{Memory, Use};
use crate::options::{DbOptions, FamilyOptions};
use crate::pacing::Pacing;
use crate::sst::{Table, TableContext};
use crate::types::{Kind, SeqNo, TableId, VlogId, WalId};
use crate::version::{Change, Context, VersionEdit, VersionSet};
use crate::vlog::VlogSet;
use crate::wal::layout::{RecordKind, blank_record};
use crate::wal::{Log, LogConfig, Purpose};
use crate::{Error, files, flush, read};

const SEGMENT: u64 = 1 << 20;

/// Maintenance of a database with one family.
struct Rig {
    disk: Arc<SimDisk>,
    clock: Arc<ManualClock>,
    ctx: MaintenanceCtx,
    family: Arc<FamilyCore>,
}

impl Rig {
    fn new() -> Self {
        Self::with(FamilyOptions::default())
    }

    fn with(family: FamilyOptions) -> Self {
        Self::divided(family, 1)
    }

    /// Merges are divided into up to `parts`.
    fn divided(family: FamilyOptions, parts: usize) -> Self {
        let (env, disk, clock) = sim::env(1);
        let dir = env.disk.open_dir(Path::new("/db"), true).unwrap();
        let tables = Arc::new(TableContext::new(&dir, &Memory::new(0), 1 << 20));
        let opening = Arc::clone(&tables);
        let context = Context {
            dir: Arc::clone(&dir),
            entropy: Arc::clone(&env.entropy),
            threads: Arc::clone(&env.threads),
            comparators: Vec::new(),
            operators: Vec::new(),
            lacks_operators: false,
            leaves_out: false,
            open_table: Arc::new(move |family, meta| {
                Table::open(&opening, &family.options.comparator, meta.clone())
            }),
        };
        let versions = VersionSet::create(context, SEGMENT).unwrap();
        let config = LogConfig {
            segment_bytes: SEGMENT,
            db_uuid: versions.identity().uuid,
            boot: dir.boot(),
            mapped: false,
            reserve_bytes: 0..=0,
            free_min: 0,
        };
        let health = Arc::default();
        let log = Log::new(&env, &dir, config, &health, WalId(1));
        log.begin(Vec::new()).unwrap();
        let mut options = DbOptions { background_threads: Some(0), ..DbOptions::default() };
        options.forced.merge_parts = Some(parts);
        let write = Arc::new(WriteCtx::new(&env, options, &health, log));
        let ctx = MaintenanceCtx::new(&write, &dir, versions, tables);
        let family = create_family(&ctx, "only", family);
        Self { disk, clock, ctx, family }
    }

    /// Commits one entry: log, memtable, visible.
    fn commit(&self, key: &[u8], kind: Kind, value: &[u8]) -> SeqNo {
        self.commit_to(&self.family, key, kind, value)
    }

    fn commit_to(&self, family: &Arc<FamilyCore>, key: &[u8], kind: Kind, value: &[u8]) -> SeqNo {
        let log = &self.ctx.write.log;
        let mut record = blank_record(0);
        record.extend_from_slice(key);
        record.extend_from_slice(value);
        let commit = log.append(&mut record, 1, false, Purpose::Store).unwrap();
        family.make_slot(commit.seq, 1, || log.sequencer().visible_end());
        let view = family.owned_view();
        let version = Version { seq: commit.seq, kind: kind as u8, expiry: 0 };
        view.slot_for(commit.seq).unwrap().map.insert(key, version, value).unwrap();
        log.sequencer().done(&commit);
        commit.seq
    }

    fn put(&self, key: &[u8], value: &[u8]) -> SeqNo {
        self.commit(key, Kind::Put, value)
    }

    /// Rotates and flushes the active memtable.
    fn flush(&self) -> crate::Result<bool> {
        self.ctx.write.rotate(&self.family);
        flush::run(&self.ctx, &self.family)
    }

    fn get(&self, key: &[u8], seq: Option<SeqNo>) -> Option<Vec<u8>> {
        read::get(&self.ctx.reads, &self.family, key, seq).unwrap().map(|value| value.to_vec())
    }

    /// Level, entries and tombstones of each table.
    fn tables(&self) -> Vec<(u8, u64, u64)> {
        let version = Arc::clone(&self.family.owned_view().version);
        let of_level = |level: u8| (1..=version.level_len(level)).map(move |_| level);
        let levels = (1..=2).flat_map(of_level);
        levels.zip(version.tables()).map(|(l, t)| (l, t.meta().entries, t.meta().tombstones)).collect()
    }
}

fn create_family(ctx: &MaintenanceCtx, name: &str, options: FamilyOptions) -> Arc<FamilyCore> {
    let id = ctx.versions.new_family_id().unwrap();
    let mut edit = VersionEdit::new();
    edit.push(Change::CreateFamily { family: id, name: name.into(), options: options.clone() });
    ctx.versions.install(&edit, |_| {}).unwrap();
    let entropy = Arc::clone(&ctx.write.env.entropy);
    let vlog = VlogSet::new(Arc::clone(&ctx.dir), entropy, id, 1 << 20, || Ok(VlogId(1)));
    let version = ctx.versions.version(id).unwrap();
    let family =
        Arc::new(FamilyCore::new(id, name, options, vlog, version, (&ctx.write.memory, &ctx.write.index)));
    ctx.write.families.write().insert(Arc::clone(&family));
    family
}

#[test]
fn a_flush_turns_the_memtable_into_a_table_and_releases_the_log() {
    let rig = Rig::new();
    let first = rig.put(b"a", b"1");
    rig.put(b"b", b"2");
    assert_eq!(rig.ctx.write.log_needed_from(), first);

    assert!(rig.flush().unwrap());

    assert_eq!(rig.tables(), [(1, 2, 0)]);
    assert_eq!(rig.family.owned_view().memtables().count(), 0);
    assert_eq!((rig.get(b"a", None), rig.get(b"b", None)), (Some(b"1".to_vec()), Some(b"2".to_vec())));
    assert_eq!(rig.ctx.write.log_needed_from(), rig.ctx.write.log.sequencer().visible_end());
    assert_eq!(rig.family.total(Metric::Flushes), 1);
    assert!(!rig.flush().unwrap(), "nothing is left to flush");
}

/// Each memtable became a table with syncs of its own.
#[test]
fn neighbouring_memtables_become_one_table() {
    let rig = Rig::new();
    let write = &rig.ctx.write;
    let snapshot = rig.put(b"a", b"old");
    let kept = rig.ctx.reads.snapshots.register(0, || snapshot);
    for n in 0..20u8 {
        rig.put(b"a", &[n]);
        rig.put(&[b'b', n], &[n]);
        rig.commit(&[b'b', n / 2], Kind::Delete, b"");
        write.rotate(&rig.family);
    }
    let all = |seq| (0..20).map(|n| rig.get(&[b'b', n], seq)).chain([rig.get(b"a", seq)]).collect::<Vec<_>>();
    let before = [None, Some(snapshot)].map(all);
    let (installs, syncs) = (rig.ctx.versions.installs(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&syncs);
    rig.disk.observe(OpKind::SyncData, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(rig.family.owned_view().immutables.len(), 20);

    assert!(rig.flush().unwrap());

    rig.disk.stop_observing();

    assert_eq!((rig.family.owned_view().memtables().count(), rig.tables().len()), (0, 1));
    assert_eq!(rig.ctx.versions.installs() - installs, 1);
    assert!(syncs.load(Ordering::Relaxed) <= 4, "{syncs:?} syncs");
    assert_eq!([None, Some(snapshot)].map(all), before);
    assert_eq!((write.pacing.unflushed_bytes(), rig.family.total(Metric::Flushes)), (0, 1));
    drop(kept);
}

/// Neighbours of more than a flush takes together stay apart: a memtable of a usual size becomes a table of its own.
#[test]
fn large_memtables_are_flushed_one_by_one() {
    let rig = Rig::new();
    for n in 0..3u8 {
        for i in 0..10 {
            rig.put(&[n, i], &vec![n; 900 << 10]);
        }
        rig.ctx.write.rotate(&rig.family);
    }
    assert!(rig.flush().unwrap());
    assert_eq!(rig.family.owned_view().immutables.len(), 2, "two of 9 MiB would be too much");
}

/// Thousands of families with a row each took seconds to flush: an edit of the manifest and a sync of the directory for each.
#[test]
fn small_memtables_of_many_families_are_installed_together() {
    let rig = Rig::new();
    let others: Vec<_> =
        (0..40).map(|n| create_family(&rig.ctx, &format!("f{n}"), FamilyOptions::default())).collect();
    for (n, family) in others.iter().enumerate() {
        rig.commit_to(family, b"k", Kind::Put, &[n as u8]);
    }
    rig.put(b"k", b"v");
    rig.ctx.write.rotate_used(&others);
    let installs = rig.ctx.versions.installs();

    assert!(rig.flush().unwrap());

    assert_eq!(rig.ctx.versions.installs() - installs, 1);
    for (n, family) in others.iter().enumerate() {
        assert_eq!(family.owned_view().memtables().count(), 0);
        assert_eq!(read::get(&rig.ctx.reads, family, b"k", None).unwrap().unwrap().to_vec(), [n as u8]);
    }
    assert_eq!(rig.ctx.write.log_needed_from(), rig.ctx.write.log.sequencer().visible_end());
}

/// The manifest does not know one of the families any more, so the flush of both fails. Each is then flushed alone.
#[test]
fn a_family_that_cannot_be_flushed_does_not_keep_others_from_it() {
    for is_marked in [true, false] {
        let mut rig = Rig::new();
        let other = create_family(&rig.ctx, "other", FamilyOptions::default());
        let first = std::mem::replace(&mut rig.family, other);
        rig.commit_to(&first, b"k", Kind::Put, b"v");
        rig.ctx.write.rotate(&first);
        rig.put(b"k", b"v");
        let mut edit = VersionEdit::new();
        edit.push(Change::DropFamily { family: first.id });
        rig.ctx.versions.install(&edit, |_| ()).unwrap();
        if is_marked {
            first.set_dropped();
        }
        assert_eq!(rig.flush().is_ok(), is_marked);
        assert_eq!((rig.tables(), rig.family.owned_view().memtables().count()), (vec![(1, 1, 0)], 0));
        assert_eq!(first.owned_view().memtables().count(), usize::from(!is_marked));
    }
}

#[test]
fn a_flush_that_fails_keeps_the_memtable_and_leaves_no_file() {
    let rig = Rig::new();
    rig.put(b"a", b"1");
    let before = rig.ctx.dir.list().unwrap();
    let fault = rig.disk.inject(Fault::errno(sim::errno::EIO).on(OpKind::Write).path_ends(".klog").forever());

    assert!(rig.flush().unwrap_err().io_kind().is_some());

    assert_eq!((rig.disk.struck(fault), rig.tables()), (1, vec![]));
    assert_eq!(rig.ctx.dir.list().unwrap(), before);
    assert_eq!(rig.get(b"a", None), Some(b"1".to_vec()));
    rig.disk.remove_fault(fault);
    assert!(rig.flush().unwrap(), "the next try succeeds");
    assert_eq!(rig.tables(), [(1, 1, 0)]);
}

/// A memtable that holds one large batch counts as one write buffer. Its flush was taken to reduce the debt by all of its bytes, also the debt of
/// other memtables, so no writer was delayed until it ended.
#[test]
fn a_flush_reduces_only_the_debt_of_its_own_memtable() {
    const OTHER: u64 = 1 << 20;
    let rig = Rig::with(FamilyOptions::default().write_buffer_bytes(64 << 10));
    let write = Arc::clone(&rig.ctx.write);
    let batch = rig.family.memtable(1, Use::Memtables);
    for n in 0..20_000u32 {
        let version = Version { seq: 0, kind: Kind::Put as u8, expiry: 0 };
        batch.insert(format!("{n:05}").as_bytes(), version, &[7; 100]).unwrap();
    }
    let mut record = blank_record(0);
    let staged = vec![(Arc::clone(&rig.family), batch)];
    let place = write.reserve_staged(&mut record, Purpose::Store, staged).unwrap();
    write.log.write_at(&place, RecordKind::Commit, 20_000, &mut record, false).unwrap();
    write.log.sequencer().done(&place);
    write.pacing.add_flush_debt(OTHER); // a memtable of another family
    let least = Arc::new(AtomicU64::new(u64::MAX));
    let (seen, ctx) = (Arc::clone(&least), Arc::clone(&write));
    rig.disk.observe(OpSet::CHANGES, move |_, _| {
        seen.fetch_min(ctx.pacing.unflushed_bytes(), Ordering::Relaxed);
    });

    while flush::run(&rig.ctx, &rig.family).unwrap() {}

    rig.disk.stop_observing();
    assert!(rig.family.owned_view().version.tables().all(|table| table.meta().entries == 20_000));
    assert!(least.load(Ordering::Relaxed) >= OTHER, "{} bytes are owed", least.load(Ordering::Relaxed));
    assert_eq!(write.pacing.unflushed_bytes(), OTHER);
}

#[test]
fn a_merge_keeps_the_newest_versions_and_drops_tombstones_at_the_bottom() {
    let rig = Rig::new();
    rig.put(b"a", b"old");
    rig.put(b"b", b"gone");
    rig.flush().unwrap();
    rig.put(b"a", b"new");
    rig.commit(b"b", Kind::Delete, b"");
    rig.flush().unwrap();
    assert_eq!(rig.tables(), [(1, 2, 1), (1, 2, 0)]);

    everything(&rig.ctx, &rig.family).unwrap();

    assert_eq!(rig.tables(), [(2, 1, 0)]);
    assert_eq!((rig.get(b"a", None), rig.get(b"b", None)), (Some(b"new".to_vec()), None));
    assert_eq!(rig.family.total(Metric::Dropped), 3);
}

#[test]
fn a_merge_keeps_what_a_snapshot_reads() {
    let rig = Rig::new();
    rig.put(b"a", b"old");
    rig.flush().unwrap();
    let snapshot = rig.ctx.reads.register_snapshot();
    rig.commit(b"a", Kind::Delete, b"");
    rig.flush().unwrap();

    everything(&rig.ctx, &rig.family).unwrap();

    assert_eq!(rig.tables(), [(2, 2, 1)]);
    assert_eq!(rig.get(b"a", Some(snapshot.seq())), Some(b"old".to_vec()));
    assert_eq!(rig.get(b"a", None), None);
}

/// Plans merges one after the other without carrying any out, then carries them out, the last first: so each is planned, and
/// installed, while others are under way. Returns how many were begun.
fn nested(rig: &Rig, at: usize) -> usize {
    let Some((begun, _claimed)) = begin(&rig.ctx, &rig.family) else { return at };
    let inner = nested(rig, at + 1);
    carry_out(&rig.ctx, &rig.family, &begun).unwrap();
    rig.family.owned_view().version.check().unwrap();
    inner
}

#[test]
fn merges_that_overtake_each_other_keep_every_row() {
    let rig = Rig::with(FamilyOptions {
        write_buffer_bytes: 8 << 10,
        table_bytes: 4 << 10,
        l1_tables_trigger: 2,
        level_size_ratio: 2,
        tiered_runs_max: 2,
        ..FamilyOptions::default()
    });
    let mut model = std::collections::BTreeMap::new();
    let mut most = 0;
    for round in 0..400u64 {
        for i in 0..60u64 {
            let n = (round * 60 + i).wrapping_mul(7919) % 6000;
            let (key, value) = (format!("key{n:06}"), format!("{round} {i} {n:0>80}"));
            if i % 7 == 3 {
                rig.commit(key.as_bytes(), Kind::Delete, b"");
                model.remove(&key);
            } else {
                rig.put(key.as_bytes(), value.as_bytes());
                model.insert(key, value);
            }
        }
        rig.flush().unwrap();
        if round % 8 == 7 {
            loop {
                let begun = nested(&rig, 0);
                if begun == 0 {
                    break;
                }
                most = most.max(begun);
            }
        }
    }
    assert!(most >= 3, "{most} merges at a time");
    assert!(rig.family.claims.are_none());
    assert!(rig.family.owned_view().version.depth() >= 4);
    for n in 0..6000 {
        let key = format!("key{n:06}");
        assert_eq!(rig.get(key.as_bytes(), None), model.get(&key).map(|v| v.clone().into_bytes()), "{key}");
    }
}

/// One family with a damaged table in level 1 and disjoint rows beside it, each flushed to a table.
fn damaged() -> (Rig, TableId) {
    let rig = Rig::with(FamilyOptions {
        write_buffer_bytes: 4096,
        l1_tables_trigger: 2,
        table_bytes: 4096,
        ..FamilyOptions::default()
    });
    for key in [b"a", b"b"] {
        rig.put(key, &[1; 1000]);
    }
    rig.flush().unwrap();
    let id = rig.family.owned_view().version.level(1).next().unwrap().id();
    rig.disk.flip_bit(format!("/db/{}", files::table(id)), 20 * 8).unwrap();
    rig.put(b"a", &[2; 1000]);
    rig.flush().unwrap();
    (rig, id)
}

#[test]
fn a_damaged_input_fails_the_merge_and_is_quarantined_and_kept() {
    let (rig, id) = damaged();
    let is_used = || rig.family.owned_view().version.table(id).is_some();
    for _ in 0..2 {
        let e = super::run(&rig.ctx, &rig.family).unwrap_err();
        assert!(matches!(&e, Error::Corrupt { file, .. } if **file == *files::table(id)), "{e}");
        assert!(is_used() && rig.family.claims.has_quarantined());
        assert!(rig.ctx.dir.list().unwrap().contains(&files::table(id)));
        assert!(!super::run(&rig.ctx, &rig.family).unwrap(), "it is left out for a while");
        rig.clock.advance(Duration::from_secs(2));
    }
    // The newer table hides nothing that the damaged one loses: reads of it still report the damage.
    assert_eq!(rig.get(b"a", None), Some(vec![2; 1000]));
    assert!(read::get(&rig.ctx.reads, &rig.family, b"b", None).unwrap_err().is_corruption());
}

#[test]
fn other_tables_are_merged_beside_a_damaged_one() {
    let (rig, id) = damaged();
    assert!(super::run(&rig.ctx, &rig.family).unwrap_err().is_corruption());
    for round in 0..40u8 {
        for key in [b"x", b"y", b"z"] {
            rig.put(key, &[round; 1500]);
        }
        rig.flush().unwrap();
        while super::run(&rig.ctx, &rig.family).unwrap() {}
        assert!(rig.family.claims.has_quarantined(), "a merge of other tables ended the quarantine");
    }
    let version = Arc::clone(&rig.family.owned_view().version);
    let flushed = version.level_len(1);
    assert!(version.table(id).is_some() && flushed < 8, "{flushed} tables in level 1");
    assert_eq!(rig.get(b"y", None), Some(vec![39; 1500]));
}

/// A move of level 1 once counted as a merge of no duration, and the rate that paces writers rose beyond any disk.
#[test]
fn the_rate_of_merges_counts_merges_alone() {
    let rig = Rig::with(FamilyOptions {
        write_buffer_bytes: 4096,
        l1_tables_trigger: 1,
        ..FamilyOptions::default()
    });
    let rate = || rig.ctx.write.pacing.merge_rate.get();
    rig.put(b"a", &[1; 1000]);
    rig.flush().unwrap();
    assert!(super::run(&rig.ctx, &rig.family).unwrap());
    assert!(rig.tables()[0].0 > 1 && rig.family.stats().compaction_written == 0, "{:?}", rig.tables());
    let assumed = Pacing::default().merge_rate.get();
    assert_eq!(rate(), assumed);
    rig.put(b"a", &[2; 1000]);
    rig.flush().unwrap();
    assert!(super::run(&rig.ctx, &rig.family).unwrap());
    assert_ne!(rate(), assumed);
}

/// A family below every other trigger that is only read.
#[test]
fn reads_pay_for_the_merge_that_spares_them_runs() {
    let rig = Rig::with(FamilyOptions { l1_tables_trigger: 100, ..FamilyOptions::default() });
    let fill = |round: u8| {
        for n in 0..50 {
            rig.put(&[b'k', n], &[round; 10]);
        }
        rig.flush().unwrap();
    };
    let probes = || {
        let mut tables = 0;
        rig.family.owned_view().version.tables_for(&[b'k', 25, 1], |_| tables += 1);
        tables
    };
    let until_merged = |read: &dyn Fn()| {
        let mut reads = 0;
        while !super::run(&rig.ctx, &rig.family).unwrap() {
            (0..100).for_each(|_| read());
            reads += 100;
            assert!(reads < 100_000, "no merge is due after {reads} reads");
        }
        reads
    };
    (0..5).for_each(fill);
    assert!(!super::run(&rig.ctx, &rig.family).unwrap(), "writes alone make no merge due");
    assert_eq!(probes(), 5);
    let gets = until_merged(&|| assert_eq!(rig.get(&[b'k', 25, 1], None), None));
    assert_eq!((probes(), rig.family.stats().merges_probes), (1, 1));
    assert!(gets > 10_000, "a merge after {gets} gets costs more than they did");

    fill(5);
    fill(6);
    assert_eq!(probes(), 3);
    let mut cursor =
        read::Cursor::new(&rig.ctx.reads, &rig.family, None, crate::options::ReadOptions::default()).unwrap();
    let cursor = std::cell::RefCell::new(&mut cursor);
    let seeks = until_merged(&|| cursor.borrow_mut().seek([b'k', 25]).unwrap());
    assert_eq!((probes(), rig.family.stats().merges_probes), (1, 2));
    assert!(seeks * 3 < gets, "{seeks} seeks, {gets} gets: a seek in a run costs more than a filter");

    for _ in 0..20_000 {
        assert_eq!(rig.get(&[b'k', 25], None), Some(vec![6; 10]));
    }
    assert!(!super::run(&rig.ctx, &rig.family).unwrap(), "a single run is never merged");
}

/// Regression: the bytes of tables that moved down counted as taken away from the levels between, where they still were.
#[test]
fn a_move_reduces_the_debt_by_tables_of_level_1_and_by_no_bytes() {
    let rig = Rig::new();
    rig.put(b"a", &[1; 1000]);
    rig.flush().unwrap();
    let version = Arc::clone(&rig.family.owned_view().version);
    let table = version.tables().next().unwrap();
    let bytes = table.meta().file_bytes;
    let reduction = |kind| {
        let reduction = record::reduction(&CompactionPlan {
            kind,
            cause: Cause::Manual,
            inputs: vec![(1, Arc::clone(table)), (2, Arc::clone(table))],
            target: 3,
            bottom: false,
            cuts: Vec::new(),
            guards: Vec::new(),
            table_bytes: u64::MAX,
        });
        (reduction.level_1, reduction.sunk, reduction.drained)
    };
    assert_eq!(reduction(PlanKind::Move), (1, 0, 0));
    assert_eq!(reduction(PlanKind::Tiered), (1, 2 * bytes, 0));
    assert_eq!(reduction(PlanKind::Partitioned), (1, 0, bytes));
}

/// What a merge had read reduced the debt while it ran, also if the merges before had failed in the end. Each of them let writers add as many
/// tables to level 1 as it had read, without limit.
#[test]
fn what_a_merge_reads_does_not_count_as_paid_while_merges_fail() {
    let rig = Rig::new();
    let permille_read = |family: &FamilyCore| {
        let tables = family.owned_view().version.level_len(1) as f64;
        ((tables - family.merge_debt.unread()) * 1000.0) as u64
    };
    let fill = || {
        for n in 0..4u32 {
            for i in 0..3000u32 {
                rig.put(format!("{i:05}").as_bytes(), &[n as u8; 4]);
            }
            assert!(rig.flush().unwrap());
        }
    };
    let merge = |fails: bool| {
        let most = Arc::new(AtomicU64::new(0));
        let (seen, family) = (Arc::clone(&most), Arc::clone(&rig.family));
        rig.disk.observe(OpSet::CHANGES, move |_, _| {
            seen.fetch_max(permille_read(&family), Ordering::Relaxed);
        });
        let sync = OpKind::SyncData | OpKind::SyncAll;
        let fault = fails.then(|| rig.disk.inject(Fault::errno(sim::errno::EIO).on(sync).path_ends(".klog")));
        assert_eq!(super::run(&rig.ctx, &rig.family).is_err(), fails);
        rig.disk.stop_observing();
        fault.into_iter().for_each(|fault| rig.disk.remove_fault(fault));
        assert_eq!(permille_read(&rig.family), 0, "it is taken back");
        most.load(Ordering::Relaxed)
    };
    fill();
    assert!(merge(true) > 0);
    assert_eq!((merge(true), merge(false)), (0, 0));
    fill();
    assert!(merge(false) > 0);
}
