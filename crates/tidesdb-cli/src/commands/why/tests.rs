//! What is answered, by what the history and the event log have.

use std::time::{Duration, SystemTime};

use tidesdb::{HealthState, WriterState};

use super::answer::Answer;
use super::case::{Case, Verdict};
use super::{moment, object};
use crate::look::Look;
use crate::look::events::Events;
use crate::look::tests::look;
use crate::look::track::tests::{BASE, track};

/// The figures of one second.
#[derive(Clone, Copy, Default)]
struct Second {
    wal: i64,
    waits: i64,
    health: i64,
    longest: [i64; 2],
    debt: i64,
}

const WORK: Second = Second { wal: 1 << 20, waits: 0, health: 0, longest: [900_000, 2_000_000], debt: 0 };

/// A look at a database that did `work` in each second from `BASE` on; the last figures are those of the last one. Seconds without work have
/// no sample.
fn of(work: &[Option<Second>]) -> Look {
    let (mut wal, mut waits, mut stops, mut samples) = (0, 0, 0, Vec::new());
    for (secs, second) in work.iter().enumerate() {
        let Some(second) = second else { continue };
        (wal, waits) = (wal + second.wal, waits + second.waits);
        stops += i64::from(second.waits > 0);
        let grew = i64::from(second.wal > 0);
        let before = samples.last().map_or(0, |(_, figures): &(u64, Vec<(&str, i64)>)| figures[4].1);
        samples.push((
            secs as u64,
            vec![
                ("wal_bytes", wal),
                ("stall.tables.time", waits),
                ("stall.tables.stopped", stops),
                ("health", second.health),
                ("puts.count", before + grew),
                ("puts.longest", second.longest[0]),
                ("syncs.count", before + grew),
                ("syncs.longest", second.longest[1]),
                ("merge_debt_bytes", second.debt),
                ("memory_pressure", 0),
                ("family.default.user_bytes", wal / 2),
                ("visible_seq", wal),
            ],
        ));
    }
    let samples: Vec<(u64, &[(&str, i64)])> =
        samples.iter().map(|(secs, figures)| (*secs, &figures[..])).collect();
    let last = samples.last().map_or(0, |(secs, _)| *secs);
    let mut look = look(track(&samples));
    look.figures.written = SystemTime::UNIX_EPOCH + Duration::from_millis(BASE + last * 1000);
    look.figures.age = Duration::from_millis(500);
    look.now = BASE + last * 1000 + 500;
    look
}

fn gone(look: &mut Look, state: WriterState, secs: u64) {
    (look.figures.state, look.figures.age) = (state, Duration::from_secs(secs));
    look.now += secs * 1000 - 500;
}

fn events(lines: &[&str]) -> Events {
    let mut events = Events::default();
    lines.iter().for_each(|line| events.add(format!(r#"{{"time":"2026-11-30T12:{line}}}"#).as_bytes()));
    assert_eq!(events.damaged, 0, "{lines:?}");
    events
}

fn between(look: &Look, events: &Events, from: u64, to: u64) -> Answer {
    Case { look, events }.between(BASE + from * 1000, BASE + to * 1000)
}

fn worst(look: &Look, events: &Events) -> Answer {
    Case { look, events }.worst()
}

fn evidence<'a>(answer: &'a Answer, label: &str) -> &'a str {
    answer.evidence.iter().find(|(of, _)| *of == label).map_or("", |(_, text)| text)
}

#[test]
fn a_database_at_work_is_fine() {
    let look = of(&[Some(WORK); 60]);
    let answer = worst(&look, &Events::default());
    assert_eq!(answer.verdict, Verdict::Fine);
    assert!(
        answer.sentence.starts_with(
            "Nothing waited or was slow in the last hour (from 12:00:00 to 12:00:59 UTC (59.0 s)"
        ),
        "{answer:?}"
    );
    let answer = between(&look, &Events::default(), 20, 30);
    assert_eq!(answer.verdict, Verdict::Fine);
    assert!(answer.sentence.contains("about 256 writes a second, 1.0 MiB/s of log"), "{answer:?}");
}

#[test]
fn writes_that_wait_for_merges() {
    let stall = Second { waits: 2_000_000_000, debt: 500 << 20, ..WORK };
    let mut work = vec![Some(WORK); 90];
    work[40..52].fill(Some(stall));
    work[45] = Some(WORK); // a second without a wait does not end it
    let look = of(&work);
    let events = events(&[
        r#"00:00Z","at":0,"event":"open","clean":true"#,
        r#"00:51Z","at":51,"event":"merge","family":"default","inputs":[{"level":1,"tables":8,"bytes":9}],"target":2,"read_bytes":2097152,"seconds":12.5"#,
        r#"00:53Z","at":53,"event":"stall_end","cause":"tables","longest":0.75"#,
    ]);
    let answer = between(&look, &events, 42, 43);
    assert_eq!(answer.verdict, Verdict::Waits);
    let says =
        "Writes waited 22.00 s (all threads together) from 12:00:39 to 12:00:51 UTC (12.0 s), for merges";
    assert!(answer.sentence.starts_with(says), "{answer:?}");
    for (label, says) in [
        ("waited", "tables 22.00 s (11 stopped)"),
        ("load", "512.0 KiB/s from users"),
        ("filled", "to merge 0 B to 500.0 MiB"),
        ("running", "merge of 8 tables of default into level 2, 2.0 MiB, 12:00:38 to 12:00:51 (12.50 s)"),
        ("ended", "with the merge of 8 tables"),
        ("tree", "default at 12:00:40: level 1 8 tables 9 B"),
        ("ended", "the longest wait for tables was 750.00 ms"),
        ("now", "process 4711 runs; it is healthy"),
    ] {
        assert!(evidence(&answer, label).contains(says), "{label} {says}: {answer:?}");
    }
    let of_hour = worst(&look, &events);
    assert_eq!((of_hour.verdict, of_hour.sentence), (Verdict::Waits, answer.sentence));
    assert_eq!(between(&look, &events, 60, 70).verdict, Verdict::Fine, "it is over then");
    // One that goes on has not ended, and one of a process that has ended has ended with it.
    let mut look = of(&work[..50]);
    look.figures.stats.stalled[1].delayed_now = 3;
    let ended = |look: &Look| evidence(&between(look, &events, 42, 43), "ended").to_owned();
    assert_eq!(ended(&look), "not yet: writers wait at this moment");
    gone(&mut look, WriterState::Ended, 60);
    assert_eq!(ended(&look), "with the process, which ended");
    // A wait of a few milliseconds is none that a user asks about.
    work[40..52].fill(Some(Second { waits: 20_000_000, ..WORK }));
    assert_eq!(worst(&of(&work), &events).verdict, Verdict::Fine);
}

#[test]
fn commits_that_were_refused_for_want_of_space_and_a_part_that_did_not_work() {
    let ill = Second { health: 1, wal: 0, ..WORK };
    let mut work = vec![Some(WORK); 60];
    work[20..30].fill(Some(ill));
    let look = of(&work);
    let said = |cause: &str| {
        events(&[
            &format!(r#"00:20Z","at":20,"event":"health","state":"degraded","causes":["{cause}"]"#),
            r#"00:30Z","at":30,"event":"health","state":"healthy","causes":[]"#,
        ])
    };
    let full = said("commits are refused: 100 MiB must be free");
    let answer = between(&look, &full, 22, 24);
    assert_eq!(answer.verdict, Verdict::Space);
    let says = "Commits were refused for want of space from 12:00:20 to 12:00:29 UTC (9.0 s): commits are refused: 100 MiB must be free.";
    assert_eq!(answer.sentence, says);
    assert!(evidence(&answer, "ended").contains("12:00:30 UTC: healthy again"), "{answer:?}");
    let hostile = between(&look, &said(r"no space\n\u001b[2J"), 22, 24);
    assert!(!hostile.sentence.contains(char::is_control), "{hostile:?}");
    assert_eq!(between(&look, &said("uploads fail"), 22, 24).verdict, Verdict::Degraded);
    let mut look = of(&work[..30]);
    look.figures.health.state = HealthState::Degraded;
    look.figures.health.causes = vec!["the disk has no space for the output of a merge".to_owned()];
    let answer = worst(&look, &Events::default());
    assert_eq!(answer.verdict, Verdict::Space, "the event log is on the full disk, too");
    assert!(answer.sentence.contains("since 12:00:20 UTC"), "{answer:?}");
}

#[test]
fn a_poisoned_database() {
    let mut work = vec![Some(WORK); 30];
    work[20..].fill(Some(Second { health: 2, wal: 0, ..WORK }));
    let mut look = of(&work);
    look.figures.health.state = HealthState::Poisoned;
    let events =
        events(&[r#"00:20Z","at":20,"event":"health","state":"poisoned","causes":["EIO at the log"]"#]);
    let says = "Writes were refused from 12:00:20 UTC on: the database was poisoned: EIO at the log.";
    for answer in [worst(&look, &events), between(&look, &events, 25, 26)] {
        assert_eq!((answer.verdict, answer.sentence.as_str()), (Verdict::Poisoned, says));
    }
    gone(&mut look, WriterState::Ended, 60);
    assert_eq!(between(&look, &events, 25, 26).verdict, Verdict::Poisoned);
    assert_eq!(between(&look, &events, 5, 6).verdict, Verdict::Fine);
}

#[test]
fn a_process_that_was_killed() {
    let mut look = of(&[Some(WORK); 30]);
    gone(&mut look, WriterState::Ended, 100);
    let answer = worst(&look, &Events::default());
    assert_eq!(answer.verdict, Verdict::Ended);
    assert!(
        answer.sentence.contains(
            "process 4711 has ended without closing the database, at about 12:00:29 UTC (100.0 s ago)"
        ),
        "{answer:?}"
    );
    assert!(evidence(&answer, "load").starts_with("before: 512.0 KiB/s"), "{answer:?}");
    // Another one went on, and the counters began anew.
    let mut work = vec![Some(WORK); 20];
    work.extend([None; 30]);
    work.extend([Some(Second { wal: -19 << 20, ..WORK }), Some(WORK), Some(WORK)]);
    let look = of(&work);
    let open = |clean| {
        events(&[
            r#"00:00Z","at":0,"event":"open","clean":true"#,
            &format!(
                r#"00:49Z","at":0.1,"event":"open","clean":{clean},"commits":1234,"log_bytes":1048576,"seconds":0.5"#
            ),
        ])
    };
    let answer = between(&look, &open(false), 30, 31);
    assert_eq!(answer.verdict, Verdict::Ended);
    assert!(
        answer.sentence.starts_with("No process wrote the database from 12:00:19 to 12:00:50 UTC (31.0 s)"),
        "{answer:?}"
    );
    assert!(
        evidence(&answer, "ended").contains("replayed 1,234 commits, 1.0 MiB, in 500.00 ms"),
        "{answer:?}"
    );
    assert_eq!(worst(&look, &open(false)).verdict, Verdict::Ended);
    let unknown = between(&look, &Events::default(), 30, 31);
    assert_eq!(unknown.verdict, Verdict::NotRecorded, "{unknown:?}");
    let mut closed = open(true);
    closed.add(br#"{"time":"2026-11-30T12:00:20Z","at":20,"event":"close"}"#);
    closed.all.swap(1, 2);
    assert_eq!(between(&look, &closed, 30, 31).verdict, Verdict::Closed);
    assert_eq!(worst(&look, &closed).verdict, Verdict::Fine);
    // The next process may have done more than the one before when it is first seen.
    work[50] = Some(WORK);
    let look = of(&work);
    assert_eq!(between(&look, &open(false), 30, 31).verdict, Verdict::Ended);
    assert_eq!(worst(&look, &open(false)).verdict, Verdict::Ended);
    assert_eq!(between(&look, &closed, 30, 31).verdict, Verdict::Closed);
    assert_eq!(worst(&look, &closed).verdict, Verdict::Fine);
}

/// Hundred families that are equally busy, of which the history has ten.
#[test]
fn what_users_wrote_is_that_of_all_families() {
    let figures = |n: i64| {
        [
            ("wal_bytes", n << 22),
            ("family.default.user_bytes", n << 17),
            ("user_bytes", n << 21),
            ("puts.count", n),
        ]
    };
    let all: Vec<_> = (0..30_u64).map(|n| (n, figures(n as i64))).collect();
    let all: Vec<(u64, &[(&str, i64)])> = all.iter().map(|(secs, figures)| (*secs, &figures[..])).collect();
    let mut look = look(track(&all));
    look.now = BASE + 30_000;
    let answer = between(&look, &Events::default(), 10, 12);
    assert!(evidence(&answer, "load").starts_with("2.0 MiB/s from users"), "{answer:?}");
}

/// Times at the end of all time, with valid checksums.
#[test]
fn hostile_times_end_no_answer() {
    let far = u64::MAX / 1000 - BASE / 1000;
    let figures = |n: i64| [("wal_bytes", n << 20), ("health", 2 - n % 3), ("stall.tables.time", n << 40)];
    let [a, b, c, d] = [0, 1, 2, 3].map(figures);
    let mut look = look(track(&[(0, &a), (1, &b), (far - 1, &c), (far, &d)]));
    look.figures.health.state = HealthState::Poisoned;
    let events = Events::default();
    for now in [0, BASE, u64::MAX] {
        look.now = now;
        for (from, to) in [(0, 1), (BASE, BASE + 9000), (BASE, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(!Case { look: &look, events: &events }.between(from, to).sentence.is_empty());
        }
        assert!(!worst(&look, &events).sentence.is_empty());
    }
}

#[test]
fn a_process_that_was_stopped_worked_unseen_or_was_idle() {
    let mut look = of(&[Some(WORK); 30]);
    gone(&mut look, WriterState::Stopped, 40);
    let answer = worst(&look, &Events::default());
    assert_eq!(answer.verdict, Verdict::Stopped);
    assert!(answer.sentence.contains("does not run since about 12:00:29 UTC (40.0 s ago)"), "{answer:?}");
    let with = |after: Second, before: Second| {
        let mut work = vec![Some(WORK); 20];
        work[19] = Some(before);
        work.extend([None; 20]);
        work.extend([Some(after), Some(WORK), Some(WORK)]);
        of(&work)
    };
    let idle = Second { wal: 0, ..WORK };
    for (look, verdict, of_hour) in [
        (with(WORK, WORK), Verdict::Stopped, Verdict::Stopped),
        (with(Second { wal: 20 << 20, ..WORK }, WORK), Verdict::Hidden, Verdict::Fine),
        (with(WORK, idle), Verdict::Idle, Verdict::Fine),
    ] {
        assert_eq!(between(&look, &Events::default(), 25, 30).verdict, verdict);
        assert_eq!(worst(&look, &Events::default()).verdict, of_hour, "{verdict:?}");
    }
    let mut look = of(&[Some(WORK); 30]);
    gone(&mut look, WriterState::Idle, 7200);
    let answer = worst(&look, &Events::default());
    assert!(
        answer.verdict == Verdict::Fine && answer.sentence.contains("nothing to do since 12:00:29 UTC"),
        "{answer:?}"
    );
    gone(&mut look, WriterState::Running, 30);
    assert_eq!(
        worst(&look, &Events::default()).verdict,
        Verdict::Hidden,
        "it publishes nothing though it runs"
    );
}

#[test]
fn slow_syncs_and_slow_operations() {
    let mut work = vec![Some(WORK); 60];
    work[30] = Some(Second { longest: [300_000_000, 5_000_000], ..WORK });
    let answer = worst(&of(&work), &Events::default());
    assert_eq!(answer.verdict, Verdict::Slow);
    assert!(answer.sentence.starts_with("One of the puts took 300.00 ms at 12:00:30 UTC"), "{answer:?}");
    work[31] = Some(Second { longest: [100, 812_000_000], ..WORK });
    let look = of(&work);
    for answer in [worst(&look, &Events::default()), between(&look, &Events::default(), 30, 32)] {
        assert_eq!(answer.sentence, "The disk was slow at 12:00:31 UTC: a sync of the log took 812.00 ms.");
    }
}

#[test]
fn what_is_older_is_known_by_the_minute_or_not_recorded() {
    let mut look = of(&[Some(WORK); 30]);
    let answer = between(&look, &Events::default(), 0, 1);
    assert_eq!(answer.verdict, Verdict::Fine, "the first second is there: {answer:?}");
    let long_ago =
        |look: &Look| Case { look, events: &Events::default() }.between(BASE - 7_200_000, BASE - 7_140_000);
    assert_eq!(long_ago(&look).verdict, Verdict::NotRecorded);
    assert!(long_ago(&look).sentence.contains("it begins 12:00:00 UTC"), "{:?}", long_ago(&look));
    // Samples of minutes, of three hours before.
    let figures =
        |n: i64| [("wal_bytes", n << 20), ("stall.tables.time", n * 900_000_000), ("puts.count", n)];
    let all: Vec<_> = (0..180_u64).map(|n| (n * 60, figures(n as i64))).collect();
    let all: Vec<(u64, &[(&str, i64)])> = all.iter().map(|(secs, figures)| (*secs, &figures[..])).collect();
    look.minutes = track(&all);
    let shift = 180 * 60_000;
    (look.now, look.seconds) = (BASE + shift, track(&[(179 * 60, &[])]));
    let events = Events::default();
    let case = Case { look: &look, events: &events };
    let answer = case.between(BASE + 3_600_000, BASE + 3_660_000);
    assert!(evidence(&answer, "known").starts_with("by the minute, since 12:00:00 UTC"), "{answer:?}");
    let none = self::look(track(&[]));
    assert_eq!(worst(&none, &events).verdict, Verdict::NotRecorded);
    assert_eq!(between(&none, &events, 0, 10).verdict, Verdict::NotRecorded);
}

#[test]
fn damaged_and_hostile_lines_are_counted_and_change_nothing() {
    let look = of(&[Some(WORK); 30]);
    let mut events = Events::default();
    let deep = "[".repeat(100_000);
    for line in [
        "torn {\"time\":\"2026",
        "[]",
        "7",
        "\"\"",
        "null",
        &deep,
        r#"{"time":"2026-11-30T12:00:05Z"}"#,
        r#"{"time":7,"event":"merge"}"#,
        r#"{"time":"never","event":"merge"}"#,
        "\u{0}\u{1b}[2J",
    ] {
        events.add(line.as_bytes());
    }
    assert_eq!((events.damaged, events.all.len()), (10, 0));
    events.add(b"\xff\xfe\n\n");
    for number in ["-1e308", "1e308", "\"x\"", "[]", "18446744073709551616", "null"] {
        for name in [
            "open",
            "close",
            "flush",
            "merge",
            "move",
            "drop",
            "health",
            "stall_end",
            "slow_sync",
            "job_failed",
        ] {
            let line = format!(
                r#"{{"time":"2026-11-30T12:00:05Z","at":{number},"event":"{name}","family":{number},"seconds":{number},"inputs":[{number},{{"level":{number},"tables":{number},"bytes":{number}}}],"target":{number},"outputs":{number},"bytes":{number},"causes":{number},"state":{number},"clean":{number},"syncs":{number},"longest":{number},"error":{number},"cause":{number},"commits":{number},"log_bytes":{number},"read_bytes":{number},"memtable_bytes":{number}}}"#
            );
            events.add(line.as_bytes());
        }
    }
    events.refine(&look.figures);
    for to in 1..30 {
        let answer = between(&look, &events, to - 1, to);
        assert!(object(&answer)["answer"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let answer = worst(&look, &events);
    assert!(
        evidence(&between(&look, &events, 10, 11), "known").contains("11 lines of EVENTS are damaged"),
        "{answer:?}"
    );
}

#[test]
fn times_are_read_as_utc_of_today_or_yesterday() {
    let now = BASE + 500; // 12:00 of a day
    let at = |text: &str| moment(text, now);
    assert_eq!(at("11:30"), Ok((BASE - 1_800_000, BASE - 1_740_000)), "a whole minute");
    assert_eq!(at("11:30:10"), Ok((BASE - 1_795_000, BASE - 1_785_000)));
    assert_eq!(at("12:01"), Ok((BASE + 60_000 - 86_400_000, BASE + 120_000 - 86_400_000)), "yesterday");
    assert_eq!(at("-10m"), Ok((now - 605_000, now - 595_000)));
    assert_eq!(at("2026-11-30T12:30:00+01:00"), Ok((BASE - 1_805_000, BASE - 1_795_000)));
    assert!(at("2026-12-01T12:30:00Z").is_err_and(|e| e.contains("still to come")));
    for bad in ["", "noon", "25:00", "-", "-5", "-x", "12:00:00:00", "-99999999999999999999d"] {
        assert!(at(bad).is_err(), "{bad}");
    }
    assert!(moment("12:01", 5).is_err(), "before 1970");
}
