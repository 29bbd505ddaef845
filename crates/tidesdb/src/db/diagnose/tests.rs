//! Each rule finds its illness, alone, and finds nothing just before that.

use std::collections::BTreeSet;

use tidesdb_io::{Holder, Mount};

use super::*;
use crate::compact::TreeStats;
use crate::figures::Sample;
use crate::health::HealthState;
use crate::stats::TimeStats;
use crate::waits::StallCause;

/// A database at one moment, for rules.
#[derive(Clone, Default)]
struct Scene {
    stats: Stats,
    health: HealthReport,
    open_for: Duration,
    writer: Option<(WriterState, Duration)>,
    settings: Vec<ChangedSetting>,
    around: Surroundings,
    space: Option<Space>,
    families_left_out: u64,
    history: Vec<(u64, &'static str, i64)>,
}

const NOW: u64 = 1_800_000_000_000;

impl Scene {
    fn findings(&self) -> Vec<Finding> {
        let mut history = History::default();
        for (millis, name, value) in &self.history {
            let known = history.names.iter().position(|other| other == name);
            let at = known.unwrap_or_else(|| {
                history.names.push((*name).to_owned());
                history.names.len() - 1
            });
            history.samples.push(Sample { millis: *millis, values: vec![(at as u32, *value)] });
        }
        diagnose(&Evidence {
            stats: &self.stats,
            health: &self.health,
            open_for: self.open_for,
            writer: self.writer,
            process: Some(7),
            families_left_out: self.families_left_out,
            settings: &self.settings,
            around: &self.around,
            space: self.space,
            history: Some(&history),
            now: NOW,
        })
    }

    fn family(&mut self) -> &mut FamilyStats {
        &mut self.stats.families[0]
    }

    fn set(&mut self, family: &str, name: &str, value: u64) {
        self.settings.push(ChangedSetting::new(family, name, value.to_string()));
    }
}

/// A busy database that lacks nothing.
fn healthy() -> Scene {
    let mut scene = Scene {
        open_for: Duration::from_secs(7200),
        writer: Some((WriterState::Running, Duration::from_secs(1))),
        space: Some(Space { free: 400 << 30, total: 1 << 40 }),
        ..Scene::default()
    };
    scene.around = Surroundings::default();
    scene.around.memory = Some(16 << 30);
    scene.around.descriptors = Some((300, 1024));
    scene.around.mount = Some(Mount {
        point: "/".into(),
        kind: "ext4".to_owned(),
        options: vec!["rw".to_owned(), "relatime".to_owned()],
    });
    let stats = &mut scene.stats;
    (stats.memory_limit_bytes, stats.written_bytes) = (8 << 30, 10 << 30);
    (stats.cache_hits, stats.cache_misses, stats.cache_hit_share) = (1_000_000, 60_000, 0.94);
    stats.families = vec![FamilyStats {
        name: "films".to_owned(),
        user_bytes: 3 << 30,
        table_entries: 10_000_000,
        tombstones: 200_000,
        value_bytes: 1 << 30,
        compaction_written: 8 << 30,
        flush_bytes: 3 << 30,
        flushes: 50,
        ..FamilyStats::default()
    }];
    stats.gets = of_each(1000, Duration::from_micros(5), 256);
    stats.syncs = of_each(1000, Duration::from_millis(2), 1);
    scene
}

/// Statistics of `count` operations that took `time`.
fn of_each(count: u64, time: Duration, sampled_one_in: u64) -> TimeStats {
    TimeStats { count, p50: time, p99: time, longest: time, sampled_one_in, ..TimeStats::default() }
}

/// A change of a healthy scene.
type Change = fn(&mut Scene);

/// The rules, each with what makes a healthy database ill in its sense, and what does nearly.
const CASES: &[(&str, Change, Change)] = &[
    ("poisoned", |s| s.health.state = HealthState::Poisoned, |_| {}),
    ("degraded", |s| s.health.state = HealthState::Degraded, |_| {}),
    (
        "ended",
        |s| s.writer = Some((WriterState::Ended, Duration::from_secs(9))),
        |s| s.writer = Some((WriterState::Closed, Duration::from_secs(9))),
    ),
    ("stopped", |s| s.writer = Some((WriterState::Stopped, Duration::ZERO)), |_| {}),
    (
        "hung-sync",
        |s| s.stats.sync_running_seconds = Duration::from_secs(3),
        |s| s.stats.sync_running_seconds = Duration::from_secs(1),
    ),
    (
        "stale",
        |s| s.writer = Some((WriterState::Running, Duration::from_secs(60))),
        |s| s.writer = Some((WriterState::Idle, Duration::from_secs(6000))),
    ),
    (
        "disk-fills",
        |s| s.space = Some(Space { free: 1 << 30, total: 1 << 40 }),
        |s| s.space = Some(Space { free: 100 << 30, total: 1 << 40 }),
    ),
    ("descriptors", |s| s.around.descriptors = Some((1000, 1024)), |s| s.around.descriptors = Some((10, 11))),
    (
        "refused",
        |s| s.stats.stalled[StallCause::Memory as usize].gave_up = 1,
        |s| s.stats.stalled[StallCause::Memory as usize].stopped = 1,
    ),
    (
        "removed-files",
        |s| s.around.holders = vec![holder(9, 100 << 20)],
        |s| s.around.holders = vec![holder(9, 1 << 20)],
    ),
    ("mount", |s| on(s, "ext4", "nobarrier"), |s| on(s, "xfs", "noatime")),
    ("memory-limit", |s| s.around.memory = Some(8 << 30), |s| s.around.memory = Some(10 << 30)),
    (
        "held-memtables",
        |s| s.stats.memory_memtables_bytes = 3 << 30,
        |s| (s.stats.memory_memtables_bytes, s.family().memtable_bytes) = (3 << 30, 2 << 30),
    ),
    ("merge-rate", |s| rate(s, 61), |s| rate(s, 59)),
    (
        "operands",
        |s| (s.family().combined, s.family().operands_combined) = (1_000, 150_000),
        |s| (s.family().combined, s.family().operands_combined) = (10_000, 150_000),
    ),
    ("memory", |s| s.stats.memory_pressure = 2, |s| s.stats.memory_pressure = 1),
    (
        "waits",
        |s| {
            let stall = &mut s.stats.stalled[StallCause::Tables as usize];
            (stall.time, stall.longest) = (Duration::from_secs(10), Duration::from_secs(2));
        },
        |s| s.stats.stalled[StallCause::Tables as usize].time = Duration::from_secs(10),
    ),
    (
        "slow-syncs",
        |s| s.stats.syncs = of_each(10, Duration::from_millis(150), 1),
        |s| s.stats.syncs = of_each(9, Duration::from_millis(150), 1),
    ),
    (
        "merges-behind",
        |s| (s.stats.merge_debt_bytes, s.stats.merge_debt_seconds) = (1 << 30, 61.0),
        |s| (s.stats.merge_debt_bytes, s.stats.merge_debt_seconds) = (1 << 30, 59.0),
    ),
    ("tombstones", |s| s.family().tombstones = 4_000_000, |s| s.family().tombstones = 2_000_000),
    ("filters", |s| s.stats.lookups_in_vain = 200_000, |s| s.stats.lookups_in_vain = 70_000),
    (
        "old-snapshot",
        |s| s.stats.oldest_snapshot_seconds = 700.0,
        |s| s.stats.oldest_snapshot_seconds = 500.0,
    ),
    ("old-cursor", |s| s.stats.oldest_cursor_seconds = 700.0, |s| s.stats.oldest_cursor_seconds = 500.0),
    ("garbage", |s| garbage(s, 700 << 20), |s| garbage(s, 500 << 20)),
    ("cache", |s| cache(s, 20_000), |s| cache(s, 1_000)),
    (
        "small-buffers",
        |s| {
            (s.family().flushes, s.family().flush_bytes) = (2_000, 2 << 30);
            s.set("films", "write_buffer_bytes", 1 << 20);
        },
        |s| (s.family().flushes, s.family().flush_bytes) = (2_000, 2 << 30), // because of the memory limit
    ),
    ("value-threshold", |s| values(s, 400), |s| values(s, 200)),
    ("conflicts", |s| conflicts(s, 5_000), |s| conflicts(s, 1_500)),
    (
        "clock",
        |s| s.history = vec![(NOW - 5_000, "health", 0), (NOW - 9_000, "health", 0)],
        |s| s.history = vec![(NOW - 9_000, "health", 0), (NOW - 5_000, "health", 0)],
    ),
    ("long-log", |s| s.stats.wal_live_bytes = 5 << 30, |s| s.stats.wal_live_bytes = 3 << 30),
    ("events-lost", |s| s.stats.events_lost = 1, |s| s.stats.events = 1),
];

fn holder(process: u32, bytes: u64) -> Holder {
    Holder { process, name: "copy\x1b[31m".to_owned(), files: 3, bytes }
}

fn on(scene: &mut Scene, kind: &str, option: &str) {
    let mount = scene.around.mount.as_mut().unwrap();
    kind.clone_into(&mut mount.kind);
    mount.options.push(option.to_owned());
}

fn garbage(scene: &mut Scene, dead: u64) {
    let family = scene.family();
    (family.value_log_file_bytes, family.value_log_garbage_bytes) = (1 << 30, dead);
}

fn cache(scene: &mut Scene, returns: u64) {
    let stats = &mut scene.stats;
    (stats.cache_misses, stats.cache_hit_share, stats.cache_returns) = (60_000, 0.5, returns);
}

/// Values of `bytes` bytes each, which merges have written often.
fn values(scene: &mut Scene, bytes: u64) {
    let family = scene.family();
    family.value_bytes = bytes * (family.table_entries - family.tombstones);
    family.compaction_written = 4 * family.user_bytes;
}

/// Merges that may write one megabyte a second, and are so many seconds behind.
fn rate(scene: &mut Scene, seconds: u64) {
    scene.set("", "compaction_bytes_per_second", 1 << 20);
    scene.stats.merge_debt_bytes = seconds << 20;
}

fn conflicts(scene: &mut Scene, conflicts: u64) {
    scene.stats.commits = of_each(8_000, Duration::from_micros(9), 1);
    scene.family().conflicts = conflicts;
}

#[test]
fn each_rule_finds_its_illness_alone_and_nothing_just_before_it() {
    assert_eq!(healthy().findings(), []);
    let mut seen = BTreeSet::new();
    for (rule, ill, nearly) in CASES {
        let mut scene = healthy();
        ill(&mut scene);
        let findings = scene.findings();
        let rules: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [*rule]);
        assert!(!findings[0].to_string().contains('\x1b'), "a hostile name is printed as it is: {rule}");
        let mut scene = healthy();
        nearly(&mut scene);
        assert_eq!(scene.findings(), [], "{rule}");
        seen.insert(rule);
    }
    assert_eq!(seen.len(), OF_NOW.len() + RULES.len(), "a rule has no case here");
}

/// The rules that find something after a change of a healthy database.
fn found(change: Change) -> Vec<&'static str> {
    let mut scene = healthy();
    change(&mut scene);
    scene.findings().into_iter().map(|finding| finding.rule).collect()
}

/// The text of all findings after a change of a healthy database.
fn found_with_text(change: Change) -> String {
    let mut scene = healthy();
    change(&mut scene);
    scene.findings().iter().map(Finding::to_string).collect()
}

/// Waits of another session or of another day are no finding.
#[test]
fn only_the_waits_of_this_hour_count() {
    // A process that waited for long, was started again, and has hardly waited since.
    let waits = found(|s| {
        let stall = &mut s.stats.stalled[StallCause::Tables as usize];
        (stall.time, stall.longest) = (Duration::from_millis(1), Duration::from_millis(1));
        let name = "stall.tables.time";
        s.history =
            vec![(NOW - 300_000, name, 1_000_000_000_000), (NOW - 60_000, name, 0), (NOW, name, 1_000_000)];
    });
    assert_eq!(waits, [""; 0]);
    // The cause of this hour counts, not that of a load long ago.
    let mut scene = healthy();
    let [tables, memory] = [StallCause::Tables, StallCause::Memory].map(|cause| cause as usize);
    scene.stats.stalled[tables].time = Duration::from_secs(3600);
    scene.stats.stalled[memory].time = Duration::from_secs(600);
    let hour = NOW - 3_500_000;
    scene.history = vec![
        (hour, "stall.tables.time", 3_600_000_000_000),
        (NOW, "stall.tables.time", 3_600_000_000_000),
        (hour, "stall.memory.time", 0),
        (NOW, "stall.memory.time", 600_000_000_000),
    ];
    assert!(scene.findings()[0].what.contains("memory"), "{:?}", scene.findings());
    // Merges had a limit, and writers waited, before the last hour.
    let caught_up = found(|s| {
        rate(s, 1);
        s.stats.stalled[StallCause::Tables as usize].time = Duration::from_secs(3600);
        let name = "stall.tables.time";
        s.history = vec![(NOW - 60_000, name, 3_600_000_000_000), (NOW, name, 3_600_000_000_000)];
    });
    assert_eq!(caught_up, [""; 0]);
}

/// The history has a sample a minute; what has happened since the last one counts, too.
#[test]
fn the_last_minute_counts() {
    let refused = found_with_text(|s| {
        s.stats.stalled[StallCause::Memory as usize].gave_up = 3;
        let name = "stall.memory.gave_up";
        s.history = vec![(NOW - 90_000, name, 2), (NOW - 30_000, name, 2)];
    });
    assert!(refused.starts_with("urgent: writes are refused"), "{refused}");
    let waits = found_with_text(|s| {
        s.stats.stalled[StallCause::Tables as usize].time = Duration::from_secs(30);
        let name = "stall.tables.time";
        s.history = vec![(NOW - 91_000, name, 0), (NOW - 31_000, name, 0)];
    });
    assert!(waits.contains("30.00 s within 90.00 s, which is 33.3 % of it"), "{waits}");
    // A sample that is newer than the figures is no new session.
    let newer = found(|s| {
        s.stats.stalled[StallCause::Tables as usize].time = Duration::from_secs(3500);
        let name = "stall.tables.time";
        s.history = vec![(NOW - 60_000, name, 3_500_000_000_000), (NOW, name, 3_500_000_000_001)];
    });
    assert_eq!(newer, [""; 0]);
    // The first second of a session that has just begun.
    let begun = found_with_text(|s| {
        s.open_for = Duration::from_secs(20);
        s.stats.stalled[StallCause::Memory as usize].gave_up = 1;
        s.history = vec![(NOW - 19_000, "stall.memory.gave_up", 1)];
    });
    assert!(begun.starts_with("urgent: writes are refused"), "{begun}");
}

/// The waits of all sessions of an hour are a part of that hour, not of the time since the last open.
#[test]
fn waits_are_a_share_of_the_time_that_they_are_of() {
    let waits = found_with_text(|s| {
        s.open_for = Duration::from_secs(2);
        let name = "stall.tables.time";
        s.history = vec![(NOW - 1_001_000, name, 0), (NOW - 300_000, name, 600_000_000_000)];
    });
    assert!(waits.contains("10 minutes within 17 minutes, which is 60.0 % of it"), "{waits}");
}

/// Databases that look ill only at first sight.
#[test]
fn what_is_over_or_by_design_or_another_process_is_no_finding() {
    // What a process held that has ended.
    let ended = found(|s| {
        s.writer = Some((WriterState::Ended, Duration::from_secs(9000)));
        (s.stats.snapshots, s.stats.oldest_snapshot_seconds, s.stats.memory_pressure) = (1, 9000.0, 3);
        s.stats.sync_running_seconds = Duration::from_secs(60);
    });
    assert_eq!(ended, ["ended"]);
    // Figures that do not have all families.
    let left_out = found(|s| {
        (s.stats.memory_memtables_bytes, s.families_left_out) = (3 << 30, 4000);
    });
    assert_eq!(left_out, [""; 0]);
    // History that is kept on purpose, and a transaction of this moment after a long backup.
    let kept = |s: &mut Scene| (s.family().older_versions, s.family().entries_written) = (800_000, 900_000);
    for (seconds, setting) in [(60.0, "history_bytes"), (0.1, "unknown")] {
        let mut scene = healthy();
        (scene.stats.snapshots, scene.stats.oldest_snapshot_seconds) = (1, seconds);
        kept(&mut scene);
        scene.set("", setting, 1 << 30);
        assert_eq!(scene.findings(), [], "{setting}");
    }
    // Tables in an order of the program have no filters.
    let other_order = found(|s| {
        s.stats.lookups_in_vain = 1 << 20;
        s.stats.trees = vec![TreeStats { order: "mine".to_owned(), ..TreeStats::default() }];
    });
    assert_eq!(other_order, [""; 0]);
    // A small family does not hide a large one.
    let hidden = found(|s| {
        let queue = FamilyStats {
            name: "queue".to_owned(),
            table_entries: 10,
            tombstones: 10,
            ..FamilyStats::default()
        };
        s.family().tombstones = 6_000_000;
        s.stats.families.push(queue);
    });
    assert_eq!(hidden, ["tombstones"]);
}

/// What a rule says beside its name, where that depends on what it sees.
#[test]
fn rules_name_what_they_see() {
    let said = found_with_text;
    let text = said(|s| s.around.holders = vec![holder(7, 1 << 30), holder(9, 1 << 29)]);
    assert!(
        text.contains("process 7 (copy\\u{1b}[31m), the one that writes, holds 3 removed files"),
        "{text}"
    );
    assert!(
        text.contains("a cursor, an iterator or a snapshot of the writer") && text.contains("process 9"),
        "{text}"
    );
    let text = said(|s| {
        s.space = Some(Space { free: 300 << 30, total: 1 << 40 });
        s.around.linked = (3, 1 << 30);
        s.history = vec![(NOW - 1_800_000, "disk_bytes", 0), (NOW, "disk_bytes", 100 << 30)];
    });
    assert!(text.starts_with("problem: the disk") && text.contains("lasts for 1.5 hours"), "{text}");
    assert!(text.contains("3 files of 1.0 GiB are also in a checkpoint"), "{text}");
    let text = said(|s| {
        s.space = Some(Space { free: 300 << 30, total: 1 << 40 });
        s.history = vec![(NOW - 3_000_000, "disk_bytes", 0), (NOW - 600_000, "disk_bytes", 100 << 30)];
    });
    assert_eq!(text, "", "it has not grown for ten minutes");
    // What a limit causes comes before what it leads to.
    let text = said(|s| {
        rate(s, 100);
        s.stats.stalled[StallCause::Tables as usize].gave_up = 1;
    });
    assert!(text.starts_with("urgent: merges are limited") && text.contains("writes are refused"), "{text}");
    let text = said(|s| {
        s.stats.lookups_in_vain = 1 << 20;
        s.set("films", "filter_bits_per_key", 0);
    });
    assert!(text.contains("family \"films\" has no filters"), "{text}");
    let text = said(|s| {
        (s.stats.snapshots, s.stats.oldest_snapshot_seconds) = (21, 11.0);
        (s.family().older_versions, s.family().entries_written) = (800_000, 900_000);
    });
    assert!(text.contains("21 snapshots and transactions") && text.contains("89 % of the entries"), "{text}");
    for kind in ["tmpfs", "nfs4"] {
        let mut scene = healthy();
        on(&mut scene, kind, "rw");
        let found = scene.findings();
        assert!(found.len() == 1 && found[0].severity == Severity::Advice, "{found:?}");
        scene.open_for = Duration::from_secs(60);
        assert_eq!(scene.findings().len(), usize::from(kind == "nfs4"), "a trial");
    }
    // What was refused long ago is no alarm.
    let text = said(|s| {
        s.stats.stalled[StallCause::Memory as usize].gave_up = 3;
        s.history = vec![(NOW - 60_000, "stall.memory.gave_up", 3), (NOW, "stall.memory.gave_up", 3)];
    });
    assert!(text.starts_with("advice: writes were refused"), "{text}");
}
