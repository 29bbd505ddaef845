//! The event log of a database.

use std::time::Duration;

use tidesdb::{Db, HealthState, SyncMode, WriteOptions};
use tidesdb_io::sim::{Fault, OpSet};

use crate::common::{Sim, fill};

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
    let syncs = || WriteOptions { sync: Some(SyncMode::Full), ..WriteOptions::default() };
    sim.disk.inject(Fault::errno(5).on(OpSet::SYNCS));
    let mut batch = db.batch();
    batch.put(db.default_family(), b"k", b"v").unwrap();
    assert!(db.write_with(&mut batch, &syncs()).is_err());
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
    let held = stats.stalled_by_memtables;
    db.close().unwrap();
    let text = std::fs::read_to_string(dir.path().join("EVENTS")).unwrap();
    let lines = |event: &str| text.lines().filter(|l| field(l, "event") == event).count();
    assert!(held.slowed + held.stopped > 10, "{held:?}");
    assert_eq!(held.delays.count(), held.slowed + held.stopped);
    assert!(held.longest >= held.p99 && held.p99 >= held.p50 && held.p50 > Duration::ZERO, "{held:?}");
    assert_eq!(lines("stall_begin"), lines("stall_end"));
    assert!((1..20).contains(&lines("stall_begin")), "{text}");
}
