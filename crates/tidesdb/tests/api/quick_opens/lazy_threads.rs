//! No thread starts before there is work for it, and a thread that cannot start stops nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, FamilyOptions, HealthState, OpenOptions, SyncMode};
use tidesdb_io::Env;
use tidesdb_io::sim::{Body, Image, Starts};

use crate::common::{Sim, contents, fill, noise, small};

/// Threads of the system, counted while they live.
#[derive(Debug, Default)]
struct Counted {
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn env(&self, env: &Env) -> Env {
        let alive = Arc::clone(&self.alive);
        let count = move |_: &str, body: Body| -> io::Result<Body> {
            let alive = Arc::clone(&alive);
            alive.fetch_add(1, SeqCst);
            Ok(Box::new(move || {
                body();
                alive.fetch_sub(1, SeqCst);
            }))
        };
        Starts::of(env).on_start(count).env()
    }
}

#[test]
fn no_thread_starts_before_there_is_work_for_it() {
    let (temp, threads) = (tempfile::tempdir().unwrap(), Counted::default());
    let wait_for = |wanted: usize, when: &str| {
        let alive = || threads.alive.load(SeqCst);
        let is_reached = || {
            let reached = alive() == wanted;
            if !reached {
                std::thread::sleep(Duration::from_millis(10));
            }
            reached
        };
        assert!((0..1000).any(|_| is_reached()), "{when}: {} threads, not {wanted}", alive());
    };
    let options =
        |name| Db::options(temp.path().join(name)).env(threads.env(&Env::real())).background_threads(4);
    for round in 0..4u8 {
        let db = options("small").open().unwrap();
        assert_eq!(db.get(b"key").unwrap().is_some(), round > 0);
        assert_eq!(db.iter().unwrap().count(), usize::from(round > 0));
        wait_for(0, "reads");
        if round < 3 {
            db.put(b"key", [round]).unwrap();
            wait_for(2, "the timekeeper seals the log when it is idle; figures are published");
        }
        db.close().unwrap();
        wait_for(0, "closed");
    }
    let family = FamilyOptions::default().write_buffer_bytes(1 << 20).l1_tables_trigger(2);
    let db = options("large").default_family(family).sync(SyncMode::None).open().unwrap();
    for n in 0..60_000u32 {
        db.put(n.to_be_bytes(), noise(n.into(), 400)).unwrap();
    }
    wait_for(
        9,
        "two that flush, three that merge, one that removes files, one for the log, the timekeeper, one that publishes",
    );
    db.close().unwrap();
    wait_for(0, "closed");
}

/// Threads of the system, while it has room for them.
#[derive(Debug, Default)]
struct Scarce {
    has_room: AtomicBool,
    refused: AtomicUsize,
    started: AtomicUsize,
}

fn scarce(sim: &Sim, threads: &Arc<Scarce>) -> OpenOptions {
    let threads = Arc::clone(threads);
    let has_room = move |_: &str, body| {
        if threads.has_room.load(SeqCst) {
            threads.started.fetch_add(1, SeqCst);
            return Ok(body);
        }
        threads.refused.fetch_add(1, SeqCst);
        Err(io::ErrorKind::WouldBlock.into())
    };
    let env = Starts::of(&sim.env).on_start(has_room).processors(2).env();
    sim.options().env(env).background_threads(2).default_family(small().write_buffer_bytes(64 << 10))
}

/// The writers once waited ten seconds for flushes that nobody ran.
#[test]
fn commits_do_the_work_of_threads_that_cannot_start() {
    let (sim, threads) = (Sim::new(), Arc::new(Scarce::default()));
    let db = scarce(&sim, &threads).sync(SyncMode::None).open().unwrap();
    assert_eq!((threads.refused.load(SeqCst), db.health().state), (0, HealthState::Healthy));
    for n in 0..10_000u32 {
        db.put(n.to_be_bytes(), noise(n.into(), 100)).unwrap();
    }
    let stats = db.default_family().stats();
    assert!(stats.compactions > 0 && stats.immutables < 4, "{stats:?}");
    assert!(threads.refused.load(SeqCst) > 0);
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.to_string().contains("which the system cannot start: start tidesdb-"), "{health}");
    // The next jobs find room.
    threads.has_room.store(true, SeqCst);
    for n in 0..10_000u32 {
        db.put(n.to_be_bytes(), noise(n.into(), 100)).unwrap();
    }
    let is_healthy = || {
        db.compact().unwrap();
        db.put(b"more", b"v").unwrap();
        db.flush().unwrap();
        db.health().state == HealthState::Healthy
    };
    assert!((0..1000).any(|_| is_healthy()), "{}", db.health());
    assert!(threads.started.load(SeqCst) > 0);
    assert_eq!(contents(db.default_family()).len(), 10_001);
    db.close().unwrap();
    assert_eq!(contents(sim.open_as_stored().default_family()).len(), 10_001);
}

/// Nobody would sync the log in time.
#[test]
fn a_sync_interval_is_kept_by_the_commit_if_the_timekeeper_cannot_start() {
    let (sim, threads) = (Sim::new(), Arc::new(Scarce::default()));
    let interval = SyncMode::Interval(Duration::from_secs(1));
    let db = scarce(&sim, &threads).sync(interval).open().unwrap();
    for n in 0..10u32 {
        db.put(n.to_be_bytes(), b"v").unwrap();
        let after = sim.power_lost(&Image::SYNCED, 1);
        assert_eq!(contents(after.open().default_family()).len(), n as usize + 1);
    }
    assert_eq!(db.health().state, HealthState::Degraded);
}

/// The first commits, which start threads, beside a close, which ends them.
#[test]
fn threads_that_start_during_a_close_end_with_it() {
    for round in 0..200u64 {
        let (sim, threads) = (Sim::new(), Counted::default());
        let env = threads.env(&sim.env);
        let db = sim.options().env(env).background_threads(1 + round as usize % 3).open().unwrap();
        std::thread::scope(|s| {
            for thread in 0..3u8 {
                let db = db.clone();
                s.spawn(move || {
                    for n in 0..20u8 {
                        if db.put([thread, n], noise(n.into(), 2000)).is_err() {
                            return;
                        }
                        if n % 8 == thread {
                            let _ = db.flush();
                        }
                    }
                });
            }
            s.spawn(|| {
                std::thread::sleep(Duration::from_micros(round * 20));
                db.clone().close().unwrap();
                assert_eq!(threads.alive.load(SeqCst), 0, "round {round}");
            });
        });
        drop(db);
        let db = sim.open_as_stored();
        assert!(db.recovery_report().clean, "round {round}");
    }
}

#[test]
fn a_database_without_commits_closes_without_threads() {
    let (sim, threads) = (Sim::new(), Arc::new(Scarce::default()));
    threads.has_room.store(true, SeqCst);
    let db = scarce(&sim, &threads).open().unwrap();
    db.close().unwrap();
    assert_eq!(threads.started.load(SeqCst), 0);
    let db = scarce(&sim, &threads).open().unwrap();
    fill(db.default_family(), 10, b"v");
    db.close().unwrap();
    assert_eq!(threads.started.load(SeqCst), 2, "the timekeeper, and the thread that publishes figures");
}
