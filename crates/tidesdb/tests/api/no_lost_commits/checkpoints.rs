//! Checkpoints and backups: a second, complete and independent database.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidesdb::{Comparator, Db, Error, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};

use crate::common::{DB, Sim, contents, fill, noise, put_twice, small, value};

type How = fn(&Db, &str) -> Result<(), Error>;

/// The two kinds of copies: by hard links and by copying.
const BOTH: [How; 2] = [|db, path| db.checkpoint(path), |db, path| db.backup(path)];

fn sample(sim: &Sim) -> Db {
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    fill(db.default_family(), 300, b"small");
    fill(&a, 50, &noise(1, 2000));
    db.compact().unwrap();
    fill(&a, 20, b"in the memtable");
    db.delete(b"key000001").unwrap();
    db
}

fn assert_same(a: &Db, b: &Db) {
    assert_eq!(a.families(), b.families());
    for name in a.families() {
        assert!(contents(&a.family(&name).unwrap()) == contents(&b.family(&name).unwrap()), "family {name}");
    }
}

#[test]
fn it_opens_with_the_same_content() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        how(&db, "/copy").unwrap();
        let copy = sim.options_at("/copy").open().unwrap();
        assert!(copy.recovery_report().clean);
        assert_same(&db, &copy);
        assert!(copy.verify().unwrap().is_ok());
    }
}

/// A rotation without a commit since the last one made an empty memtable immutable, which the flush took for a broken law.
#[test]
fn a_checkpoint_and_a_large_batch_come_right_after_a_flush_was_started() {
    for large in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.default_family();
        fill(family, 10, b"v");
        family.start_flush().unwrap();
        if large {
            let mut batch = WriteBatch::new();
            (0..12_000).for_each(|n| batch.put(family, format!("large{n:06}"), noise(n, 100)).unwrap());
            db.write(&mut batch).unwrap();
            family.start_flush().unwrap();
        }
        db.checkpoint("/copy").unwrap();
        let rows = contents(family);
        assert_eq!(rows.len(), if large { 12_010 } else { 10 });
        assert_eq!(contents(sim.options_at("/copy").open().unwrap().default_family()), rows);
        assert_eq!(family.stats().immutables, 0);
        db.close().unwrap();
        assert_eq!(contents(sim.open().default_family()), rows);
    }
}

#[test]
fn the_copy_and_its_source_are_independent() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        how(&db, "/copy").unwrap();
        let expected = contents(db.default_family());
        fill(db.default_family(), 300, &noise(2, 1000));
        db.drop_family("a").unwrap();
        db.compact().unwrap();
        db.close().unwrap();
        let copy = sim.options_at("/copy").open().unwrap();
        assert!(contents(copy.default_family()) == expected);
        assert_eq!(copy.families(), ["a", "default"]);
        copy.put(b"only here", b"v").unwrap();
        copy.compact().unwrap();
        copy.close().unwrap();
        let db = sim.open();
        assert!(!db.contains(b"only here").unwrap() && db.verify().unwrap().is_ok());
        assert!(sim.options_at("/copy").open().unwrap().verify().unwrap().is_ok());
    }
}

#[test]
fn a_copy_outlives_the_removal_of_its_source() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        how(&db, "/copy").unwrap();
        let expected = contents(&db.family("a").unwrap());
        db.close().unwrap();
        for name in sim.disk.file_names("/db").unwrap() {
            sim.disk.remove_file(format!("/db/{name}")).unwrap();
        }
        let copy = sim.options_at("/copy").open().unwrap();
        assert!(contents(&copy.family("a").unwrap()) == expected);
    }
}

#[test]
fn a_finished_copy_survives_a_power_failure() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        how(&db, "/copy").unwrap();
        for (i, image) in Image::STANDARD.iter().enumerate() {
            let after = sim.power_lost(image, i as u64);
            assert_same(&db, &after.options_at("/copy").open().unwrap());
        }
    }
}

#[test]
fn a_copy_of_a_copy() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        how(&db, "/copy").unwrap();
        let copy = sim.options_at("/copy").open().unwrap();
        copy.put(b"more", b"v").unwrap();
        how(&copy, "/second").unwrap();
        assert_same(&copy, &sim.options_at("/second").open().unwrap());
    }
}

#[test]
fn sequence_numbers_continue_in_the_copy() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        let last = db.put(b"k", b"v").unwrap();
        how(&db, "/copy").unwrap();
        let copy = sim.options_at("/copy").open().unwrap();
        assert!(copy.put(b"k", b"w").unwrap() > last);
        assert_eq!(copy.get(b"k").unwrap().unwrap(), b"w");
    }
}

#[test]
fn a_non_empty_directory_is_rejected_and_unchanged() {
    for how in BOTH {
        let sim = Sim::new();
        let db = sample(&sim);
        sim.env.disk.open_dir(Path::new("/full"), true).unwrap();
        sim.disk.write_file("/full/precious", b"data").unwrap();
        assert!(matches!(how(&db, "/full"), Err(Error::Exists { .. })));
        assert!(how(&db, "/db").is_err(), "into the source itself");
        assert_eq!(sim.disk.file_names("/full").unwrap(), ["precious"]);
        // Regression test: only files were looked at.
        sim.env.disk.open_dir(Path::new("/folders/only"), true).unwrap();
        assert!(matches!(how(&db, "/folders"), Err(Error::Exists { .. })));
        how(&db, "/copy").unwrap();
        assert!(matches!(how(&db, "/copy"), Err(Error::Exists { .. })));
        assert_same(&db, &sim.options_at("/copy").open().unwrap());
    }
}

#[test]
fn a_failed_checkpoint_leaves_nothing_that_looks_like_a_database() {
    let kinds = [OpKind::Link, OpKind::SyncDir, OpKind::Create, OpKind::Rename, OpKind::Write, OpKind::Read];
    for (kind, how) in kinds.into_iter().flat_map(|kind| BOTH.map(|how| (kind, how))) {
        let sim = Sim::new();
        let db = sample(&sim);
        db.flush().unwrap();
        sim.disk.inject(
            Fault::errno(errno::EIO).on(kind).path_if(|p| p.starts_with("/copy") || p.ends_with("log")),
        );
        let Err(_) = how(&db, "/copy") else { continue };
        sim.disk.clear_faults();
        let opened = sim.options_at("/copy").create_if_missing(false).open();
        assert!(matches!(opened, Err(Error::NotFound { .. })), "{kind:?}: {opened:?}");
        assert!(db.verify().unwrap().is_ok());
        db.put(b"k", b"v").unwrap();
        how(&db, "/copy2").unwrap();
    }
}

#[test]
fn a_file_system_without_links_needs_a_backup() {
    let sim = Sim::new();
    let db = sample(&sim);
    sim.disk.inject(Fault::errno(errno::EOPNOTSUPP).on(OpKind::Link).forever());
    match db.checkpoint("/copy") {
        Err(Error::InvalidArgument { what }) => assert!(what.contains("use a backup"), "{what}"),
        other => panic!("{other:?}"),
    }
    db.backup("/copy").unwrap();
    assert_same(&db, &sim.options_at("/copy").open().unwrap());
}

#[test]
fn a_copy_of_an_empty_database_and_of_user_comparators() {
    for how in BOTH {
        let sim = Sim::new();
        let order = Comparator::custom("mine", |a, b| b.cmp(a));
        let db = sim.options().comparator(order.clone()).open().unwrap();
        how(&db, "/empty").unwrap();
        assert!(contents(sim.options_at("/empty").open().unwrap().default_family()).is_empty());
        let f = db.create_family("f", small().comparator(order.clone())).unwrap();
        fill(&f, 10, b"v");
        how(&db, "/copy").unwrap();
        let copy = sim.options_at("/copy").comparator(order).open().unwrap();
        assert_same(&db, &copy);
    }
}

#[test]
fn on_a_real_disk_files_are_shared() {
    let temp = tempfile::tempdir().unwrap();
    let db = Db::open(temp.path().join("db")).unwrap();
    fill(db.default_family(), 100, &noise(3, 600));
    db.checkpoint(temp.path().join("copy")).unwrap();
    let copy = Db::open(temp.path().join("copy")).unwrap();
    assert_same(&db, &copy);
}

#[test]
fn a_backup_shares_nothing_and_needs_its_space() {
    let sim = Sim::new();
    let db = sample(&sim);
    db.flush().unwrap();
    sim.disk.limit_space(Some(30 << 10));
    assert!(matches!(db.backup("/copy"), Err(Error::NoSpace { .. })));
    assert!(sim.disk.file_names("/copy").unwrap().iter().all(|name| name == "LOCK"));
    sim.disk.limit_space(None);
    db.backup("/copy").unwrap();
    let expected = contents(&db.family("a").unwrap());
    db.close().unwrap();
    for name in sim.disk.file_names("/db").unwrap().iter().filter(|name| name.ends_with("log")) {
        sim.disk.corrupt(format!("/db/{name}"), 100, |byte| !byte).unwrap();
    }
    let copy = sim.options_at("/copy").open().unwrap();
    assert!(contents(&copy.family("a").unwrap()) == expected && copy.verify().unwrap().is_ok());
}

#[test]
fn a_family_may_be_dropped_while_it_is_copied() {
    let sim = Sim::new();
    let db = sample(&sim);
    db.flush().unwrap();
    let other = db.clone();
    let (sender, copying) = std::sync::mpsc::channel();
    sim.disk.observe(OpKind::Create, move |op, _| {
        if op.path.starts_with("/copy") {
            let _ = sender.send(());
        }
    });
    std::thread::scope(|s| {
        s.spawn(move || {
            copying.recv().unwrap();
            other.drop_family("a").unwrap();
        });
        db.backup("/copy").unwrap();
    });
    assert_eq!(db.families(), ["default"]);
    let copy = sim.options_at("/copy").open().unwrap();
    assert_eq!(contents(&copy.family("a").unwrap()).len(), 50);
    assert!(copy.verify().unwrap().is_ok() && db.verify().unwrap().is_ok());
}

/// Each commit writes the same data to two families: every copy must hold the same prefix of both.
#[test]
fn a_copy_during_writes_has_one_state_of_all_families() {
    let sim = Sim::new();
    let small = small().write_buffer_bytes(32 << 10);
    let open = |path: &str| {
        let options = sim.options_at(path).sync(SyncMode::None).default_family(small.clone());
        options.background_threads(2).open().unwrap()
    };
    let db = open(DB);
    let [a, b] = ["a", "b"].map(|name| db.create_family(name, small.clone()).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..3 {
            let (db, a, b, stop) = (&db, &a, &b, &stop);
            s.spawn(move || {
                for i in (0..).take_while(|_| !stop.load(SeqCst)) {
                    put_twice(db, [a, b], thread, i).unwrap();
                    // The simulated clock lets no stalled writer wait: they would fill the disk before a copy is done.
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            });
        }
        for n in 0..12 {
            let path = format!("/copy{n}");
            BOTH[n % 2](&db, &path).unwrap();
            let copy = open(&path);
            let [a, b] = ["a", "b"].map(|name| contents(&copy.family(name).unwrap()));
            assert!(a == b, "copy {n}: {} and {} keys, or other values", a.len(), b.len());
            copy.close().unwrap();
        }
        stop.store(true, SeqCst);
    });
}

/// A copy has no log. The place where it would begin was below the number at which a new, empty family was created, so a reader took
/// the log for damaged.
#[test]
fn a_copy_with_a_new_family_can_be_read_by_a_reader() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let scratch = db.create_family("scratch", small().value_threshold(1 << 20)).unwrap();
    for n in 0..40u8 {
        scratch.put([n], noise(u64::from(n), 10_000)).unwrap(); // some segments of log
    }
    db.drop_family("scratch").unwrap();
    db.create_family("new", small()).unwrap();
    db.checkpoint("/copy").unwrap();
    let reader = sim.options_at("/copy").open_reader().unwrap();
    assert_eq!(value(reader.view().default_family(), b"k").as_deref(), Some(&b"v"[..]));
    let copy = sim.options_at("/copy").open().unwrap();
    let seq = copy.put("k", "w").unwrap();
    assert!(seq > db.stats().visible_seq, "the copy continues above all numbers");
    assert_eq!(value(reader.refresh().unwrap().default_family(), b"k").as_deref(), Some(&b"w"[..]));
}

/// A close waited until the file that was being copied had ended.
#[test]
fn a_close_ends_a_backup_within_one_file() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("long", noise(3, 7 << 20)).unwrap(); // one record of one file
    db.flush().unwrap();
    let (closing, closer) = (Mutex::new(Some(db.clone())), Arc::new(Mutex::new(None)));
    let (writes, started) = (Arc::new(AtomicU64::new(0)), Arc::clone(&closer));
    let seen = Arc::clone(&writes);
    sim.disk.before_calls(OpSet::from(OpKind::Write), move |path| {
        if !path.starts_with("/copy/") || !path.ends_with(".vlog") {
            return;
        }
        seen.fetch_add(1, SeqCst);
        let Some(db) = closing.lock().unwrap().take() else { return };
        let handle = db.clone();
        *started.lock().unwrap() = Some(std::thread::spawn(move || db.close()));
        while !matches!(handle.put("k", "v"), Err(Error::Closed)) {
            std::thread::yield_now();
        }
    });
    let ended = db.backup("/copy");
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    assert!(writes.load(SeqCst) < 3, "{writes:?}");
    closer.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    assert!(sim.disk.file_names("/copy").unwrap().iter().all(|name| name == "LOCK"));
}
