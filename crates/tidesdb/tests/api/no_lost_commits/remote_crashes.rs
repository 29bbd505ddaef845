//! Loses a database with an object store at every point: the folder, the process, or the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb::{Db, MemoryStore, ObjectStore, RemoteOptions, WriteBatch};
use tidesdb_io::{Env, sim};

use crate::no_lost_commits::remote::{Rows, Watched, cold, options, rows, small};

/// Number of transactions in the script.
const COMMITS: u32 = 120;

/// Returns a key of transaction `i`. Keys repeat, so that merges can drop entries.
fn key(i: u32) -> Vec<u8> {
    format!("key{:03}", i % 37).into_bytes()
}

fn value(i: u32, family: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(4) { 700 } else { 30 };
    (0..len).map(|at: u32| (i * 7 + family * 13 + at * at) as u8).chain(i.to_le_bytes()).collect()
}

/// Commits transaction `i`: it writes to both families; every seventh also deletes.
fn commit(db: &Db, i: u32) -> tidesdb::Result<()> {
    let (one, two) = (db.default_family().clone(), db.family("two")?);
    let mut batch = WriteBatch::new();
    batch.put(&one, &key(i), &value(i, 1))?;
    batch.put(&two, &key(i * 5), &value(i, 2))?;
    if i % 7 == 6 {
        batch.delete(&one, &key(i + 3))?;
    }
    db.write(&mut batch).map(drop)
}

/// Returns the contents of both families after each number of transactions.
fn history() -> Vec<(Rows, Rows)> {
    let (mut one, mut two) = (Rows::new(), Rows::new());
    let mut all = vec![(one.clone(), two.clone())];
    for i in 0..COMMITS {
        one.insert(key(i), value(i, 1));
        two.insert(key(i * 5), value(i, 2));
        if i % 7 == 6 {
            one.remove(&key(i + 3));
        }
        all.push((one.clone(), two.clone()));
    }
    all
}

/// Returns the number of transactions in `db`; panics if its contents are not a prefix.
fn prefix_of(db: &Db, history: &[(Rows, Rows)], what: &str) -> usize {
    let one = rows(db.default_family());
    let two = db.family("two").map_or_else(|_| Rows::new(), |two| rows(&two));
    let found = history.iter().position(|(a, b)| *a == one && *b == two);
    found.unwrap_or_else(|| panic!("{what}: a mixture of {} and {} rows", one.len(), two.len()))
}

/// Runs the script's other operations after transaction `i`. With a failing store only uploads may fail.
fn beside(db: &Db, i: u32) -> bool {
    if i % 31 == 30 {
        db.default_family().compact().unwrap();
    }
    if i % 23 == 22 {
        db.family("two").unwrap().flush().unwrap();
    }
    i % 5 == 4 && db.upload().is_ok()
}

fn remote(store: &Arc<Watched>, log: bool, local_bytes_max: u64) -> RemoteOptions {
    let mut remote = RemoteOptions::new(Arc::<Watched>::clone(store));
    (remote.replicate_log, remote.local_bytes_max) = (log, local_bytes_max);
    remote
}

#[test]
fn a_folder_lost_at_any_time_is_restored_as_a_prefix() {
    let history = history();
    for log in [true, false] {
        let store = Arc::new(Watched::default());
        let (env, _disk, _clock) = sim::env(11);
        let db = options(&env, remote(&store, log, 0)).open().unwrap();
        db.create_family("two", small()).unwrap();
        // For each state of the store: the number of commits covered by the last upload that had returned before it.
        let mut promised: Vec<usize> = Vec::new();
        let mut uploaded = 0;
        for i in 0..COMMITS {
            commit(&db, i).unwrap();
            let done = beside(&db, i);
            promised.resize(store.states.lock().unwrap().len(), uploaded);
            if done {
                uploaded = i as usize + 1;
            }
        }
        drop(db);
        promised.resize(store.states.lock().unwrap().len(), uploaded);
        let states = std::mem::take(&mut *store.states.lock().unwrap());
        assert!(states.len() > 100, "{}", states.len());
        let mut reached = 0;
        for (n, (state, promised)) in states.iter().zip(promised).enumerate() {
            let what = format!("log {log}, change {n}");
            if !state.list().unwrap().iter().any(|object| object.name == "CURRENT") {
                assert_eq!(promised, 0, "{what}");
                continue;
            }
            let (db, env, _disk) = cold(Arc::new(state.clone()));
            let found = prefix_of(&db, &history, &what);
            assert!(found >= promised.max(reached), "{what}: {found} of {promised}, {reached} before");
            reached = found;
            // The restored database is usable: more commits, and the folder is lost again.
            db.put(b"later", b"1").unwrap();
            db.upload().unwrap();
            drop((db, env));
            let (db, _env, _disk) = cold(Arc::new(state.clone()));
            assert!(db.contains(b"later").unwrap(), "{what}");
            db.delete(b"later").unwrap();
            assert_eq!(prefix_of(&db, &history, &what), found);
        }
        assert_eq!(reached, COMMITS as usize);
    }
}

#[test]
fn a_store_that_fails_at_any_call_fails_no_commit_and_catches_up() {
    let history = history();
    let life = |from: u64, count: u64| {
        let store = Arc::new(Watched::default());
        let (env, _disk, _clock) = sim::env(12);
        let db = options(&env, remote(&store, from.is_multiple_of(2), 0)).open().unwrap();
        db.create_family("two", small()).unwrap();
        store.fail(from, count);
        for i in 0..COMMITS {
            commit(&db, i).unwrap();
            beside(&db, i);
        }
        let calls = store.calls();
        let failures = db.stats().remote.unwrap().upload_failures;
        assert_eq!(failures > 0, count > 0 && calls > from, "call {from}");
        store.fail(u64::MAX, 0);
        db.upload().unwrap();
        let what = format!("call {from}, {count} of them");
        let (copy, _env, _disk) = cold(Arc::new(store.inner.fork()));
        assert_eq!(prefix_of(&copy, &history, &what), COMMITS as usize, "{what}");
        drop(db); // closes the database: no garbage is left
        let (copy, _env, _disk) = cold(Arc::new(store.inner.fork()));
        assert_eq!(prefix_of(&copy, &history, &what), COMMITS as usize, "{what}");
        calls
    };
    let calls = life(u64::MAX, 0);
    assert!(calls > 100, "{calls}");
    for from in 0..calls {
        life(from, if from % 3 == 0 { 9 } else { 1 });
    }
}

/// Files once left the folder before the manifest in the store named them. The next open does not trust such an object.
#[test]
fn a_process_that_ends_within_an_upload_loses_no_file_that_left_the_folder() {
    let family = small().vlog_file_bytes(4096);
    let life = |from: u64| {
        let store = Arc::new(Watched::default());
        let (env, disk, _clock) = sim::env(16);
        let db = options(&env, remote(&store, true, 1)).default_family(family.clone()).open().unwrap();
        db.create_family("two", family.clone()).unwrap();
        store.fail(from, u64::MAX);
        let mut commits = 0;
        while commits < COMMITS / 2 {
            commit(&db, commits).unwrap();
            if commits % 13 == 12 {
                let _ = db.default_family().compact(); // fails once the store does
            }
            commits += 1;
            if commits % 5 == 0 && db.upload().is_err() {
                break;
            }
        }
        let (env, _disk, _clock) = sim::env_on(disk.fork(), 17);
        db.abandon();
        let calls = store.calls();
        let store = Arc::new(store.inner.fork());
        let what = format!("call {from}");
        let again = options(&env, RemoteOptions::new(store)).default_family(family.clone()).open();
        let db = again.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(prefix_of(&db, &history(), &what), commits as usize, "{what}");
        calls
    };
    let calls = life(u64::MAX);
    assert!(calls > 50, "{calls}");
    for from in 0..calls {
        life(from);
    }
}

#[test]
fn a_restore_interrupted_at_any_call_can_be_repeated() {
    let history = history();
    let store = Arc::new(Watched::default());
    let (env, _disk, _clock) = sim::env(13);
    let db = options(&env, remote(&store, true, 0)).open().unwrap();
    db.create_family("two", small()).unwrap();
    for i in 0..COMMITS {
        commit(&db, i).unwrap();
        beside(&db, i);
    }
    db.upload().unwrap();
    drop(db.clone());
    let kept = store.inner.fork();
    db.abandon();
    for at in 0.. {
        let (env, disk, _clock) = sim::env(14);
        disk.crash_at(at);
        let what = format!("local call {at}");
        let open =
            |env: &Env, store: &MemoryStore| options(env, RemoteOptions::new(Arc::new(store.fork()))).open();
        let complete = open(&env, &kept).is_ok_and(|db| {
            db.abandon();
            true
        });
        for image in [sim::Image::SYNCED, sim::Image::EVERYTHING] {
            let (env, _disk, _clock) = sim::env_on(disk.crash_image(&image, at), 14);
            let db = open(&env, &kept).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(prefix_of(&db, &history, &what), COMMITS as usize, "{what}");
        }
        if complete {
            assert!(at > 30, "{at}");
            break;
        }
    }
}

#[test]
fn failed_fetches_do_not_poison_the_database() {
    let history = history();
    let store = Arc::new(Watched::default());
    let (env, _disk, _clock) = sim::env(15);
    let family = small().vlog_file_bytes(4096);
    let db = options(&env, remote(&store, true, 1)).default_family(family.clone()).open().unwrap();
    db.create_family("two", family).unwrap();
    for i in 0..COMMITS / 2 {
        commit(&db, i).unwrap();
        beside(&db, i);
    }
    db.upload().unwrap();
    assert!(db.stats().remote.unwrap().evictions > 0);
    store.fail(0, u64::MAX);
    let mut failed = 0;
    for i in COMMITS / 2..COMMITS {
        commit(&db, i).unwrap();
        failed += u32::from(db.default_family().compact().is_err());
        failed += u32::from(db.upload().is_err());
    }
    assert!(failed > COMMITS / 2, "{failed}");
    store.fail(u64::MAX, 0);
    assert_eq!(prefix_of(&db, &history, "healed"), COMMITS as usize);
    db.default_family().compact().unwrap();
    db.close().unwrap();
}

/// One database, whose families are made on the way, over several sessions.
struct Life {
    store: Arc<Watched>,
    env: Env,
    db: Option<Db>,
    /// The contents after each number of commits, by name of the family.
    history: Vec<BTreeMap<String, Rows>>,
    /// For each state of the store, the number of commits that an upload had promised before.
    promised: Vec<usize>,
    uploaded: usize,
}

impl Life {
    fn new() -> Self {
        let (store, (env, disk, _)) = (Arc::new(Watched::default()), sim::env(14));
        disk.log_ops(false);
        let mut life = Self { store, env, db: None, history: Vec::new(), promised: Vec::new(), uploaded: 0 };
        life.open();
        life.history.push(BTreeMap::from([("default".to_owned(), Rows::new())]));
        life
    }

    fn open(&mut self) {
        let store: Arc<dyn ObjectStore> = Arc::<Watched>::clone(&self.store);
        self.db = Some(options(&self.env, RemoteOptions::new(store)).open().unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn create(&mut self, name: &str) {
        self.db().create_family(name, small()).unwrap();
        let mut now = self.history.last().unwrap().clone();
        now.insert(name.to_owned(), Rows::new());
        self.history.push(now);
    }

    fn drop_family(&mut self, name: &str) {
        self.db().drop_family(name).unwrap();
        let mut now = self.history.last().unwrap().clone();
        now.remove(name);
        self.history.push(now);
    }

    fn rename(&mut self, old: &str, new: &str) {
        self.db().rename_family(old, new).unwrap();
        let mut now = self.history.last().unwrap().clone();
        let rows = now.remove(old).unwrap();
        now.insert(new.to_owned(), rows);
        self.history.push(now);
    }

    /// Commits to all families. Keys repeat, so that values die.
    fn commit(&mut self) {
        let i = self.history.len() as u32;
        let (mut batch, mut now) = (WriteBatch::new(), self.history.last().unwrap().clone());
        for (n, (name, rows)) in now.iter_mut().enumerate() {
            let len = if i.is_multiple_of(3) { 900 } else { 430 };
            let value: Vec<u8> =
                (0..len).map(|at: u32| (i * 7 + n as u32 + at * at) as u8).chain(i.to_le_bytes()).collect();
            let key = format!("key{}", i % 11).into_bytes();
            batch.put(&self.db().family(name).unwrap(), &key, &value).unwrap();
            rows.insert(key, value);
        }
        self.db().write(&mut batch).unwrap();
        self.history.push(now);
        if i.is_multiple_of(9) {
            self.db().flush().unwrap();
        }
    }

    /// Commits and uploads by turns. Each upload fails from some call on, if the store is not `up`.
    fn go_on(&mut self, commits: u64, up: bool) {
        for n in 0..commits {
            self.commit();
            if n % 5 == 4 {
                self.store.fail(if up { u64::MAX } else { n / 5 % 9 }, u64::from(!up) * 1000);
                let done = self.db().upload().is_ok();
                self.promised.resize(self.store.states.lock().unwrap().len(), self.uploaded);
                assert!(done || !up);
                if done {
                    self.uploaded = self.history.len() - 1;
                }
            }
        }
        self.store.fail(u64::MAX, 0);
    }

    /// Restores each state of the store.
    fn check(mut self) {
        drop(self.db.take());
        let states = std::mem::take(&mut *self.store.states.lock().unwrap());
        self.promised.resize(states.len(), self.uploaded);
        let mut reached = 0;
        for (n, (state, promised)) in states.iter().zip(&self.promised).enumerate() {
            if !state.list().unwrap().iter().any(|object| object.name == "CURRENT") {
                continue;
            }
            let (env, _disk, _clock) = sim::env(99);
            let opened = options(&env, RemoteOptions::new(Arc::new(state.clone()))).open();
            let db = opened.unwrap_or_else(|e| panic!("change {n} of {}: {e}", states.len()));
            let report = db.verify().unwrap();
            assert!(report.is_ok(), "change {n}: {report}");
            let names = db.families();
            let found: BTreeMap<String, Rows> =
                names.iter().map(|name| (name.clone(), rows(&db.family(name).unwrap()))).collect();
            let at = self.history.iter().rposition(|rows| *rows == found);
            let at = at.unwrap_or_else(|| panic!("change {n}: no prefix, after {reached}"));
            assert!(at >= *promised && at >= reached, "change {n}: {at} of {promised}, {reached} before");
            reached = at;
            drop((db, env));
        }
        assert_eq!(reached, self.history.len() - 1);
    }
}

/// After a gap, because the store was down for long, a round once stored parts of the log before its manifest: a restore at that moment found
/// a log with a hole, or one whose values nobody had. The same after a kill, and after a family was made.
#[test]
fn a_folder_lost_at_any_time_of_a_long_life_is_restored_as_a_prefix() {
    let mut life = Life::new();
    life.go_on(20, true);
    life.go_on(150, false);
    life.go_on(12, true);
    life.create("two");
    life.go_on(7, false);
    life.go_on(13, true);
    life.go_on(30, false);
    life.db.take().unwrap().abandon();
    life.open();
    life.go_on(12, false);
    life.go_on(20, true);
    life.create("three");
    life.go_on(100, false);
    life.go_on(20, true);
    life.commit();
    life.drop_family("two");
    life.go_on(13, false);
    life.go_on(12, true);
    life.create("two");
    life.go_on(9, true);
    life.commit();
    life.drop_family("two");
    life.go_on(12, true);
    life.rename("three", "four");
    life.go_on(16, true);
    drop(life.db.take());
    life.open();
    life.go_on(3, true);
    life.go_on(60, false);
    life.go_on(20, true);
    life.check();
}
