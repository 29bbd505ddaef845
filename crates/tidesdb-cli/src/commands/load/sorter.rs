//! Rows in any order, sorted before they go to tables: an external sort whose runs are sorted tables of a scratch database.
//!
//! Rows are collected in memory. When they fill a chunk, another thread sorts it and writes it to the scratch database, in which later chunks replace the
//! rows of earlier ones; no merge runs there. A cursor over it then shows each key once, in order. The scratch database lies in the folder of the
//! database whose rows are loaded, and belongs to whoever may write that one.

use std::ffi::OsStr;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tidesdb::{
    Comparator, Db, Error, Family, FamilyOptions, KEY_BYTES_MAX, Result, SyncMode, VALUE_BYTES_MAX,
};

use crate::format::Row;

/// Name of the scratch database.
const NAME: &str = "SORTING";
/// Bytes of cache of the scratch database, which is read once, in order.
const CACHE_BYTES: u64 = 16 << 20;
/// The expiry stands before the value: the scratch database must not drop a row that has expired, which hides older ones.
const EXPIRY_BYTES: usize = 8;

/// Sorts rows.
pub(super) struct Sorter {
    scratch: Scratch,
    family: Family,
    order: Comparator,
    chunk_bytes: usize,
    chunk: Chunk,
    /// The thread that sorts the chunk before this one.
    work: Option<JoinHandle<Result<()>>>,
}

impl Sorter {
    /// Begins to sort rows of a family with `options` of the database in the folder `home`: `chunk_bytes` at a time in memory, and the next
    /// ones are collected meanwhile.
    pub(super) fn new(home: &Path, options: &FamilyOptions, chunk_bytes: usize) -> Result<Self> {
        let order = options.comparator.clone();
        let mut family = FamilyOptions::default().filter_bits_per_key(0);
        family.comparator = order.clone();
        let scratch = Scratch::create(home.join(NAME), family)?;
        Ok(Self {
            family: scratch.db.default_family().clone(),
            scratch,
            order,
            chunk_bytes,
            chunk: Chunk::default(),
            work: None,
        })
    }

    /// Adds a row, which replaces earlier ones of its key.
    ///
    /// # Errors
    /// `InvalidArgument` for a row that no family takes, and no other.
    pub(super) fn add(&mut self, row: &Row<'_>) -> Result<()> {
        if !(1..=KEY_BYTES_MAX).contains(&row.key.len()) {
            return Err(wrong(format!("a key has from 1 to {KEY_BYTES_MAX} bytes, not {}", row.key.len())));
        }
        if row.value.len() > VALUE_BYTES_MAX - EXPIRY_BYTES {
            return Err(wrong(format!("a value of {} bytes is too long to be sorted", row.value.len())));
        }
        self.chunk.add(row);
        Ok(())
    }

    /// Sorts what was added, if it is enough. To be called now and then.
    pub(super) fn step(&mut self) -> Result<()> {
        if self.chunk.size() < self.chunk_bytes { Ok(()) } else { self.sort_chunk() }
    }

    /// Calls `each` with the last row of each key, in the order of the keys, and forgets all rows.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        self.sort_chunk()?;
        self.wait()?;
        let mut cursor = self.family.cursor()?;
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (key, value) = cursor.entry()?;
            let Some((expiry, value)) = value.split_first_chunk() else {
                return Err(wrong("a row of the scratch database has no expiry".to_owned()));
            };
            each(&Row { line: 0, key, value, expiry: u64::from_le_bytes(*expiry) })?;
            cursor.next()?;
        }
        drop(cursor);
        self.scratch.renew()?;
        self.family = self.scratch.db.default_family().clone();
        Ok(())
    }

    fn sort_chunk(&mut self) -> Result<()> {
        self.wait()?;
        let chunk = Arc::new(std::mem::take(&mut self.chunk));
        let (rows, order, family) = (Arc::clone(&chunk), self.order.clone(), self.family.clone());
        let work = move || rows.write(&order, &family);
        match std::thread::Builder::new().name("tidesdb-sort".to_owned()).spawn(work) {
            Ok(thread) => self.work = Some(thread),
            Err(_) => chunk.write(&self.order, &self.family)?, // the system has no thread left
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        match self.work.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Sorter {
    fn drop(&mut self) {
        // The thread uses the scratch database.
        let _ = self.work.take().map(JoinHandle::join);
    }
}

/// Rows in memory.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    rows: Vec<Place>,
}

/// Where a row lies in the bytes of its chunk: its key, and behind that its expiry and its value.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    key: usize,
    value: usize,
}

impl Chunk {
    fn add(&mut self, row: &Row<'_>) {
        let (key, value) = (row.key.len(), EXPIRY_BYTES + row.value.len());
        self.rows.push(Place { at: self.bytes.len(), key, value });
        self.bytes.extend_from_slice(row.key);
        self.bytes.extend_from_slice(&row.expiry.to_le_bytes());
        self.bytes.extend_from_slice(row.value);
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<Place>()
    }

    /// Writes the last row of each key to `family`, as one commit.
    fn write(&self, order: &Comparator, family: &Family) -> Result<()> {
        let (bytes, mut rows) = (&self.bytes, self.rows.clone());
        let key = |place: &Place| &bytes[place.at..place.at + place.key];
        rows.sort_by(|a, b| order.compare(key(a), key(b))); // it keeps the order of equal keys
        let mut writer = family.sorted_writer()?;
        for (n, place) in rows.iter().enumerate() {
            if rows.get(n + 1).is_some_and(|next| order.compare(key(place), key(next)).is_eq()) {
                continue;
            }
            let value = place.at + place.key;
            writer.rows().put(key(place), &bytes[value..value + place.value])?;
        }
        writer.commit().map(drop)
    }
}

/// A database without merges, which its end removes.
struct Scratch {
    db: Db,
    path: PathBuf,
    options: FamilyOptions,
}

impl Scratch {
    fn create(path: PathBuf, options: FamilyOptions) -> Result<Self> {
        let db = Self::open(&path, &options)?;
        Ok(Self { db, path, options })
    }

    fn open(path: &Path, options: &FamilyOptions) -> Result<Db> {
        remove(path); // that of a process that was killed
        if path.exists() {
            return Err(wrong(format!("{} is needed to sort rows: remove it", path.display())));
        }
        let sync = SyncMode::None;
        let all = Db::options(path).sync(sync).cache_bytes(CACHE_BYTES).background_threads(0);
        all.with(|all| all.event_log = false).default_family(options.clone()).open()
    }

    /// Removes all rows.
    fn renew(&mut self) -> Result<()> {
        self.db.clone().close()?;
        self.db = Self::open(&self.path, &self.options)?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.db.clone().close(); // its files go in any case
        remove(&self.path);
    }
}

fn wrong(what: String) -> Error {
    Error::InvalidArgument { what: what.into() }
}

/// Removes a scratch database, also a part of one: a kill while it was made or removed leaves that. Another folder stays.
fn remove(path: &Path) {
    if path.join("CURRENT").is_file() || has_only_files_of_database(path) {
        // The next load tries again.
        let _ = std::fs::remove_dir_all(path);
    }
}

fn has_only_files_of_database(path: &Path) -> bool {
    let is_one = |file: io::Result<DirEntry>| {
        file.is_ok_and(|file| {
            file.file_type().is_ok_and(|kind| kind.is_file()) && is_of_database(&file.file_name())
        })
    };
    std::fs::read_dir(path).is_ok_and(|mut files| files.all(is_one))
}

/// Returns whether a file is named as the engine names those of a database.
pub(super) fn is_of_database(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    match end {
        "" => ["LOCK", "RESERVE", "EVENTS", "FIGURES", "SYNC-FAILED"].contains(&stem),
        _ if name == "CURRENT.new" || name == "EVENTS.old" || name.starts_with("INGEST-") => true,
        _ => {
            let is_number = !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_digit());
            let (end, aside) = end.split_once('.').unwrap_or((end, ""));
            is_number
                && ["manifest", "wal", "klog", "vlog"].contains(&end)
                && ["", "orphan", "lost", "free"].contains(&aside)
        }
    }
}
