//! Test fixture: a database on a simulated disk, without background threads unless requested, and comparison of contents.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidesdb::{
    Comparator, Db, Family, FamilyOptions, Isolation, Iter, MergeOperator, OpenOptions, Result, Stats,
    WriteBatch,
};
use tidesdb_io::sim::{self, Image, OpSet, SimDisk};
use tidesdb_io::{Env, ManualClock};

/// Directory of the database.
pub(crate) const DB: &str = "/db";

/// All isolation levels, weakest first.
pub(crate) const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// A key with its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// A simulated machine.
pub(crate) struct Sim {
    pub(crate) env: Env,
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) clock: Arc<ManualClock>,
}

impl Sim {
    pub(crate) fn new() -> Self {
        Self::on(SimDisk::new(7))
    }

    pub(crate) fn on(disk: SimDisk) -> Self {
        let (env, disk, clock) = sim::env_on(disk, 7);
        disk.log_ops(false);
        Self { env, disk, clock }
    }

    /// Returns options for the database of this machine: small segments, no threads.
    pub(crate) fn options(&self) -> OpenOptions {
        self.options_at(DB)
    }

    pub(crate) fn options_at(&self, path: impl AsRef<Path>) -> OpenOptions {
        self.options_as_stored(path).default_family(small())
    }

    /// Like [`Self::options_at`], but does not set what is stored with the default family.
    pub(crate) fn options_as_stored(&self, path: impl AsRef<Path>) -> OpenOptions {
        Db::options(path).env(self.env.clone()).background_threads(0).cache_bytes(1 << 20).with(|o| {
            o.wal_segment_bytes = 64 << 10;
            o.disk_free_min = 0;
        })
    }

    /// Opens with the stored settings of the default family.
    pub(crate) fn open_as_stored(&self) -> Db {
        self.options_as_stored(DB).open().unwrap()
    }

    pub(crate) fn open(&self) -> Db {
        self.options().open().unwrap()
    }

    /// Returns the machine after the process was killed.
    pub(crate) fn killed(&self) -> Self {
        Self::on(self.disk.fork())
    }

    /// Returns the machine after a power failure.
    pub(crate) fn power_lost(&self, image: &Image, seed: u64) -> Self {
        Self::on(self.disk.crash_image(image, seed))
    }

    /// Returns the machine after its file system went away and was mounted again.
    pub(crate) fn mount_lost(&self, image: &Image, seed: u64) -> Self {
        Self::on(self.disk.lost_mount(image, seed))
    }

    /// Runs `work` and returns the disk as it was before each change.
    pub(crate) fn before_each_change(&self, work: impl FnOnce()) -> Vec<SimDisk> {
        let forks: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
        let taken = Arc::clone(&forks);
        self.disk.observe(OpSet::CHANGES, move |_, fork| taken.lock().unwrap().push(fork));
        work();
        self.disk.stop_observing();
        std::mem::take(&mut *forks.lock().unwrap())
    }
}

impl Sim {
    /// Asserts that the files eventually satisfy `wanted`: files used by a reader or by another test's thread are deleted later.
    pub(crate) fn eventually(&self, db: &Db, wanted: impl Fn(&[String]) -> bool) {
        for _ in 0..3000 {
            db.compact().unwrap();
            if wanted(&self.disk.file_names(DB).unwrap()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{:?}", self.disk.file_names(DB).unwrap());
    }
}

/// Returns an order that compares bytes, and the number of its comparisons, which are the work of an index.
pub(crate) fn counting() -> (Comparator, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let order = Comparator::custom("counted", move |a: &[u8], b: &[u8]| {
        counter.fetch_add(1, Ordering::Relaxed);
        a.cmp(b)
    });
    (order, count)
}

/// Returns settings with a small memtable; values of at least 512 bytes go to the value log.
pub(crate) fn small() -> FamilyOptions {
    FamilyOptions::default().write_buffer_bytes(1 << 20)
}

/// Returns such settings with a merge operator that joins operands by dots.
pub(crate) fn joined() -> FamilyOptions {
    small().merge_operator(MergeOperator::append("."))
}

/// The function of a merge operator that joins operands.
pub(crate) fn joins(
    value: &mut Vec<u8>,
    operand: &[u8],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    value.extend_from_slice(operand);
    Ok(())
}

/// Collects all pairs of an iterator.
pub(crate) fn pairs(iter: impl Iterator<Item = Result<(tidesdb::Slice, tidesdb::Slice)>>) -> Vec<Pair> {
    iter.map(|kv| kv.map(|(k, v)| (k.into_vec(), v.into_vec())).unwrap()).collect()
}

/// Collects the keys of an iterator, as text.
pub(crate) fn keys(iter: Result<Iter>) -> Vec<String> {
    text(pairs(iter.unwrap()).into_iter().map(|(k, _)| k))
}

/// Collects the keys of an iterator from its end, as text.
pub(crate) fn keys_back(iter: Result<Iter>) -> Vec<String> {
    text(pairs(iter.unwrap().rev()).into_iter().map(|(k, _)| k))
}

fn text(keys: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    keys.map(|k| String::from_utf8(k).unwrap()).collect()
}

/// Returns all pairs of a family.
pub(crate) fn contents(family: &Family) -> Vec<Pair> {
    pairs(family.iter().unwrap())
}

/// Returns the value of a key, for comparisons.
pub(crate) fn value(family: &Family, key: &[u8]) -> Option<Vec<u8>> {
    family.get(key).unwrap().map(tidesdb::Slice::into_vec)
}

/// Returns incompressible bytes, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.bits() as u8).collect()
}

/// Random numbers, the same for the same seed (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.bits() >> 11) % n
    }

    /// Returns an index of a sequence of `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Puts `n` numbered keys.
pub(crate) fn fill(family: &Family, n: u32, value: &[u8]) {
    for i in 0..n {
        family.put(format!("key{i:06}").as_bytes(), value).unwrap();
    }
}

/// Puts one-letter keys, each with itself as value.
pub(crate) fn letters(family: &Family, letters: &str) {
    for letter in letters.bytes() {
        family.put(&[letter], &[letter]).unwrap();
    }
}

/// Puts the same pair into two families with one commit.
pub(crate) fn put_twice(db: &Db, families: [&Family; 2], thread: u8, i: u32) -> Result<()> {
    let mut batch = WriteBatch::new();
    let key = [&[thread][..], &(i % 100).to_be_bytes()].concat();
    let value = [&i.to_be_bytes()[..], &[1; 200]].concat();
    for family in families {
        batch.put(family, &key, &value)?;
    }
    db.write(&mut batch).map(drop)
}

/// Sets its flag when it is dropped, so that the threads of a test end although the test fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Bytes of all parts of the memory that the limit counts.
pub(crate) fn used(db: &Db) -> u64 {
    counted(&db.stats())
}

/// Bytes of all parts of the memory that the limit counts, when `s` was taken.
pub(crate) fn counted(s: &Stats) -> u64 {
    s.memory_memtables_bytes
        + s.memory_transactions_bytes
        + s.memory_cursors_bytes
        + s.memory_jobs_bytes
        + s.memory_ranges_bytes
        + s.memory_tables_bytes
        + s.memory_fixed_bytes
}

/// The error of the database in an error of a reader or writer.
pub(crate) fn inner(e: std::io::Error) -> tidesdb::Error {
    *e.into_inner().unwrap().downcast::<tidesdb::Error>().unwrap()
}
