//! A directory whose tables and value logs may exist only in the store; opening one fetches it.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tidesdb_io::{Access, Advice, Boot, Dir, DirLock, File, Space};
use tidesdb_sync::{RwLock, rank};

use super::cache::Cache;
use super::names::is_cached;

/// Wraps the directory of a database that has an object store. Lists only files that exist locally.
#[derive(Debug)]
pub(super) struct RemoteDir {
    inner: Arc<dyn Dir>,
    cache: Arc<Cache>,
}

impl RemoteDir {
    /// Wraps `inner`, the directory of `cache`.
    pub(super) fn wrap(inner: Arc<dyn Dir>, cache: &Arc<Cache>) -> Arc<dyn Dir> {
        Arc::new(Self { inner, cache: Arc::clone(cache) })
    }

    /// Runs `call`, which needs the file `name`.
    fn with_file<R>(&self, name: &str, call: impl Fn() -> io::Result<R>) -> io::Result<R> {
        if is_cached(name) { self.cache.with_local(name, |_| call()) } else { call() }
    }
}

impl Dir for RemoteDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        let file = self.inner.create_new(name, prealloc)?;
        if is_cached(name) {
            self.cache.created(name);
        }
        Ok(file)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        if is_cached(name) && access != Access::ReadWrite {
            return Ok(self.cache.open(name)?);
        }
        self.with_file(name, || self.inner.open(name, access))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)?;
        if is_cached(from) {
            self.cache.forget(from);
        }
        Ok(())
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        let gone = self.inner.unlink(name);
        if !is_cached(name) {
            return gone;
        }
        match gone {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Err(e) if !self.cache.is_live(name) => return Err(e),
            _ => {} // the file existed only in the store; treat it as unlinked
        }
        self.cache.forget(name);
        Ok(())
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        self.with_file(name, || self.inner.link(name, to, to_name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.inner.is_empty()
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.inner.lock(name, exclusive)
    }

    fn boot(&self) -> Boot {
        self.inner.boot()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

/// A file for reading. It may be removed from the folder between two calls, and is then fetched again.
#[derive(Debug)]
pub(super) struct RemoteFile {
    this: Weak<Self>,
    cache: Arc<Cache>,
    name: String,
    slot: RwLock<Option<Arc<dyn File>>, { rank::REMOTE_FILE }>,
    used: Arc<AtomicU64>,
}

impl RemoteFile {
    pub(super) fn new(
        cache: &Arc<Cache>,
        name: &str,
        file: Arc<dyn File>,
        used: Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            cache: Arc::clone(cache),
            name: name.to_owned(),
            slot: RwLock::new(Some(file)),
            used,
        })
    }

    /// Closes the descriptor.
    pub(super) fn clear(&self) {
        *self.slot.write() = None;
    }

    /// Sets the descriptor after the file was fetched again.
    pub(super) fn fill(&self, file: &Arc<dyn File>) {
        *self.slot.write() = Some(Arc::clone(file));
    }

    fn file(&self) -> io::Result<Arc<dyn File>> {
        if let Some(file) = &*self.slot.read() {
            let now = self.cache.now();
            if self.used.load(Ordering::Relaxed) != now {
                self.used.store(now, Ordering::Relaxed);
            }
            return Ok(Arc::clone(file));
        }
        let this = self.this.upgrade().ok_or(io::ErrorKind::NotFound)?;
        self.cache.reopen(&self.name, &this)
    }
}

impl File for RemoteFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file()?.read_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file()?.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file()?.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }

    /// Always `None`: a map would keep the disk blocks of a removed file in use.
    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        self.file()?.advise(advice, offset, len)
    }

    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        self.file()?.is_cached(offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.file()?.read_cached_at(buf, offset)
    }
}
