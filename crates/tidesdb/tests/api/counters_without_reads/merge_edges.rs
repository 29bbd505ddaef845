//! Merge operators and compaction filters at the edges of what they promise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::{
    CompactionFilter, Db, Decision, Error, FamilyOptions, Isolation, MergeOperator, Slice, Snapshot,
    WriteBatch,
};
use tidesdb_io::sim::Image;

use crate::common::{DB, Pair, Random, Sim, contents, joined, joins, noise, pairs, small};

fn failing() -> MergeOperator {
    MergeOperator::custom("failing", |_, _| Err("planted".into()))
}

#[test]
fn an_iterator_goes_on_after_a_key_whose_operator_fails() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(failing())).open().unwrap();
    let f = db.default_family();
    for key in ["a", "k", "z"] {
        f.put(key, "1").unwrap();
    }
    f.merge("k", "2").unwrap();
    let shown = |rows: Vec<tidesdb::Result<(Slice, Slice)>>| -> Vec<String> {
        let row = |row: tidesdb::Result<(Slice, Slice)>| match row {
            Ok((key, _)) => String::from_utf8(key.into_vec()).unwrap(),
            Err(Error::Merge { .. }) => "error".into(),
            Err(e) => panic!("{e}"),
        };
        rows.into_iter().map(row).collect()
    };
    assert_eq!(shown(f.iter().unwrap().collect()), ["a", "error", "z"]);
    assert_eq!(shown(f.iter().unwrap().rev().collect()), ["z", "error", "a"]);
}

/// An error that cannot be shown.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("planted")
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_that_panics_when_shown_is_an_error_of_the_operator() {
    let sim = Sim::new();
    let operator = MergeOperator::custom("mine", |_, _| Err(Box::new(Unspeakable)));
    let db = sim.options().default_family(small().merge_operator(operator)).open().unwrap();
    let f = db.default_family();
    f.put("k", "1").unwrap();
    f.merge("k", "2").unwrap();
    assert!(matches!(f.get("k"), Err(Error::Merge { .. })));
    db.compact().unwrap();
    f.put("z", "1").unwrap();
    assert!(matches!(f.get("k"), Err(Error::Merge { .. })));
}

#[test]
fn the_names_of_built_in_operators_are_reserved() {
    let sim = Sim::new();
    for name in ["tidesdb.max", "tidesdb.append:.", "tidesdb.of a later version"] {
        let mine = MergeOperator::custom(name, joins);
        let error = sim.options().default_family(small().merge_operator(mine.clone())).open().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        let db = Sim::new().open();
        let error = db.create_family("other", small().merge_operator(mine)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn on_disk(options: FamilyOptions) -> (tempfile::TempDir, Db) {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Db::options(temp.path())
        .sync(tidesdb::SyncMode::None)
        .background_threads(1)
        .default_family(options)
        .open()
        .unwrap();
    (temp, db)
}

#[test]
#[ignore = "long"]
fn a_key_with_a_million_operands() {
    let options = FamilyOptions::default().write_buffer_bytes(512 << 20).merge_operator(MergeOperator::add());
    let (_temp, db) = on_disk(options);
    let f = db.default_family();
    f.put("a", 1u64.to_le_bytes()).unwrap();
    f.put("z", 1u64.to_le_bytes()).unwrap();
    for _ in 0..1_000_000 {
        f.merge("k", 1u64.to_le_bytes()).unwrap();
    }
    let snapshot = db.snapshot();
    f.merge("k", 1u64.to_le_bytes()).unwrap();
    assert_eq!(f.get_map("k", number).unwrap(), Some(1_000_001));
    assert_eq!(contents(f).len(), 3);
    assert_eq!(f.iter().unwrap().rev().count(), 3);
    let mut tx = db.begin(Isolation::Snapshot);
    tx.merge(f, "k", 5u64.to_le_bytes()).unwrap();
    assert_eq!(tx.get_map(f, "k", number).unwrap(), Some(1_000_006));
    tx.rollback();
    db.flush().unwrap();
    assert_eq!(f.get_map("k", number).unwrap(), Some(1_000_001));
    assert_eq!(snapshot.get(f, "k").unwrap().map(|v| number(&v)), Some(1_000_000));
    assert_eq!(f.stats().table_entries, 4);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(f.get_map("k", number).unwrap(), Some(1_000_001));
    assert_eq!(f.stats().table_entries, 3);
}

#[test]
#[ignore = "long"]
fn a_value_that_grows_to_64_mib() {
    let (temp, db) = on_disk(FamilyOptions::default().merge_operator(MergeOperator::append("")));
    let f = db.default_family();
    let part = noise(3, 1 << 20);
    f.put("a", "1").unwrap();
    f.put("z", "1").unwrap();
    for n in 0..64 {
        f.merge("k", &part).unwrap();
        if n % 20 == 13 {
            db.compact().unwrap();
        }
    }
    let check = |db: &Db| {
        let f = db.default_family();
        assert_eq!(f.get_map("k", <[u8]>::len).unwrap(), Some(64 << 20));
        assert_eq!(contents(f)[1].1.len(), 64 << 20);
        assert_eq!(&*f.get_part("k", (5 << 20)..(6 << 20)).unwrap().unwrap(), &part[..]);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    assert!(db.verify().unwrap().is_ok());
    f.merge("k", "end").unwrap();
    f.merge("k", "end").unwrap();
    db.compact().unwrap();
    assert_eq!(f.get_map("k", <[u8]>::len).unwrap(), Some((64 << 20) + 6));
    db.close().unwrap();
    let db = Db::open(temp.path()).unwrap();
    assert_eq!(db.get_map("k", <[u8]>::len).unwrap(), Some((64 << 20) + 6));
}

#[test]
fn long_keys_have_operands() {
    let sim = Sim::new();
    let options = small().merge_operator(MergeOperator::append(""));
    let db = sim.options().default_family(options).open().unwrap();
    let f = db.default_family();
    let keys: Vec<Vec<u8>> =
        (0..4).map(|n| [vec![b'k'; tidesdb::KEY_BYTES_MAX - 1], vec![n]].concat()).collect();
    for round in 0..6 {
        for key in &keys {
            f.merge(key, [b'0' + round]).unwrap();
        }
        if round % 2 == 1 {
            db.flush().unwrap();
        }
    }
    for _ in 0..2 {
        let mut cursor = f.cursor().unwrap();
        for key in &keys {
            assert_eq!(&*f.get(key).unwrap().unwrap(), b"012345");
            cursor.seek(key).unwrap();
            assert_eq!(cursor.value().unwrap(), b"012345");
        }
        cursor.seek_to_last().unwrap();
        assert_eq!(cursor.key(), keys[3]);
        db.compact().unwrap();
    }
}

#[test]
fn a_transaction_merges_into_its_own_long_value() {
    let sim = Sim::new();
    let options = small().merge_operator(MergeOperator::append(""));
    let db = sim.options().default_family(options).open().unwrap();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::Serializable);
    tx.put_stream(f, "k", &[b's'; 3 << 20][..]).unwrap();
    tx.merge(f, "k", "end").unwrap();
    assert_eq!(tx.get(f, "k").unwrap().unwrap().len(), (3 << 20) + 3);
    tx.commit().unwrap();
    assert_eq!(f.get("k").unwrap().unwrap().len(), (3 << 20) + 3);
    db.compact().unwrap();
    assert_eq!(f.get("k").unwrap().unwrap().len(), (3 << 20) + 3);
}

#[test]
fn a_large_batch_of_puts_and_merges() {
    for threshold in [100, 1 << 20] {
        let sim = Sim::new();
        let options = small().merge_operator(MergeOperator::append("")).value_threshold(threshold);
        let db = sim.options().default_family(options.clone()).open().unwrap();
        let f = db.default_family();
        let mut batch = WriteBatch::new();
        for n in 0..3000u32 {
            batch.put(f, n.to_be_bytes(), noise(n.into(), 600)).unwrap();
            batch.merge(f, n.to_be_bytes(), "end").unwrap();
            batch.merge(f, "count", "x").unwrap();
        }
        db.write(&mut batch).unwrap();
        f.merge("count", "y").unwrap();
        let check = |db: &Db| {
            let f = db.default_family();
            for n in 0..3000u32 {
                let want = [&noise(n.into(), 600)[..], b"end"].concat();
                assert_eq!(&*f.get(n.to_be_bytes()).unwrap().unwrap(), want);
            }
            let count = f.get("count").unwrap().unwrap();
            assert!(count.len() == 3001 && count.ends_with(b"xy"));
        };
        check(&db);
        let sim = sim.killed();
        let db = sim.options().default_family(options).open().unwrap();
        check(&db);
        db.compact().unwrap();
        check(&db);
    }
}

#[test]
fn moved_values_stay_below_their_operands() {
    let sim = Sim::new();
    let mut options = joined();
    options.vlog_file_bytes = 16 << 10;
    let db = sim.options().default_family(options).open().unwrap();
    let f = db.default_family();
    let long = |n: u32| noise(n.into(), 4000);
    for n in 0..2000u32 {
        f.put(n.to_be_bytes(), long(n)).unwrap();
        if n % 10 == 0 {
            f.merge(n.to_be_bytes(), "1").unwrap();
        }
    }
    db.compact().unwrap();
    for n in (0..2000u32).filter(|n| n % 10 != 0) {
        f.put(n.to_be_bytes(), "short").unwrap();
    }
    for n in (0..2000u32).step_by(20) {
        f.merge(n.to_be_bytes(), "2").unwrap();
    }
    for _ in 0..6 {
        db.compact().unwrap();
        sim.clock.advance(Duration::from_secs(60));
        f.put("x", "y").unwrap();
    }
    let want = |n: u32| [&long(n)[..], if n.is_multiple_of(20) { b".1.2" } else { b".1" }].concat();
    for n in (0..2000u32).step_by(10) {
        assert_eq!(&*f.get(n.to_be_bytes()).unwrap().unwrap(), want(n));
    }
    assert!(f.stats().value_bytes_moved > 0, "{:?}", f.stats());
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_read_only_open_combines() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).open().unwrap();
    db.merge("k", "1").unwrap();
    db.flush().unwrap();
    db.merge("k", "2").unwrap();
    let sim = sim.killed();
    let db = Db::options(DB).env(sim.env.clone()).read_only(true).open().unwrap();
    assert_eq!(&*db.get("k").unwrap().unwrap(), b"1.2");
    assert!(db.merge("k", "3").is_err());
    assert_eq!(db.iter().unwrap().count(), 1);
}

#[test]
fn operations_on_one_row_see_combined_values() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).open().unwrap();
    let f = db.default_family();
    for place in 0..3 {
        f.delete_range("a".."zz").unwrap();
        f.put("a", "0").unwrap();
        f.merge("a", "1").unwrap();
        f.merge("z", "1").unwrap();
        f.merge("z", "2").unwrap();
        match place {
            0 => {}
            1 => db.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
        assert_eq!(&*f.first().unwrap().unwrap().1, b"0.1");
        assert_eq!(&*f.last().unwrap().unwrap().1, b"1.2");
        assert!(!f.compare_and_swap("z", Some(b"2"), None).unwrap());
        assert!(f.compare_and_swap("z", Some(b"1.2"), Some(b"n")).unwrap());
        f.merge("z", "3").unwrap();
        let now = f.update("z", |v| v.map(|v| [v, b"!"].concat())).unwrap();
        assert_eq!(now.as_deref(), Some(&b"n.3!"[..]));
        f.merge("z", "4").unwrap();
        assert_eq!(&*f.pop_first().unwrap().unwrap().1, b"0.1");
        assert_eq!(&*f.pop_first().unwrap().unwrap().1, b"n.3!.4");
        assert!(f.pop_first().unwrap().is_none());
    }
}

#[test]
fn a_commit_calls_no_operator() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let operator = MergeOperator::custom("counting", move |value, operand| {
        count.fetch_add(1, Ordering::SeqCst);
        joins(value, operand)
    });
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(operator)).open().unwrap();
    let f = db.default_family();
    f.put("k", "1").unwrap();
    f.merge("k", "2").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(tx.range(f, "a".."z").unwrap().count(), 1);
    tx.put(f, "zz", "1").unwrap();
    f.delete_range("j".."l").unwrap();
    let before = calls.load(Ordering::SeqCst);
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    assert_eq!(calls.load(Ordering::SeqCst), before);
}

/// The filter decides about the value that lies in the merged tables, whatever was merged into the key since.
#[test]
fn a_filter_sees_a_value_without_newer_operands() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).open().unwrap();
    let f = db.default_family();
    f.set_compaction_filter(Some(CompactionFilter::new("test", |row| match row.value {
        Some(b"bad") => Decision::Remove,
        _ => Decision::Keep,
    })));
    let mut found = Vec::new();
    for n in 0..8u32 {
        f.put("k", "bad").unwrap();
        f.put(n.to_be_bytes(), "filler").unwrap();
        db.flush().unwrap();
        f.merge("k", "x").unwrap(); // in the memtable; runs the merge that the flush asked for
        found.push(f.get("k").unwrap().unwrap().into_vec());
    }
    assert!(found.iter().all(|v| v == b"bad.x" || v == b"x"));
    assert!(found.iter().any(|v| v == b"x"));
}

#[test]
fn a_crash_during_a_merge_neither_loses_nor_repeats_operands() {
    let sim = Sim::new();
    let mut options = joined();
    options.table_bytes = 2 << 10;
    options.l1_tables_trigger = 1000;
    let db = sim.options().default_family(options.clone()).open().unwrap();
    let f = db.default_family();
    let mut want = BTreeMap::new();
    for round in 0..6u64 {
        for n in 0..40u64 {
            let (key, operand) = (format!("k{n:02}"), noise(round * 100 + n, 1 + (n as usize * 37) % 900));
            f.merge(&key, &operand).unwrap();
            let value: &mut Vec<u8> = want.entry(key.into_bytes()).or_default();
            if !value.is_empty() {
                value.push(b'.');
            }
            value.extend_from_slice(&operand);
        }
        match round {
            0 | 3 => db.compact().unwrap(),
            5 => {}
            _ => db.flush().unwrap(),
        }
    }
    let images = sim.before_each_change(|| db.compact().unwrap());
    assert!(images.len() > 10, "{}", images.len());
    for (n, image) in images.into_iter().enumerate() {
        let after = Sim::on(if n % 2 == 0 { image } else { image.crash_image(&Image::SYNCED, n as u64) });
        let again = after.options().default_family(options.clone()).open().unwrap();
        assert!(contents(again.default_family()).into_iter().eq(want.clone()), "image {n}");
        again.compact().unwrap();
        assert!(contents(again.default_family()).into_iter().eq(want.clone()), "image {n}");
    }
}

#[test]
fn merges_of_many_threads_split_no_key() {
    let mut options = FamilyOptions::default().merge_operator(MergeOperator::add());
    options.write_buffer_bytes = 64 << 10;
    options.table_bytes = 16 << 10;
    options.level_size_ratio = 2;
    options.min_levels = 3;
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Db::options(temp.path())
        .sync(tidesdb::SyncMode::None)
        .background_threads(4)
        .default_family(options)
        .open()
        .unwrap();
    let f = db.default_family();
    let mut want: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut held = Vec::new();
    for n in 0..60_000u64 {
        let key = format!("key {:04}", n * 7919 % 1500).into_bytes();
        f.merge(&key, n.to_le_bytes()).unwrap();
        *want.entry(key).or_default() += n;
        if n % 9000 == 5000 {
            held.push((db.snapshot(), want.clone()));
        }
    }
    let numbers = |rows: Vec<Pair>| rows.into_iter().map(|(k, v)| (k, number(&v)));
    for _ in 0..2 {
        assert!(numbers(contents(f)).eq(want.clone()));
        for (snapshot, want) in &held {
            assert!(numbers(pairs(snapshot.iter(f).unwrap())).eq(want.clone()));
        }
        db.compact().unwrap();
    }
    drop(held);
    db.compact().unwrap();
    assert!(numbers(contents(f)).eq(want.clone()));
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_session_without_the_operator_changes_nothing() {
    let mine = || MergeOperator::custom("mine", joins);
    for seed in 0..6 {
        let sim = Sim::new();
        let options = || {
            let mut options = small().merge_operator(mine()).value_threshold([8, 4000][seed % 2]);
            options.min_levels = 1 + seed as u32 / 2;
            options
        };
        let db = sim.options().default_family(options()).open().unwrap();
        let f = db.default_family();
        let mut rng = Random::new(seed as u64);
        let mut want: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for n in 0..300u32 {
            let key = format!("k{}", rng.below(20)).into_bytes();
            match rng.below(8) {
                0 => {
                    f.put(&key, format!("put {n} of some length,")).unwrap();
                    want.insert(key, format!("put {n} of some length,").into_bytes());
                }
                1 => {
                    f.delete(&key).unwrap();
                    want.remove(&key);
                }
                2 if n % 3 == 0 => {
                    f.delete_range(&key[..]..&b"k4"[..]).unwrap();
                    want.retain(|k, _| !(*k >= key && &k[..] < b"k4"));
                }
                _ => {
                    f.merge(&key, format!("{n},")).unwrap();
                    want.entry(key).or_default().extend_from_slice(format!("{n},").as_bytes());
                }
            }
            if n % 60 == 40 {
                db.flush().unwrap();
            }
        }
        let mut sim = sim.killed();
        for copy in ["/copy 1", "/copy 2"] {
            let db = Db::options(DB)
                .env(sim.env.clone())
                .background_threads(0)
                .allow_unknown(true)
                .open()
                .unwrap();
            for n in 0..3 {
                db.put("other", format!("{n}")).unwrap();
                db.compact().unwrap();
            }
            assert!(db.verify().unwrap().is_ok());
            db.checkpoint(copy).unwrap();
            sim = sim.killed();
            let db = sim.options_at(copy).merge_operator(mine()).default_family(options()).open().unwrap();
            db.delete("other").unwrap();
            assert!(contents(db.default_family()).into_iter().eq(want.clone()));
        }
        let db = sim.options().merge_operator(mine()).default_family(options()).open().unwrap();
        db.delete("other").unwrap();
        db.compact().unwrap();
        assert!(contents(db.default_family()).into_iter().eq(want.clone()));
    }
}

#[test]
fn keys_that_a_custom_order_takes_for_equal_share_their_operands() {
    let sim = Sim::new();
    let options = joined().comparator(tidesdb::Comparator::case_insensitive());
    let db = sim.options().open().unwrap();
    let f = db.create_family("words", options).unwrap();
    for place in 0..3 {
        f.delete_range("a".."z").unwrap();
        f.put("Key", "1").unwrap();
        f.merge("kEY", "2").unwrap();
        if place > 0 {
            db.flush().unwrap();
            f.flush().unwrap();
        }
        f.merge("KEY", "3").unwrap();
        f.merge("Lone", "1").unwrap();
        f.merge("lone", "2").unwrap();
        if place > 1 {
            f.compact().unwrap();
        }
        assert_eq!(&*f.get("key").unwrap().unwrap(), b"1.2.3");
        assert_eq!(contents(&f).into_iter().map(|row| row.1).collect::<Vec<_>>(), [&b"1.2.3"[..], b"1.2"]);
        let back: Vec<_> = f.iter().unwrap().rev().map(|row| row.unwrap().1.into_vec()).collect();
        assert_eq!(back, [&b"1.2"[..], b"1.2.3"]);
        let mut tx = db.begin(Isolation::Serializable);
        tx.merge(&f, "KeY", "4").unwrap();
        assert_eq!(&*tx.get(&f, "key").unwrap().unwrap(), b"1.2.3.4");
        tx.rollback();
    }
}

/// Each snapshot reads the same as long as it lives, and what a read has found filtered stays so.
#[test]
fn filters_change_nothing_for_snapshots() {
    for seed in 1..40u64 {
        let sim = Sim::new();
        let mut rng = Random::new(seed);
        let mut options = joined().value_threshold([4, 1 << 20][rng.below(2) as usize]);
        options.write_buffer_bytes = 16 << 10;
        options.min_levels = 1 + rng.below(3) as u32;
        options.l1_tables_trigger = 1 + rng.below(3) as usize;
        let db = sim.options().default_family(options).open().unwrap();
        let f = db.default_family();
        f.set_compaction_filter(Some(CompactionFilter::new("test", |row| match row.value {
            Some(v) if v.starts_with(b"bad") => Decision::Remove,
            Some(v) if v.starts_with(b"old") => Decision::Change([b"new", &v[3..]].concat()),
            _ => Decision::Keep,
        })));
        let mut held: Vec<(Snapshot, Vec<Pair>)> = Vec::new();
        let mut last: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for n in 0..250 {
            let key = format!("k{}", rng.below(8)).into_bytes();
            match rng.below(14) {
                0..=5 => {
                    let kind = ["bad", "old", "good"][rng.below(3) as usize];
                    f.put(&key, format!("{kind}{n}")).unwrap();
                    last.insert(key, format!("{kind}{n}"));
                }
                6 => {
                    f.delete(&key).unwrap();
                    last.remove(&key);
                }
                7 => {
                    f.delete_range(&key[..]..&b"k5"[..]).unwrap();
                    last.retain(|k, _| !(*k >= key && &k[..] < b"k5"));
                }
                8 => db.flush().unwrap(),
                9 => db.compact().unwrap(),
                10 | 11 => {
                    let snapshot = db.snapshot();
                    let rows = pairs(snapshot.iter(f).unwrap());
                    held.push((snapshot, rows));
                }
                _ if held.is_empty() => {}
                _ => drop(held.remove(rng.index(held.len()))),
            }
            for (snapshot, rows) in &held {
                assert_eq!(pairs(snapshot.iter(f).unwrap()), *rows, "seed {seed}, step {n}");
            }
            let live: BTreeMap<_, _> = contents(f).into_iter().collect();
            assert!(live.keys().all(|k| last.contains_key(k)), "seed {seed}: a deleted row came back");
            let mut removed = Vec::new();
            for (key, value) in &mut last {
                match live.get(key).map(|v| String::from_utf8(v.clone()).unwrap()) {
                    Some(now) if now == *value => {}
                    Some(now) => {
                        assert_eq!(now, value.replace("old", "new"), "seed {seed}, step {n}");
                        *value = now;
                    }
                    None => {
                        assert!(value.starts_with("bad"), "seed {seed}: {value} is lost");
                        removed.push(key.clone());
                    }
                }
            }
            removed.iter().for_each(|key| drop(last.remove(key)));
        }
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn a_clone_of_a_family_whose_operator_fails_leaves_nothing() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(failing())).open().unwrap();
    db.put("k", "1").unwrap();
    db.merge("k", "2").unwrap();
    db.flush().unwrap();
    let before = sim.disk.file_names(DB).unwrap();
    assert!(matches!(db.clone_family("default", "copy"), Err(Error::Merge { .. })));
    assert_eq!(sim.disk.file_names(DB).unwrap(), before);
    assert!(db.family("copy").is_err());
}
