//! Crashes at every call that changes the disk, in every kind of image. The recovered state is the one before or after
//! the interrupted install, nothing acknowledged is lost, and no image is refused.

use std::collections::BTreeSet;

use super::*;
use std::sync::Mutex;
use tidesdb_io::sim::{DataFate, Image, NameFate, OpSet, SimDisk};

/// The states that recovery may find.
#[derive(Default)]
struct Oracle {
    /// The state after the last acknowledged install.
    acked: Vec<u8>,
    /// The state that the current install would produce.
    tried: Option<Vec<u8>>,
    /// Whether the creation was acknowledged.
    created: bool,
}

#[derive(Default)]
struct Count {
    points: u64,
    images: u64,
    before: u64,
    after: u64,
    unmarked: u64,
    torn: u64,
    half: u64,
}

fn images() -> Vec<Image> {
    let rough =
        [512, 4096].map(|size| Image { data: DataFate::PowersafeOff { size }, names: NameFate::Subset });
    Image::STANDARD.into_iter().chain(rough).collect()
}

fn check_image(disk: SimDisk, oracle: &Oracle, seed: u64, count: &mut Count, what: &str) {
    let (env, _disk, _) = sim::env_on(disk, seed);
    let found = env.disk.open_dir(Path::new(DB), true).map(|dir| presence(&*dir)).unwrap();
    let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
    if found == Presence::Absent {
        assert!(!oracle.created, "{what}: the database is lost");
        create(&env);
        return;
    }
    let (set, report) = try_open(&env).unwrap_or_else(|e| panic!("{what}: {e}"));
    let state = facts(&set.state());
    let after = oracle.tried.as_ref() == Some(&state);
    assert!(after || state == oracle.acked, "{what}: a state that never existed");
    assert!(!report.repaired_mark, "{what}: a crash was reported as damage");
    count.before += u64::from(!after);
    count.after += u64::from(after);
    count.unmarked += u64::from(report.unmarked_record);
    count.torn += u64::from(report.torn_bytes > 0);
    count.half += u64::from(report.half_marked);
    set.settle_orphans();
    set.unlink_obsolete();
    // The database still works, and later installs are durable.
    let changes = step(&set, 90);
    install(&set, changes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let state = facts(&set.state());
    drop(set);
    let (set, _) = try_open(&env).unwrap_or_else(|e| panic!("{what}: second open: {e}"));
    assert_eq!(facts(&set.state()), state, "{what}: second open");
}

/// Runs `script` once and checks each of its crash points.
fn sweep(seed: u64, script: impl FnOnce(&Env, &Arc<Mutex<Oracle>>)) -> Count {
    let (env, disk, _) = sim::env(seed);
    env.disk.open_dir(Path::new(DB), true).unwrap();
    let oracle = Arc::new(Mutex::new(Oracle::default()));
    let count = Arc::new(Mutex::new(Count::default()));
    let (told, counted) = (Arc::clone(&oracle), Arc::clone(&count));
    disk.observe(OpSet::CHANGES, move |op, fork| {
        let (oracle, mut count) = (told.lock().unwrap(), counted.lock().unwrap());
        count.points += 1;
        let (oracle, count) = (&*oracle, &mut *count);
        // A thread of its own: this one holds locks of the set that is written.
        let check = || {
            for (i, image) in images().iter().enumerate() {
                for again in 0..2 {
                    let image_seed = seed ^ op.index << 8 ^ (i as u64) << 1 ^ again;
                    let what =
                        format!("seed {seed}, before {:?} {} #{}, {image:?}", op.kind, op.path, op.index);
                    count.images += 1;
                    check_image(fork.crash_image(image, image_seed), oracle, image_seed, count, &what);
                }
            }
        };
        std::thread::scope(|scope| scope.spawn(check).join()).unwrap();
    });
    script(&env, &oracle);
    disk.stop_observing();
    let count = std::mem::take(&mut *count.lock().unwrap());
    println!(
        "seed {seed}: {} crash points, {} images, {} before, {} after ({} unmarked, {} half marked, {} torn)",
        count.points, count.images, count.before, count.after, count.unmarked, count.half, count.torn
    );
    count
}

fn tell(oracle: &Mutex<Oracle>, change: impl FnOnce(&mut Oracle)) {
    change(&mut oracle.lock().unwrap());
}

/// Installs `changes` while the oracle knows both possible outcomes.
fn observed(set: &Set, changes: Vec<Change>, oracle: &Mutex<Oracle>) {
    let mut next = set.state();
    next.apply(&edit(changes.iter().cloned())).unwrap();
    let next = facts(&next);
    tell(oracle, |o| o.tried = Some(next.clone()));
    install(set, changes).unwrap();
    tell(oracle, |o| *o = Oracle { acked: next, tried: None, created: true });
}

fn created(env: &Env, oracle: &Mutex<Oracle>) -> Set {
    tell(oracle, |o| o.acked = facts(&State::default()));
    let set = create(env);
    tell(oracle, |o| o.created = true);
    set
}

#[test]
fn crashes_during_installs() {
    let count = sweep(1, |env, oracle| {
        let set = created(env, oracle);
        for n in 0..12 {
            observed(&set, step(&set, n), oracle);
            set.unlink_obsolete();
        }
        // An edit of several pages.
        let big = Change::Unknown { tag: IGNORABLE | 1 << 6, body: vec![7; 10_000].into() };
        observed(&set, vec![big], oracle);
        observed(&set, step(&set, 13), oracle);
    });
    assert!(count.points > 60 && count.images > 1400, "the sweep has shrunk");
    assert!(
        count.after > 0 && count.unmarked > 0 && count.half > 0 && count.torn > 0,
        "the sweep does not reach all kinds of crashes"
    );
}

#[test]
fn crashes_during_open_close_and_manifest_replacement() {
    let count = sweep(2, |env, oracle| {
        let mut set = created(env, oracle);
        let mut numbers = BTreeSet::new();
        for n in 0..40 {
            observed(&set, step(&set, n), oracle);
            numbers.extend(set.manifest().map(|m| m.0));
            if n % 16 == 15 {
                set.close(&VersionEdit::new()).unwrap();
                set = open(env).0;
                set.settle_orphans();
            }
            set.unlink_obsolete();
        }
        assert!(numbers.len() > 4, "no manifest was replaced: {numbers:?}");
    });
    assert!(count.points > 150, "the sweep has shrunk");
}

#[test]
fn crashes_during_changes_of_families() {
    sweep(3, |env, oracle| {
        let set = created(env, oracle);
        for n in 0..4u32 {
            let id = set.new_family_id().unwrap();
            let name = ["..", "a/b\u{0}", "CON", "\u{1F30A}"][n as usize];
            observed(&set, vec![create_family(id.0, name)], oracle);
            let table = meta(set.new_table_id().unwrap().0, ("a", "b"), (1, 2), &[]);
            observed(&set, vec![add(id.0, 1, &table)], oracle);
            observed(&set, vec![Change::RenameFamily { family: id, name: "again".into() }], oracle);
            observed(&set, vec![Change::DropFamily { family: id }], oracle);
            set.unlink_obsolete();
        }
    });
}

/// A crash during recovery from a crash.
#[test]
fn crashes_during_recovery() {
    let (_env, disk, set) = disk_with(4, 6);
    let acked = facts(&set.state());
    let changes = step(&set, 6);
    let mut tried = set.state();
    tried.apply(&edit(changes.iter().cloned())).unwrap();
    let tried = facts(&tried);
    let start = disk.op_count();
    install(&set, changes).unwrap();
    let mut nested = 0;
    for point in start..=disk.op_count() {
        let (_env, disk, set) = disk_with(4, 6);
        disk.crash_at_torn(point);
        let _ = install(&set, step(&set, 6));
        disk.crash_now();
        for (i, image) in images().iter().enumerate() {
            let first = disk.crash_image(image, i as u64);
            for at in 0..40 {
                let (env, again, _) = sim::env_on(first.fork(), i as u64);
                again.crash_at_torn(at);
                let whole = try_open(&env).is_ok();
                let (env, _, _) =
                    sim::env_on(again.crash_image(&images()[(i + at as usize) % images().len()], at), 9);
                let (set, report) =
                    try_open(&env).unwrap_or_else(|e| panic!("{image:?} at {point}, then {at}: {e}"));
                let state = facts(&set.state());
                assert!(state == acked || state == tried, "{image:?} at {point}, then {at}");
                assert!(!report.repaired_mark, "{image:?} at {point}, then {at}");
                nested += 1;
                if whole {
                    break;
                }
            }
        }
    }
    println!("nested crash points: {nested}");
    assert!(nested > 500);
}
