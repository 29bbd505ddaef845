//! The event log of a database.

use std::time::Duration;

use tidesdb::{Db, HealthState, StallCause, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, OpKind, OpSet};

use crate::common::{Sim, fill, small};

/// Values of the field `name` of all lines, as written.
fn all(sim: &Sim, name: &str) -> Vec<String> {
    let text = String::from_utf8(sim.disk.read_file("/db/EVENTS").unwrap()).unwrap();
    text.lines().map(|line| field(line, name)).collect()
}

fn field(line: &str, name: &str) -> String {
    assert!(line.starts_with("{\"time\":\"") && line.ends_with('}'), "{line}");
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_default();
    rest.split([',', '}']).next().unwrap_or_default().trim_matches('"').to_owned()
}

fn line(sim: &Sim, event: &str) -> String {
    let text = String::from_utf8(sim.disk.read_file("/db/EVENTS").unwrap()).unwrap();
    let is_wanted = |line: &&str| field(line, "event") == event;
    text.lines().rfind(is_wanted).unwrap_or_else(|| panic!("no {event} in {text}")).to_owned()
}

#[test]
fn each_flush_merge_open_and_close_is_a_line() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    db.flush().unwrap();
    db.delete(b"key000000").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let stats = db.default_family().stats();
    db.close().unwrap();
    assert_eq!(all(&sim, "event"), ["open", "flush", "flush", "merge", "close"]);
    assert_eq!(field(&line(&sim, "open"), "clean"), "true");
    let merge = line(&sim, "merge");
    let wanted = [
        ("family", "default".to_owned()),
        ("kind", "Full".to_owned()),
        ("cause", "Manual".to_owned()),
        ("level", "1".to_owned()),
        ("read_bytes", stats.compaction_read.to_string()),
        ("target", "2".to_owned()),
        ("bytes", stats.level_bytes[1].to_string()),
        ("entries", "101".to_owned()),
        ("dropped", "2".to_owned()),
    ];
    for (name, value) in wanted {
        let found = if name == "bytes" {
            merge.rsplit_once("\"bytes\":").unwrap().1.split(',').next().unwrap().to_owned()
        } else {
            field(&merge, name)
        };
        assert_eq!(found, value, "{name} in {merge}");
    }
    assert_eq!(field(&line(&sim, "close"), "error"), "");
}

#[test]
fn each_create_clone_rename_and_drop_of_a_family_is_a_line() {
    let sim = Sim::new();
    let db = sim.open();
    let films = db.create_family("films \"\u{1b}", small()).unwrap();
    for round in 0..2 {
        fill(&films, 100 + round, b"v");
        films.flush().unwrap();
    }
    let stats = films.stats();
    db.clone_family("films \"\u{1b}", "copy").unwrap();
    db.rename_family("copy", "second").unwrap();
    let text = || String::from_utf8(sim.disk.read_file("/db/EVENTS").unwrap()).unwrap();
    assert!(
        text().ends_with("\"event\":\"family_renamed\",\"family\":\"second\",\"before\":\"copy\"}\n"),
        "at once"
    );
    db.drop_family("films \"\u{1b}").unwrap();
    for refused in [
        db.create_family("second", small()).map(drop),
        db.clone_family("none", "x").map(drop),
        db.rename_family("default", "x"),
        db.rename_family("second", "default"),
        db.drop_family("none"),
    ] {
        refused.unwrap_err();
    }
    db.close().unwrap();
    let families: Vec<_> =
        all(&sim, "event").into_iter().filter(|event| event.starts_with("family")).collect();
    assert_eq!(families, ["family_created", "family_created", "family_renamed", "family_dropped"]);
    let name = "films \\\"\\u001b";
    let created = line(&sim, "family_created");
    assert!(created.ends_with(&format!("\"family\":\"copy\",\"source\":\"{name}\"}}")), "{created}");
    let levels = format!("[{{\"level\":1,\"tables\":2,\"bytes\":{}}}]", stats.level_bytes[0]);
    let dropped = line(&sim, "family_dropped");
    assert!(dropped.ends_with(&format!("\"family\":\"{name}\",\"levels\":{levels}}}")), "{dropped}");
}

/// Each would be lost if it waited for a background thread: lines in memory are limited.
#[test]
fn no_event_of_many_families_is_lost() {
    let sim = Sim::new();
    let db = sim.options().background_threads(0).open().unwrap();
    let long = "f".repeat(100);
    for n in 0..3000 {
        let name = format!("{long}{n}");
        db.create_family(&name, small()).unwrap();
        db.drop_family(&name).unwrap();
    }
    assert_eq!(db.stats().events_lost, 0);
}

#[test]
fn an_open_after_a_crash_says_what_it_replayed() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 10, b"v");
    let after = sim.killed();
    drop(after.open());
    let open = line(&after, "open");
    assert_eq!(["clean", "commits", "operations"].map(|name| field(&open, name)), ["false", "10", "10"]);
    assert!(field(&open, "log_bytes").parse::<u64>().unwrap() > 100, "{open}");
    drop(db);
}

#[test]
fn a_database_without_an_event_log_writes_none() {
    let sim = Sim::new();
    let db = sim.options().with(|o| o.event_log = false).open().unwrap();
    fill(db.default_family(), 10, b"v");
    db.close().unwrap();
    assert!(!sim.disk.file_names("/db").unwrap().iter().any(|name| name.starts_with("EVENTS")));
    drop(sim.open());
    let before = sim.disk.read_file("/db/EVENTS").unwrap();
    drop(sim.options().read_only(true).open().unwrap());
    assert_eq!(sim.disk.read_file("/db/EVENTS").unwrap(), before, "a reader changes nothing");
}

/// The engine works, and checks nothing of the file, whatever happens to it.
#[test]
fn a_damaged_or_unwritable_event_log_harms_nothing() {
    let sim = Sim::new();
    drop(sim.open());
    sim.disk.write_file("/db/EVENTS", &[0xff; 3000]).unwrap();
    let fault = Fault::errno(5).path_if(|path| path.contains("EVENTS")).forever();
    let id = sim.disk.inject(fault);
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    db.compact().unwrap();
    assert!(db.verify().unwrap().damage.is_empty());
    assert_eq!(db.health().state, HealthState::Healthy);
    assert!(sim.disk.struck(id) > 0 && db.stats().events_lost > 0);
    db.close().unwrap();
}

#[test]
fn checkpoints_and_backups_have_an_event_log_of_their_own() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 10, b"v");
    db.checkpoint("/copy").unwrap();
    assert!(!sim.disk.file_names("/copy").unwrap().iter().any(|name| name.starts_with("EVENTS")));
    let copy = sim.options_at("/copy").open().unwrap();
    assert!(copy.verify().unwrap().damage.is_empty());
    assert!(sim.disk.file_names("/copy").unwrap().contains(&"EVENTS".to_owned()));
}

#[test]
fn a_failed_sync_is_a_change_of_health() {
    let sim = Sim::new();
    let db = sim.open();
    sim.disk.inject(Fault::errno(5).on(OpSet::SYNCS));
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"k", b"v").unwrap();
    assert!(db.write(&mut batch).is_err());
    let health = db.health();
    assert_eq!((health.state, health.causes.len()), (HealthState::Poisoned, 1));
    assert!(health.first_failure.is_some() && health.to_string().starts_with("poisoned: "), "{health}");
    assert!(db.close().is_err());
    let health = line(&sim, "health");
    assert_eq!(field(&health, "state"), "poisoned");
    assert!(!field(&line(&sim, "close"), "error").is_empty());
}

/// Many commits are delayed; the log has one line for the begin and one for the end of each stall.
#[test]
fn a_stall_is_two_lines_however_many_commits_it_delays() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path())
        .sync(SyncMode::None)
        .background_threads(2)
        .with(|o| o.memtables_bytes_max = 256 << 10)
        .default_family(tidesdb::FamilyOptions::default().write_buffer_bytes(64 << 10))
        .open()
        .unwrap();
    for i in 0..40_000u32 {
        db.put(&i.to_be_bytes(), &[7; 100]).unwrap();
    }
    let stats = db.stats();
    let held = stats.stalled_by(StallCause::Memtables);
    db.close().unwrap();
    let text = std::fs::read_to_string(dir.path().join("EVENTS")).unwrap();
    let lines = |event: &str| text.lines().filter(|l| field(l, "event") == event).count();
    assert!(held.slowed + held.stopped > 10, "{held:?}");
    assert_eq!(held.delays.count(), held.slowed + held.stopped);
    assert!(held.longest >= held.p99 && held.p99 >= held.p50 && held.p50 > Duration::ZERO, "{held:?}");
    assert_eq!(lines("stall_begin"), lines("stall_end"));
    assert!((1..20).contains(&lines("stall_begin")), "{text}");
}

#[test]
fn slow_syncs_are_counted_in_one_line() {
    let sim = Sim::new();
    let db = sim.open();
    let clock = std::sync::Arc::clone(&sim.clock);
    sim.disk.observe(OpSet::SYNCS, move |_, _| clock.advance(Duration::from_millis(150)));
    (0..3u8).for_each(|i| assert!(db.put(&[i], b"v").is_ok()));
    sim.disk.stop_observing();
    let syncs = db.stats().syncs;
    // A percentile is known to 3.2 %.
    assert!(syncs.count >= 3 && syncs.p50.mul_f64(1.032) >= Duration::from_millis(150), "{syncs:?}");
    db.close().unwrap();
    let slow = line(&sim, "slow_sync");
    assert!(field(&slow, "syncs").parse::<u64>().unwrap() >= 3, "{slow}");
    assert_eq!(field(&slow, "longest")[..4], *"0.15");
}

#[test]
fn slow_operations_and_syncs_are_lines_from_the_times_that_are_set() {
    let sim = Sim::new();
    let db = sim.open();
    let clock = std::sync::Arc::clone(&sim.clock);
    sim.disk.observe(OpSet::SYNCS, move |_, _| clock.advance(Duration::from_millis(30)));
    let is_line = |event: &str| all(&sim, "event").iter().any(|name| name == event);
    let put = || assert!(db.put(b"whale", b"blue").is_ok() && db.flush().is_ok());
    put();
    db.set_slow_operation(Some(Duration::from_secs(60)));
    put();
    assert!(!is_line("slow_operation") && !is_line("slow_sync"), "60 s and 100 ms");
    db.set_slow_operation(Some(Duration::from_millis(20)));
    db.set_slow_sync(Duration::from_millis(20));
    put();
    db.set_slow_operation(None);
    db.set_slow_sync(Duration::ZERO);
    put();
    db.close().unwrap();
    let slow = line(&sim, "slow_operation");
    assert_eq!(["operation", "operations"].map(|name| field(&slow, name)), ["put", "1"], "{slow}");
    assert!(field(&slow, "longest").parse::<f64>().unwrap() >= 0.03, "{slow}");
    assert!(field(&line(&sim, "slow_sync"), "syncs").parse::<u64>().unwrap() >= 1);
}

#[test]
fn a_failed_job_is_a_line_and_makes_the_database_degraded() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 10, b"v");
    sim.disk.inject(Fault::errno(5).on(OpKind::Create).path_ends(".klog").times(1));
    db.default_family().start_flush().unwrap();
    db.put(b"runs the queued jobs", b"v").unwrap();
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded, "{health}");
    let failed = line(&sim, "job_failed");
    assert!(field(&failed, "job").starts_with("Flush") && field(&failed, "family") == "default", "{failed}");
    assert!(failed.contains("\"retry\":0.05"), "{failed}");
    sim.clock.advance(Duration::from_secs(1));
    db.flush().unwrap();
    db.close().unwrap();
}

/// Statistics may be read while a job runs: here from the disk, at each write of a table.
#[test]
fn a_running_job_shows_its_progress() {
    let sim = Sim::new();
    let db = sim.open();
    for round in 0..2u32 {
        (0..6000u32).for_each(|i| assert!(db.put(&(i * 2 + round).to_be_bytes(), &[7; 100]).is_ok()));
        db.flush().unwrap();
    }
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (other, list) = (db.clone(), std::sync::Arc::clone(&seen));
    sim.disk.observe(OpKind::Write, move |op, _| {
        if op.path.ends_with(".klog") {
            list.lock().unwrap().extend(other.stats().jobs);
        }
    });
    let bytes = db.default_family().tree().bytes;
    db.compact().unwrap();
    sim.disk.stop_observing();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let last = seen.last().unwrap();
    assert_eq!((last.kind, &*last.family, last.bytes), ("Full", "default", bytes));
    assert!(seen.iter().all(|job| job.bytes_done <= job.bytes) && last.bytes_done > bytes / 2, "{last:?}");
    assert!(db.stats().jobs.is_empty());
    assert_eq!(db.stats().merges.count, 1);
}
