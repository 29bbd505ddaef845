//! Which handles keep a database open, and what the others do once it is closed: the table in the documentation of `Db`.

use std::io::Read as _;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use tidesdb::{CompactionFilter, Db, Decision, Error, Family, Isolation, Result, WriteBatch};

use crate::common::{Sim, fill, small, value};

fn is_closed<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Closed))
}

/// Opens the database again, which fails while something keeps it open, and returns it.
fn reopened(sim: &Sim) -> Db {
    let db = sim.open();
    assert!(db.recovery_report().clean, "the last drop closed it");
    db
}

#[test]
fn a_family_does_not_keep_it_open() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    let default = db.default_family().clone();
    fill(&f, 10, b"v");
    drop(db);
    assert!(is_closed(&f.get("key000001")) && is_closed(&default.get("k")));
    assert!(is_closed(&f.put("k", "v")) && is_closed(&f.iter()) && is_closed(&f.flush()));
    assert_eq!((f.name(), f.current_options().write_buffer_bytes), ("f".to_owned(), 1 << 20));
    let _ = f.stats();
    let message = f.get("k").unwrap_err().to_string();
    assert!(message.contains("the last `Db` was dropped"), "{message}");
    assert_eq!(reopened(&sim).family("f").unwrap().iter().unwrap().count(), 10);
    assert!(is_closed(&f.get("key000001")), "a handle of the old one");
}

#[test]
fn a_transaction_and_a_snapshot_do_not_keep_it_open() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family().clone();
    f.put("k", "v").unwrap();
    let snapshot = db.snapshot();
    let mut tx = db.begin(Isolation::Serializable);
    tx.put(&f, "k", "w").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&f, "k", "x").unwrap();
    let mut writer = f.value_writer("k").unwrap();
    std::io::Write::write_all(&mut writer, b"y").unwrap();
    drop(db);
    assert!(is_closed(&snapshot.get(&f, "k")) && is_closed(&snapshot.iter(&f)));
    assert!(is_closed(&tx.get(&f, "other")) && is_closed(&tx.iter(&f)));
    assert!(is_closed(&tx.commit()) && is_closed(&writer.commit()));
    assert_eq!(batch.len(), 1);
    let db = reopened(&sim);
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"v");
}

#[test]
fn readers_go_on_in_the_state_that_they_read() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 300, &[1; 700]);
    db.flush().unwrap();
    fill(f, 100, b"newer");
    f.put_stream("film", &[7; 3 << 20][..]).unwrap();
    let (mut rows, mut back, mut cursor) = (f.iter().unwrap(), f.iter().unwrap(), f.cursor().unwrap());
    rows.next().unwrap().unwrap();
    cursor.seek("key000200").unwrap();
    let mut film = f.value_reader("film").unwrap().unwrap();
    let long = f.get("key000200").unwrap().unwrap();
    drop(db);
    assert_eq!(rows.map(Result::unwrap).count(), 300);
    assert_eq!(back.next_back().unwrap().unwrap().0, b"key000299");
    assert_eq!(cursor.entry().unwrap(), (&b"key000200"[..], &[1; 700][..]));
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.entry().unwrap().0, b"film");
    let mut bytes = Vec::new();
    film.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), &long[..]), (3 << 20, &[1; 700][..]));
    assert!(is_closed(&cursor.refresh()));
    reopened(&sim);
}

/// A hook, a filter or a merge operator that owns a family does not keep the database open, although the database owns it.
#[test]
fn functions_that_own_families_do_not_keep_it_open() {
    let sim = Sim::new();
    let db = sim.options().background_threads(2).open().unwrap();
    let copy = db.create_family("copy", small()).unwrap();
    let (hooked, filtered) = (copy.clone(), copy.clone());
    db.default_family().set_commit_hook(Some(Arc::new(move |commit: &tidesdb::Committed<'_>| {
        hooked.put("count", commit.ops.len().to_string()).unwrap();
    })));
    copy.set_compaction_filter(Some(CompactionFilter::new("own", move |_| {
        let _ = filtered.name();
        Decision::Keep
    })));
    db.put("k", "v").unwrap();
    db.compact().unwrap();
    drop(db);
    assert!(is_closed(&copy.get("count")));
    assert_eq!(value(&reopened(&sim).family("copy").unwrap(), b"count").unwrap(), b"1");
}

/// The last `Db` may be dropped on any thread, while others use their handles: their calls end, and with `Closed`.
#[test]
fn the_last_drop_closes_it_beside_users_of_other_handles() {
    for round in 0..30u8 {
        let sim = Sim::new();
        let db = sim.options().background_threads(2).open().unwrap();
        let f = db.default_family().clone();
        let (start, (tell, told)) = (Barrier::new(4), channel());
        let acknowledged: u32 = std::thread::scope(|s| {
            let write = |thread: u8, f: Family| {
                let (start, tell) = (&start, tell.clone());
                move || {
                    start.wait();
                    for n in 0..u32::MAX {
                        match f.put([&[thread][..], &n.to_be_bytes()].concat(), "v") {
                            Ok(_) => drop(tell.send(())),
                            Err(Error::Closed) => return n,
                            Err(e) => panic!("round {round}: {e}"),
                        }
                    }
                    0
                }
            };
            let writers: Vec<_> = (0..2).map(|thread| s.spawn(write(thread, f.clone()))).collect();
            let (first, second) = (db.clone(), db);
            for one in [first, second] {
                let start = &start;
                s.spawn(move || {
                    start.wait();
                    one.get("k").unwrap();
                });
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(told.try_iter().count() as u32, acknowledged);
        assert_eq!(reopened(&sim).iter().unwrap().count() as u32, acknowledged, "round {round}");
    }
}
