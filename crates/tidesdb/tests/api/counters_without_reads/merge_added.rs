//! Merge operators that a family gets after it was created.

use std::io;
use std::sync::{Arc, Mutex};

use tidesdb::store::{Body, Object};
use tidesdb::{Db, Error, Family, MemoryStore, MergeOperator, ObjectStore, RemoteOptions};
use tidesdb_io::sim::{Image, OpSet, SimDisk};

use crate::common::{Sim, contents, small, value};

fn joined() -> tidesdb::FamilyOptions {
    small().merge_operator(MergeOperator::append("."))
}

/// Returns the text of an error that must be an invalid argument.
fn refused<T: std::fmt::Debug>(result: tidesdb::Result<T>) -> String {
    match result {
        Err(e @ Error::InvalidArgument { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_family_gets_an_operator_and_keeps_it() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("old", "a").unwrap();
    db.put("deleted", "a").unwrap();
    db.default_family().single_delete("deleted").unwrap();
    db.compact().unwrap();
    db.put("logged", "a").unwrap();
    assert!(matches!(db.merge("old", "b"), Err(Error::InvalidArgument { .. })));
    drop(db);
    let db = sim.options().default_family(joined()).open().unwrap();
    for key in ["old", "logged", "deleted", "new"] {
        db.merge(key, "b").unwrap();
    }
    let killed = sim.killed();
    db.close().unwrap();
    let wanted = [("deleted", "b"), ("logged", "a.b"), ("new", "b"), ("old", "a.b")];
    let wanted = wanted.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
    for sim in [killed, sim] {
        for _ in 0..2 {
            let db = sim.open_as_stored();
            assert_eq!(contents(db.default_family()), wanted);
            db.compact().unwrap();
            assert_eq!(contents(db.default_family()), wanted);
            db.close().unwrap();
        }
    }
}

#[test]
fn an_operator_is_neither_replaced_nor_removed() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    let e = refused(f.change_options_until_close(joined()));
    assert!(e.contains("by change_options"), "{e}");
    assert!(f.merge("k", "b").is_err(), "nothing changed");
    let f = db.family_or_create("f", joined()).unwrap();
    f.merge("k", "b").unwrap();
    drop(f);
    let check = |db: &Db| {
        let e = refused(db.family_or_create("f", small().merge_operator(MergeOperator::add())));
        assert!(e.contains("tidesdb.append:.") && e.contains("tidesdb.add"), "{e}");
        let f = db.family_or_create("f", small()).unwrap();
        let mut without = f.current_options();
        without.merge_operator = None;
        let e = refused(f.change_options(without));
        assert!(e.contains("tidesdb.append:.") && e.contains("none"), "{e}");
        db.family_or_create("f", joined()).unwrap().merge("k", "b").unwrap();
    };
    check(&db);
    drop(db);
    check(&sim.open());
    let db = sim.open();
    assert_eq!(value(&db.family("f").unwrap(), b"k").unwrap(), b"b.b.b");
    let reserved = MergeOperator::custom("tidesdb.mine", |_, _| Ok(()));
    refused(db.family_or_create("default", small().merge_operator(reserved)));
    assert!(db.merge("k", "b").is_err());
}

/// A custom operator that is added must be registered at the next open, like one that the family was created with.
#[test]
fn an_added_custom_operator_is_stored_by_name() {
    let mine = || {
        MergeOperator::custom("mine", |value, operand| {
            value.extend_from_slice(operand);
            Ok(())
        })
    };
    let sim = Sim::new();
    drop(sim.open());
    let db = sim.options().default_family(small().merge_operator(mine())).open().unwrap();
    db.merge("k", "a").unwrap();
    db.merge("k", "b").unwrap();
    drop(db);
    let e = refused(sim.options().open());
    assert!(e.contains("mine") && e.contains("OpenOptions::merge_operator"), "{e}");
    let options = sim.options().merge_operator(mine()).default_family(small().merge_operator(mine()));
    assert_eq!(value(options.open().unwrap().default_family(), b"k").unwrap(), b"ab");
}

#[test]
fn one_of_two_operators_that_are_added_at_once_wins() {
    for _ in 0..20 {
        let sim = Sim::new();
        let db = sim.open();
        db.create_family("f", small()).unwrap();
        let add = |separator: &str| {
            let options = small().merge_operator(MergeOperator::append(separator));
            let added = db.family_or_create("f", options);
            added.and_then(|f| f.merge("k", "b")).is_ok()
        };
        let won = std::thread::scope(|s| {
            let threads = [",", ";"].map(|separator| s.spawn(move || add(separator)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_ne!(won[0], won[1]);
        drop(db);
        let db = sim.open_as_stored();
        let f = db.family("f").unwrap();
        f.merge("k", "b").unwrap();
        assert_eq!(value(&f, b"k").unwrap(), if won[0] { b"b,b" } else { b"b;b" });
    }
}

/// After a crash at any step, the operator is there if an operand is, and the rows are those of a prefix of the commits.
#[test]
fn a_crash_while_an_operator_is_added_loses_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    f.put("k", "a").unwrap();
    let images: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let taken = Arc::clone(&images);
    sim.disk.observe(OpSet::CHANGES, move |_, fork| taken.lock().unwrap().push(fork));
    db.family_or_create("f", joined()).unwrap();
    f.merge("k", "b").unwrap();
    db.flush().unwrap();
    f.merge("k", "c").unwrap();
    db.compact().unwrap();
    sim.disk.stop_observing();
    let images = std::mem::take(&mut *images.lock().unwrap());
    let mut seen = std::collections::BTreeSet::new();
    for (n, image) in images.into_iter().enumerate() {
        let of_a_kill = Sim::on(image.fork());
        let of_a_power_loss = Sim::on(image.crash_image(&Image::SYNCED, n as u64));
        for after in [of_a_kill, of_a_power_loss] {
            let db = after.open();
            let f = db.family("f").unwrap();
            let found = String::from_utf8(value(&f, b"k").unwrap()).unwrap();
            assert!(["a", "a.b", "a.b.c"].contains(&&*found), "image {n}: {found}");
            // The same program runs again.
            let f = db.family_or_create("f", joined()).unwrap();
            f.merge("k", "d").unwrap();
            db.compact().unwrap();
            assert_eq!(value(&f, b"k").unwrap(), format!("{found}.d").as_bytes(), "image {n}");
            seen.insert(found);
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// A store that does something else while a table is stored.
#[derive(Default)]
struct Meanwhile {
    inner: MemoryStore,
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl ObjectStore for Meanwhile {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        if name.contains(".klog")
            && let Some(work) = self.work.lock().unwrap().take()
        {
            work();
        }
        self.inner.put(name, body)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.inner.get(name, sink)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.inner.list()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }
}

/// The log that an upload stores may hold commits after the state of the manifest that it stores. A restored database must know
/// their families and operators.
#[test]
fn an_upload_stores_no_log_that_its_manifest_cannot_replay() {
    type Change = fn(&Db, &Family);
    let changes: [Change; 2] = [
        |db, f| {
            db.family_or_create("default", joined()).unwrap();
            f.merge("k", "b").unwrap();
        },
        |db, _| {
            db.create_family("late", small()).unwrap().put("k", "a").unwrap();
        },
    ];
    for change in changes {
        let store = Arc::new(Meanwhile::default());
        let sim = Sim::new();
        let db = sim.options().remote(RemoteOptions::new(Arc::<Meanwhile>::clone(&store))).open().unwrap();
        db.put("k", "a").unwrap();
        let writer = db.clone();
        *store.work.lock().unwrap() = Some(Box::new(move || change(&writer, writer.default_family())));
        db.upload().unwrap();
        assert!(store.work.lock().unwrap().is_none());
        let restore = || {
            let sim = Sim::new();
            let copy = RemoteOptions::new(Arc::new(store.inner.fork()));
            sim.options_as_stored("/db").remote(copy).open().unwrap()
        };
        assert_eq!(
            value(restore().default_family(), b"k").unwrap(),
            b"a",
            "what was there when the upload began"
        );
        db.upload().unwrap();
        let restored = restore();
        assert_eq!(contents(restored.default_family()), contents(db.default_family()));
        assert_eq!(restored.families(), db.families());
    }
}
