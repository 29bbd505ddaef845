//! Profiles: counts of what a closure reads and writes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidesdb::{Profile, SyncMode, WriteBatch, WriteOptions, profile};

use crate::common::{Random, Sim, fill, noise};

/// Returns the counts of `work`, whose result does not matter.
fn counts<R>(work: impl FnOnce() -> R) -> Profile {
    profile(work).1
}

#[test]
fn gets_count_their_sources_filters_and_blocks() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 1000, b"v");
    db.flush().unwrap();
    fill(family, 10, b"newer");
    let found = counts(|| family.get("key000005").unwrap());
    assert_eq!((found.gets, found.sources, found.filters_asked), (1, 1, 0), "{found}");
    let below = counts(|| family.get("key000500").unwrap());
    assert_eq!((below.gets, below.sources, below.filters_asked), (1, 2, 1), "{below}");
    assert_eq!((below.index_searches, below.blocks_in_memory + below.table_reads), (1, 1), "{below}");
    let absent = counts(|| (0..200).for_each(|n| drop(family.get(format!("key000500{n}")).unwrap())));
    assert_eq!((absent.gets, absent.filters_asked), (200, 200), "{absent}");
    assert!(absent.filters_excluded >= 180, "{absent}");
    assert_eq!(absent.index_searches, 200 - absent.filters_excluded, "{absent}");
    let others = counts(|| {
        family.contains("key000500").unwrap();
        family.get_map("key000500", |_| ()).unwrap();
        family.multi_get(&["key000500", "key000501"]).unwrap();
    });
    assert_eq!((others.gets, others.multi_gets), (2, 1), "{others}");
    assert!(others.sources >= 8 && others.filters_asked >= 4, "{others}");
}

#[test]
fn reads_of_the_device_are_counted_with_their_bytes() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 5000, &[7; 50]);
    db.put("long", noise(1, 9000)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = sim.open();
    let first = counts(|| db.get("key000700").unwrap());
    assert!(first.table_reads >= 1 && first.table_bytes > 0, "{first}");
    let again = counts(|| db.get("key000700").unwrap());
    assert_eq!((again.table_reads, again.blocks_in_memory), (0, 1), "{again}");
    let long = counts(|| db.get("long").unwrap());
    assert_eq!((long.log_values, long.log_value_bytes > 9000), (1, true), "{long}");
    let scan = counts(|| db.iter().unwrap().count());
    assert!(scan.table_reads > 1 && scan.table_bytes > 10_000, "{scan}");
}

#[test]
fn scans_count_each_row_and_each_dead_key() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 3000, b"v");
    db.flush().unwrap();
    (0..100).for_each(|n| assert!(family.delete(format!("key{n:06}")).is_ok()));
    for _ in 0..2 {
        let all = counts(|| assert_eq!(family.iter().unwrap().count(), 2900));
        assert_eq!((all.seeks, all.rows, all.dead_keys), (1, 2900, 100), "{all}");
    }
    let back = counts(|| assert_eq!(family.iter().unwrap().rev().take(50).count(), 50));
    assert_eq!((back.seeks, back.rows), (1, 50), "{back}");
    // A cursor that was used before: from its next seek on.
    let mut cursor = family.cursor().unwrap();
    cursor.seek("key001000").unwrap();
    for _ in 0..700 {
        cursor.value().unwrap();
        cursor.next().unwrap();
    }
    let seek = counts(|| {
        cursor.seek("key002000").unwrap();
        for _ in 0..500 {
            cursor.value().unwrap();
            cursor.next().unwrap();
        }
    });
    assert_eq!((seek.seeks, seek.rows, seek.dead_keys), (1, 501, 0), "{seek}");
    for _ in 0..400 {
        cursor.next().unwrap();
    }
    assert_eq!(cursor.key(), b"key002900", "it goes on as if nobody had counted");
}

#[test]
fn commits_count_their_records_values_and_syncs() {
    let sim = Sim::new();
    let db = sim.open();
    let none = WriteOptions::default().sync(SyncMode::None);
    let full = WriteOptions::default().sync(SyncMode::Full);
    let family = db.default_family();
    let put = counts(|| family.put_with("k", "v", &none).unwrap());
    assert_eq!((put.puts, put.commits, put.log_records, put.syncs), (1, 0, 1, 0), "{put}");
    assert!(put.log_bytes >= 8 && put.values_written == 0, "{put}");
    let mut batch = WriteBatch::new();
    batch.put(family, "long", noise(1, 6000)).unwrap();
    batch.delete(family, "k").unwrap();
    let written = counts(|| db.write_with(&mut batch, &full).unwrap());
    assert_eq!((written.puts, written.commits, written.log_records), (0, 1, 1), "{written}");
    assert!(written.values_written > 6000 && written.log_bytes < 1000 && written.syncs >= 1, "{written}");
    let transaction = counts(|| db.transact(|tx| tx.put(family, "t", "v")).unwrap());
    assert_eq!(transaction.commits, 1, "{transaction}");
}

#[test]
fn nested_profiles_panics_and_several_databases() {
    let (one, two) = (Sim::new(), Sim::new());
    let (one, two) = (one.open(), two.open());
    let (inner, outer) = profile(|| {
        one.get("a").unwrap();
        counts(|| two.get("b").unwrap())
    });
    assert_eq!(
        (inner.gets, outer.gets),
        (1, 2),
        "both databases count, and the outer profile has the inner one's"
    );
    let mut inner = None;
    let outer = counts(|| {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            profile(|| -> u32 {
                one.get("a").unwrap();
                panic!("planted");
            })
        }));
        assert!(ended.is_err());
        one.get("a").unwrap();
        inner = Some(counts(|| two.get("b").unwrap()));
    });
    assert_eq!((outer.gets, inner.unwrap().gets), (3, 1), "the outer one goes on after a panic within");
    let ended = catch_unwind(AssertUnwindSafe(|| profile(|| -> u32 { panic!("planted") })));
    assert!(ended.is_err());
    // None runs any more: operations are sampled again, one in 256.
    let before = one.stats().gets.count;
    (0..20_000).for_each(|_| drop(one.get("a").unwrap()));
    let sampled = one.stats().gets.count - before;
    assert!((30..150).contains(&sampled), "{sampled} of 20,000");
}

#[test]
fn a_profile_counts_its_own_thread_only() {
    let sim = Sim::new();
    let db = sim.open();
    let found = counts(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| db.get("a").unwrap());
            db.get("b").unwrap();
        });
    });
    assert_eq!(found.gets, 1);
}

#[test]
fn a_profile_leaves_the_sample_of_durations_as_it_is() {
    let sim = Sim::new();
    let db = sim.open();
    let mut random = Random::new(3);
    let mut all = 0;
    while all < 40_000 {
        let n = random.below(40) + 1;
        match random.one_in(2) {
            true => {
                let found = counts(|| (0..n).for_each(|_| drop(db.get("a").unwrap())));
                assert_eq!(found.gets, n);
            }
            false => (0..n).for_each(|_| drop(db.get("a").unwrap())),
        }
        all += n;
    }
    let times = db.stats().gets;
    let expected = all as f64 / times.sampled_one_in as f64;
    let off = (times.count as f64 - expected).abs() / expected.sqrt();
    assert!(off < 5.0, "{} samples of {all} gets", times.count);
}
