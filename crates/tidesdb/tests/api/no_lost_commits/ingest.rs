//! Tables that are built outside of the database and taken by one commit.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidesdb::{
    Db, Error, Family, FamilyOptions, Ingest, Isolation, MergeOperator, SyncMode, TableBuilder, WriteBatch,
    WriteOptions,
};
use tidesdb_io::Descriptors;
use tidesdb_io::sim::Image;

use crate::common::{DB, Sim, contents, fill, joined, noise, small};

/// A builder of tables in a folder beside the database.
pub(super) fn builder(sim: &Sim, family: &Family, stem: &str) -> TableBuilder {
    sim.env.disk.open_dir("/built".as_ref(), true).unwrap();
    family.table_builder(format!("/built/{stem}")).unwrap()
}

/// Tables with the keys `key000000` and so on, and `value`.
pub(super) fn build(
    sim: &Sim,
    family: &Family,
    stem: &str,
    keys: std::ops::Range<u32>,
    value: &[u8],
) -> Vec<PathBuf> {
    let mut rows = builder(sim, family, stem);
    for n in keys {
        rows.put(format!("key{n:06}"), value).unwrap();
    }
    rows.finish().unwrap()
}

fn ways() -> [fn(Ingest) -> Ingest; 3] {
    [|ingest| ingest, Ingest::linking, Ingest::moving]
}

#[test]
fn rows_are_newer_than_all_before_and_older_than_all_after() {
    for way in ways() {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.default_family();
        fill(family, 300, b"flushed");
        db.flush().unwrap();
        fill(family, 200, b"in the memtable");
        let tables = build(&sim, family, "t", 100..400, b"taken");
        let before = db.snapshot();
        let taken = db.ingest(&way(Ingest::new().tables(family, &tables))).unwrap();
        assert_eq!((taken.tables, taken.rows), (1, 300));
        db.put("key000150", "after").unwrap();
        let check = |db: &Db| {
            let get = |key: &str| String::from_utf8(db.get(key).unwrap().unwrap().to_vec()).unwrap();
            assert_eq!(get("key000099"), "in the memtable");
            assert_eq!(get("key000100"), "taken");
            assert_eq!(get("key000150"), "after");
            assert_eq!(get("key000250"), "taken");
            assert_eq!(get("key000399"), "taken");
            assert_eq!(db.range(..).unwrap().count(), 400);
            assert_eq!(db.iter().unwrap().rev().count(), 400);
        };
        check(&db);
        let seen = |key: &str| before.get(family, key).unwrap().map(|value| value.to_vec());
        assert_eq!(seen("key000150").unwrap(), b"in the memtable");
        assert_eq!(seen("key000250").unwrap(), b"flushed");
        assert_eq!(seen("key000350"), None, "an older snapshot sees nothing of it");
        drop(before);
        // A kill now: the log has the commit.
        let killed = sim.killed();
        check(&killed.open());
        db.flush().unwrap();
        check(&db);
        assert!(db.verify().unwrap().is_ok(), "{}", db.verify().unwrap());
        check(&sim.killed().open());
        db.compact().unwrap();
        check(&db);
        db.close().unwrap();
        check(&sim.open());
    }
}

#[test]
fn values_of_any_length_come_with_their_rows() {
    for way in ways() {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.default_family();
        let mut rows = builder(&sim, family, "t");
        let long = noise(3, 3_500_000);
        for n in 0..50u32 {
            rows.put(format!("a{n:03}"), noise(n.into(), 100)).unwrap();
            rows.put(format!("a{n:03}+"), noise(n.into(), 1000 + n as usize)).unwrap();
        }
        rows.put_stream("stream", &long[..]).unwrap();
        let tables = rows.finish().unwrap();
        db.ingest(&way(Ingest::new().tables(family, &tables))).unwrap();
        let check = |db: &Db| {
            for n in 0..50u32 {
                assert_eq!(db.get(format!("a{n:03}")).unwrap().unwrap(), noise(n.into(), 100));
                assert_eq!(db.get(format!("a{n:03}+")).unwrap().unwrap(), noise(n.into(), 1000 + n as usize));
            }
            assert!(db.get("stream").unwrap().unwrap() == long[..]);
            let rows: Vec<_> = db.iter().unwrap().map(Result::unwrap).collect();
            assert_eq!(rows.len(), 101);
            assert!(rows[100].1 == long[..]);
            assert!(db.verify().unwrap().is_ok(), "{}", db.verify().unwrap());
        };
        check(&db);
        check(&sim.killed().open());
        db.flush().unwrap();
        check(&db);
        db.put("a000", "new").unwrap();
        db.delete("a000").unwrap();
        db.put("a000", noise(0, 100)).unwrap();
        db.compact().unwrap();
        check(&db);
        db.checkpoint("/copy").unwrap();
        check(&sim.options_at("/copy").open().unwrap());
        db.close().unwrap();
        check(&sim.open());
    }
}

#[test]
fn deletes_ranges_operands_and_expiries_come_with_their_rows() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).open().unwrap();
    let family = db.default_family();
    for key in ["a", "b", "c", "d", "e", "f"] {
        db.put(key, "old").unwrap();
    }
    let mut rows = builder(&sim, family, "t");
    rows.delete("a").unwrap();
    rows.merge("b", "more").unwrap();
    rows.put("d", "new").unwrap();
    rows.put_with_ttl("e", "short", Duration::from_secs(10)).unwrap();
    rows.delete_range("c".."e").unwrap();
    rows.delete_range("f"..).unwrap();
    let tables = rows.finish().unwrap();
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    let check = |db: &Db, e: Option<&[u8]>| {
        let get = |key: &str| db.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(get("a"), None);
        assert_eq!(get("b").unwrap(), b"old.more");
        assert_eq!(get("c"), None, "deleted by range");
        assert_eq!(get("d").unwrap(), b"new", "a range delete of the builder does not cover its rows");
        assert_eq!(get("e").as_deref(), e);
        assert_eq!(get("f"), None);
        let keys: Vec<_> = db.iter().unwrap().map(|row| row.unwrap().0).collect();
        assert_eq!(keys.len(), 2 + usize::from(e.is_some()));
    };
    check(&db, Some(b"short"));
    let killed = sim.killed();
    check(&killed.options().default_family(joined()).open().unwrap(), Some(b"short"));
    db.flush().unwrap();
    check(&db, Some(b"short"));
    sim.clock.advance(Duration::from_secs(11));
    check(&db, None);
    db.compact().unwrap();
    check(&db, None);
}

#[test]
fn several_families_are_taken_together_and_later_tables_win() {
    let sim = Sim::new();
    let db = sim.open();
    let (a, b) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
    let first = build(&sim, &a, "first", 0..100, b"first");
    let second = build(&sim, &a, "second", 50..150, b"second");
    let other = build(&sim, &b, "other", 0..10, b"other");
    let ingest = Ingest::new().tables(&a, &first).tables(&b, &other).tables(&a, &second);
    assert_eq!(db.ingest(&ingest).unwrap().tables, 3);
    let check = |db: &Db| {
        let (a, b) = (db.default_family(), db.family("b").unwrap());
        assert_eq!(a.get("key000049").unwrap().unwrap(), b"first");
        assert_eq!(a.get("key000050").unwrap().unwrap(), b"second");
        assert_eq!(a.get("key000149").unwrap().unwrap(), b"second");
        assert_eq!((a.iter().unwrap().count(), b.iter().unwrap().count()), (150, 10));
    };
    check(&db);
    check(&sim.killed().open());
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
}

#[test]
fn a_crash_at_any_change_of_the_disk_takes_all_or_nothing() {
    for way in ways() {
        let sim = Sim::new();
        let db = sim.open();
        let (a, b) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
        fill(&a, 20, b"old");
        fill(&b, 20, b"old");
        let of_a = build(&sim, &a, "a", 10..40, &noise(1, 600));
        let of_b = build(&sim, &b, "b", 10..40, b"new");
        let (old_a, old_b) = (contents(&a), contents(&b));
        let options = WriteOptions::default().sync(SyncMode::Full);
        let mut new = (Vec::new(), Vec::new());
        let forks = sim.before_each_change(|| {
            db.ingest(&way(Ingest::new().tables(&a, &of_a).tables(&b, &of_b)).options(options)).unwrap();
            new = (contents(&a), contents(&b));
            db.flush().unwrap();
            db.put("later", "x").unwrap();
        });
        assert!(forks.len() > 10, "{}", forks.len());
        let (mut none, mut all) = (0, 0);
        for (n, fork) in forks.into_iter().enumerate() {
            for image in [Image::SYNCED, Image::EVERYTHING] {
                let lost = Sim::on(fork.crash_image(&image, n as u64));
                let db = lost.open();
                let (mut a, b) = (contents(db.default_family()), contents(&db.family("b").unwrap()));
                a.retain(|(key, _)| key != b"later");
                match a == old_a {
                    true => assert_eq!((none += 1, b == old_b), ((), true), "change {n}"),
                    false => {
                        assert_eq!((all += 1, (a == new.0, b == new.1)), ((), (true, true)), "change {n}")
                    }
                }
                assert!(db.verify().unwrap().is_ok());
                db.close().unwrap();
                let db = lost.open();
                db.close().unwrap();
                let names = lost.disk.file_names(DB).unwrap();
                assert!(!names.iter().any(|name| name.ends_with(".orphan")), "change {n}: {names:?}");
            }
        }
        assert!(none > 0 && all > 0, "{none} {all}");
    }
}

#[test]
fn a_transaction_that_read_or_wrote_the_keys_fails() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 10, b"old");
    let tables = build(&sim, family, "t", 5..6, b"taken");
    let begin = || db.begin(Isolation::Serializable);
    let (mut reads, mut scans, mut other) = (begin(), begin(), begin());
    reads.get(family, "key000005").unwrap();
    scans.range(family, "key000004".."key000007").unwrap().for_each(drop);
    other.get(family, "key000001").unwrap();
    for tx in [&mut reads, &mut scans, &mut other] {
        tx.put(family, "x", "1").unwrap();
    }
    let mut writes = db.begin(Isolation::Snapshot);
    writes.put(family, "key000005", "mine").unwrap();
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    assert!(matches!(reads.commit(), Err(Error::Conflict { .. })));
    assert!(matches!(scans.commit(), Err(Error::Conflict { .. })));
    assert!(matches!(writes.commit(), Err(Error::Conflict { .. })));
    other.commit().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let joins = db.create_family("joins", joined()).unwrap();
    let adds = db.create_family("adds", small().merge_operator(MergeOperator::add())).unwrap();
    let mut rows = joins.table_builder({
        sim.env.disk.open_dir("/built".as_ref(), true).unwrap();
        "/built/operands"
    });
    rows.as_mut().unwrap().merge("k", "operand").unwrap();
    let operands = rows.unwrap().finish().unwrap();
    let before = sim.disk.file_names(DB).unwrap();
    let refused = |family: &Family, paths: &[PathBuf], what: &str| {
        let e = db.ingest(&Ingest::new().tables(family, paths)).unwrap_err();
        assert!(e.to_string().contains(what), "{e}");
        let mut now = sim.disk.file_names(DB).unwrap();
        now.retain(|name| !before.contains(name));
        assert_eq!(now, [""; 0], "{e}");
    };
    refused(family, &operands, "the family has none");
    refused(&adds, &operands, "tidesdb.add");
    refused(family, &["/built/missing.klog".into()], "missing.klog");
    db.put("x", "y").unwrap();
    db.flush().unwrap();
    let own = sim.disk.file_names(DB).unwrap().into_iter().find(|name| name.ends_with(".klog")).unwrap();
    let e = db.ingest(&Ingest::new().tables(family, [format!("{DB}/{own}")])).unwrap_err();
    assert!(e.to_string().contains("a file of a database"), "{e}");
    let other = sim.options_at("/other").open().unwrap();
    let e = other.ingest(&Ingest::new().tables(family, &operands)).unwrap_err();
    assert!(e.to_string().contains("another database"), "{e}");
    db.drop_family("joins").unwrap();
    assert!(matches!(db.ingest(&Ingest::new().tables(&joins, &operands)), Err(Error::NotFound { .. })));
}

#[test]
fn a_damaged_byte_anywhere_is_found_before_anything_is_taken() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let mut rows = builder(&sim, family, "t");
    for n in 0..40u32 {
        rows.put(format!("key{n:02}"), noise(n.into(), 700)).unwrap();
        rows.put(format!("key{n:02}+"), noise(n.into(), 40)).unwrap();
    }
    rows.delete_range("x".."y").unwrap();
    let tables = rows.finish().unwrap();
    for file in [tables[0].clone(), PathBuf::from(format!("{}.vlog", tables[0].display()))] {
        let whole = sim.disk.read_file(&file).unwrap();
        for at in (0..whole.len())
            .step_by(whole.len() / 150 + 1)
            .chain(whole.len().saturating_sub(300)..whole.len())
        {
            sim.disk.corrupt(&file, at as u64, |byte| byte ^ 1).unwrap();
            let taken = db.ingest(&Ingest::new().tables(family, &tables));
            assert!(taken.is_err(), "byte {at} of {}", file.display());
            sim.disk.write_file(&file, &whole).unwrap();
        }
    }
    assert_eq!(contents(family), []);
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    assert_eq!(contents(family).len(), 80);
}

#[test]
fn sorted_rows_of_one_process_are_one_commit() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let rows = |value: u32| {
        (0..5000u32).map(move |n| (n.to_be_bytes(), noise((n ^ value).into(), 30 + n as usize % 600)))
    };
    assert_eq!(family.ingest_sorted(rows(0)).unwrap().rows, 5000);
    assert_eq!(family.ingest_sorted(rows(9)).unwrap().rows, 5000);
    let e = family.ingest_sorted([("b", "1"), ("a", "2")]).unwrap_err();
    assert!(e.to_string().contains("\"a\" does not come after \"b\""), "{e}");
    assert_eq!(family.ingest_sorted([("", ""); 0]).unwrap(), Default::default());
    let check = |db: &Db| {
        for (key, value) in rows(9) {
            assert_eq!(db.get(key).unwrap().unwrap(), value);
        }
        assert_eq!(db.iter().unwrap().count(), 5000);
    };
    check(&db);
    check(&sim.killed().open());
    db.compact().unwrap();
    check(&db);
    assert!(sim.disk.file_names(DB).unwrap().iter().all(|name| !name.starts_with("INGEST")));
}

#[test]
fn a_builder_that_is_dropped_leaves_nothing_and_a_killed_one_is_removed() {
    let sim = Sim::new();
    let db = sim.open();
    let options = FamilyOptions::default().table_bytes(64 << 10);
    sim.env.disk.open_dir("/built".as_ref(), true).unwrap();
    let mut rows = db.create_family("small", options).unwrap().table_builder("/built/t").unwrap();
    for n in 0..3000u32 {
        rows.put(n.to_be_bytes(), noise(n.into(), 100)).unwrap();
    }
    assert!(sim.disk.file_names("/built").unwrap().len() > 2);
    drop(rows);
    assert_eq!(sim.disk.file_names("/built").unwrap(), [""; 0]);
    // A file of somebody else.
    sim.disk.write_file("/built/t-000001.klog.vlog", b"precious").unwrap();
    let mut rows = db.family("small").unwrap().table_builder("/built/t").unwrap();
    rows.put("a", noise(1, 600)).unwrap_err();
    drop(rows);
    assert_eq!(sim.disk.file_names("/built").unwrap(), ["t-000001.klog.vlog"]);
    let mut killed = None;
    let rows = (0..3000u32).map(|n| {
        if n == 2500 {
            killed = Some(sim.killed());
        }
        (n.to_be_bytes(), noise(n.into(), 100))
    });
    db.family("small").unwrap().ingest_sorted(rows).unwrap();
    let killed = killed.unwrap();
    let building = |sim: &Sim| sim.disk.file_names(DB).unwrap().iter().any(|name| name.starts_with("INGEST"));
    assert!(building(&killed));
    let db = killed.open();
    db.put("x", "y").unwrap();
    assert!(!building(&killed));
    assert_eq!(db.family("small").unwrap().iter().unwrap().count(), 0);
}

#[test]
fn batches_and_tables_keep_their_order_over_many_rounds() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let mut model = std::collections::BTreeMap::new();
    for round in 0..30u32 {
        let value = |n: u32| noise((round * 1000 + n).into(), 20 + (n as usize * 37) % 700);
        let mut batch = WriteBatch::new();
        for n in (round % 7..200).step_by(3) {
            batch.put(family, format!("key{n:06}"), value(n)).unwrap();
            model.insert(format!("key{n:06}"), value(n));
        }
        db.write(&mut batch).unwrap();
        let rows: Vec<_> =
            (round % 5..200).step_by(4).map(|n| (format!("key{n:06}"), value(n + 500))).collect();
        family.ingest_sorted(rows.clone()).unwrap();
        model.extend(rows);
        match round % 6 {
            1 => db.flush().unwrap(),
            3 => db.compact().unwrap(),
            _ => {}
        }
        let check = |db: &Db| {
            let rows: Vec<_> = db.iter().unwrap().map(Result::unwrap).collect();
            assert_eq!(rows.len(), model.len());
            for ((key, value), (wanted, expected)) in rows.iter().zip(&model) {
                assert!(key == wanted.as_bytes() && value == expected, "round {round}, {wanted}");
                assert!(db.get(key).unwrap().unwrap() == expected[..]);
            }
        };
        check(&db);
        check(&sim.killed().open());
    }
    let mut builder = TableBuilder::create("nowhere/at/all", &small());
    assert!(matches!(builder.as_mut(), Err(Error::Io { .. } | Error::NotFound { .. })), "{builder:?}");
}

/// Each table that the writer began once reserved space, for which the close waited.
#[test]
fn a_close_does_not_wait_for_a_writer_that_is_left_alone() {
    let sim = Sim::new();
    let db = sim.open();
    let mut writer = db.default_family().sorted_writer().unwrap();
    writer.rows().put("a", "b").unwrap();
    db.close().unwrap();
    writer.rows().put("b", "c").unwrap();
    assert!(matches!(writer.commit(), Err(Error::Closed)));
    let db = sim.open();
    assert_eq!(contents(db.default_family()), []);
    db.put("x", "y").unwrap();
    let names = sim.disk.file_names(DB).unwrap();
    assert!(!names.iter().any(|name| name.starts_with("INGEST")), "{names:?}");
}

#[test]
fn too_many_tables_that_overlap_are_refused() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let tables: Vec<PathBuf> =
        (0..1025).flat_map(|n| build(&sim, family, &format!("t{n}"), 0..3, &noise(n, 10))).collect();
    let e = db.ingest(&Ingest::new().tables(family, &tables)).unwrap_err();
    assert!(e.to_string().contains("1025 tables that overlap as 1025 sorted runs"), "{e}");
    assert_eq!(contents(family), []);
    assert_eq!(db.ingest(&Ingest::new().tables(family, &tables[925..])).unwrap().tables, 100);
    assert_eq!(db.get("key000001").unwrap().unwrap(), noise(1024, 10));
    let own = sim.disk.file_names(DB).unwrap().into_iter().find(|name| name.ends_with(".klog")).unwrap();
    let other = sim.options_at("/other").open().unwrap();
    let e = other.ingest(&Ingest::new().tables(other.default_family(), [format!("{DB}/{own}")]).moving());
    assert!(e.unwrap_err().to_string().contains("a file of a database"), "live tables stay where they are");
}

/// Found by a simulation: builders, and an ingest that reads foreign tables, found no descriptor left, while the database had twenty for files that
/// it only reads.
#[test]
fn files_that_are_only_read_make_room_for_those_that_are_built() {
    let mut sim = Sim::new();
    sim.env.descriptors = Arc::new(Descriptors::new(20));
    let db =
        sim.options().default_family(small().l1_tables_trigger(1000).value_threshold(100)).open().unwrap();
    let family = db.default_family();
    for n in 0..30u32 {
        db.put(format!("key{n:06}"), noise(n.into(), 5000)).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.range(..).unwrap().count(), 30);
    assert!(sim.env.descriptors.open_files() > 15, "the files that were read are open");
    sim.disk.limit_open_files(40);
    let mut builders: Vec<_> = (0..10).map(|n| builder(&sim, family, &format!("t{n}"))).collect();
    for (n, rows) in builders.iter_mut().enumerate() {
        rows.put(format!("key{n:06}"), noise(n as u64, 3000)).unwrap();
    }
    let tables: Vec<_> = builders.into_iter().flat_map(|rows| rows.finish().unwrap()).collect();
    assert_eq!(db.ingest(&Ingest::new().tables(family, &tables)).unwrap().rows, 10);
    assert_eq!(db.range(..).unwrap().count(), 30);
}
