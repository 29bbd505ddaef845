//! Settings of a family that change while it is open.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidesdb::{Comparator, Compression, Error, Family, FamilyOptions, MergeOperator, SyncMode, WriteBatch};

use crate::common::{Sim, contents, fill, noise, small, value};

fn tables(f: &Family) -> usize {
    f.stats().level_tables.iter().sum()
}

#[test]
fn only_stored_changes_survive_a_close() {
    let sim = Sim::new();
    drop(sim.open());
    for (keep, expected) in [(false, 512), (true, 4000), (false, 4000)] {
        let db = sim.open_as_stored();
        let f = db.default_family();
        let options = f.current_options().value_threshold(if keep { 4000 } else { 70 });
        let change = if keep { Family::change_options } else { Family::change_options_until_close };
        change(f, options.clone()).unwrap();
        assert_eq!(f.current_options().value_threshold, options.value_threshold);
        let killed = sim.killed();
        assert_eq!(
            killed.open_as_stored().default_family().current_options().value_threshold,
            expected,
            "{keep}"
        );
        db.close().unwrap();
        assert_eq!(
            sim.open_as_stored().default_family().current_options().value_threshold,
            expected,
            "{keep}"
        );
    }
}

/// Settings that were in force until close only were taken for stored ones.
#[test]
fn settings_given_for_an_existing_family_are_stored_although_they_are_in_force() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    f.change_options_until_close(small().value_threshold(4000)).unwrap();
    db.family_or_create("f", small().value_threshold(4000)).unwrap();
    db.close().unwrap();
    let f = sim.open().family("f").unwrap();
    assert_eq!(f.current_options().value_threshold, 4000);
}

/// A program that opens its families with default options reset what another one had set.
#[test]
fn settings_that_are_not_named_stay() {
    let sim = Sim::new();
    let db = sim.open();
    let custom =
        small().value_threshold(4000).comparator(Comparator::u64_le()).merge_operator(MergeOperator::add());
    let f = db.family_or_create("f", custom).unwrap();
    let thresholds = |f: &Family| (f.current_options().value_threshold, f.current_options().min_levels);
    f.change_options_until_close(FamilyOptions::default().value_threshold(70)).unwrap();
    f.change_options(FamilyOptions::default().min_levels(2)).unwrap();
    assert_eq!(thresholds(&f), (70, 2), "one until the close, one for good");
    assert_eq!(db.family_or_create("f", FamilyOptions::default()).unwrap().id(), f.id());
    assert_eq!(thresholds(&f), (70, 2));
    db.close().unwrap();
    let db = sim.open();
    let f = db.family_or_create("f", FamilyOptions::default().min_levels(3)).unwrap();
    assert_eq!(thresholds(&f), (4000, 3), "what ended with the session is not stored with another setting");
    let now = f.current_options();
    assert_eq!((now.comparator.name(), now.merge_operator.unwrap().name()), ("u64", "tidesdb.add"));
    db.family_or_create("f", FamilyOptions::default().value_threshold(512)).unwrap();
    assert_eq!(thresholds(&f), (512, 3), "a default that is named");
    db.close().unwrap();
    assert_eq!(thresholds(&sim.open().family("f").unwrap()), (512, 3));
    let named = FamilyOptions::default().comparator(Comparator::bytewise());
    assert!(matches!(sim.open().family_or_create("f", named), Err(Error::InvalidArgument { .. })));
}

#[test]
fn all_settings_can_be_stored() {
    let sim = Sim::new();
    let db = sim.open();
    let mut options = small().write_buffer_bytes(333_333).value_threshold(77).compression(Compression::Zstd);
    (options.filter_bits_per_key, options.table_bytes, options.l1_tables_trigger) = (3, 1 << 20, 9);
    options.vlog_file_bytes = 99_999;
    db.default_family().change_options(options.clone()).unwrap();
    let shown = format!("{options:?}");
    assert_eq!(format!("{:?}", db.default_family().current_options()), shown);
    db.close().unwrap();
    assert_eq!(format!("{:?}", sim.open_as_stored().default_family().current_options()), shown);
}

#[test]
fn another_key_order_is_rejected() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    let options = small().comparator(Comparator::u64_le());
    let e = f.change_options_until_close(options.value_threshold(1)).unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }), "{e}");
    assert!(e.to_string().contains("family \"f\" has the "), "{e}");
    assert_eq!(f.current_options().value_threshold, 512);
    db.drop_family("f").unwrap();
    assert!(matches!(f.change_options(small()), Err(Error::NotFound { .. })));
    let default = db.default_family().clone();
    db.close().unwrap();
    assert!(matches!(default.change_options_until_close(small()), Err(Error::Closed)));
    let db = sim.options().read_only(true).open().unwrap();
    assert!(matches!(db.default_family().change_options(small()), Err(Error::ReadOnly)));
}

#[test]
fn a_smaller_buffer_and_trigger_apply_from_the_next_commit() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 1000, &[5; 100]);
    assert_eq!(tables(f), 0);
    f.change_options_until_close(small().write_buffer_bytes(64 << 10)).unwrap();
    f.put(b"one more", b"v").unwrap();
    assert_eq!(tables(f), 1);
    let mut options = f.current_options();
    options.l1_tables_trigger = 100;
    f.change_options_until_close(options.clone()).unwrap();
    for i in 0..10 {
        f.put(&[i], b"v").unwrap();
        f.flush().unwrap();
    }
    f.put(b"jobs", b"run").unwrap();
    let level1 = || f.stats().level_tables[0];
    assert!(level1() >= 10, "{:?}", f.stats().level_tables);
    options.l1_tables_trigger = 4;
    f.change_options_until_close(options).unwrap();
    f.put(b"jobs", b"run again").unwrap();
    assert_eq!(level1(), 0, "merged: {:?}", f.stats().level_tables);
}

#[test]
fn value_table_and_filter_settings_apply_to_new_files() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let file_bytes = |end: &str| -> usize {
        let names = sim.disk.file_names("/db").unwrap();
        let sizes = names.iter().filter(|n| n.ends_with(end));
        sizes.map(|n| sim.disk.read_file(format!("/db/{n}")).unwrap().len()).sum()
    };
    f.put(b"inline", &noise(1, 300)).unwrap();
    assert_eq!(file_bytes(".vlog"), 0);
    f.change_options_until_close(small().value_threshold(100)).unwrap();
    f.put(b"apart", &noise(2, 300)).unwrap();
    assert!(file_bytes(".vlog") >= 300);
    assert_eq!(value(f, b"inline").unwrap(), noise(1, 300));
    assert_eq!(value(f, b"apart").unwrap(), noise(2, 300));
    fill(f, 2000, b"easy to compress, easy to compress, easy to compress");
    f.compact().unwrap();
    let (compressed, filters) = (f.stats().level_bytes.iter().sum::<u64>(), f.stats().resident_bytes);
    let before = contents(f);
    f.change_options_until_close(small().compression(Compression::None).filter_bits_per_key(0)).unwrap();
    f.compact().unwrap();
    assert!(f.stats().level_bytes.iter().sum::<u64>() > 2 * compressed);
    assert!(f.stats().resident_bytes + 1000 < filters);
    let mut options = f.current_options();
    (options.table_bytes, options.vlog_file_bytes) = (16 << 10, 4096);
    f.change_options(options.value_threshold(100)).unwrap();
    f.compact().unwrap();
    assert!(tables(f) > 4);
    assert_eq!(contents(f), before);
    let files = || sim.disk.file_names("/db").unwrap().iter().filter(|n| n.ends_with(".vlog")).count();
    let large = |f: &Family, keys: std::ops::Range<u8>| {
        for i in keys {
            f.put(&[i], &noise(i.into(), 1000)).unwrap();
        }
    };
    let old = files();
    large(f, 0..30);
    assert_eq!(files(), old, "the current file keeps its limit");
    db.close().unwrap();
    let db = sim.open_as_stored();
    large(db.default_family(), 30..60);
    assert!(files() > old + 4, "{} files", files());
    assert_eq!(contents(db.default_family()).len(), before.len() + 60);
}

#[test]
fn writes_during_changes_of_the_value_threshold() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).background_threads(1).open().unwrap();
    let f = db.default_family();
    let stop = AtomicBool::new(false);
    let value_of = |i: u32| noise(i.into(), 50 + i as usize % 900);
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in (0..).take_while(|_| !stop.load(SeqCst)) {
                f.change_options_until_close(small().value_threshold(if i % 2 == 0 { 60 } else { 800 }))
                    .unwrap();
            }
        });
        let writers = [0u32, 1].map(|writer| {
            let db = &db;
            s.spawn(move || {
                for first in (writer..4000).step_by(20) {
                    let mut batch = WriteBatch::new();
                    for i in (first..first + 20).step_by(2) {
                        batch.put(db.default_family(), &i.to_be_bytes(), &value_of(i)).unwrap();
                    }
                    db.write(&mut batch).unwrap();
                }
            })
        });
        let ended = writers.map(|writer| writer.join());
        stop.store(true, SeqCst);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    for i in 0..4000u32 {
        assert!(f.get(&i.to_be_bytes()).unwrap().unwrap() == value_of(i), "key {i}");
    }
}
