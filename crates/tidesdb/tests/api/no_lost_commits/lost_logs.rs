//! Power failures, and file systems that go away, while several families are flushed at once and nothing else syncs the log: what is left is a prefix of the commits, over
//! all families, and what was flushed or synced is in it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, Family, FamilyOptions, OpenOptions, SyncMode, WriteBatch};
use tidesdb_io::sim::Image;

use crate::common::{Random, Sim, Stop, contents, noise, small};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Power failures, and commits for each.
const FAILURES: u32 = 60;
const COMMITS: u32 = 200;

fn tiny() -> FamilyOptions {
    small().write_buffer_bytes(16 << 10).vlog_file_bytes(16 << 10)
}

fn options(sim: &Sim) -> OpenOptions {
    sim.options().sync(SyncMode::None).default_family(tiny())
}

/// Returns whether commit `n` writes to a family. Each writes to at least one.
fn writes_to(n: u32, family: usize) -> bool {
    let sets = [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111, 0b001];
    sets[(n.wrapping_mul(2_654_435_761) >> 29) as usize] >> family & 1 == 1
}

fn commit(db: &Db, families: &[Family], n: u32) {
    let mut batch = WriteBatch::new();
    for (_, family) in families.iter().enumerate().filter(|(i, _)| writes_to(n, *i)) {
        batch
            .put(family, n.to_be_bytes(), noise(u64::from(n), if n.is_multiple_of(7) { 700 } else { 60 }))
            .unwrap();
    }
    db.write(&mut batch).unwrap();
}

fn families(db: &Db) -> Vec<Family> {
    NAMES.iter().map(|name| db.family(name).unwrap()).collect()
}

/// Returns the number of commits that `db` has; fails if it lacks an earlier one, or a part of one.
fn commits(db: &Db, what: &str) -> u32 {
    let rows: Vec<Vec<u32>> = families(db)
        .iter()
        .map(|family| {
            let key = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
            contents(family)
                .iter()
                .map(|(k, v)| (key(k), v))
                .map(|(n, v)| {
                    assert_eq!(v[..60], noise(u64::from(n), 60), "{what}: commit {n}");
                    n
                })
                .collect()
        })
        .collect();
    let end = rows.iter().flatten().max().map_or(0, |newest| newest + 1);
    for (i, rows) in rows.iter().enumerate() {
        assert!(
            (0..end).filter(|n| writes_to(*n, i)).eq(rows.iter().copied()),
            "{what}: a gap in family {i}"
        );
    }
    end
}

/// Opens what a power failure left; at least `durable` commits must be there. Lets it go on, and the power fail again.
fn check(after: &Sim, durable: u32, seed: u64, what: &str) {
    let reader = after.options().open_reader().unwrap_or_else(|e| panic!("{what}: a reader: {e}"));
    let shown = commits(&reader.view(), what);
    let db = options(after).open().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = commits(&db, what);
    assert!(found >= durable, "{what}: {found} commits are left, {durable} were durable");
    assert!(
        shown >= durable && shown <= found,
        "{what}: a reader shows {shown} commits, {found} are recovered"
    );
    assert!(db.verify().unwrap().is_ok(), "{what}");
    let (families, flushed) = (families(&db), seed as usize % NAMES.len());
    (found..found + 60).for_each(|n| commit(&db, &families, n));
    families[flushed].flush().unwrap();
    (found + 60..found + 70).for_each(|n| commit(&db, &families, n));
    let durable = (0..found + 60).rfind(|n| writes_to(*n, flushed)).unwrap() + 1;
    let again = after.power_lost(&Image::STANDARD[seed as usize / 3 % 10], seed);
    let what = format!("{what}, and again");
    let found = commits(&options(&again).open().unwrap_or_else(|e| panic!("{what}: {e}")), &what);
    assert!(found >= durable, "{what}: {found} commits are left, {durable} were durable");
}

#[test]
fn families_that_are_flushed_at_once_leave_a_prefix() {
    let sim = Sim::new();
    let db = options(&sim).background_threads(3).open().unwrap();
    let families: Vec<Family> = NAMES.iter().map(|name| db.create_family(name, tiny()).unwrap()).collect();
    let (done, written, durable) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let wanted = AtomicU32::new(COMMITS);
    std::thread::scope(|s| {
        let (db, families, wanted) = (&db, &families[..], &wanted);
        let (done, written, durable) = (&done, &written, &durable);
        s.spawn(move || {
            for n in 0.. {
                commit(db, families, n);
                written.store(n + 1, SeqCst);
                while n >= wanted.load(SeqCst) && !done.load(SeqCst) {
                    std::thread::yield_now();
                }
                if done.load(SeqCst) {
                    return;
                }
            }
        });
        for (i, family) in families.iter().enumerate() {
            s.spawn(move || {
                let mut random = Random::new(i as u64);
                while !done.load(SeqCst) {
                    let end = written.load(SeqCst);
                    if random.one_in(20) {
                        db.sync().unwrap();
                        durable.fetch_max(end, SeqCst);
                    } else {
                        family.flush().unwrap();
                        let newest = (0..end).rfind(|n| writes_to(*n, i));
                        durable.fetch_max(newest.map_or(0, |n| n + 1), SeqCst);
                    }
                    std::thread::sleep(Duration::from_micros(random.below(3000)));
                }
            });
        }
        let _stop = Stop(done);
        for seed in 0..u64::from(FAILURES) {
            wanted.fetch_add(COMMITS, SeqCst);
            std::thread::sleep(Duration::from_millis(seed % 7));
            let least = durable.load(SeqCst);
            let image = Image::STANDARD[seed as usize % 10];
            let is_power = seed / 10 % 2 == 0;
            let after = if is_power { sim.power_lost(&image, seed) } else { sim.mount_lost(&image, seed) };
            check(&after, least, seed, &format!("seed {seed}, {image:?}, power lost: {is_power}"));
        }
    });
    assert!(durable.load(SeqCst) > 0 && commits(&db, "at the end") == written.load(SeqCst));
}

/// A file system that an error shut down loses what it had in memory, while the machine goes on. An open that took that for a kill called the
/// log damaged.
#[test]
fn a_file_system_that_is_mounted_again_leaves_a_prefix() {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    let families: Vec<Family> = NAMES.iter().map(|name| db.create_family(name, tiny()).unwrap()).collect();
    (0..60).for_each(|n| commit(&db, &families, n));
    db.sync().unwrap();
    (60..200).for_each(|n| commit(&db, &families, n));
    let mut lost = 0;
    for seed in 0..80 {
        let image = Image::STANDARD[seed as usize % 10];
        let what = format!("seed {seed}, {image:?}");
        let after = sim.mount_lost(&image, seed);
        let reader = after.options().open_reader().unwrap_or_else(|e| panic!("{what}: a reader: {e}"));
        let shown = commits(&reader.view(), &what);
        let db = options(&after).open().unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = commits(&db, &what);
        assert!((60..=found).contains(&shown) && found <= 200, "{what}: {shown} shown, {found} recovered");
        assert!(db.verify().unwrap().is_ok(), "{what}");
        lost += u32::from(found < 200);
    }
    assert!(lost > 20, "only {lost} of the images lost anything");
}
