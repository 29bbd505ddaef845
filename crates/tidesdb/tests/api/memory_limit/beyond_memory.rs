//! Databases whose indexes and filters alone are far larger than the cache.

use std::collections::BTreeMap;

use tidesdb::{Db, FamilyOptions, WriteBatch};

use crate::common::Sim;

const CACHE: u64 = 128 << 10;
const KEYS: u64 = 700_000;

type Model = BTreeMap<[u8; 8], u32>;

/// Scatters keys over the order of the writes.
fn key(i: u64) -> [u8; 8] {
    (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_be_bytes()
}

fn open(sim: &Sim, cache: u64) -> Db {
    let family = FamilyOptions::default().write_buffer_bytes(2 << 20).filter_bits_per_key(32);
    let options = sim.options().cache_bytes(cache).default_family(family);
    options.with(|o| o.wal_segment_bytes = 4 << 20).open().unwrap()
}

fn write(db: &Db, model: &mut Model, all: impl Iterator<Item = (u64, Option<u32>)>) {
    let mut batch = WriteBatch::new();
    for (n, (i, value)) in all.enumerate() {
        match value {
            Some(value) => {
                batch.put(db.default_family(), &key(i), &value.to_le_bytes()).unwrap();
                model.insert(key(i), value);
            }
            None => {
                batch.delete(db.default_family(), &key(i)).unwrap();
                model.remove(&key(i));
            }
        }
        if n % 1000 == 999 {
            db.write(&mut batch).unwrap();
        }
    }
    db.write(&mut batch).unwrap();
    db.flush().unwrap();
}

/// Gets, seeks and scans in both directions; the cache and the tables stay within their shared memory.
fn check(db: &Db, model: &Model) {
    let family = db.default_family();
    for i in (0..KEYS + 2000).step_by(331) {
        let found = family.get(&key(i)).unwrap().map(|value| value.to_vec());
        assert_eq!(found, model.get(&key(i)).map(|value| value.to_le_bytes().to_vec()));
        assert_eq!(family.get(&(u64::from_be_bytes(key(i)) & !1).to_be_bytes()).unwrap(), None);
        within_memory(db);
    }
    let mut cursor = family.cursor().unwrap();
    for i in (0..KEYS).step_by(4001) {
        cursor.seek(&key(i)).unwrap();
        let expected = model.range(key(i)..).next();
        assert_eq!(cursor.valid().then(|| cursor.key()), expected.map(|(key, _)| &key[..]));
    }
    drop(cursor);
    let mut rows = family.iter().unwrap();
    for (key, value) in model {
        let (found, bytes) = rows.next().unwrap().unwrap();
        assert_eq!((&found[..], &bytes[..]), (&key[..], &value.to_le_bytes()[..]));
    }
    assert!(rows.next().is_none());
    let mut rows = family.iter().unwrap().rev();
    for key in model.keys().rev() {
        assert_eq!(&rows.next().unwrap().unwrap().0[..], key);
    }
    assert!(rows.next().is_none());
    within_memory(db);
}

fn within_memory(db: &Db) {
    let resident = db.default_family().stats().resident_bytes;
    let used = db.stats().cache_bytes;
    assert!(used + resident.min(CACHE / 2) <= CACHE, "{used} bytes cached, {resident} resident");
}

#[test]
fn a_database_opens_reads_and_merges_with_a_twentieth_of_its_indexes_in_memory() {
    let sim = Sim::new();
    let mut model = Model::new();
    let db = open(&sim, CACHE);
    write(&db, &mut model, (0..KEYS).map(|i| (i, Some(i as u32))));
    db.compact().unwrap();
    db.close().unwrap();

    let db = open(&sim, 1 << 30);
    let whole = db.default_family().stats().resident_bytes;
    assert!(whole >= 20 * CACHE, "{whole}");
    db.close().unwrap();

    let db = open(&sim, CACHE);
    let resident = db.default_family().stats().resident_bytes;
    assert!(resident <= CACHE / 2, "{resident}");
    check(&db, &model);
    write(&db, &mut model, (0..KEYS).step_by(7).map(|i| (i, (i % 3 != 0).then_some(!i as u32))));
    check(&db, &model);
    db.compact().unwrap();
    check(&db, &model);
    assert!(db.verify().unwrap().damage.is_empty());
}
