//! A budget of file descriptors: files opened for reading are closed when too many are open, and reopened on
//! the next read.
//!
//! A database may have far more tables and value logs than the process may have open files. [`PooledDir`] wraps a
//! directory: [`Dir::open`] for reading returns a file that holds a descriptor only while [`Descriptors`] has
//! one to spare. The least recently used file loses its descriptor first (CLOCK, one bit per file). Files that
//! were created or opened for writing keep theirs, because a sync must go through the descriptor that was
//! written to.
//!
//! A file must keep its name and its bytes while it is in use. The engine removes a table or a sealed value log only
//! after its last reader has left. [`PooledDir::keeping`] is for files whose names another process may remove: before
//! such a file loses its descriptor it is mapped, and the map is read if the name is gone.
//!
//! Cost: a read takes a shared lock and a reference count in addition to its system call. Threads: all methods
//! may be called from any thread.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::raw::{Mutex, MutexGuard, RwLock};
use crate::system::{self, Errno};
use crate::{Access, Advice, Boot, Dir, DirLock, File, Space, Surroundings};

/// More open files cost memory and gain nothing.
const DESCRIPTORS_MAX: usize = 8192;

/// A limit on the descriptors of files open for reading, and the list of files that hold one.
#[derive(Debug)]
pub struct Descriptors {
    max: usize,
    open: Mutex<VecDeque<Weak<PooledFile>>>,
}

impl Descriptors {
    /// Creates a budget of `max` descriptors, at least one.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), open: Mutex::default() }
    }

    /// Returns the budget that all databases of the process share: half of the files that it may have open, at most
    /// 8,192. The rest is for files that are written, and for the program itself. Windows sets no limit.
    pub fn of_process() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Descriptors>> = OnceLock::new();
        let half = || system::files_max().and_then(|limit| usize::try_from(limit / 2).ok());
        let max = || half().map_or(DESCRIPTORS_MAX, |half| half.min(DESCRIPTORS_MAX));
        Arc::clone(SHARED.get_or_init(|| Arc::new(Self::new(max()))))
    }

    /// Returns the size of the budget.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Counts the files that hold a descriptor now.
    pub fn open_files(&self) -> usize {
        self.queue().iter().filter(|file| file.strong_count() > 0).count()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Weak<PooledFile>>> {
        self.open.lock()
    }

    /// Runs `call`, and runs it again as long as descriptors run out and some can be freed: another thread may take those first.
    fn with_one<R>(&self, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        loop {
            match call() {
                Err(e) if is_out_of_descriptors(&e) && self.evict_half() => {}
                other => return other,
            }
        }
    }

    /// Records that `file` holds a descriptor, and closes other files if the budget is exceeded.
    fn admit(&self, file: &Arc<PooledFile>) {
        let mut queue = self.queue();
        queue.push_back(Arc::downgrade(file));
        while queue.len() > self.max {
            Self::evict_one(&mut queue);
        }
    }

    /// Closes half of all files, because the process or the system is out of descriptors. Returns false if none
    /// was open.
    fn evict_half(&self) -> bool {
        let mut queue = self.queue();
        let keep = queue.len() / 2;
        let some = !queue.is_empty();
        while queue.len() > keep {
            Self::evict_one(&mut queue);
        }
        some
    }

    /// Closes the first file in the queue that was not used since the last scan for a file to close. Skips each
    /// recently used file at most once.
    fn evict_one(queue: &mut VecDeque<Weak<PooledFile>>) {
        let mut chances = queue.len();
        while let Some(next) = queue.pop_front() {
            let Some(file) = next.upgrade() else { return };
            if chances > 0 && file.used.swap(false, Ordering::Relaxed) {
                chances -= 1;
                queue.push_back(next);
                continue;
            }
            file.close();
            return;
        }
    }
}

/// A directory whose files for reading share a budget of descriptors.
///
/// ```
/// use std::sync::Arc;
/// use tidesdb_io::{Access, Descriptors, Dir, Disk, FileExt, PooledDir, RealDisk};
///
/// let temp = tempfile::tempdir()?;
/// let descriptors = Arc::new(Descriptors::new(2));
/// let dir = PooledDir::wrap(RealDisk::new().open_dir(temp.path(), false)?, &descriptors);
/// let mut files = Vec::new();
/// for n in 0..9u8 {
///     dir.create_new(&n.to_string(), 0)?.write_all_at(&[n], 0)?;
///     files.push(dir.open(&n.to_string(), Access::Read)?);
/// }
/// assert_eq!(descriptors.open_files(), 2);
/// let mut byte = [0];
/// files[3].read_exact_at(&mut byte, 0)?; // opened again
/// assert_eq!(byte, [3]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PooledDir {
    inner: Arc<dyn Dir>,
    descriptors: Arc<Descriptors>,
    keeping: bool,
}

impl PooledDir {
    /// Wraps `inner` so that its files share `descriptors`.
    pub fn wrap(inner: Arc<dyn Dir>, descriptors: &Arc<Descriptors>) -> Arc<dyn Dir> {
        Arc::new(Self { inner, descriptors: Arc::clone(descriptors), keeping: false })
    }

    /// Like [`PooledDir::wrap`], for files whose names another process may remove. A file stays readable for as long as
    /// it is open: if it cannot be mapped, it keeps its descriptor, beyond the budget if need be.
    pub fn keeping(inner: Arc<dyn Dir>, descriptors: &Arc<Descriptors>) -> Arc<dyn Dir> {
        Arc::new(Self { inner, descriptors: Arc::clone(descriptors), keeping: true })
    }
}

/// Returns whether a call failed because the process or the system has too many open files. The numbers of these errors differ between
/// systems: 23 and 24 on Unix stand for damaged data and a wrong length on Windows.
///
/// ```
/// use std::io::Error;
/// use tidesdb_io::is_out_of_descriptors;
/// use tidesdb_io::sim::errno;
///
/// assert!(is_out_of_descriptors(&Error::from_raw_os_error(errno::EMFILE)));
/// assert!(!is_out_of_descriptors(&Error::from_raw_os_error(errno::EIO)));
/// ```
pub fn is_out_of_descriptors(e: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

impl Dir for PooledDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        self.descriptors.with_one(|| self.inner.create_new(name, prealloc))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.descriptors.with_one(|| self.inner.open(name, access))?;
        if access == Access::ReadWrite {
            return Ok(file);
        }
        let pooled = Arc::new_cyclic(|this| PooledFile {
            this: Weak::clone(this),
            dir: Arc::clone(&self.inner),
            descriptors: Arc::clone(&self.descriptors),
            name: name.to_owned(),
            access,
            keeping: self.keeping,
            slot: RwLock::new(Slot::Open(file)),
            used: AtomicBool::new(false),
        });
        self.descriptors.admit(&pooled);
        Ok(pooled)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.inner.unlink(name)
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        self.inner.link(name, to, to_name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.descriptors.with_one(|| self.inner.list())
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.descriptors.with_one(|| self.inner.is_empty())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.descriptors.with_one(|| self.inner.lock(name, exclusive))
    }

    fn boot(&self) -> Boot {
        self.inner.boot()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn surroundings(&self, process: Option<u32>) -> Surroundings {
        self.inner.surroundings(process)
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

/// A file for reading that may lose its descriptor between two calls.
#[derive(Debug)]
struct PooledFile {
    this: Weak<Self>,
    dir: Arc<dyn Dir>,
    descriptors: Arc<Descriptors>,
    name: String,
    access: Access,
    /// Whether another process may remove the name.
    keeping: bool,
    slot: RwLock<Slot>,
    /// Set by reads; cleared when the file is skipped in a scan for a file to close.
    used: AtomicBool,
}

/// The way in which a file can be read now.
#[derive(Debug)]
enum Slot {
    /// Through this file, which holds a descriptor, or is the map of a file whose name is gone.
    Open(Arc<dyn File>),
    /// It is reopened by its name.
    Closed,
    /// It is reopened by its name, or read through this map if the name is gone.
    Mapped(Arc<dyn File>),
}

impl PooledFile {
    /// Gives up the descriptor, unless the file could not be read afterwards.
    fn close(&self) {
        let mut slot = self.slot.write();
        let Slot::Open(file) = &*slot else { return };
        *slot = match self.keeping {
            false => Slot::Closed,
            true => match file.without_descriptor() {
                Ok(Some(map)) => Slot::Mapped(map),
                _ => return,
            },
        };
    }

    /// Returns the file, reopening it if it was closed.
    fn file(&self) -> io::Result<Arc<dyn File>> {
        let kept = match &*self.slot.read() {
            Slot::Open(file) => {
                if !self.used.load(Ordering::Relaxed) {
                    self.used.store(true, Ordering::Relaxed);
                }
                return Ok(Arc::clone(file));
            }
            Slot::Closed => None,
            Slot::Mapped(map) => Some(Arc::clone(map)),
        };
        let (opened, is_map) = match (self.reopen(), kept) {
            // A name is never used again, so the next read need not look for it.
            (Err(e), Some(map)) if e.kind() == io::ErrorKind::NotFound => (map, true),
            (opened, _) => (opened?, false),
        };
        {
            let mut slot = self.slot.write();
            if let Slot::Open(file) = &*slot {
                return Ok(Arc::clone(file)); // another thread reopened it first
            }
            *slot = Slot::Open(Arc::clone(&opened));
        }
        // The slot lock is free here. Lock order: the queue before a slot, never after.
        if let Some(this) = self.this.upgrade().filter(|_| !is_map) {
            self.descriptors.admit(&this);
        }
        Ok(opened)
    }

    fn reopen(&self) -> io::Result<Arc<dyn File>> {
        self.descriptors.with_one(|| self.dir.open(&self.name, self.access))
    }
}

impl File for PooledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file()?.read_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.file()?.read_cached_at(buf, offset)
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

    fn identity(&self) -> u64 {
        self.file().map_or(0, |file| file.identity())
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        self.file()?.advise(advice, offset, len)
    }

    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        self.file()?.is_cached(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, FileExt, RealDisk};

    /// Opens three files of a directory with one descriptor.
    fn three(dir: Arc<dyn Dir>) -> Vec<Arc<dyn File>> {
        let name = |n: u8| n.to_string();
        for n in 0..3u8 {
            dir.create_new(&name(n), 0).unwrap().write_all_at(&[n; 9000], 0).unwrap();
        }
        (0..3u8).map(|n| dir.open(&name(n), Access::Random).unwrap()).collect()
    }

    #[test]
    fn a_call_goes_on_while_descriptors_can_be_freed() {
        let (env, ..) = crate::sim::env(1);
        let descriptors = Arc::new(Descriptors::new(8));
        let dir = env.disk.open_dir(Path::new("/d"), true).unwrap();
        let _files = three(PooledDir::wrap(dir, &descriptors));
        let out = || Err::<(), _>(Errno::MFILE.into());
        // Another thread takes those that are freed first.
        descriptors.with_one(|| if descriptors.open_files() > 0 { out() } else { Ok(()) }).unwrap();
        assert!(is_out_of_descriptors(&descriptors.with_one(out).unwrap_err()));
    }

    #[test]
    fn a_kept_file_is_readable_after_its_name_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let descriptors = Arc::new(Descriptors::new(1));
        let plain = RealDisk::new().open_dir(temp.path(), false).unwrap();
        if plain.create_new("probe", 1).unwrap().without_descriptor().unwrap().is_none() {
            return; // the file system does not allow maps
        }
        let files = three(PooledDir::keeping(Arc::clone(&plain), &descriptors));
        assert_eq!(descriptors.open_files(), 1);
        plain.create_new("2.new", 0).unwrap().write_all_at(b"other", 0).unwrap();
        ["0", "1", "2"].iter().for_each(|name| plain.unlink(name).unwrap());
        for (n, file) in (0..3u8).zip(&files) {
            let mut bytes = [9; 8990];
            file.read_exact_at(&mut bytes, 7).unwrap();
            assert!(bytes.iter().all(|b| *b == n));
            assert_eq!((file.len().unwrap(), file.read_at(&mut bytes, 9000).unwrap()), (9000, 0));
        }
    }

    #[test]
    fn a_name_that_is_gone_is_looked_for_once() {
        let temp = tempfile::tempdir().unwrap();
        let plain = RealDisk::new().open_dir(temp.path(), false).unwrap();
        if plain.create_new("probe", 1).unwrap().without_descriptor().unwrap().is_none() {
            return; // the file system does not allow maps
        }
        let files = three(PooledDir::keeping(Arc::clone(&plain), &Arc::new(Descriptors::new(1))));
        let first_byte = || {
            let mut byte = [9];
            files[0].read_exact_at(&mut byte, 0).unwrap();
            byte[0]
        };
        plain.unlink("0").unwrap();
        assert_eq!(first_byte(), 0);
        plain.create_new("0", 0).unwrap().write_all_at(&[7; 9000], 0).unwrap();
        assert_eq!(first_byte(), 0, "the second read does not open the name again");
    }

    #[test]
    fn a_file_that_is_not_kept_needs_its_name() {
        let temp = tempfile::tempdir().unwrap();
        let plain = RealDisk::new().open_dir(temp.path(), false).unwrap();
        let files = three(PooledDir::wrap(Arc::clone(&plain), &Arc::new(Descriptors::new(1))));
        plain.unlink("0").unwrap();
        assert_eq!(files[0].read_at(&mut [0], 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_kept_file_that_grew_is_read_by_its_name() {
        let temp = tempfile::tempdir().unwrap();
        let plain = RealDisk::new().open_dir(temp.path(), false).unwrap();
        let files = three(PooledDir::keeping(Arc::clone(&plain), &Arc::new(Descriptors::new(1))));
        plain.open("0", Access::ReadWrite).unwrap().write_all_at(b"more", 9000).unwrap();
        let mut bytes = [0; 4];
        files[0].read_exact_at(&mut bytes, 9000).unwrap();
        assert_eq!((&bytes, files[0].len().unwrap()), (b"more", 9004));
    }
}
