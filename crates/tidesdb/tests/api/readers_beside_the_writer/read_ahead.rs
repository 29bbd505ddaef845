//! Read-ahead does not change what cursors show.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::{Comparator, Cursor, Db, FamilyOptions, Isolation, WriteBatch};

use crate::common::{DB, Sim, noise, small};

/// A value, and its expiry.
type Value = (Vec<u8>, Option<SystemTime>);
type Rows = BTreeMap<Vec<u8>, Value>;

fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) as u32) % n
    }
}

/// Returns the length of a value: mostly short, some too long to be copied, some for the value log.
fn length(random: &mut Random) -> usize {
    match random.below(20) {
        0 => 2000,
        1 => 480 + random.below(40) as usize,
        2 => 0,
        _ => random.below(100) as usize,
    }
}

/// Writes in several steps, with a flush after most: keys in one table, in several, in memory, overwritten, deleted and expired.
fn write(sim: &Sim, db: &Db, random: &mut Random, rows: &mut Rows) {
    let now = 2_000_000_000;
    sim.clock.set_wall_secs(now);
    for turn in 0..5 {
        let (first, count) = (random.below(600), 100 + random.below(300));
        for _ in 0..count {
            let key = key(if turn % 2 == 0 { first + random.below(count) } else { random.below(1000) });
            match random.below(8) {
                0 => {
                    db.delete(&key).unwrap();
                    rows.remove(&key);
                }
                n => {
                    let value = noise(random.0, length(random));
                    let expiry = (n == 1).then(|| {
                        UNIX_EPOCH
                            + Duration::from_millis(now * 1000 + 50_000 + u64::from(random.below(100_000)))
                    });
                    let mut batch = WriteBatch::new();
                    batch.put_expiring(db.default_family(), &key, &value, expiry).unwrap();
                    db.write(&mut batch).unwrap();
                    rows.insert(key, (value, expiry));
                }
            }
        }
        if turn < 4 {
            db.flush().unwrap();
        }
    }
    sim.clock.set_wall_secs(now + 100);
    rows.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > UNIX_EPOCH + Duration::from_secs(now + 100)));
}

/// Creates a database with rows of all kinds, and returns the rows that a reader sees.
fn filled(seed: u64, family: FamilyOptions) -> (Sim, Db, Rows) {
    let sim = Sim::new();
    let db = sim.options().default_family(family).open().unwrap();
    let mut rows = Rows::new();
    write(&sim, &db, &mut Random(seed), &mut rows);
    (sim, db, rows)
}

fn check(cursor: &mut Cursor, expected: Option<(&Vec<u8>, &Value)>) {
    let Some((key, (value, expiry))) = expected else {
        return assert!(!cursor.valid(), "{:?} past the end", cursor.key().escape_ascii().to_string());
    };
    assert!(cursor.valid(), "{:?} is missing", key.escape_ascii().to_string());
    assert_eq!(cursor.key().escape_ascii().to_string(), key.escape_ascii().to_string());
    assert_eq!(cursor.expiry(), *expiry);
    assert!(cursor.entry().unwrap() == (&key[..], &value[..]) && cursor.value().unwrap() == value);
}

#[test]
fn a_scan_shows_every_row_once() {
    for seed in 1..20 {
        let (_sim, db, rows) = filled(seed, small());
        let compacted = seed % 2 == 0;
        if compacted {
            db.compact().unwrap();
        }
        let (mut cursor, mut other) = (db.cursor().unwrap(), db.cursor().unwrap());
        cursor.seek_to_first().unwrap();
        let mut ahead = 0;
        for row in &rows {
            check(&mut cursor, Some(row));
            ahead += usize::from(!cursor.buffered().1.is_empty());
            other.seek(row.0).unwrap();
            assert_eq!(cursor.version_seq(), other.version_seq());
            cursor.next().unwrap();
        }
        check(&mut cursor, None);
        assert!(!compacted || ahead > rows.len() / 2, "{ahead} of {} rows were read ahead", rows.len());
    }
}

/// Consecutive ranges of one length are read ahead from their first step; shorter and longer ranges between them are correct too.
#[test]
fn consecutive_ranges_show_their_rows() {
    for seed in 1..20 {
        let (_sim, db, rows) = filled(seed, small());
        if seed % 3 != 0 {
            db.compact().unwrap();
        }
        let random = &mut Random(seed);
        let mut cursor = db.cursor().unwrap();
        let (mut at_once, mut length) = (0, 40);
        for _ in 0..40 {
            if random.below(4) == 0 {
                length = random.below(120);
            }
            let start = key(random.below(1000));
            cursor.seek(&start).unwrap();
            for (step, row) in
                rows.range(start.clone()..).map(Some).chain([None]).take(length as usize).enumerate()
            {
                check(&mut cursor, row);
                at_once += usize::from(step == 1 && cursor.buffered().1.len() > 1);
                cursor.next().unwrap();
            }
        }
        assert!(at_once > 0, "no range was read from its first step on");
    }
}

/// Steps in both directions, seeks, and positions at which no value is read, in byte order and in reverse.
#[test]
fn every_kind_of_move_reaches_the_correct_row() {
    for seed in 1..30 {
        let backwards = seed % 2 == 0;
        let order = if backwards { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let (_sim, db, rows) = filled(seed, small().comparator(order));
        let mut rows: Vec<_> = rows.iter().collect();
        if backwards {
            rows.reverse();
        }
        let random = &mut Random(seed);
        let mut cursor = db.cursor().unwrap();
        let mut at = None;
        for _ in 0..300 {
            match random.below(8) {
                0 => {
                    let target = key(random.below(1000));
                    let before =
                        |row: &&(&Vec<u8>, _)| if backwards { *row.0 > target } else { *row.0 < target };
                    at = Some(rows.iter().take_while(before).count());
                    cursor.seek(&target).unwrap();
                }
                1 => {
                    at = rows.len().checked_sub(1);
                    cursor.seek_to_last().unwrap();
                }
                2 | 3 => {
                    for _ in 0..1 + random.below(4) {
                        at = at.filter(|at| *at < rows.len()).and_then(|at| at.checked_sub(1));
                        cursor.prev().unwrap();
                    }
                }
                _ => {
                    let wanted = random.below(4) != 0;
                    for _ in 0..1 + random.below(60) {
                        at = at.filter(|at| *at < rows.len()).map(|at| at + 1);
                        if wanted && cursor.valid() {
                            cursor.value().unwrap();
                        }
                        cursor.next().unwrap();
                    }
                }
            }
            check(&mut cursor, at.and_then(|at| rows.get(at)).copied());
        }
    }
}

#[test]
fn writes_after_the_read_timestamp_are_not_shown() {
    let (_sim, db, rows) = filled(5, small());
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    for (n, row) in rows.iter().enumerate() {
        check(&mut cursor, Some(row));
        db.put(&key(n as u32 * 2), b"later").unwrap();
        db.delete(row.0).unwrap();
        cursor.next().unwrap();
    }
    check(&mut cursor, None);
}

/// The rows before a damaged block are shown, and the error follows the last of them, with and without read-ahead.
#[test]
fn rows_before_damage_are_shown() {
    let sim = Sim::new();
    let db = sim.open();
    for n in 0..2000 {
        db.put(&key(n), &noise(u64::from(n), 100)).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let names = sim.disk.file_names(DB).unwrap();
    let table = names.iter().find(|name| name.ends_with(".klog")).unwrap();
    let mut ends = [0, 0];
    for at in (0..40).map(|n| 1000 + n * 4999) {
        let sim = sim.killed();
        sim.disk.flip_bit(format!("{DB}/{table}"), at * 8).unwrap();
        let db = sim.open();
        let mut cursor = db.cursor().unwrap();
        let mut shown = 0;
        let error = cursor.seek_to_first().err().unwrap_or_else(|| {
            loop {
                if !cursor.valid() {
                    // The padding of a block: all rows are intact, but the table is not what was written.
                    assert_eq!(shown, 2000);
                    break db.verify().unwrap().damage.remove(0);
                }
                assert_eq!(cursor.key(), key(shown), "damage at {at}");
                if let Err(e) = cursor.value() {
                    ends[0] += 1;
                    break e;
                }
                shown += 1;
                if let Err(e) = cursor.next() {
                    assert!(!cursor.valid());
                    ends[1] += 1;
                    break e;
                }
            }
        });
        assert!(error.is_corruption(), "{error}");
        let first_lost = (0..2000).position(|n| db.get(&key(n)).is_err());
        assert_eq!(first_lost, (shown < 2000).then_some(shown as usize), "damage at {at}");
    }
    assert!(ends.iter().all(|n| *n > 0), "values and keys were damaged: {ends:?}");
}

/// Only rows that a transaction has moved to can make its commit fail.
#[test]
fn a_transaction_has_read_only_the_rows_it_moved_to() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for n in 0..100 {
        f.put(&key(n), b"value").unwrap();
    }
    for (written, fails) in [(90, false), (71, false), (70, true), (69, true), (30, true), (3, true)] {
        let mut tx = db.begin(Isolation::Serializable);
        let mut cursor = tx.cursor(f).unwrap();
        cursor.seek_to_first().unwrap();
        for _ in 0..70 {
            cursor.value().unwrap();
            cursor.next().unwrap();
        }
        f.put(&key(written), b"by another").unwrap();
        tx.put(f, b"mine", b"").unwrap();
        assert_eq!(tx.commit().is_err(), fails, "{written}");
    }
}

#[test]
fn buffered_rows_are_the_next_rows() {
    let (_sim, db, rows) = filled(7, small());
    let mut cursor = db.cursor().unwrap();
    assert_eq!(cursor.buffered().1.len(), 0);
    cursor.seek_to_first().unwrap();
    cursor.advance(3);
    let mut rows = rows.iter();
    let mut most = 0;
    while cursor.valid() {
        check(&mut cursor, rows.next());
        let (bytes, spans) = cursor.buffered();
        most = most.max(spans.len());
        let mut seen = rows.clone();
        for span in spans.iter().skip(1) {
            let (key, value) = bytes[span.start()..].split_at(span.key_len());
            let (expected, (their, _)) = seen.next().unwrap();
            assert!(key == expected && value[..span.value_len()] == their[..]);
        }
        // Skips half of them with one call.
        let half = spans.len() / 2;
        cursor.advance(half);
        if half > 0 {
            check(&mut cursor, rows.nth(half - 1));
        }
        cursor.next().unwrap();
    }
    assert!(rows.next().is_none() && most > 8, "{most}");
}
