//! Histograms of the durations of operations, which are random samples.

use std::sync::Arc;
use std::time::Duration;

use tidesdb::{Isolation, SyncMode, TimeStats, WriteBatch, WriteOptions};
use tidesdb_io::Clock;
use tidesdb_io::sim::{OpKind, OpSet};

use crate::common::{Sim, fill, noise};

/// Time that a slow call to the disk takes.
const SLOW: Duration = Duration::from_millis(150);

/// Asserts that `sampled` is within five standard deviations of the expected number of samples of `operations`.
fn check(sampled: u64, operations: u64, one_in: u64, what: &str) {
    let expected = operations as f64 / one_in as f64;
    let off = (sampled as f64 - expected).abs() / expected.sqrt();
    assert!(expected > 30.0 && off < 5.0, "{what}: {sampled} samples of {operations} operations");
}

/// Runs `operation` with the numbers below `n`. Asserts that the histogram has the share of the slow ones and of the fast ones.
fn check_shares(sim: &Sim, n: u64, times: impl Fn() -> TimeStats, operation: impl Fn(u64)) {
    assert_eq!(times().count, 0);
    let mut slow = 0;
    for i in 0..n {
        let begin = sim.clock.mono();
        operation(i);
        slow += u64::from(sim.clock.mono() - begin >= SLOW);
    }
    let times = times();
    let buckets = times.durations.buckets().filter(|(bound, _)| *bound > SLOW);
    let sampled = buckets.map(|(_, n)| n).sum();
    check(sampled, slow, times.sampled_one_in, "slow");
    check(times.count - sampled, n - slow, times.sampled_one_in, "fast");
    assert!(times.longest >= SLOW && times.time >= SLOW * sampled as u32, "{times:?}");
}

#[test]
fn each_kind_of_operation_has_its_number_of_samples() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let family = db.default_family();
    let mut cursor = family.cursor().unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..12_000_u32 {
        let key = i.to_be_bytes();
        db.put(key, "v").unwrap();
        db.delete(key).unwrap();
        db.get(key).unwrap();
        db.contains(key).unwrap();
        db.get_map(key, |_| ()).unwrap();
        db.multi_get(&[&key[..], b"absent"]).unwrap();
        cursor.seek(key).unwrap();
        batch.put(family, key, "v").unwrap();
        batch.put(family, b"k", "v").unwrap();
        db.write(&mut batch).unwrap();
        db.write(&mut batch).unwrap(); // no operation
        let mut tx = db.begin(Isolation::ReadCommitted);
        tx.put(family, key, "v").unwrap();
        tx.commit().unwrap();
        db.begin(Isolation::ReadCommitted).commit().unwrap(); // no operation
    }
    let stats = db.stats();
    let operations =
        [("gets", 36_000), ("multi_gets", 12_000), ("seeks", 12_000), ("puts", 24_000), ("commits", 24_000)];
    for ((name, times), (kind, operations)) in stats.times().into_iter().zip(operations) {
        assert_eq!(name, kind);
        check(times.count, operations, times.sampled_one_in, name);
    }
    for all in [&stats.syncs, &stats.flushes, &stats.merges] {
        assert_eq!(all.sampled_one_in, 0, "all are measured");
    }
    let text = stats.to_string();
    assert!(
        text.contains(&format!("gets\n  {:<25} {}\n", "sampled one in", stats.gets.sampled_one_in)),
        "{text}"
    );
}

#[test]
fn gets_that_wait_for_the_device_have_their_share() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..64_u32 {
        db.put(i.to_be_bytes(), noise(u64::from(i), 2000)).unwrap(); // in the value log
    }
    db.flush().unwrap();
    let clock = Arc::clone(&sim.clock);
    sim.disk.observe(OpKind::Read, move |_, _| clock.advance(SLOW));
    check_shares(
        &sim,
        40_000,
        || db.stats().gets,
        |i| match i % 4 {
            0 => assert!(db.get((i as u32 % 64).to_be_bytes()).unwrap().is_some()),
            _ => assert!(db.get("absent").unwrap().is_none()),
        },
    );
    sim.disk.stop_observing();
}

#[test]
fn a_multi_get_is_one_duration_whatever_it_reads() {
    let sim = Sim::new();
    let db = sim.open();
    let keys: Vec<_> = (0..64_u32).map(u32::to_be_bytes).collect();
    for (key, seed) in keys.iter().zip(0..) {
        db.put(key, noise(seed, 2000)).unwrap(); // in the value log
    }
    db.flush().unwrap();
    let clock = Arc::clone(&sim.clock);
    sim.disk.observe(OpKind::Read, move |_, _| clock.advance(SLOW));
    check_shares(
        &sim,
        40_000,
        || db.stats().multi_gets,
        |i| match i % 4 {
            0 => assert!(db.multi_get(&keys[..3]).unwrap().iter().all(Option::is_some)),
            _ => assert!(db.multi_get(&["absent", "also absent"]).unwrap().iter().all(Option::is_none)),
        },
    );
    assert_eq!(db.stats().gets.count, 0, "they do not count as gets");
    sim.disk.stop_observing();
}

#[test]
fn writes_that_wait_for_a_sync_have_their_share() {
    let sim = Sim::new();
    let db = sim.open();
    let clock = Arc::clone(&sim.clock);
    sim.disk.observe(OpSet::SYNCS, move |_, _| clock.advance(SLOW));
    let quick = WriteOptions::default().sync(SyncMode::None);
    let full = WriteOptions::default().sync(SyncMode::Full);
    let family = db.default_family();
    check_shares(
        &sim,
        20_000,
        || db.stats().puts,
        |i| assert!(family.put_with("k", "v", if i % 2 == 0 { &full } else { &quick }).is_ok()),
    );
    check_shares(
        &sim,
        20_000,
        || db.stats().commits,
        |i| {
            let mut tx = db.begin(Isolation::Serializable);
            tx.put(family, "k", "v").unwrap();
            tx.commit_with(if i % 2 == 0 { &full } else { &quick }).unwrap();
        },
    );
    sim.disk.stop_observing();
}

#[test]
fn the_function_that_reads_a_value_is_not_part_of_the_get() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("k", "v").unwrap();
    (0..8000).for_each(|_| assert!(db.get_map("k", |_| sim.clock.advance(SLOW)).unwrap().is_some()));
    let gets = db.stats().gets;
    assert!(gets.count > 0 && gets.longest < SLOW, "{gets:?}");
}

#[test]
fn operations_that_fail_are_measured() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 1, b"v");
    let view = db.clone();
    db.close().unwrap();
    (0..8000).for_each(|_| {
        assert!(view.get("k").is_err() && view.put("k", "v").is_err() && view.multi_get(&["k"]).is_err());
    });
    let stats = view.stats();
    assert!(stats.gets.count > 0 && stats.puts.count > 0 && stats.multi_gets.count > 0, "{stats}");
}
