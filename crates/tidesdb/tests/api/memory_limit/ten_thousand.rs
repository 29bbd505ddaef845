//! Ten thousand of everything that a program can hold, under a small memory limit. Each kind of object gets a process of its own, because
//! the test looks at the memory of its process.
#![expect(clippy::print_stdout, reason = "the test prints what it measured")]

use std::any::Any;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb::{Db, Error, FamilyOptions, Isolation, MergeOperator, Result, Stats, SyncMode, WriteBatch};

use crate::common::{counted, inner, noise};

/// The limit, and how many objects a program tries to open.
const LIMIT: u64 = 32 << 20;
const OBJECTS: usize = 10_000;
/// What the figures of the statistics may differ from the memory of the process by, in percent of the limit: the allocator needs memory
/// for each block, and keeps some that was freed.
const TOLERANCE: u64 = 15;
/// Rows of the default family.
const ROWS: u32 = 4000;
/// Names the kind of object in a child.
const KIND: &str = "TIDESDB_TEST_KIND";

type Held = Box<dyn Any>;

/// Makes the object with this number.
type Make = fn(&Db, usize) -> Result<Held>;

fn held(object: impl Any) -> Result<Held> {
    Ok(Box::new(object))
}

fn key(n: u32) -> [u8; 12] {
    let mut key = *b"row.........";
    key[4..].copy_from_slice(format!("{n:08}").as_bytes());
    key
}

fn batch(db: &Db, writes: u32, len: usize) -> Result<Held> {
    let mut batch = WriteBatch::new();
    for n in 0..writes {
        batch.put(db.default_family(), key(n), vec![7; len])?;
    }
    held(batch)
}

fn transaction(db: &Db, isolation: Isolation, writes: u32) -> Result<tidesdb::Transaction> {
    let mut tx = db.begin(isolation);
    for n in 0..writes {
        tx.put(db.default_family(), key(n), [7; 100])?;
    }
    Ok(tx)
}

fn scan(db: &Db, steps: u32, n: usize) -> Result<Held> {
    let mut cursor = db.cursor()?;
    cursor.seek(key(n as u32 * 7919 % ROWS))?;
    for _ in 0..steps {
        if !cursor.valid() {
            cursor.seek_to_first()?;
        }
        cursor.value()?;
        cursor.next()?;
    }
    held(cursor)
}

fn written(db: &Db, len: usize) -> Result<Held> {
    let mut writer = db.value_writer("written")?;
    writer.write_all(&vec![7; len]).map_err(inner)?;
    held(writer)
}

fn read(db: &Db, name: &str) -> Result<Held> {
    let mut reader = db.value_reader(name)?.unwrap();
    reader.read_exact(&mut [0; 100]).map_err(inner)?;
    held(reader)
}

/// A transaction with `ranges` range deletes, each of a few rows.
fn deleting(db: &Db, ranges: u32) -> Result<tidesdb::Transaction> {
    let mut tx = db.begin(Isolation::ReadCommitted);
    for n in 0..ranges {
        tx.delete_range(db.default_family(), key(4 * n)..key(4 * n + 2))?;
    }
    Ok(tx)
}

/// Cursors that are made after all of `ranges` range deletes.
fn cursors_over_ranges(db: &Db, ranges: u32) -> Result<Held> {
    let tx = deleting(db, ranges)?;
    let mut cursors = Vec::new();
    for _ in 0..20 {
        let mut cursor = tx.cursor(db.default_family())?;
        cursor.seek(key(1))?;
        cursors.push(cursor);
    }
    held((tx, cursors))
}

/// Cursors that are made between range deletes, so that each shows another state. They outlive the transaction.
fn cursors_between_ranges(db: &Db) -> Result<Held> {
    let mut tx = deleting(db, 500)?;
    let mut cursors = Vec::new();
    for n in 0..20 {
        tx.delete_range(db.default_family(), key(37 * n)..key(50 * n + 2))?;
        cursors.push(tx.cursor(db.default_family())?);
    }
    held(cursors)
}

/// Range deletes and reads in turn, over rows that the transaction has written.
fn deletes_and_gets(db: &Db) -> Result<Held> {
    let mut tx = db.begin(Isolation::ReadCommitted);
    for n in 0..200 {
        tx.put(db.default_family(), key(n), [7; 1000])?;
    }
    for n in 0..1500 {
        tx.delete_range(db.default_family(), "row"..)?;
        tx.get(db.default_family(), key(n))?;
    }
    held(tx)
}

/// A reader of a long value, which is not read, beside writes to other keys.
fn reader_beside_writes(db: &Db, n: usize) -> Result<Held> {
    for row in 0..10 {
        db.put(key(row), noise(n as u64, 400))?;
    }
    held(db.value_reader("film")?.unwrap())
}

/// A reader of a value that was in a memtable.
fn reader_of_a_row(db: &Db, n: usize) -> Result<Held> {
    let inline = db.family("inline")?;
    inline.put(key(n as u32), noise(n as u64, 3000))?;
    let reader = inline.value_reader(key(n as u32))?.unwrap();
    for row in 0..10 {
        inline.put(key(row), noise(n as u64, 3000))?;
    }
    held(reader)
}

const KINDS: &[(&str, Make)] = &[
    ("batches of one write", |db, _| batch(db, 1, 100)),
    ("batches of 3 KB", |db, _| batch(db, 30, 100)),
    ("batches of 100 KB", |db, _| batch(db, 100, 1000)),
    ("transactions, idle", |db, _| held(db.begin(Isolation::Serializable))),
    ("transactions of 2 KB", |db, _| held(transaction(db, Isolation::Snapshot, 15)?)),
    ("transactions that read their writes", |db, _| {
        let tx = transaction(db, Isolation::ReadCommitted, 20)?;
        tx.get(db.default_family(), key(3))?;
        held(tx)
    }),
    ("transactions, 100 reads", |db, _| {
        let tx = db.begin(Isolation::Serializable);
        for n in 0..100 {
            tx.contains(db.default_family(), key(n).repeat(5))?;
        }
        held(tx)
    }),
    ("transactions, 100 intervals", |db, _| {
        let tx = db.begin(Isolation::Serializable);
        for n in 0..100 {
            let mut cursor = tx.cursor(db.default_family())?;
            cursor.seek(key(n * 30))?;
            cursor.next()?;
        }
        held(tx)
    }),
    ("transactions, 500 savepoints", |db, _| {
        let mut tx = db.begin(Isolation::Snapshot);
        let last = (0..500).map(|_| tx.savepoint()).last();
        tx.rollback_to(last.unwrap())?;
        held(tx)
    }),
    ("cursors, new", |db, _| held(db.cursor()?)),
    ("cursors on a row", |db, n| scan(db, 0, n)),
    ("cursors after 300 rows", |db, n| scan(db, 300, n)),
    ("cursors, backwards", |db, n| {
        let mut cursor = db.cursor()?;
        cursor.seek_for_prev(key(n as u32 * 7919 % ROWS))?;
        for _ in 0..20 {
            cursor.prev()?;
        }
        held(cursor)
    }),
    ("cursors in transactions", |db, _| {
        let tx = transaction(db, Isolation::Serializable, 5)?;
        let mut cursor = tx.cursor(db.default_family())?;
        cursor.seek(key(1))?;
        held((tx, cursor))
    }),
    ("cursors on long values", |db, n| {
        let mut cursor = db.family("long")?.cursor()?;
        cursor.seek(key(n as u32 % 100))?;
        cursor.value()?;
        held(cursor)
    }),
    ("cursors on merged values", |db, n| {
        let mut cursor = db.family("merged")?.cursor()?;
        cursor.seek(key(n as u32 % 10))?;
        cursor.value()?;
        held(cursor)
    }),
    ("iterators from both ends", |db, _| {
        let mut iter = db.range("row"..)?;
        iter.next().unwrap()?;
        iter.next_back().unwrap()?;
        held(iter)
    }),
    ("iterators with long bounds", |db, _| held(db.range(vec![b'a'; 3000]..vec![b'z'; 3000])?)),
    ("snapshots", |db, n| {
        db.put("snap", key(n as u32))?;
        held(db.snapshot())
    }),
    ("value writers, one byte", |db, _| written(db, 1)),
    ("value writers, 300 KB", |db, _| written(db, 300_000)),
    ("value writers, 3 MiB", |db, _| written(db, 3 << 20)),
    ("value readers of chunks", |db, _| read(db, "film")),
    ("value readers of 100 KB", |db, n| read(db, std::str::from_utf8(&key(n as u32 % 100)).unwrap())),
    ("cursors backwards over long values", |db, n| {
        let mut cursor = db.family("inline")?.cursor()?;
        cursor.seek_for_prev(key(50 + n as u32 % 50))?;
        cursor.prev()?;
        held(cursor)
    }),
    ("iterators beside writes", |db, n| {
        db.put(key(n as u32), noise(n as u64, 5000))?;
        held(db.range("row"..)?.next().unwrap()?).and(held(db.range("row"..)?))
    }),
    ("views of a reader beside the writer", |db, n| {
        thread_local! {
            static READER: std::cell::OnceCell<tidesdb::Reader> = const { std::cell::OnceCell::new() };
        }
        db.put("seen", key(n as u32))?;
        let open = || Db::options(db.path()).memory_limit(LIMIT).open_reader().unwrap();
        READER.with(|reader| held(reader.get_or_init(open).refresh()?))
    }),
    ("handles of a family", |db, _| held(db.family("long")?)),
    ("20 cursors over 10 range deletes", |db, _| cursors_over_ranges(db, 10)),
    ("20 cursors over 2,000 range deletes", |db, _| cursors_over_ranges(db, 2000)),
    ("20 cursors between range deletes", |db, _| cursors_between_ranges(db)),
    ("delete_range and get in turn", |db, _| deletes_and_gets(db)),
    ("value readers beside writes", reader_beside_writes),
    ("value readers of rows in memtables", reader_of_a_row),
];

/// Anonymous memory of this process.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// What callers hold.
fn callers(s: &Stats) -> (u64, u64) {
    (s.memory_transactions_bytes, s.memory_cursors_bytes)
}

fn open(dir: &std::path::Path) -> Db {
    Db::options(dir).memory_limit(LIMIT).sync(SyncMode::None).open().unwrap()
}

/// Rows in tables, values of 100 KB in a value log, operands, and a value in chunks.
fn fill(db: &Db) {
    for n in 0..ROWS {
        db.put(key(n), noise(n.into(), 1000)).unwrap();
        if n % 1000 == 999 {
            db.flush().unwrap();
        }
    }
    let long = db.family_or_create("long", FamilyOptions::default().value_threshold(1000)).unwrap();
    for n in 0..100 {
        long.put(key(n), noise(n.into(), 100_000)).unwrap();
        db.put(key(n), noise(n.into(), 100_000)).unwrap();
    }
    let inline = db.family_or_create("inline", FamilyOptions::default().value_threshold(1 << 30)).unwrap();
    for n in 0..100 {
        inline.put(key(n), noise(n.into(), 30_000)).unwrap();
    }
    let operator = FamilyOptions::default().merge_operator(MergeOperator::append(","));
    let merged = db.family_or_create("merged", operator).unwrap();
    for n in 0..100 {
        merged.merge(key(n % 10), noise(n.into(), 1000)).unwrap();
    }
    db.put_stream("film", Read::take(std::io::repeat(7), 4 << 20)).unwrap();
    db.flush().unwrap();
}

/// Opens objects of one kind until one is refused, and prints what that takes.
fn child(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.put("first", "row").unwrap();
    let empty = anonymous();
    fill(&db);
    tidesdb_io::trim_heap();
    let before = db.stats();
    let mut objects: Vec<Held> = Vec::with_capacity(OBJECTS);
    let refused = (0..OBJECTS).find_map(|n| make(&db, n).map(|object| objects.push(object)).err());
    let stats = db.stats();
    // A reader beside the writer has a limit of its own, and statistics of its own.
    let views = objects.last().and_then(|object| object.downcast_ref::<Db>());
    let views = views.map_or(0, |view| view.stats().memory_cursors_bytes);
    let counted = counted(&stats) - stats.memory_fixed_bytes + views;
    let anonymous = anonymous().saturating_sub(empty);
    print_result(objects.len(), refused.as_ref(), [anonymous, counted, stats.memory_allocator_bytes]);
    assert!(anonymous <= LIMIT / 100 * 115, "{} MiB of {}", anonymous >> 20, LIMIT >> 20);
    let explained = counted + stats.memory_spare_bytes + stats.memory_allocator_bytes;
    assert!(anonymous <= explained + LIMIT / 100 * TOLERANCE, "{anonymous} bytes, explained are {explained}");
    if let Some(e) = refused {
        assert!(is_clear(&e), "{e}");
    }
    db.put("while", "they are held").unwrap();
    objects.clear();
    // The batch that the thread keeps for its next put counts before, and may have been given back.
    let ((transactions, cursors), before) = (callers(&db.stats()), callers(&before));
    assert!(
        transactions <= before.0 && cursors == before.1,
        "{transactions} and {cursors} bytes are not given back"
    );
    for n in 0..1000 {
        db.put(key(n), [1; 1000]).unwrap();
    }
    make(&db, 1).unwrap();
    db.close().unwrap();
}

/// Returns whether a refused call says that memory is scarce, and may be repeated.
fn is_clear(e: &Error) -> bool {
    let says_so = match e {
        Error::Busy { cause } => cause.starts_with("memory"),
        Error::MemoryLimit { what } => what.contains("memory"),
        _ => false,
    };
    says_so && e.is_retryable()
}

/// Makes tables whose first and last keys take most of their memory, until a write is refused. Merges are off until then.
fn long_keys() {
    let dir = tempfile::tempdir().unwrap();
    let family = FamilyOptions::default().l1_tables_trigger(1 << 20);
    let open =
        Db::options(dir.path()).memory_limit(LIMIT).sync(SyncMode::None).default_family(family.clone());
    let db = open.open().unwrap();
    db.put("first", "row").unwrap();
    let (empty, before) = (anonymous(), counted(&db.stats()));
    let put = |n: u64| db.put([&key(n as u32)[..], &noise(n, 65_000)].concat(), "v").and_then(|_| db.flush());
    let refused = (0..1000).find_map(|n| put(n).err().map(|e| (n, e)));
    let stats = db.stats();
    let (kept, counted) = (stats.memory_allocator_bytes, counted(&stats) - before);
    let anonymous = anonymous().saturating_sub(empty);
    print_result(
        refused.as_ref().map_or(1000, |(n, _)| *n as usize),
        refused.as_ref().map(|(_, e)| e),
        [anonymous, counted, kept],
    );
    let (n, e) = refused.unwrap();
    assert!(is_clear(&e), "{e}");
    assert!(anonymous - kept <= LIMIT / 100 * 115 && anonymous - kept <= counted + LIMIT / 100 * TOLERANCE);
    db.default_family().change_options_until_close(family.l1_tables_trigger(4)).unwrap();
    db.compact().unwrap();
    for at in 0..50 {
        put(n + at).unwrap();
    }
    assert!(db.iter().unwrap().keys().count() as u64 >= n);
}

/// Runs `work`. Also returns the most anonymous memory that this process had meanwhile, with what the limit counted and the allocator kept then.
fn peak_during<T>(db: &Db, work: impl FnOnce() -> T) -> (T, [u64; 3]) {
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let looks = s.spawn(|| {
            let mut peak = [0; 3];
            while !done.load(Ordering::Relaxed) {
                let now = anonymous();
                if now > peak[0] {
                    let stats = db.stats();
                    peak = [now, counted(&stats), stats.memory_allocator_bytes];
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            peak
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, looks.join().unwrap())
    })
}

/// A database with `tables` tables of `keys` keys each, with the values that `value` makes. A merge reads all tables in turn. Also returns the
/// anonymous memory that the database had when it was empty.
fn with_tables(
    limit: u64,
    options: FamilyOptions,
    (tables, keys): (u32, u32),
    value: impl Fn(u32, u32) -> Vec<u8>,
) -> (tempfile::TempDir, Db, u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = options.l1_tables_trigger(1 << 20);
    let open = Db::options(dir.path()).memory_limit(limit).sync(SyncMode::None);
    let db = open.default_family(options).open().unwrap();
    db.put("first", "row").unwrap();
    let empty = anonymous();
    for table in 0..tables {
        let mut batch = WriteBatch::new();
        for n in 0..keys {
            batch.put(db.default_family(), key(n * tables + table), value(table, n)).unwrap();
            if batch.bytes() > 256 << 10 {
                db.write(&mut batch).unwrap();
            }
        }
        db.write(&mut batch).unwrap();
        db.flush().unwrap();
    }
    (dir, db, empty)
}

/// Merges the tables of [`with_tables`].
fn merges(
    limit: u64,
    options: FamilyOptions,
    (tables, keys): (u32, u32),
    value: impl Fn(u32, u32) -> Vec<u8>,
) {
    let (_dir, db, empty) = with_tables(limit, options, (tables, keys), value);
    tidesdb_io::trim_heap();
    let jobs = db.stats().memory_jobs_bytes;
    let (merged, [peak, counted, kept]) = peak_during(&db, || db.compact());
    merged.unwrap();
    let peak = peak.saturating_sub(empty);
    print_result((tables * keys) as usize, None, [peak, counted, kept]);
    assert!(db.stats().memory_jobs_bytes <= jobs, "what the merge charged is given back");
    assert_eq!(db.iter().unwrap().keys().count() as u32, tables * keys + 1);
    assert!(peak <= limit / 100 * 115, "{} MiB of {}", peak >> 20, limit >> 20);
}

/// The tables of the kinds below hold their values.
fn inline() -> FamilyOptions {
    FamilyOptions::default().value_threshold(1 << 30)
}

fn put_rows(db: &Db) {
    for n in 0..ROWS {
        db.put(key(n), noise(n.into(), 100)).unwrap();
    }
}

/// The bound `n` of a range that deletes one row: the key of the row before it, and `len` bytes.
fn bound(n: u32, len: usize) -> Vec<u8> {
    [&key(n % ROWS)[..], &noise(n.into(), len)].concat()
}

/// Deletes `ranges` ranges, of a row each, with bounds of `len` bytes. All are accepted: merges apply them in time. A batch with many is refused.
/// A range that a snapshot still needs is refused in the end, and no other write is. A lower limit admits what is there.
fn range_deletes(ranges: u32, len: usize) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.put("first", "row").unwrap();
    let empty = anonymous();
    put_rows(&db);
    db.flush().unwrap();
    let delete = |db: &Db, n: u32| db.delete_range(bound(n, len)..bound(n + 1, len));
    let (refused, [peak, counted, kept]) =
        peak_during(&db, || (0..ranges).find_map(|n| delete(&db, n).err()));
    let peak = peak.saturating_sub(empty);
    print_result(ranges as usize, refused.as_ref(), [peak, counted, kept]);
    assert!(refused.is_none() && peak - kept.min(peak) <= LIMIT / 100 * 115);
    let left = ROWS - ranges.min(ROWS - 1);
    assert_eq!(db.iter().unwrap().keys().count() as u32, left + 1);

    let batch_of = |count: u64| {
        let mut batch = WriteBatch::new();
        for n in 0..count as u32 {
            batch.delete_range(db.default_family(), bound(n, len)..bound(n + 1, len)).unwrap();
        }
        db.write(&mut batch)
    };
    let max = LIMIT / 16 / (2 * len as u64 + 100) + 2;
    batch_of(max / 4).unwrap();
    let refused = batch_of(max).unwrap_err();
    assert!(is_clear(&refused) && refused.to_string().contains("use smaller batches"), "{refused}");

    put_rows(&db);
    let snapshot = db.snapshot();
    let refused = (0..u32::MAX).find_map(|n| delete(&db, n % (ROWS - 1)).err()).unwrap();
    assert!(is_clear(&refused) && refused.to_string().contains("range deletes"), "{refused}");
    assert!(db.stats().memory_ranges_bytes <= LIMIT / 8);
    assert!(db.health().causes.iter().any(|cause| cause.starts_with("range deletes are refused")));
    db.put("while", "they are held").unwrap();
    db.close().unwrap();
    drop(snapshot);
    let open = Db::options(dir.path()).memory_limit(16 << 20).sync(SyncMode::None);
    let db = open.open().unwrap();
    assert!(db.stats().memory_ranges_bytes > (16 << 20) / 8 / 4 * 3);
    db.put("after", "the open").unwrap();
    delete(&db, 1).unwrap_or_else(|e| {
        let events = std::fs::read_to_string(dir.path().join("EVENTS")).unwrap();
        panic!("{e}\n{}\n{events}", db.stats());
    });
    assert!(db.stats().memory_ranges_bytes < (16 << 20) / 8);
    db.close().unwrap();
}

/// Without background threads, the commits do the merges that range deletes need.
fn range_deletes_without_threads() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::options(dir.path()).memory_limit(16 << 20).background_threads(0).sync(SyncMode::None);
    let db = open().open().unwrap();
    put_rows(&db);
    let mut most = 0;
    for n in 0..300 {
        db.delete_range(bound(n, 65_000)..bound(n + 1, 65_000)).unwrap();
        most = most.max(db.stats().memory_ranges_bytes);
    }
    print_result(300, None, [anonymous(), most, 0]);
    assert!((1 << 20..=2 << 20).contains(&most), "{most}");
    assert_eq!(db.iter().unwrap().keys().count() as u32, ROWS - 300);
    db.close().unwrap();
}

/// A merge that fails half way, while another one waits for its long value, gives back what it had charged. The other one goes on.
fn failing_merge() {
    let (dir, db, _) =
        with_tables(LIMIT, inline(), (4, 8), |table, n| noise((table * 100 + n).into(), 3 << 20));
    let tables = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let longest = tables.filter(|entry| entry.path().extension().is_some_and(|e| e == "klog"));
    let longest = longest.max_by_key(|entry| entry.metadata().unwrap().len()).unwrap().path();
    let mut file = std::fs::OpenOptions::new().write(true).open(&longest).unwrap();
    file.seek(SeekFrom::Start(std::fs::metadata(&longest).unwrap().len() / 2)).unwrap();
    file.write_all(&[0; 4096]).unwrap();
    let other = db.create_family("other", inline()).unwrap();
    for n in 0..4 {
        other.put(key(n), noise(n.into(), 3 << 20)).unwrap();
        db.flush().unwrap();
    }
    let jobs = db.stats().memory_jobs_bytes;
    std::thread::scope(|s| {
        s.spawn(|| other.compact().unwrap());
        let failed = db.default_family().compact().unwrap_err();
        assert!(failed.is_corruption(), "{failed}");
        print_result(32, Some(&failed), [anonymous(), counted(&db.stats()), 0]);
    });
    assert!(db.stats().memory_jobs_bytes <= jobs);
    other.put(key(9), noise(9, 3 << 20)).unwrap();
    db.flush().unwrap();
    other.compact().unwrap();
    assert_eq!(other.iter().unwrap().keys().count(), 5);
    db.close().unwrap();
}

/// Scenarios with a process of their own, besides the objects that callers hold.
const SCENARIOS: &[(&str, fn())] = &[
    ("tables with long keys", long_keys),
    ("a merge of values of 900 KB", || {
        merges(LIMIT, inline(), (30, 5), |table, n| noise((table * 100 + n).into(), 900_000));
    }),
    ("a merge of values of 3 MiB", || {
        merges(LIMIT, inline(), (6, 12), |table, n| noise((table * 100 + n).into(), 3 << 20));
    }),
    ("a merge of values of 7 MiB", || {
        merges(LIMIT, inline(), (5, 6), |table, n| noise((table * 100 + n).into(), 7 << 20));
    }),
    ("a merge of 7 MiB that compress", || {
        merges(LIMIT, inline(), (5, 6), |table, n| vec![(table + n) as u8; 7 << 20]);
    }),
    ("a merge of tiny rows, lowest limit", || {
        merges(16 << 20, FamilyOptions::default(), (2, 1_000_000), |_, _| Vec::new());
    }),
    ("a merge of values of 3 MiB that fails", failing_merge),
    ("range deletes with long bounds", || range_deletes(1500, 65_000)),
    ("range deletes without threads", range_deletes_without_threads),
    ("range deletes with short bounds", || range_deletes(10_000, 8)),
];

fn print_result(objects: usize, refused: Option<&Error>, bytes: [u64; 3]) {
    let [anonymous, counted, kept] = bytes.map(|bytes| bytes as f64 / (1 << 20) as f64);
    let is_refused = if refused.is_some() { "refused" } else { "all    " };
    let why = refused.map_or(String::new(), ToString::to_string);
    println!("RESULT {objects:5} {is_refused} {anonymous:6.1} {counted:6.1} {kept:6.1} {why}");
}

/// Runs the child for `kind`. Returns what it printed, and its errors if it failed.
fn run(kind: &str) -> (String, Option<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--nocapture",
        "--exact",
        "memory_limit::ten_thousand::ten_thousand_of_each_object_stay_within_the_limit",
    ]);
    let output = command.env(KIND, kind).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT ")).unwrap_or("no result");
    let ran = output.status.success() && text.contains("1 passed");
    let failed = (!ran).then(|| String::from_utf8_lossy(&output.stderr).into_owned());
    (result.to_owned(), failed)
}

#[test]
fn ten_thousand_of_each_object_stay_within_the_limit() {
    if let Ok(kind) = std::env::var(KIND) {
        let scenario = SCENARIOS.iter().find(|(name, _)| *name == kind);
        return match scenario {
            Some((_, run)) => run(),
            None => child(KINDS.iter().find(|(name, _)| *name == kind).unwrap().1),
        };
    }
    println!("{:40} opened         anonymous counted allocator (MiB)", "object");
    let print = |kind: &str| {
        let (result, failed) = run(kind);
        println!("{kind:40} {result}");
        failed.map(|errors| {
            println!("{errors}");
            kind.to_owned()
        })
    };
    // The scenarios wait for files most of the time, so the other processes run beside them.
    let failed: Vec<String> = std::thread::scope(|s| {
        let scenarios = s.spawn(|| SCENARIOS.iter().filter_map(|(kind, _)| print(kind)).collect::<Vec<_>>());
        let mut failed: Vec<_> = KINDS.iter().filter_map(|(kind, _)| print(kind)).collect();
        failed.extend(scenarios.join().unwrap());
        failed
    });
    assert!(failed.is_empty(), "{failed:?}");
}
