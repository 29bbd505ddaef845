//! A copy in an object store: its contents, restores from it, and the effects of a failing store.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::store::{Body, Object};
use tidesdb::{
    Db, FamilyOptions, HealthState, MemoryStore, ObjectStore, OpenOptions, RemoteOptions, RemoteStats,
    SyncMode,
};
use tidesdb_io::sim::{self, Habits, SimDisk};
use tidesdb_io::{Access, Dir, Env};

use crate::readers_beside_the_writer::beside_steps::{Call, Hooked};

/// The rows of one family.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store that records its contents after each change, and fails calls on request.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) inner: MemoryStore,
    pub(crate) states: Mutex<Vec<MemoryStore>>,
    calls: AtomicU64,
    /// First failing call and number of failing calls.
    fails: Mutex<Option<(u64, u64)>>,
    /// Puts that failed, and are carried out late.
    late: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Watched {
    pub(crate) fn fail(&self, from: u64, count: u64) {
        self.calls.store(0, Ordering::SeqCst);
        *self.fails.lock().unwrap() = Some((from, count));
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn call(&self) -> io::Result<()> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst);
        match *self.fails.lock().unwrap() {
            Some((from, count)) if n >= from && n - from < count => {
                Err(io::Error::other("the store is unavailable"))
            }
            _ => Ok(()),
        }
    }

    /// Carries out the puts that failed.
    fn arrive(&self) {
        for (name, bytes) in self.late.lock().unwrap().drain(..) {
            self.inner.put(&name, &Body::bytes(&bytes)).unwrap();
        }
    }

    fn changed(&self) {
        self.states.lock().unwrap().push(self.inner.fork());
    }
}

impl ObjectStore for Watched {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        if let Err(e) = self.call() {
            let mut bytes = vec![0; body.len() as usize];
            body.read_exact_at(&mut bytes, 0)?;
            self.late.lock().unwrap().push((name.to_owned(), bytes));
            return Err(e);
        }
        self.inner.put(name, body)?;
        self.changed();
        Ok(())
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.call()?;
        self.inner.get(name, sink)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.call()?;
        self.inner.list()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call()?;
        self.inner.delete(name)?;
        self.changed();
        Ok(())
    }
}

/// Returns options for a database in `env` with small parts, so that little data makes many files.
pub(crate) fn options(env: &Env, remote: RemoteOptions) -> OpenOptions {
    Db::options("/db").env(env.clone()).background_threads(0).remote(remote).default_family(small()).with(
        |o| {
            o.wal_segment_bytes = 16 << 10;
            o.disk_free_min = 0;
        },
    )
}

pub(crate) fn small() -> FamilyOptions {
    FamilyOptions::default().write_buffer_bytes(16 << 10).value_threshold(512)
}

/// Opens the contents of `store` on a new, empty disk.
pub(crate) fn cold(store: Arc<dyn ObjectStore>) -> (Db, Env, Arc<SimDisk>) {
    let (env, disk, _clock) = sim::env(99);
    let db = options(&env, RemoteOptions::new(store)).open().unwrap();
    (db, env, disk)
}

pub(crate) fn rows(family: &tidesdb::Family) -> Rows {
    family.iter().unwrap().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Returns small and large values alternately.
fn value(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(3) { 900 } else { 40 };
    (0..len).map(|at| (i.wrapping_mul(31) as u8).wrapping_add(at as u8)).collect()
}

fn dir(env: &Env) -> Arc<dyn Dir> {
    env.disk.open_dir(Path::new("/db"), false).unwrap()
}

fn names(env: &Env, ending: &str) -> Vec<String> {
    let mut names = dir(env).list().unwrap();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

/// Opens with a limit of `bytes` for files in the folder; 0 = none.
fn within(env: &Env, store: &Arc<MemoryStore>, bytes: u64) -> Db {
    let mut remote = RemoteOptions::new(Arc::<MemoryStore>::clone(store));
    remote.local_bytes_max = bytes;
    options(env, remote).open().unwrap()
}

/// Puts 300 rows into `db`, closes it and returns them.
fn stored_rows(db: Db) -> Rows {
    for i in 0..300 {
        db.put(&key(i), &value(i)).unwrap();
    }
    let wanted = rows(db.default_family());
    db.close().unwrap();
    wanted
}

fn stats(db: &Db) -> RemoteStats {
    db.stats().remote.unwrap()
}

#[test]
fn a_lost_folder_is_restored_completely() {
    let store = MemoryStore::default();
    let (env, _disk, _clock) = sim::env(1);
    let db = options(&env, RemoteOptions::new(Arc::new(store.clone()))).open().unwrap();
    let other = db.create_family("other", small()).unwrap();
    for i in 0..600 {
        db.put(&key(i), &value(i)).unwrap();
        other.put(&key(i), &value(i + 1)).unwrap();
        if i % 5 == 0 {
            db.delete(&key(i / 2)).unwrap();
        }
    }
    db.upload().unwrap();
    let wanted = (rows(db.default_family()), rows(&other));
    assert!(stats(&db).uploads > 4 && stats(&db).queued == 0 && stats(&db).generation > 0);

    let (copy, _env, _disk) = cold(Arc::new(store.fork()));
    let found = (rows(copy.default_family()), rows(&copy.family("other").unwrap()));
    assert_eq!(found, wanted);
    assert!(copy.verify().unwrap().is_ok());
    assert!(stats(&copy).downloads > 0);
    copy.put(b"more", b"1").unwrap();
    copy.close().unwrap();
    drop(db);
}

#[test]
fn after_a_close_the_store_holds_all_rows_and_no_garbage() {
    let store = Arc::new(MemoryStore::default());
    let mut wanted = Rows::new();
    for session in 0..4u32 {
        let (mut db, _env, _disk) = cold(store.clone());
        for i in session * 100..session * 100 + 200 {
            db.put(&key(i), &value(i + session)).unwrap();
            wanted.insert(key(i), value(i + session));
        }
        if session == 2 {
            db.default_family().compact().unwrap();
            db.upload().unwrap();
        }
        assert_eq!(rows(db.default_family()), wanted);
        db = {
            db.close().unwrap();
            cold(store.clone()).0
        };
        assert_eq!(rows(db.default_family()), wanted);
        db.close().unwrap();
    }
    let objects = store.list().unwrap();
    let (db, env, _disk) = cold(store.clone());
    let _ = rows(db.default_family());
    let files = |ending: &str| objects.iter().filter(|o| o.name.contains(ending)).count();
    assert_eq!((files(".manifest"), files(".wal")), (1, 0));
    assert_eq!(files(".klog"), names(&env, ".klog").len());
}

#[test]
fn the_log_is_uploaded_between_two_uploads_of_tables() {
    let store = MemoryStore::default();
    let (env, _disk, _clock) = sim::env(3);
    let db = options(&env, RemoteOptions::new(Arc::new(store.clone()))).open().unwrap();
    db.put(b"a", b"1").unwrap();
    db.upload().unwrap();
    let generation = stats(&db).generation;
    for i in 0..20 {
        db.put(&key(i), &value(i)).unwrap();
        db.upload().unwrap();
    }
    assert_eq!(stats(&db).generation, generation, "no table was uploaded for so little data");
    let (copy, _env, _disk) = cold(Arc::new(store.fork()));
    assert_eq!(rows(copy.default_family()), rows(db.default_family()));
    // No byte of the log is uploaded twice.
    let log: u64 = store.list().unwrap().iter().filter(|o| o.name.contains(".wal.")).map(|o| o.bytes).sum();
    assert!(log < 16 << 10, "{log}");
}

/// A server may carry out a request late that its client has given up, behind the one that repeated it.
#[test]
fn a_put_that_is_carried_out_late_makes_no_hole() {
    let mut parts = 0;
    for call in 0..6 {
        let store = Arc::new(Watched::default());
        let (env, _disk, _clock) = sim::env(3);
        let db = options(&env, RemoteOptions::new(store.clone())).open().unwrap();
        let put = |from: u32| {
            for i in from..from + 12 {
                db.put(&key(i), &value(i)).unwrap();
            }
        };
        put(0);
        db.upload().unwrap();
        put(20);
        store.fail(call, u64::MAX);
        let failed = db.upload();
        put(40);
        store.fail(0, 0);
        db.upload().unwrap();
        let late: Vec<String> = store.late.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(failed.is_err(), !late.is_empty());
        if late.iter().any(|name| name == "CURRENT") {
            continue; // an older one names what is deleted
        }
        parts += late.len();
        store.arrive();
        let (copy, _env, _disk) = cold(Arc::new(store.inner.fork()));
        assert_eq!(rows(copy.default_family()), rows(db.default_family()), "{late:?}");
    }
    assert!(parts > 1, "{parts}");
}

/// A commit returns before earlier ones are written: an upload that began then ended before it, with a success.
#[test]
fn an_upload_includes_a_commit_that_returned_before_an_earlier_one_was_written() {
    let store = MemoryStore::default();
    let (env, disk, _clock) = sim::env(1);
    disk.enable_map_shared(false); // every record is written by a call
    let ((reached, is_reached), (release, released)) = (sync_channel(1), sync_channel::<()>(1));
    let released = Mutex::new(released);
    let env = Hooked::env(&env, move |call, _| {
        if call == Call::Change && std::thread::current().name() == Some("slow") {
            let _ = reached.try_send(());
            let _ = released.lock().unwrap().recv_timeout(Duration::from_secs(20));
        }
        Ok(())
    });
    let options = options(&env, RemoteOptions::new(Arc::new(store.clone()))).sync(SyncMode::None);
    let db = options.open().unwrap();
    db.put("first", "v").unwrap(); // the log has blocks for more
    db.upload().unwrap(); // from now on the log follows
    std::thread::scope(|scope| {
        let slow =
            std::thread::Builder::new().name("slow".into()).spawn_scoped(scope, || db.put("slow", "v"));
        is_reached.recv_timeout(Duration::from_secs(60)).unwrap();
        db.put("returned", "v").unwrap();
        let upload = scope.spawn(|| db.upload());
        for _ in 0..300 {
            if upload.is_finished() {
                break; // without the commit
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(release);
        slow.unwrap().join().unwrap().unwrap();
        upload.join().unwrap().unwrap();
    });
    let (copy, _env, _disk) = cold(Arc::new(store.fork()));
    assert!(copy.contains("returned").unwrap());
}

#[test]
fn without_the_log_the_copy_ends_at_the_last_tables() {
    let store = MemoryStore::default();
    let mut remote = RemoteOptions::new(Arc::new(store.clone()));
    remote.replicate_log = false;
    let (env, _disk, _clock) = sim::env(3);
    let db = options(&env, remote).open().unwrap();
    db.put(b"a", b"1").unwrap();
    db.upload().unwrap();
    db.put(b"b", b"2").unwrap();
    let (copy, _env, _disk) = cold(Arc::new(store.fork()));
    assert!(copy.contains(b"a").unwrap() && !copy.contains(b"b").unwrap());
    assert!(!store.list().unwrap().iter().any(|o| o.name.contains(".wal.")));
}

#[test]
fn a_missing_table_or_value_log_is_fetched() {
    let store = Arc::new(MemoryStore::default());
    let (env, _disk, _clock) = sim::env(4);
    let open = || options(&env, RemoteOptions::new(store.clone())).open().unwrap();
    let db = open();
    for i in 0..300 {
        db.put(&key(i), &value(i)).unwrap();
    }
    let wanted = rows(db.default_family());
    db.close().unwrap();
    for ending in [".klog", ".vlog"] {
        let name = names(&env, ending).remove(0);
        dir(&env).unlink(&name).unwrap();
        let db = open();
        assert_eq!(rows(db.default_family()), wanted, "{name}");
        db.close().unwrap();
    }
}

#[test]
fn the_local_cache_stays_below_its_limit_and_readers_keep_their_rows() {
    let store = Arc::new(MemoryStore::default());
    let (env, _disk, _clock) = sim::env(5);
    let mut remote = RemoteOptions::new(store.clone());
    let vlog_file_bytes = 8 << 10; // the value log being written stays
    remote.local_bytes_max = 48 << 10;
    let family = small().vlog_file_bytes(vlog_file_bytes);
    let db = options(&env, remote).default_family(family).open().unwrap();
    for i in 0..800 {
        db.put(&key(i), &value(i)).unwrap();
    }
    db.upload().unwrap();
    let wanted = rows(db.default_family());
    let mut old = db.iter().unwrap();
    let first = old.next().unwrap().unwrap();
    assert_eq!(first.0.to_vec(), key(0));
    // The files of the iterator are removed from the folder and the manifest, and would be removed from the store.
    db.default_family().compact().unwrap();
    for i in 0..800 {
        db.put(&key(i), b"new").unwrap();
    }
    // A thread of another test may keep files for a while.
    let small = (0..3000).any(|_| {
        db.default_family().compact().unwrap();
        db.upload().unwrap();
        let seen = stats(&db);
        let small = seen.evictions > 0 && seen.local_bytes <= (48 << 10) + (32 << 10);
        if !small {
            std::thread::sleep(Duration::from_millis(10));
        }
        small
    });
    assert!(small, "{:?}", stats(&db));
    let rest: Rows = old.map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert!(rest.iter().all(|(k, v)| wanted[k] == *v) && rest.len() == 799);
    assert!(rows(db.default_family()).values().all(|v| v == b"new"));
    assert!(stats(&db).downloads > 0);
    db.close().unwrap();
}

#[test]
fn the_local_cache_counts_files_of_earlier_sessions() {
    let store = Arc::new(MemoryStore::default());
    let (env, _disk, _clock) = sim::env(8);
    let open = |bytes| within(&env, &store, bytes);
    let wanted = stored_rows(open(0));
    assert!(!names(&env, "log").is_empty());
    let db = open(1);
    assert_eq!(rows(db.default_family()), wanted);
    db.close().unwrap();
    assert!(names(&env, "log").is_empty(), "{:?}", names(&env, "log"));
    assert_eq!(rows(open(1).default_family()), wanted);
}

#[test]
fn an_older_or_unrelated_folder_is_rejected() {
    let store = Arc::new(MemoryStore::default());
    let (env, disk, _clock) = sim::env(6);
    let db = options(&env, RemoteOptions::new(store.clone())).open().unwrap();
    db.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let (older, _disk, _clock) = sim::env_on(disk.fork(), 6);
    let db = options(&env, RemoteOptions::new(store.clone())).open().unwrap();
    db.put(b"b", b"2").unwrap();
    db.close().unwrap();
    let refused = options(&older, RemoteOptions::new(store.clone())).open().unwrap_err();
    assert!(refused.to_string().contains("older"), "{refused}");
    let (another, _disk, _clock) = sim::env(7);
    let plain = Db::options("/db").env(another.clone()).background_threads(0).open().unwrap();
    plain.close().unwrap();
    let refused = options(&another, RemoteOptions::new(store.clone())).open().unwrap_err();
    assert!(refused.to_string().contains("another database"), "{refused}");
    let (copy, _env, _disk) = cold(store);
    assert_eq!(rows(copy.default_family()).len(), 2);
}

#[test]
fn a_limit_below_one_file_does_not_fetch_it_for_each_row() {
    let store = Arc::new(MemoryStore::default());
    let (env, _disk, _clock) = sim::env(9);
    let mut remote = RemoteOptions::new(store.clone());
    remote.local_bytes_max = 1;
    let open = || options(&env, remote.clone()).cache_bytes(0).open().unwrap();
    let db = open();
    for i in 0..120 {
        db.put(&key(i), &[i as u8; 800]).unwrap();
    }
    db.close().unwrap();
    let db = open();
    db.upload().unwrap();
    let before = stats(&db).downloads;
    for i in 0..120 {
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&[i as u8; 800][..]));
    }
    let fetched = stats(&db).downloads - before;
    assert!((1..20).contains(&fetched), "{fetched} objects for 120 rows");
}

/// Where an open file keeps its name until it is closed, a read under way made every other read of the file fail with "permission denied".
#[test]
fn a_file_that_left_the_folder_is_fetched_while_another_process_has_it_open() {
    let store = Arc::new(MemoryStore::default());
    let (env, disk, _clock) = sim::env(10);
    disk.set_habits(Habits::WINDOWS);
    let open = |bytes| within(&env, &store, bytes);
    let wanted = stored_rows(open(0));
    let files = names(&env, "log");
    let held: Vec<_> = files.iter().map(|name| dir(&env).open(name, Access::Read).unwrap()).collect();
    assert!(held.len() > 2, "{files:?}");
    for _ in 0..2 {
        let db = open(1);
        db.upload().unwrap();
        assert_eq!(rows(db.default_family()), wanted);
        let seen = stats(&db);
        assert!(seen.evictions > 0 && seen.downloads > 0, "{seen:?}");
        db.close().unwrap();
    }
    drop(held);
    open(1).close().unwrap();
    assert_eq!(names(&env, ".evicted"), [""; 0]);
}

/// While the store did not answer, no value log was removed: 60 times the live values stayed on disk, and the health was good.
#[test]
fn a_store_that_is_down_keeps_no_more_than_a_few_dead_values() {
    const LIVE: u64 = 60 * 1024;
    let store = Arc::new(Watched::default());
    let (env, disk, _clock) = sim::env(21);
    disk.log_ops(false);
    let options = |env: &Env, store: Arc<dyn ObjectStore>| {
        let family = small().vlog_file_bytes(16 << 10).compression(tidesdb::Compression::None);
        options(env, RemoteOptions::new(store)).default_family(family)
    };
    let db = options(&env, Arc::<Watched>::clone(&store)).open().unwrap();
    let overwrite = |round: u8| {
        for i in 0..60 {
            db.put(&key(i), &[round; 1024]).unwrap();
        }
        db.flush().unwrap();
        db.default_family().compact().unwrap();
    };
    let on_disk = || -> u64 {
        let logs = names(&env, ".vlog");
        logs.iter().map(|name| disk.read_file(format!("/db/{name}")).unwrap().len() as u64).sum()
    };
    overwrite(0);
    db.upload().unwrap();
    assert_eq!(db.health().state, HealthState::Healthy);
    store.fail(0, u64::MAX);
    let mut most = 0;
    for round in 1..=60 {
        overwrite(round);
        assert!(db.upload().is_err());
        // A thread of another test may keep files for a while.
        let bound = 3 * LIVE + (64 << 10); // four segments of the log are 64 KiB
        let mut is_bounded = || {
            db.default_family().compact().unwrap();
            most = on_disk();
            most <= bound || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        };
        assert!((0..1000).any(|_| is_bounded()), "{most} bytes of value logs for {LIVE} live ones");
        let health = db.health();
        assert_eq!(health.state, HealthState::Degraded);
        assert!(
            health.to_string().contains("object store") && health.to_string().contains("is unavailable"),
            "{health}"
        );
        assert!(stats(&db).kept_bytes <= 64 << 10);
    }
    // Everything is uploaded once the store is back, and the database is well again.
    store.fail(u64::MAX, 0);
    db.put(b"last", b"1").unwrap();
    db.upload().unwrap();
    assert_eq!((db.health().state, stats(&db).kept_bytes), (HealthState::Healthy, 0));
    let (cold_env, _disk, _clock) = sim::env(22);
    let copy = options(&cold_env, Arc::new(store.inner.fork())).open().unwrap();
    assert_eq!(rows(copy.default_family()), rows(db.default_family()));
    // From here on, the log is followed again: dead values that it refers to are kept until the store has it.
    overwrite(61);
    overwrite(62);
    db.upload().unwrap();
    let (cold_env, _disk, _clock) = sim::env(23);
    let copy = options(&cold_env, Arc::new(store.inner.fork())).open().unwrap();
    assert_eq!(rows(copy.default_family()), rows(db.default_family()));
}
