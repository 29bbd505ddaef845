//! Merges that are divided into parts, carried out by one thread or by several.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::compact::parts::PartedMerge;
use crate::compact::record;
use crate::compact::split::divide;
use crate::jobs::Job;
use crate::ranges::RangeTombstone;
use crate::rewrite::Rewritten;
use crate::types::{EntryCursor, FamilyId};

/// Key, number, kind, value.
type Entry = (Vec<u8>, SeqNo, Kind, Vec<u8>);

fn small() -> FamilyOptions {
    FamilyOptions { table_bytes: 8 << 10, l1_tables_trigger: 2, ..FamilyOptions::default() }
}

/// Four flushed tables that overlap, with deletes, a snapshot in the middle and a range tombstone.
fn filled(parts: usize) -> (Rig, crate::mvcc::SnapshotPin) {
    filled_with(small(), parts)
}

fn filled_with(family: FamilyOptions, parts: usize) -> (Rig, crate::mvcc::SnapshotPin) {
    let rig = Rig::divided(family, parts);
    let mut snapshot = None;
    for round in 0..4u64 {
        for i in 0..1500u64 {
            let n = (round * 7 + i * 7919) % 3000;
            let key = format!("key{n:05}");
            match i % 9 {
                0 => rig.commit(key.as_bytes(), Kind::Delete, b""),
                _ => rig.put(key.as_bytes(), format!("{round}-{i:0>60}").as_bytes()),
            };
        }
        rig.flush().unwrap();
        if round == 1 {
            snapshot = Some(rig.ctx.reads.register_snapshot());
        }
    }
    (rig, snapshot.unwrap())
}

/// Stores a range tombstone as a flush does.
fn delete_range(rig: &Rig, from: &str, to: &str) {
    let seq = rig.commit(b"mark", Kind::Put, b"");
    let range = RangeTombstone::new(seq, Some(from.as_bytes().into()), Some(to.as_bytes().into()));
    let mut edit = VersionEdit::new();
    edit.push(Change::AddRange { family: rig.family.id, range: Arc::new(range) });
    rig.ctx.install(&edit, &[&rig.family]).unwrap();
}

/// All entries of all tables.
fn entries(rig: &Rig) -> Vec<Entry> {
    let mut all = Vec::new();
    for slot in rig.family.owned_view().version.tables() {
        let mut cursor = crate::sst::TableCursor::new(Arc::clone(slot.table()));
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            let value = cursor.value().unwrap().to_vec();
            all.push((cursor.key().to_vec(), cursor.seq(), cursor.kind(), value));
            cursor.next().unwrap();
        }
    }
    all.sort_by(|a: &Entry, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
    all
}

#[track_caller]
fn assert_same(a: &[Entry], b: &[Entry]) {
    let different = a.iter().zip(b).position(|(a, b)| a != b);
    if let Some(at) = different {
        panic!("entry {at} of {} and {}: {:?} and {:?}", a.len(), b.len(), a[at], b[at]);
    }
    assert_eq!(a.len(), b.len());
}

/// In how many parts the merge that is due would be carried out.
fn parts_due(rig: &Rig, parts: usize) -> usize {
    let (begun, _claimed) = begin(&rig.ctx, &rig.family).unwrap();
    let options = &rig.family.options;
    divide(&options.comparator, &begun.plan, parts, options.table_bytes()).0.len() + 1
}

/// Other threads take parts of the merges of `rig` while `work` runs. Returns how many parts they took.
fn helped<R>(rig: &Rig, threads: usize, work: impl FnOnce() -> R) -> (R, u64) {
    let (over, taken, ready) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(threads + 1));
    let help = || {
        ready.wait();
        while !over.load(Ordering::SeqCst) {
            if rig.ctx.parted.help(&rig.ctx, rig.family.id) {
                taken.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::yield_now();
        }
    };
    let result = std::thread::scope(|s| {
        (0..threads).for_each(|_| drop(s.spawn(help)));
        ready.wait();
        let result = work();
        over.store(true, Ordering::SeqCst);
        result
    });
    (result, taken.into_inner())
}

#[test]
fn a_divided_merge_writes_the_same_entries_as_a_whole_one() {
    let outcome = |parts: usize, threads: usize| {
        let (rig, _snapshot) = filled(parts);
        delete_range(&rig, "key01000", "key01800");
        let divided = parts_due(&rig, parts);
        assert_eq!(divided, parts, "the merge is divided");
        let mut helps = 0;
        let mut merge = |rig: &Rig| {
            let (result, taken) = helped(rig, threads, || everything(&rig.ctx, &rig.family));
            result.unwrap();
            helps += taken;
        };
        merge(&rig);
        let with_snapshot = entries(&rig);
        rig.family.owned_view().version.check().unwrap();
        drop(_snapshot);
        merge(&rig);
        rig.family.owned_view().version.check().unwrap();
        assert_eq!(rig.family.owned_view().version.ranges().iter().count(), 0, "nothing is left to hide");
        // The number of a row depends on which merges came before the range tombstone was dropped.
        let rows = entries(&rig).into_iter().map(|(key, _, kind, value)| (key, 0, kind, value)).collect();
        let rows: Vec<Entry> = rows;
        ((with_snapshot, rows, rig.family.total(Metric::Dropped)), helps)
    };
    let (whole, _) = outcome(1, 0);
    assert!(whole.0.len() > whole.1.len() && !whole.1.is_empty());
    for parts in [2, 3, 8] {
        let (divided, _) = outcome(parts, 0);
        assert_same(&divided.0, &whole.0);
        assert_same(&divided.1, &whole.1);
        assert_eq!(divided.2, whole.2, "dropped in {parts} parts");
    }
    let mut helps = 0;
    // A merge takes some milliseconds: the other threads may miss it.
    for round in 0..300 {
        if round >= 10 && helps > 0 {
            break;
        }
        let (divided, taken) = outcome(8, 2);
        assert!(divided == whole, "8 parts, three threads");
        helps += taken;
    }
    assert!(helps > 0, "no thread helped");
}

/// Another family has a merge to do all the time, so each part ends once half a table is written.
#[test]
fn a_helper_that_ends_early_leaves_the_rest_to_others() {
    let merged = |waits: bool| {
        // Half a table is a few entries, so that one is there whenever a helper looks.
        let (rig, _snapshot) = filled_with(FamilyOptions { table_bytes: 512, ..small() }, 3);
        if waits {
            rig.ctx.write.jobs.push(Job::Compact(FamilyId(99)));
        }
        let (begun, _claimed) = begin(&rig.ctx, &rig.family).unwrap();
        let job = record::begin(&rig.ctx, &rig.family, &begun.plan);
        let victims = Arc::default();
        let merge = PartedMerge::begin(&rig.ctx, &rig.family, &begun, &job.progress, &victims).unwrap();
        while merge.work(&rig.ctx, true) {}
        merge.finish(&rig.ctx).unwrap().0
    };
    let (whole, divided) = (merged(false), merged(true));
    assert_eq!(whole.parts, 3);
    assert!(divided.parts > 3, "{} parts", divided.parts);
    let sums = |out: &Rewritten| {
        let entries: u64 = out.tables.iter().map(|table| table.entries).sum();
        (out.entries_in, out.dropped, entries)
    };
    assert_eq!(sums(&divided), sums(&whole));
    assert!(divided.tables.is_sorted_by(|a, b| a.largest < b.smallest), "tables in order");
}

/// Every write of a table fails once: the merge fails, leaves nothing behind, and the next one succeeds.
#[test]
fn a_part_that_fails_fails_the_merge_and_leaves_no_file() {
    for (errno, threads) in
        [(sim::errno::EIO, 0), (sim::errno::ENOSPC, 0), (sim::errno::EIO, 2), (sim::errno::ENOSPC, 2)]
    {
        let (rig, _snapshot) = filled(4);
        let (before, tables) = (rig.ctx.dir.list().unwrap(), rig.tables());
        let dropped = rig.family.total(Metric::Dropped);
        let mut failures = 0;
        for n in 0.. {
            let fault = Fault::errno(errno).on(OpKind::Write).path_ends(".klog").skip(n * 3).times(1);
            let fault = rig.disk.inject(fault);
            let (result, _) = helped(&rig, threads, || super::super::run(&rig.ctx, &rig.family));
            rig.disk.remove_fault(fault);
            let Err(e) = result else { break };
            failures += 1;
            assert_eq!(e.is_full(), errno == sim::errno::ENOSPC, "{e}");
            assert_eq!((rig.ctx.dir.list().unwrap(), rig.tables()), (before.clone(), tables.clone()), "{e}");
            assert!(rig.family.claims.are_none() && rig.family.total(Metric::Dropped) == dropped);
            rig.ctx.write.log.wait_for_space_reservations();
        }
        assert!(failures > 4, "{failures} failures with error {errno}");
        assert!(rig.tables()[0].0 > 1);
    }
}

#[test]
fn damage_in_one_part_is_named_and_quarantined() {
    for at in [40, 50 << 10, 90 << 10] {
        for threads in [0, 2] {
            let (rig, _snapshot) = filled(4);
            let before = rig.ctx.dir.list().unwrap();
            let id = rig.family.owned_view().version.level(1).nth(2).unwrap().id();
            let name = files::table(id);
            let length = rig.disk.read_file(&format!("/db/{name}")).unwrap().len() as u64;
            rig.disk.flip_bit(format!("/db/{name}"), at.min(length / 2) * 8).unwrap();
            let (result, _) = helped(&rig, threads, || super::super::run(&rig.ctx, &rig.family));
            let e = result.unwrap_err();
            assert!(matches!(&e, Error::Corrupt { file, .. } if **file == *name), "{e}");
            assert!(rig.family.claims.has_quarantined());
            assert_eq!(rig.ctx.dir.list().unwrap(), before);
        }
    }
}

/// Merges are stopped when a table is begun, whichever it is: no output stays.
#[test]
fn a_cancelled_merge_stops_in_all_its_parts() {
    for (n, threads) in [(0, 0), (2, 0), (0, 2), (1, 2), (3, 2)] {
        let rig = Rig::divided(FamilyOptions { table_bytes: 64 << 10, ..small() }, 4);
        for round in 0..2 {
            for i in 0..12_000u64 {
                rig.put(
                    format!("key{:06}", i * 7919 % 20_000).as_bytes(),
                    format!("{round}-{i:0>30}").as_bytes(),
                );
            }
            rig.flush().unwrap();
        }
        let (before, write, mut begun) = (rig.ctx.dir.list().unwrap(), Arc::clone(&rig.ctx.write), 0);
        rig.disk.observe(OpKind::Create, move |op, _| {
            if format!("{op:?}").contains(".klog") {
                if begun == n {
                    write.merges.stop();
                }
                begun += 1;
            }
        });
        let (result, _) = helped(&rig, threads, || super::super::run(&rig.ctx, &rig.family));
        rig.disk.stop_observing();
        assert!(matches!(result, Err(Error::Busy { .. })), "{n}: {result:?}");
        assert_eq!(rig.ctx.dir.list().unwrap(), before);
        everything(&rig.ctx, &rig.family).unwrap();
        assert_eq!(rig.tables().iter().map(|(_, entries, _)| entries).sum::<u64>(), 12_000);
    }
}
