//! Tests of databases with C settings.

mod spoiled;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;

use tidesdb::{Db, Isolation, SyncMode};

use super::{DATABASES, Database, Facts, SETTINGS_FAMILY, TRANSACTIONS, Transaction, begin, beside, end};
use crate::abi::{Config, FamilyConfig, SYNC_FULL, SYNC_INTERVAL, SYNC_NONE};
use crate::handle::Handle;
use crate::{log, settings};

/// Opens a database with the given `unified_memtable` and `unified_memtable_sync_mode`.
fn open(dir: &tempfile::TempDir, unified: c_int, mode: c_int) -> Arc<Database> {
    let config = Config { unified_memtable: unified, unified_memtable_sync_mode: mode, ..Config::default() };
    let facts = Facts {
        path: dir.path().to_owned(),
        memory_limit: 1 << 30,
        has_cache: true,
        unified: unified != 0,
        sync: settings::unified_sync_mode(&config).expect("a mode that is known"),
        merges: true,
        waits_at_close: false,
        is_view: false,
        connector: None,
        operators: Vec::new(),
        _messages: Arc::new(log::open(99, None, 0)),
    };
    let options = Db::options(dir.path()).default_family_name(SETTINGS_FAMILY).sync(SyncMode::None);
    let locked = options.background_threads(0).lock().expect("lock");
    let database = Arc::new(Database::new(locked, Vec::new(), facts).expect("open"));
    database.publish().expect("a handle");
    database
}

/// Counts how many of 20 commits to a family with this sync mode are durable when they return.
fn durable_commits(database: &Arc<Database>, mode: c_int) -> u32 {
    let name = format!("family{mode}");
    database.create(&name, &FamilyConfig { sync_mode: mode, ..FamilyConfig::default() }).expect("a family");
    let (handle, _) = database.family(&name).expect("the family");
    let mut durable = 0;
    for i in 0..20_u8 {
        let mut transaction = Transaction::new(database, Isolation::ReadCommitted).expect("begin");
        transaction.put(handle, &[i], b"value", 0).expect("put");
        transaction.commit().expect("commit");
        let stats = database.engine().expect("open").stats();
        durable += u32::from(stats.durable_end > stats.visible_seq);
    }
    durable
}

/// Regression test: a database with the unified memtable in sync mode FULL and families in NONE synced none of
/// 20 commits, so an acknowledged transaction was lost at a power failure. The unified mode is the minimum for
/// every commit.
#[test]
fn the_unified_sync_mode_is_not_weakened_by_a_family() {
    for unified in [0, 1] {
        for of_database in [SYNC_NONE, SYNC_FULL, SYNC_INTERVAL] {
            let dir = tempfile::tempdir().expect("a directory");
            let database = open(&dir, unified, of_database);
            for of_family in [SYNC_NONE, SYNC_FULL, SYNC_INTERVAL] {
                let full = of_family == SYNC_FULL || (unified == 1 && of_database == SYNC_FULL);
                let durable = durable_commits(&database, of_family);
                let wanted = if full { 20 } else { 0 };
                assert_eq!(durable, wanted, "unified {unified}, mode {of_database}, family {of_family}");
            }
            database.close().expect("close");
        }
    }
}

#[test]
fn a_unified_sync_mode_out_of_its_domain_is_refused() {
    let config = |unified: c_int, mode: c_int, interval: u64| Config {
        unified_memtable: unified,
        unified_memtable_sync_mode: mode,
        unified_memtable_sync_interval_us: interval,
        ..Config::default()
    };
    for mode in [-1, 3, c_int::MAX] {
        assert!(settings::unified_sync_mode(&config(1, mode, 0)).is_err());
        assert!(matches!(settings::unified_sync_mode(&config(0, mode, 0)), Ok(SyncMode::None)));
    }
    let interval = |us| settings::unified_sync_mode(&config(1, SYNC_INTERVAL, us));
    assert!(matches!(interval(7), Ok(SyncMode::Interval(period)) if period.as_micros() == 7));
    assert!(matches!(interval(0), Ok(SyncMode::Interval(period)) if period.as_micros() == 128_000));
}

#[test]
fn the_list_of_transactions_does_not_grow_with_freed_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let database = open(&dir, 0, SYNC_NONE);
    database.create("f", &FamilyConfig::default()).expect("a family");
    let (handle, _) = database.family("f").expect("the family");
    let mut kept = Vec::new();
    for i in 0..10_000_u32 {
        let mut transaction = Transaction::new(&database, Isolation::ReadCommitted).expect("begin");
        transaction.put(handle, &i.to_le_bytes(), &[7; 1000], 0).expect("put");
        if i % 100 == 0 {
            kept.push(transaction);
        }
    }
    assert!(database.transactions_listed() <= 300, "{}", database.transactions_listed());
    let bytes = database.transaction_bytes();
    assert!((100 * 1000..100 * 1100).contains(&bytes), "{bytes}");
    drop(kept);
    assert_eq!(database.transaction_bytes(), 0);
    database.close().expect("close");
}

/// A database that no C program has written has no family with settings.
#[test]
fn a_reader_shows_a_database_of_another_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path()).expect("open");
    db.put("whale", "blue").expect("put");
    let (options, path) = (Db::options(dir.path()), dir.path().to_owned());
    let messages = Arc::new(log::open(99, None, 0));
    let reader = beside::open(options, path, Vec::new(), true, messages).expect("a reader");
    let view = beside::refresh(reader).expect("a view");
    let database = DATABASES.share(view).expect("the view");
    assert_eq!(database.names().expect("names"), ["default"]);
    let (_, family) = database.family("default").expect("the family");
    assert_eq!(family.engine().get("whale").expect("get").as_deref(), Some(&b"blue"[..]));
    database.close().expect("close");
    beside::close(reader).expect("close");
    assert!(beside::close(reader).is_err());
    db.close().expect("close");
}

/// A transaction that was freed by a destructor of the thread, after its list of parked ones was gone, was kept until the database was closed.
#[test]
fn a_transaction_that_the_end_of_a_thread_frees_is_not_kept() {
    struct Kept(Cell<Option<Handle>>);
    impl Drop for Kept {
        fn drop(&mut self) {
            end(self.0.take().expect("a transaction")).expect("it is freed");
        }
    }
    thread_local!(static KEPT: Kept = const { Kept(Cell::new(None)) });
    let dir = tempfile::tempdir().expect("a directory");
    let database = open(&dir, 0, SYNC_NONE);
    let of = database.handle();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let begun = || begin(of, Isolation::ReadCommitted).expect("a transaction");
            KEPT.with(|kept| kept.0.set(Some(begun()))); // its destructor is the first, so it runs last
            end(begun()).expect("it is freed");
        });
        thread.join().expect("the thread"); // waits for its destructors
    });
    let mut parked = 0;
    TRANSACTIONS.visit_parked(of, |_| parked += 1);
    assert_eq!(parked, 0);
}

/// A family that is being cloned had no stored settings yet: who looked for it got a handle that did not sync.
#[test]
fn nobody_finds_a_clone_before_its_settings_are_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    let database = open(&dir, 0, SYNC_NONE);
    database
        .create("source", &FamilyConfig { sync_mode: SYNC_FULL, ..FamilyConfig::default() })
        .expect("a family");
    for round in 0..50 {
        let name = format!("clone{round}");
        std::thread::scope(|scope| {
            let found = scope.spawn(|| {
                loop {
                    if let Ok((_, family)) = database.family(&name) {
                        return family.config().sync_mode;
                    }
                }
            });
            database.clone_family("source", &name).expect("a clone");
            assert_eq!(found.join().expect("the thread"), SYNC_FULL);
        });
    }
}
