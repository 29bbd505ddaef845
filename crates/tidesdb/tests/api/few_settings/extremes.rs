//! The least and the greatest value of every setting, under load: it works, or the open says which setting it refuses.
#![expect(clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, DbOptions, Error, Family, FamilyOptions, SyncMode};
use tidesdb_io::sim::OpKind;

use crate::common::{Pair, Sim, contents, small};

const ROWS: u32 = 1500;
/// Maximum number of tables that a close may write: two families have few memtables, whatever their size.
const TABLES_AT_CLOSE: u64 = 8;

type Set = Box<dyn Fn(&mut DbOptions)>;

fn open(sim: &Sim, set: &Set) -> tidesdb::Result<Db> {
    sim.options().background_threads(2).sync(SyncMode::None).with(set).open()
}

/// Writes to two families of a database with these settings, in commits of different sizes, and compares them with a model.
fn works(what: &str, set: Set, options: &FamilyOptions) {
    let sim = Sim::new();
    let db = match open(&sim, &set) {
        Err(Error::InvalidArgument { what: refused }) => {
            assert!(what.split(' ').any(|word| refused.contains(word)), "{what}: {refused}");
            return;
        }
        other => other.unwrap_or_else(|e| panic!("{what}: {e}")),
    };
    let families = ["one", "two"].map(|name| db.create_family(name, options.clone()).unwrap());
    let mut models = [BTreeMap::new(), BTreeMap::new()];
    for n in 0..ROWS {
        let (key, value) = ((n * 7919 % 700).to_be_bytes(), vec![n as u8; (n % 97) as usize * 8]);
        let mut batch = tidesdb::WriteBatch::new();
        for (family, model) in families.iter().zip(&mut models).take(1 + (n % 2) as usize) {
            match n % 5 {
                0 => batch.delete(family, &key).map(|()| model.remove(&key[..])).map(drop),
                _ => batch
                    .put(family, &key, &value)
                    .map(|()| model.insert(key.to_vec(), value.clone()))
                    .map(drop),
            }
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        db.write(&mut batch).unwrap_or_else(|e| panic!("{what}, row {n}: {e}"));
        if n % 500 == 499 {
            db.flush().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
    let is_there = |families: [Family; 2], when: &str| {
        for (family, model) in families.iter().zip(&models) {
            let wanted: Vec<Pair> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert!(contents(family) == wanted, "{what}: other rows {when}");
        }
    };
    is_there(families, "before the close");
    let tables = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&tables);
    sim.disk.observe(OpKind::Create, move |op, _| {
        counted.fetch_add(u64::from(op.path.ends_with(".klog")), SeqCst);
    });
    db.close_timeout(Duration::MAX).unwrap_or_else(|e| panic!("{what}: {e}"));
    sim.disk.stop_observing();
    let tables = tables.load(SeqCst);
    assert!(tables <= TABLES_AT_CLOSE || options.table_bytes == 1, "{what}: {tables} tables at the close");
    let db = open(&sim, &set).unwrap_or_else(|e| panic!("{what}: {e}"));
    is_there(["one", "two"].map(|name| db.family(name).unwrap()), "after it");
}

fn default_options() -> Set {
    Box::new(|_| ())
}

#[test]
fn the_extremes_of_every_setting_of_a_family_work() {
    let (mut least, mut greatest) = (small(), small());
    for info in FamilyOptions::TABLE {
        for (value, all) in [(info.domain.0, &mut least), (info.domain.1, &mut greatest)] {
            let mut options = small();
            options.set(info.name, value).unwrap();
            works(&format!("{} = {value}", info.name), default_options(), &options);
            all.set(info.name, value).unwrap();
        }
    }
    works("all at the least", default_options(), &least);
    works("all at the greatest", default_options(), &greatest);
}

#[test]
fn the_extremes_of_every_setting_of_a_database_work() {
    let cases: [(&str, Vec<Set>); 8] = [
        (
            "memory_limit",
            [1, u64::MAX].map(|n| Box::new(move |o: &mut DbOptions| o.memory_limit = n) as Set).into(),
        ),
        (
            "cache_bytes",
            [0, u64::MAX].map(|n| Box::new(move |o: &mut DbOptions| o.cache_bytes = n) as Set).into(),
        ),
        (
            "memtables_bytes_max",
            [0, u64::MAX].map(|n| Box::new(move |o: &mut DbOptions| o.memtables_bytes_max = n) as Set).into(),
        ),
        (
            "active_memtables_bytes_max",
            [1, u64::MAX]
                .map(|n| Box::new(move |o: &mut DbOptions| o.active_memtables_bytes_max = n) as Set)
                .into(),
        ),
        (
            "wal_bytes_max",
            [0, u64::MAX].map(|n| Box::new(move |o: &mut DbOptions| o.wal_bytes_max = n) as Set).into(),
        ),
        (
            "wal_segment_bytes",
            [0, 1, u64::MAX]
                .map(|n| Box::new(move |o: &mut DbOptions| o.wal_segment_bytes = n) as Set)
                .into(),
        ),
        (
            "background_threads",
            [0, 256, usize::MAX]
                .map(|n| Box::new(move |o: &mut DbOptions| o.background_threads = Some(n)) as Set)
                .into(),
        ),
        (
            "history_bytes",
            [0, u64::MAX].map(|n| Box::new(move |o: &mut DbOptions| o.history_bytes = n) as Set).into(),
        ),
    ];
    for (name, sets) in cases {
        for (n, set) in sets.into_iter().enumerate() {
            works(&format!("{name} (case {n})"), set, &small());
        }
    }
}

/// The unified memtable of the C library has one size for all families.
#[test]
fn active_memtables_have_a_common_limit() {
    const MAX: u64 = 64 << 10;
    let sim = Sim::new();
    let db = sim.options().with(|o| o.active_memtables_bytes_max = MAX).open().unwrap();
    let families: Vec<_> = (0..8).map(|n| db.create_family(&format!("f{n}"), small()).unwrap()).collect();
    let mut most = 0;
    for i in 0..4000u32 {
        families[i as usize % 8].put(&i.to_be_bytes(), &[1; 100]).unwrap();
        let active: u64 = families.iter().map(|f| f.stats().active_memtable_bytes).sum();
        assert!(active < MAX, "{active} bytes after {i} rows");
        most = most.max(active);
    }
    assert!(most > MAX / 2, "they are flushed before they are full: {most}");
    let flushes: u64 = families.iter().map(|f| f.stats().flushes).sum();
    assert!((8..400).contains(&flushes), "{flushes} flushes");
}
