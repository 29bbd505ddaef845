//! Databases written by earlier formats, and their expected contents, so that every later version can be checked
//! against them.
//!
//! `crates/testkit/golden/N` has the files of format `N`: `closed` was closed cleanly; `killed` was copied from a
//! running database with rows that are only in its log. The test `golden` opens each. The program `golden` writes a new
//! set; a released set is never rewritten.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{fs, io};

use tidesdb::{Comparator, Compression, Db, FamilyOptions, MemtableKind, OpenOptions, Result, SyncMode};

/// Names of the families; each family has its own settings.
pub const FAMILIES: [&str; 5] = ["default", "reverse", "by length", "plain", "zstd"];
/// Expiry of rows that must not expire during any test: 2100-01-01.
const FAR: u32 = 4_102_444_800;

/// Rows of a family, in byte order.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<u8>, Vec<u8>),
    PutExpiring(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    SingleDelete(usize, Vec<u8>),
    DeleteRange(usize, Vec<u8>, Vec<u8>),
    Flush,
    Compact,
}

/// Returns a key order that the library does not know: shorter keys first.
#[must_use]
pub fn by_length() -> Comparator {
    Comparator::custom("golden.by-length", |a: &[u8], b: &[u8]| -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    })
}

/// Returns the settings of family number `family`.
#[must_use]
pub fn options_of(family: usize) -> FamilyOptions {
    let base = FamilyOptions::default();
    match family {
        1 => base.comparator(Comparator::reverse_bytewise()).compression(Compression::Snappy),
        2 => base.comparator(by_length()).value_threshold(100),
        3 => base.compression(Compression::None).memtable(MemtableKind::SkipList).filter_bits_per_key(0),
        4 => {
            let mut options =
                base.compression(Compression::Zstd).write_buffer_bytes(1 << 20).value_threshold(300);
            options.table_bytes = 64 << 10;
            options.l1_tables_trigger = 7;
            options.vlog_file_bytes = 1 << 20;
            options
        }
        _ => base,
    }
}

/// Sets the options of the databases: small files, everything durable, no threads.
pub fn configured(options: OpenOptions) -> OpenOptions {
    options
        .sync(SyncMode::Full)
        .background_threads(0)
        .with(|o| o.wal_segment_bytes = 64 << 10)
        .default_family(options_of(0))
}

/// Writes `closed` and `killed` into `dir`.
///
/// # Errors
/// Returns the errors of the database and of the file system.
pub fn write(dir: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let (closed, killed) = (dir.join("closed"), dir.join("killed"));
    let db = configured(Db::options(&closed)).comparator(by_length()).open()?;
    for (family, name) in FAMILIES.iter().enumerate().skip(1) {
        db.create_family(name, options_of(family))?;
    }
    apply(&db, &flushed())?;
    apply(&db, &logged())?;
    copy(&closed, &killed)?;
    Ok(db.close()?)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Returns the expected contents of each family.
#[must_use]
pub fn expected() -> Vec<Rows> {
    let mut all = vec![Rows::new(); FAMILIES.len()];
    for step in flushed().into_iter().chain(logged()) {
        match step {
            Step::Put(f, key, value) | Step::PutExpiring(f, key, value) => {
                all[f].insert(key, value);
            }
            Step::Delete(f, key) | Step::SingleDelete(f, key) => {
                all[f].remove(&key);
            }
            Step::DeleteRange(f, from, to) => all[f].retain(|key, _| *key < from || *key >= to),
            Step::Flush | Step::Compact => {}
        }
    }
    all
}

fn apply(db: &Db, steps: &[Step]) -> Result<()> {
    let families = FAMILIES.iter().map(|name| db.family(name)).collect::<Result<Vec<_>>>()?;
    for step in steps {
        let mut batch = db.batch();
        match step {
            Step::Put(f, key, value) => batch.put(&families[*f], key, value)?,
            Step::PutExpiring(f, key, value) => batch.put_expiring(&families[*f], key, value, FAR)?,
            Step::Delete(f, key) => batch.delete(&families[*f], key)?,
            Step::SingleDelete(f, key) => batch.single_delete(&families[*f], key)?,
            Step::DeleteRange(f, from, to) => {
                batch.delete_range(&families[*f], from.as_slice()..to.as_slice())?
            }
            Step::Flush => db.flush()?,
            Step::Compact => db.compact()?,
        }
        if !batch.is_empty() {
            db.write(&mut batch)?;
        }
    }
    Ok(())
}

/// Returns the steps whose results are stored in tables: rounds over the same keys, with a merge after the second
/// round.
fn flushed() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..3 {
        for family in 0..FAMILIES.len() {
            steps.extend((0..60).map(|n| put(family, n, round)));
            steps.extend((0..6).map(|n| Step::Delete(family, key(n * 10 + round))));
            // The key of a single delete is put once.
            let once = format!("once {round}").into_bytes();
            steps.push(Step::Put(family, once.clone(), b"gone".to_vec()));
            steps.push(Step::Flush);
            steps.push(Step::SingleDelete(family, once));
            steps.push(Step::PutExpiring(family, format!("far {round}").into_bytes(), value(round, round)));
        }
        // Only families in byte order agree with the model about the keys between two keys.
        steps.extend([0, 3, 4].map(|family| Step::DeleteRange(family, key(20 + round), key(23 + round))));
        steps.push(Step::Flush);
        if round == 1 {
            steps.push(Step::Compact);
        }
    }
    steps
}

/// Returns the steps whose results are only in the log when the database is killed.
fn logged() -> Vec<Step> {
    let mut steps = Vec::new();
    for family in 0..FAMILIES.len() {
        steps.extend((50..80).map(|n| put(family, n, 9)));
        steps.push(Step::Delete(family, key(31)));
        steps.push(Step::PutExpiring(family, b"far 9".to_vec(), value(9, 9)));
    }
    steps.extend([0, 3, 4].map(|family| Step::DeleteRange(family, key(70), key(75))));
    steps
}

fn put(family: usize, n: usize, round: usize) -> Step {
    Step::Put(family, key(n), value(n, round))
}

/// Returns a key; keys have several lengths.
fn key(n: usize) -> Vec<u8> {
    let mut key = format!("{n:03}").into_bytes();
    key.resize(3 + n % 9, b'k');
    key
}

/// Returns a value; values have several lengths, some are empty, some exceed the threshold of the value log.
fn value(n: usize, round: usize) -> Vec<u8> {
    let len = [0, 1, 20, 90, 400, 1500][(n + round) % 6];
    (0..len).map(|i| (n * 7 + round * 31 + i / 5) as u8).collect()
}
