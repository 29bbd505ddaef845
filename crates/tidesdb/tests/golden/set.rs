//! What the databases contain, and how they are written.
//!
//! `killed` is what a process leaves that was killed while some rows were only in its log. `closed` is `killed`, opened and closed. Both are
//! written on a simulated machine, whose time stands still and whose random numbers have a seed: so each run writes the same bytes, on each
//! machine.
//!
//! `store` has two generations of backups of `killed`: of all rows, proven, and of one more row in each family.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::backup::{Backups, CreateOptions};
use tidesdb::store::DirectoryStore;
use tidesdb::{Comparator, Compression, Db, FamilyOptions, OpenOptions, Result, SyncMode, WriteBatch};
use tidesdb_io::Env;
use tidesdb_io::sim::{self, SimDisk};

/// The directory of a database on its simulated machine.
pub(crate) const DIR: &str = "db";
/// The directory of the backups.
pub(crate) const STORE: &str = "store";
/// Expiry of rows that must not expire during any test, in seconds: 2100-01-01.
const FAR: u64 = 4_102_444_800;
/// Files that only take space, and that the engine does not read.
const NOT_NEEDED: [&str; 2] = ["RESERVE", "EVENTS"];
/// Number of the family whose rows lie in several levels.
const LEVELS: usize = 5;

/// The files of a database, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Rows of a family, in byte order.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<u8>, Vec<u8>),
    /// Puts a row that expires, see [`expiry_of`].
    PutExpiring(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    SingleDelete(usize, Vec<u8>),
    DeleteRange(usize, Vec<u8>, Vec<u8>),
    Flush,
    Compact,
}

/// Names of the families; each has its own settings.
pub(crate) const FAMILIES: [&str; 6] = ["default", "reverse", "by length", "plain", "zstd", "levels"];

/// Returns a key order that the library does not know: shorter keys first.
pub(crate) fn by_length() -> Comparator {
    Comparator::custom("golden.by-length", |a: &[u8], b: &[u8]| -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    })
}

/// Returns the settings of family number `family`.
pub(crate) fn options_of(family: usize) -> FamilyOptions {
    let base = FamilyOptions::default();
    match family {
        1 => base.comparator(Comparator::reverse_bytewise()).compression(Compression::Snappy),
        2 => base.comparator(by_length()).value_threshold(100),
        3 => base.compression(Compression::None).filter_bits_per_key(0),
        4 => {
            let mut options =
                base.compression(Compression::Zstd).write_buffer_bytes(1 << 20).value_threshold(300);
            options.table_bytes = 64 << 10;
            options.l1_tables_trigger = 7;
            options.vlog_file_bytes = 1 << 20;
            options
        }
        LEVELS => {
            // Each setting differs from its default.
            let mut options = base.compression(Compression::None);
            options.write_buffer_bytes = 1 << 20;
            options.value_threshold = 5000;
            options.filter_bits_per_key = 12;
            options.table_bytes = 9 << 10;
            options.l1_tables_trigger = 2;
            options.vlog_file_bytes = 2 << 20;
            options.level_size_ratio = 2;
            options.min_levels = 3;
            options.dividing_level_offset = 2;
            options.tombstone_density_permille = 900;
            options.tombstone_density_min_entries = 100;
            options.tiered_runs_max = 3;
            options.default_ttl = Duration::from_millis(200 * 365 * 86_400_000 + 250);
            options
        }
        _ => base,
    }
}

/// Sets the options of the databases: small files, everything durable, no threads, and nothing that depends on the machine.
pub(crate) fn configured(options: OpenOptions) -> OpenOptions {
    options
        .sync(SyncMode::Full)
        .background_threads(0)
        .memory_limit(256 << 20)
        .with(|o| o.wal_segment_bytes = 16 << 10)
        .default_family(options_of(0))
}

/// Writes both databases and the store, and returns their names and files.
pub(crate) fn write() -> Result<[(&'static str, Files); 3]> {
    let disk = written()?;
    let killed = files(&disk, DIR);
    let (env, closed, _) = sim::env_on(disk.fork(), 2);
    open(&env)?.close()?;
    let (env, backed_up, _) = sim::env_on(disk.fork(), 4);
    let db = open(&env)?;
    let backups = Backups::with_env(Arc::new(DirectoryStore::open_in(&env, STORE).unwrap()), env);
    backups.create_with(&db, &CreateOptions::default().prove("scratch"))?;
    add(&db)?;
    backups.create(&db)?;
    Ok([("closed", files(&closed, DIR)), ("killed", killed), (STORE, files(&backed_up, STORE))])
}

/// Adds a row to each family.
pub(crate) fn add(db: &Db) -> Result<()> {
    FAMILIES.iter().try_for_each(|name| db.family(name)?.put(b"new", b"row").map(drop))
}

fn open(env: &Env) -> Result<Db> {
    configured(Db::options(DIR)).env(env.clone()).comparator(by_length()).open()
}

/// Returns the disk of a machine on which a process was killed.
fn written() -> Result<SimDisk> {
    let (env, disk, _) = sim::env(1);
    let db = open(&env)?;
    for (family, name) in FAMILIES.iter().enumerate().skip(1) {
        // Live settings are set later, which is another record of the manifest.
        let options = options_of(family);
        let created = FamilyOptions::default().comparator(options.comparator.clone());
        db.create_family(name, created)?.change_options(options)?;
    }
    apply(&db, &flushed())?;
    db.close()?;
    let db = open(&env)?; // begins a new, short manifest
    apply(&db, &logged())?;
    Ok(disk.fork()) // before the database is closed
}

/// Returns the files of a database or a store.
fn files(disk: &SimDisk, dir: &str) -> Files {
    let names = disk.file_names(dir).unwrap().into_iter().filter(|name| !NOT_NEEDED.contains(&&**name));
    names.map(|name| (name.clone(), disk.read_file(format!("{dir}/{name}")).unwrap())).collect()
}

/// Returns the moment at which the row `key` expires; `None` = never.
pub(crate) fn expiry_of(key: &[u8]) -> Option<SystemTime> {
    let number = key.strip_prefix(b"far ")?.first().map_or(0, |digit| u64::from(digit - b'0'));
    let millis = match number {
        9 => FAR * 9000 + 999, // after 2106
        _ => FAR * 1000 + 250 * number,
    };
    Some(UNIX_EPOCH + Duration::from_millis(millis))
}

/// Returns the expected contents of each family.
pub(crate) fn expected() -> Vec<Rows> {
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
        let mut batch = WriteBatch::new();
        match step {
            Step::Put(f, key, value) => batch.put(&families[*f], key, value)?,
            Step::PutExpiring(f, key, value) => {
                batch.put_expiring(&families[*f], key, value, expiry_of(key))?
            }
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
    let keys = 20;
    for round in 0..3 {
        for family in 0..LEVELS {
            steps.extend((0..keys).map(|n| put(family, n, round)));
            steps.extend((0..keys / 10).map(|n| Step::Delete(family, key(n * 10 + round))));
            // The key of a single delete is put once.
            let once = format!("once {round}").into_bytes();
            steps.push(Step::Put(family, once.clone(), b"gone".to_vec()));
            steps.push(Step::Flush);
            steps.push(Step::SingleDelete(family, once));
            let far = format!("far {round}").into_bytes();
            steps.push(Step::PutExpiring(family, far, value(round, round)));
        }
        // Only families in byte order agree with the model about the keys between two keys.
        let from = keys / 3;
        steps.extend([0, 3, 4].map(|f| Step::DeleteRange(f, key(from + round), key(from + 3 + round))));
        steps.push(Step::Flush);
        if round == 1 {
            steps.push(Step::Compact);
        }
    }
    steps.extend(in_levels());
    steps
}

/// Returns steps that leave tables of several blocks in three levels, and range tombstones over them.
fn in_levels() -> Vec<Step> {
    let rows = |n: usize, salt: usize| {
        (0..n).map(move |i| Step::Put(LEVELS, key(i * 3 % 97), noise(i * 131 + salt)))
    };
    let mut steps: Vec<Step> = rows(60, 1).collect();
    steps.extend([Step::Flush, Step::Compact]);
    for round in 2..5 {
        steps.extend(rows(8 * round, round));
        steps.push(Step::DeleteRange(LEVELS, key(40 + round), key(42 + round)));
        steps.push(Step::Flush);
    }
    steps
}

/// Returns the steps whose results are only in the log when the database is killed.
fn logged() -> Vec<Step> {
    let mut steps = Vec::new();
    let (from, to) = (14, 26);
    for family in 0..FAMILIES.len() {
        steps.extend((from..to).map(|n| put(family, n, 9)));
        steps.push(Step::Delete(family, key(14)));
        steps.push(Step::PutExpiring(family, b"far 9".to_vec(), value(9, 9)));
    }
    steps.extend([0, 3, 4].map(|family| Step::DeleteRange(family, key(to - 10), key(to - 5))));
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
    let lengths = [0, 1, 20, 90, 310, 600];
    let len = lengths[(n + round) % 6];
    (0..len).map(|i| (n * 7 + round * 31 + i / 5) as u8).collect()
}

/// Returns a value that no codec makes shorter.
fn noise(salt: usize) -> Vec<u8> {
    let mut state = salt as u64 + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..100 + salt % 250).map(next).collect()
}
