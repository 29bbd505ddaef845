//! The tables and value logs in the local folder: which exist, which may be removed, and fetching removed ones again.
//!
//! A file may be removed from the folder once the store has all of it, the manifest in the store names it, and nothing is written to it any
//! more ([`Cache::settle`]). It gets another name first. Its open handles then lose their descriptors, so that the disk blocks are freed, and
//! the next read fetches the file again. A fetched file is written under a temporary name, synced and then renamed. So a crash
//! never leaves a partial file under the final name.
//!
//! Lock order: `fetching` before `files`; the slot lock of an open file last. Only `fetching` is held while the store
//! is called.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tidesdb_io::{Access, Dir, File, FileExt};
use tidesdb_sync::{Mutex, rank};

use super::dir::RemoteFile;
use super::names::{is_cached, object_name};
use super::{FilePart, Objects};
use crate::store::ObjectStore;

/// Suffix of a file that is being fetched, and of one that is being removed.
const FETCHED: &str = ".fetch";
const EVICTED: &str = ".evicted";
/// Maximum number of fetches per open: a file may be removed again before its fetcher has opened it.
const TRIES_MAX: u32 = 16;

/// Tables and value logs in the local folder.
#[derive(Debug)]
pub(super) struct Cache {
    store: Arc<dyn ObjectStore>,
    objects: Arc<Mutex<Objects, { rank::REMOTE_OBJECTS }>>,
    dir: Arc<dyn Dir>,
    pub(super) bytes_max: u64,
    files: Mutex<Files, { rank::REMOTE_FILES }>,
    fetching: Mutex<(), { rank::REMOTE_FETCHING }>,
    /// Counts fetches; serves as the clock for finding the least recently used file.
    time: AtomicU64,
    /// Counts the files that were removed, or should have been: part of a name that is used once.
    removals: AtomicU64,
    /// Set while the last fetch failed.
    failing: AtomicBool,
    pub(super) downloads: AtomicU64,
    pub(super) downloaded_bytes: AtomicU64,
    pub(super) download_failures: AtomicU64,
    pub(super) evictions: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    /// Files in the folder.
    local: BTreeMap<String, Local>,
    /// Files that the engine has not unlinked, whether in the folder or not.
    live: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Local {
    /// Length, once the file is settled.
    settled: Option<u64>,
    used: Arc<AtomicU64>,
    open: Vec<Weak<RemoteFile>>,
}

impl Cache {
    /// Creates the cache in `dir`, limited to `bytes_max` bytes; 0 = no limit.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        objects: &Arc<Mutex<Objects, { rank::REMOTE_OBJECTS }>>,
        bytes_max: u64,
        dir: &Arc<dyn Dir>,
    ) -> io::Result<Self> {
        let mut files = Files::default();
        for name in dir.list()? {
            if name.ends_with(EVICTED) {
                let _ = dir.unlink(&name); // another process may still have it open
            } else if name.ends_with(FETCHED) {
                dir.unlink(&name)?;
            } else if is_cached(&name) {
                files.local.insert(name.clone(), Local::default());
                files.live.insert(name);
            }
        }
        Ok(Self {
            store,
            objects: Arc::clone(objects),
            dir: Arc::clone(dir),
            bytes_max,
            files: Mutex::new(files),
            fetching: Mutex::default(),
            time: AtomicU64::new(1),
            removals: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            downloads: AtomicU64::new(0),
            downloaded_bytes: AtomicU64::new(0),
            download_failures: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Records that the file `name` was created.
    pub(super) fn created(&self, name: &str) {
        let mut files = self.files.lock();
        files.local.insert(name.to_owned(), Local::default());
        files.live.insert(name.to_owned());
    }

    /// Records that the engine uses the file `name`, whether it is in the folder or not.
    pub(super) fn set_live(&self, name: String) {
        self.files.lock().live.insert(name);
    }

    /// Returns whether the engine may still read the file `name`.
    pub(super) fn is_live(&self, name: &str) -> bool {
        self.files.lock().live.contains(name)
    }

    /// Records that the engine has unlinked or renamed the file `name`.
    pub(super) fn forget(&self, name: &str) {
        let mut files = self.files.lock();
        files.live.remove(name);
        files.local.remove(name);
    }

    /// Records that the store has all `bytes` of the file `name`, that its manifest names it, and that nothing is written to it any more.
    pub(super) fn settle(&self, name: &str, bytes: u64) {
        if let Some(local) = self.files.lock().local.get_mut(name) {
            local.settled = Some(bytes);
        }
    }

    /// Opens the file `name` for reading, fetching it if necessary.
    pub(super) fn open(self: &Arc<Self>, name: &str) -> io::Result<Arc<RemoteFile>> {
        self.open_or_fetch(name, |files, file| {
            files.live.insert(name.to_owned());
            let local = files.local.entry(name.to_owned()).or_default();
            let file = RemoteFile::new(self, name, file, Arc::clone(&local.used));
            local.open.retain(|file| file.strong_count() > 0);
            local.open.push(Arc::downgrade(&file));
            file
        })
    }

    /// Opens the file `name` again for `handle`, which lost its descriptor.
    pub(super) fn reopen(&self, name: &str, handle: &Arc<RemoteFile>) -> io::Result<Arc<dyn File>> {
        self.open_or_fetch(name, |files, file| {
            files.local.entry(name.to_owned()).or_default().open.push(Arc::downgrade(handle));
            handle.fill(&file);
            file
        })
    }

    /// Opens the file `name` in the folder, after fetching it if necessary, and passes it to `opened`.
    fn open_or_fetch<R>(&self, name: &str, opened: impl Fn(&mut Files, Arc<dyn File>) -> R) -> io::Result<R> {
        self.with_local(name, |files| {
            let file = self.dir.open(name, Access::Read)?;
            files.local.entry(name.to_owned()).or_default().used.store(self.now(), Ordering::Relaxed);
            Ok(opened(files, file))
        })
    }

    /// Runs `call`, which needs the file `name` in the folder, after fetching it if necessary. No file leaves the folder meanwhile.
    pub(super) fn with_local<R>(
        &self,
        name: &str,
        call: impl Fn(&mut Files) -> io::Result<R>,
    ) -> io::Result<R> {
        for _ in 0..=TRIES_MAX {
            {
                let mut files = self.files.lock();
                match call(&mut files) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        if self.dir.open(name, Access::Read).is_ok() {
                            return call(&mut files); // it was fetched meanwhile, or something else is missing
                        }
                        files.local.remove(name);
                    }
                    done => return done,
                }
            }
            self.fetch(name)?;
        }
        Err(io::Error::other("the local cache of the object store is too small; raise local_bytes_max"))
    }

    /// Fetches the file `name` if the store has it and the folder does not.
    ///
    /// A store failure must not look like a disk failure: every store error is reported as `HostUnreachable`.
    pub(super) fn fetch(&self, name: &str) -> io::Result<()> {
        let _one_at_a_time = self.fetching.lock();
        if self.files.lock().local.contains_key(name) {
            return Ok(()); // another thread has fetched it
        }
        let parts = {
            let objects = self.objects.lock();
            if !objects.has(name) {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the file is neither in the folder nor in the object store",
                ));
            }
            objects.parts(name).to_vec()
        };
        let mut fetched = 0;
        let result = self.fetch_parts(name, &parts, &mut fetched);
        self.downloaded_bytes.fetch_add(fetched, Ordering::Relaxed);
        if let Err(e) = result {
            self.download_failures.fetch_add(1, Ordering::Relaxed);
            let _ = self.dir.unlink(&format!("{name}{FETCHED}"));
            if !self.failing.swap(true, Ordering::Relaxed) {
                tracing::warn!(%name, error = %e, "a file could not be fetched from the object store; the next read retries");
            }
            return Err(e);
        }
        self.failing.store(false, Ordering::Relaxed);
        let used = Arc::new(AtomicU64::new(self.time.fetch_add(1, Ordering::Relaxed) + 1));
        let local = Local { settled: Some(fetched), used, open: Vec::new() };
        self.files.lock().local.insert(name.to_owned(), local);
        self.shrink(Some(name));
        Ok(())
    }

    fn fetch_parts(&self, name: &str, parts: &[FilePart], fetched: &mut u64) -> io::Result<()> {
        let temp = format!("{name}{FETCHED}");
        let file = self.dir.create_new(&temp, 0)?;
        for &FilePart { offset, bytes } in parts {
            let mut at = offset;
            let mut disk: Option<io::Error> = None;
            let got = self.store.get(&object_name(name, offset), &mut |piece| {
                let written = file.write_all_at(piece, at);
                at += piece.len() as u64;
                written.map_err(|e| {
                    let kind = e.kind();
                    disk = Some(e);
                    kind.into()
                })
            });
            *fetched += at - offset;
            self.downloads.fetch_add(1, Ordering::Relaxed);
            match (got, disk) {
                (_, Some(e)) => return Err(e),
                (Err(e), None) => return Err(unreachable_store(&e)),
                (Ok(()), None) if at != offset + bytes => {
                    return Err(unreachable_store(&"an object does not have its listed length"));
                }
                _ => {}
            }
        }
        file.sync_all()?;
        self.dir.rename(&temp, name)
    }

    /// Removes settled files beyond the limit, least recently used first. Keeps the file just fetched, `fetched`, and
    /// the file used before it. A read that needs both a table and a value log would otherwise fetch them in turn
    /// forever.
    pub(super) fn shrink(&self, fetched: Option<&str>) {
        if self.bytes_max == 0 {
            return;
        }
        let mut files = self.files.lock();
        let used = |(_, local): &(&String, &Local)| local.used.load(Ordering::Relaxed);
        let others = files.local.iter().filter(|(name, _)| fetched.is_some_and(|f| f != name.as_str()));
        let before = others.max_by_key(used).map(|(name, _)| name.clone());
        let stays = |name: &String| fetched == Some(name) || before.as_ref() == Some(name);
        while files.local.values().filter_map(|l| l.settled).sum::<u64>() > self.bytes_max {
            let may_go = |(name, local): &(&String, &Local)| local.settled.is_some() && !stays(name);
            let oldest = files.local.iter().filter(may_go).min_by_key(used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            if let Err(error) = self.remove(&name) {
                tracing::warn!(%name, %error, "a file of the local cache could not be removed");
                return;
            }
            if let Some(local) = files.local.remove(&name) {
                local.open.iter().filter_map(Weak::upgrade).for_each(|file| file.clear());
            }
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a file from the folder. Its name is free at once, for the next fetch, also where an open file keeps its name: a read under
    /// way, perhaps of another process, may have it open.
    fn remove(&self, name: &str) -> io::Result<()> {
        let gone = format!("{name}.{}{EVICTED}", self.removals.fetch_add(1, Ordering::Relaxed));
        self.dir.rename(name, &gone)?;
        let _ = self.dir.unlink(&gone); // the next open tries again
        Ok(())
    }

    /// Returns the time with which a file is marked when it is read.
    pub(super) fn now(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    /// Number and bytes of the tables and value logs in the local folder.
    pub(super) fn local(&self) -> (u64, u64) {
        let files = self.files.lock();
        let bytes = |(name, local): (&String, &Local)| match local.settled {
            Some(bytes) => bytes,
            None => self.dir.open(name, Access::Read).and_then(|file| file.len()).unwrap_or(0),
        };
        (files.local.len() as u64, files.local.iter().map(bytes).sum())
    }
}

/// Creates the error for a store that cannot be read now.
fn unreachable_store(cause: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::HostUnreachable, format!("object store: {cause}"))
}
