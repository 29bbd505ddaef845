//! Tests of the event log on a simulated disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::sim::{self, Fault, OpKind, SimDisk};
use tidesdb_io::{Dir, ManualClock};

use super::*;
use crate::files::{EVENTS, EVENTS_OLD};

struct Rig {
    disk: Arc<SimDisk>,
    dir: Arc<dyn Dir>,
    clock: Arc<ManualClock>,
    events: Events,
}

impl Rig {
    fn new() -> Self {
        let (env, disk, clock) = sim::env(1);
        clock.set_wall_secs(1_764_000_000);
        let dir = env.disk.open_dir(Path::new("/db"), true).unwrap();
        let events = Events::new(&env.clock);
        events.log_to(&dir);
        Self { disk, dir, clock, events }
    }

    fn file(&self, name: &str) -> String {
        String::from_utf8(self.disk.read_file(format!("/db/{name}")).unwrap()).unwrap()
    }
}

fn moved(family: &str) -> Event {
    let inputs = vec![LevelPart { level: 1, tables: 2, bytes: 300 }];
    Event::Move { family: family.into(), cause: "Disjoint".to_owned(), inputs, target: 3 }
}

#[test]
fn a_line_is_an_object_with_the_time_and_the_fields() {
    let rig = Rig::new();
    rig.clock.advance(Duration::from_millis(1500));
    rig.events.record(&moved("a \"b\"\n\u{1}\\"));
    assert!(rig.disk.read_file("/db/EVENTS").is_err(), "recording does no I/O");
    rig.events.write();
    assert_eq!(
        rig.file(EVENTS),
        "{\"time\":\"2025-11-24T16:00:01Z\",\"at\":1.500000,\"event\":\"move\",\"family\":\"a \\\"b\\\"\\n\\u0001\\\\\",\
         \"cause\":\"Disjoint\",\"inputs\":[{\"level\":1,\"tables\":2,\"bytes\":300}],\"target\":3}\n"
    );
}

#[test]
fn timestamps_follow_the_calendar() {
    let shown = |secs| {
        let mut out = String::new();
        timestamp(secs, &mut out);
        out
    };
    for (secs, wanted) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(shown(secs), wanted);
    }
    assert!(shown(u64::MAX).starts_with("9999-12-31T"));
}

#[test]
fn a_torn_line_is_ended_and_the_file_goes_on() {
    let rig = Rig::new();
    rig.disk.write_file("/db/EVENTS", b"{\"time\":\"20").unwrap();
    rig.events.record(&moved("a"));
    rig.events.write();
    let text = rig.file(EVENTS);
    assert!(text.starts_with("{\"time\":\"20\n{\"time\":\"2025") && text.lines().count() == 2, "{text}");
}

#[test]
fn the_log_keeps_at_most_two_files_of_bounded_size() {
    let rig = Rig::new();
    let event = moved(&"x".repeat(20_000));
    for _ in 0..400 {
        rig.events.record(&event);
        rig.events.write();
    }
    let (new, old) = (rig.file(EVENTS).len() as u64, rig.file(EVENTS_OLD).len() as u64);
    let most = log::BYTES_MAX + PENDING_BYTES_MAX as u64;
    assert!(new <= most && (log::BYTES_MAX..=most).contains(&old), "{new} {old}");
    assert_eq!(rig.dir.list().unwrap().len(), 2);
    assert_eq!((rig.events.recorded(), rig.events.lost()), (400, 0));
}

#[test]
fn events_that_nobody_writes_take_bounded_memory() {
    let rig = Rig::new();
    (0..10_000).for_each(|_| rig.events.record(&moved("family")));
    assert!(rig.events.pending.lock().len() <= PENDING_BYTES_MAX);
    rig.events.write();
    let kept = rig.file(EVENTS).lines().count() as u64;
    assert_eq!((kept + rig.events.lost(), rig.events.recorded()), (10_000, 10_000));
    assert!(kept > 1000);
}

#[test]
fn a_failed_write_loses_its_lines_and_nothing_else() {
    let rig = Rig::new();
    rig.events.record(&moved("a"));
    rig.events.write();
    rig.disk.inject(Fault::errno(5).on(OpKind::Write).times(1));
    rig.events.record(&moved("b"));
    rig.events.write();
    rig.events.record(&moved("c"));
    rig.events.write();
    let text = rig.file(EVENTS);
    let has = ["a", "b", "c"].map(|name| text.contains(&format!("\"family\":\"{name}\"")));
    assert_eq!((has, rig.events.lost()), ([true, false, true], 1), "{text}");
}

#[test]
fn nothing_is_written_without_a_log_or_after_its_end() {
    let rig = Rig::new();
    rig.events.end_log();
    rig.events.record(&moved("a"));
    rig.events.write();
    assert!(rig.dir.list().unwrap().is_empty() && rig.events.recorded() == 0);
}

/// The tables of docs/operate/events.md are generated from [`Event::TABLE`].
#[test]
fn the_documentation_lists_every_event_and_field() {
    let docs = include_str!("../../../../docs/operate/events.md");
    let mut tables = String::new();
    for EventInfo { name, help, fields } in Event::TABLE {
        let _ = write!(tables, "### `{name}`\n\n{help}\n\n| field | meaning |\n| --- | --- |\n");
        fields.iter().for_each(|(field, help)| tables.push_str(&format!("| `{field}` | {help} |\n")));
        tables.push('\n');
    }
    assert!(
        docs.ends_with(&format!("## Events\n\n{}\n", tables.trim_end())),
        "docs/operate/events.md must end with:\n{tables}"
    );
}
