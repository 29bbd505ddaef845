//! Tests of figures, and of the bytes in which they reach other processes.

use std::time::Duration;

use tidesdb_io::ProcessId;

use super::{Phase, Report, Stats};
use crate::codec::{put_bytes, put_varint};
use crate::compact::{LevelStats, TreeStats};
use crate::family::FamilyStats;
use crate::health::{HealthReport, HealthState};
use crate::jobs::JobStats;
use crate::options::ChangedSetting;
use crate::remote::RemoteStats;
use crate::stats::{Histogram, StatValue};

/// A counter of the whole database that falls looks like a restart to whoever collects it.
#[test]
fn sums_over_families_do_not_fall_when_one_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::Db::open(dir.path()).unwrap();
    let films = db.create_family("films", crate::FamilyOptions::default()).unwrap();
    films.put("whale", vec![7; 10_000]).unwrap();
    films.flush().unwrap();
    let before = db.stats();
    db.drop_family("films").unwrap();
    let after = db.stats();
    assert!(after.written_bytes >= before.written_bytes, "{} {}", before.written_bytes, after.written_bytes);
    assert!((after.write_amplification - before.write_amplification).abs() < 0.1);
}

/// A report in which each figure has another value than 0.
fn report(families: usize) -> Report {
    let mut n = 0;
    let mut next = |value: &StatValue| {
        n += 1;
        match value {
            StatValue::Number(_) => StatValue::Number(n * 1_000_003),
            StatValue::Real(_) => StatValue::Real(n as f64 / 7.0),
            StatValue::Levels(_) => StatValue::Levels(vec![n, 0, n * n]),
        }
    };
    macro_rules! filled {
        ($of:expr) => {{
            let mut all = $of;
            let values: Vec<_> = all.figures().map(|(info, value)| (info.name, next(&value))).collect();
            values.into_iter().for_each(|(name, value)| all.put(name, value));
            all
        }};
    }
    let mut stats = filled!(Stats::default());
    let times = Histogram::of_sample();
    for (n, work) in
        ["gets", "multi_gets", "seeks", "puts", "commits", "syncs", "flushes", "merges"].iter().enumerate()
    {
        times.record(Duration::from_micros(3 + 1000 * n as u64));
        *stats.times_of(work).unwrap() = (&times).into();
    }
    for stall in &mut stats.stalled {
        *stall = filled!(stall.clone());
        stall.delays = times.now();
    }
    let job = JobStats { kind: "Partitioned", family: "f0".into(), ..JobStats::default() };
    stats.jobs = vec![filled!(job)];
    stats.remote = Some(filled!(RemoteStats::default()));
    for n in 0..families {
        let name = format!("f{n}");
        stats.families.push(filled!(FamilyStats { name: name.clone(), ..FamilyStats::default() }));
        let levels = (0..n % 4).map(|_| filled!(LevelStats::default())).collect();
        let order = "lexicographic".into();
        let tree = TreeStats { family: name, order, order_is_known: true, levels, ..TreeStats::default() };
        stats.trees.push(filled!(tree));
    }
    Report {
        version: "1.2.3".into(),
        process: ProcessId { number: 77, started: 88, boot: [9; 16], namespace: 10 },
        written: Duration::from_millis(1_700_000_000_123),
        open_for: Duration::from_millis(4567),
        phase: Phase::Idle,
        health: HealthReport {
            state: HealthState::Degraded,
            causes: vec!["a".into(), "b\u{fc}".into()],
            first_failure: None,
        },
        stats,
        settings: ["", "f0", "f1"]
            .iter()
            .map(|of| ChangedSetting::new(of, "x", "1".into()))
            .take(families.min(2) + 1)
            .collect(),
        left_out: 0,
        missing: Vec::new(),
    }
}

fn text(report: &Report) -> String {
    format!("{report:?}")
}

#[test]
fn a_report_is_read_as_it_was_written() {
    for families in [0, 1, 5] {
        let written = report(families);
        let read = Report::decode(&written.encode(1 << 20), "file", 0).unwrap();
        assert_eq!(text(&read), text(&written));
    }
}

#[test]
fn a_report_that_is_cut_or_changed_is_an_error_or_another_report() {
    let bytes = report(2).encode(1 << 20);
    for at in 0..bytes.len() {
        let _ = Report::decode(&bytes[..at], "file", 0);
        for bit in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            let _ = Report::decode(&changed, "file", 0);
        }
    }
}

#[test]
fn families_that_wrote_least_are_left_out() {
    let mut all = report(300);
    for (n, family) in all.stats.families.iter_mut().enumerate() {
        family.user_bytes = (n as u64 * 37) % 300;
    }
    let bytes = all.encode(20_000);
    assert!(bytes.len() <= 20_000 && bytes.len() > 19_000, "{}", bytes.len());
    let read = Report::decode(&bytes, "file", 0).unwrap();
    let shown = read.stats.families.len();
    assert_eq!(read.left_out as usize + shown, 300);
    assert!(read.stats.families.iter().all(|family| family.user_bytes >= 300 - shown as u64));
    assert_eq!(read.stats.trees.len(), shown);
    assert_eq!(read.stats.wal_bytes, all.stats.wal_bytes);
}

/// Another version has other tables, rows and figures.
#[test]
fn what_is_not_known_is_passed_over_and_what_is_missing_is_named() {
    let mut tables = Vec::new();
    let mut table = Vec::new();
    put_bytes(&mut table, b"database");
    put_varint(&mut table, 2);
    [("wal_bytes", 0), ("wisdom", 2)].into_iter().for_each(|(name, kind)| {
        put_bytes(&mut table, name.as_bytes());
        table.push(kind);
    });
    table.extend_from_slice(&[0, 42, 1, 7, 0]); // no label, 42 bytes, one level of wisdom, no durations
    put_bytes(&mut tables, &table);
    let mut table = Vec::new();
    put_bytes(&mut table, b"planets");
    table.extend_from_slice(&[0, 0, 0]);
    put_bytes(&mut tables, &table);
    let mut bytes = Vec::new();
    put_varint(&mut bytes, 7 << 1);
    put_bytes(&mut bytes, &tables);
    let read = Report::decode(&bytes, "file", 0).unwrap();
    assert_eq!(read.stats.wal_bytes, 42);
    assert!(read.missing.contains(&"database.cache_hits".to_owned()), "{:?}", read.missing);
    assert!(!read.missing.contains(&"database.wal_bytes".to_owned()));
    put_bytes(&mut tables, &table);
    let mut twice = Vec::new();
    put_varint(&mut twice, 7 << 1);
    put_bytes(&mut twice, &tables);
    assert!(Report::decode(&twice, "file", 0).unwrap_err().to_string().contains("already"));
}
