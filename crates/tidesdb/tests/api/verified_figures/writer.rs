//! What a writer publishes of itself for other processes.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidesdb::{Db, Error, HealthState, SyncMode, WriterFigures, WriterState};
use tidesdb_io::sim::{Fault, OpKind, OpSet};

use crate::common::{Sim, fill, small};

const FILE: &str = "/db/FIGURES";

fn open(sim: &Sim) -> Db {
    sim.options().background_threads(2).open().unwrap()
}

fn figures(sim: &Sim) -> Option<WriterFigures> {
    sim.options().writer_figures().unwrap()
}

/// Waits until the writer has published figures that `wanted` accepts.
fn published(sim: &Sim, wanted: impl Fn(&WriterFigures) -> bool) -> WriterFigures {
    let began = Instant::now();
    loop {
        match figures(sim) {
            Some(figures) if wanted(&figures) => return figures,
            seen => {
                let state = seen.map(|seen| (seen.state, seen.stats.visible_seq));
                assert!(began.elapsed() < Duration::from_secs(60), "{state:?}");
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_idle(figures: &WriterFigures) -> bool {
    figures.state == WriterState::Idle
}

/// The figures as text, without those that change by themselves.
fn lines(stats: &tidesdb::Stats) -> Vec<String> {
    let text = stats.to_string();
    let own = ["memory", "jobs pending", "oldest cursor", "cache"];
    text.lines().filter(|line| !own.iter().any(|name| line.contains(name))).map(str::to_owned).collect()
}

#[test]
fn other_processes_see_the_figures_of_the_writer() {
    let sim = Sim::new();
    let db = open(&sim);
    assert!(figures(&sim).is_none());
    let other = db.create_family("g\u{fc}n", small().value_threshold(64)).unwrap();
    fill(db.default_family(), 1000, b"value");
    fill(&other, 100, &[7; 200]);
    db.flush().unwrap();
    db.compact().unwrap();
    fill(db.default_family(), 10, b"newer");
    let seen = published(&sim, |seen| is_idle(seen) && seen.stats.visible_seq == db.stats().visible_seq);
    assert_eq!(lines(&seen.stats), lines(&db.stats()));
    assert_eq!((seen.process, seen.health.state), (std::process::id(), HealthState::Healthy));
    assert_eq!((seen.version.as_str(), seen.families_left_out), (env!("CARGO_PKG_VERSION"), 0));
    assert!(seen.unknown.is_empty(), "{:?}", seen.unknown);
    let tree = &seen.stats.trees[0];
    assert_eq!(tree.levels.len(), db.default_family().tree().levels.len());
    assert!(tree.levels.iter().all(|level| level.first_key.is_empty() && level.last_key.is_empty()));
    assert!(seen.metrics_text().contains("tidesdb_figures_age_seconds "));
    let reader = sim.options().open_reader().unwrap();
    assert_eq!(reader.writer_figures().unwrap().unwrap().stats.visible_seq, seen.stats.visible_seq);
    db.close().unwrap();
    assert_eq!(figures(&sim).unwrap().state, WriterState::Closed);
}

#[test]
fn nothing_is_written_before_the_first_write_nor_while_nothing_happens() {
    let sim = Sim::new();
    open(&sim).close().unwrap();
    assert!(sim.disk.read_file(FILE).is_err());
    let db = open(&sim);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(sim.disk.read_file(FILE).is_err(), "before the first write");
    db.put("whale", "blue").unwrap();
    published(&sim, is_idle);
    let before = sim.disk.read_file(FILE).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(sim.disk.read_file(FILE).unwrap() == before, "nothing has happened");
    assert!(before.len() < 400 << 10, "{}", before.len());
    db.close().unwrap();
    // Its figures would stay those of the session before.
    sim.options().with(|o| o.event_log = false).background_threads(2).open().unwrap().put("a", "b").unwrap();
    assert!(
        sim.disk.read_file(FILE).is_err(),
        "who does not publish removes what an earlier one has published"
    );
}

#[test]
fn a_change_of_health_is_published_at_once() {
    let sim = Sim::new();
    let db = open(&sim);
    db.put("whale", "blue").unwrap();
    published(&sim, is_idle);
    let began = Instant::now();
    sim.disk.inject(Fault::errno(5).on(OpSet::SYNCS));
    assert!(db.put("whale", "grey").is_err());
    let seen = published(&sim, |seen| seen.health.state == HealthState::Poisoned);
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(seen.health.causes, db.health().causes);
}

/// A writer that dies in the middle of a write leaves what it had written before.
#[test]
fn a_damaged_or_cut_file_shows_older_figures_or_none() {
    let sim = Sim::new();
    let db = open(&sim);
    fill(db.default_family(), 10, b"v");
    // The last two slots have the same figures; the newer one says that there was nothing to do since.
    let last = published(&sim, is_idle).stats.visible_seq;
    let whole = sim.disk.read_file(FILE).unwrap();
    let mut shown = [0; 3];
    let used = (0..whole.len()).filter(|at| whole[*at] != 0);
    for at in used.step_by(7).chain([0, 8, 12, 44, 4096, 4104, 4108]) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        sim.disk.write_file(FILE, &damaged).unwrap();
        let seen = sim.options().writer_figures().unwrap();
        assert!(seen.as_ref().is_none_or(|seen| seen.stats.visible_seq == last), "byte {at}");
        shown[usize::from(seen.is_some()) + usize::from(seen.as_ref().is_some_and(is_idle))] += 1;
    }
    assert!(shown.iter().all(|n| *n > 0), "{shown:?}");
    for len in [0, 1, 47, 48, 4095, 4100, 5000, whole.len() - 1] {
        sim.disk.write_file(FILE, &whole[..len.min(whole.len())]).unwrap();
        let seen = sim.options().writer_figures().unwrap();
        assert!(seen.is_none_or(|seen| seen.stats.visible_seq == last), "{len} bytes");
    }
}

#[test]
fn a_file_of_another_database_or_of_a_newer_version_is_not_read() {
    let sim = Sim::new();
    for path in ["/db", "/other"] {
        let db = sim.options_at(path).background_threads(2).open().unwrap();
        db.put("whale", "blue").unwrap();
        let began = Instant::now();
        while sim.options_at(path).writer_figures().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        db.close().unwrap();
    }
    let of_other = sim.disk.read_file("/other/FIGURES").unwrap();
    sim.disk.write_file(FILE, &of_other).unwrap();
    assert!(figures(&sim).is_none());
    let db = open(&sim);
    db.put("whale", "grey").unwrap();
    published(&sim, is_idle);
    db.close().unwrap();
    assert!(matches!(
        Db::options("/nowhere").env(sim.env.clone()).writer_figures(),
        Err(Error::NotFound { .. })
    ));
}

/// The process that they name runs, and has the original open.
#[test]
#[cfg(unix)]
fn a_copy_of_the_folder_has_no_figures_of_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = Db::open(at("db")).unwrap();
    db.put("whale", "blue").unwrap();
    let began = Instant::now();
    while Db::options(at("db")).writer_figures().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::create_dir(at("copy")).unwrap();
    for file in std::fs::read_dir(at("db")).unwrap().flatten() {
        std::fs::copy(file.path(), at("copy").join(file.file_name())).unwrap();
    }
    assert!(Db::options(at("copy")).writer_figures().unwrap().is_none());
    std::fs::rename(at("db"), at("moved")).unwrap();
    assert!(Db::options(at("moved")).writer_figures().unwrap().is_some(), "it is the same file");
    db.close().unwrap();
}

/// The figures are left behind, and nothing else is delayed.
#[test]
fn a_disk_that_hangs_or_fails_delays_and_loses_nothing_but_the_figures() {
    let sim = Sim::new();
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let gate_of_disk = Arc::clone(&gate);
    let db = sim
        .options()
        .background_threads(2)
        .sync(SyncMode::Interval(Duration::from_millis(5)))
        .open()
        .unwrap();
    db.put("whale", "blue").unwrap();
    let before = published(&sim, is_idle);
    sim.disk.before_calls(OpSet::from(OpKind::Write), move |path| {
        if path.ends_with("FIGURES") {
            let mut is_open = gate_of_disk.0.lock().unwrap();
            while !*is_open {
                is_open = gate_of_disk.1.wait(is_open).unwrap();
            }
        }
    });
    let began = Instant::now();
    for n in 0..3000_u32 {
        db.put_with_ttl(n.to_be_bytes(), "v", Duration::from_secs(1)).unwrap();
    }
    let end = db.stats().visible_seq;
    while db.stats().durable_end <= end {
        assert!(began.elapsed() < Duration::from_secs(60), "the interval is not kept");
        std::thread::sleep(Duration::from_millis(1));
    }
    sim.clock.advance(Duration::from_secs(5));
    while db.get(0_u32.to_be_bytes()).unwrap().is_some() {
        assert!(began.elapsed() < Duration::from_secs(60), "the row does not expire");
        std::thread::sleep(Duration::from_millis(1));
    }
    db.flush().unwrap();
    std::thread::sleep(Duration::from_millis(1200).saturating_sub(began.elapsed()));
    assert_eq!(figures(&sim).unwrap().stats.visible_seq, before.stats.visible_seq);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    published(&sim, |seen| seen.stats.visible_seq >= end);

    sim.disk.before_calls(OpSet::from(OpKind::Write), |_| {});
    let fault = sim.disk.inject(Fault::errno(28).path_if(|path| path.ends_with("FIGURES")).forever());
    db.put("whale", "grey").unwrap();
    while sim.disk.struck(fault) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(db.health().state, HealthState::Healthy);
    sim.disk.clear_faults();
    let last = db.put("whale", "white").unwrap();
    published(&sim, |seen| seen.stats.visible_seq >= last);
    db.close().unwrap();
}

/// A writer that waits for the device is not one that has nothing to do.
#[test]
fn a_sync_that_hangs_is_published() {
    let sim = Sim::new();
    let db = open(&sim);
    db.put("whale", "blue").unwrap();
    published(&sim, is_idle);
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let gate_of_disk = Arc::clone(&gate);
    sim.disk.before_syncs(move |path| {
        let mut is_open = gate_of_disk.0.lock().unwrap();
        while path.contains(".wal") && !*is_open {
            is_open = gate_of_disk.1.wait(is_open).unwrap();
        }
    });
    let writer = db.clone();
    let put = std::thread::spawn(move || writer.put("whale", "grey"));
    // The timekeeper, which moves the clock of this test, waits for the sync, too. The second figures show that the writer is not taken for
    // one that has nothing to do since the first.
    let runs_longer_than = |before: Duration| {
        let look = |seen: &WriterFigures| seen.stats.sync_running_seconds > before;
        let began = Instant::now();
        while db.stats().sync_running_seconds <= before + Duration::from_secs(2) {
            assert!(began.elapsed() < Duration::from_secs(60), "the sync does not hang");
            std::thread::sleep(Duration::from_millis(5));
            sim.clock.advance(Duration::from_secs(1));
        }
        published(&sim, look)
    };
    let first = runs_longer_than(Duration::ZERO);
    let seen = runs_longer_than(first.stats.sync_running_seconds);
    assert_eq!(seen.state, WriterState::Running);
    let found = seen.diagnose();
    assert_eq!((found[0].rule, found[0].severity), ("hung-sync", tidesdb::Severity::Urgent), "{found:?}");
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    put.join().unwrap().unwrap();
    let seen = published(&sim, |seen| is_idle(seen) && seen.stats.sync_running_seconds.is_zero());
    assert!(seen.diagnose().iter().all(|finding| finding.rule != "hung-sync"));
    db.close().unwrap();
}

/// A cursor that is forgotten is found on a quiet database, too.
#[test]
fn a_cursor_ages_while_nothing_happens() {
    let sim = Sim::new();
    let db = open(&sim);
    fill(db.default_family(), 10, b"v");
    let cursor = db.default_family().cursor().unwrap();
    let snapshot = db.snapshot();
    db.put("later", "v").unwrap(); // a snapshot of the newest state keeps nothing
    published(&sim, |seen| is_idle(seen) && seen.stats.cursors == 1 && seen.stats.snapshots == 1);
    sim.clock.advance(Duration::from_secs(3600));
    let seen = figures(&sim).unwrap();
    assert!(
        seen.stats.oldest_cursor_seconds >= 3600.0 && seen.age >= Duration::from_secs(3600),
        "{:?}",
        seen.age
    );
    let found = seen.diagnose();
    assert!(["old-snapshot", "old-cursor"].iter().all(|rule| found.iter().any(|one| one.rule == *rule)));
    assert!(db.stats().oldest_snapshot_seconds >= 3600.0);
    drop(cursor);
    drop(snapshot);
    assert!(db.stats().oldest_snapshot_seconds < 1.0);
    published(&sim, |seen| is_idle(seen) && seen.stats.cursors == 0);
    assert!(db.diagnose().is_empty(), "{:?}", db.diagnose());
    db.close().unwrap();
}

#[test]
fn many_families_are_left_out_by_what_they_wrote() {
    let sim = Sim::new();
    let db = sim.options().background_threads(2).memory_limit(1 << 30).open().unwrap();
    for n in 0..1000 {
        let family = db.create_family(&format!("family {n}"), small()).unwrap();
        family.put("k", vec![1; n % 100]).unwrap();
    }
    let seen = published(&sim, is_idle);
    let (shown, left_out) = (seen.stats.families.len() as u64, seen.families_left_out);
    assert_eq!((shown + left_out, left_out > 0 && shown > 200), (1001, true), "{shown} {left_out}");
    let least = seen.stats.families.iter().map(|family| family.user_bytes).min().unwrap();
    assert!(least >= left_out / 10, "{least} of {left_out}"); // ten of each length
    assert_eq!(seen.stats.trees.len() as u64, shown);
    assert!(sim.disk.read_file(FILE).unwrap().len() < 1 << 20);
    db.close().unwrap();
}
