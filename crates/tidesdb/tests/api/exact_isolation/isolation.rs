//! What each level forbids and allows: the Hermitage schedules and some more, each run at each level.
//!
//! The resulting table must equal the one in docs/concepts/transactions.md.

use tidesdb::{Db, Error, Family, Isolation, Transaction};

use crate::common::{Sim, letters};

const LEVELS: [(Isolation, &str); 5] = [
    (Isolation::ReadUncommitted, "read uncommitted"),
    (Isolation::ReadCommitted, "read committed"),
    (Isolation::RepeatableRead, "repeatable read"),
    (Isolation::Snapshot, "snapshot"),
    (Isolation::Serializable, "serializable"),
];

/// A database with `x = 10`, `y = 20`, and transactions at one level.
struct Stage {
    db: Db,
    level: Isolation,
}

impl Stage {
    fn new(level: Isolation) -> Self {
        let db = Sim::new().open();
        db.put(b"x", &[10]).unwrap();
        db.put(b"y", &[20]).unwrap();
        Self { db, level }
    }

    fn family(&self) -> &Family {
        self.db.default_family()
    }

    fn begin(&self) -> Transaction {
        self.db.begin(self.level)
    }

    fn get(&self, tx: &Transaction, key: &str) -> u8 {
        tx.get(self.family(), key.as_bytes()).unwrap().map_or(0, |v| v[0])
    }

    fn put(&self, tx: &mut Transaction, key: &str, value: u8) {
        tx.put(self.family(), key.as_bytes(), &[value]).unwrap();
    }

    /// Counts the keys whose value is `value` with a full scan.
    fn with_value(&self, tx: &Transaction, value: u8) -> usize {
        tx.iter(self.family()).unwrap().map(Result::unwrap).filter(|(_, v)| v[0] == value).count()
    }

    fn now(&self, key: &str) -> u8 {
        self.db.get(key.as_bytes()).unwrap().map_or(0, |v| v[0])
    }
}

/// Returns whether the commit succeeded.
fn commit(mut tx: Transaction) -> bool {
    match tx.commit() {
        Ok(_) => true,
        Err(Error::Conflict { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

/// Runs a schedule and returns whether the anomaly occurred.
type Schedule = fn(&Stage) -> bool;

const SCHEDULES: [(&str, Schedule); 16] = [
    ("G0 dirty write", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        s.put(&mut a, "x", 11);
        s.put(&mut b, "x", 12);
        s.put(&mut a, "y", 21);
        commit(a);
        s.put(&mut b, "y", 22);
        commit(b);
        s.now("x") % 10 != s.now("y") % 10
    }),
    ("G1a aborted read", |s| {
        let (mut a, b) = (s.begin(), s.begin());
        s.put(&mut a, "x", 99);
        let seen = s.get(&b, "x") == 99 || s.with_value(&b, 99) > 0;
        a.rollback();
        seen || s.get(&b, "x") == 99
    }),
    ("G1b intermediate read", |s| {
        let (mut a, b) = (s.begin(), s.begin());
        s.put(&mut a, "x", 99);
        let before = s.get(&b, "x");
        s.put(&mut a, "x", 11);
        commit(a);
        before == 99 || s.get(&b, "x") == 99
    }),
    ("G1c circular flow", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        s.put(&mut a, "x", 11);
        s.put(&mut b, "y", 22);
        let (seen_by_a, seen_by_b) = (s.get(&a, "y"), s.get(&b, "x"));
        commit(a) && commit(b) && seen_by_a == 22 && seen_by_b == 11
    }),
    ("OTV observed transaction vanishes", |s| {
        let (mut a, mut b, c) = (s.begin(), s.begin(), s.begin());
        s.put(&mut a, "x", 11);
        s.put(&mut a, "y", 19);
        s.put(&mut b, "x", 12);
        commit(a);
        let first = s.get(&c, "x");
        s.put(&mut b, "y", 18);
        let second = s.get(&c, "y");
        commit(b);
        let (y, x) = (s.get(&c, "y"), s.get(&c, "x"));
        // If one call saw data of the second transaction, a later call must not see older data of the first.
        (first == 12 && x == 11) || (second == 18 && y == 19) || (y == 18 && x == 11)
    }),
    ("PMP predicate-many-preceders", |s| {
        let (a, mut b) = (s.begin(), s.begin());
        let before = s.with_value(&a, 30);
        s.put(&mut b, "z", 30);
        commit(b);
        before == 0 && s.with_value(&a, 30) == 1
    }),
    ("P4 lost update", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        let (of_a, of_b) = (s.get(&a, "x"), s.get(&b, "x"));
        s.put(&mut a, "x", of_a + 1);
        s.put(&mut b, "x", of_b + 1);
        commit(a) && commit(b)
    }),
    ("P4 lost update through a cursor", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        let read = |tx: &Transaction| tx.iter(s.family()).unwrap().next().unwrap().unwrap().1[0];
        let (of_a, of_b) = (read(&a), read(&b));
        s.put(&mut a, "x", of_a + 1);
        s.put(&mut b, "x", of_b + 1);
        commit(a) && commit(b)
    }),
    ("G-single read skew", |s| {
        let (a, mut b) = (s.begin(), s.begin());
        let x = s.get(&a, "x");
        s.put(&mut b, "x", 12);
        s.put(&mut b, "y", 18);
        commit(b);
        x == 10 && s.get(&a, "y") == 18
    }),
    ("G-single read skew over a scan", |s| {
        let (a, mut b) = (s.begin(), s.begin());
        let x = s.get(&a, "x");
        s.put(&mut b, "x", 12);
        s.put(&mut b, "y", 18);
        commit(b);
        x == 10 && s.with_value(&a, 18) == 1
    }),
    ("G-single write skew on one read", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        let x = s.get(&a, "x");
        s.put(&mut b, "x", 12);
        s.put(&mut b, "y", 18);
        let committed = commit(b);
        tx_delete(s, &mut a, "y");
        x == 10 && committed && commit(a)
    }),
    ("G2-item write skew", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        let _ = (s.get(&a, "x"), s.get(&a, "y"), s.get(&b, "x"), s.get(&b, "y"));
        s.put(&mut a, "x", 11);
        s.put(&mut b, "y", 21);
        commit(a) && commit(b)
    }),
    ("G2 predicate write skew", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        let _ = (s.with_value(&a, 30), s.with_value(&b, 30));
        s.put(&mut a, "a", 30);
        s.put(&mut b, "z", 30);
        commit(a) && commit(b)
    }),
    ("G2 phantom in a range", |s| {
        letters(s.family(), "bd");
        let (mut a, mut b) = (s.begin(), s.begin());
        let count = |tx: &Transaction| tx.range(s.family(), "a".."e").unwrap().count() as u8;
        let (of_a, of_b) = (count(&a), count(&b));
        s.put(&mut a, "c", of_a);
        s.put(&mut b, "cc", of_b);
        commit(a) && commit(b)
    }),
    ("phantom delete", |s| {
        let (mut a, mut b) = (s.begin(), s.begin());
        // Each transaction keeps at least one of the two.
        let _ = (s.with_value(&a, 10), s.with_value(&b, 10));
        tx_delete(s, &mut a, "x");
        tx_delete(s, &mut b, "y");
        commit(a) && commit(b)
    }),
    ("read-only anomaly", |s| {
        // Fekete, O'Neil and O'Neil, "A read-only transaction anomaly under snapshot isolation", 2004.
        let mut withdraws = s.begin();
        let total = s.get(&withdraws, "x") + s.get(&withdraws, "y");
        let mut deposits = s.begin();
        let y = s.get(&deposits, "y");
        s.put(&mut deposits, "y", y + 20);
        let deposited = commit(deposits);
        let reads = s.begin();
        let seen = (s.get(&reads, "x"), s.get(&reads, "y"));
        drop(reads);
        s.put(&mut withdraws, "x", 40 - total);
        deposited && seen == (10, 40) && commit(withdraws)
    }),
];

fn tx_delete(s: &Stage, tx: &mut Transaction, key: &str) {
    tx.delete(s.family(), key.as_bytes()).unwrap();
}

/// The table in Markdown: `no` = cannot happen, `yes` = happens.
fn table() -> String {
    let names = LEVELS.map(|(_, name)| name).join(" | ");
    let mut out = format!("| schedule | {names} |\n| --- | --- | --- | --- | --- | --- |\n");
    for (name, schedule) in SCHEDULES {
        let cells = LEVELS.map(|(level, _)| if schedule(&Stage::new(level)) { "yes" } else { "no" });
        out += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    out
}

/// Derived by hand from the definitions of the levels: the columns are as in [`LEVELS`], `-` = does not occur.
const EXPECTED: [(&str, &str); 16] = [
    ("G0 dirty write", "-----"),
    ("G1a aborted read", "-----"),
    ("G1b intermediate read", "-----"),
    ("G1c circular flow", "-----"),
    ("OTV observed transaction vanishes", "-----"),
    ("PMP predicate-many-preceders", "yy---"),
    ("P4 lost update", "yy---"),
    ("P4 lost update through a cursor", "yy---"),
    ("G-single read skew", "yy---"),
    ("G-single read skew over a scan", "yy---"),
    ("G-single write skew on one read", "yy---"),
    ("G2-item write skew", "yy-y-"),
    ("G2 predicate write skew", "yyyy-"),
    ("G2 phantom in a range", "yyyy-"),
    ("phantom delete", "yy-y-"),
    ("read-only anomaly", "yy-y-"),
];

#[test]
fn each_level_allows_exactly_the_documented_anomalies() {
    for ((name, schedule), (same, expected)) in SCHEDULES.iter().zip(EXPECTED) {
        assert_eq!(*name, same);
        let seen: String =
            LEVELS.iter().map(|(level, _)| if schedule(&Stage::new(*level)) { 'y' } else { '-' }).collect();
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn the_table_in_the_documentation_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/transactions.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(&table()), "docs/concepts/transactions.md needs this table:\n{}", table());
}

/// A transaction wrote and deleted a key. A flush or a merge at the bottom drops both versions, and the conflict with an
/// older transaction was missed.
#[test]
fn dropped_versions_still_cause_a_conflict() {
    type Write = fn(&Stage, &Sim);
    let writes: [(&str, Write); 6] = [
        ("put and delete", |s, _| {
            s.db.put(b"k", b"v").unwrap();
            s.db.delete(b"k").unwrap();
        }),
        ("put and single delete", |s, _| {
            s.db.put(b"k", b"v").unwrap();
            s.family().single_delete(b"k").unwrap();
        }),
        ("delete of nothing", |s, _| assert!(s.db.delete(b"k").is_ok())),
        ("delete of what was deleted before", |s, _| assert!(s.db.delete(b"gone").is_ok())),
        ("put that expires", |s, sim| {
            let second = std::time::Duration::from_secs(1);
            s.family().put_with_ttl(b"k", b"v", second).unwrap();
            sim.clock.advance(second * 10);
        }),
        ("put and delete of its range", |s, _| {
            s.db.put(b"k", b"v").unwrap();
            s.db.delete_range("j".."l").unwrap();
        }),
    ];
    type Maintain = fn(&Db);
    let maintenance: [(&str, Maintain); 3] = [
        ("nothing", |_| {}),
        ("flush", |db| db.flush().unwrap()),
        ("flush and merge", |db| {
            db.flush().unwrap();
            db.compact().unwrap();
            db.compact().unwrap();
        }),
    ];
    let is_weak = |level: Isolation| matches!(level, Isolation::ReadUncommitted | Isolation::ReadCommitted);
    for (level, name) in LEVELS.into_iter().filter(|(level, _)| !is_weak(*level)) {
        for (what, write) in writes {
            let mut outcomes = Vec::new();
            for (how, maintain) in maintenance {
                let sim = Sim::new();
                let stage = Stage { db: sim.open(), level };
                stage.db.put(b"gone", b"v").unwrap();
                stage.db.put(b"stays", b"v").unwrap();
                stage.db.delete(b"gone").unwrap();
                stage.db.flush().unwrap();
                let mut tx = stage.begin();
                for key in ["k", "gone"] {
                    tx.get(stage.family(), key.as_bytes()).unwrap();
                    stage.put(&mut tx, key, 1);
                }
                write(&stage, &sim);
                maintain(&stage.db);
                outcomes.push((how, commit(tx)));
                // No version is kept for a transaction that has ended.
                stage.db.compact().unwrap();
                assert!(stage.db.verify().unwrap().is_ok());
            }
            let refused = outcomes.iter().all(|(_, committed)| !committed);
            assert!(refused, "{name}, {what}: {outcomes:?}");
        }
    }
}

/// A transaction scanned a row that expired and was dropped by a merge. Then another thread put its key again. Without the merge
/// that is a conflict.
#[test]
fn a_scanned_row_that_expired_still_conflicts_after_a_merge() {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        for merge in [false, true] {
            let sim = Sim::new();
            let stage = Stage { db: sim.open(), level };
            let second = std::time::Duration::from_secs(1);
            stage.family().put_with_ttl(b"k", b"v", second * 5).unwrap();
            let mut tx = stage.begin();
            assert_eq!(stage.with_value(&tx, b'v'), 1);
            stage.put(&mut tx, "other", 1);
            sim.clock.advance(second * 10);
            if merge {
                stage.db.flush().unwrap();
                stage.db.compact().unwrap();
            }
            stage.db.put(b"k", b"again").unwrap();
            assert!(!commit(tx), "{level:?}, merged: {merge}");
        }
    }
}
