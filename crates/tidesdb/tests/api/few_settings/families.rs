//! Create, drop, rename, clone, list.

use std::sync::Arc;
use std::time::Duration;

use tidesdb::{Comparator, Db, Error, Family, FamilyOptions, Isolation, SyncMode, Transaction, WriteBatch};
use tidesdb_io::Descriptors;
use tidesdb_io::sim::Image;

use crate::common::{Sim, contents, fill, noise, small, value};

fn make(db: &Db, name: &str) -> Family {
    db.create_family(name, small()).unwrap()
}

#[test]
fn families_are_independent() {
    let sim = Sim::new();
    let db = sim.open();
    let (a, b) = (make(&db, "a"), make(&db, "b"));
    a.put(b"k", b"1").unwrap();
    b.put(b"k", b"2").unwrap();
    b.delete(b"k").unwrap();
    assert_eq!(value(&a, b"k").unwrap(), b"1");
    assert!(value(&b, b"k").is_none() && value(db.default_family(), b"k").is_none());
}

#[test]
fn they_are_listed_in_order_and_found() {
    let sim = Sim::new();
    let db = sim.open();
    for name in ["zebra", "ant", "Ant"] {
        make(&db, name);
    }
    assert_eq!(db.families(), ["Ant", "ant", "default", "zebra"]);
    assert_eq!(db.family("ant").unwrap().name(), "ant");
    assert!(matches!(db.family("bee"), Err(Error::NotFound { .. })));
    db.close().unwrap();
    assert_eq!(sim.open().families(), ["Ant", "ant", "default", "zebra"]);
}

#[test]
fn whether_a_family_exists_can_be_asked() {
    let sim = Sim::new();
    let db = sim.options().default_family_name("main").open().unwrap();
    let there = |db: &Db| ["a", "b", "main", tidesdb::DEFAULT_FAMILY].map(|name| db.has_family(name));
    assert_eq!(there(&db), [false, false, true, false]);
    make(&db, "a");
    assert_eq!(there(&db), [true, false, true, false]);
    db.rename_family("a", "b").unwrap();
    assert_eq!(there(&db), [false, true, true, false]);
    db.drop_family("b").unwrap();
    assert_eq!(there(&db), [false, false, true, false]);
    assert_eq!((db.families(), db.default_family().name()), (vec!["main".to_owned()], "main".to_owned()));
}

#[test]
fn a_name_can_be_used_only_once() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    assert!(matches!(db.create_family("a", small()), Err(Error::Exists { .. })));
    assert!(matches!(db.create_family("default", small()), Err(Error::Exists { .. })));
    assert_eq!(db.family_or_create("a", small()).unwrap().id(), a.id());
    make(&db, "b");
    assert!(matches!(db.rename_family("b", "a"), Err(Error::Exists { .. })));
    assert!(matches!(db.clone_family("b", "a"), Err(Error::Exists { .. })));
}

#[test]
fn the_default_family_cannot_be_dropped_or_renamed() {
    let sim = Sim::new();
    let db = sim.open();
    assert!(matches!(db.drop_family("default"), Err(Error::InvalidArgument { .. })));
    assert!(matches!(db.rename_family("default", "x"), Err(Error::InvalidArgument { .. })));
    assert_eq!(db.families(), ["default"]);
}

#[test]
fn operations_on_a_missing_family_fail() {
    let sim = Sim::new();
    let db = sim.open();
    assert!(matches!(db.drop_family("x"), Err(Error::NotFound { .. })));
    assert!(matches!(db.rename_family("x", "y"), Err(Error::NotFound { .. })));
    assert!(matches!(db.clone_family("x", "y"), Err(Error::NotFound { .. })));
}

#[test]
fn names_are_data() {
    let sim = Sim::new();
    let db = sim.open();
    let long = "n".repeat(127);
    for name in ["..", "../x", "/", "a/b", "nul\0", "LOCK", "000001.wal", " ", "\u{1F40B}", "x\ny", &long] {
        make(&db, name).put(b"name", name.as_bytes()).unwrap();
    }
    for bad in ["", &"n".repeat(128)] {
        assert!(matches!(db.create_family(bad, small()), Err(Error::InvalidArgument { .. })));
    }
    db.close().unwrap();
    let db = sim.open();
    for name in db.families().iter().filter(|n| *n != "default") {
        assert_eq!(value(&db.family(name).unwrap(), b"name").unwrap(), name.as_bytes());
    }
    assert_eq!(db.families().len(), 12);
}

#[test]
fn handles_of_a_dropped_family_fail() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    a.put(b"k", b"v").unwrap();
    db.drop_family("a").unwrap();
    let gone = [
        a.get(b"k").map(drop),
        a.contains(b"k").map(drop),
        a.multi_get(&[b"k"]).map(drop),
        a.iter().map(drop),
        a.cursor().map(drop),
        a.put(b"k", b"w").map(drop),
        a.delete(b"k").map(drop),
        db.snapshot().get(&a, b"k").map(drop),
        db.snapshot().iter(&a).map(drop),
    ];
    for (i, call) in gone.into_iter().enumerate() {
        assert!(matches!(call, Err(Error::NotFound { .. })), "call {i}: {call:?}");
    }
    assert_eq!(db.families(), ["default"]);
}

#[test]
fn a_batch_for_a_dropped_family_does_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let (a, b) = (make(&db, "a"), make(&db, "b"));
    let mut batch = WriteBatch::new();
    batch.put(&a, b"k", b"v").unwrap();
    batch.put(&b, b"k", b"v").unwrap();
    db.drop_family("a").unwrap();
    assert!(matches!(db.write(&mut batch), Err(Error::NotFound { .. })));
    assert_eq!(batch.len(), 2, "the batch is kept");
    assert!(value(&b, b"k").is_none());
}

#[test]
fn a_new_family_with_a_dropped_name_is_empty() {
    for flushed in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let old = make(&db, "a");
        fill(&old, 50, &[1; 600]);
        if flushed {
            old.flush().unwrap();
        }
        db.drop_family("a").unwrap();
        let new = make(&db, "a");
        assert!(new.id() != old.id() && contents(&new).is_empty());
        new.put(b"k", b"v").unwrap();
        // Also after a kill, when the log holds commits of both.
        let db = sim.killed().open();
        assert_eq!(contents(&db.family("a").unwrap()), [(b"k".to_vec(), b"v".to_vec())]);
    }
}

#[test]
fn readers_outlive_the_drop() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    fill(&a, 100, &[3; 700]);
    a.flush().unwrap();
    fill(&a, 50, &[4; 10]);
    let mut iter = a.iter().unwrap();
    iter.next().unwrap().unwrap();
    db.drop_family("a").unwrap();
    db.compact().unwrap();
    assert_eq!(iter.map(Result::unwrap).count(), 99);
}

#[test]
fn files_of_a_dropped_family_are_removed_after_its_last_reader() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    fill(&a, 100, &[3; 700]);
    a.flush().unwrap();
    let data = || {
        let is_data = |n: &&String| n.ends_with(".klog") || n.ends_with(".vlog");
        sim.disk.file_names("/db").unwrap().iter().filter(is_data).count()
    };
    assert_eq!(data(), 2);
    let reader = a.iter().unwrap();
    db.drop_family("a").unwrap();
    drop(reader);
    drop(a);
    db.put(b"k", b"v").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let db = sim.open();
    assert_eq!(data(), 1, "only the file of the default family: {:?}", sim.disk.file_names("/db"));
    assert!(db.verify().unwrap().is_ok());
}

/// A commit that had begun before the drop put the family on a list that only a sync empties.
#[test]
fn a_commit_beside_a_drop_keeps_no_files() {
    for seed in 0..40_u64 {
        let sim = Sim::new();
        let mut without_values = small();
        without_values.value_threshold = usize::MAX;
        let options = sim.options().background_threads(2).sync(SyncMode::None);
        let db = options.default_family(without_values).open().unwrap();
        let family = db.create_family("f", small()).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| while family.put("k", noise(1, 1000)).is_ok() {});
            std::thread::sleep(Duration::from_micros(1000 + 37 * seed));
            db.drop_family("f").unwrap();
            writer.join().unwrap();
        });
        drop(family);
        db.put("k", "v").unwrap();
        sim.eventually(&db, |names| !names.iter().any(|name| name.ends_with(".vlog")));
    }
}

#[test]
fn a_handle_of_a_dropped_family_keeps_no_files() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    fill(&a, 100, &[3; 700]);
    a.flush().unwrap();
    let reader = a.cursor().unwrap();
    db.drop_family("a").unwrap();
    let data =
        |names: &[String]| names.iter().filter(|n| n.ends_with(".klog") || n.ends_with(".vlog")).count();
    db.compact().unwrap(); // frees unused memory
    assert_eq!(data(&sim.disk.file_names("/db").unwrap()), 2, "a cursor still reads them");
    drop(reader);
    sim.eventually(&db, |names| data(names) == 0);
    assert!(matches!(a.get(b"k"), Err(Error::NotFound { .. })));
}

/// The list of value logs to be synced kept a dropped family, and its files, alive until the next sync.
#[test]
fn unsynced_value_logs_are_removed_with_their_family() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let logs = || {
        let names = sim.disk.file_names("/db").unwrap();
        names.iter().filter(|name| name.ends_with(".vlog")).count()
    };
    for _ in 0..20 {
        let a = make(&db, "a");
        fill(&a, 10, &[3; 700]);
        assert_eq!(logs(), 1);
        db.drop_family("a").unwrap();
        drop(a);
        // Another test's thread may keep the family alive briefly.
        for _ in 0..3000 {
            if logs() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(logs(), 0);
    }
}

#[test]
fn a_rename_keeps_data_handles_and_number() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    a.put(b"k", b"v").unwrap();
    db.rename_family("a", "b").unwrap();
    assert_eq!((a.name().as_str(), db.family("b").unwrap().id()), ("b", a.id()));
    assert!(matches!(db.family("a"), Err(Error::NotFound { .. })));
    a.put(b"l", b"w").unwrap();
    let db = sim.killed().open();
    assert_eq!(db.families(), ["b", "default"]);
    assert_eq!(contents(&db.family("b").unwrap()).len(), 2);
}

#[test]
fn names_can_be_swapped() {
    let sim = Sim::new();
    let db = sim.open();
    let (a, b) = (make(&db, "a"), make(&db, "b"));
    for (from, to) in [("a", "x"), ("b", "a"), ("x", "b")] {
        db.rename_family(from, to).unwrap();
    }
    assert_eq!((a.name(), b.name()), ("b".into(), "a".into()));
    db.close().unwrap();
    assert_eq!(sim.open().family("b").unwrap().id(), a.id());
}

#[test]
fn a_clone_holds_the_visible_rows_of_its_source() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    fill(&a, 200, &[1; 40]);
    a.flush().unwrap();
    a.put(b"key000003", &[9; 3000]).unwrap();
    a.delete(b"key000005").unwrap();
    let copy = db.clone_family("a", "copy").unwrap();
    let expected = contents(&a);
    assert_eq!(contents(&copy), expected);
    a.put(b"later", b"x").unwrap();
    copy.delete(b"key000000").unwrap();
    assert_eq!((contents(&a).len(), contents(&copy).len()), (200, 198));
    let db = sim.killed().open();
    assert_eq!(contents(&db.family("copy").unwrap()), expected[1..]);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_clone_may_be_empty_or_larger_than_a_memtable() {
    let sim = Sim::new();
    let db = sim.open();
    make(&db, "empty");
    assert!(contents(&db.clone_family("empty", "nothing").unwrap()).is_empty());
    let big = db.create_family("big", FamilyOptions::default().write_buffer_bytes(64 << 10)).unwrap();
    fill(&big, 3000, &[7; 100]);
    let copy = db.clone_family("big", "much").unwrap();
    assert_eq!(contents(&copy), contents(&big));
}

#[test]
fn a_clone_outlives_its_source() {
    let sim = Sim::new();
    let db = sim.open();
    let a = make(&db, "a");
    fill(&a, 20, &[5; 900]);
    let copy = db.clone_family("a", "copy").unwrap();
    db.drop_family("a").unwrap();
    drop(a);
    db.compact().unwrap();
    assert_eq!(contents(&copy).len(), 20);
    db.close().unwrap();
    assert_eq!(contents(&sim.open().family("copy").unwrap()).len(), 20);
}

#[test]
fn options_survive_opens_and_clones() {
    let sim = Sim::new();
    let db = sim.open();
    let options =
        small().comparator(Comparator::reverse_bytewise()).filter_bits_per_key(0).value_threshold(9);
    db.create_family("a", options).unwrap();
    db.clone_family("a", "b").unwrap();
    db.close().unwrap();
    let db = sim.open();
    for name in ["a", "b"] {
        let family = db.family(name).unwrap();
        let o = family.current_options();
        assert_eq!(
            (o.comparator.name(), o.filter_bits_per_key, o.value_threshold),
            ("reverse-bytewise", 0, 9)
        );
    }
}

#[test]
fn a_thousand_families() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..1000 {
        make(&db, &format!("f{i}")).put(b"n", format!("{i}").as_bytes()).unwrap();
    }
    let db = sim.killed().open();
    for i in [0, 1, 499, 998, 999] {
        assert_eq!(value(&db.family(&format!("f{i}")).unwrap(), b"n").unwrap(), format!("{i}").as_bytes());
    }
    assert_eq!(db.families().len(), 1001);
}

#[test]
fn unflushed_values_are_removed_with_their_family() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("large", small()).unwrap();
    fill(&f, 10, &[7; 5000]);
    let vlogs = || sim.disk.file_names("/db").unwrap().iter().filter(|n| n.ends_with(".vlog")).count();
    assert_eq!(vlogs(), 1);
    let reader = f.iter().unwrap();
    db.drop_family("large").unwrap();
    assert_eq!(reader.map(Result::unwrap).count(), 10, "an existing reader continues");
    drop(f);
    sim.eventually(&db, |names| !names.iter().any(|n| n.ends_with(".vlog")));
}

/// The copy is durable at once, so its source must be, too.
#[test]
fn after_a_power_failure_a_clone_holds_no_row_that_its_source_lacks() {
    for (i, image) in Image::STANDARD.iter().enumerate() {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        fill(db.default_family(), 200, b"never synced before");
        db.clone_family("default", "copy").unwrap();
        fill(db.default_family(), 300, b"later");
        let after = sim.power_lost(image, i as u64).open();
        assert_eq!(contents(&after.family("copy").unwrap()).len(), 200);
        assert!(contents(after.default_family()).len() >= 200, "image {i}");
    }
}

/// Families that get the same rows, like a table and its indexes, would fill all their memtables with one commit, again and again.
#[test]
fn families_that_are_written_alike_take_turns_to_flush() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let options = small().write_buffer_bytes(512 << 10);
    let families: Vec<Family> =
        (0..8).map(|n| db.create_family(&format!("f{n}"), options.clone()).unwrap()).collect();
    let mut flushes = vec![0; families.len()];
    let mut most = 0;
    for i in 0..16_000u64 {
        let mut batch = WriteBatch::new();
        families.iter().for_each(|f| batch.put(f, &i.to_be_bytes(), &noise(i, 200)).unwrap());
        db.write(&mut batch).unwrap();
        let now: Vec<u64> = families.iter().map(|f| f.stats().flushes).collect();
        most = most.max(now.iter().zip(&flushes).filter(|(now, before)| now > before).count());
        flushes = now;
    }
    assert!(flushes.iter().all(|n| (5..12).contains(n)), "{flushes:?}");
    assert!(most <= 2, "{most} families were flushed after one commit");
}

/// Creates a family for `table` and names it in the catalogue, within `tx`: see docs/design/0036.
fn create_table(db: &Db, tx: &mut Transaction, table: &str, number: u32) -> tidesdb::Result<Family> {
    let family = db.create_family(&format!("table-{number}"), small())?;
    tx.put(&db.family("catalogue")?, table, family.name())?;
    Ok(family)
}

/// Drops the families that the catalogue does not name, and returns the tables with their families.
fn sweep(db: &Db) -> Vec<(String, Family)> {
    let text = |bytes: tidesdb::Slice| String::from_utf8(bytes.into_vec()).unwrap();
    let catalogue = db.family("catalogue").unwrap();
    let rows = catalogue.iter().unwrap().map(|row| row.map(|(k, v)| (text(k), text(v))).unwrap());
    let tables: Vec<_> = rows.collect();
    for name in db.families().into_iter().filter(|name| name.starts_with("table-")) {
        if tables.iter().all(|(_, family)| *family != name) {
            db.drop_family(&name).unwrap();
        }
    }
    tables.into_iter().map(|(table, name)| (table, db.family(&name).unwrap())).collect()
}

/// A table comes with its rows or not at all: after a rollback, a conflict, and a crash before any change of the disk.
#[test]
fn a_catalogue_makes_tables_part_of_transactions() {
    let sim = Sim::new();
    drop(sim.open().create_family("catalogue", small()).unwrap());
    let disks = sim.before_each_change(|| {
        let db = sim.open();
        let mut tx = db.begin(Isolation::Serializable);
        let users = create_table(&db, &mut tx, "users", 1).unwrap();
        tx.put(&users, "ann", "1").unwrap();
        assert!(!db.family("catalogue").unwrap().contains("users").unwrap(), "not committed");
        tx.commit().unwrap();
        let mut tx = db.begin(Isolation::Serializable);
        let mails = create_table(&db, &mut tx, "mails", 2).unwrap();
        tx.put(&mails, "ann", "2").unwrap();
        tx.rollback();
        assert_eq!(sweep(&db).len(), 1);
        assert_eq!(db.families(), ["catalogue", "default", "table-1"]);
        let mut both = [3, 4].map(|number| {
            let mut tx = db.begin(Isolation::Serializable);
            let exists = tx.contains(&db.family("catalogue").unwrap(), "mails").unwrap();
            let mails = create_table(&db, &mut tx, "mails", number).unwrap();
            tx.put(&mails, "ann", number.to_string()).unwrap();
            assert!(!exists);
            tx
        });
        both[1].commit().unwrap();
        assert!(matches!(both[0].commit(), Err(Error::Conflict { .. })), "the same name");
        let tables = sweep(&db);
        assert_eq!(value(&tables[0].1, b"ann").unwrap(), b"4");
        let mut tx = db.begin(Isolation::Serializable);
        tx.delete(&db.family("catalogue").unwrap(), "users").unwrap();
        tx.commit().unwrap();
        assert_eq!(value(&users, b"ann").unwrap(), b"1", "until the sweep");
        assert_eq!(sweep(&db).len(), 1);
        assert_eq!(db.families(), ["catalogue", "default", "table-4"]);
    });
    let mut seen = std::collections::BTreeSet::new();
    for disk in disks {
        let db = Sim::on(disk).open();
        let tables = sweep(&db);
        let rows = tables.iter().map(|(table, family)| (table.as_str(), value(family, b"ann").unwrap()));
        let rows: Vec<_> = rows.collect();
        assert!(
            rows.iter().all(|(table, ann)| *ann == if *table == "users" { b"1" } else { b"4" }),
            "{rows:?}"
        );
        assert_eq!(db.families().len(), 2 + rows.len(), "{:?}", db.families());
        seen.insert(rows.iter().map(|(table, _)| table.to_string()).collect::<Vec<_>>().join(" "));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["", "mails", "mails users", "users"]);
}

/// Found by a simulation: the view of the cursor shows a memtable, and its version does not name the value log yet.
#[test]
fn a_cursor_reads_values_of_a_dropped_family_whose_memtable_was_not_flushed() {
    let mut sim = Sim::new();
    sim.env.descriptors = Arc::new(Descriptors::new(1));
    let db = sim.options().background_threads(1).open().unwrap();
    let mut options = small().vlog_file_bytes(4096);
    options.value_threshold = 512;
    let f = db.create_family("f", options).unwrap();
    for n in 0..6u8 {
        f.put([n], noise(u64::from(n), 1000)).unwrap();
    }
    let mut cursor = f.cursor().unwrap();
    cursor.seek([0]).unwrap();
    // The background seals the first value log, which is full: a newer version names it.
    db.sync().unwrap();
    for _ in 0..6000 {
        if f.stats().value_log_live_bytes > 0 {
            break;
        }
        sim.clock.advance(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(f.stats().value_log_live_bytes > 0, "the value log is sealed");
    db.drop_family("f").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"v"); // another file takes the only descriptor
    for n in 0..6u8 {
        assert_eq!(cursor.value().unwrap(), noise(u64::from(n), 1000));
        cursor.next().unwrap();
    }
}
