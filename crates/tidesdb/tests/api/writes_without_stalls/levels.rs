//! Trees of many levels: what merges and moves between them keep, and what they cost.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use tidesdb::{Family, FamilyOptions, Snapshot, SyncMode};

use crate::common::{Sim, contents, noise, pairs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Memtables and tables so small that some thousand rows make four levels.
fn tiny() -> FamilyOptions {
    FamilyOptions::default()
        .write_buffer_bytes(16 << 10)
        .table_bytes(8 << 10)
        .l1_tables_trigger(2)
        .level_size_ratio(3)
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Options of a tree with this size ratio, number of levels, offset of the dividing level, and trigger of level 1.
fn shaped((ratio, levels, offset, trigger): (u64, u32, u32, usize)) -> FamilyOptions {
    tiny().level_size_ratio(ratio).min_levels(levels).dividing_level_offset(offset).l1_tables_trigger(trigger)
}

/// Puts, deletes, range deletes and snapshots over many levels, with any shape of the tree: answers are those of the model at
/// all times, and so they are after the settings change and after a reopening.
#[test]
fn histories_over_many_levels_match_the_model() {
    let shapes = [(3, 1, 1, 2), (2, 1, 0, 1), (4, 4, 2, 3), (10, 6, 1, 2), (2, 1, 3, 4)];
    let mut depths = Vec::new();
    for (round, shape) in shapes.into_iter().enumerate() {
        let sim = Sim::new();
        let db = sim.options().default_family(shaped(shape)).open().unwrap();
        let f = db.default_family();
        let (mut model, mut old): (Model, Vec<(Snapshot, Model)>) = (Model::new(), Vec::new());
        let dice = noise(round as u64 + 1, 40_000);
        for (step, roll) in dice.chunks_exact(4).enumerate() {
            let n = u64::from(roll[1]) * 40 + u64::from(roll[2] % 40);
            match roll[0] {
                0..190 => {
                    let value = noise(step as u64, 60 + usize::from(roll[3]));
                    f.put(&key(n), &value).unwrap();
                    model.insert(key(n), value);
                }
                190..250 => {
                    f.delete(&key(n)).unwrap();
                    model.remove(&key(n));
                }
                250 => {
                    f.delete_range(key(n)..key(n + 300)).unwrap();
                    model.retain(|k, _| *k < key(n) || *k >= key(n + 300));
                }
                251..253 => f.compact_range(key(n)..key(n + 100)).unwrap(),
                _ if old.len() < 2 => old.push((db.snapshot(), model.clone())),
                _ => drop(old.remove(0)),
            }
            if step % 2500 == 0 {
                assert_eq!(contents(f).into_iter().collect::<Model>(), model, "shape {round}, step {step}");
            }
        }
        depths.push(f.stats().level_tables.len());
        assert!(contents(f).into_iter().collect::<Model>() == model, "shape {round}, at the end");
        for (snapshot, then) in &old {
            assert!(
                pairs(snapshot.iter(f).unwrap()).into_iter().collect::<Model>() == *then,
                "shape {round}"
            );
        }
        drop(old);
        f.change_options(f.current_options().min_levels(30)).unwrap();
        f.put(&key(1), b"runs what is due").unwrap();
        model.insert(key(1), b"runs what is due".to_vec());
        assert_eq!(f.stats().level_tables.len(), 30, "the data moved to the new largest level");
        let check = |f: &Family, when: &str| {
            assert!(contents(f).into_iter().collect::<Model>() == model, "shape {round}, {when}");
        };
        check(f, "with more levels");
        assert!(db.verify().unwrap().is_ok());
        db.close().unwrap();
        let db = sim.open();
        check(db.default_family(), "opened again");
        db.default_family().compact().unwrap();
        check(db.default_family(), "compacted");
        let stats = db.default_family().stats();
        assert_eq!((stats.table_entries, stats.tombstones), (model.len() as u64, 0));
        assert!(db.verify().unwrap().is_ok());
    }
    assert!(depths.iter().max() >= Some(&4), "{depths:?}");
}

/// Rows in order are written once, by the flush; with a hot key in each memtable about once more.
#[test]
fn an_ordered_load_is_not_rewritten_and_a_hot_key_costs_one_rewrite() {
    for (hot, most) in [(None, 0.0), (Some(&b"hot"[..]), 1.5)] {
        let sim = Sim::new();
        let options = tiny().write_buffer_bytes(256 << 10).table_bytes(64 << 10);
        let db = sim.options().default_family(options).open().unwrap();
        let f = db.default_family();
        for i in 0..60_000 {
            f.put(&key(i), &noise(i, 100)).unwrap();
            if let Some(hot) = hot
                && i % 50 == 0
            {
                f.put(hot, &i.to_be_bytes()).unwrap();
            }
        }
        let stats = f.stats();
        let rewritten = stats.compaction_written as f64 / stats.flush_bytes as f64;
        assert!(stats.flushes > 20 && rewritten <= most, "{rewritten}: {stats:?}");
        assert!(stats.level_tables[0] < 4 && stats.level_tables.len() >= 3, "{:?}", stats.level_tables);
        assert_eq!(contents(f).len(), 60_000 + usize::from(hot.is_some()));
        assert!(db.verify().unwrap().is_ok());
    }
}

/// Rows with a time to live: tables of which every row has expired go unread, while what is younger stays.
#[test]
fn tables_whose_rows_have_all_expired_go_unread() {
    let sim = Sim::new();
    let db = sim.options().default_family(tiny()).open().unwrap();
    let f = db.default_family();
    for i in 0..4000 {
        f.put_with_ttl(&key(i), &noise(i, 100), Duration::from_secs(10)).unwrap();
    }
    sim.clock.advance(Duration::from_secs(5));
    let written = f.stats().compaction_written;
    for i in 4000..5000 {
        f.put_with_ttl(&key(i), &noise(i, 100), Duration::from_secs(10)).unwrap();
    }
    assert!(f.stats().table_entries > 4000);
    sim.clock.advance(Duration::from_secs(6));
    db.flush().unwrap();
    f.put(b"run", b"what is due").unwrap();
    let stats = f.stats();
    assert!(stats.table_entries <= 1100, "{stats:?}");
    assert_eq!(stats.compaction_written, written, "nothing was rewritten");
    assert_eq!(contents(f).len(), 1001);
    sim.clock.advance(Duration::from_secs(60));
    db.flush().unwrap();
    f.put(b"run", b"again").unwrap();
    assert_eq!(contents(f).len(), 1);
    assert!(f.stats().table_entries <= 1, "{:?}", f.stats());
}

/// With threads: several merges of one family at a time, beside flushes, manual merges and changes of the settings.
#[test]
fn merges_beside_each_other_keep_every_row() {
    let sim = Sim::new();
    let options = sim.options().sync(SyncMode::None).background_threads(8).default_family(tiny());
    let db = options.open().unwrap();
    let f = db.default_family();
    thread::scope(|s| {
        for writer in 0..3u64 {
            s.spawn(move || {
                for i in 0..6000 {
                    let n = (i * 7919 + writer) % 9000;
                    f.put(&key(n * 3 + writer), &noise(i, 100)).unwrap();
                    if i % 3 == 0 {
                        f.delete(&key(((n + 17) % 9000) * 3 + writer)).unwrap();
                    }
                    if i % 1500 == 700 {
                        f.delete_range(key(n * 3)..key(n * 3 + 60)).unwrap();
                    }
                }
            });
        }
        s.spawn(move || {
            for i in 0..6u32 {
                f.change_options_until_close(f.current_options().level_size_ratio(u64::from(2 + i % 3)))
                    .unwrap();
                f.compact_range(key(3000)..key(4000)).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        });
    });
    db.flush().unwrap();
    let before = contents(f);
    assert!(before.len() > 5000);
    assert!(db.verify().unwrap().is_ok());
    f.compact().unwrap();
    assert!(contents(f) == before);
    let stats = f.stats();
    assert_eq!((stats.table_entries, stats.tombstones, stats.range_tombstones), (before.len() as u64, 0, 0));
    assert!(db.verify().unwrap().is_ok());
}

/// The tree of the statistics says the same as the figures of the family, and its debt is what automatic merges then do.
#[test]
fn the_tree_in_figures() {
    let sim = Sim::new();
    let db = sim.options().default_family(tiny()).open().unwrap();
    for n in 0..12_000u64 {
        db.put(&key(n * 7919 % 12_000), &noise(n, 40)).unwrap();
    }
    db.flush().unwrap();
    let (tree, stats) = (db.default_family().tree(), db.default_family().stats());
    assert!(tree.levels.len() >= 4 && tree.largest_level == tree.levels.len(), "{tree:?}");
    assert!(tree.tiered_level < tree.largest_level && tree.partitions > 1 && tree.order_is_known);
    assert_eq!(tree.tables, stats.level_tables.iter().sum::<usize>());
    for (level, n) in tree.levels.iter().zip(0..) {
        let is_same = (level.tables, level.bytes, level.entries, level.tombstones)
            == (
                stats.level_tables[n],
                stats.level_bytes[n],
                stats.level_entries[n],
                stats.level_tombstones[n],
            );
        assert!(is_same && level.level == n + 1, "{level:?} {stats:?}");
        assert!((level.fill - level.bytes as f64 / level.capacity_bytes as f64).abs() < 1e-9);
    }
    let largest = tree.levels.last().unwrap();
    assert!(
        largest.first_key < key(20) && (key(11_980)..=key(11_999)).contains(&largest.last_key),
        "{largest:?}"
    );
    assert!(
        tree.levels[0].oldest_seq > largest.oldest_seq && tree.levels[0].capacity_bytes == 2 * (16 << 10)
    );
    assert_eq!(stats.merged_bytes.iter().sum::<u64>(), stats.compaction_written);
    assert!(stats.write_amplification > 1.0, "{stats:?}");

    db.cancel_compactions().unwrap();
    for n in 0..3000u64 {
        db.put(&key(n * 7919 % 12_000), &noise(n, 40)).unwrap();
    }
    db.flush().unwrap();
    let tree = db.default_family().tree();
    assert_eq!(tree.levels[0].debt_bytes, tree.levels[0].bytes, "level 1 is due");
    let all = db.stats();
    assert!(all.merge_debt_bytes == tree.debt_bytes && tree.debt_bytes > 0 && all.merge_debt_seconds > 0.0);
    assert_eq!(db.health().state, tidesdb::HealthState::Degraded);
    db.compact().unwrap();
    let tree = db.default_family().tree();
    let largest = tree.levels.last().unwrap();
    assert_eq!((&*largest.first_key, &*largest.last_key), (&*key(0), &*key(11_999)));
    assert_eq!(tree.debt_bytes, 0);
}
