//! Disk errors during reads and writes of tables.

use tidesdb_io::sim::{Fault, OpKind, errno};

use super::*;
use crate::sst::TableCursor;
use crate::{Error, files};

fn entries() -> Vec<Entry> {
    (0..2000u64).map(|i| Entry::put(format!("key{i:06}"), i, format!("value {i} ").repeat(8))).collect()
}

#[test]
fn read_errors_are_reported_and_nothing_is_skipped() {
    let order = Comparator::bytewise();
    let entries = entries();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let rig = Rig::new();
        let meta = rig.write(1, &entries, options(compression), &order);
        let table = Table::open(&rig.context(0), &order, Arc::clone(&meta)).unwrap();
        for skip in 0..40 {
            rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).skip(skip).forever());
            let (seen, end) = scan(&table);
            assert_eq!(seen, entries[..seen.len()]);
            match end {
                Err(Error::Io { op: "read", file, .. }) => assert_eq!(&*file, files::table(TableId(1))),
                end => assert!(end.is_ok() && seen.len() == entries.len(), "{end:?}"),
            }
            rig.disk.clear_faults();
            rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).forever());
            let lookup = get(&table, &entries[1000].key, u64::MAX);
            assert!(matches!(lookup, Err(Error::Io { .. })), "{lookup:?}");
            rig.disk.clear_faults();
            let mut cursor = TableCursor::new(Arc::clone(&table));
            cursor.seek_to_first().unwrap();
            rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).times(1));
            assert!(cursor.seek(&entries[1500].key).is_err() && !cursor.valid());
            rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).times(1));
            assert!(cursor.seek_for_prev(&entries[700].key).is_err() && !cursor.valid());
            rig.disk.clear_faults();
            cursor.seek(&entries[1500].key).unwrap();
            assert_eq!(at(&mut cursor).unwrap(), entries[1500], "the cursor must be usable after an error");
        }
    }
}

#[test]
fn short_reads_are_completed() {
    let order = Comparator::bytewise();
    let rig = Rig::new();
    let meta = rig.write(1, &entries(), options(Compression::Lz4), &order);
    rig.disk.inject(Fault::short().on(OpKind::Read).forever());
    let table = rig.open(&meta, &order, false).unwrap();
    assert_eq!(scan(&table).0, entries());
}

#[test]
fn write_and_sync_errors_reach_the_caller() {
    let order = Comparator::bytewise();
    for kind in [OpKind::Write, OpKind::SyncData] {
        let rig = Rig::new();
        rig.disk.inject(Fault::errno(errno::ENOSPC).on(kind).forever());
        let mut w =
            TableWriter::create(&rig.dir, TableId(1), salt(1), options(Compression::Lz4), order.clone())
                .unwrap();
        for e in entries() {
            w.add(e.borrow()).unwrap();
        }
        assert!(matches!(w.finish(), Err(Error::Io { .. })));
        if kind == OpKind::Write {
            assert_eq!(
                rig.dir.list().unwrap(),
                Vec::<String>::new(),
                "the file of a failed table must be removed"
            );
        }
    }
}

#[test]
fn a_missing_file_is_an_io_error() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries(), options(Compression::Lz4), &order);
    rig.dir.unlink(&files::table(TableId(1))).unwrap();
    assert!(matches!(rig.open(&meta, &order, true), Err(Error::Io { op: "open", .. })));
}

/// A merge reads many blocks at once. An unreadable block must not fail the blocks before it.
#[test]
fn a_failed_read_ahead_is_retried_for_a_single_block() {
    let (rig, order) = (Rig::new(), Comparator::bytewise());
    let meta = rig.write(1, &entries(), options(Compression::None), &order);
    // The index is in memory, so the first read is one of blocks.
    let table = Table::open(&rig.context(1 << 20), &order, meta).unwrap();
    let mut cursor = TableCursor::bypassing_cache(table);
    let fault = rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).times(1));
    cursor.seek_to_first().unwrap();
    assert_eq!(rig.disk.struck(fault), 1);
    for e in entries() {
        assert_eq!(at(&mut cursor).unwrap(), e);
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}
