//! Many threads on one database, and an invariant that always holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tidesdb::{Db, Family, SyncMode, WriteBatch, WriteOptions};

use crate::common::{Sim, noise, small};

fn busy(sim: &Sim) -> Db {
    let family = small().write_buffer_bytes(64 << 10);
    sim.options().sync(SyncMode::None).background_threads(2).default_family(family).open().unwrap()
}

const ACCOUNTS: u64 = 64;
const START: u64 = 1000;

fn account(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn amount(v: &[u8]) -> u64 {
    u64::from_le_bytes(v[..8].try_into().unwrap())
}

/// Returns a value with an amount, padded so that some values go to the value log.
fn money(n: u64) -> Vec<u8> {
    let mut out = n.to_le_bytes().to_vec();
    out.resize(if n.is_multiple_of(5) { 600 } else { 40 }, 0);
    out
}

/// Moves money between accounts, one batch each. Threads own disjoint accounts.
fn transfer(db: &Db, f: &Family, thread: u64, rounds: u64) {
    let mine = ACCOUNTS / 4;
    let mut batch = WriteBatch::new();
    for i in 0..rounds {
        let random = noise(thread << 32 | i, 3);
        let [from, to] = [random[0], random[1]].map(|r| account(thread * mine + u64::from(r) % mine));
        if from == to {
            continue;
        }
        let [a, b] = [from, to].map(|k| f.get_map(&k, amount).unwrap().unwrap());
        let sum = u64::from(random[2]).min(a);
        batch.put(f, &from, &money(a - sum)).unwrap();
        batch.put(f, &to, &money(b + sum)).unwrap();
        db.write(&mut batch).unwrap();
    }
}

#[test]
fn transfers_preserve_the_total() {
    let sim = Sim::new();
    let db = busy(&sim);
    let f = db.default_family();
    for n in 0..ACCOUNTS {
        f.put(&account(n), &money(START)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let sums = AtomicU64::new(0);
    std::thread::scope(|s| {
        let readers: Vec<_> = (0..2)
            .map(|kind| {
                let (stop, sums, db) = (&stop, &sums, &db);
                s.spawn(move || {
                    while !stop.load(SeqCst) {
                        let sum: u64 = if kind == 0 {
                            let snapshot = db.snapshot();
                            let all = snapshot.iter(f).unwrap();
                            all.map(|kv| amount(&kv.unwrap().1)).sum()
                        } else {
                            let keys: Vec<_> = (0..ACCOUNTS).map(account).collect();
                            f.multi_get(&keys).unwrap().iter().map(|v| amount(v.as_ref().unwrap())).sum()
                        };
                        assert_eq!(sum, ACCOUNTS * START);
                        sums.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|t| {
                s.spawn({
                    let db = &db;
                    move || transfer(db, f, t, 2500)
                })
            })
            .collect();
        let carer = s.spawn(|| {
            while !stop.load(SeqCst) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        let results: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, SeqCst);
        readers.into_iter().chain([carer]).for_each(|t| t.join().unwrap());
        results.into_iter().for_each(|r| r.unwrap());
    });
    assert!(sums.load(SeqCst) > 10, "too few reads");
    let killed = sim.killed().open();
    let sum: u64 = killed.iter().unwrap().map(|kv| amount(&kv.unwrap().1)).sum();
    assert_eq!(sum, ACCOUNTS * START);
}

/// Whatever its mode: half of the commits sync, and the others may stand behind one whose sync still runs.
#[test]
fn a_commit_that_returned_is_visible_to_all_threads() {
    let sim = Sim::new();
    let db = busy(&sim);
    let newest: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (db, newest) = (&db, &newest);
            s.spawn(move || {
                let mode = if thread % 2 == 0 { SyncMode::None } else { SyncMode::Full };
                let options = WriteOptions::default().sync(mode);
                for i in 1..3000u64 {
                    db.put_with(&account(thread), &i.to_le_bytes(), &options).unwrap();
                    newest[thread as usize].store(i, SeqCst);
                    let other = (thread + i) % 4;
                    let returned = newest[other as usize].load(SeqCst);
                    let seen = db.get_map(&account(other), amount).unwrap().unwrap_or(0);
                    assert!(seen >= returned, "{seen} of thread {other}, although {returned} had returned");
                }
            });
        }
    });
}

#[test]
fn two_keys_of_one_batch_never_differ() {
    let sim = Sim::new();
    let db = busy(&sim);
    let other = db.create_family("other", small().write_buffer_bytes(32 << 10)).unwrap();
    let f = db.default_family();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut batch = WriteBatch::new();
            for i in 0..8000u64 {
                batch.put(f, b"twin", &money(i)).unwrap();
                batch.put(&other, b"twin", &money(i)).unwrap();
                db.write(&mut batch).unwrap();
            }
        });
        let reader = s.spawn(|| {
            while !done.load(SeqCst) {
                let snapshot = db.snapshot();
                let [a, b] = [f, &other].map(|f| snapshot.get(f, b"twin").unwrap().map(|v| amount(&v)));
                assert_eq!(a, b, "a partial batch is visible");
            }
        });
        let result = writer.join();
        done.store(true, SeqCst);
        reader.join().unwrap();
        result.unwrap();
    });
}

#[test]
fn families_are_created_and_dropped_under_load() {
    let sim = Sim::new();
    let db = busy(&sim);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut i = 0u32;
            while !stop.load(SeqCst) {
                db.put(&(i % 3000).to_be_bytes(), &[7; 200]).unwrap();
                i += 1;
            }
        });
        let result = s.spawn(|| {
            for i in 0..60u32 {
                let f = db.create_family("passing", small()).unwrap();
                for k in 0..30u32 {
                    f.put(&k.to_be_bytes(), &i.to_be_bytes()).unwrap();
                }
                if i % 3 == 0 {
                    f.flush().unwrap();
                }
                let iter = f.iter().unwrap();
                db.drop_family("passing").unwrap();
                assert!(iter.map(Result::unwrap).all(|(_, v)| v == i.to_be_bytes()));
                assert!(f.get(&0u32.to_be_bytes()).is_err());
            }
        });
        let result = result.join();
        stop.store(true, SeqCst);
        writer.join().unwrap();
        result.unwrap();
    });
    assert_eq!(db.families(), ["default"]);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn checkpoints_under_load_are_complete() {
    let sim = Sim::new();
    let db = busy(&sim);
    let f = db.default_family();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut batch = WriteBatch::new();
            let mut i = 0u64;
            while !stop.load(SeqCst) {
                batch.put(f, b"twin a", &money(i)).unwrap();
                batch.put(f, b"twin b", &money(i)).unwrap();
                batch.put(f, &account(i % 1000), &money(i)).unwrap();
                db.write(&mut batch).unwrap();
                i += 1;
            }
        });
        for n in 0..5 {
            db.checkpoint(format!("/copy{n}")).unwrap();
        }
        stop.store(true, SeqCst);
        writer.join().unwrap();
    });
    for n in 0..5 {
        let copy = sim.options_at(format!("/copy{n}")).open().unwrap();
        assert_eq!(copy.get(b"twin a").unwrap(), copy.get(b"twin b").unwrap(), "copy {n}");
        assert!(copy.verify().unwrap().is_ok(), "copy {n}");
    }
}
