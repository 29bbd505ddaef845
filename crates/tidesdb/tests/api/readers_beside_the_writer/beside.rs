//! A reader beside the writer.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidesdb::{Comparator, Db, Error, Family, FamilyOptions, Reader, RecoveryMode, SyncMode, WriteBatch};

use crate::common::{Pair, Random, Sim, contents, fill, joined, keys, letters, noise, small, value};

fn reader(sim: &Sim) -> Reader {
    sim.options().open_reader().unwrap()
}

/// Returns the contents of all families, by name.
fn everything(db: &Db) -> Vec<(String, Vec<Pair>)> {
    db.families().into_iter().map(|name| (name.clone(), contents(&db.family(&name).unwrap()))).collect()
}

#[test]
fn a_view_never_changes_and_a_refresh_shows_what_was_committed() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    let reader = reader(&sim);
    let before = reader.view();
    let seq = db.put(b"c", b"c").unwrap();
    db.delete(b"a").unwrap();
    assert_eq!(keys(before.iter()), ["a", "b"]);
    assert!(reader.seq() < seq);
    let after = reader.refresh().unwrap();
    assert_eq!(keys(after.iter()), ["b", "c"]);
    assert_eq!(keys(before.iter()), ["a", "b"], "also after the refresh");
    assert!(reader.seq() > seq);
    assert!(matches!(after.put(b"x", b"x"), Err(Error::ReadOnly)));
    assert!(matches!(after.flush(), Err(Error::ReadOnly)));
}

#[test]
fn a_refresh_without_a_change_returns_the_same_view() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    let reader = reader(&sim);
    let same = |a: &Db, b: &Db| a.snapshot().get(b.default_family(), b"a").is_ok();
    assert!(same(&reader.view(), &reader.refresh().unwrap()));
    let before = reader.view();
    db.put(b"c", b"c").unwrap();
    assert!(!same(&before, &reader.refresh().unwrap()));
}

#[test]
fn flushes_merges_and_removed_files_do_not_disturb_a_view() {
    let sim = Sim::new();
    let db = sim.open();
    let large = |n: u64| noise(n, 3000);
    for n in 0..50 {
        db.put(format!("k{n}"), large(n)).unwrap();
    }
    let reader = reader(&sim);
    let in_log = reader.view();
    db.flush().unwrap();
    let in_tables = reader.refresh().unwrap();
    for n in 0..50 {
        db.put(format!("k{n}"), large(n + 100)).unwrap();
    }
    db.compact().unwrap();
    db.put("k0", "short").unwrap();
    db.compact().unwrap();
    let now = reader.refresh().unwrap();
    for n in 0..50 {
        let get = |view: &Db| value(view.default_family(), format!("k{n}").as_bytes()).unwrap();
        assert_eq!((get(&in_log), get(&in_tables)), (large(n), large(n)), "{n}");
        assert_eq!(get(&now), if n == 0 { b"short".to_vec() } else { large(n + 100) }, "{n}");
    }
    assert!(now.verify().unwrap().is_ok());
}

#[test]
fn values_in_files_that_the_writer_has_removed_can_be_read() {
    let sim = Sim::new();
    let family = FamilyOptions::default().vlog_file_bytes(16 << 10);
    let db = sim.options().default_family(family).open().unwrap();
    for n in 0..50 {
        db.put(format!("k{n}"), noise(n, 3000)).unwrap();
    }
    db.compact().unwrap();
    let files = sim.disk.file_names("/db").unwrap();
    let view = reader(&sim).view();
    for n in 0..50 {
        db.put(format!("k{n}"), noise(n + 100, 3000)).unwrap();
    }
    sim.eventually(&db, |now| {
        let left = |suffix: &str| files.iter().filter(|f| f.ends_with(suffix) && now.contains(f)).count();
        left(".klog") == 0 && left(".vlog") <= 1 // the last one has newer values too
    });
    for n in 0..50 {
        assert_eq!(value(view.default_family(), format!("k{n}").as_bytes()).unwrap(), noise(n, 3000), "{n}");
    }
}

#[test]
fn families_come_and_go_between_refreshes() {
    let sim = Sim::new();
    let db = sim.open();
    let reader = reader(&sim);
    let one = db.create_family("one", FamilyOptions::default()).unwrap();
    letters(&one, "ab");
    assert_eq!(everything(&reader.refresh().unwrap()), everything(&db));
    let with_one = reader.view();
    db.rename_family("one", "two").unwrap();
    letters(&one, "c");
    assert_eq!(everything(&reader.refresh().unwrap()), everything(&db));
    db.drop_family("two").unwrap();
    let again = db.create_family("one", FamilyOptions::default()).unwrap();
    letters(&again, "x");
    assert_eq!(everything(&reader.refresh().unwrap()), everything(&db));
    assert_eq!(keys(with_one.family("one").unwrap().iter()), ["a", "b"]);
}

#[test]
fn the_writer_dies_recovers_and_closes() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    let reader = reader(&sim);
    db.put(b"c", b"c").unwrap();
    db.abandon();
    assert_eq!(keys(reader.refresh().unwrap().iter()), ["a", "b", "c"], "nothing was recovered yet");
    let db = sim.open();
    assert_eq!(keys(reader.refresh().unwrap().iter()), ["a", "b", "c"]);
    db.put(b"d", b"d").unwrap();
    assert_eq!(keys(reader.refresh().unwrap().iter()), ["a", "b", "c", "d"]);
    db.close().unwrap();
    assert_eq!(keys(reader.refresh().unwrap().iter()), ["a", "b", "c", "d"]);
    let db = sim.open();
    db.delete(b"a").unwrap();
    assert_eq!(keys(reader.refresh().unwrap().iter()), ["b", "c", "d"]);
}

#[test]
fn a_reader_neither_locks_nor_changes_the_directory() {
    let sim = Sim::new();
    assert!(matches!(sim.options().open_reader(), Err(Error::NotFound { .. })));
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    let before = sim.disk.file_names("/db").unwrap();
    let reader = reader(&sim);
    reader.refresh().unwrap();
    assert_eq!(sim.disk.file_names("/db").unwrap(), before);
    db.close().unwrap();
    drop(sim.open());
    let salvage = sim.options().recovery(RecoveryMode::Salvage).open_reader();
    assert!(matches!(salvage, Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_log_larger_than_a_segment_is_followed() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let reader = reader(&sim);
    for round in 0..40u32 {
        // Records of all lengths: pads, segments without room for a pad, and oversized ones, which have a file of their own.
        for n in 0..20u32 {
            let len = (round * 20 + n) as usize * 7 % 450;
            db.put(format!("{:03}", n * round % 97), noise(u64::from(n), len)).unwrap();
        }
        if round % 10 == 3 {
            let mut batch = WriteBatch::new();
            for n in 0..1000 {
                batch
                    .put(db.default_family(), format!("{:03}", n % 300), noise(u64::from(round), 100))
                    .unwrap();
            }
            db.write(&mut batch).unwrap();
        }
        assert_eq!(everything(&reader.refresh().unwrap()), everything(&db), "round {round}");
    }
}

#[test]
fn a_comparator_is_given_or_the_family_is_left_out() {
    let sim = Sim::new();
    let by_length = || Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    let db = sim.options().comparator(by_length()).open().unwrap();
    let words = db.create_family("words", FamilyOptions::default().comparator(by_length())).unwrap();
    words.put(b"long", b"1").unwrap();
    words.put(b"x", b"2").unwrap();
    assert!(matches!(sim.options().open_reader(), Err(Error::InvalidArgument { .. })));
    let without = sim.options().allow_unknown(true).open_reader().unwrap();
    assert_eq!(without.view().families(), ["default"]);
    let with = sim.options().comparator(by_length()).open_reader().unwrap();
    assert_eq!(keys(with.view().family("words").unwrap().iter()), ["x", "long"]);
    db.flush().unwrap();
    words.put(b"mid", b"3").unwrap();
    assert_eq!(keys(with.refresh().unwrap().family("words").unwrap().iter()), ["x", "mid", "long"]);
    without.refresh().unwrap();
}

fn change(dice: &mut Random, db: &Db, families: &[Family]) {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + dice.below(8) {
        let family = &families[dice.index(families.len())];
        let key = format!("{:03}", dice.below(200));
        match dice.below(10) {
            0 => batch
                .delete_range(family, key.as_bytes().to_vec()..b"1".to_vec())
                .map(drop)
                .unwrap_or_default(),
            1 | 2 => batch.delete(family, key).map(drop).unwrap(),
            3 => batch.put(family, key, noise(dice.below(1000), 5000)).map(drop).unwrap(),
            _ => batch.put(family, key, noise(dice.below(1000), 50)).map(drop).unwrap(),
        }
    }
    db.write(&mut batch).unwrap();
}

#[test]
fn every_refresh_shows_what_the_writer_has() {
    for seed in 0..4 {
        let sim = Sim::new();
        let mut dice = Random::new(seed);
        let mut db = sim.open();
        let open = |db: &Db| -> Vec<Family> {
            let tiny = FamilyOptions::default().vlog_file_bytes(64 << 10);
            let tiny = tiny.write_buffer_bytes(64 << 10);
            (0..3).map(|n| db.family_or_create(&format!("f{n}"), tiny.clone()).unwrap()).collect()
        };
        let mut families = open(&db);
        let reader = reader(&sim);
        let mut views = Vec::new();
        for step in 0..400 {
            for _ in 0..dice.below(20) {
                change(&mut dice, &db, &families);
            }
            match dice.below(40) {
                0 => db.compact().unwrap(),
                1 | 2 => db.flush().unwrap(),
                3 => {
                    families.clear();
                    if dice.below(2) == 0 {
                        db.abandon()
                    } else {
                        db.close().unwrap()
                    }
                    db = sim.open();
                    families = open(&db);
                }
                _ => {}
            }
            let view = reader.refresh().unwrap();
            assert_eq!(everything(&view), everything(&db), "seed {seed}, step {step}");
            if dice.one_in(20) {
                views.push((everything(&view), Arc::new(view)));
            }
            if dice.one_in(30) && !views.is_empty() {
                let (was, view) = views.swap_remove(dice.index(views.len()));
                assert_eq!(everything(&view), was, "seed {seed}, step {step}: an older view");
            }
        }
        for (was, view) in views {
            assert_eq!(everything(&view), was, "seed {seed}: an older view at the end");
        }
    }
}

/// What a batch does with a key.
#[derive(Clone, Copy, Debug)]
enum Write {
    Put(u8),
    /// Puts a value that goes to the value log.
    PutLong(u8),
    PutExpired,
    Delete,
    SingleDelete,
    DeleteRange,
    Merge(u8),
}

impl Write {
    fn add(self, batch: &mut WriteBatch, family: &Family, key: &[u8]) {
        match self {
            Self::Put(n) => batch.put(family, key, [n]),
            Self::PutLong(n) => batch.put(family, key, noise(u64::from(n), 3000)),
            Self::PutExpired => batch.put_expiring(family, key, b"old", UNIX_EPOCH + Duration::from_secs(1)),
            Self::Delete => batch.delete(family, key),
            Self::SingleDelete => batch.single_delete(family, key),
            Self::DeleteRange => batch.delete_range(family, key..=key),
            Self::Merge(n) => batch.merge(family, key, [n]),
        }
        .unwrap();
    }
}

/// Returns keys, and what a batch writes to each: all pairs of operations, and some of three. Keys that begin with `o` have older rows.
fn writes_to_one_key(merges: bool) -> Vec<(Vec<u8>, Vec<Write>)> {
    use Write::{Delete, DeleteRange, Merge, Put, PutExpired, PutLong, SingleDelete};
    let mut all = vec![Put(1), Put(2), PutLong(3), PutLong(4), PutExpired, Delete, DeleteRange];
    all.extend(if merges { vec![Merge(5), Merge(6)] } else { vec![] });
    let pairs = all.iter().flat_map(|a| all.iter().map(|b| vec![*a, *b]));
    let triples = all.iter().map(|a| vec![Put(7), *a, *all.last().unwrap()]);
    let mut writes: Vec<_> = pairs.chain(triples).collect();
    writes.push(vec![Put(8); 40]);
    let keyed = |age: &str| -> Vec<_> {
        writes.iter().enumerate().map(|(n, w)| (format!("{age}{n:03}").into_bytes(), w.clone())).collect()
    };
    [keyed("n"), keyed("o"), vec![(b"single".to_vec(), vec![Put(9), SingleDelete])]].concat()
}

/// The reader has a batch and older commits in one memtable when the flush of the older ones divides it. The copy once reversed the
/// writes of a batch to one key: after a put and a delete, the row was there again.
#[test]
fn the_last_write_of_a_batch_to_a_key_counts_also_when_a_flush_divides_its_memtable() {
    let kinds = [
        joined(),
        small(),
        joined().comparator(Comparator::reverse_bytewise()),
        joined().comparator(Comparator::case_insensitive()),
    ];
    for (n, options) in kinds.into_iter().enumerate() {
        let sim = Sim::new();
        let db = sim.open();
        let create = |name| db.create_family(name, options.clone()).unwrap();
        let (family, singly) = (create("family"), create("singly"));
        let writes = writes_to_one_key(n != 1);
        let mut batch = WriteBatch::new();
        for (key, _) in writes.iter().filter(|(key, _)| key[0] == b'o') {
            batch.put(&family, key, b"old").unwrap();
            batch.put(&singly, key, b"old").unwrap();
        }
        db.write(&mut batch).unwrap();
        let reader = Arc::new(reader(&sim));
        family.start_flush().unwrap();
        // The hook runs after the commit is visible and before the flush, which the commit runs at its end.
        let beside = Arc::clone(&reader);
        family.set_commit_hook(Some(Arc::new(move |_: &tidesdb::Committed<'_>| {
            beside.refresh().unwrap();
        })));
        for (key, writes) in &writes {
            let other = key.to_ascii_uppercase();
            for (i, write) in writes.iter().enumerate() {
                let key = if n == 3 && i == 1 { &other } else { key };
                write.add(&mut batch, &family, key);
            }
        }
        db.write(&mut batch).unwrap();
        assert_eq!((family.stats().flushes, family.stats().memtable_entries > 0), (1, true));
        let divided = reader.refresh().unwrap();
        for (key, writes) in &writes {
            for write in writes {
                write.add(&mut batch, &singly, key);
                db.write(&mut batch).unwrap();
            }
        }
        let expected = contents(&singly);
        let compare = |what: &str, family: &Family| {
            for (key, writes) in &writes {
                let right = expected.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
                assert!(value(family, key) == right, "kind {n}, {what}: {} {writes:?}", key.escape_ascii());
            }
            let values = |rows: &[Pair]| -> Vec<_> { rows.iter().map(|(_, v)| v.clone()).collect() };
            assert!(values(&contents(family)) == values(&expected), "kind {n}, {what}");
        };
        compare("the writer", &family);
        compare("the reader", &divided.family("family").unwrap());
        let late = sim.options().open_reader().unwrap();
        compare("a new reader", &late.view().family("family").unwrap());
        let killed = sim.killed();
        compare("after a kill", &killed.open().family("family").unwrap());
        db.flush().unwrap();
        compare("the writer's table", &family);
        compare("the reader's table", &reader.refresh().unwrap().family("family").unwrap());
        db.compact().unwrap();
        compare("merged", &family);
    }
}
