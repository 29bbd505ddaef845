//! Databases that are made ill, each in a way of its own: the doctor names the illness first. The process of the test writes them, the
//! program looks from outside. The rules one by one: `diagnose/tests.rs` of the engine.
#![expect(clippy::big_endian_bytes, reason = "numbers as keys")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for another process, whose time is that of the system"
)]

use std::time::{Duration, Instant};
#[cfg(target_os = "linux")]
use std::{io::Write, process::Stdio};

use tidesdb::{Db, FamilyOptions, Isolation, MergeOperator, OpenOptions};

use crate::cli::Stage;

/// How long an illness may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(40);

struct Patient {
    stage: Stage,
    db: Db,
}

impl Patient {
    fn new(options: impl FnOnce(OpenOptions) -> OpenOptions, family: FamilyOptions) -> Self {
        let mut stage = Stage::new();
        stage.is_ill = true;
        let db = options(Db::options(stage.path("db")).default_family(family).sync(tidesdb::SyncMode::None))
            .open()
            .unwrap();
        Self { stage, db }
    }

    /// Writes `n` rows of `bytes` bytes, as many tables as `flushes` says.
    fn load(&self, n: u32, bytes: usize, flushes: u32) {
        let (mut value, mut random) = (vec![0; bytes], 7_u64);
        for at in 0..n {
            let mixed = at.wrapping_mul(2_654_435_761); // each table has keys of the whole range
            for byte in &mut value {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                *byte = random as u8;
            }
            self.db.put(mixed.to_be_bytes(), &value).unwrap();
            if at % (n / flushes) == n / flushes - 1 {
                self.db.flush().unwrap();
            }
        }
    }

    /// The first finding of the doctor is `rule`, and it says `wanted`, once the database has published its figures.
    fn has(&self, rule: &str, wanted: &str) {
        let started = Instant::now();
        loop {
            let run = self.stage.run(&["doctor", "--json"]);
            let seen: serde_json::Value = serde_json::from_str(run.text()).unwrap_or_default();
            if seen["findings"][0]["rule"] == rule {
                let text = self.stage.run(&["doctor"]).text().to_owned();
                if text.contains(wanted) {
                    return;
                }
                assert!(started.elapsed() < SEEN_WITHIN, "{wanted:?} is not said: {text}");
            }
            let (out, err) = (run.text(), &run.err);
            assert!(started.elapsed() < SEEN_WITHIN, "{rule} is not the first finding: {out} {err}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn unchanged(options: OpenOptions) -> OpenOptions {
    options
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "asks for the memory of another process")]
fn a_memory_limit_above_all_memory() {
    let patient = Patient::new(|options| options.memory_limit(1 << 42), FamilyOptions::default());
    patient.db.put("whale", "blue").unwrap();
    patient.has("memory-limit", "memory_limit is 4.0 TiB");
}

#[test]
fn a_disk_that_may_not_be_used() {
    let mut stage = Stage::new();
    stage.is_ill = true;
    Db::open(stage.path("db")).unwrap().put("whale", "blue").unwrap();
    let options = Db::options(stage.path("db")).with(|all| all.disk_free_min = 1 << 60);
    let patient = Patient { db: options.open().unwrap(), stage };
    patient.db.delete("whale").unwrap();
    assert!(patient.db.put("whale", vec![7; 100_000]).is_err());
    patient.has("degraded", "make room on the disk");
}

#[test]
fn a_write_buffer_of_a_few_kilobytes() {
    let patient = Patient::new(unchanged, FamilyOptions::default().write_buffer_bytes(64 << 10));
    patient.load(150_000, 200, 50); // a buffer grows while flushes fall behind, so a busy machine would flush only a few
    patient.has("small-buffers", "write_buffer_bytes is 64.0 KiB");
}

#[test]
fn threads_that_change_one_row() {
    let patient = Patient::new(unchanged, FamilyOptions::default());
    let db = &patient.db;
    let count = || {
        for _ in 0..2_000 {
            let mut all: Vec<_> = (0..4).map(|_| db.begin(Isolation::Snapshot)).collect();
            for transaction in &mut all {
                let family = db.family("default").unwrap();
                let now = transaction.get(&family, b"counter").unwrap().map_or(0, |value| value.len());
                transaction.put(&family, b"counter", &vec![1; (now + 1) % 100]).unwrap();
            }
            for mut transaction in all {
                let _ = transaction.commit();
            }
        }
    };
    count();
    patient.has("conflicts", "family \"default\"");
}

#[test]
fn a_family_without_filters() {
    let patient = Patient::new(unchanged, FamilyOptions::default().filter_bits_per_key(0));
    patient.load(20_000, 20, 2);
    for n in 0..200_000_u32 {
        assert_eq!(patient.db.get((n.wrapping_mul(40_503) | 1).to_be_bytes().repeat(2)).unwrap(), None);
    }
    patient.has("filters", "family \"default\" has no filters");
}

#[test]
fn a_snapshot_that_keeps_what_was_deleted() {
    let patient = Patient::new(unchanged, FamilyOptions::default());
    patient.load(250_000, 20, 1);
    let snapshot = patient.db.snapshot();
    for n in 0..150_000_u32 {
        patient.db.delete(n.wrapping_mul(2_654_435_761).to_be_bytes()).unwrap();
    }
    patient.db.flush().unwrap();
    patient.has("tombstones", "150000 of its");
    drop(snapshot);
}

#[test]
#[ignore = "takes half a minute"]
fn a_cache_for_a_tenth_of_what_is_read() {
    let patient = Patient::new(|options| options.cache_bytes(8 << 20), FamilyOptions::default());
    patient.load(200_000, 200, 1);
    for n in 0..600_000_u32 {
        let at = n.wrapping_mul(1_103_515_245) % 200_000;
        patient.db.get(at.wrapping_mul(2_654_435_761).to_be_bytes()).unwrap().unwrap();
    }
    patient.has("cache", "of what it had dropped shortly before");
}

#[test]
#[ignore = "takes half a minute"]
#[cfg(target_os = "linux")]
fn a_reader_that_keeps_files() {
    let patient = Patient::new(unchanged, FamilyOptions::default());
    patient.load(400_000, 300, 4);
    let mut shell = patient.stage.command(&["shell", "--read-only"]).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.as_mut().unwrap().write_all(b"scan --limit 1\n").unwrap();
    std::thread::sleep(Duration::from_secs(2)); // it has a view
    patient.load(400_000, 300, 4);
    patient.db.compact().unwrap();
    patient.has("removed-files", "(tidesdb) holds");
    shell.kill().unwrap();
    shell.wait().unwrap();
}

/// The four below were written by somebody who did not know the rules; at first the doctor named one of them.
#[test]
fn transactions_that_nobody_ends() {
    let patient = Patient::new(unchanged, FamilyOptions::default());
    let family = patient.db.default_family();
    let parked: Vec<_> = (0..5)
        .map(|_| {
            patient.load(40_000, 100, 1);
            let mut transaction = patient.db.begin(Isolation::Snapshot);
            transaction.put(family, "key", "draft").unwrap();
            transaction
        })
        .collect();
    patient.db.compact().unwrap();
    patient.has("old-snapshot", "5 snapshots and transactions are open");
    drop(parked);
}

#[test]
fn counters_that_are_read_before_they_are_combined() {
    let patient = Patient::new(unchanged, FamilyOptions::default().merge_operator(MergeOperator::add()));
    (0..100_000).for_each(|_| {
        patient.db.merge("total", 1_u64.to_le_bytes()).unwrap();
    });
    (0..5).for_each(|_| drop(patient.db.get("total").unwrap()));
    patient.has("operands", "5 reads combined 500000 operands, 100000 each");
}

#[test]
fn values_that_the_program_keeps() {
    let patient =
        Patient::new(|all| all.memory_limit(192 << 20), FamilyOptions::default().value_threshold(4096));
    let mut kept = Vec::new();
    for n in 0..80_000_u32 {
        let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
        patient.db.put(key, vec![7; 1_500]).unwrap();
        if n % 1_000 == 0 {
            kept.push(patient.db.get(key).unwrap().unwrap());
        }
    }
    patient.has("held-memtables", "memory_limit is 192.0 MiB");
    drop(kept);
}

#[test]
fn a_rate_of_merges_that_nobody_set_back() {
    let patient = Patient::new(unchanged, FamilyOptions::default().write_buffer_bytes(8 << 20));
    patient.db.set_compaction_rate(512 << 10);
    while patient.db.stats().merge_debt_bytes < 40 << 20 {
        patient.load(5_000, 400, 1);
    }
    patient.has("merge-rate", "compaction_bytes_per_second is 512.0 KiB");
    patient.db.set_compaction_rate(0);
}
