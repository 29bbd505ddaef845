//! Crashes at every point of the life of a database with an unresolved family.

use std::sync::{Arc, Mutex};

use tidesdb::OpenOptions;
use tidesdb_io::sim::{Image, OpSet, SimDisk};

use crate::common::{Pair, Sim, contents, fill, noise};
use crate::unresolved::{NAME, awaiting, key, mine, sample};

/// Expected contents after a crash.
#[derive(Clone, Default)]
struct Promised {
    ordered: Vec<Pair>,
    /// Number of acknowledged keys from 5000 on that were put to both families.
    acked: u32,
}

/// Opens the remaining files in one of four ways and checks the contents.
fn check(sim: &Sim, promised: &Promised, way: u64, what: &str) {
    let open = |options: OpenOptions| options.open().unwrap_or_else(|e| panic!("{what}: {e}"));
    let db = match way % 4 {
        0 => open(sim.options().comparator(mine())),
        1 => open(awaiting(sim)),
        2 => {
            open(awaiting(sim)).abandon();
            open(awaiting(sim))
        }
        _ => {
            open(awaiting(sim)).close().unwrap();
            open(awaiting(sim)).abandon();
            open(sim.options().comparator(mine()))
        }
    };
    if !db.unresolved_families().is_empty() {
        db.register_comparator(mine()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let f = db.family(NAME).unwrap();
    let mut found = contents(&f);
    let new = found.iter().filter(|(k, _)| *k >= key(5000)).count() as u32;
    found.retain(|(k, _)| *k < key(5000));
    assert!(found == promised.ordered, "{what}: other contents");
    assert!(new == promised.acked || new == promised.acked + 1, "{what}: {new}, not {}", promised.acked);
    let default = db.default_family();
    assert!((0..promised.acked).all(|i| default.contains(&key(5000 + i)).unwrap()), "{what}");
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{what}: {report}");
}

/// Runs the life of a database: opened with the family unresolved, written, killed, opened, closed, opened, registered, written.
fn life(sim: &Sim, promised: &Mutex<Promised>) {
    let db = awaiting(sim).open().unwrap();
    fill(db.default_family(), 40, &noise(1, 700));
    db.abandon();
    awaiting(sim).open().unwrap().close().unwrap();
    let db = awaiting(sim).open().unwrap();
    fill(db.default_family(), 40, &noise(2, 700));
    db.register_comparator(mine()).unwrap();
    let f = db.family(NAME).unwrap();
    for i in 0..6 {
        let mut batch = db.batch();
        for family in [&f, db.default_family()] {
            batch.put(family, &key(5000 + i), &noise(u64::from(i), 600)).unwrap();
        }
        db.write(&mut batch).unwrap();
        promised.lock().unwrap().acked += 1;
        if i == 3 {
            db.compact().unwrap();
        }
    }
    db.abandon();
    awaiting(sim).open().unwrap().close().unwrap();
    sim.options().comparator(mine()).open().unwrap().close().unwrap();
}

#[test]
fn a_crash_at_any_point_loses_and_duplicates_nothing() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let promised = Arc::new(Mutex::new(Promised { ordered: contents(&f), acked: 0 }));
    db.abandon();
    let forks: Arc<Mutex<Vec<(String, SimDisk, Promised)>>> = Arc::default();
    let (taken, told) = (Arc::clone(&forks), Arc::clone(&promised));
    sim.disk.observe(OpSet::CHANGES, move |op, fork| {
        let what = format!("before {:?} {} #{}", op.kind, op.path, op.index);
        taken.lock().unwrap().push((what, fork, told.lock().unwrap().clone()));
    });
    life(&sim, &promised);
    sim.disk.stop_observing();
    let forks = std::mem::take(&mut *forks.lock().unwrap());
    assert!(forks.len() > 150, "{} crash points", forks.len());
    for (n, (what, fork, promised)) in forks.iter().enumerate() {
        let n = n as u64;
        let images = [Image::EVERYTHING, Image::SYNCED, Image::STANDARD[(n % 10) as usize]];
        for (i, image) in images.iter().enumerate() {
            let left = Sim::on(fork.crash_image(image, n));
            check(&left, promised, n + i as u64, &format!("{what}, {image:?}"));
        }
        // The recovering process crashes too.
        let again = Sim::on(fork.fork());
        again.disk.crash_at_torn(again.disk.op_count() + n * 13 % 160);
        if let Ok(db) = awaiting(&again).open() {
            let _ = db.register_comparator(mine());
            db.abandon();
        }
        let image = Image::STANDARD[(n / 3 % 10) as usize];
        let left = Sim::on(again.disk.crash_image(&image, n));
        check(&left, promised, n / 4, &format!("{what}, then again, {image:?}"));
    }
}
